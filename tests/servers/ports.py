"""Ports for servers of tests, which nobody else takes before they listen, or while they are down.

The system gives any port of its own range to whoever connects somewhere: a server that is
to listen there may find it taken. So these lie below that range, and a lock on one byte of
a file, for as long as this process lives, keeps other test processes from the same one.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_FIRST = 10_240
_SYSTEMS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_RANGE = "32768 60999"
_TRIES = 1_000
#: Tests seed the usual one.
_chance = random.SystemRandom()

_taken: set[int] = set()
_locks: list[int] = []


def free_port() -> int:
    """A port of 127.0.0.1 that is this process's until it ends."""
    known = _SYSTEMS_RANGE.read_text() if _SYSTEMS_RANGE.exists() else _USUAL_RANGE
    end = max(int(known.split()[0]), _FIRST + 1_000)
    for _ in range(_TRIES):
        port = _chance.randrange(_FIRST, end)
        if port not in _taken and _is_free(port) and _is_locked(port):
            _taken.add(port)
            return port
    raise RuntimeError(f"{_TRIES} ports from {_FIRST} to {end} were tried, and none is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_locked(port: int) -> bool:
    """Whether the lock of the port is ours now."""
    if not _locks:
        path = Path(tempfile.gettempdir()) / f"pagefile-ports-{os.getuid()}"
        _locks.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_locks[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True

"""A manager that this process starts for itself, and that ends with it."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from pathlib import Path

from pagefile.engines.manager.protocol import LOOPBACK, Address, new_key
from pagefile.errors import Unavailable, Unsupported

_START_SECONDS, _END_SECONDS = 60.0, 10.0
_MOST_LINE = 64
#: Finds the package where this process has it; `-P` keeps the working folder out of the path.
_CODE = (
    "import sys\n"
    "home = sys.argv.pop(1)\n"
    "if home not in sys.path: sys.path.insert(0, home)\n"
    "from pagefile.engines.manager.server import main\n"
    "raise SystemExit(main())\n"
)


class Child:
    """A manager's process. It watches its stdin and its parent, and ends with either."""

    def __init__(self, process: subprocess.Popen[bytes], address: Address) -> None:
        self._process = process
        self.address = address
        self._pid = os.getpid()

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """Let it end; what it held is gone. Again does nothing."""
        if os.getpid() != self._pid:
            return  # It is the parent's.
        _end(self._process)


def start_child() -> Child:
    """Start one on loopback, at a port of its own, with a key of its own.

    Raises:
        Unavailable: it did not start.
    """
    if not sys.executable:
        raise Unsupported("this Python cannot start another", "start a manager by hand and join it")
    home = str(Path(__file__).resolve().parents[3])
    key = new_key()
    command = [sys.executable, "-P", "-c", _CODE, home, "--owned-by", str(os.getpid())]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal is for this process, which may still want to commit.
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(
            f"a manager cannot be started ({error.strerror})", "look at the process's limits"
        ) from error
    assert process.stdin is not None
    assert process.stdout is not None
    # Not as an argument: those are shown to everybody on the machine.
    try:
        process.stdin.write(key + b"\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as listening:
            listening.register(process.stdout, selectors.EVENT_READ)
            told = listening.select(_START_SECONDS)
        line = process.stdout.readline(_MOST_LINE) if told else b""
    except OSError:
        line = b""
    process.stdout.close()
    if not line.strip().isdigit():
        _end(process)
        raise Unavailable("the manager did not start", "look at what it wrote to stderr")
    return Child(process, Address(LOOPBACK, int(line), key))


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    # The end of its stdin is its word to go.
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

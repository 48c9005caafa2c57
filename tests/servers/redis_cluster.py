"""A real cluster for tests: several servers on loopback, each with its share of the slots."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pagefile.testing.backend import FileBackend, bytes_of_files
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer

_SLOTS = 16_384
_READY_SECONDS = 60.0
_PAUSE_SECONDS = 0.02
_names = itertools.count(1)


class RedisCluster:
    """Primaries with equal shares, and as many replicas of each as asked; a context manager.

    With settings for `tls` they also speak TLS, and among each other nothing else.
    """

    def __init__(
        self,
        *,
        shards: int = 3,
        replicas: int = 0,
        fsync: str | None = "always",
        options: Sequence[str] = (),
        binary: Path | None = None,
        tls: Sequence[str] = (),
    ) -> None:
        self._stack = ExitStack()
        self._count = shards
        self.servers: list[RedisServer] = []
        for _ in range(shards * (1 + replicas)):
            port = free_port()
            own = ["--cluster-enabled", "yes", "--cluster-port", str(port)]
            own += ["--cluster-node-timeout", "1500", "--repl-diskless-sync-delay", "0"]
            tls_port = free_port() if tls else 0
            if tls:
                own += ["--tls-port", str(tls_port), "--tls-cluster", "yes", *tls]
            server = RedisServer(fsync=fsync, options=(*own, *options), binary=binary)
            server.bus, server.tls_port = port, tls_port
            self.servers.append(server)

    @property
    def primaries(self) -> list[RedisServer]:
        """Those that were primaries at the start."""
        return self.servers[: self._count]

    @property
    def url(self) -> str:
        return self.servers[0].url

    def start(self) -> Self:
        """Start all, divide the slots, and wait until every server knows of all."""
        for server in self.servers:
            self._stack.callback(server.close)
            server.start()
        size = -(-_SLOTS // self._count)
        for at, server in enumerate(self.primaries):
            last = min(_SLOTS, (at + 1) * size) - 1
            server.tell("CLUSTER", "ADDSLOTSRANGE", at * size, last)
        first = self.servers[0]
        for server in self.servers[1:]:
            server.tell("CLUSTER", "MEET", "127.0.0.1", first.tls_port or first.port, first.bus)
        self._until(lambda s: s.count(b" connected") == len(self.servers), "NODES")
        for at, server in enumerate(self.servers[self._count :]):
            primary = self.primaries[at % self._count]
            server.tell("CLUSTER", "REPLICATE", primary.tell("CLUSTER", "MYID").decode())
        self._until(lambda s: b"cluster_state:ok" in s, "INFO")
        for server in self.servers[self._count :]:
            self.wait_for_link(server)
        return self

    def _until(self, reached: Any, what: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        for server in self.servers:
            while not reached(server.tell("CLUSTER", what)):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the cluster did not come together: {what}")
                time.sleep(_PAUSE_SECONDS)

    @staticmethod
    def wait_for_link(replica: RedisServer) -> None:
        """Wait until a replica has all that its primary has."""
        deadline = time.monotonic() + _READY_SECONDS
        while b"master_link_status:up" not in replica.tell("INFO", "replication"):
            if time.monotonic() > deadline:
                raise RuntimeError("the replica has no link to its primary")
            time.sleep(_PAUSE_SECONDS)

    def place(self) -> FileBackend:
        """An empty store for a test; nothing of the tests before is left."""
        for server in self.primaries:
            server.tell("FLUSHALL")
        url = f"{self.url}?prefix=place-{next(_names)}"
        return FileBackend(
            url, lambda: itertools.chain(*(bytes_of_files(s.folder) for s in self.servers))
        )

    def owner(self, slot: int) -> RedisServer:
        """Who has the slot now, by the word of the first server."""
        for start, end, (_, port, *_), *_ in self.servers[0].tell("CLUSTER", "SLOTS"):
            if start <= slot <= end:
                return next(server for server in self.servers if server.port == port)
        raise RuntimeError(f"slot {slot} is on no server")

    def move_slot(
        self, slot: int, to: RedisServer, halfway: Callable[[], object] | None = None
    ) -> None:
        """Move a slot to another server, key by key, as an operator does."""
        source = self.owner(slot)
        here, there = (server.tell("CLUSTER", "MYID").decode() for server in (source, to))
        to.tell("CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        source.tell("CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        while keys := source.tell("CLUSTER", "GETKEYSINSLOT", slot, 4):
            source.tell("MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", *keys)
            if halfway is not None:
                halfway()
                halfway = None
        for server in (to, source, *(s for s in self.primaries if s not in (to, source))):
            server.tell("CLUSTER", "SETSLOT", slot, "NODE", there)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

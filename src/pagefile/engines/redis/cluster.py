"""Who has which keys: one server has all of them, or each shard of a cluster some slots.

All keys of a tenant are in one slot. Which server has it is learnt from the
cluster and learnt again when a server says that a slot has moved, or is away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError, TryAgainError

from pagefile.engines.redis.connection import FAILURES, Address, Command, Link, NotSent, Server
from pagefile.errors import Corrupt, PagefileError, Unavailable, Unsupported

#: Between two questions about a slot that is on its way to another server.
_PAUSE_SECONDS = 0.02
#: How often a slot may be said to have moved before it is taken for a quarrel.
_MOST_MOVES = 16


class Shards(Protocol):
    """All servers of one store."""

    def of(self, key: bytes) -> Link:
        """The way to whoever has the key."""
        ...

    def servers(self) -> list[Server]:
        """Those that take writes."""
        ...

    def require_usable(self) -> None:
        """Refuse a handle that was closed, or belongs to the parent process."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...


class Alone:
    """One server that has all keys."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.require_usable = server.require_usable

    def of(self, key: bytes) -> Link:
        return self._server

    def servers(self) -> list[Server]:
        return [self._server]

    def close(self) -> None:
        self._server.close()


class Cluster:
    """The servers of a cluster, and which of them has which slots."""

    def __init__(self, seed: Server, answer_seconds: float, patience: float) -> None:
        self.where = f"the cluster of {seed.where}"
        #: How long a slot on its way to another server is waited for.
        self.patience = patience
        self._answer_seconds = answer_seconds
        self._seed = seed
        self._address = seed.address
        self._lock = threading.RLock()
        self._known = {(seed.address.host, seed.address.port): seed}
        self._owners: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._serving: list[Server] = []
        self._shards: dict[int, Shard] = {}
        self._learnt = 0
        self.learn()

    def of(self, key: bytes) -> Link:
        slot = key_slot(key)
        shard = self._shards.get(slot)
        if shard is None:
            shard = self._shards[slot] = Shard(self, slot)
        return shard

    def servers(self) -> list[Server]:
        return self._serving

    def require_usable(self) -> None:
        self._seed.require_usable()

    def owner(self, slot: int) -> Server:
        """Who has the slot.

        Raises:
            Unavailable: nobody has it.
        """
        owner = self._owners[slot]
        if owner is None:
            self.learn()
            owner = self._owners[slot]
        if owner is None:
            raise Unavailable(
                f"slot {slot} of {self.where} is on no server",
                "see CLUSTER SHARDS and assign it, then retry",
            )
        return owner

    def moved(self, slot: int, host: str, port: int, sender: Server) -> None:
        """A server said who has the slot now."""
        with self._lock:
            self._owners[slot] = self.server(host or sender.address.host, port)
            self.learn(self._owners[slot])

    def server(self, host: str, port: int) -> Server:
        """One of its servers."""
        with self._lock:
            server = self._known.get((host, port))
            if server is None:
                # Without patience: while one loads its data, its replica takes over.
                server = Server(self._address.at(host, port), self._answer_seconds, 0.0)
                self._known[host, port] = server
            return server

    def learn(self, first: Server | None = None, avoid: Server | None = None) -> None:
        """Ask for the whole map, the first that answers.

        Raises:
            Unavailable: none does.
        """
        seen = self._learnt
        with self._lock:
            if seen != self._learnt and first is None:
                return  # Another thread did, meanwhile.
            seeds = [self.server(host, port) for host, port in self._address.nodes]
            asked = [*([first] if first else ()), *self._serving, *self._known.values(), *seeds]
            # The one that did not answer a moment ago comes last.
            asked.sort(key=lambda server: server is avoid)
            failure: Unavailable | None = None
            for server in dict.fromkeys(asked):
                try:
                    ranges = server.ask_one("CLUSTER", "SLOTS")
                except Unavailable as away:
                    failure = failure or away
                    continue
                self._take_over(ranges, server)
                self._learnt += 1
                return
        raise Unavailable(
            f"no server of {self.where} answers",
            "start them or check the URL, then retry",
        ) from failure

    def _take_over(self, ranges: Any, told_by: Server) -> None:
        owners: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        try:
            for start, end, (host, port, *_), *_ in ranges:
                # A server that does not know its own address leaves it out.
                named = host.decode() if host else told_by.address.host
                owner = self.server(told_by.address.host if named == "?" else named, int(port))
                owners[start : end + 1] = [owner] * (end + 1 - start)
        except (TypeError, ValueError, AttributeError) as error:
            raise Corrupt(
                f"{told_by.where} describes its cluster in words of its own",
                "see CLUSTER SLOTS; open it with ?cluster=0 if a proxy stands before it",
            ) from error
        self._owners = owners
        self._serving = list(dict.fromkeys(owner for owner in owners if owner is not None))

    def close(self) -> None:
        with self._lock:
            servers = list(self._known.values())
        for server in servers:
            server.close()


class Shard(Link):
    """The way to one slot, wherever it is."""

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot
        self.where = f"slot {slot} of {cluster.where}"

    def require_usable(self) -> None:
        self._cluster.owner(self._slot).require_usable()

    def node(self) -> Server:
        return self._cluster.owner(self._slot)

    def renew(self) -> None:
        broken = self.node()
        broken.renew()
        self._cluster.learn(avoid=broken)

    def follow(self, error: RedisError) -> bool:
        if isinstance(error, MovedError):
            self._cluster.moved(self._slot, error.host, error.port, self.node())
            return True
        if isinstance(error, (AskError, TryAgainError)):
            # It is under way, key by key, and scripts need all of them on one side.
            time.sleep(_PAUSE_SECONDS)
            return True
        if isinstance(error, ClusterDownError):
            time.sleep(_PAUSE_SECONDS)
            self._cluster.learn()
            return True
        return False

    def exchange(self, commands: Sequence[Command], *, waits: bool = False) -> list[Any]:
        until = time.monotonic() + self._cluster.patience
        answers: list[Any] = [None] * len(commands)
        left, moves = list(range(len(commands))), 0
        while True:
            for at, answer in zip(
                left, self._told([commands[at] for at in left], waits), strict=True
            ):
                answers[at] = answer
            left = [at for at in left if isinstance(answers[at], _ELSEWHERE)]
            if not left or time.monotonic() > until or moves > _MOST_MOVES:
                return answers
            moves += isinstance(answers[left[0]], MovedError)
            self.follow(answers[left[0]])

    def _told(self, commands: list[Command], waits: bool) -> list[Any]:
        node = self.node()
        try:
            answers = node.exchange(commands, waits=waits)
        except NotSent:
            self._cluster.learn(avoid=node)
            if self.node() is node:
                raise
            answers = self.node().exchange(commands, waits=waits)
        for at, answer in enumerate(answers):
            if type(answer) is AskError and not waits:
                # This key has gone ahead of the slot.
                there = self._cluster.server(answer.host or node.address.host, answer.port)
                answers[at] = there.exchange([("ASKING",), commands[at]])[1]
        return answers


_ELSEWHERE = (AskError, TryAgainError, ClusterDownError)


def ask_each(asked: Sequence[tuple[Link, Command]]) -> list[Any]:
    """Answers to commands that only read, with one journey to each server."""
    answers: list[Any] = [None] * len(asked)
    together: dict[Server, list[int]] = {}
    for at, (link, _) in enumerate(asked):
        together.setdefault(link.node(), []).append(at)
    for server, places in together.items():
        try:
            found = server.exchange([asked[at][1] for at in places])
        except (NotSent, *FAILURES):
            found = [None] * len(places)
        for at, answer in zip(places, found, strict=True):
            link, command = asked[at]
            is_none = answer is None or isinstance(answer, RedisError)
            answers[at] = link.ask_one(*command) if is_none else answer
    return answers


def shards_of(address: Address, answer_seconds: float, patience: float) -> Shards:
    """The servers behind a URL; which kind they are is asked of the first that answers.

    Raises:
        Unavailable: none answers. Unsupported: they are no cluster, and should be.
    """
    places = [(address.host, address.port), *address.nodes]
    failure: PagefileError | None = None
    for host, port in dict.fromkeys(places):
        server = Server(address.at(host, port), answer_seconds, patience)
        try:
            return _shards(address, server, answer_seconds, patience)
        except PagefileError as error:
            server.close()
            failure = failure or error
            if not isinstance(error, Unavailable):
                raise
    assert failure is not None
    raise failure


def _shards(address: Address, server: Server, answer_seconds: float, patience: float) -> Shards:
    if address.cluster is False:
        return Alone(server)
    info = server.ask_one("INFO", "cluster").decode()
    if "cluster_enabled:1" in info:
        return Cluster(server, answer_seconds, patience)
    if address.cluster or address.nodes:
        raise Unsupported(
            f"{server.where} is no cluster", "leave out cluster=1 and nodes, or name its servers"
        )
    return Alone(server)

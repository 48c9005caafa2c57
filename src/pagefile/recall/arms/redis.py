"""Redis vector sets as vector arm: beside a store on that server or cluster, or any other.

    <prefix>:vectors          the one model whose vectors these are
    <prefix>:{tenant}:v       owners of the tenant, each with its mark
    <prefix>:{tenant}:v:PART  the vectors of one owner, a vector set

A set for each owner: however many vectors others have, none stands in its way. Up
to some thousand are compared one by one; beyond, the set's own graph is asked for
more than is needed. Vectors are kept whole (NOQUANT), so that cosines are exact.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pagefile.errors import Invalid, PagefileError, Unavailable, Unsupported
from pagefile.recall.arms.arm import NOTHING, Found, Mark, Part
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.extras import required
from pagefile.store.arguments import require_seconds
from pagefile.store.codec.decoder import msgpack_decoder

if TYPE_CHECKING:
    from pagefile.engines.redis.cluster import Shards
    from pagefile.engines.redis.connection import Link

_SCHEMES = ("redis://", "rediss://", "valkey://", "valkeys://")
#: How many vectors go into one request: each takes the server a millisecond or two.
_AT_ONCE = 100
#: How many are looked at to find the neighbours of a new one.
_LINKED = 100
#: With fewer of an owner, all are compared: faster than the graph, and exact.
_SCANNED = 5_000
#: How many the graph looks at, at least, and for each that is asked for.
_EXPLORED, _EXPLORED_EACH = 1_000, 2
_MOST_EXPLORED = 1_000_000
_ALPHA = "alpha=0 searches by words alone meanwhile"

_pack = msgspec.msgpack.Encoder().encode


class RedisArm:
    """Vectors in vector sets of a Redis 8 server or cluster.

    `url` is as a store's: `redis://host:6379/0?prefix=pagefile`. The sets are made
    when they are first filled.
    """

    name = "redis"

    def __init__(self, url: str, *, timeout_seconds: float = 10.0) -> None:
        if not isinstance(url, str) or not url.startswith(_SCHEMES):
            raise Invalid("url", "it leads to no Redis", "write redis://host:6379/0")
        require_seconds(timeout_seconds, "timeout_seconds")
        required("redis", "redis")
        from pagefile.engines.redis.connection import address_of
        from pagefile.engines.redis.layout import escaped

        self._address = address_of(url)
        self._seconds = timeout_seconds
        self._model_key = f"{escaped(self._address.prefix)}:vectors".encode()
        self._lock = threading.Lock()
        self._shards: Shards | None = None
        self._read_mark = msgpack_decoder(Mark).decode

    def __repr__(self) -> str:
        return f"<RedisArm {self._address.where} prefix {self._address.prefix!r}>"

    # Making room

    def prepare(self, model: str, dimensions: int) -> None:
        wanted = f"{model}@{dimensions}".encode()
        link = self._link(self._model_key)
        set_once = ("SET", self._model_key, wanted, "NX")
        _, held = self._ask(link, set_once, ("GET", self._model_key))
        if held != wanted:
            raise Unsupported(
                f"{self._address.where} holds vectors of {_shown(held)}, not of {_shown(wanted)}",
                "give its URL another prefix for the other model",
            )

    # Keeping

    def upsert(self, part: Part, ids: Sequence[bytes], vectors: Floats) -> None:
        link, key, marks = self._of(part)
        rows = np.ascontiguousarray(vectors, "<f4")
        # Listed first: whoever is killed in between leaves nobody who is not found again.
        self._ask(link, ("HSETNX", marks, part.owner, b""))
        for start in range(0, len(ids), _AT_ONCE):
            # CAS looks for neighbours beside the server's own thread: a store there goes on.
            self._ask(
                link,
                *(
                    ("VADD", key, "FP32", row.tobytes(), one, "CAS", "NOQUANT", "EF", _LINKED)
                    for one, row in zip(
                        ids[start : start + _AT_ONCE], rows[start : start + _AT_ONCE], strict=True
                    )
                ),
            )

    def delete(self, part: Part, ids: Sequence[bytes]) -> None:
        link, key, _ = self._of(part)
        for start in range(0, len(ids), _AT_ONCE):
            self._ask(link, *(("VREM", key, one) for one in ids[start : start + _AT_ONCE]))

    def forget(self, part: Part) -> None:
        link, key, marks = self._of(part)
        # In this order: while anything is left, the owner is on the list.
        self._ask(link, ("UNLINK", key), ("HDEL", marks, part.owner))

    def set_mark(self, part: Part, mark: Mark) -> None:
        link, _, marks = self._of(part)
        self._ask(link, ("HSET", marks, part.owner, _pack(mark)))

    # Asking

    def nearest(self, part: Part, query: Floats, count: int, named: Sequence[bytes] = ()) -> Found:
        if not count and not named:
            return NOTHING
        link, key, _ = self._of(part)
        asked: list[tuple[Any, ...]] = []
        wanted = np.ascontiguousarray(query, "<f4")
        if count:
            kept = self.count(part)
            if not kept:
                return NOTHING
            effort: tuple[Any, ...] = ("TRUTH",)
            if kept > _SCANNED:
                most = min(max(_EXPLORED, _EXPLORED_EACH * count), _MOST_EXPLORED)
                effort = ("EF", most)
            asked.append(
                (
                    *("VSIM", key, "FP32", wanted.tobytes()),
                    *("WITHSCORES", "COUNT", count, *effort),
                )
            )
        asked += [("VEMB", key, one, "RAW") for one in named]
        answers = self._ask(link, *asked)
        nearest = list[tuple[bytes, float]]()
        if count:
            found = answers.pop(0)
            # A score is between 0 for the opposite and 1 for the same.
            nearest = [(found[n], 2 * float(found[n + 1]) - 1) for n in range(0, len(found), 2)]
        return Found(nearest, _cosines(named, answers, wanted))

    def ids(self, part: Part) -> set[bytes]:
        link, key, _ = self._of(part)
        kept = self.count(part)
        # As many as there are, each once: all of them.
        return set(self._ask(link, ("VRANDMEMBER", key, kept))[0]) if kept else set()

    def count(self, part: Part) -> int:
        link, key, _ = self._of(part)
        return int(self._ask(link, ("VCARD", key))[0] or 0)

    def mark(self, part: Part) -> Mark | None:
        link, _, marks = self._of(part)
        raw = self._ask(link, ("HGET", marks, part.owner))[0]
        try:
            return self._read_mark(raw) if raw else None
        except msgspec.MsgspecError:
            return None  # Nobody's mark: everything is looked at again.

    def owners(self, tenant: str) -> list[str]:
        marks = self._marks(tenant)
        return sorted(raw.decode() for raw in self._ask(self._link(marks), ("HKEYS", marks))[0])

    def close(self) -> None:
        with self._lock:
            shards, self._shards = self._shards, None
        if shards is not None:
            shards.close()

    # Where it is

    def _marks(self, tenant: str) -> bytes:
        from pagefile.engines.redis.layout import Keys

        return Keys(self._address.prefix, tenant).base + b"v"

    def _of(self, part: Part) -> tuple[Link, bytes, bytes]:
        """The way to one owner's set, its key, and that of the marks."""
        marks = self._marks(part.tenant)
        return self._link(marks), b"%b:%b" % (marks, part.digest.encode()), marks

    def _link(self, key: bytes) -> Link:
        with self._lock:
            if self._shards is None:
                self._shards = self._connected()
            return self._shards.of(key)

    def _connected(self) -> Shards:
        """All its servers, which have vector sets.

        Raises:
            Unsupported: they have none.
        """
        from pagefile.engines.redis.cluster import shards_of

        try:
            shards = shards_of(self._address, self._seconds, self._seconds)
            try:
                for server in shards.servers():
                    known = server.ask_one("COMMAND", "INFO", "VADD")
                    if not known or known[0] is None:
                        raise Unsupported(
                            f"{server.where} has no vector sets",
                            "use Redis 8, or leave the vectors in this process or in Qdrant",
                        )
            except PagefileError:
                shards.close()
                raise
        except Unavailable as failure:
            raise _down(failure) from failure
        return shards

    def _ask(self, link: Link, *commands: tuple[Any, ...]) -> list[Any]:
        """Answers to commands that may be sent twice without harm."""
        try:
            return link.ask(*commands)
        except Unavailable as failure:
            raise _down(failure) from failure


def _cosines(named: Sequence[bytes], answers: Sequence[Any], query: Floats) -> dict[bytes, float]:
    """How near those are that are there."""
    there = [
        (one, answer[1]) for one, answer in zip(named, answers, strict=True) if answer is not None
    ]
    if not there:
        return {}
    rows = np.frombuffer(b"".join(raw for _, raw in there), "<f4").reshape(len(there), -1)
    scores = (rows @ query / np.linalg.norm(rows, axis=1)).tolist()
    return dict(zip((one for one, _ in there), scores, strict=True))


def _down(failure: Unavailable) -> Unavailable:
    return Unavailable(failure.fact, f"{failure.next_step}; {_ALPHA}")


def _shown(held: bytes | None) -> str:
    return "nothing" if held is None else repr(held.decode("utf-8", "replace"))

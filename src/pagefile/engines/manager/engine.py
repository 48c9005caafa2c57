"""The manager engine: a store in the memory of one process, used by many."""

from __future__ import annotations

import copy
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from pagefile.engines.common import parts_of
from pagefile.engines.manager import protocol as wire
from pagefile.engines.manager.connection import Link
from pagefile.engines.manager.protocol import (
    LOOPBACK,
    Address,
    address_of,
    error_of,
    new_key,
    no_key,
)
from pagefile.errors import Invalid, LimitExceeded, PagefileError, Unavailable, Unsupported, shown
from pagefile.store.engine import (
    Hit,
    KeyRange,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
)
from pagefile.store.records import Durability, Problem, StreamKind

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


_LEAST_ANSWER_SECONDS, _MOST_ANSWER_SECONDS = 10.0, 60.0
#: How many bytes of content go into one request, unless a single batch has more.
_MOST_BYTES = 16 * 1024 * 1024


class ManagerEngine:
    """All tenants of one store in a manager's memory."""

    name: ClassVar[str] = "manager"
    promises: ClassVar[frozenset[str]] = frozenset(
        {"S1", "S2", "S3", "S5", "S6", "S7", "S8", "S9", "S10"}
    )
    levels: ClassVar[tuple[Durability, ...]] = ("none",)
    erasure: ClassVar[Literal["bytes", "logical"]] = "bytes"
    instant: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(
        self,
        address: Address,
        *,
        clock: Callable[[], int],
        key_lifetime_us: int,
        lock_seconds: float = 30.0,
    ) -> None:
        self.durability: Durability = "none"
        #: What another process opens to join; it holds the key.
        self.url = address.url
        self._clock = clock
        self._key_lifetime_us = key_lifetime_us
        seconds = min(max(lock_seconds, _LEAST_ANSWER_SECONDS), _MOST_ANSWER_SECONDS)
        self._link = Link(address, seconds)
        self._applying = threading.Lock()
        self._number = 0
        self._child: Child | None = None

    @classmethod
    def open(
        cls,
        url: str,
        *,
        default_key: str,
        clock: Callable[[], int],
        key_lifetime_us: int,
        lock_seconds: float,
    ) -> ManagerEngine:
        """Join the manager that a URL names; `manager:` starts one first, which ends with this.

        Raises:
            Invalid: a part of the URL is not usable.
            Forbidden: there is no key, or it is not the manager's.
            Unavailable: nobody answers there.
        """
        child = start_child() if url == "manager:" else None
        address = address_of(url) if child is None else child.address
        if not address.authkey:
            key = default_key.encode(errors="surrogateescape")
            if not key:
                raise no_key(address.where)
            address = msgspec.structs.replace(address, authkey=key)
        try:
            engine = cls(
                address, clock=clock, key_lifetime_us=key_lifetime_us, lock_seconds=lock_seconds
            )
        except PagefileError:
            if child is not None:
                child.end()
            raise
        if child is not None:
            engine._child = child
            # Whoever drops a handle without closing it leaves no process behind.
            weakref.finalize(engine, child.end)
        return engine

    # Writing

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        self._link.require_usable()
        now_us = self._clock()
        if type(now_us) is not int or not 0 <= now_us < 2**62:
            raise Invalid("clock", f"says {shown(now_us)}", "give whole microseconds since 1970")
        outcomes: list[Sealed | PagefileError] = []
        with self._applying:
            for some in parts_of(items, _MOST_BYTES):
                try:
                    outcomes += self._apply(some, now_us)
                except PagefileError as failure:
                    if len(some) == len(items):
                        raise
                    # Those before it are stored: it is only their own answer.
                    outcomes += [copy.copy(failure) for _ in some]
        return outcomes

    def _apply(
        self, items: Sequence[tuple[str, Prepared]], now_us: int
    ) -> list[Sealed | PagefileError]:
        self._number += 1
        request = wire.encode(wire.Apply(self._number, now_us, self._key_lifetime_us, items))
        if len(request) > self._link.most_bytes:
            raise LimitExceeded(
                "the bytes of one commit to a manager",
                limit=self._link.most_bytes,
                wanted=len(request),
                next_step="commit in smaller batches, or start it with a larger --frame-bytes",
            )
        answer = wire.decode_outcomes(self._link.ask(request, committing=True))
        return [_outcome(outcome) for outcome in answer]

    # Reading

    def head(self, tenant: str) -> TenantHead:
        fields = wire.decode_fields(self._ask(wire.HeadOf(tenant)))
        return wire.head_from_fields(tenant, fields or ())

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        asked = wire.StreamOf(tenant, kind, name, at)
        return wire.stream_from_fields(wire.decode_fields(self._ask(asked)))

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        asked = wire.StreamNumber(tenant, oid)
        return wire.stream_from_fields(wire.decode_fields(self._ask(asked)))

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        found: list[Row | None] = []
        while len(found) < len(names):
            found += wire.decode_current(self._ask(wire.Current(tenant, names[len(found) :])))
        return found

    def gather(self, tenant: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        """The rows at these pairs of a stream's number and a row's, where there are any."""
        found: list[Row | None] = []
        while len(found) < len(places):
            asked = wire.Gather(tenant, places[len(found) :])
            found += wire.decode_current(self._ask(asked))
        pairs = zip(places, found, strict=True)
        return {place: row for place, row in pairs if row is not None}

    def streams(self, tenant: str, oids: Sequence[int]) -> dict[int, Stream]:
        """The streams with these numbers, living or dropped, where there are any."""
        answer = wire.decode_list_of_fields(self._ask(wire.Streams(tenant, oids)))
        made = zip(oids, map(wire.stream_from_fields, answer), strict=True)
        return {oid: stream for oid, stream in made if stream is not None}

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        found: list[Row] = []
        while limit:
            asked = wire.Rows(tenant, stream.oid, first, last, limit)
            rows, more = wire.decode_rows(self._ask(asked))
            if limit < 0:
                found[:0] = rows
                limit += len(rows)
            else:
                found += rows
                limit -= len(rows)
            if not more:
                break
            if limit < 0:
                last = rows[0].number - 1
            else:
                first = rows[-1].number + 1
        return found

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        found: list[Hit] = []
        while len(found) < limit:
            asked = wire.Find(tenant, span, limit - len(found), at)
            hits, more = wire.decode_hits(self._ask(asked))
            found += hits
            if not more:
                break
            end = hits[-1]
            after = (end.value, end.row.position, end.row.ordinal)
            span = msgspec.structs.replace(span, after=after)
        return found

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        found: list[str] = []
        while len(found) < limit:
            asked = wire.Names(tenant, kind, prefix, after, limit - len(found))
            names, more = wire.decode_names(self._ask(asked))
            found += names
            if not more:
                break
            after = names[-1]
        return found

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        found: list[RawCommit] = []
        while len(found) < limit:
            asked = wire.Commits(tenant, since, limit - len(found))
            commits, more = wire.decode_commits(self._ask(asked))
            found += commits
            if not more:
                break
            since = commits[-1].position
        return found

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            left = min(max(0.0, deadline - time.monotonic()), wire.MOST_WAIT_SECONDS)
            request = wire.encode(wire.Wait(tenant, position, left))
            if wire.decode_flag(self._link.wait(request, left)):
                return True
            if time.monotonic() >= deadline:
                return False

    def _ask(self, request: wire.Request) -> memoryview:
        return self._link.ask(wire.encode(request))

    # Keeping

    def owes(self, tenant: str) -> bool:
        return False  # What is removed is gone at once.

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        return ()

    def tenants(self) -> list[str]:
        return wire.decode_texts(self._ask(wire.Tenants()))

    def check(self, tenant: str) -> list[Problem]:
        return wire.decode_problems(self._ask(wire.Check(tenant)))

    def size_bytes(self) -> int:
        return wire.decode_number(self._ask(wire.SizeBytes()))

    def close(self) -> None:
        self._link.close()
        if self._child is not None:
            self._child.end()


def _outcome(outcome: wire.Outcome) -> Sealed | PagefileError:
    if outcome.sealed is not None:
        return outcome.sealed
    assert outcome.refusal is not None
    return error_of(outcome.refusal)

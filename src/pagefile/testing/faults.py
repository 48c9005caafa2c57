"""Things that go wrong on purpose: an engine that fails, lies, or is interrupted.

A suite is trusted only after it has caught a seeded fault; here they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from pagefile.errors import Conflict, PagefileError, Unavailable
from pagefile.store.commit.committer import Committer
from pagefile.store.engine import (
    Engine,
    Hit,
    KeyRange,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
)
from pagefile.store.records import Action, Durability, Erasure, Problem, StreamKind
from pagefile.store.store import Store

Fault = Literal[
    "early_acknowledgement",  # answers without having stored anything
    "missing_transaction",  # stores the operations of a batch one by one
    "ignored_condition",  # commits whatever the batch depends on
    "forgotten_key",  # stores a repeated batch again
    "off_by_one_read",  # leaves out the last of several rows
    "wrong_field",  # swaps the numbers that a conflict tells
    "changed_byte",  # hands out content that is not what was stored
]


#: What a store asks an engine when it reads.
_QUESTIONS = frozenset(
    {"commits", "current", "find", "gather", "head", "names", "rows", "stream", "streams"}
    | {"stream_number"}
)


class InterruptedEngine:
    """An engine in which something happens just before one of the questions it is asked."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._at = 0
        self._happens: Callable[[], object] = _nothing
        #: How many questions were asked.
        self.asked = 0

    def before(self, question: int, happens: Callable[[], object]) -> None:
        """Let it happen before the question of that number, counted from 1 and from now on."""
        self._at, self._happens, self.asked = question, happens, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if name not in _QUESTIONS:
            return found

        def ask(*about: object) -> object:
            self.asked += 1
            if self.asked == self._at:
                self._happens()
            return found(*about)

        return ask


def _nothing() -> None:
    pass


class FaultyEngine:
    """An engine that does what the one inside does, except where it was told to fail.

    `fault` makes it lie all the time. `fail_before` and `fail_after` make its
    next `apply` calls fail as a disk does: with nothing stored, or with
    everything stored and no answer.
    """

    name: ClassVar[str] = "faulty"
    #: It claims all of them: a suite that believes it has found nothing.
    promises: ClassVar[frozenset[str]] = frozenset(f"S{n}" for n in range(1, 12))
    levels: ClassVar[tuple[Durability, ...]] = ("power", "process")
    erasure: ClassVar[Erasure] = "bytes"
    instant: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(self, engine: Engine, fault: Fault | None = None) -> None:
        self._engine = engine
        self._fault = fault
        self._before = 0
        self._after = 0
        self._repeats = itertools.count(1)
        self.durability: Durability = engine.durability
        #: How many batches each `apply` call was given.
        self.groups: list[int] = []

    def fail_before(self, times: int = 1) -> None:
        """The next `times` calls of `apply` store nothing, and say so."""
        self._before = times

    def fail_after(self, times: int = 1) -> None:
        """The next `times` calls of `apply` store everything, and cannot tell."""
        self._after = times

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        self.groups.append(len(items))
        if self._before:
            self._before -= 1
            raise Unavailable("the disk failed, as arranged", "retry", outcome="nothing")
        outcomes = self._apply(items)
        if self._after:
            self._after -= 1
            raise Unavailable(
                "the answer was lost, as arranged",
                "commit again with the same key",
                outcome="unknown",
            )
        return outcomes

    def _apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        if self._fault == "early_acknowledgement":
            return [self._pretend(tenant, batch) for tenant, batch in items]
        if self._fault == "missing_transaction":
            return [self._one_by_one(tenant, batch) for tenant, batch in items]
        if self._fault == "ignored_condition":
            items = [(tenant, msgspec.structs.replace(batch, when=())) for tenant, batch in items]
        if self._fault == "forgotten_key":
            items = [(tenant, self._with_other_key(batch)) for tenant, batch in items]
        outcomes = self._engine.apply(items)
        if self._fault == "wrong_field":
            for outcome in outcomes:
                if isinstance(outcome, Conflict):
                    outcome.expected, outcome.current = outcome.current, outcome.expected
        return outcomes

    def _pretend(self, tenant: str, batch: Prepared) -> Sealed:
        head = self._engine.head(tenant)
        indexes: list[int] = []
        versions: list[int] = []
        for write in batch.writes:
            stream = self._engine.stream(tenant, write.stream, write.name)
            length = 0 if stream is None else stream.length
            if write.action == Action.APPEND:
                indexes.append(length)
            elif write.action in (Action.PUT, Action.DELETE):
                versions.append(length + 1)
        commit = RawCommit(head.position + 1, head.time_us, batch.key, b"", head.digest)
        return Sealed(commit, tuple(indexes), tuple(versions))

    def _one_by_one(self, tenant: str, batch: Prepared) -> Sealed | PagefileError:
        indexes: tuple[int, ...] = ()
        versions: tuple[int, ...] = ()
        last: Sealed | None = None
        for i, write in enumerate(batch.writes):
            alone = msgspec.structs.replace(
                batch,
                key=batch.key if len(batch.writes) == 1 else f"{batch.key}.{i}",
                writes=(write,),
                when=() if i else batch.when,
            )
            outcome = self._engine.apply([(tenant, alone)])[0]
            if isinstance(outcome, PagefileError):
                return outcome
            indexes += outcome.indexes
            versions += outcome.versions
            last = outcome
        assert last is not None
        return msgspec.structs.replace(last, indexes=indexes, versions=versions)

    def _with_other_key(self, batch: Prepared) -> Prepared:
        return msgspec.structs.replace(batch, key=f"={next(self._repeats)}")

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        if self._fault == "off_by_one_read" and last > first:
            last -= 1
        rows = self._engine.rows(tenant, stream, first, last, limit)
        if self._fault == "changed_byte":
            return [_with_other_body(row) for row in rows]
        return rows

    # The rest is the honest engine's.

    def head(self, tenant: str) -> TenantHead:
        return self._engine.head(tenant)

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        return self._engine.stream(tenant, kind, name, at)

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        return self._engine.stream_number(tenant, oid)

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        return self._engine.find(tenant, span, limit, at)

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        return self._engine.names(tenant, kind, prefix, after, limit)

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        return self._engine.commits(tenant, since, limit)

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        return self._engine.wait(tenant, position, timeout)

    def owes(self, tenant: str) -> bool:
        return self._engine.owes(tenant)

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        return self._engine.scrub(tenant, timeout)

    def tenants(self) -> list[str]:
        return self._engine.tenants()

    def check(self, tenant: str) -> list[Problem]:
        return self._engine.check(tenant)

    def size_bytes(self) -> int:
        return self._engine.size_bytes()

    def close(self) -> None:
        self._engine.close()


def on_faulty_engine(store: Store) -> tuple[Store, FaultyEngine]:
    """The same tenant on the same engine, which can be told to fail for this one."""
    engine = FaultyEngine(store._engine)
    return Store(engine, Committer(engine), store._preparer, store.tenant), engine


def _with_other_body(row: Row) -> Row:
    if row.content is None or not row.content.body:
        return row
    # A digit stays a digit and a letter a letter, so that the body still decodes.
    body = row.content.body.translate(bytes.maketrans(b"12ab", b"21ba"))
    return msgspec.structs.replace(row, content=msgspec.structs.replace(row.content, body=body))

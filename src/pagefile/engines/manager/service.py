"""What a manager does with a request: one store in memory, and the answers it gave last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pagefile.engines.manager import protocol as wire
from pagefile.engines.manager.protocol import refusal_of
from pagefile.engines.memory import MemoryEngine
from pagefile.errors import Invalid, PagefileError
from pagefile.store.engine import Hit, Prepared, RawCommit, Row, Sealed
from pagefile.store.records import Action

_ACTIONS = frozenset(
    {
        Action.APPEND,
        Action.PUT,
        Action.DELETE,
        Action.FORK,
        Action.DROP,
        Action.PRUNE,
        Action.ERASE,
    }
)
#: How many clients' last answers are kept, and how many bytes of them, for those who ask again.
_MOST_ANSWERS, _MOST_ANSWER_BYTES = 1_024, 16 * 1024 * 1024
_MOST_PROBLEMS = 1_000
#: Beside the body: numbers, names of fields, salt.
_ROW_BYTES = 400

_Item = TypeVar("_Item")


class _HeldEngine(MemoryEngine):
    """A memory engine whose clock and lifetime of keys are those of the client that commits."""

    def __init__(self) -> None:
        super().__init__(clock=self._say_now, key_lifetime_us=0)
        self._now_us = 0

    def _say_now(self) -> int:
        return self._now_us

    def apply_for(self, request: wire.Apply) -> list[Sealed | PagefileError]:
        self._now_us = request.now_us
        self._key_lifetime_us = request.key_lifetime_us
        for tenant, _ in request.items:
            held = self._tenants.get(tenant)
            if held is not None:
                held.key_lifetime_us = request.key_lifetime_us
        return self.apply(request.items)

    def position(self, tenant: str) -> int:
        held = self._tenants.get(tenant)
        return 0 if held is None else held.head.position


class Host:
    """One store of a manager. Used by one thread."""

    def __init__(self) -> None:
        self._engine = _HeldEngine()
        self._answers: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._answer_bytes = 0
        self._work: dict[type, Callable[[Any], Any]] = {
            wire.HeadOf: self._head,
            wire.StreamOf: self._stream,
            wire.StreamNumber: self._stream_number,
            wire.Current: self._current,
            wire.Rows: self._rows,
            wire.Find: self._find,
            wire.Names: self._names,
            wire.Commits: self._commits,
            wire.Tenants: self._tenants,
            wire.Check: self._check,
            wire.SizeBytes: self._size_bytes,
            wire.Gather: self._gather,
            wire.Streams: self._streams,
        }

    def position(self, tenant: str) -> int:
        """Where the tenant is; 0 before its first commit."""
        return self._engine.position(tenant)

    def apply(self, client: bytes, request: wire.Apply) -> tuple[bytes, set[str]]:
        """The answer to a commit, and the tenants that moved.

        A request that was answered before is answered with the same words: its
        client lost them on the way.
        """
        number, answer = self._answers.get(client, (0, b""))
        if request.number == number and answer:
            return answer, set()
        if request.number < number:
            raise Invalid("number", "this commit was given up by its client", "send the newest")
        for _, batch in request.items:
            _require_sound(batch)
        outcomes = self._engine.apply_for(request)
        answer = wire.encode([_outcome(outcome) for outcome in outcomes])
        self._keep(client, request.number, answer)
        moved = {
            tenant
            for (tenant, _), outcome in zip(request.items, outcomes, strict=True)
            if isinstance(outcome, Sealed)
        }
        return answer, moved

    def _keep(self, client: bytes, number: int, answer: bytes) -> None:
        _, before = self._answers.pop(client, (0, b""))
        self._answers[client] = number, answer
        self._answer_bytes += len(answer) - len(before)
        while len(self._answers) > 1 and (
            len(self._answers) > _MOST_ANSWERS or self._answer_bytes > _MOST_ANSWER_BYTES
        ):
            _, (_, oldest) = self._answers.popitem(last=False)
            self._answer_bytes -= len(oldest)

    def answer(self, request: wire.Request) -> bytes:
        """The answer to anything that only reads."""
        return wire.encode(self._work[type(request)](request))

    def _head(self, asked: wire.HeadOf) -> Any:
        return wire.head_to_fields(self._engine.head(asked.tenant))

    def _stream(self, asked: wire.StreamOf) -> Any:
        found = self._engine.stream(asked.tenant, asked.kind, asked.name, asked.at)
        return wire.stream_to_fields(found)

    def _stream_number(self, asked: wire.StreamNumber) -> Any:
        return wire.stream_to_fields(self._engine.stream_number(asked.tenant, asked.oid))

    def _current(self, asked: wire.Current) -> Any:
        rows = self._engine.current(asked.tenant, asked.names)
        return _cut(rows, _size_of_row)[0]

    def _rows(self, asked: wire.Rows) -> Any:
        stream = self._engine.stream_number(asked.tenant, asked.oid)
        if stream is None:
            return [], False
        rows = self._engine.rows(asked.tenant, stream, asked.first, asked.last, asked.limit)
        if asked.limit < 0:
            # From the end: what is left out is what comes first.
            kept, more = _cut(rows[::-1], _size_of_row)
            return kept[::-1], more
        return _cut(rows, _size_of_row)

    def _gather(self, asked: wire.Gather) -> Any:
        rows: list[Row | None] = []
        for oid, number in asked.places:
            stream = self._engine.stream_number(asked.tenant, oid)
            found = stream and self._engine.rows(asked.tenant, stream, number, number, 1)
            rows.append(found[0] if found else None)
        return _cut(rows, _size_of_row)[0]

    def _streams(self, asked: wire.Streams) -> Any:
        streams = [self._engine.stream_number(asked.tenant, oid) for oid in asked.oids]
        return [wire.stream_to_fields(stream) for stream in streams]

    def _find(self, asked: wire.Find) -> Any:
        hits = self._engine.find(asked.tenant, asked.span, asked.limit, asked.at)
        return _cut(hits, _size_of_hit)

    def _names(self, asked: wire.Names) -> Any:
        names = self._engine.names(asked.tenant, asked.kind, asked.prefix, asked.after, asked.limit)
        return _cut(names, len)

    def _commits(self, asked: wire.Commits) -> Any:
        commits = self._engine.commits(asked.tenant, asked.since, asked.limit)
        return _cut(commits, _size_of_commit)

    def _tenants(self, asked: wire.Tenants) -> Any:
        return self._engine.tenants()

    def _check(self, asked: wire.Check) -> Any:
        return self._engine.check(asked.tenant)[:_MOST_PROBLEMS]

    def _size_bytes(self, asked: wire.SizeBytes) -> Any:
        return self._engine.size_bytes()


def _require_sound(batch: Prepared) -> None:
    """Refuse what no preparer makes: the rules of a commit rely on it."""
    for write in batch.writes:
        contents = len(write.contents)
        keys_fit = not write.keys or len(write.keys) == contents
        if write.action not in _ACTIONS or len(write.digests) != contents or not keys_fit:
            raise Invalid("batch", "it was not made by this version of Pagefile", "update it")


def _outcome(outcome: Sealed | PagefileError) -> wire.Outcome:
    if isinstance(outcome, Sealed):
        return wire.Outcome(outcome)
    return wire.Outcome(None, refusal_of(outcome))


def _cut(items: Sequence[_Item], size_of: Callable[[_Item], int]) -> tuple[Sequence[_Item], bool]:
    """As many as fit into one answer, at least one, and whether more were asked for."""
    total = 0
    for at, item in enumerate(items):
        total += size_of(item)
        if total > wire.ANSWER_BYTES and at:
            return items[:at], True
    return items, False


def _size_of_row(row: Row | None) -> int:
    if row is None or row.content is None:
        return _ROW_BYTES
    content = row.content
    return _ROW_BYTES + len(content.body) + len(content.notes) + len(content.keys)


def _size_of_hit(hit: Hit) -> int:
    return len(hit.value) + _size_of_row(hit.row)


def _size_of_commit(commit: RawCommit) -> int:
    return _ROW_BYTES + len(commit.manifest)

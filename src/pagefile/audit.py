"""Verification: walk the hash chain and hold every stored record against it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pagefile.content import GENESIS, Action, chain, digest_of, name_digest, unpack
from pagefile.engine import DOCUMENT, LOG, Engine, RawCommit, Row, Stream
from pagefile.records import Head, Problem, Report

_PER_READ = 500
_MOST_PROBLEMS = 100
_RECORDS = (Action.APPEND, Action.PUT, Action.DELETE)


def verify(
    engine: Engine,
    tenant: str,
    kept: Head | None,
    progress: Callable[[int, int], None] | None,
) -> Report:
    """See `Store.verify`."""
    return _Walk(engine, tenant).run(kept, progress)


class _Walk:
    """One pass over a tenant's commits, with what has to be remembered on the way."""

    def __init__(self, engine: Engine, tenant: str) -> None:
        self._engine = engine
        self._tenant = tenant
        self._problems: list[Problem] = []
        self._records = 0
        #: The next number each stream must get.
        self._next: dict[int, int] = {}
        #: Records without content, which a later prune or erasure must account for.
        self._missing: dict[int, dict[int, int]] = {}
        self._streams: dict[int, Stream | None] = {}
        #: What the commits say of each stream: created, base, base_at, pruned, dropped.
        self._told: dict[int, list[int]] = {}

    def run(self, kept: Head | None, progress: Callable[[int, int], None] | None) -> Report:
        end = self._engine.head(self._tenant)
        position, digest = 0, GENESIS
        while len(self._problems) < _MOST_PROBLEMS:
            # Past the end only while something missing may still be accounted
            # for: an erasure can commit while this walk is under way.
            if position >= end.position and not any(self._missing.values()):
                break
            commits = self._engine.commits(self._tenant, position, _PER_READ)
            for commit in commits:
                digest = self._step(commit, position + 1, digest)
                position = commit.position
                if kept is not None and position == kept.position and digest != kept.digest:
                    self._problem(position, "the history up to here is not the one kept elsewhere")
            if progress is not None:
                progress(position, max(position, end.position))
            if not commits:
                break
        if position < end.position:
            self._problem(position + 1, "the commit log ends before its head")
        if kept is not None and position < kept.position:
            self._problem(
                position + 1, f"commits up to {kept.position} were kept elsewhere, not here"
            )
        self._unaccounted(at_rest=self._engine.head(self._tenant).position == position)
        head = Head(position, digest)
        return Report(position, self._records, tuple(self._problems[:_MOST_PROBLEMS]), head)

    def _problem(self, position: int, what: str) -> None:
        self._problems.append(Problem(position, what))

    def _step(self, commit: RawCommit, expected: int, previous: bytes) -> bytes:
        if commit.position != expected:
            self._problem(expected, f"the commit is missing: the next one is {commit.position}")
        made = chain(previous, commit.position, commit.time_us, commit.manifest)
        if made != commit.digest:
            self._problem(
                commit.position, "the commit's digest does not follow from the one before"
            )
        try:
            entries = unpack(commit.manifest)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._problem(commit.position, "the commit's manifest cannot be read")
            return commit.digest
        for ordinal, entry in enumerate(entries):
            self._entry(commit, entry, ordinal)
        return commit.digest

    def _stream(self, oid: int) -> Stream | None:
        if oid not in self._streams:
            self._streams[oid] = self._engine.stream_number(self._tenant, oid)
        return self._streams[oid]

    def _entry(self, commit: RawCommit, entry: tuple[int | bytes, ...], ordinal: int) -> None:
        action, oid = int(entry[0]), int(entry[1])
        self._note(commit.position, action, entry)
        stream = self._stream(oid)
        if stream is None:
            self._problem(commit.position, f"stream {oid} is missing")
        elif action in _RECORDS:
            self._record(commit, stream, entry, ordinal)
        elif action == Action.FORK:
            self._fork(commit, stream, entry)
        elif action == Action.DROP:
            if stream.dropped != commit.position:
                self._problem(commit.position, f"stream {oid} is not marked as dropped here")
        elif action == Action.PRUNE:
            self._account(oid, 0, int(entry[2]) - 1)
        elif action == Action.ERASE:
            self._account(oid, int(entry[2]), int(entry[3]))

    def _note(self, position: int, action: int, entry: tuple[int | bytes, ...]) -> None:
        told = self._told.setdefault(int(entry[1]), [position, 0, 0, 0, 0])
        if action == Action.FORK:
            told[1:4] = int(entry[4]), int(entry[2]), int(entry[5])
        elif action == Action.PRUNE:
            told[3] = max(told[3], int(entry[2]))
        elif action == Action.DROP:
            told[4] = position

    def _compare_streams(self) -> None:
        """Every stream must be what the commits made of it, and none may be there besides."""
        last = self._engine.head(self._tenant).oid
        if last > max(self._told, default=0):
            self._problem(0, f"stream {last} was made by no commit")
        for oid, told in self._told.items():
            stream = self._engine.stream_number(self._tenant, oid)
            if stream is None:
                self._problem(told[0], f"stream {oid} is missing")
                continue
            now = [stream.created, stream.base, stream.base_at, stream.pruned, stream.dropped]
            if now != told:
                self._problem(told[0], f"{_label(stream)} is not what its commits made of it")

    def _record(
        self, commit: RawCommit, stream: Stream, entry: tuple[int | bytes, ...], ordinal: int
    ) -> None:
        number = int(entry[2])
        expected = self._next.get(stream.oid, 0 if stream.kind == LOG else 1)
        if number != expected:
            self._problem(commit.position, f"{_label(stream)} jumps from {expected} to {number}")
        self._next[stream.oid] = number + 1
        rows = self._engine.rows(self._tenant, stream, number, number, 1)
        row: Row | None = rows[0] if rows else None
        if row is None or row.content is None:
            self._missing.setdefault(stream.oid, {})[number] = commit.position
            return
        self._records += 1
        place = (row.position, row.ordinal, row.time_us)
        if place != (commit.position, ordinal, commit.time_us):
            self._problem(commit.position, f"{_label(stream)} number {number} was moved")
        elif digest_of(stream.name, row.content) != entry[3] or row.action != entry[0]:
            self._problem(commit.position, f"{_label(stream)} number {number} was changed")

    def _fork(self, commit: RawCommit, stream: Stream, entry: tuple[int | bytes, ...]) -> None:
        self._next[stream.oid] = int(entry[2])
        if (stream.base_at, stream.base) != (entry[2], entry[4]) or (
            stream.name and name_digest(stream.name, stream.salt) != entry[3]
        ):
            self._problem(commit.position, f"{_label(stream)} is not the fork that was made here")

    def _account(self, oid: int, first: int, last: int) -> None:
        missing = self._missing.get(oid)
        if missing:
            for number in [n for n in missing if first <= n <= last]:
                del missing[number]

    def _unaccounted(self, *, at_rest: bool) -> None:
        for oid, missing in self._missing.items():
            stream = self._stream(oid)
            for number, position in missing.items():
                label = _label(stream) if stream is not None else f"stream {oid}"
                self._problem(position, f"{label} number {number} is missing and was never erased")
        if not at_rest:
            return  # Somebody writes on: newer records are no surprise.
        self._compare_streams()
        for oid, expected in self._next.items():
            stream = self._engine.stream_number(self._tenant, oid)
            if stream is None:
                continue
            length = stream.length + (stream.kind == DOCUMENT)
            if length > expected:
                self._problem(
                    stream.created, f"{_label(stream)} has records that no commit accounts for"
                )


def _label(stream: Stream) -> str:
    return f"{stream.kind} {stream.name!r}" if stream.name else f"{stream.kind} (name erased)"

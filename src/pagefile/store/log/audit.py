"""Verification: walk the hash chain and hold every stored record against it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

from pagefile.errors import Corrupt, Invalid
from pagefile.store.commit.rules import unfinished_copy
from pagefile.store.engine import DOCUMENT, LOG, NAMELESS, Engine, RawCommit, Row, Stream
from pagefile.store.log.audit import Gathering, Gone, Life, Lives, Place
from pagefile.store.records import (
    Action,
    Head,
    Problem,
    Report,
    chain,
    digest_of,
    genesis,
    name_digest,
    read_manifest,
)

_PER_READ = 500
_MOST_PROBLEMS = 100
#: A position that no tenant reaches, where the last one cannot be read.
_NO_END = 2**62
#: How often streams are held against the commits, when others write all the while.
_LOOKS = 5
_UNREADABLE = (Corrupt, ValueError, TypeError, AttributeError, struct.error)
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
        self._gone = Gone()
        self._gathering = Gathering(engine, tenant)
        self._lives = Lives()
        self._last_erase = 0
        self._position = 0
        #: Of everything up to the position; empty after a commit that could not be read.
        self._digest = genesis(tenant)
        #: The position that an unfinished copy has still to reach.
        self._unfinished = 0
        #: A commit that cannot be read leaves gaps in what the others seem to say.
        self._readable = True

    def run(self, kept: Head | None, progress: Callable[[int, int], None] | None) -> Report:
        try:
            self._run(kept, progress)
        except Corrupt as damage:
            self._problem(self._position + 1, damage.fact)
        head = Head(self._position, self._digest)
        problems = tuple(self._problems[:_MOST_PROBLEMS])
        return Report(self._position, self._records, problems, head, self._unfinished)

    def _run(self, kept: Head | None, progress: Callable[[int, int], None] | None) -> None:
        try:
            end = self._engine.head(self._tenant)
        except Corrupt as damage:
            self._walk_to(_NO_END, kept, progress)
            self._problem(self._position + 1, damage.fact)
            return
        differences: list[Problem] = []
        for _ in range(_LOOKS):
            self._walk_to(end.position, kept, progress)
            if self._position < end.position:
                self._problem(self._position + 1, "the commit log ends before its head")
                break
            if not self._readable:
                break
            found = self._differences()
            end = self._engine.head(self._tenant)
            if end.position == self._position:
                differences = found
                break
            # Somebody wrote meanwhile, which explains what differs: walk on, and look again.
        if kept is not None and self._position < kept.position:
            self._problem(
                self._position + 1, f"commits up to {kept.position} were kept elsewhere, not here"
            )
        self._unfinished = max(self._unfinished, end.unfinished)
        if self._unfinished:
            # What is missing was let go in the source, in commits that are not here yet.
            self._problem(self._position, str(unfinished_copy(self._position, self._unfinished)))
        else:
            self._report_missing()
        self._problems += differences

    def _walk_to(
        self, end: int, kept: Head | None, progress: Callable[[int, int], None] | None
    ) -> None:
        while len(self._problems) < _MOST_PROBLEMS:
            # Past the end only while something missing may still be accounted
            # for: an erasure can commit while this walk is under way.
            if self._position >= end and not self._gone.unaccounted():
                return
            try:
                commits = self._engine.commits(self._tenant, self._position, _PER_READ)
            except Corrupt:
                if (alone := self._commit_alone()) is None:
                    continue
                commits = [alone]
            if self._gathering.looks_ahead:
                self._gathering.expect(_places(commits))
            for commit in commits:
                self._digest = self._step(commit, self._position + 1, self._digest)
                self._position = commit.position
                if (
                    kept is not None
                    and commit.position == kept.position
                    and self._digest != kept.digest
                ):
                    self._problem(
                        commit.position, "the history up to here is not the one kept elsewhere"
                    )
            if progress is not None:
                last = self._position if end == _NO_END else max(self._position, end)
                progress(self._position, last)
            if not commits:
                return

    def _commit_alone(self) -> RawCommit | None:
        """The next commit where one of many cannot be read; None, and stepped over, if it is it."""
        try:
            return self._engine.commits(self._tenant, self._position, 1)[0]
        except (Corrupt, IndexError) as damage:
            self._position += 1
            self._problem(self._position, getattr(damage, "fact", "the commit is missing"))
            self._digest, self._readable = b"", False
            return None

    def _problem(self, position: int, what: str) -> None:
        self._problems.append(Problem(position, what))

    def _step(self, commit: RawCommit, expected: int, previous: bytes) -> bytes:
        if commit.position != expected:
            self._problem(expected, f"the commit is missing: the next one is {commit.position}")
        try:
            made = chain(previous, commit.position, commit.time_us, commit.key, commit.manifest)
            entries = read_manifest(commit.position, commit.manifest)
        except _UNREADABLE:
            return self._unreadable(commit) or previous
        if made != commit.digest and previous:
            self._problem(
                commit.position, "the commit's digest does not follow from the one before"
            )
        for ordinal, entry in enumerate(entries):
            try:
                self._entry(commit, entry, ordinal)
            except Invalid:
                raise  # A ValueError, but not about the commit: the engine refused a question.
            except Corrupt as damage:
                self._readable = False
                self._problem(commit.position, damage.fact)
            except ValueError:
                self._unreadable(commit)
        return commit.digest or previous

    def _unreadable(self, commit: RawCommit) -> bytes:
        self._readable = False
        self._problem(commit.position, "the commit cannot be read")
        return commit.digest

    def _entry(self, commit: RawCommit, entry: tuple[int | bytes, ...], ordinal: int) -> None:
        action, oid = int(entry[0]), int(entry[1])
        self._lives.note(commit.position, action, entry)
        stream = self._gathering.stream(oid)
        if stream is None:
            self._problem(commit.position, f"stream {oid} is missing")
        elif action in _RECORDS:
            self._record(commit, stream, entry, ordinal)
        elif action == Action.FORK:
            self._fork(commit, stream, entry)
        elif action == Action.DROP:
            # It may have been asked for before it was dropped.
            if stream.dropped != commit.position:
                stream = self._gathering.stream_now(oid)
            if stream is None or stream.dropped != commit.position:
                self._problem(commit.position, f"stream {oid} is not marked as dropped here")
        elif action == Action.PRUNE:
            self._last_erase = commit.position
            # What living forks share was kept, and must be there still.
            self._gone.prune(oid, self._lives.shared_up_to(oid), int(entry[2]) - 1)
        elif action == Action.ERASE:
            self._last_erase = commit.position
            self._gone.erase(oid, int(entry[2]), int(entry[3]))

    def _record(
        self, commit: RawCommit, stream: Stream, entry: tuple[int | bytes, ...], ordinal: int
    ) -> None:
        number = int(entry[2])
        expected = self._next.get(stream.oid, 0 if stream.kind == LOG else 1)
        if number != expected:
            self._problem(commit.position, f"{_label(stream)} jumps from {expected} to {number}")
        self._next[stream.oid] = number + 1
        try:
            row: Row | None = self._gathering.row(stream, number)
        except Corrupt as damage:
            self._problem(commit.position, damage.fact)
            return
        if row is None or row.content is None:
            self._gone.miss(stream.oid, number, commit.position, removed=row is None)
        else:
            self._records += 1
        if row is None:
            return
        place = (row.position, row.ordinal, row.time_us)
        if place != (commit.position, ordinal, commit.time_us):
            self._problem(commit.position, f"{_label(stream)} number {number} was moved")
        elif row.action != entry[0] or (
            row.content is not None and digest_of(stream.name, row.content) != entry[3]
        ):
            self._problem(commit.position, f"{_label(stream)} number {number} was changed")

    def _fork(self, commit: RawCommit, stream: Stream, entry: tuple[int | bytes, ...]) -> None:
        self._next[stream.oid] = int(entry[2])
        if stream.name.startswith(NAMELESS) and not stream.dropped:
            self._unfinished = max(self._unfinished, commit.position + 1)
        elif (stream.base_at, stream.base) != (entry[2], entry[4]) or (
            stream.name and name_digest(stream.name, stream.salt) != entry[3]
        ):
            self._problem(commit.position, f"{_label(stream)} is not the fork that was made here")

    def _report_missing(self) -> None:
        for oid, number, position in self._gone.unaccounted():
            stream = self._gathering.stream(oid)
            label = _label(stream) if stream is not None else f"stream {oid}"
            self._problem(position, f"{label} number {number} is missing, and no commit let it go")

    def _differences(self) -> list[Problem]:
        """Every stream must be what the commits made of it, and none may be there besides."""
        found: list[Problem] = []
        head = self._engine.head(self._tenant)
        if head.oid > self._lives.last_oid:
            found.append(Problem(0, f"stream {head.oid} was made by no commit"))
        if head.last_erase != self._last_erase and not head.unfinished:
            found.append(Problem(0, f"position {head.last_erase} passes for the last that erased"))
        lives = list(self._lives)
        now = self._gathering.streams(life.oid for life in lives)
        for life, (_, stream) in zip(lives, now, strict=True):
            if what := self._difference(life, stream):
                found.append(Problem(life.created, what))
        return found

    def _difference(self, life: Life, stream: Stream | None) -> str | None:
        if stream is None:
            return f"stream {life.oid} is missing"
        if not life.is_of(stream) or (stream.salt and not life.base):
            return f"{_label(stream)} is not what its commits made of it"
        length = stream.length + (stream.kind == DOCUMENT)
        if length > self._next.get(life.oid, length):
            return f"{_label(stream)} has records that no commit accounts for"
        return None


def _places(commits: Iterable[RawCommit]) -> list[Place]:
    """Where the records of these commits should be; what cannot be read says nothing."""
    places: list[Place] = []
    for commit in commits:
        with suppress(Corrupt):
            for entry in read_manifest(commit.position, commit.manifest):
                if entry[0] in _RECORDS:
                    places.append((int(entry[1]), int(entry[2])))
    return places


def _label(stream: Stream) -> str:
    return f"{stream.kind} {stream.name!r}" if stream.name else f"{stream.kind} (name erased)"

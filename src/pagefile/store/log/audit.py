"""Verification: walk the hash chain and hold every stored record against it."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from pagefile.errors import Corrupt, Invalid
from pagefile.store.commit.rules import unfinished_copy
from pagefile.store.engine import DOCUMENT, LOG, NAMELESS, Engine, Gathers, RawCommit, Row, Stream
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


class Life(msgspec.Struct, gc=False):
    """What the commits say of one stream."""

    oid: int
    created: int
    base: int = 0
    base_at: int = 0
    pruned: int = 0
    dropped: int = 0

    def is_of(self, stream: Stream) -> bool:
        """Whether the stored stream says the same."""
        return (self.created, self.base, self.base_at, self.pruned, self.dropped) == (
            stream.created,
            stream.base,
            stream.base_at,
            stream.pruned,
            stream.dropped,
        )


class Lives:
    """All streams of one tenant, as its commits tell them."""

    def __init__(self) -> None:
        self._all: dict[int, Life] = {}
        self._forks: dict[int, list[Life]] = {}

    def __iter__(self) -> Iterator[Life]:
        return iter(self._all.values())

    @property
    def last_oid(self) -> int:
        return max(self._all, default=0)

    def note(self, position: int, action: int, entry: tuple[int | bytes, ...]) -> None:
        """Take in one manifest entry."""
        oid = int(entry[1])
        life = self._all.get(oid)
        if life is None:
            life = self._all[oid] = Life(oid, position)
        if action == Action.FORK:
            life.base_at, life.base, life.pruned = int(entry[2]), int(entry[4]), int(entry[5])
            if life.base >= oid:
                # Whoever follows forks to their bases would never come to an end.
                raise ValueError("a fork of what came after it")
            self._forks.setdefault(life.base, []).append(life)
        elif action == Action.PRUNE:
            life.pruned = max(life.pruned, int(entry[2]))
        elif action == Action.DROP:
            life.dropped = position

    def shared_up_to(self, oid: int) -> int:
        """How much of a log its forks share that live now, or have living forks."""
        most = 0
        kin = [(fork, fork.base_at) for fork in self._forks.get(oid, ())]
        while kin:
            fork, reach = kin.pop()
            if not fork.dropped:
                most = max(most, reach)
            kin += [(child, min(reach, child.base_at)) for child in self._forks.get(fork.oid, ())]
        return most


class Gone:
    """Records without content, and the runs of numbers that were pruned or erased.

    Erasing leaves the record's place, pruning does not: a record that is not
    there at all must have been pruned.
    """

    def __init__(self) -> None:
        self._emptied: dict[int, list[tuple[int, int]]] = {}
        self._removed: dict[int, list[tuple[int, int]]] = {}
        self._erasures: dict[int, list[tuple[int, int]]] = {}
        self._prunings: dict[int, list[tuple[int, int]]] = {}

    def miss(self, oid: int, number: int, position: int, *, removed: bool) -> None:
        """A record that the commit at `position` stored has no content, or is not there at all."""
        missing = self._removed if removed else self._emptied
        missing.setdefault(oid, []).append((number, position))

    def erase(self, oid: int, first: int, last: int) -> None:
        """The content of these numbers was erased."""
        self._erasures.setdefault(oid, []).append((first, last))

    def prune(self, oid: int, first: int, last: int) -> None:
        """These numbers were let go."""
        self._prunings.setdefault(oid, []).append((first, last))

    def unaccounted(self) -> list[tuple[int, int, int]]:
        """What is missing and was never let go: stream, number and position."""
        found: list[tuple[int, int, int]] = []
        for oid, missing in self._removed.items():
            found += _outside(oid, missing, self._prunings.get(oid, []))
        for oid, missing in self._emptied.items():
            runs = self._prunings.get(oid, []) + self._erasures.get(oid, [])
            found += _outside(oid, missing, runs)
        return found


def _outside(
    oid: int, missing: list[tuple[int, int]], runs: list[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """What is missing and in none of the runs."""
    runs = sorted(runs)
    at, reach = 0, -1
    for number, position in sorted(missing):
        while at < len(runs) and runs[at][0] <= number:
            reach = max(reach, runs[at][1])
            at += 1
        if number > reach:
            yield oid, number, position


#: A stream's number and a row's.
Place = tuple[int, int]
_ROWS_AT_ONCE = 256
_STREAMS_AT_ONCE = 512


class Gathering:
    """Streams and rows of one tenant."""

    def __init__(self, engine: Engine, tenant: str) -> None:
        self._engine = engine
        self._tenant = tenant
        self._many: Gathers | None = engine if isinstance(engine, Gathers) else None
        self._streams: dict[int, Stream | None] = {}
        self._expected: deque[Place] = deque()
        self._rows: dict[Place, Row | None] = {}
        #: Those that could not be had together, and are asked for one by one.
        self._alone: set[Place] = set()

    @property
    def looks_ahead(self) -> bool:
        """Whether saying what will be asked for saves anything."""
        return self._many is not None

    def expect(self, places: Sequence[Place]) -> None:
        """These rows will be asked for, in this order."""
        self._expected = deque(places)
        self._rows.clear()
        unknown = sorted({oid for oid, _ in places} - self._streams.keys())
        self._streams.update(self.streams(unknown))

    def stream(self, oid: int) -> Stream | None:
        """The stream, as it was when first asked for."""
        if oid not in self._streams:
            self._streams[oid] = self._engine.stream_number(self._tenant, oid)
        return self._streams[oid]

    def stream_now(self, oid: int) -> Stream | None:
        """The stream, as it is now."""
        self._streams.pop(oid, None)
        return self.stream(oid)

    def streams(self, oids: Iterable[int]) -> Iterator[tuple[int, Stream | None]]:
        """The streams as they are now."""
        wanted = list(oids)
        for start in range(0, len(wanted), _STREAMS_AT_ONCE):
            some = wanted[start : start + _STREAMS_AT_ONCE]
            if self._many is not None:
                found = self._many.streams(self._tenant, some)
                yield from ((oid, found.get(oid)) for oid in some)
            else:
                yield from ((oid, self._engine.stream_number(self._tenant, oid)) for oid in some)

    def row(self, stream: Stream, number: int) -> Row | None:
        """One row, or None.

        Raises:
            Corrupt: it cannot be read.
        """
        place = (stream.oid, number)
        if place not in self._rows and place not in self._alone and self._many is not None:
            self._fetch(self._many, place)
        if place in self._rows:
            return self._rows.pop(place)
        rows = self._engine.rows(self._tenant, stream, number, number, 1)
        return rows[0] if rows else None

    def _fetch(self, many: Gathers, place: Place) -> None:
        """This row and those expected after it."""
        while self._expected and self._expected[0] != place:
            self._expected.popleft()
        count = min(_ROWS_AT_ONCE, len(self._expected))
        some = [self._expected.popleft() for _ in range(count)]
        if not some:
            return
        try:
            found = many.gather(self._tenant, some)
        except Corrupt:
            # Each by itself will tell which.
            self._alone = set(some)
            return
        self._rows = {one: found.get(one) for one in some}


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

"""Taking an export in: what is there already is left, what was forgotten stays forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from pagefile.context.names import THREADS
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, shown
from pagefile.memory.names import require_user
from pagefile.memory.privacy.export import (
    TAKEN_AT,
    TAKEN_NUMBER,
    ExportLine,
    decoded_mapping,
    read_export,
)
from pagefile.memory.privacy.export_forms import require_own
from pagefile.memory.privacy.placement import (
    ANYWHERE,
    Arrangement,
    Arranging,
    Record,
    is_place,
    number_of,
    place,
    places_needed,
    require_numbers,
)
from pagefile.memory.privacy.tombstones import Forgotten, forgotten_of
from pagefile.memory.provenance import OF_MEMORY, USES
from pagefile.store import codec
from pagefile.store.batch import (
    Append,
    Batch,
    Condition,
    LengthIs,
    Operation,
    Put,
    Selector,
    VersionIs,
)
from pagefile.store.records import Document, Entry
from pagefile.store.store import Store

_AT_ONCE = 200
_PAGE = 1_000
#: How often a stream is tried again after something was forgotten or indexed anew.
_ATTEMPTS = 100
#: How many numbers an import keeps free, of records that the export leaves out.
MOST_PLACES = 100_000
#: The document of a run, which says whose all else of it is.
_RUNS = "run/"

#: From documents that were brought in to what makes them findable, and on what condition.
Indexing = Callable[[Sequence[Put]], tuple[list[Operation], list[Condition]]]
Lines = Iterable[bytes] | str | os.PathLike[str]


class ImportReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: records stored, streams there already, streams that stay forgotten."""

    user_id: str | None
    records: int = 0
    present: int = 0
    forgotten: int = 0


class _Outcome(msgspec.Struct, frozen=True):
    stored: int
    is_forgotten: bool


class Bringing:
    """Stores the records of an export, stream by stream; doing it again does nothing."""

    def __init__(
        self,
        store: Store,
        indexing: Indexing,
        refresh: Callable[[Conflict], bool],
        check: Callable[[Append | Put], None],
        *,
        own_only: bool = False,
    ) -> None:
        self._store = store
        self._check = check
        self._indexing = indexing
        self._refresh = refresh
        self._own_only = own_only
        #: How many were made that only keep a number.
        self._places = 0

    def bring(self, source: Lines) -> ImportReceipt:
        """Take an export in.

        It is read twice: the whole is checked before the first record is stored.

        Raises:
            Corrupt: it is not what was exported. Conflict: a stream of the same
                name holds something else; it is named, and those before it are in.
                LimitExceeded: more records are left out than places are kept for.
        """
        with _opened(source) as lines:
            header, records = read_export(lines())
            require_user(header.user_id)
            self._require_all(header.user_id, records)
            _, records = read_export(lines())
            return self._store_all(header.user_id, records)

    def _require_all(self, user_id: str | None, records: Iterator[ExportLine]) -> None:
        """Refuse the whole for one line that is none of the user's, or is out of all bounds."""
        number, places = 1, 0
        for run in _streams(records):
            for record in run:
                number += 1
                self._require(record, user_id, number)
            require_numbers(run)
            if not run[0].name.startswith(ANYWHERE):
                places += places_needed(run)
            if places > MOST_PLACES:
                raise LimitExceeded(
                    "the number of records that the export leaves out",
                    limit=MOST_PLACES,
                    wanted=places,
                    next_step="move the whole tenant with `pagefile copy`",
                )

    def _require(self, record: ExportLine, user_id: str | None, number: int) -> None:
        if record.stream not in ("log", "document"):
            raise Invalid("export", f"line {number} is of no stream", "export it again")
        operation = _operation(record)
        require_own(operation, user_id, own_only=self._own_only, where=f"line {number}")
        self._check(operation)
        # What the store refuses is refused before anything is stored.
        self._store.validate(Batch([operation]))

    def _store_all(self, user_id: str | None, records: Iterator[ExportLine]) -> ImportReceipt:
        stored = present = gone = 0
        for run in _streams(records):
            outcome = self._settled(user_id, run)
            stored += outcome.stored
            gone += outcome.is_forgotten
            present += not outcome.stored and not outcome.is_forgotten
        return ImportReceipt(user_id=user_id, records=stored, present=present, forgotten=gone)

    def _settled(self, user_id: str | None, run: Sequence[ExportLine]) -> _Outcome:
        """What became of a stream."""
        stored = 0
        for _ in range(_ATTEMPTS):
            forgotten = forgotten_of(self._store, user_id)
            lines = [] if forgotten.among([run[0].name]) else _remembered(run, forgotten)
            if not lines:
                return _Outcome(stored, is_forgotten=True)
            allowed: list[Condition] = [VersionIs(forgotten.document, forgotten.version)]
            allowed += self._unless_anothers(user_id, run[0])
            arranged = self._arranged(user_id, lines)
            try:
                for count in self._store_run(run[0], arranged, allowed):
                    stored += count
                return _Outcome(stored, is_forgotten=arranged.gone == len(lines))
            except Conflict as conflict:
                last = conflict
                if not self._refresh(conflict) and conflict.target not in (
                    forgotten.document,
                    run[0].name,
                    *(each.document for each in allowed if isinstance(each, VersionIs)),
                ):
                    raise
        raise last

    def _unless_anothers(self, user_id: str | None, line: ExportLine) -> list[Condition]:
        """That what belongs to a run belongs to a run of the user, or to none that is known."""
        run_id = require_own(_operation(line), user_id, own_only=self._own_only)
        name = f"{_RUNS}{run_id}"
        if not self._own_only or run_id is None or line.name == name:
            return []
        found = self._store.get(name)
        if found is not None and not found.erased and found.user != user_id:
            raise _not_here()
        return [VersionIs(name, 0 if found is None else found.version)]

    def _arranged(self, user_id: str | None, run: Sequence[ExportLine]) -> Arrangement:
        """Where the records go; other content in their places is a conflict."""
        name, is_log = run[0].name, run[0].stream == "log"
        found: list[Record]
        if is_log:
            end = self._store.length(name)
            read = min(max(line.number for line in run) + 1, end)
            found = [*self._entries(name, 0, read)]
        else:
            found = [*self._versions(name)]
            # Not the current one: there is none of a document that was deleted.
            end = read = number_of(found[-1]) + 1 if found else 1

        def rest() -> Iterable[Record]:
            return self._entries(name, read, end)

        others = (each for each in found if not each.erased and not is_place(each))
        if self._own_only and any(each.user != user_id for each in others):
            raise _not_here()
        return Arranging(run, found, end, rest, MOST_PLACES - self._places).arranged()

    def _entries(self, log: str, at: int, end: int) -> Iterator[Entry]:
        while at < end and (entries := self._store.read(log, at, end, limit=_PAGE)):
            yield from entries
            at = entries[-1].index + 1

    def _versions(self, name: str) -> Iterator[Document]:
        at = 0
        while versions := self._store.history(name, after=at, limit=_PAGE):
            yield from versions
            at = versions[-1].version

    def _store_run(
        self, first: ExportLine, arranged: Arrangement, allowed: list[Condition]
    ) -> Iterator[int]:
        """Store what was arranged, some at a time; how many records each time."""
        name, at, is_log = first.name, arranged.next, first.stream == "log"
        places = set(arranged.places)
        steps: list[tuple[int, Append | Put]] = []
        for line in arranged.inside:
            ahead = range(at, line.number)
            self._places += len(ahead)
            if not name.startswith(THREADS):
                places.update(ahead)
            steps += [(0, place(line)) for _ in ahead]
            steps.append((1, _operation(line)))
            at = line.number + 1
        steps += [(1, _operation(line, moved=True)) for line in arranged.behind]
        at = arranged.next
        for start in range(0, len(steps), _AT_ONCE):
            part = steps[start : start + _AT_ONCE]
            condition: Condition = LengthIs(name, at) if is_log else VersionIs(name, at - 1)
            is_last = start + len(part) == len(steps)
            puts = [one for _, one in part[-1:] if isinstance(one, Put)] if is_last else []
            more, when = self._indexing(puts)
            operations: list[Operation] = [one for _, one in part]
            self._store.commit(Batch([*operations, *more], [condition, *allowed, *when]))
            at += len(part)
            yield sum(count for count, _ in part)
        if places:
            numbers = frozenset(places)
            stream = Selector(log=name) if is_log else Selector(document=name)
            self._store.erase(msgspec.structs.replace(stream, numbers=numbers), scrub=False)


def _not_here() -> Invalid:
    """The same words whatever the line holds: they must not tell whether a guess was right."""
    return Invalid("export", "names a stream that is taken", "import it elsewhere")


def _operation(line: ExportLine, *, moved: bool = False) -> Append | Put:
    value = codec.decode(line.type, bytes(line.value))
    keys = decoded_mapping(line.keys)
    notes = decoded_mapping(line.notes) | {TAKEN_AT: line.time_us}
    if moved:
        notes[TAKEN_NUMBER] = line.number
    if line.stream == "log":
        return Append(
            line.name,
            value,
            user=line.user,
            kind=line.kind,
            actor=line.actor,
            sources=line.sources,
            keys=keys,
            notes=notes,
        )
    return Put(
        line.name,
        value,
        user=line.user,
        kind=line.kind,
        actor=line.actor,
        sources=line.sources,
        keys=keys,
        tenant_keys=decoded_mapping(line.tenant_keys),
        notes=notes,
    )


def _remembered(run: Sequence[ExportLine], forgotten: Forgotten) -> Sequence[ExportLine]:
    """The lines without notes of a use of something that was forgotten."""
    if not run[0].name.startswith(USES) or forgotten.is_empty:
        return run
    used = ((line, decoded_mapping(line.keys).get(OF_MEMORY)) for line in run)
    return [line for line, name in used if forgotten.among([str(name)]) is None]


def _streams(records: Iterator[ExportLine]) -> Iterator[list[ExportLine]]:
    """Records that stand together, of one stream each."""
    run: list[ExportLine] = []
    for record in records:
        if run and (run[0].stream, run[0].name) != (record.stream, record.name):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


@contextmanager
def _opened(source: Lines) -> Iterator[Callable[[], Iterable[bytes]]]:
    """A way to go through the lines as often as it takes."""
    if isinstance(source, (str, os.PathLike)):
        with _file(source) as file:

            def again() -> Iterable[bytes]:
                file.seek(0)
                return file

            yield again
        return
    if not isinstance(source, Iterable) or isinstance(source, (bytes, bytearray, memoryview)):
        raise Invalid("source", shown(source), "give a path, an export, or its lines")
    held = source if isinstance(source, (list, tuple)) else list(source)
    for line in held:
        if type(line) is not bytes:
            raise Invalid("source", f"{shown(line)} is no line", "give lines as bytes")
    yield lambda: held


def _file(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise NotFound(
            f"there is no file {shown(os.fspath(path))}", "give the path of an export"
        ) from error
    except (OSError, ValueError) as error:
        raise Invalid(
            "source", f"{shown(os.fspath(path))} cannot be read ({error})", "check it"
        ) from error

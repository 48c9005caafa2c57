"""Taking an export in: what is there already is left, what was forgotten stays forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from pagefile.context.names import THREADS
from pagefile.context.slot import ERASED
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError, shown
from pagefile.memory.documents import owner_key, require_user
from pagefile.memory.items.item import RUNS
from pagefile.memory.privacy.export import (
    TAKEN_AT,
    TAKEN_NUMBER,
    ExportLine,
    decoded_mapping,
    read_export,
    told_body,
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
from pagefile.store.kinds import NotOfItsKind, registry, require
from pagefile.store.records import Document, Entry
from pagefile.store.store import Store

_AT_ONCE = 200
_PAGE = 1_000
#: How often a stream is tried again after something was forgotten or indexed anew.
_ATTEMPTS = 100
#: How many numbers an import keeps free, of records that the export leaves out.
MOST_PLACES = 100_000
#: What JSON is read as where nothing says that it is more.
_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})
#: In the notes of a record that only keeps a number, until it is erased.
_PLACE = "~place"
#: How many places are left free before one of those.
_MOST_AHEAD = 1_000

#: From documents that were brought in to what makes them findable, and on what condition.
Record = Entry | Document
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
            _require_numbers(run)
            if not _is_loose(run[0].name):
                places += _places_needed(run)
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
        name = RUNS + run_id if run_id is not None else ""
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
            end = read = _number_of(found[-1]) + 1 if found else 1

        def rest() -> Iterable[Record]:
            return self._entries(name, read, end)

        others = (each for each in found if not each.erased and not _is_place(each))
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
            steps += [(0, _place(line)) for _ in ahead]
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


def require_own(
    operation: Append | Put, user_id: str | None, *, own_only: bool, where: str = "a record"
) -> str | None:
    """Refuse what is not a record of this user; give the run that it belongs to, if it does.

    Digests show what was changed by chance; those who make lines by hand make digests too.
    So a record is read as what its name says it is, and must have the place and the keys that
    writing it here would give it. With `own_only` everything else is refused too that others
    would meet: items of a project or of everybody, passes for them, and names of no kind.

    Raises:
        Invalid: it is not what its name says, or is another's.
    """
    try:
        return _run_of(operation, user_id, own_only)
    except NotOfItsKind as error:
        raise Invalid("export", f"{where} {error}", "export it again") from error
    except (msgspec.ValidationError, PagefileError, OverflowError, TypeError) as error:
        told = f"{where} is not what its name says ({error})"
        raise Invalid("export", told, "export it again") from error


def _run_of(operation: Append | Put, user_id: str | None, own_only: bool) -> str | None:
    name = operation.document if isinstance(operation, Put) else operation.log
    kind = registry().of(name)
    is_strange = (
        kind is not None
        and kind.bucket
        and name.removeprefix(kind.prefix).split("/")[0] != owner_key(user_id)
    )
    require(operation.user == user_id and not is_strange, "is another's")
    if kind is None or not kind.takes(name) or not kind.exported:
        # A name of the caller's own, unless it stands among those that nothing exports.
        is_free = kind is None or (kind.exported and not kind.bucket)
        require(is_free and not own_only, "has a name that no record of a user has")
        return None
    is_log = isinstance(operation, Append)
    require(is_log == (kind.stream == "log"), "is in a stream of another kind")
    is_plain = kind.typed or type(operation.value) in _PLAIN
    require(is_plain, "has a type, which only slots have")
    require(kind.own or not own_only, "is nothing that a user's own key may bring in")
    if kind.check is not None:
        kind.check(operation, user_id, own_only)
    return kind.run_of(name)


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


# Where the records go in a stream that is here: each at its own number
#
# Slots and versions are referred to by their numbers, and a ledger is read by them. Numbers
# that the export leaves out, as another's or erased, become places without content.


class Arrangement(msgspec.Struct, frozen=True):
    """What is to be stored: lines at their numbers, then those whose place is taken.

    `next` is the number of the next record of the stream. `places` are numbers that
    wait to be erased, `gone` is how many lines were erased here.
    """

    next: int
    inside: Sequence[ExportLine]
    behind: Sequence[ExportLine]
    places: frozenset[int]
    gone: int

    @property
    def count(self) -> int:
        """How many records come in."""
        return len(self.inside) + len(self.behind)


class Arranging:
    """Holds the lines of one stream against what is here, of which `rest` reads more."""

    def __init__(
        self,
        lines: Sequence[ExportLine],
        found: Sequence[Record],
        end: int,
        rest: Callable[[], Iterable[Record]],
        room: int,
    ) -> None:
        self._lines = sorted(lines, key=lambda line: line.number)
        self._name = lines[0].name
        self._found = found
        self._end = end
        self._rest = rest
        self._room = room
        self._anywhere = _is_loose(self._name)

    def arranged(self) -> Arrangement:
        """What is to be stored.

        Raises:
            Conflict: something else stands in the place of a record.
        """
        here = {_number_of(each): each for each in self._found}
        places = frozenset(number for number, each in here.items() if _waits(each))
        inside: list[ExportLine] = []
        behind: list[ExportLine] = []
        gone, at = 0, self._end
        if self._came_before(here):
            return Arrangement(self._end, (), (), places, 0)
        for line in self._lines:
            if line.number >= at:
                ahead = line.number - at
                if self._anywhere and ahead > min(_MOST_AHEAD, self._room):
                    behind.append(line)
                    continue
                self._room -= ahead
                inside.append(line)
                at = line.number + 1
                continue
            record = here.get(line.number) if line.number < self._end else None
            if line.number < self._end and (record is None or record.erased):
                gone += 1  # Erased here, or pruned: it stays so.
            elif record is None or not _is(record, line):
                self._require_taken(record, line)
                behind.append(line)
        if behind:
            known = {_taken(each) for each in (*self._found, *self._rest()) if not each.erased}
            behind = [line for line in behind if _signature_of(line) not in known]
        return Arrangement(self._end, inside, behind, places, gone)

    def _came_before(self, here: dict[int, Record]) -> bool:
        """Whether all of it came in one after the other, when numbers were not kept."""
        user = self._lines[0].user
        own = [each for each in here.values() if _has_content(each) and each.user == user]
        return len(own) >= len(self._lines) and all(map(_came_as, own, self._lines))

    def _require_taken(self, record: Record | None, line: ExportLine) -> None:
        """Refuse what would be stored twice in two forms; in a thread others may have the place."""
        if self._anywhere and (
            record is None
            or _is_place(record)
            or record.user != line.user
            or TAKEN_NUMBER in record.notes
        ):
            return
        raise Conflict(
            f"{line.stream} {self._name!r} holds something else here, at {line.number}",
            "forget it here first, or leave it out of the export",
            target=self._name,
            expected=line.number,
            current=self._end,
        )


def _number_of(record: Record) -> int:
    """Its index, or its version."""
    return record.index if isinstance(record, Entry) else record.version


def _is_place(record: Record) -> bool:
    """Whether it only keeps a number."""
    return not record.erased and (_waits(record) or _is_empty_slot(record))


def _place(line: ExportLine) -> Append | Put:
    """What keeps a number ahead of a line; of a thread it is nobody's, for it was another's."""
    if line.name.startswith(THREADS):
        return Append(line.name, None, kind=ERASED)
    notes = {_PLACE: True}
    if line.stream == "log":
        return Append(line.name, None, user=line.user, kind=line.kind, notes=notes)
    # Of a kind that is nothing yet: the newest version may be such a one for a moment.
    return Put(line.name, {}, user=line.user, kind="gone", notes=notes)


def _places_needed(lines: Iterable[ExportLine]) -> int:
    """How many places a stream that is not here needs, where each has to be at its number."""
    numbers = [line.number - (line.stream == "document") for line in lines]
    return max(numbers) + 1 - len(numbers)


def _require_numbers(lines: Sequence[ExportLine]) -> None:
    """Refuse numbers that no stream gives.

    Raises:
        Invalid: one is below the first, or two of them are the same.
    """
    numbers = [line.number for line in lines]
    least = 1 if lines[0].stream == "document" else 0
    twice = len(set(numbers)) < len(numbers) and not _is_loose(lines[0].name)
    if twice or min(numbers) < least:
        raise Invalid("export", f"numbers {lines[0].name!r} as nothing is", "export it again")


def _waits(record: Record) -> bool:
    if record.erased or record.body not in (b"null", b"{}"):
        return False
    return record.notes.get(_PLACE) is True


def _is_empty_slot(record: Record) -> bool:
    return isinstance(record, Entry) and record.kind == ERASED and record.log.startswith(THREADS)


def _has_content(record: Record) -> bool:
    is_deleted = isinstance(record, Document) and record.deleted
    return not record.erased and not is_deleted and not _is_place(record)


def _is(record: Record, line: ExportLine) -> bool:
    """Whether the record is what the line says, of the same user, from the same sources."""
    return _has_content(record) and _signature(record) == _signature_of(line)[1:]


def _came_as(record: Record, line: ExportLine) -> bool:
    return record.notes.get(TAKEN_AT) == line.time_us and _is(record, line)


def _taken(record: Record) -> object:
    """What stands behind the end for a line, as `_signature_of` tells that."""
    if not _has_content(record):
        return None
    return (record.notes.get(TAKEN_NUMBER), *_signature(record))


def _signature(record: Record) -> tuple[object, ...]:
    whose = (record.user, record.kind, record.actor, record.sources)
    return (*whose, record.type_name, told_body(record))


def _signature_of(line: ExportLine) -> tuple[object, ...]:
    whose = (line.user, line.kind, line.actor, line.sources)
    return (line.number, *whose, line.type, bytes(line.value))


def _is_loose(name: str) -> bool:
    """Whether entries stand on their own: one whose place is taken goes to the end."""
    kind = registry().of(name)
    return kind is not None and kind.loose

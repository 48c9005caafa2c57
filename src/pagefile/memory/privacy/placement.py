"""Where the records of an export go in a stream that is here: each at its own number.

Slots and versions are referred to by their numbers, and a ledger is read by them.
Numbers that the export leaves out, because they were another's or were erased, become
places without content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from pagefile.context.names import THREADS
from pagefile.context.slot import ERASED
from pagefile.errors import Conflict, Invalid
from pagefile.memory.privacy.export import TAKEN_AT, TAKEN_NUMBER, ExportLine, told_body
from pagefile.store.batch import Append, Put
from pagefile.store.records import Document, Entry

#: In the notes of a record that only keeps a number, until it is erased.
_PLACE = "~place"
#: Logs whose entries stand on their own: one whose place is taken goes to the end.
ANYWHERE = (THREADS, "memory/use/")
#: How many places are left free before one of those.
_MOST_AHEAD = 1_000

Record = Entry | Document


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
        self._anywhere = self._name.startswith(ANYWHERE)

    def arranged(self) -> Arrangement:
        """What is to be stored.

        Raises:
            Conflict: something else stands in the place of a record.
        """
        here = {number_of(each): each for each in self._found}
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
            or is_place(record)
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


def number_of(record: Record) -> int:
    """Its index, or its version."""
    return record.index if isinstance(record, Entry) else record.version


def is_place(record: Record) -> bool:
    """Whether it only keeps a number."""
    return not record.erased and (_waits(record) or _is_empty_slot(record))


def place(line: ExportLine) -> Append | Put:
    """What keeps a number ahead of a line; of a thread it is nobody's, for it was another's."""
    if line.name.startswith(THREADS):
        return Append(line.name, None, kind=ERASED)
    notes = {_PLACE: True}
    if line.stream == "log":
        return Append(line.name, None, user=line.user, kind=line.kind, notes=notes)
    # Of a kind that is nothing yet: the newest version may be such a one for a moment.
    return Put(line.name, {}, user=line.user, kind="gone", notes=notes)


def places_needed(lines: Iterable[ExportLine]) -> int:
    """How many places a stream that is not here needs, where each has to be at its number."""
    numbers = [line.number - (line.stream == "document") for line in lines]
    return max(numbers) + 1 - len(numbers)


def require_numbers(lines: Sequence[ExportLine]) -> None:
    """Refuse numbers that no stream gives.

    Raises:
        Invalid: one is below the first, or two of them are the same.
    """
    numbers = [line.number for line in lines]
    least = 1 if lines[0].stream == "document" else 0
    twice = len(set(numbers)) < len(numbers) and not lines[0].name.startswith(ANYWHERE)
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
    return not record.erased and not is_deleted and not is_place(record)


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

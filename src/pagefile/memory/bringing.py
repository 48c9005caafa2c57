"""Taking an export in: what is there already is left, what was forgotten stays forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from pagefile import codec
from pagefile.batch import Append, Batch, Condition, LengthIs, Operation, Put, VersionIs
from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.memory.export import TAKEN_AT, ExportLine, decoded_mapping, read_export, told_body
from pagefile.memory.export_forms import require_own
from pagefile.memory.forgotten import forgotten_of
from pagefile.memory.owner import require_user
from pagefile.records import Document, Entry
from pagefile.store import Store

_AT_ONCE = 200
_PAGE = 1_000
#: How often a stream is tried again after something was forgotten or indexed anew.
_ATTEMPTS = 100
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

    def bring(self, source: Lines) -> ImportReceipt:
        """Take an export in.

        It is read twice: the whole is checked before the first record is stored.

        Raises:
            Corrupt: it is not what was exported. Conflict: a stream of the same
                name holds something else; it is named, and those before it are in.
        """
        with _opened(source) as lines:
            header, records = read_export(lines())
            require_user(header.user_id)
            for number, record in enumerate(records, start=2):
                self._require(record, header.user_id, number)
            _, records = read_export(lines())
            return self._store_all(header.user_id, records)

    def _require(self, record: ExportLine, user_id: str | None, number: int) -> None:
        if record.stream not in ("log", "document"):
            raise Invalid("export", f"line {number} is of no stream", "export it again")
        operation = _operation(record)
        require_own(operation, user_id, own_only=self._own_only, where=f"line {number}")
        self._check(operation)

    def _store_all(self, user_id: str | None, records: Iterator[ExportLine]) -> ImportReceipt:
        stored = present = gone = 0
        for run in _streams(records):
            count = self._settled(user_id, run)
            if count is None:
                gone += 1
            elif not count:
                present += 1
            else:
                stored += count
        return ImportReceipt(user_id=user_id, records=stored, present=present, forgotten=gone)

    def _settled(self, user_id: str | None, run: Sequence[ExportLine]) -> int | None:
        """How many records of a stream were stored; None when it stays forgotten."""
        for _ in range(_ATTEMPTS):
            forgotten = forgotten_of(self._store, user_id)
            if forgotten.digests and forgotten.among([run[0].name]) is not None:
                return None
            allowed: list[Condition] = [VersionIs(forgotten.document, forgotten.version)]
            allowed += self._unless_anothers(user_id, run[0])
            here = self._here(user_id, run)
            try:
                self._store_run(run, here, allowed)
                return max(len(run) - here, 0)
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

    def _here(self, user_id: str | None, run: Sequence[ExportLine]) -> int:
        """How much of the stream is here already; other content is a conflict."""
        name = run[0].name
        found = list(self._found(run))
        if self._own_only and any(not each.erased and each.user != user_id for each in found):
            raise _not_here()
        here = [told_body(record) for record in found if not record.erased]
        wanted = [bytes(line.value) for line in run]
        if here[: len(wanted)] != wanted[: len(here)]:
            raise Conflict(
                f"{run[0].stream} {name!r} holds something else here",
                "forget it here first, or leave it out of the export",
                target=name,
                expected=len(wanted),
                current=len(here),
            )
        return len(here)

    def _found(self, run: Sequence[ExportLine]) -> Iterator[Entry | Document]:
        """What stands here under the name of the stream; a log only as far as it is exported."""
        name, at = run[0].name, 0
        if run[0].stream == "log":
            while at < len(run) and (entries := self._store.read(name, at, len(run), limit=_PAGE)):
                yield from entries
                at = entries[-1].index + 1
            return
        while versions := self._store.history(name, after=at, limit=_PAGE):
            yield from versions
            at = versions[-1].version

    def _store_run(self, run: Sequence[ExportLine], here: int, allowed: list[Condition]) -> None:
        name = run[0].name
        for at in range(here, len(run), _AT_ONCE):
            part = run[at : at + _AT_ONCE]
            operations = [_operation(line) for line in part]
            condition: Condition = (
                LengthIs(name, at) if part[0].stream == "log" else VersionIs(name, at)
            )
            last = at + len(part) == len(run)
            puts = [one for one in operations[-1:] if isinstance(one, Put)] if last else []
            more, when = self._indexing(puts)
            self._store.commit(Batch([*operations, *more], [condition, *allowed, *when]))


def _not_here() -> Invalid:
    """The same words whatever the line holds: they must not tell whether a guess was right."""
    return Invalid("export", "names a stream that is taken", "import it elsewhere")


def _operation(line: ExportLine) -> Append | Put:
    value = codec.decode(line.type, bytes(line.value))
    keys = decoded_mapping(line.keys)
    notes = decoded_mapping(line.notes) | {TAKEN_AT: line.time_us}
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

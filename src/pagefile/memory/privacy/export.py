"""Everything that is kept of a user, as lines of JSON, whole or with the fault named.

One line is one record: a version of a document or an entry of a log. The first
line says what follows, the last how many lines there were and a digest over
all of them; each line has a digest of its own. The search index is not among
them: it is derived, and made again by who takes the lines in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from pagefile.errors import Corrupt, Invalid, Unavailable, shown
from pagefile.memory.episodes.episode import Episode, episode_of
from pagefile.memory.episodes.store import Episodes
from pagefile.memory.facts.documents import ALIAS, ASSERTION, RETRACTION
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.store import FactStore
from pagefile.memory.privacy.erasure_plan import rehearsed
from pagefile.memory.privacy.forget import of_anonymous
from pagefile.store import codec
from pagefile.store.atomic_file import new_file
from pagefile.store.batch import Selector
from pagefile.store.codec.decoder import from_json
from pagefile.store.kinds import registry
from pagefile.store.records import Document, Entry, mapping_from_bytes
from pagefile.store.store import Store

FORMAT = "pagefile-export"
VERSION = 1
#: In the notes of a record that was brought in: when the store it came from took it.
TAKEN_AT = "taken_us"
#: And which number it had there, where that was taken.
TAKEN_NUMBER = "taken_number"
#: Bodies that leave it to their commit to say when a fact was recorded.
_RECORDED = frozenset({ASSERTION, RETRACTION, ALIAS})
_PAGE = 1_000
_MOST_LINE = 64 * 1024 * 1024


class ExportLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record of a user. `value` is its body as it is stored, `type` what it is read as."""

    kind: str
    stream: str
    name: str
    number: int
    time_us: int
    user: str | None = None
    actor: str = ""
    sources: tuple[str, ...] = ()
    keys: msgspec.Raw = msgspec.Raw(b"{}")
    tenant_keys: msgspec.Raw = msgspec.Raw(b"{}")
    notes: msgspec.Raw = msgspec.Raw(b"{}")
    type: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")


class MemoryExport:
    """What is kept of one user, read while it is gone through.

    Iterating gives the lines; `write` puts them into a file. `episodes` and
    `facts` are for those who want the values themselves.
    """

    def __init__(self, store: Store, facts: FactStore, user_id: str | None, now: datetime) -> None:
        self._store = store
        self._facts = facts
        self.user_id = user_id
        self.exported_at = now

    @property
    def episodes(self) -> list[Episode]:
        """The user's episodes, oldest first."""
        found = Episodes(self._store).documents(self.user_id)
        return [episode_of(document) for document in found]

    @property
    def facts(self) -> list[Fact]:
        """The user's assertions as they were made, recorded first first."""
        return self._facts.assertions(user_id=self.user_id)

    def __iter__(self) -> Iterator[bytes]:
        """The lines, each with its newline."""
        whole = hashlib.sha256()
        count = 0
        for line in self._lines():
            whole.update(line)
            count += 1
            yield line
        footer = {"end": FORMAT, "lines": count, "sha256": whole.hexdigest()}
        yield msgspec.json.encode(footer) + b"\n"

    def write(self, path: str | os.PathLike[str]) -> int:
        """Write the lines into a file that is not there yet; the number of records.

        Its owner alone can read it. It gets its name when it is whole: after a failure there
        is none, and the same name can be given again.

        Raises:
            Conflict: there is such a file. Unavailable: the disk refused.
        """
        count = -2  # Neither the first line nor the last is a record.
        try:
            with new_file(path) as file:
                for line in self:
                    file.write(line)
                    count += 1
        except OSError as error:
            raise Unavailable(
                f"no export could be written to {shown(str(path))} ({error.strerror})",
                "look at the disk and the permissions, then retry",
            ) from error
        return count

    def _lines(self) -> Iterator[bytes]:
        header = {
            "format": FORMAT,
            "version": VERSION,
            "user_id": self.user_id,
            "exported_at": self.exported_at.isoformat(),
        }
        yield msgspec.json.encode(header) + b"\n"
        for record in self._records():
            yield _sealed(_line_of(record))

    def _records(self) -> Iterator[Entry | Document]:
        """Records of the user, stream by stream, as an erasure of the user would take them."""
        kinds = registry()
        for run in rehearsed(self._store, self._selectors()).removed:
            name = run.name
            kind = None if name is None else kinds.of(name)
            if name is None or (kind is not None and not kind.exported):
                continue
            for first in range(run.first, run.last + 1, _PAGE):
                last = min(first + _PAGE - 1, run.last)
                yield from self._run(run.stream, name, first, last)

    def _run(self, stream: str, name: str, first: int, last: int) -> Iterator[Entry | Document]:
        found: Iterable[Entry | Document]
        if stream == "log":
            found = self._store.read(name, first, last + 1)
        else:
            found = self._store.history(name, after=first - 1, limit=last - first + 1)
        for record in found:
            # Erased between the listing and the reading: then it is not to be shown.
            if not record.erased and record.user == self.user_id:
                yield record

    def _selectors(self) -> list[Selector]:
        if self.user_id is not None:
            return [Selector(user=self.user_id)]
        return of_anonymous(self._store)


def _line_of(record: Entry | Document) -> ExportLine:
    content = record.content
    assert content is not None
    is_log = isinstance(record, Entry)
    taken, number = record.notes.get(TAKEN_AT), record.notes.get(TAKEN_NUMBER)
    if type(number) is not int:
        number = record.index if isinstance(record, Entry) else record.version
    return ExportLine(
        kind=content.kind,
        stream="log" if is_log else "document",
        name=record.log if isinstance(record, Entry) else record.name,
        number=number,
        time_us=taken if isinstance(taken, int) else record.time_us,
        user=content.user,
        actor=content.actor,
        sources=tuple(content.sources),
        keys=msgspec.Raw(content.keys or b"{}"),
        tenant_keys=msgspec.Raw(content.tenant_keys or b"{}"),
        notes=msgspec.Raw(_without_taken(record, content.notes)),
        type=content.type_name,
        value=msgspec.Raw(told_body(record)),
    )


def told_body(record: Entry | Document) -> bytes:
    """The body; a fact's says when it was recorded, for elsewhere the commit is later."""
    if record.kind not in _RECORDED:
        return record.body or b"null"
    value = dict(record.value)
    if value.get("recorded_us") is None:
        value["recorded_us"] = record.time_us
    return codec.encode(value)[1]


def _without_taken(record: Entry | Document, raw: bytes) -> bytes:
    if TAKEN_AT not in record.notes:
        return raw or b"{}"
    rest = {n: value for n, value in record.notes.items() if n not in (TAKEN_AT, TAKEN_NUMBER)}
    return msgspec.json.encode(rest, order="sorted")


def _sealed(line: ExportLine) -> bytes:
    body = msgspec.json.encode(line)
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + b',"sha256":"' + digest.encode() + b'"}\n'


def read_line(raw: bytes, number: int) -> ExportLine:
    """The record in a line.

    Raises:
        Corrupt: it does not have its digest, or is no record.
    """
    mark = b',"sha256":"'
    body, found, rest = raw.rstrip(b"\n").rpartition(mark)
    digest = hashlib.sha256(body + b"}").hexdigest().encode()
    if not found or rest != digest + b'"}':
        raise Corrupt(f"line {number} of the export was changed", "export again, from the source")
    try:
        return from_json(body + b"}", ExportLine)
    except msgspec.DecodeError as error:
        raise Corrupt(f"line {number} is no record ({error})", "export it again") from error


class ExportHeader(msgspec.Struct):
    """What the first line says."""

    format: str
    version: int
    user_id: str | None
    exported_at: str


class _Footer(msgspec.Struct):
    end: str
    lines: int
    sha256: str


def read_export(lines: Iterable[bytes]) -> tuple[ExportHeader, Iterator[ExportLine]]:
    """The header of an export, and its records one by one; the end is checked when it comes.

    Raises:
        Invalid: it is no export of a version that is known here.
        Corrupt: on the way, where a line was changed, or where lines are missing.
    """
    stream = iter(lines)
    first = next(stream, b"")
    try:
        header = from_json(first, ExportHeader)
    except msgspec.DecodeError as error:
        raise Invalid(
            "export", f"the first line is no header ({error})", "give an export"
        ) from None
    if header.format != FORMAT or header.version != VERSION:
        raise Invalid(
            "export",
            f"is of format {header.format!r}, version {header.version}",
            f"this reads {FORMAT}, version {VERSION}",
        )
    return header, _records_of(first, stream)


def _records_of(first: bytes, stream: Iterator[bytes]) -> Iterator[ExportLine]:
    whole = hashlib.sha256(first)
    held: bytes | None = None
    count = 1
    for raw in stream:
        if len(raw) > _MOST_LINE:
            raise Corrupt(f"line {count + 1} is longer than any record", "export it again")
        if held is not None:
            whole.update(held)
            count += 1
            yield read_line(held, count)
        held = raw
    try:
        footer = from_json(held or b"", _Footer)
    except msgspec.DecodeError:
        raise Corrupt("the export has no end: lines are missing", "export it again") from None
    if (footer.end, footer.lines, footer.sha256) != (FORMAT, count, whole.hexdigest()):
        raise Corrupt("lines of the export are missing or out of order", "export it again")


def decoded_mapping(raw: msgspec.Raw) -> dict[str, Any]:
    """Keys or notes of a line, as an operation takes them."""
    found = mapping_from_bytes(bytes(raw)) if bytes(raw) != b"{}" else {}
    if not isinstance(found, dict):
        raise Invalid("export", f"has {shown(found)} for keys or notes", "export it again")
    return found

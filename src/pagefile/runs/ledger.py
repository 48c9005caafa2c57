"""The ledger of a run: what happened, in order, and nothing ever changed.

An event is stored without what the store knows anyway: its number is its place
in the log, its time the store's, its run the log's name. Reading puts all of
that back, so that an event reads as schema 2.1 describes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import IO, Any

import msgspec

from pagefile.errors import Conflict, Corrupt, Forbidden, Invalid, shown
from pagefile.memory.documents import require_user
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.runs.config import SETTINGS, redact
from pagefile.runs.kinds import LEDGERS, RUNS
from pagefile.runs.schema import artifacts
from pagefile.store import clock
from pagefile.store.arguments import bounded, require_count
from pagefile.store.batch import Append, Batch, Query, VersionIs
from pagefile.store.records import Entry
from pagefile.store.store import Store

_TYPE = "type"
#: The note of an event that came from elsewhere: when it happened there.
_HAPPENED = "timestamp"
_PAGE = 500


class Identity(msgspec.Struct, frozen=True):
    """What all events of a run have in common."""

    run_id: str
    task_id: str
    thread_id: str
    user_id: str | None = None


class Ledger:
    """The events of one run."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity
        self.log = LEDGERS + identity.run_id

    def __len__(self) -> int:
        return self._store.length(self.log)

    def event(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        writer_id: str = "api",
        parent_event_id: str | None = None,
        *,
        checked: Mapping[str, Any] | None = None,
    ) -> Append:
        """The operation that records an event, for the batch of what it describes.

        `checked` are parts of the payload that were checked before.

        Raises:
            Invalid: the type is unknown, or the payload not of its shape.
        """
        if not isinstance(payload, Mapping):
            raise Invalid("payload", f"{shown(payload)} is no mapping", "give a dict")
        body: dict[str, Any] = {
            "event_id": str(clock.uuid4()),
            "parent_event_id": parent_event_id,
            "payload": dict(payload),
        }
        whole = self._whole(body, event_type, writer_id, None, "1970-01-01T00:00:00Z")
        artifacts.check("ledger_event", whole)
        if checked:
            body["payload"] |= checked
        user, keys = self._identity.user_id, {_TYPE: event_type}
        return Append(self.log, body, user, event_type, writer_id, (), keys)

    def read(
        self, after: int = 0, *, limit: int = 1_000, event_type: str | None = None
    ) -> list[dict[str, Any]]:
        """Events with a `sequence_id` above `after`, oldest first."""
        require_count(after, "after")
        bounded(limit)
        if event_type is None:
            found: Iterable[Any] = self._store.read(self.log, after, limit=limit)
        elif 2 * after > len(self):  # From the nearer end.
            behind = takewhile(
                lambda entry: entry.index >= after, self.of_type(event_type, reverse=True)
            )
            found = [*behind][::-1][:limit]
        else:
            found = (entry for entry in self.of_type(event_type) if entry.index >= after)
            found = islice(found, limit)
        return [self.whole(entry) for entry in found]

    def of_type(self, event_type: str, *, reverse: bool = False) -> Iterator[Entry]:
        """The log's own entries of one type, in order, read page by page."""
        cursor: str | None = None
        while True:
            query = Query(_TYPE, value=event_type, log=self.log, cursor=cursor, reverse=reverse)
            page = self._store.find(query, limit=_PAGE)
            yield from (entry for entry in page.items if isinstance(entry, Entry))
            cursor = page.cursor
            if cursor is None:
                return

    def tail(self, count: int) -> list[dict[str, Any]]:
        """The last events, oldest first."""
        length = len(self)
        start = max(0, length - require_count(count, "count"))
        return [self.whole(entry) for entry in self.entries(start, length)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All events there are now, read page by page."""
        for entry in self.entries(0, len(self)):
            yield self.whole(entry)

    def entries(self, start: int, stop: int) -> Iterator[Entry]:
        """The log's own entries, for whoever folds them."""
        while start < stop:
            found = self._store.read(self.log, start, stop, limit=_PAGE)
            if not found:
                return
            yield from found
            start = found[-1].index + 1

    def last_of_type(self, event_type: str) -> Entry | None:
        """The newest event of a type; the cost does not depend on the ledger's length."""
        query = Query(_TYPE, value=event_type, log=self.log, reverse=True)
        found = self._store.find(query, limit=1).items
        return found[0] if found and isinstance(found[0], Entry) else None

    def export_jsonl(self, file: IO[str]) -> int:
        """Write every event as one line of JSON; return how many."""
        if not callable(getattr(file, "write", None)):
            raise Invalid("file", f"{shown(file)} is no file", "open one for writing text")
        count = 0
        for event in self:
            file.write(json.dumps(event, ensure_ascii=False, sort_keys=True) + "\n")
            count += 1
        return count

    def whole(self, entry: Entry) -> dict[str, Any]:
        """An event as schema 2.1 describes it. Of an erased one only its place is left."""
        moment = entry.time.strftime("%Y-%m-%dT%H:%M:%SZ")
        if entry.erased:
            body: dict[str, Any] = {"event_id": "erased", "parent_event_id": None}
            body["payload"] = {"error_type": "erased", "message": "the content was erased"}
            return self._whole(body, "ERROR", "erased", entry.index + 1, moment)
        happened = entry.notes.get(_HAPPENED, moment)
        return self._whole(body_of(entry), entry.kind, entry.actor, entry.index + 1, happened)

    def _whole(
        self,
        body: Mapping[str, Any],
        event_type: str,
        writer_id: str,
        sequence_id: int | None,
        timestamp: str,
    ) -> dict[str, Any]:
        return {
            "_schema_version": artifacts.SCHEMA_VERSION,
            "event_id": body["event_id"],
            "parent_event_id": body["parent_event_id"],
            "sequence_id": sequence_id,
            "event_type": event_type,
            "timestamp": timestamp,
            "writer_id": writer_id,
            "task_id": self._identity.task_id,
            "thread_id": self._identity.thread_id,
            "run_id": self._identity.run_id,
            "payload": body["payload"],
        }


def body_of(entry: Entry) -> Mapping[str, Any]:
    """What an event says of itself.

    Raises:
        Corrupt: the entry is no event.
    """
    value = entry.value
    if (
        type(value) is not dict
        or not value.keys() >= {"event_id", "parent_event_id", "payload"}
        or type(value["payload"]) is not dict
    ):
        raise Corrupt(
            f"entry {entry.index} of {entry.log!r} is no event",
            "something else wrote it: erase it, or restore a copy",
        )
    return value


def copied(identity: Identity, event: Mapping[str, Any]) -> Append:
    """The operation that records an event of another run as this one's, its time kept.

    Secrets are redacted: where it comes from, nobody may have seen to that.
    """
    kind, writer_id = event["event_type"], event["writer_id"]
    body = {name: event[name] for name in ("event_id", "parent_event_id")}
    body["payload"] = _redacted(kind, event["payload"])
    keys, notes = {_TYPE: kind}, {_HAPPENED: event["timestamp"]}
    log, user = LEDGERS + identity.run_id, identity.user_id
    return Append(log, body, user, kind, writer_id, (), keys, None, notes)


def _redacted(kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = redact(payload)
    if kind == "RUN_START":
        # By its name, the counter of tokens would be taken for one.
        own = {name: payload["config"][name] for name in SETTINGS if name in payload["config"]}
        clean["config"] |= own
    return clean


def require_lines(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Events from JSON lines, each checked.

    Raises:
        Invalid: a line is no event; says which.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            raise Invalid(f"line {number}", f"is no JSON ({error})", "export it again") from error
        try:
            artifacts.check("ledger_event", event)
        except Invalid as error:
            fact = f"is no event ({error})"
            raise Invalid(f"line {number}", fact, "export it again") from error
        yield event


# What was forgotten of a user does not come back as a run of the same id.


_ATTEMPTS = 100


def require_remembered(
    store: Store, run_id: str, user_id: str | None, next_step: str = "boot a new one"
) -> VersionIs | None:
    """Refuse a run that was forgotten; the condition that nothing was since.

    Raises:
        Forbidden: it was. One that is nobody's cannot have been.
    """
    if user_id is None:
        return None
    require_user(user_id)
    forgotten = forgotten_of(store, user_id)
    if forgotten.among([RUNS + run_id]) is not None:
        raise Forbidden(f"run {run_id!r} was forgotten, and is not stored again", next_step)
    return VersionIs(forgotten.document, forgotten.version)


def commit_unless_forgotten(store: Store, identity: Identity, batch: Batch) -> None:
    """Commit what makes a run, on condition that none of that id was forgotten."""
    for _ in range(_ATTEMPTS):
        allowed = require_remembered(
            store, identity.run_id, identity.user_id, "choose another run_id, or leave it out"
        )
        when = batch.when if allowed is None else [*batch.when, allowed]
        try:
            store.commit(Batch(batch.operations, when))
            return
        except Conflict as conflict:
            if allowed is None or conflict.target != allowed.document:
                raise
            last = conflict  # Something of the user was forgotten meanwhile.
    raise last

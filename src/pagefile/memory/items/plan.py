"""What a batch would change: its requests applied in order to the items as they are now.

Each item that is touched is read once and written once, on condition that it is
still the version that was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET

from pagefile.errors import Conflict, Forbidden, NotFound, PagefileError
from pagefile.memory.items.change import Change
from pagefile.memory.items.item import (
    Cause,
    MemoryItem,
    Place,
    Revision,
    Status,
    id_in,
    place_of,
    put_item,
    revision_of,
)
from pagefile.memory.items.proposal import ItemBatch, Pass, ReadBatch, put_batch
from pagefile.memory.privacy.tombstones import Forgotten, forgotten_of
from pagefile.store.batch import Absent, Condition, Operation, Put, VersionIs
from pagefile.store.store import Store

replace = msgspec.structs.replace

#: So many versions are looked through for one that was not undone.
_MOST_PASSED_OVER = 1_000


class Plan(msgspec.Struct, frozen=True):
    """The operations that commit a batch, and what they depend on, for a `Batch` of one's own."""

    operations: tuple[Operation, ...]
    conditions: tuple[Condition, ...]
    memory_ids: tuple[str, ...]


class Difference(msgspec.Struct, frozen=True):
    """One item before and after; `before` is None for one that comes into being."""

    memory_id: str
    before: MemoryItem | None
    after: MemoryItem


class Preview(msgspec.Struct, frozen=True):
    """What a commit would do now; `problems` are why it would be refused."""

    batch_id: str
    status: str
    added: tuple[Difference, ...]
    superseded: tuple[Difference, ...]
    deprecated: tuple[Difference, ...]
    problems: tuple[str, ...]


class _Sheet(msgspec.Struct):
    """One item while a batch is applied to it."""

    document: str
    condition: Condition
    version: int
    before: MemoryItem | None
    after: MemoryItem | None = None
    cause: Cause | None = None

    @property
    def is_new(self) -> bool:
        """Whether there was no item before; one that was undone counts as none."""
        return self.before is None or self.before.status == "rejected"

    @property
    def present(self) -> MemoryItem | None:
        """The item as it stands by now."""
        item = self.after or self.before
        return None if item is None or item.status == "rejected" else item


class Application:
    """The requests of one batch, applied one after the other."""

    def __init__(self, store: Store, batch: ItemBatch, passed: Pass, now: datetime) -> None:
        self._store = store
        self._batch = batch
        self._passed = passed
        self._now = now
        self._sheets: dict[str, _Sheet] = {}
        #: Of the one user that a batch is about.
        self._forgotten: Forgotten | None = None
        self.memory_ids: list[str] = []

    def apply(self, change: Change) -> None:
        """Apply one request, or raise and leave all as it was.

        Raises:
            Conflict: it adds an item that is there.
            NotFound: it supersedes or deprecates what is not there, or not active.
            Forbidden: it adds an item that was forgotten.
        """
        if change.op == "noop":
            return
        place = place_of(change.scope, change.user_id, change.project_id)
        if change.op == "deprecate":
            self._end(self._active(place, change.target_memory_id), change, "deprecated", None)
            self.memory_ids.append(change.target_memory_id)
            return
        sheet = self._sheet(place, change.memory_id)
        self._require_remembered(sheet.document, change)
        if sheet.present is not None:
            raise Conflict(
                f"memory item {change.memory_id!r} exists, with status {sheet.present.status}",
                "supersede it, or add under another memory_id",
                target=change.memory_id,
                expected=0,
                current=sheet.version,
            )
        # An add may carry `supersedes` as well, and only a supersede means it.
        given = change.supersedes if change.op == "supersede" else ()
        targets = [self._active(place, target) for target in dict.fromkeys(given)]
        for target in targets:
            self._end(target, change, "superseded", change.memory_id)
        sheet.after = self._item(change, tuple(dict.fromkeys(given)))
        sheet.cause = self._cause(change)
        self.memory_ids.append(change.memory_id)

    @property
    def written(self) -> list[_Sheet]:
        """What has to be written, in the order it was touched."""
        return [sheet for sheet in self._sheets.values() if sheet.after is not None]

    @property
    def conditions(self) -> list[Condition]:
        """That everything that was looked at stays as it was."""
        forgotten = self._forgotten
        known = () if forgotten is None else (VersionIs(forgotten.document, forgotten.version),)
        return [*(sheet.condition for sheet in self._sheets.values()), *known]

    def _require_remembered(self, document: str, change: Change) -> None:
        """As for episodes: what was forgotten of a user does not come back under its id."""
        if not change.user_id:
            return
        if self._forgotten is None:
            self._forgotten = forgotten_of(self._store, change.user_id)
        if self._forgotten.among([document]) is not None:
            raise Forbidden(
                f"memory item {change.memory_id!r} was forgotten, and is not stored again",
                "what is meant anew needs another memory_id",
            )

    def _sheet(self, place: Place, memory_id: str) -> _Sheet:
        document = place.document(memory_id)
        if document not in self._sheets:
            found = self._store.get(document)
            if found is None:
                sheet = _Sheet(document, Absent(document), 0, None)
            else:
                condition = VersionIs(document, found.version)
                before = None if found.erased else revision_of(found).item
                sheet = _Sheet(document, condition, found.version, before)
            self._sheets[document] = sheet
        return self._sheets[document]

    def _active(self, place: Place, memory_id: str) -> _Sheet:
        sheet = self._sheet(place, memory_id)
        if sheet.present is None:
            where = "" if place.scope == "global" else f" of {place.scope} {place.owner!r}"
            raise NotFound(
                f"there is no {place.scope} memory item {memory_id!r}{where}",
                "a request reaches only items of its own scope, user and project",
            )
        if sheet.present.status != "active":
            raise NotFound(
                f"memory item {memory_id!r} is {sheet.present.status}, not active",
                "name the item that is active now",
            )
        return sheet

    def _end(self, sheet: _Sheet, change: Change, status: Status, by: str | None) -> None:
        assert sheet.present is not None
        batch_id, user_id = self._batch.batch_id, sheet.present.user_id
        sheet.after = replace(
            sheet.present,
            status=status,
            superseded_by=by,
            updated_at=self._now,
            batch_id=batch_id,
        )
        cause = self._cause(change)
        if user_id != (change.user_id or None):
            # What one user wrote stays out of another's partition: it is in the batch.
            cause = replace(cause, rationale="", source_refs=())
        sheet.cause = cause

    def _item(self, change: Change, supersedes: tuple[str, ...]) -> MemoryItem:
        created = self._now if change.created_at is UNSET else change.created_at
        updated = created if change.updated_at is UNSET else change.updated_at
        return MemoryItem(
            memory_id=change.memory_id,
            type=change.type,
            scope=change.scope,
            content=change.content,
            confidence=change.confidence,
            status="active",
            source_refs=change.source_refs,
            rationale=change.rationale,
            created_at=created,
            updated_at=updated,
            batch_id=self._batch.batch_id,
            supersedes=supersedes,
            user_id=change.user_id or None,
            project_id=change.project_id or None,
        )

    def _cause(self, change: Change) -> Cause:
        assert change.op != "noop"
        refs, passed = change.source_refs, self._passed
        batch_id = self._batch.batch_id
        return Cause(change.op, batch_id, change.rationale, refs, passed.gate, passed.by)


def plan_of(store: Store, read: ReadBatch, passed: Pass, now: datetime) -> Plan:
    """Everything that commits the batch in one go, or the first reason why it cannot."""
    batch = read.batch
    applied = Application(store, batch, passed, now)
    for change in batch.changes:
        applied.apply(change)
    done = replace(
        batch,
        status="committed",
        memory_ids=tuple(applied.memory_ids),
        gate=passed.gate,
        by=passed.by,
        made=tuple(sheet.document for sheet in applied.written if sheet.is_new),
        changed=tuple(sheet.document for sheet in applied.written if not sheet.is_new),
    )
    return Plan(
        (*_puts(applied.written), put_batch(done), *passed.operations),
        (read.unchanged, *applied.conditions, *passed.conditions),
        done.memory_ids,
    )


def preview_of(store: Store, read: ReadBatch, now: datetime) -> Preview:
    """What would change, and every reason why not."""
    batch, problems = read.batch, list[str]()
    applied = Application(store, batch, Pass(""), now)
    if batch.status != "staged":
        problems.append(str(read.refusal("committed", "propose its changes again")))
    else:
        for i, change in enumerate(batch.changes):
            try:
                applied.apply(change)
            except PagefileError as error:
                problems.append(f"mcrs[{i}]: {error}")
    added: list[Difference] = []
    ended: dict[str, list[Difference]] = {"superseded": [], "deprecated": []}
    for sheet in applied.written:
        assert sheet.after is not None
        difference = Difference(
            sheet.after.memory_id, None if sheet.is_new else sheet.before, sheet.after
        )
        (added if sheet.is_new else ended[sheet.after.status]).append(difference)
    return Preview(
        batch.batch_id,
        batch.status,
        tuple(added),
        tuple(ended["superseded"]),
        tuple(ended["deprecated"]),
        tuple(problems),
    )


def undo_of(store: Store, read: ReadBatch, passed: Pass, now: datetime) -> Plan:
    """What restores every item that the batch wrote, if nothing that stands wrote it since.

    Raises:
        Conflict: names the item that was changed, or erased, since.
    """
    batch = read.batch
    operations: list[Operation] = []
    conditions: list[Condition] = [read.unchanged]
    for document in (*batch.made, *batch.changed):
        latest, written = _latest(store, document, batch)
        if document in batch.made:
            item = replace(latest.item, status="rejected")
        else:
            item = _former(store, document, batch, written)
        item = replace(item, updated_at=now, batch_id=batch.batch_id)
        cause = Cause("undo", batch.batch_id, gate=passed.gate, by=passed.by)
        operations.append(put_item(document, item, cause))
        conditions.append(VersionIs(document, latest.version))
    operations.append(put_batch(replace(batch, status="undone")))
    return Plan(tuple(operations), tuple(conditions), batch.touched)


def _latest(store: Store, document: str, batch: ItemBatch) -> tuple[Revision, int]:
    """The item as it is, and the version that the batch wrote, if nothing stands upon it."""
    found = store.get(document)
    if found is None or found.erased:
        raise _changed(batch, document, 0, "is gone")
    latest = revision_of(found)
    standing = _standing(store, document, latest)
    if standing is None or standing.cause.batch_id != batch.batch_id:
        by = (standing or latest).cause.batch_id
        raise _changed(batch, document, latest.version, f"was changed since, by batch {by!r}")
    return latest, standing.version


def _standing(store: Store, document: str, latest: Revision) -> Revision | None:
    """The newest version that was not undone; None when there is none that can be told.

    Each undoing stands upon the change that it took back, like a closing bracket
    upon an opening one, so the two are passed over together.
    """
    undone, revision = 0, latest
    for _ in range(_MOST_PASSED_OVER):
        if revision.cause.op == "undo":
            undone += 1
        elif not undone:
            return revision
        else:
            undone -= 1
        former = store.get(document, version=revision.version - 1) if revision.version > 1 else None
        if former is None or former.erased or former.deleted:
            return None
        revision = revision_of(former)
    return None


def _former(store: Store, document: str, batch: ItemBatch, version: int) -> MemoryItem:
    """The item as it was before the batch wrote that version."""
    former = store.get(document, version=version - 1)
    if former is None or former.erased:
        raise _changed(batch, document, version, "has no version before that any more")
    return revision_of(former).item


def _changed(batch: ItemBatch, document: str, version: int, what: str) -> Conflict:
    memory_id = id_in(document)
    return Conflict(
        f"memory item {memory_id!r} {what}, so batch {batch.batch_id!r} cannot be undone",
        "undo the later batch first, or propose what should hold now",
        target=memory_id,
        expected=version - 1 if version else 1,
        current=version,
    )


def _puts(sheets: Sequence[_Sheet]) -> list[Put]:
    puts = []
    for sheet in sheets:
        assert sheet.after is not None
        assert sheet.cause is not None
        puts.append(put_item(sheet.document, sheet.after, sheet.cause))
    return puts

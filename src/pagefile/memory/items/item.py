"""A memory item, where it is stored, and who can see it there.

    item/user/<digest of the user>/<memory id>        in that user's partition
    item/project/<digest of the project>/<memory id>
    item/global/<memory id>

An id counts within its place, so that nobody meets, or learns of, another's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from pagefile.memory.documents import plain, shaped
from pagefile.memory.items.change import ItemType, Scope
from pagefile.store import clock
from pagefile.store.batch import Append, Condition, Put, VersionIs
from pagefile.store.codec.sort_key import KeyPart, KeyValue
from pagefile.store.records import Document
from pagefile.store.store import Store

#: Documents, one per item.
ITEMS = "item/"
#: Where those stand that are for one user each, and those for everybody.
OF_USERS, _GLOBAL = f"{ITEMS}user/", f"{ITEMS}global/"

Status = Literal["proposed", "active", "superseded", "deprecated", "rejected"]
Gate = Literal["", "reviewer", "token", "milestone", "none"]

_V21_STATUS = {"active": "active", "superseded": "deprecated", "deprecated": "deprecated"}


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing known for the long term. `batch_id` is what made it so, last."""

    memory_id: str
    type: ItemType
    scope: Scope
    content: str
    confidence: float
    status: Status
    source_refs: tuple[str, ...]
    rationale: str
    created_at: datetime
    updated_at: datetime
    batch_id: str
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    user_id: str | None = None
    project_id: str | None = None

    def to_v21(self) -> dict[str, Any]:
        """The item as a `memory_item` of schema version 2.1."""
        return {
            "_schema_version": "2.1",
            "memory_id": self.memory_id,
            "type": self.type,
            "scope": self.scope,
            "content": self.content,
            "confidence": self.confidence,
            "status": _V21_STATUS.get(self.status, "inactive"),
            "source_refs": list(self.source_refs),
            "created_at": _text_of(self.created_at),
            "updated_at": _text_of(self.updated_at),
            "user_id": self.user_id,
            "project_id": self.project_id,
            "supersedes": list(self.supersedes),
        }


class Cause(msgspec.Struct, frozen=True):
    """Why an item has this version: the request, and who let it pass.

    `gate` is "reviewer", "token", "milestone" or "none"; `by` is the reviewer's
    name or the milestone's.
    """

    op: Literal["add", "supersede", "deprecate", "undo"]
    batch_id: str
    rationale: str = ""
    source_refs: tuple[str, ...] = ()
    gate: Gate = ""
    by: str = ""


class Revision(msgspec.Struct, frozen=True):
    """One version of an item, as `history` lists it."""

    version: int
    position: int
    item: MemoryItem
    cause: Cause


class Place(msgspec.Struct, frozen=True):
    """Where items of one owner stand: a user's, a project's, or everybody's."""

    scope: Scope
    owner: str = ""

    def document(self, memory_id: str) -> str:
        """The document of the item of that id."""
        if self.scope == "global":
            return f"{_GLOBAL}{memory_id}"
        digest = hashlib.sha256(self.owner.encode()).hexdigest()[:32]
        return f"{ITEMS}{self.scope}/{digest}/{memory_id}"

    @property
    def field(self) -> str:
        """The secondary key under which its items are found by status."""
        return f"item.{self.scope}"

    @property
    def prefix(self) -> tuple[KeyPart, ...]:
        """What the key's value starts with; a user's partition says already whose it is."""
        return (self.owner,) if self.scope == "project" else ()

    @property
    def user(self) -> str | None:
        """The user in whose partition alone to look; None to look in the whole tenant."""
        return self.owner if self.scope == "user" else None


def id_in(document: str) -> str:
    """The id of the item that a document is."""
    return document.split("/", 2 if document.startswith(_GLOBAL) else 3)[-1]


def place_of(scope: Scope, user_id: str | None, project_id: str | None) -> Place:
    """The place that a scope and its owner stand for."""
    owner = {"user": user_id, "project": project_id, "global": ""}[scope]
    assert owner is not None
    return Place(scope, owner)


def visible(user_id: str | None, project_id: str | None) -> list[Place]:
    """Every place that a caller for this user and project may look into, nearest first."""
    places = [] if user_id is None else [Place("user", user_id)]
    places += [] if project_id is None else [Place("project", project_id)]
    return [*places, Place("global")]


def put_item(document: str, item: MemoryItem, cause: Cause) -> Put:
    """Write an item's next version, in the partition of the user it names."""
    place = place_of(item.scope, item.user_id, item.project_id)
    by_status = (*place.prefix, item.status)
    keys: dict[str, KeyValue] = {
        place.field: by_status,
        f"{place.field}.type": (*by_status, item.type),
    }
    is_users = place.scope == "user"
    return Put(
        document,
        plain(StoredItem(item, cause)),
        user=item.user_id,
        kind="item",
        actor=cause.by,
        sources=cause.source_refs,
        keys=keys if is_users else {},
        tenant_keys={} if is_users else keys,
    )


def revision_of(document: Document) -> Revision:
    """The item in a stored version, a copy of its own."""
    value = shaped(document, StoredItem)
    return Revision(document.version, document.position, value.item, value.cause)


class StoredItem(msgspec.Struct):
    """The body of an item's document."""

    item: MemoryItem
    cause: Cause


def _text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


# What memory records in the ledger of a run, in the form that `runs.ledger` reads.
#
# Runs stand above memory, so that form is known here by its fields alone; tests
# hold the two together.


#: Documents: the working set of each run.
RUNS = "run/"
#: Logs: the events of each run.
LEDGERS = "ledger/"
_WORKING_SET = "working_set"


class RunEvent(msgspec.Struct, frozen=True):
    """An event for a run, and that the run is still there to take it."""

    operation: Append
    condition: Condition


def run_event(
    store: Store, run_id: str, kind: str, payload: Mapping[str, Any], writer_id: str
) -> RunEvent | None:
    """The event; None where there is no such run: ids of batches may name runs of elsewhere."""
    run = store.get(RUNS + run_id)
    if run is None or run.erased or run.kind != _WORKING_SET:
        return None
    body = {"event_id": str(clock.uuid4()), "parent_event_id": None, "payload": dict(payload)}
    append = Append(LEDGERS + run_id, body, run.user, kind, writer_id, (), {"type": kind})
    return RunEvent(append, VersionIs(run.name, run.version))

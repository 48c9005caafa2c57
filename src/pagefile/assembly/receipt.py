"""The receipt of a prompt: what went in, what was left out and why; no text of anybody's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from pagefile.assembly.options import AssemblyOptions
from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.memory.documents import living, owner_key, plain, shaped
from pagefile.memory.privacy.tombstones import document_of as forgotten_document
from pagefile.store.arguments import MOST_PER_READ
from pagefile.store.batch import Absent, Batch, Condition, Operation, Put, Query, VersionIs
from pagefile.store.records import Document
from pagefile.store.snapshot import Snapshot
from pagefile.store.store import Store

Section = Literal["system", "blocks", "run", "tail", "working", "recall", "query"]
#: Why something is not in the prompt.
Reason = Literal[
    "budget",
    "duplicate",
    "superseded",
    "threshold",
    "unrelated",
    "unpaired_tool_call",
    "unpaired_tool_result",
    "erased",
]


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that went in: the record it comes from, and what it takes.

    `stream` and `number` name the record: a document and its version, a log and
    an index. `digest` is the record's own, which is salted; of the system text,
    that of the text. It is empty for an item of a working set, whose record is
    that of section `run`; `item` is its id.
    """

    section: Section
    tokens: int
    digest: str = ""
    stream: str = ""
    number: int = 0
    item: str = ""
    score: float | None = None


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that did not go in, and why; of a log, everything from `number` to `last`."""

    section: Section
    reason: Reason
    stream: str = ""
    number: int = 0
    last: int = 0
    item: str = ""
    tokens: int = 0
    score: float | None = None


class AssemblyReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to make a prompt.

    `position` is where everything was read. `tokens` is what the prompt takes by
    `counter`, `sections` what each part takes; the difference is what parts and
    messages cost by themselves. `digest` is of the prompt's bytes, made with the
    salts of the records in it, so that it says nothing once they are erased;
    `query_digest` the same of the query. `prefix_digest` is of the system message
    alone, unsalted: it stays while the start of the prompt does. `recorded` says
    whether the receipt is in the store. `missing` counts entries that were erased
    since.
    """

    receipt_id: str
    position: int
    source: str
    user_id: str | None
    project_id: str | None
    agent: str
    counter: str
    budget: int
    tokens: int
    options: AssemblyOptions
    options_digest: str
    digest: str
    prefix_digest: str
    query_digest: str
    sections: dict[str, int]
    pieces: tuple[Piece, ...]
    left_out: tuple[LeftOut, ...]
    recorded: bool = False
    missing: int = 0


class Verification(msgspec.Struct, frozen=True):
    """Whether a prompt can be made again, byte for byte; true when it can.

    `differs` names the fields of the receipt that came out otherwise.
    """

    receipt_id: str
    differs: tuple[str, ...] = ()
    reason: str = ""

    def __bool__(self) -> bool:
        return not self.differs


# Receipts in a store: written once, found again, gone with the users they speak of.
#
#     receipt/<digest of the user>/<receipt id>        in that user's partition
#
# What a receipt says about records of other users is in a document of the same id
# in their partition, so that forgetting one of them removes it, and it alone.


#: Documents, one per receipt, and one per other user of whom it names records.
RECEIPTS = "receipt/"
#: Keys: all receipts of a user in order, all parts of a receipt, those of a source.
BY_POSITION = "receipt.position"
_PARTS = "receipt.id"
_MOST_PARTS = MOST_PER_READ
ID_PREFIX = "rcpt_"


class ReceiptPage(msgspec.Struct, frozen=True):
    """Part of a listing. `cursor` continues it; None means that was all."""

    receipts: tuple[AssemblyReceipt, ...]
    cursor: str | None


class Whose(msgspec.Struct, frozen=True):
    """Users other than the receipt's own whose records it names: by stream and number."""

    users: Mapping[tuple[str, int], str]

    def of(self, entry: Piece | LeftOut) -> str | None:
        return self.users.get((entry.stream, entry.number))


class _Stored(msgspec.Struct):
    """A document: the receipt without entries, for its own user, and entries with their places."""

    receipt: AssemblyReceipt | None
    pieces: list[tuple[int, Piece]]
    left_out: list[tuple[int, LeftOut]]
    #: How many of both the whole receipt has.
    entries: int


def record(past: Snapshot, receipt: AssemblyReceipt, whose: Whose) -> AssemblyReceipt:
    """Store the receipt in one commit, unless it is there already.

    Raises:
        Conflict: something of a user in it was forgotten meanwhile.
    """
    stored = msgspec.structs.replace(receipt, recorded=True)
    operations, conditions = _operations(past, stored, whose)
    name = _name(receipt.receipt_id, receipt.user_id)
    try:
        past.live.commit(Batch(operations, conditions))
    except Conflict as conflict:
        if conflict.target != name:
            raise Conflict(
                "something that a prompt was made of was forgotten meanwhile",
                "assemble it again",
                target=conflict.target,
                expected=conflict.expected,
                current=conflict.current,
            ) from conflict
        found = past.live.get(name)
        if found is not None and found.erased:
            # Forgotten, and made again from what is left: the next version of the same.
            again = [VersionIs(name, found.version), *conditions[1:]]
            past.live.commit(Batch(operations, again))
    return stored


def _operations(
    past: Snapshot, receipt: AssemblyReceipt, whose: Whose
) -> tuple[list[Operation], list[Condition]]:
    own = receipt.user_id
    parts: dict[str | None, _Stored] = {}
    bare = msgspec.structs.replace(receipt, pieces=(), left_out=())
    count = len(receipt.pieces) + len(receipt.left_out)
    parts[own] = _Stored(bare, [], [], count)
    for place, piece in enumerate(receipt.pieces):
        user = whose.of(piece) or own
        parts.setdefault(user, _Stored(None, [], [], 0)).pieces.append((place, piece))
    for place, left in enumerate(receipt.left_out):
        user = whose.of(left) or own
        parts.setdefault(user, _Stored(None, [], [], 0)).left_out.append((place, left))
    operations: list[Operation] = []
    conditions: list[Condition] = [Absent(_name(receipt.receipt_id, own))]
    for user, part in parts.items():
        operations.append(
            Put(
                _name(receipt.receipt_id, user),
                plain(part),
                user=user,
                kind="receipt",
                keys={BY_POSITION: receipt.position} if user == own else {},
                tenant_keys={_PARTS: receipt.receipt_id},
            )
        )
        # Who forgets while a prompt is made must not find its ids stored afterwards.
        conditions.append(_nothing_forgotten(past, user))
    return operations, conditions


def _nothing_forgotten(past: Snapshot, user: str | None) -> VersionIs:
    found = past.get(forgotten_document(user))
    return VersionIs(forgotten_document(user), 0 if found is None else found.version)


def read(store: Store, receipt_id: str, user_id: str | None) -> AssemblyReceipt:
    """A receipt with all that is left of it.

    Raises:
        NotFound: this user has none of that id.
    """
    if type(receipt_id) is not str or not receipt_id.startswith(ID_PREFIX):
        raise Invalid("receipt_id", shown(receipt_id), "give the receipt_id of a receipt")
    found = store.get(_name(receipt_id, user_id))
    if found is None or found.erased:
        raise NotFound(
            f"there is no receipt {shown(receipt_id)} here", "give the user_id it was made for"
        )
    return _whole(store, found)


def listed(store: Store, user_id: str | None, limit: int, cursor: str | None) -> ReceiptPage:
    """A user's receipts, newest first."""
    query = Query(BY_POSITION, user=user_id, cursor=cursor, reverse=True)
    page = store.find(query, limit=limit)
    return ReceiptPage(tuple(_whole(store, one) for one in living(page.items)), page.cursor)


def _whole(store: Store, own: Document) -> AssemblyReceipt:
    stored = shaped(own, _Stored)
    assert stored.receipt is not None
    pieces, left_out = list(stored.pieces), list(stored.left_out)
    query = Query(_PARTS, stored.receipt.receipt_id, everyone=True)
    for one in living(store.find(query, limit=_MOST_PARTS).items):
        if one.name != own.name and one.user != own.user:
            part = shaped(one, _Stored)
            if part.receipt is None:
                pieces += part.pieces
                left_out += part.left_out
    return msgspec.structs.replace(
        stored.receipt,
        pieces=_ordered(pieces),
        left_out=_ordered(left_out),
        missing=stored.entries - len(pieces) - len(left_out),
    )


def _ordered(entries: Sequence[tuple[int, Any]]) -> tuple[Any, ...]:
    return tuple(entry for _, entry in sorted(entries, key=lambda pair: pair[0]))


def _name(receipt_id: str, user_id: str | None) -> str:
    return f"{RECEIPTS}{owner_key(user_id)}/{receipt_id}"

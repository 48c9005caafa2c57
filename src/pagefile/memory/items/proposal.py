"""A batch of proposed changes: what it is bound to, what became of it, and how it is found.

Its document, `item-batch/<batch id>`, lies in the partition of the batch's user.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from pagefile.errors import Conflict, Forbidden, Invalid, NotFound, shown
from pagefile.memory.documents import plain, shaped
from pagefile.memory.items.change import MOST_NAME_BYTES, Change, require_name
from pagefile.memory.items.item import Gate, id_in
from pagefile.store import clock
from pagefile.store.batch import Condition, Operation, Put, Query, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.codec.sort_key import KeyValue, moment
from pagefile.store.records import Document
from pagefile.store.store import Store

BatchStatus = Literal["staged", "committed", "aborted", "undone", "expired"]
STATUSES = ("staged", "committed", "aborted", "undone", "expired")

BATCHES = "item-batch/"
_ALL, _BY_STATUS, _BY_RUN, _BY_RUN_STATUS = (
    "item-batch",
    "item-batch.status",
    "item-batch.run",
    "item-batch.run.status",
)
#: Under this key of a user's own stand all batches for that user.
OF_USER = "item-batch.user"
_FILTERS = ("scope", "type", "user_id", "project_id")


class ItemBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes that become true together, or not at all.

    `scope` and `type` are the filters it was proposed under, when there were any.
    `memory_ids` are, once it is committed, the items made or deprecated.
    """

    batch_id: str
    status: BatchStatus
    changes: tuple[Change, ...]
    created_us: int
    expires_us: int
    run_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    scope: str | None = None
    type: str | None = None
    memory_ids: tuple[str, ...] = ()
    gate: Gate = ""
    by: str = ""
    #: The documents of the items that its commit brought into being, and of those it changed.
    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def created_at(self) -> datetime:
        return moment(self.created_us)

    @property
    def expires(self) -> datetime:
        return moment(self.expires_us)

    @property
    def touched(self) -> tuple[str, ...]:
        """The ids of all items that its commit wrote."""
        return tuple(id_in(document) for document in (*self.made, *self.changed))

    def seen_at(self, now_us: int) -> ItemBatch:
        """The batch as it is at a time: one that waits no longer is expired."""
        if self.status == "staged" and self.expires_us <= now_us:
            return msgspec.structs.replace(self, status="expired")
        return self


class ReadBatch(msgspec.Struct, frozen=True):
    """A batch together with the version that was read."""

    batch: ItemBatch
    document: str
    version: int
    position: int

    @property
    def unchanged(self) -> Condition:
        """That nobody decided about it since."""
        return VersionIs(self.document, self.version)

    def refusal(self, what: str, next_step: str) -> Conflict:
        """Why this batch, as it stands, cannot have that done to it."""
        batch = self.batch
        when = f" at {batch.expires.isoformat()}" if batch.status == "expired" else ""
        return Conflict(
            f"batch {batch.batch_id!r} is {batch.status}{when} and cannot be {what}",
            next_step,
            target=batch.batch_id,
            expected=1,
            current=self.version,
        )


class BatchPage(msgspec.Struct, frozen=True):
    """Part of a listing of batches. `cursor` continues it; None means that was all."""

    items: tuple[ItemBatch, ...]
    cursor: str | None


def document_of(batch_id: str) -> str:
    """Where a batch is written."""
    return BATCHES + batch_id


def read_batch(store: Store, batch_id: str, now_us: int) -> ReadBatch:
    """The batch as it is now.

    Raises:
        NotFound: there is none of that id.
    """
    require_name("batch_id", batch_id)
    # A longer id is no name of a document, so there is no batch of it either.
    document = document_of(batch_id)
    found = store.get(document) if len(document.encode()) <= MOST_NAME_BYTES else None
    if found is None or found.erased:
        raise no_batch(batch_id)
    batch = shaped(found, ItemBatch).seen_at(now_us)
    return ReadBatch(batch, document, found.version, found.position)


def put_batch(batch: ItemBatch) -> Put:
    """Write a batch's next version."""
    keys: dict[str, KeyValue] = {
        _ALL: batch.created_us,
        _BY_STATUS: (batch.status, batch.expires_us),
    }
    if batch.run_id is not None:
        keys[_BY_RUN] = (batch.run_id, batch.created_us)
        keys[_BY_RUN_STATUS] = (batch.run_id, batch.status, batch.expires_us)
    return Put(
        document_of(batch.batch_id),
        plain(batch),
        user=batch.user_id,
        kind="item-batch",
        actor=batch.by,
        keys={} if batch.user_id is None else {OF_USER: True},
        tenant_keys=keys,
    )


def batches_query(status: str | None, run_id: str | None, cursor: str | None, now_us: int) -> Query:
    """What finds the batches of a status and a run; those without end at `now_us`."""
    if status is not None and status not in STATUSES:
        raise Invalid("status", shown(status), f"use one of {', '.join(STATUSES)}, or None")
    if run_id is not None:
        require_name("run_id", run_id)
    run = () if run_id is None else (run_id,)
    if status is None:
        if run_id is None:
            return Query(_ALL, everyone=True, cursor=cursor)
        return Query(_BY_RUN, run, prefix=True, everyone=True, cursor=cursor)
    field = _BY_STATUS if run_id is None else _BY_RUN_STATUS
    # What is staged divides at this moment into what waits and what waited too long.
    divide = (*run, "staged", now_us + 1)
    if status == "staged":
        end = (*run, "staged", 2**63 - 1)
        return Query(field, low=divide, high=end, everyone=True, cursor=cursor)
    if status == "expired":
        start = (*run, "staged", 0)
        return Query(field, low=start, high=divide, everyone=True, cursor=cursor)
    return Query(field, (*run, status), prefix=True, everyone=True, cursor=cursor)


def page_of(documents: tuple[Any, ...], cursor: str | None, now_us: int) -> BatchPage:
    """The batches in a page of documents."""
    found = [shaped(each, ItemBatch) for each in documents if isinstance(each, Document)]
    return BatchPage(tuple(batch.seen_at(now_us) for batch in found), cursor)


class Binding(msgspec.Struct, frozen=True):
    """What a batch may be about: at most one user, one project, one scope and one type."""

    user_id: str | None
    project_id: str | None
    scope: str | None
    type: str | None


def binding_of(
    changes: tuple[Change, ...],
    filters: Mapping[str, Any] | None,
    user_id: str | None,
    project_id: str | None,
) -> Binding:
    """What the changes are bound to; all of them keep to it.

    Raises:
        Invalid: a change is about another user, project, scope or type, or the
            changes are about several users or projects.
    """
    bound = _filters(filters)
    for field, given in (("user_id", user_id), ("project_id", project_id)):
        if given is None:
            continue
        require_name(field, given)
        if bound.setdefault(field, given) != given:
            raise Invalid(
                f"scope_filters.{field}", f"is not the {field} {shown(given)}", "give one of them"
            )
    for i, change in enumerate(changes):
        for field in _FILTERS:
            given = getattr(change, field)
            if not given or (field not in bound and field in ("scope", "type")):
                continue
            if bound.setdefault(field, given) != given:
                raise Invalid(
                    f"mcrs[{i}].{field}",
                    f"is {shown(given)}, and the batch is for {shown(bound[field])}",
                    f"propose one batch for each {field}",
                )
    return Binding(*(bound.get(f) for f in ("user_id", "project_id", "scope", "type")))


def _filters(filters: Mapping[str, Any] | None) -> dict[str, str]:
    if filters is None:
        return {}
    if not isinstance(filters, Mapping):
        raise Invalid("scope_filters", f"{shown(filters)} is no mapping", "give a dict, or None")
    unknown = [name for name in filters if name not in _FILTERS]
    if unknown:
        raise Invalid(
            "scope_filters", f"has {shown(unknown[0])}", f"use only {', '.join(_FILTERS)}"
        )
    return {
        name: require_name(f"scope_filters.{name}", value)
        for name, value in filters.items()
        if value is not None
    }


def no_batch(batch_id: object) -> NotFound:
    """The refusal of a batch that is not there, or not the caller's: they look the same."""
    return NotFound(f"there is no batch {shown(batch_id)}", "list the batches")


# Who may let a batch pass: a reviewer by name, or a token that works once.
#
# A token's document, `item-token/<token's own id>`, holds its run and a salted
# digest of its secret; the secret is nowhere but in the answer of `issue`.


TOKENS = "item-token/"
_FORM = re.compile(r"mst_([0-9a-f]{24})_([0-9a-f]{64})")
_ASK_AGAIN = "issue_token() for the run of the batch, and use it once, in time"


class Pass(msgspec.Struct, frozen=True):
    """By which gate a batch passes, and what commits with it for that."""

    gate: Gate
    by: str = ""
    operations: tuple[Operation, ...] = ()
    conditions: tuple[Condition, ...] = ()


class _Token(msgspec.Struct, frozen=True):
    run_id: str
    salt: str
    digest: str
    expires_us: int
    user_id: str | None = None
    used_by: str = ""


def issue(run_id: str, user_id: str | None, expires_us: int) -> tuple[str, Put]:
    """A new token, and what stores all of it but its secret."""
    name, secret, salt = clock.token_hex(12), clock.token_hex(32), clock.token_hex(16)
    token = _Token(run_id, salt, _digest(salt, secret), expires_us, user_id)
    return f"mst_{name}_{secret}", _put(name, token)


def spend(store: Store, text: object, batch: ItemBatch, now_us: int) -> Pass:
    """The pass that uses up a token for this batch.

    Raises:
        Forbidden: the token is no token, was used, is too old, or is another run's.
    """
    match = _FORM.fullmatch(text) if type(text) is str else None
    found = None if match is None else store.get(TOKENS + match[1])
    if match is None or found is None or found.erased:
        raise Forbidden("the token is unknown", _ASK_AGAIN)
    token = shaped(found, _Token)
    if not hmac.compare_digest(token.digest, _digest(token.salt, match[2])):
        raise Forbidden("the token is unknown", _ASK_AGAIN)
    if token.used_by:
        raise Forbidden(f"the token was used, for batch {token.used_by!r}", _ASK_AGAIN)
    if token.expires_us <= now_us:
        raise Forbidden("the token has expired", _ASK_AGAIN)
    if token.run_id != batch.run_id:
        raise Forbidden("the token is for another run than the batch", _ASK_AGAIN)
    used = msgspec.structs.replace(token, used_by=batch.batch_id)
    condition = VersionIs(found.name, found.version)
    return Pass("token", "", (_put(match[1], used),), (condition,))


def user_of_token(value: object) -> str | None:
    """Whose token the body of a token's document is."""
    return convert(value, _Token).user_id


def _put(name: str, token: _Token) -> Put:
    return Put(TOKENS + name, plain(token), user=token.user_id, kind="item-token")


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + bytes.fromhex(secret)).hexdigest()

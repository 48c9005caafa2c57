"""What a line of an export can be: a closed list, each form proven to be its user's own.

Digests show what was changed by chance; who makes lines by hand makes them too.
So a line is read as what its name says it is, and must have the place and the
keys that writing it here would give it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from pagefile.context.names import EXPIRIES, PATHS, THREADS, USAGE, USES, usage_document
from pagefile.context.slot import LANE
from pagefile.errors import Invalid, PagefileError
from pagefile.memory.blocks import put_again
from pagefile.memory.consolidation.claims import ExtractionState, put_state
from pagefile.memory.episodes.episode import UNREAD, Episode, merging, put_episode
from pagefile.memory.facts.documents import (
    BY_OBJECT,
    BY_PREDICATE,
    BY_SUBJECT,
    RETRACTION,
    StoredAlias,
    StoredAssertion,
    StoredRetraction,
    alias_put,
    assertion_put,
)
from pagefile.memory.facts.fact import Fact, require_reason, require_text
from pagefile.memory.facts.proposal import ProposedFact, put_candidate
from pagefile.memory.items.approval import user_of_token
from pagefile.memory.items.item import Place, StoredItem, put_item
from pagefile.memory.items.proposal import ItemBatch, put_batch
from pagefile.memory.names import RECEIPTS, owner_key, users_key
from pagefile.memory.privacy.forget import PARTITIONED
from pagefile.memory.provenance import OF_MEMORY, Use, use_log
from pagefile.store.batch import Append, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.codec.sort_key import moment

#: What the store, the index and servers keep for all users; no export has it.
_NOBODYS_TO_BRING: Final = (
    "recall",
    "memory/",
    "fact/",
    "fact-kinds",
    "fact-retraction/",
    "fact-alias/",
    "context/",
    "registry/",
    "chain/",
    "http/",
    "dispatch/worker/",
    "dispatch/bell",
    RECEIPTS,
)
#: What JSON is read as where nothing says that it is more.
_PLAIN: Final = frozenset({dict, list, str, int, float, bool, type(None)})
_ID: Final = "[A-Za-z0-9_-]{1,64}"

#: The operation, whose it is, and whether it may reach nobody else.
_Check = Callable[[Any, "str | None", bool], None]


class _Strange(Exception):
    """Why a record is none of its user's."""


def require_own(
    operation: Append | Put, user_id: str | None, *, own_only: bool, where: str = "a record"
) -> str | None:
    """Refuse what is no record of this user; give the run that it belongs to, if it does.

    With `own_only` everything else is refused too that others would meet: items
    of a project or of everybody, passes for them, and streams of unknown names.

    Raises:
        Invalid: it is not what its name says, or is another's.
    """
    try:
        return _run_of(operation, user_id, own_only)
    except _Strange as error:
        raise Invalid("export", f"{where} {error}", "export it again") from error
    except (msgspec.ValidationError, PagefileError, OverflowError, TypeError) as error:
        told = f"{where} is not what its name says ({error})"
        raise Invalid("export", told, "export it again") from error


def _run_of(operation: Append | Put, user_id: str | None, own_only: bool) -> str | None:
    name = operation.document if isinstance(operation, Put) else operation.log
    prefix = next((each for each in PARTITIONED if name.startswith(each)), None)
    strange = prefix is not None and name[len(prefix) :].split("/")[0] != owner_key(user_id)
    if operation.user != user_id or strange:
        raise _Strange("is another's")
    for form, stream, check, alone in _FORMS:
        match = form.fullmatch(name)
        if match is None:
            continue
        if not isinstance(operation, stream):
            raise _Strange("is in a stream of another kind")
        if type(operation.value) not in _PLAIN and not name.startswith(THREADS):
            raise _Strange("has a type, which only slots have")
        if own_only and not alone:
            raise _Strange("is nothing that a user's own key may bring in")
        check(operation, user_id, own_only)
        found: str | None = match.groupdict().get("run")
        return found
    if own_only or name.startswith(_NOBODYS_TO_BRING):
        raise _Strange("has a name that no record of a user has")
    return None


def _require(is_so: object, what: str) -> None:
    if not is_so:
        raise _Strange(what)


def _same(given: Put, wanted: Put) -> None:
    """Refuse what would not be written like this, in this place, under these keys."""
    _require(given.document == wanted.document, "stands in another place than it says")
    _require(given.kind == wanted.kind, "is of another kind")
    _require(dict(given.keys) == dict(wanted.keys), "has other keys than it would get")
    _require(
        dict(given.tenant_keys) == dict(wanted.tenant_keys), "has other keys than it would get"
    )
    _require(given.user == wanted.user, "is another's")


def _bare(operation: Append | Put) -> None:
    _require(not operation.keys, "has keys, and would get none")
    _require(not isinstance(operation, Put) or not operation.tenant_keys, "has keys")


# Memory


def _episode(given: Put, user: str | None, _: bool) -> None:
    episode = convert(given.value, Episode)
    put = put_episode(episode, unread=UNREAD in given.tenant_keys)
    _same(given, merging(put, given.sources))


def _block(given: Put, user: str | None, _: bool) -> None:
    _same(given, put_again(given.value, given.document, user))


def _candidate(given: Put, user: str | None, _: bool) -> None:
    _same(given, put_candidate(convert(given.value, ProposedFact)))


def _extraction(given: Put, user: str | None, _: bool) -> None:
    _same(given, put_state(given.document, user, convert(given.value, ExtractionState)))


def _use(given: Append, user: str | None, _: bool) -> None:
    convert(given.value, Use)
    _require(given.log == use_log(user), "stands in another place than it says")
    _require(set(given.keys) == {OF_MEMORY}, "has other keys than it would get")
    _require(isinstance(given.keys[OF_MEMORY], str), "has other keys than it would get")


def _fact(given: Put, user: str | None, _: bool) -> None:
    stored = convert(given.value, StoredAssertion)
    until, recorded = stored.until_us, stored.recorded_us
    fact = Fact(
        id=given.document.split("/", 2)[-1],
        user_id=user,
        subject=stored.subject,
        predicate=stored.predicate,
        object=stored.object,
        confidence=stored.confidence,
        valid_from=moment(stored.from_us),
        valid_until=None if until is None else moment(until),
        recorded_at=None if recorded is None else moment(recorded),
        sources=tuple(given.sources),
        reason=stored.reason,
        actor=given.actor,
    )
    _same(given, assertion_put(fact, stored.place))


def _retraction(given: Put, user: str | None, _: bool) -> None:
    stored = convert(given.value, StoredRetraction)
    require_reason(stored.reason)
    for time_us in (stored.since_us, stored.recorded_us):
        if time_us is not None:
            moment(time_us)
    # Under the keys of the fact it takes away, in its user's partition.
    _require(given.kind == RETRACTION, "is of another kind")
    _require(set(given.keys) == {BY_SUBJECT, BY_OBJECT, BY_PREDICATE}, "has other keys")
    _require(dict(given.tenant_keys) == users_key(user), "has other keys than it would get")


def _alias(given: Put, user: str | None, _: bool) -> None:
    stored = convert(given.value, StoredAlias)
    require_text("name", stored.name)
    if stored.canonical is not None:
        require_text("canonical", stored.canonical)
    if stored.recorded_us is not None:
        moment(stored.recorded_us)
    alias_id = given.document.split("/", 2)[-1]
    _same(given, alias_put(user, stored.name, stored.canonical, given.actor, alias_id=alias_id))


# Items


def _item(given: Put, user: str | None, own_only: bool) -> None:
    stored = convert(given.value, StoredItem)
    item = stored.item
    owner = {"user": item.user_id, "project": item.project_id, "global": ""}[item.scope]
    _require(owner is not None, "does not say whose it is")
    _require(item.user_id == user, "is another's")
    _require(not own_only or item.scope == "user", "is not for its user alone")
    place = Place(item.scope, owner or "")
    _same(given, put_item(place.document(item.memory_id), item, stored.cause))


def _batch(given: Put, user: str | None, own_only: bool) -> None:
    batch = convert(given.value, ItemBatch)
    wanted = put_batch(batch)
    # Exports of earlier versions have none of the user's own.
    _same(given, wanted if given.keys else msgspec.structs.replace(wanted, keys={}))
    if own_only and user is not None:
        own = Place("user", user).document("")
        _require(
            all(change.scope == "user" and change.user_id in ("", user) for change in batch.changes)
            and all(name.startswith(own) for name in (*batch.made, *batch.changed)),
            "is not for its user alone",
        )


def _token(given: Put, user: str | None, _: bool) -> None:
    _bare(given)
    _require(user_of_token(given.value) == user, "is another's")


# Threads


def _slot(given: Append, user: str | None, _: bool) -> None:
    if not given.keys:
        return  # Not put there by a buffer.
    lane = given.keys.get(LANE)
    is_lane = isinstance(lane, tuple) and [type(part) for part in lane] == [str] * 3
    _require(is_lane and len(given.keys) == 1, "has other keys than it would get")
    notes = given.notes
    for field in ("own_name", "usage", "todo_nudge"):
        _require(isinstance(notes.get(field, ""), str), f"has {field} that is no text")
    _require(type(notes.get("is_self_call", False)) is bool, "has odd notes")


def _usage(given: Put, user: str | None, _: bool) -> None:
    _bare(given)
    _require(type(given.value) is str, "is no text")
    digest = hashlib.sha256(given.value.encode()).hexdigest()
    _require(user is not None, "is nobody's")
    _require(given.document == usage_document(digest, user), "is another text")


def _touch(given: Put, user: str | None, _: bool) -> None:
    _bare(given)
    _require(given.value is None, "is no mark of a use")


def _expiry(given: Append, user: str | None, _: bool) -> None:
    _bare(given)
    _require(given.kind == "expiry", "is of another kind")
    _require(isinstance(dict(given.value).get("conversation"), str), "does not name a conversation")


def _anything(given: Put | Append, user: str | None, _: bool) -> None:
    """Of rooms above this one, for those who hold the whole store."""


# Runs: shapes as far as their readers depend on them


class _RunForm(msgspec.Struct, frozen=True):
    run_id: str
    task_id: str
    thread_id: str
    status: str
    objective: str
    next_action: str
    current_stage: str
    last_action_summary: str
    acceptance_criteria: list[str]
    constraints: list[str]
    blockers: list[str]
    artifact_refs: list[Any]
    pinned_context: list[_ContextItem]
    sliding_context: list[_ContextItem]
    update_seq: int = msgspec.field(name="_update_seq")


class _ContextItem(msgspec.Struct, frozen=True):
    id: str
    content: str


class _EventForm(msgspec.Struct, frozen=True):
    event_id: str
    parent_event_id: str | None
    payload: dict[str, Any]


class _MilestoneForm(msgspec.Struct, frozen=True):
    episode_id: str
    summary: str
    ws_before: dict[str, Any]
    ws_after: dict[str, Any]
    memory_commits: list[str]
    next_entry_point: str


class _MilestoneNotes(msgspec.Struct, frozen=True):
    first: int
    last: int
    digest: str


def _run(given: Put, user: str | None, _: bool) -> None:
    _bare(given)
    _require(given.kind in ("working_set", "restoring", "gone"), "is of another kind")
    if given.kind == "gone":
        _require(given.value == {}, "is no end of a run")
        return
    form = convert(given.value, _RunForm)
    _require(given.document == f"run/{form.run_id}", "stands in another place than it says")
    for name in (form.task_id, form.thread_id):
        _require(re.fullmatch(_ID, name), "names no task or no thread")


def _event(given: Append, user: str | None, _: bool) -> None:
    convert(given.value, _EventForm)
    _require(given.kind and dict(given.keys) == {"type": given.kind}, "has other keys")


def _evicted(given: Append, user: str | None, _: bool) -> None:
    item = convert(given.value, _ContextItem)
    digest = hashlib.sha256(item.id.encode()).hexdigest()
    _require(dict(given.keys) == {"item": digest}, "has other keys than it would get")


def _milestone(given: Put, user: str | None, _: bool) -> None:
    _bare(given)
    form = convert(given.value, _MilestoneForm)
    convert(dict(given.notes), _MilestoneNotes)
    _require(given.document.endswith(f"/{form.episode_id}"), "stands in another place")


def _brought(given: Put, user: str | None, own_only: bool) -> None:
    _bare(given)
    names = convert(given.value, list[str])
    if own_only and user is not None:
        own = Place("user", user).document("")
        _require(all(name.startswith(own) for name in names), "names items of others")


def _forms(forms: Mapping[str, tuple[type, Any, bool]]) -> list[tuple[Any, type, _Check, bool]]:
    return [(re.compile(form, re.DOTALL), *rest) for form, rest in forms.items()]


#: By form of the name: the stream, how it is read, and whether a user's own key may bring it in.
_FORMS: Final = _forms(
    {
        "memory/episode/[^/]+/[^/]+": (Put, _episode, True),
        "memory/block/[^/]+/[^/]+": (Put, _block, True),
        "memory/candidate/[^/]+/.+": (Put, _candidate, True),
        "memory/extraction/[^/]+/[^/]+": (Put, _extraction, True),
        "memory/use/[^/]+": (Append, _use, True),
        "fact/[^/]+/.+": (Put, _fact, True),
        "fact-retraction/[^/]+/[^/]+": (Put, _retraction, True),
        "fact-alias/[^/]+/[^/]+": (Put, _alias, True),
        "item/.+": (Put, _item, True),
        "item-batch/.+": (Put, _batch, True),
        "item-token/.+": (Put, _token, False),
        f"{THREADS}.+": (Append, _slot, True),
        f"{USAGE}.+": (Put, _usage, True),
        f"{USES}.+": (Put, _touch, False),
        f"{PATHS}.+": (Put, _anything, False),
        EXPIRIES: (Append, _expiry, False),
        f"run/(?P<run>{_ID})": (Put, _run, True),
        f"ledger/(?P<run>{_ID})": (Append, _event, True),
        f"evicted/(?P<run>{_ID})": (Append, _evicted, True),
        f"episode/(?P<run>{_ID})/{_ID}": (Put, _milestone, True),
        f"brought/(?P<run>{_ID})": (Put, _brought, True),
    }
)

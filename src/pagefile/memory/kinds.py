"""What memory stores under which name, and when a record of an import is one."""

from __future__ import annotations

import msgspec

from pagefile.memory.blocks import BLOCKS, put_again
from pagefile.memory.consolidation.claims import STATES, ExtractionState, put_state
from pagefile.memory.documents import users_key
from pagefile.memory.episodes.episode import EPISODES, UNREAD, Episode, merging, put_episode
from pagefile.memory.facts.documents import (
    ALIASES,
    BY_OBJECT,
    BY_PREDICATE,
    BY_SUBJECT,
    FACTS,
    RETRACTION,
    RETRACTIONS,
    StoredAlias,
    StoredAssertion,
    StoredRetraction,
    alias_put,
    assertion_put,
)
from pagefile.memory.facts.fact import Fact, require_reason, require_text
from pagefile.memory.facts.proposal import CANDIDATES, ProposedFact, put_candidate
from pagefile.memory.facts.view import LOG as FACT_KINDS
from pagefile.memory.items.item import ITEMS, Place, StoredItem, put_item
from pagefile.memory.items.proposal import BATCHES, TOKENS, ItemBatch, put_batch, user_of_token
from pagefile.memory.privacy.tombstones import FORGOTTEN
from pagefile.memory.provenance import OF_MEMORY, USES, Use, use_log
from pagefile.store.batch import Append, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.codec.sort_key import moment
from pagefile.store.kinds import Kind, require, require_bare, require_same


def _episode(given: Put, user: str | None, _: bool) -> None:
    episode = convert(given.value, Episode)
    put = put_episode(episode, unread=UNREAD in given.tenant_keys)
    require_same(given, merging(put, given.sources))


def _block(given: Put, user: str | None, _: bool) -> None:
    require_same(given, put_again(given.value, given.document, user))


def _candidate(given: Put, user: str | None, _: bool) -> None:
    require_same(given, put_candidate(convert(given.value, ProposedFact)))


def _extraction(given: Put, user: str | None, _: bool) -> None:
    state = convert(given.value, ExtractionState)
    require_same(given, put_state(given.document, user, state))


def _use(given: Append, user: str | None, _: bool) -> None:
    convert(given.value, Use)
    require(given.log == use_log(user), "stands in another place than it says")
    require(set(given.keys) == {OF_MEMORY}, "has other keys than it would get")
    require(isinstance(given.keys[OF_MEMORY], str), "has other keys than it would get")


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
    require_same(given, assertion_put(fact, stored.place))


def _retraction(given: Put, user: str | None, _: bool) -> None:
    stored = convert(given.value, StoredRetraction)
    require_reason(stored.reason)
    for time_us in (stored.since_us, stored.recorded_us):
        if time_us is not None:
            moment(time_us)
    # Under the keys of the fact it takes away, in its user's partition.
    require(given.kind == RETRACTION, "is of another kind")
    require(set(given.keys) == {BY_SUBJECT, BY_OBJECT, BY_PREDICATE}, "has other keys")
    require(dict(given.tenant_keys) == users_key(user), "has other keys than it would get")
    require(given.user == user, "is another's")


def _alias(given: Put, user: str | None, _: bool) -> None:
    stored = convert(given.value, StoredAlias)
    require_text("name", stored.name)
    if stored.canonical is not None:
        require_text("canonical", stored.canonical)
    if stored.recorded_us is not None:
        moment(stored.recorded_us)
    alias_id = given.document.split("/", 2)[-1]
    put = alias_put(user, stored.name, stored.canonical, given.actor, alias_id=alias_id)
    require_same(given, put)


def _item(given: Put, user: str | None, own_only: bool) -> None:
    stored = convert(given.value, StoredItem)
    item = stored.item
    owner = {"user": item.user_id, "project": item.project_id, "global": ""}[item.scope]
    require(owner is not None, "does not say whose it is")
    require(item.user_id == user, "is another's")
    require(not own_only or item.scope == "user", "is not for its user alone")
    place = Place(item.scope, owner or "")
    require_same(given, put_item(place.document(item.memory_id), item, stored.cause))


def _batch(given: Put, user: str | None, own_only: bool) -> None:
    batch = convert(given.value, ItemBatch)
    wanted = put_batch(batch)
    # Exports of earlier versions have none of the user's own.
    require_same(given, wanted if given.keys else msgspec.structs.replace(wanted, keys={}))
    if own_only and user is not None:
        own = Place("user", user).document("")
        require(
            all(change.scope == "user" and change.user_id in ("", user) for change in batch.changes)
            and all(name.startswith(own) for name in (*batch.made, *batch.changed)),
            "is not for its user alone",
        )


def _token(given: Put, user: str | None, _: bool) -> None:
    require_bare(given)
    require(user_of_token(given.value) == user, "is another's")


#: What follows a prefix where a user's own names stand: whose it is, and an id.
_ID = "[^/]+/[^/]+"
_LONG_ID = "[^/]+/.+"

KINDS = (
    Kind(
        EPISODES,
        "an episode",
        form=_ID,
        bucket=True,
        counted_as="episodes",
        whole=True,
        own=True,
        check=_episode,
    ),
    Kind(
        BLOCKS,
        "a block that stands in every prompt",
        form=_ID,
        bucket=True,
        counted_as="blocks",
        own=True,
        check=_block,
    ),
    Kind(
        CANDIDATES,
        "a fact that waits for approval",
        form=_LONG_ID,
        bucket=True,
        counted_as="candidates",
        whole=True,
        rests=True,
        own=True,
        check=_candidate,
    ),
    Kind(
        STATES,
        "how far the reading of an episode is",
        form=_ID,
        bucket=True,
        counted_as="extractions",
        whole=True,
        own=True,
        check=_extraction,
    ),
    Kind(
        FACTS,
        "a fact as it was asserted",
        form=_LONG_ID,
        bucket=True,
        counted_as="facts",
        whole=True,
        rests=True,
        own=True,
        check=_fact,
    ),
    Kind(
        RETRACTIONS,
        "that a fact is no longer so",
        form=_ID,
        bucket=True,
        counted_as="retractions",
        whole=True,
        own=True,
        check=_retraction,
    ),
    Kind(
        ALIASES,
        "that a name stands for another",
        form=_ID,
        bucket=True,
        counted_as="aliases",
        whole=True,
        own=True,
        check=_alias,
    ),
    Kind(
        USES,
        "which recalls gave a memory back",
        "log",
        form="[^/]+",
        bucket=True,
        counted_as="uses",
        returns=True,
        loose=True,
        own=True,
        check=_use,
    ),
    Kind(
        ITEMS,
        "a long-term item of a user, of a project or for all",
        counted_as="items",
        rests=True,
        own=True,
        check=_item,
    ),
    Kind(BATCHES, "proposed changes of items", rests=True, own=True, check=_batch),
    Kind(TOKENS, "a token that lets one batch pass: its digest", check=_token),
    Kind(
        FORGOTTEN,
        "salted digests of what was forgotten, so that it does not come back",
        owner="tenant",
        exported=False,
    ),
    Kind(
        FACT_KINDS,
        "how predicates behave, for all users",
        "log",
        owner="tenant",
        form="",
        exported=False,
    ),
)

"""How assertions, retractions and aliases are stored and committed, each written once.

    fact/<owner>/<id>               an assertion
    fact-retraction/<owner>/<id>    what takes one away, under the same keys
    fact-alias/<owner>/<id>         that a name stands for another, or no longer does

All lie in the user's partition. Secondary keys find assertions and their
retractions by subject and predicate, by object, and by predicate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import msgspec

from pagefile.errors import Conflict, Invalid, shown
from pagefile.memory.documents import new_id, owner_key, plain, shaped, users_key
from pagefile.memory.facts.fact import Fact, normalised
from pagefile.memory.facts.plane import Claim, Order, Withdrawal
from pagefile.recall.index import SearchIndex
from pagefile.recall.partition_cache import Shelf
from pagefile.recall.records import DOCUMENT
from pagefile.store.batch import Absent, Batch, Condition, LengthIs, Operation, Put, Query, Selector
from pagefile.store.codec import sort_key
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.records import Document
from pagefile.store.store import Store

FACTS = "fact/"
ASSERTION, RETRACTION, ALIAS = "fact", "fact-retraction", "fact-alias"
RETRACTIONS, ALIASES = f"{RETRACTION}/", f"{ALIAS}/"
BY_SUBJECT, BY_OBJECT, BY_PREDICATE = "fact.subject", "fact.object", "fact.predicate"
BY_ALIAS = "fact.alias"

_PAGE = 1_000
_MOST_KEY_BYTES = 256


class StoredAssertion(msgspec.Struct, frozen=True):
    """The body of an assertion; sources and actor are in the envelope."""

    subject: str
    predicate: str
    object: str
    confidence: float
    from_us: int
    until_us: int | None
    #: Given by who brought it in from elsewhere; otherwise the commit's time counts.
    recorded_us: int | None
    #: Its place among those that were planned together.
    place: int
    reason: str


class StoredRetraction(msgspec.Struct, frozen=True):
    """The body of a retraction."""

    target: str
    since_us: int | None
    recorded_us: int | None
    place: int
    reason: str


class StoredAlias(msgspec.Struct, frozen=True):
    """The body of an alias; without `canonical` the name stands for itself again."""

    name: str
    canonical: str | None
    recorded_us: int | None
    place: int


class Assertion(msgspec.Struct, frozen=True, gc=False):
    """An assertion as it was made; `subject` and `object` are normalised."""

    id: str
    user_id: str | None
    stored: StoredAssertion
    sources: tuple[str, ...]
    actor: str
    subject: str
    object: str
    order: Order

    def claim(self, object_key: str) -> Claim:
        """Its place on the plane, under the name that its object goes by."""
        stored = self.stored
        return Claim(
            self.id,
            object_key,
            stored.from_us,
            stored.until_us,
            stored.confidence,
            self.order,
            self.sources,
            stored.until_us is None,
        )

    def fact(self, **seen: Any) -> Fact:
        """The fact as it was asserted, but for what a reader sees otherwise."""
        stored, until = self.stored, self.stored.until_us
        fields: dict[str, Any] = {
            "id": self.id,
            "user_id": self.user_id,
            "subject": stored.subject,
            "predicate": stored.predicate,
            "object": stored.object,
            "confidence": stored.confidence,
            "valid_from": sort_key.moment(stored.from_us),
            "valid_until": None if until is None else sort_key.moment(until),
            "recorded_at": sort_key.moment(self.order[0]),
            "sources": self.sources,
            "reason": stored.reason,
            "actor": self.actor,
        }
        return Fact(**{**fields, **seen})


class Retraction(msgspec.Struct, frozen=True):
    """A retraction as it was made."""

    id: str
    target: str
    since_us: int | None
    reason: str
    actor: str
    order: Order
    sources: tuple[str, ...]

    @property
    def withdrawal(self) -> Withdrawal:
        return Withdrawal(self.target, self.since_us)


class Alias(msgspec.Struct, frozen=True):
    """A statement about a name as it was made."""

    id: str
    name: str
    canonical: str | None
    actor: str
    order: Order


class Ledger(msgspec.Struct):
    """Assertions and retractions as they were read, by id."""

    assertions: dict[str, Assertion]
    retractions: dict[str, Retraction]

    def take(self, other: Ledger) -> None:
        """Everything of another reading too."""
        self.assertions.update(other.assertions)
        self.retractions.update(other.retractions)


# Writing


def document_of(user_id: str | None, fact_id: str) -> str:
    """The document of the assertion of that id."""
    return f"{FACTS}{owner_key(user_id)}/{fact_id}"


def fact_id_in(name: str) -> str:
    """The id in the name of an assertion's document; it may have a stroke in it."""
    return name.split("/", 2)[-1]


def assertions_of(facts: Sequence[Fact]) -> tuple[list[Operation], list[Condition]]:
    """What asserts these facts, in order, for a `Batch` of one's own.

    The conditions say that none of the ids is taken. They depend on nothing
    else, so such batches never conflict with one another.

    Raises:
        Invalid: something else than a fact is among them, or an id twice.
    """
    operations: list[Operation] = []
    conditions: list[Condition] = []
    names: set[str] = set()
    for place, fact in enumerate(facts):
        if not isinstance(fact, Fact):
            raise Invalid(f"facts[{place}]", f"{shown(fact)} is no Fact", "give pagefile.Fact(…)")
        put = assertion_put(fact, place)
        if put.document in names:
            raise Invalid(f"facts[{place}].id", f"{fact.id!r} stands here twice", "give it once")
        names.add(put.document)
        operations.append(put)
        conditions.append(Absent(put.document))
    return operations, conditions


def retraction_put(
    fact: Fact,
    *,
    place: int,
    since_us: int | None,
    reason: str,
    actor: str,
    retraction_id: str = "",
    recorded_us: int | None = None,
) -> Put:
    """What takes an assertion away, wholly or from a moment on."""
    name = retraction_id or new_id("retr")
    return Put(
        f"{RETRACTIONS}{owner_key(fact.user_id)}/{name}",
        plain(StoredRetraction(fact.id, since_us, recorded_us, place, reason)),
        user=fact.user_id,
        kind=RETRACTION,
        actor=actor,
        sources=(fact.id,),
        keys=_keys(fact),
        tenant_keys=users_key(fact.user_id),
    )


def alias_put(
    user_id: str | None,
    name: str,
    canonical: str | None,
    actor: str,
    *,
    place: int = 0,
    alias_id: str = "",
    recorded_us: int | None = None,
) -> Put:
    """What says that a name stands for another, or for itself again."""
    return Put(
        f"{ALIASES}{owner_key(user_id)}/{alias_id or new_id('alias')}",
        plain(StoredAlias(name, canonical, recorded_us, place)),
        user=user_id,
        kind=ALIAS,
        actor=actor,
        keys={BY_ALIAS: ""},
        tenant_keys=users_key(user_id),
    )


def key_of(name: str) -> str:
    """A normalised name as it is looked up; a long one by its digest."""
    raw = name.encode()
    return name if len(raw) <= _MOST_KEY_BYTES else f"\n{hashlib.sha256(raw).hexdigest()}"


def require_same(stored: Assertion, fact: Fact, document: Document) -> None:
    """Refuse to say something else under an id that is taken.

    Raises:
        Conflict: the stored assertion differs.
    """
    said = stored.fact()
    given = fact.recorded_at
    same_time = given is None or min(given, document.time) == said.recorded_at
    if not same_time or _said(fact) != _said(said):
        raise Conflict(
            f"fact {fact.id!r} says something else: {shown(said.format())}",
            "assert it under an id of its own",
            target=fact.id,
            expected=0,
            current=document.version,
        )


# Reading


def assertion_in(document: Document) -> Assertion:
    """The assertion that a document holds."""
    stored = shaped(document, StoredAssertion)
    fact_id = fact_id_in(document.name)
    return Assertion(
        fact_id,
        document.user,
        stored,
        document.sources,
        document.actor,
        normalised(stored.subject),
        normalised(stored.object),
        (_recorded(document, stored.recorded_us), document.position, stored.place, fact_id),
    )


def ledger_of(store: Store, query: Query, most: int | None = None) -> tuple[Ledger, bool]:
    """What stands under a key, and whether there was more than `most` of it."""
    ledger = Ledger({}, {})
    for document in documents_under(store, query, most):
        if document is None:
            return ledger, True
        if document.kind == RETRACTION:
            retraction = retraction_in(document)
            ledger.retractions[retraction.id] = retraction
        else:
            assertion = assertion_in(document)
            ledger.assertions[assertion.id] = assertion
    return ledger, False


def aliases_of(store: Store, user_id: str | None) -> list[Alias]:
    """All that was ever said about names, in the order it was recorded."""
    found = []
    for document in documents_under(store, Query(BY_ALIAS, "", user=user_id), None):
        assert document is not None
        stored = shaped(document, StoredAlias)
        name = document.name.rsplit("/", 1)[-1]
        order = (_recorded(document, stored.recorded_us), document.position, stored.place, name)
        found.append(Alias(name, stored.name, stored.canonical, document.actor, order))
    return sorted(found, key=lambda alias: alias.order)


def retraction_in(document: Document) -> Retraction:
    """The retraction that a document holds."""
    stored = shaped(document, StoredRetraction)
    name = document.name.rsplit("/", 1)[-1]
    order = (_recorded(document, stored.recorded_us), document.position, stored.place, name)
    return Retraction(
        name, stored.target, stored.since_us, stored.reason, document.actor, order, document.sources
    )


def _recorded(document: Document, given_us: int | None) -> int:
    # Nothing was learnt after it was stored.
    return document.time_us if given_us is None else min(given_us, document.time_us)


def documents_under(store: Store, query: Query, most: int | None) -> Iterator[Document | None]:
    """Living documents under a key; None when there were more than `most`."""
    left = most
    while True:
        limit = _PAGE if left is None else min(left, _PAGE)
        page = store.find(query, limit=limit)
        for document in page.items:
            if isinstance(document, Document) and not document.erased:
                yield document
        if page.cursor is None:
            return
        if left is not None:
            left -= limit
            if left <= 0:
                yield None
                return
        query = msgspec.structs.replace(query, cursor=page.cursor)


def assertion_put(fact: Fact, place: int) -> Put:
    """What asserts a fact; `place` tells it from those of the same commit."""
    until, recorded = fact.valid_until, fact.recorded_at
    stored = StoredAssertion(
        fact.subject,
        fact.predicate,
        fact.object,
        fact.confidence,
        sort_key.microseconds(fact.valid_from),
        None if until is None else sort_key.microseconds(until),
        None if recorded is None else sort_key.microseconds(recorded),
        place,
        fact.reason,
    )
    return Put(
        document_of(fact.user_id, fact.id),
        plain(stored),
        user=fact.user_id,
        kind=ASSERTION,
        actor=fact.actor,
        sources=fact.sources,
        keys=_keys(fact),
        tenant_keys=users_key(fact.user_id),
    )


def _keys(fact: Fact) -> dict[str, KeyValue]:
    return {
        BY_SUBJECT: (key_of(normalised(fact.subject)), fact.predicate),
        BY_OBJECT: key_of(normalised(fact.object)),
        BY_PREDICATE: fact.predicate,
    }


def _said(fact: Fact) -> tuple[object, ...]:
    return (
        fact.subject,
        fact.predicate,
        fact.object,
        fact.confidence,
        fact.valid_from,
        fact.valid_until,
        fact.sources,
        fact.reason,
        fact.actor,
    )


# Commits of facts, in step with what stands beside them.


#: How often a commit is tried again after what stands beside it has changed.
_ATTEMPTS = 100


class Beside(Protocol):
    """What else belongs in the commit of facts: a search index, say, that is to be in step."""

    def beside(self, facts: Sequence[Fact]) -> tuple[Sequence[Operation], Sequence[Condition]]:
        """Further operations and conditions for facts that are asserted, or taken away."""
        ...

    def erasure(
        self, user_id: str | None, documents: Sequence[str]
    ) -> tuple[Sequence[Selector], Sequence[Operation], Sequence[Condition]]:
        """What else to erase with these documents, and what goes beside that.

        The entries of memory's own index go without being named here.
        """
        ...

    def settles(self, conflict: Conflict, facts: Sequence[Fact]) -> bool:
        """Whether the conflict was about these, and trying again makes sense."""
        ...


class FactCommits:
    """Commits and erases facts together with what is beside them, trying again while that moves."""

    def __init__(self, store: Store, beside: Beside | None) -> None:
        self._store = store
        self._beside = beside

    def commit(
        self,
        operations: Sequence[Operation],
        conditions: Sequence[Condition],
        facts: Sequence[Fact],
    ) -> None:
        """Commit these operations, which assert the facts or take them away."""
        more: Sequence[Operation] = ()
        when: Sequence[Condition] = ()
        for attempt in range(_ATTEMPTS):
            if self._beside is not None and facts:
                more, when = self._beside.beside(facts)
            try:
                self._store.commit(Batch([*operations, *more], [*conditions, *when]))
                return
            except Conflict as conflict:
                last = attempt == _ATTEMPTS - 1
                if last or self._beside is None or not self._beside.settles(conflict, facts):
                    raise

    def erase(self, user_id: str | None, documents: Sequence[str]) -> None:
        """Erase these documents, their entries in the index, and what else belongs to them."""
        # Whoever erases, and whoever made them findable: their words are in the index.
        index = SearchIndex(self._store, None, Shelf(self._store, most=1, idle_seconds=None))
        for attempt in range(_ATTEMPTS):
            entries, again, when = index.erasure(user_id, owner_key(user_id), documents)
            selectors = [*(Selector(document=name) for name in documents), *entries]
            operations, conditions = list(again), list(when)
            if self._beside is not None:
                more, beside, needed = self._beside.erasure(user_id, documents)
                selectors += more
                operations += beside
                conditions += needed
            if not selectors:
                return
            try:
                self._store.erase(selectors, beside=Batch(operations, conditions))
                return
            except Conflict as conflict:
                grew = {each.log for each in when if isinstance(each, LengthIs)}
                settled = conflict.target in {DOCUMENT, *grew}
                if self._beside is not None and not settled:
                    settled = self._beside.settles(conflict, ())
                if attempt == _ATTEMPTS - 1 or not settled:
                    raise

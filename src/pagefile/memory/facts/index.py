"""What belongs in the commit that asserts facts: that they are found, and were not forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.errors import Conflict
from pagefile.memory.documents import owner_key
from pagefile.memory.facts.documents import assertions_of, document_of
from pagefile.memory.facts.fact import Fact
from pagefile.memory.privacy.tombstones import Guard
from pagefile.recall.index import Findable, SearchIndex
from pagefile.recall.records import IndexEntry
from pagefile.store.batch import Condition, Operation, Selector
from pagefile.store.codec.sort_key import microseconds


class FactIndexing:
    """Makes facts findable in the commit that asserts them."""

    def __init__(self, index: SearchIndex, guard: Guard) -> None:
        self._index = index
        self._guard = guard

    def beside(self, facts: Sequence[Fact]) -> tuple[list[Operation], list[Condition]]:
        """Further operations and conditions of the commit that asserts these, or takes some away.

        An assertion that is taken away stays findable: it was so once, and who
        asks for that time shall find it.
        """
        operations: list[Operation] = []
        conditions: list[Condition] = []
        asserted = [fact for fact in facts if fact.status == "asserted"]
        for user in {fact.user_id: None for fact in asserted}:
            own = [fact for fact in asserted if fact.user_id == user]
            names = [document_of(user, fact.id) for fact in own]
            self._guard.refuse(user, names)
            entries = self._index.analysed([_findable(fact) for fact in own])
            more, when = self._operations(user, entries)
            operations += more
            conditions += (*when, self._guard.condition(user))
        return operations, list(dict.fromkeys(conditions))

    def asserting(self, facts: Sequence[Fact]) -> tuple[list[Operation], list[Condition]]:
        """Everything that asserts these facts, for a batch with something else in it."""
        operations, conditions = assertions_of(facts)
        more, when = self.beside(facts)
        return [*operations, *more], [*conditions, *when]

    def require_ready(self) -> None:
        """Refuse while facts could not be made findable: another model's index, no embedder."""
        self._index.require_ready()

    def forgotten(self, facts: Sequence[Fact]) -> list[Fact]:
        """Those of them that were forgotten, as far as is known."""
        return [
            fact
            for fact in facts
            if self._guard.forgotten(fact.user_id, [document_of(fact.user_id, fact.id)])
        ]

    def erasure(
        self, user_id: str | None, documents: Sequence[str]
    ) -> tuple[list[Selector], list[Operation], list[Condition]]:
        """Nothing: who erases facts erases their entries in the index too."""
        return [], [], []

    def settles(self, conflict: Conflict, facts: Sequence[Fact]) -> bool:
        """Whether the conflict was about what stands beside, which is now up to date."""
        if self._index.refresh(conflict):
            return True
        return any(self._guard.learns(conflict, fact.user_id) for fact in facts)

    def _operations(
        self, user: str | None, entries: Sequence[IndexEntry]
    ) -> tuple[list[Operation], list[Condition]]:
        return self._index.operations(user, owner_key(user), entries)


def findable_fact(
    document: str, subject: str, predicate: str, object_: str, from_us: int
) -> Findable:
    """What an assertion is found by: its words, and from when it holds."""
    words = f"{subject} {predicate.replace('_', ' ')} {object_}"
    return Findable(key=document, kind="fact", text=words, time_us=from_us, status="asserted")


def _findable(fact: Fact) -> Findable:
    name, from_us = document_of(fact.user_id, fact.id), microseconds(fact.valid_from)
    return findable_fact(name, fact.subject, fact.predicate, fact.object, from_us)

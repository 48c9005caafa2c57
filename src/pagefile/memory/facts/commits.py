"""Commits of facts, in step with what stands beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagefile.errors import Conflict
from pagefile.memory.facts.fact import Fact
from pagefile.memory.owner import owner_key
from pagefile.recall.catalogue import DOCUMENT
from pagefile.recall.index import SearchIndex
from pagefile.recall.partition_cache import Shelf
from pagefile.store.batch import Batch, Condition, LengthIs, Operation, Selector
from pagefile.store.store import Store

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

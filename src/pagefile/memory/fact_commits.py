"""Commits of facts, in step with what stands beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pagefile.batch import Batch, Condition, Operation, Selector
from pagefile.errors import Conflict
from pagefile.memory.fact import Fact
from pagefile.store import Store

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
        """What else to erase with these documents, and what goes beside that."""
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
        """Erase these documents, and what else belongs to them."""
        for attempt in range(_ATTEMPTS):
            selectors = [Selector(document=name) for name in documents]
            beside: Batch | None = None
            if self._beside is not None:
                more, operations, conditions = self._beside.erasure(user_id, documents)
                selectors += more
                beside = Batch(operations, conditions) if operations else None
            if not selectors:
                return
            try:
                self._store.erase(selectors, beside=beside)
                return
            except Conflict as conflict:
                last = attempt == _ATTEMPTS - 1
                if last or self._beside is None or not self._beside.settles(conflict, ()):
                    raise

"""`Memory.facts` and `Memory.graph`: the stores of facts, watched as the rest of memory is.

`FactStore` and `StoredGraph` by themselves know nothing of a memory's users, and
memory's own parts ask them without being watched. What callers reach through
`Memory` warns them when they forgot to say whose facts they mean.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pagefile.memory.facts.documents import Beside
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.graph import FindsFacts, StoredGraph
from pagefile.memory.facts.store import FactStore
from pagefile.memory.privacy.isolation import warn_if_anonymous
from pagefile.store.store import Store

Class = TypeVar("Class", bound=type)


def _watched(cls: Class) -> Class:
    """Every public method with a keyword `user_id` asks first, then lets the bare one do it."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        user_id = inspect.signature(method).parameters.get("user_id")
        if not name.startswith("_") and user_id and user_id.kind is user_id.KEYWORD_ONLY:
            setattr(cls, name, _watching(name, method))
    return cls


def _watching(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def watching(own: Any, *given: Any, user_id: str | None = None, **named: Any) -> Any:
        if user_id is None:
            warn_if_anonymous(own._store, None)
        return getattr(own.bare, name)(*given, user_id=user_id, **named)

    return watching


@_watched
class WatchedFacts(FactStore):
    """Facts, as callers of `Memory` reach them."""

    def __init__(self, store: Store, beside: Beside) -> None:
        super().__init__(store, beside=beside)
        #: The same, unwatched: what it calls of itself warns nobody.
        self.bare = FactStore(store, beside=beside)

    def append(self, fact: Fact) -> str:
        self._watch([fact])
        return self.bare.append(fact)

    def append_many(self, facts: Sequence[Fact]) -> list[str]:
        self._watch(facts)
        return self.bare.append_many(facts)

    def _watch(self, facts: Sequence[Fact]) -> None:
        if isinstance(facts, (list, tuple)) and any(
            isinstance(fact, Fact) and fact.user_id is None for fact in facts
        ):
            warn_if_anonymous(self._store, None)


@_watched
class WatchedGraph(StoredGraph):
    """The graph, as callers of `Memory` reach it."""

    def __init__(self, store: Store, facts: FactStore, find: FindsFacts) -> None:
        super().__init__(facts, find=find)
        self._store = store
        self.bare = StoredGraph(facts, find=find)

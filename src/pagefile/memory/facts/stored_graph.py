"""A graph over the facts in a store, read node by node."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from pagefile.memory.facts.fact import Fact, normalised, require_text
from pagefile.memory.facts.graph import (
    MOST_HOPS,
    MOST_PATHS,
    Direction,
    Edge,
    Path,
    long_words,
    require_direction,
    shortest_first,
    walk,
)
from pagefile.memory.facts.reader import FactReader
from pagefile.memory.facts.view import Sight, Viewpoint
from pagefile.store.arguments import bounded, require_callable, require_count

#: How many assertions and retractions of one subject are read.
MOST_RECORDS = 10_000
MOST_FAN_OUT = 1_000
MOST_ENTITIES = 10_000
#: How many facts are asked which nodes a question names.
_FACTS_NAMED = 20


class Neighborhood(msgspec.Struct, frozen=True):
    """Edges at one node, recorded last first. `cut` says what was left out, and why."""

    edges: tuple[Edge, ...]
    cut: tuple[str, ...] = ()


class Walk(msgspec.Struct, frozen=True):
    """Paths, the shortest first, then those with the newest fact.

    `cut` says what was left out, and why; empty when these are all.
    """

    paths: tuple[Path, ...]
    cut: tuple[str, ...] = ()


class FindsFacts(Protocol):
    """Gives the facts that share words with a question, as `FactStore.recall_text` does."""

    def __call__(
        self,
        query: str,
        *,
        limit: int,
        valid_at: datetime | None,
        known_at: datetime | None,
        user_id: str | None,
    ) -> list[Fact]: ...


class StoredGraph:
    """The facts of a store as a graph; a walk reads the nodes that it comes to and no others.

    Names are what the user's aliases say. Times mean what they mean in
    `FactStore.query`: `valid_at=None` is the moment one looks from. `find` is
    asked for the facts that share words with a question; without it, all facts
    of the user are looked through.
    """

    def __init__(self, facts: FactReader, *, find: FindsFacts | None = None) -> None:
        if find is not None:
            require_callable("find", find)
        self._facts = facts
        self._find: FindsFacts = facts.recall_text if find is None else find

    def neighbors(
        self,
        entity: str,
        *,
        direction: Direction = "both",
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        fan_out: int = 50,
    ) -> Neighborhood:
        """At most `fan_out` edges at a node, out of it, into it, or both."""
        require_direction(direction)
        require_text("entity", entity)
        _require_fan_out(fan_out)
        reading = _Reading(self._facts, valid_at, known_at, user_id, fan_out)
        edges = reading.edges(reading.node(entity), direction)
        return Neighborhood(tuple(edges), tuple(reading.cut))

    def paths(
        self,
        start: str,
        *,
        hops: int = 2,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        limit: int = 50,
        fan_out: int = 50,
        entities: int = 1_000,
    ) -> Walk:
        """Paths from a node, in both directions, never twice through one node.

        At most `hops` edges long (1 to 8); at most `fan_out` edges are followed
        from each node, and at most `entities` nodes are read.
        """
        require_text("start", start)
        reading = self._reading(valid_at, known_at, user_id, fan_out, entities)
        return _walked(reading, [reading.node(start)], hops, limit)

    def recall(
        self,
        query: str,
        *,
        hops: int = 2,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        limit: int = 10,
        fan_out: int = 50,
        entities: int = 1_000,
    ) -> Walk:
        """Paths from the nodes that a question names."""
        best = self._find(
            query, limit=_FACTS_NAMED, valid_at=valid_at, known_at=known_at, user_id=user_id
        )
        reading = self._reading(valid_at, known_at, user_id, fan_out, entities)
        wanted = long_words(reading.widened(query))
        texts = [text for fact in best for text in (fact.subject, fact.object)]
        seeds = [reading.node(text) for text in texts if wanted & long_words(text)]
        return _walked(reading, seeds, hops, limit)

    def _reading(
        self,
        valid_at: datetime | None,
        known_at: datetime | None,
        user_id: str | None,
        fan_out: int,
        entities: int,
    ) -> _Reading:
        _require_fan_out(fan_out)
        require_count(entities, "entities", least=1, most=MOST_ENTITIES)
        return _Reading(self._facts, valid_at, known_at, user_id, fan_out, entities)


def recall_graph(
    store: FactReader,
    query: str,
    *,
    user_id: str | None = None,
    hops: int = 2,
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
    limit: int = 10,
) -> Walk:
    """`StoredGraph(store).recall(…)`."""
    return StoredGraph(store).recall(
        query, hops=hops, valid_at=valid_at, known_at=known_at, user_id=user_id, limit=limit
    )


class _Reading:
    """One question to the store, and what had to be left out of its answer."""

    def __init__(
        self,
        facts: FactReader,
        valid_at: datetime | None,
        known_at: datetime | None,
        user_id: str | None,
        fan_out: int,
        entities: int = MOST_ENTITIES,
    ) -> None:
        self._facts = facts
        self._user_id = user_id
        self._view: Viewpoint = facts.viewpoint(valid_at, known_at, user_id)
        self._fan_out = fan_out
        self._left = self._most = entities
        self.cut: dict[str, None] = {}

    def node(self, name: str) -> str:
        return self._view.names.canonical(normalised(name))

    def widened(self, query: str) -> str:
        return self._view.names.widened(query)

    def edges(self, node: str, direction: Direction = "both") -> list[Edge]:
        if not self._left:
            self.cut[f"only the first {self._most} nodes were read"] = None
            return []
        self._left -= 1
        found: dict[str, Sight] = {}
        if direction != "in":
            sights, left_out = self._facts.facts_from(node, self._user_id, self._view, MOST_RECORDS)
            found.update((sight.assertion.id, sight) for sight in sights)
            for what in left_out:
                whose = f"{node!r} is the subject of more than {MOST_RECORDS} records"
                self.cut[f"{whose}: {what}"] = None
        if direction != "out":
            most = 2 * self._fan_out
            sights, more = self._facts.facts_to(node, self._user_id, self._view, most)
            found.update((sight.assertion.id, sight) for sight in sights)
            if more:
                whose = f"{node!r} is the object of more than {most} records"
                self.cut[f"{whose}: only the newest were read"] = None
        newest = sorted(found.values(), key=lambda sight: sight.order)
        if len(newest) > self._fan_out:
            what = f"{node!r} has {len(newest)} edges or more"
            self.cut[f"{what}: only the newest {self._fan_out} were followed"] = None
        return [self._edge(sight.fact()) for sight in newest[: self._fan_out]]

    def _edge(self, fact: Fact) -> Edge:
        return Edge(self.node(fact.subject), fact.predicate, self.node(fact.object), fact)


def _walked(reading: _Reading, seeds: list[str], hops: int, limit: int) -> Walk:
    require_count(hops, "hops", least=1, most=MOST_HOPS)
    limit = bounded(limit)
    paths, cut = walk(seeds, hops, reading.edges)
    if cut:
        reading.cut[f"only the first {MOST_PATHS} paths were looked at"] = None
    paths.sort(key=shortest_first)
    if len(paths) > limit:
        reading.cut[f"only {limit} of {len(paths)} paths are shown"] = None
    return Walk(tuple(paths[:limit]), tuple(reading.cut))


def _require_fan_out(fan_out: int) -> None:
    require_count(fan_out, "fan_out", least=1, most=MOST_FAN_OUT)

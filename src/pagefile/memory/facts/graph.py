"""Facts as a graph: subjects and objects are its nodes, predicates its edges.

`FactGraph` holds a handful of facts in memory. `fact_graph.StoredGraph` walks
over those in a store and reads only what it touches. Both walk the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.facts.fact import Fact, normalised, require_moment, require_text
from pagefile.memory.facts.reader import FactReader
from pagefile.memory.facts.view import Sight, Viewpoint
from pagefile.store import clock
from pagefile.store.arguments import bounded, require_callable, require_count, require_type
from pagefile.store.codec import sort_key

Direction = Literal["both", "out", "in"]
Way = Literal["out", "in"]

MOST_PATHS = 10_000
MOST_HOPS = 8
_WORD = re.compile(r"[^\W_]{3,}")


class Edge(msgspec.Struct, frozen=True):
    """A fact as an edge between two nodes, which go by their canonical names."""

    subject: str
    predicate: str
    object: str
    fact: Fact

    def other(self, node: str) -> str:
        """The node at the other end."""
        return self.object if node == self.subject else self.subject


class Path(msgspec.Struct, frozen=True):
    """Edges one after the other; "in" is one that is walked against its direction."""

    edges: tuple[Edge, ...]
    directions: tuple[Way, ...] = ()

    def __post_init__(self) -> None:
        if not self.edges:
            raise Invalid("edges", "are none", "give at least one edge")
        if self.directions and len(self.directions) != len(self.edges):
            count = len(self.directions)
            raise Invalid("directions", f"are {count} for {len(self.edges)} edges", "give as many")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it starts, and every node on the way."""
        found: list[str] = []
        for edge, way in self._steps():
            ends = (edge.subject, edge.object)
            found += ends[:: 1 if way == "out" else -1][1 if found else 0 :]
        return tuple(found)

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(edge.fact for edge in self.edges)

    def render(self) -> str:
        """The path on one line: `ann —works_at→ acme ←works_at— bob`."""
        text = self.nodes[0]
        for (edge, way), node in zip(self._steps(), self.nodes[1:], strict=True):
            text += f" —{edge.predicate}→ " if way == "out" else f" ←{edge.predicate}— "
            text += node
        return text

    def _steps(self) -> Iterator[tuple[Edge, Way]]:
        forward: list[Way] = ["out"] * len(self.edges)
        return zip(self.edges, self.directions or forward, strict=True)


class FactGraph:
    """A graph over facts that are at hand; their windows are taken as they stand.

    Nodes are subjects and objects, whatever their case and spacing; `aliases`
    keeps every spelling. `merge` makes two names one.
    """

    def __init__(self) -> None:
        self._stands_for: dict[str, str] = {}
        self._spellings: dict[str, set[str]] = {}
        self._edges: dict[str, dict[str, Edge]] = {}

    @classmethod
    def from_facts(cls, facts: Iterable[Fact]) -> FactGraph:
        """The graph of these facts."""
        if not isinstance(facts, Iterable):
            raise Invalid("facts", f"{shown(facts)} is no list", "give a list of facts")
        graph = cls()
        for fact in facts:
            graph.add_fact(fact)
        return graph

    def add_fact(self, fact: Fact) -> Edge:
        """Put a fact in; one with the same id and window takes its place."""
        require_type("fact", fact, Fact)
        ends = [self._node(text) for text in (fact.subject, fact.object)]
        edge = Edge(ends[0], fact.predicate, ends[1], fact)
        for end in ends:
            self._edges.setdefault(end, {})[f"{fact.id} {fact.valid_from}"] = edge
        return edge

    def merge(self, a: str, b: str) -> str:
        """Make two names one, which goes by what `a` stands for; that name."""
        for field, name in (("a", a), ("b", b)):
            if type(name) is not str or not normalised(name):
                raise Invalid(field, shown(name), "give a name")
        kept, gone = self.canonical(a), self.canonical(b)
        if kept == gone:
            return kept
        self._stands_for[gone] = kept
        self._spellings.setdefault(kept, set()).update(self._spellings.pop(gone, {b}))
        for edge in self._edges.pop(gone, {}).values():
            ends = [kept if end == gone else end for end in (edge.subject, edge.object)]
            moved = Edge(ends[0], edge.predicate, ends[1], edge.fact)
            for end in ends:
                self._edges.setdefault(end, {})[f"{edge.fact.id} {edge.fact.valid_from}"] = moved
        return kept

    def canonical(self, name: str) -> str:
        """The node that a name stands for."""
        if type(name) is not str:
            raise Invalid("name", f"is of type {type(name).__name__}", "give a plain str")
        node = normalised(name)
        while node in self._stands_for:
            node = self._stands_for[node]
        return node

    @property
    def entities(self) -> list[str]:
        """Every node, in order."""
        return sorted(self._edges)

    @property
    def aliases(self) -> dict[str, list[str]]:
        """Every node with the spellings it was met in."""
        return {node: sorted(spellings) for node, spellings in sorted(self._spellings.items())}

    def neighbors(
        self, entity: str, *, direction: Direction = "both", valid_at: datetime | None = None
    ) -> list[Edge]:
        """Edges at a node whose fact holds at a moment, None being now; recorded last first."""
        require_direction(direction)
        return self._at(self.canonical(entity), direction, _moment(valid_at))

    def seed_entities(self, query: str) -> list[str]:
        """Nodes that share a word of three letters or more with the query, in order."""
        wanted = long_words(query)
        return [node for node in self.entities if wanted & long_words(node)]

    def traverse(
        self,
        seeds: Iterable[str],
        *,
        hops: int = 2,
        valid_at: datetime | None = None,
        limit: int = 50,
    ) -> list[Path]:
        """Paths from these nodes over facts that hold at a moment, None being now.

        In both directions, never twice through one node; each beginning of a
        path is a path. Shortest first, then those with the newest fact. None
        for less than one hop, and no more than 10,000 are looked at.
        """
        limit = bounded(limit)
        moment = _moment(valid_at)
        if isinstance(seeds, str) or not isinstance(seeds, Iterable):
            raise Invalid("seeds", f"{shown(seeds)} is no list of names", "give a list")
        nodes = [self.canonical(seed) for seed in seeds]
        if require_count(hops, "hops", least=-MOST_PATHS, most=MOST_HOPS) < 1:
            return []
        paths, _ = walk(nodes, hops, lambda node: self._at(node, "both", moment))
        return sorted(paths, key=shortest_first)[:limit]

    def _node(self, text: str) -> str:
        node = self.canonical(text)
        self._spellings.setdefault(node, set()).add(text)
        return node

    def _at(self, node: str, direction: Direction, moment: datetime) -> list[Edge]:
        edges = self._edges.get(node, {}).values()
        found = [
            edge for edge in edges if edge.fact.holds_at(moment) and is_at(edge, node, direction)
        ]
        return sorted(found, key=newest_edge_first)


def walk(
    seeds: Sequence[str], hops: int, edges_of: Callable[[str], Sequence[Edge]]
) -> tuple[list[Path], bool]:
    """Every simple path from the seeds up to a length, and whether `MOST_PATHS` cut it short.

    Level by level, so that what is cut off is longer than what is there.
    """
    found: list[Path] = []
    ends: list[tuple[Path | None, str]] = [(None, seed) for seed in dict.fromkeys(seeds)]
    known: dict[str, Sequence[Edge]] = {}
    for _ in range(hops):
        longer: list[tuple[Path | None, str]] = []
        for path, node in ends:
            if node not in known:
                known[node] = edges_of(node)
            met = (node,) if path is None else path.nodes
            for edge in known[node]:
                after = edge.other(node)
                if after in met:
                    continue
                if len(found) >= MOST_PATHS:
                    return found, True
                found.append(_extended(path, edge, node))
                longer.append((found[-1], after))
        ends = longer
    return found, False


def is_at(edge: Edge, node: str, direction: Direction) -> bool:
    """Whether the edge leaves the node, or reaches it, as asked."""
    return (direction != "in" and edge.subject == node) or (
        direction != "out" and edge.object == node
    )


def require_direction(direction: object) -> None:
    """Refuse what is no direction."""
    if direction not in get_args(Direction):
        raise Invalid("direction", shown(direction), f"use one of {', '.join(get_args(Direction))}")


def long_words(text: object) -> set[str]:
    """Words of three letters or more."""
    if type(text) is not str:
        raise Invalid("query", f"is of type {type(text).__name__}", "give a plain str")
    return set(_WORD.findall(normalised(text)))


def newest_edge_first(edge: Edge) -> tuple[int, str]:
    """Recorded last first, then by id."""
    return -_recorded(edge.fact), edge.fact.id


def shortest_first(path: Path) -> tuple[int, int, tuple[str, ...]]:
    """Short paths first, then those with the newest fact, then by id."""
    newest = max(_recorded(fact) for fact in path.facts)
    return len(path.edges), -newest, tuple(fact.id for fact in path.facts)


def _extended(path: Path | None, edge: Edge, node: str) -> Path:
    way: Way = "out" if edge.subject == node else "in"
    if path is None:
        return Path((edge,), (way,))
    return Path((*path.edges, edge), (*path.directions, way))


def _recorded(fact: Fact) -> int:
    return 0 if fact.recorded_at is None else sort_key.microseconds(fact.recorded_at)


def _moment(valid_at: datetime | None) -> datetime:
    return clock.now() if valid_at is None else require_moment("valid_at", valid_at)


# A graph over the facts in a store, read node by node.


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

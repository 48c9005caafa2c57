"""Facts as a graph: subjects and objects are its nodes, predicates its edges.

`FactGraph` holds a handful of facts in memory. `fact_graph.StoredGraph` walks
over those in a store and reads only what it touches. Both walk the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.facts.fact import Fact, normalised, require_moment
from pagefile.store import clock
from pagefile.store.arguments import bounded, require_count, require_type
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

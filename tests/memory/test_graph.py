"""The graph over facts: the same walk in memory and in a store, bounded, and honest about it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pagefile
from pagefile import Invalid, Store
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.graph import Edge, FactGraph, Path, StoredGraph, recall_graph, walk
from pagefile.memory.facts.store import FactStore

START = datetime(2020, 1, 1, tzinfo=UTC)


def told(*parts: str, **fields: Any) -> Fact:
    """A fact from three words, true since 2020."""
    subject, predicate, object_ = parts
    fields = {"valid_from": START, **fields}
    return Fact(subject=subject, predicate=predicate, object=object_, **fields)


def world() -> list[Fact]:
    """Ann works with Bob, who knows Carl; Ann lived in Oslo."""
    return [
        told("Ann", "works_at", "Acme", recorded_at=START),
        told("Bob", "works_at", "ACME", recorded_at=START + timedelta(days=1)),
        told("bob", "knows", "Carl", recorded_at=START + timedelta(days=2)),
        told(
            "Ann",
            "lives_in",
            "Oslo",
            valid_until=START + timedelta(days=9),
            recorded_at=START + timedelta(days=3),
        ),
    ]


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def store(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[Store]:
    with pagefile.open(url_on(request.param), durability=None) as pf:
        yield pf.store
        assert (pf.check().problems, pf.verify().problems) == ((), ())


@pytest.fixture
def facts(store: Store) -> FactStore:
    return FactStore(store)


@pytest.fixture
def graph(facts: FactStore) -> StoredGraph:
    facts.append_many(world())
    return StoredGraph(facts)


def rendered(paths: Any) -> list[str]:
    return [path.render() for path in paths]


# In memory


def test_nodes_are_names_whatever_their_case_and_spacing() -> None:
    graph = FactGraph.from_facts([told("Ann  B", "knows", "BOB"), told("ann b", "likes", "bob")])

    assert graph.entities == ["ann b", "bob"]
    assert graph.aliases == {"ann b": ["Ann  B", "ann b"], "bob": ["BOB", "bob"]}


def test_neighbors_come_newest_first_and_in_the_direction_asked() -> None:
    graph = FactGraph.from_facts(world())

    both = graph.neighbors("BOB")
    assert [(edge.subject, edge.predicate, edge.object) for edge in both] == [
        ("bob", "knows", "carl"),
        ("bob", "works_at", "acme"),
    ]
    assert [edge.subject for edge in graph.neighbors("acme", direction="in")] == ["bob", "ann"]
    assert graph.neighbors("acme", direction="out") == []
    assert graph.neighbors("nobody") == []


def test_a_loop_is_one_neighbor_and_no_path() -> None:
    graph = FactGraph.from_facts([told("Ann", "knows", "ANN")])

    assert len(graph.neighbors("ann")) == 1
    assert graph.traverse(["ann"]) == []


def test_a_walk_finds_every_beginning_shortest_first_then_newest() -> None:
    graph = FactGraph.from_facts(world())

    assert rendered(graph.traverse(["ann"], hops=3)) == [
        "ann —works_at→ acme",
        "ann —works_at→ acme ←works_at— bob",
        "ann —works_at→ acme ←works_at— bob —knows→ carl",
    ]
    assert len(graph.traverse(["ann"], hops=3, limit=2)) == 2
    assert graph.traverse(["ann"], hops=0) == graph.traverse(["ann"], hops=-3) == []
    assert rendered(graph.traverse(["Ann"], hops=1, valid_at=START)) == [
        "ann —lives_in→ oslo",
        "ann —works_at→ acme",
    ]


def test_merged_names_are_one_node() -> None:
    graph = FactGraph.from_facts([told("Bob", "knows", "Ann"), told("Robert", "likes", "tea")])

    assert graph.merge("Robert", "bob") == graph.merge("bob", "Robert") == "robert"
    assert graph.entities == ["ann", "robert", "tea"]
    assert len(graph.neighbors("BOB")) == 2
    assert rendered(graph.traverse(["ann"])) == [
        "ann ←knows— robert",
        "ann ←knows— robert —likes→ tea",
    ]
    assert graph.aliases["robert"] == ["Bob", "Robert"]
    graph.add_fact(told("Bob", "owns", "Rex"))
    assert len(graph.neighbors("robert")) == 3
    assert graph.merge("new", "newer") == "new"


def test_a_question_names_its_seeds() -> None:
    graph = FactGraph.from_facts(world())

    assert graph.seed_entities("does ANN know Carl or Al?") == ["ann", "carl"]
    assert graph.seed_entities("a b") == []


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.canonical(5),
        lambda g: g.neighbors(5),
        lambda g: g.neighbors(None),
        lambda g: g.traverse(5),
        lambda g: g.traverse([5]),
        lambda g: g.traverse("ann"),
        lambda g: g.from_facts(5),
        lambda g: g.from_facts([5]),
        lambda g: g.seed_entities(5),
    ],
)
def test_a_graph_at_hand_refuses_what_is_no_name(call: Callable[[Any], Any]) -> None:
    with pytest.raises(Invalid):
        call(FactGraph.from_facts(world()))


def test_a_path_knows_its_nodes_and_facts() -> None:
    one, two = world()[1:3]
    forth = Edge("bob", "knows", "carl", two)
    back = Edge("bob", "works_at", "acme", one)
    path = Path((back, forth), ("in", "out"))

    assert path.nodes == ("acme", "bob", "carl")
    assert path.facts == (one, two)
    assert Path((forth,)).render() == "bob —knows→ carl"
    with pytest.raises(ValueError, match="directions"):
        Path((forth, back), ("in",))


# In a store


def test_neighbors_in_a_store_are_read_through_keys(graph: StoredGraph) -> None:
    found = graph.neighbors("BOB")

    assert [edge.object for edge in found.edges] == ["carl", "acme"]
    assert found.cut == ()
    assert [e.subject for e in graph.neighbors("acme", direction="in").edges] == ["bob", "ann"]
    assert graph.neighbors("acme", direction="out").edges == ()
    assert graph.neighbors("acme", user_id="ann").edges == ()


def test_paths_in_a_store_are_those_in_memory(graph: StoredGraph) -> None:
    found = graph.paths("Ann", hops=3)

    assert rendered(found.paths) == rendered(
        FactGraph.from_facts(world()).traverse(["ann"], hops=3)
    )
    assert found.cut == ()
    assert rendered(graph.paths("ann", hops=1, valid_at=START).paths) == [
        "ann —lives_in→ oslo",
        "ann —works_at→ acme",
    ]


def test_a_walk_goes_over_what_was_known_then(facts: FactStore, graph: StoredGraph) -> None:
    [fact] = facts.query(subject="bob", predicate="works_at")
    facts.retract(fact.id, reason="he left")
    early = START + timedelta(days=5)

    assert rendered(graph.paths("ann").paths) == ["ann —works_at→ acme"]
    assert len(graph.paths("ann", known_at=early, valid_at=early).paths) == 3
    assert len(graph.paths("ann", known_at=START, valid_at=early).paths) == 1


def test_a_superseded_edge_is_not_walked(facts: FactStore, graph: StoredGraph) -> None:
    facts.append(told("Ann", "works_at", "Initech", valid_from=START + timedelta(days=30)))

    assert rendered(graph.paths("ann").paths) == ["ann —works_at→ initech"]
    assert [edge.subject for edge in graph.neighbors("acme").edges] == ["bob"]


def test_aliases_join_nodes(facts: FactStore, graph: StoredGraph) -> None:
    facts.append(told("Robert", "likes", "tea"))
    facts.alias("Bob", "Robert")

    assert sorted(rendered(graph.paths("tea", hops=2).paths)[1:]) == [
        "tea ←likes— robert —knows→ carl",
        "tea ←likes— robert —works_at→ acme",
    ]


def test_memory_Q15_none_means_now_in_every_way_to_ask(
    facts: FactStore, graph: StoredGraph
) -> None:
    past = START + timedelta(days=1)
    memory = FactGraph.from_facts(facts.query(history=True, limit=100))
    for at in (None, past):
        ways = [
            {fact.id for fact in facts.query(subject="ann", valid_at=at)},
            {fact.id for fact in facts.recall_text("ann", valid_at=at)},
            {edge.fact.id for edge in memory.neighbors("ann", valid_at=at)},
            {edge.fact.id for edge in graph.neighbors("ann", valid_at=at).edges},
        ]
        assert [len(way) for way in ways] == [1 if at is None else 2] * 4
        assert all(way == ways[0] for way in ways)


def test_memory_Q15_old_facts_are_not_silently_left_out(facts: FactStore) -> None:
    facts.append(told("Ann", "knows", "Bob"))
    for at in range(0, 2_400, 1_200):
        facts.append_many([told(f"s{at + n}", "knows", f"o{at + n}") for n in range(1_200)])

    assert rendered(recall_graph(facts, "whom does Ann know?").paths) == ["ann —knows→ bob"]


def test_a_question_starts_from_what_it_names(facts: FactStore, graph: StoredGraph) -> None:
    found = recall_graph(facts, "Where does Bob work?", hops=1)

    assert rendered(found.paths) == ["bob —knows→ carl", "bob —works_at→ acme"]
    assert recall_graph(facts, "Bob", user_id="ann").paths == ()
    assert graph.recall("zzz").paths == ()


# Bounds


def test_a_bound_that_cuts_the_answer_says_so(
    facts: FactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts.append_many([told("hub", "knows", f"p{n:03}") for n in range(120)])
    facts.append_many([told(f"q{n:03}", "knows", "hub") for n in range(120)])
    graph = StoredGraph(facts)

    out = graph.neighbors("hub", direction="out", fan_out=10)
    assert (len(out.edges), out.cut) == (
        10,
        ("'hub' has 120 edges or more: only the newest 10 were followed",),
    )
    into = graph.neighbors("hub", direction="in", fan_out=50)
    assert len(into.edges) == 50
    assert into.cut[0] == "'hub' is the object of more than 100 records: only the newest were read"
    assert graph.neighbors("hub", fan_out=300).cut == ()
    walked = graph.paths("p001", hops=2, limit=5, fan_out=300, entities=1)
    assert walked.cut == ("only the first 1 nodes were read",)
    walked = graph.paths("p001", hops=2, limit=5, fan_out=300)
    assert (len(walked.paths), walked.cut) == (5, ("only 5 of 240 paths are shown",))


def test_a_node_with_more_records_than_are_read_shows_the_newest_of_them(
    facts: FactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefile.memory.facts.graph.MOST_RECORDS", 100)
    known = facts.append_many([told("hub", "knows", f"p{n:03}") for n in range(120)])
    for name in known[100:118]:
        facts.retract(name)
    facts.append(told("hub", "allergic_to", "nuts"))
    facts.append(told("hub", "watches", "birds"))
    found = StoredGraph(facts).neighbors("hub", direction="out", fan_out=200)
    newest = [f"p{n:03}" for n in (*range(38, 100), 118, 119)]

    assert sorted(edge.object for edge in found.edges) == ["birds", "nuts", *newest]
    assert found.cut == (
        "'hub' is the subject of more than 100 records: only the newest of 'knows' were read",
    )
    few = StoredGraph(facts).neighbors("hub", direction="out", fan_out=3)
    assert (len(few.edges), len(few.cut)) == (3, 2)


def test_what_holds_alone_is_right_however_many_records_it_has(
    facts: FactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefile.memory.facts.graph.MOST_RECORDS", 100)
    days = [*range(100, 220), *range(100)]
    facts.append_many(
        [told("job", "state", f"s{n}", valid_from=START + timedelta(days=n)) for n in days]
    )
    found = StoredGraph(facts).neighbors("job")

    assert ([edge.object for edge in found.edges], found.cut) == (["s219"], ())


def test_predicates_that_are_too_many_to_read_are_said_to_be(
    facts: FactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefile.memory.facts.graph.MOST_RECORDS", 10)
    facts.append_many([told("hub", f"p{n:03}", "it") for n in range(100)])
    found = StoredGraph(facts).neighbors("hub", direction="out")

    assert [edge.predicate for edge in found.edges] == [f"p{n:03}" for n in range(30)]
    assert found.cut == (
        "'hub' is the subject of more than 10 records: not all of its predicates were read",
    )


def test_a_leaf_is_read_without_all_that_its_hub_knows(
    facts: FactStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts.append_many([told("hub", "knows", f"p{n:03}") for n in range(500)])
    facts.retract(facts.append(told("hub", "owns", "p007")))
    read: list[int] = []
    find: Callable[..., Any] = store.find

    def counted(*args: Any, **kwargs: Any) -> Any:
        page = find(*args, **kwargs)
        read.append(len(page.items))
        return page

    monkeypatch.setattr(store, "find", counted)

    assert [e.predicate for e in StoredGraph(facts).neighbors("p007").edges] == ["knows"]
    assert [fact.predicate for fact in facts.query(object_="P007")] == ["knows"]
    assert [fact.predicate for fact in facts.query(object_="p007", status="retracted")] == ["owns"]
    assert sum(read) <= 12


def test_a_dense_graph_stops_at_the_bound_on_paths(facts: FactStore) -> None:
    names = [f"n{n}" for n in range(12)]
    facts.append_many([told(a, "knows", b) for a, b in itertools.combinations(names, 2)])
    found = StoredGraph(facts).paths("n0", hops=8)

    assert len(found.paths) == 50
    assert "only the first 10000 paths were looked at" in found.cut
    assert all(len(path.edges) == 1 for path in found.paths[:11])


def test_a_walk_reads_what_it_touches(
    facts: FactStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts.append_many([told(f"s{n}", "knows", f"s{n + 1}") for n in range(500)])
    read: list[int] = []
    find: Callable[..., Any] = store.find

    def counted(*args: Any, **kwargs: Any) -> Any:
        page = find(*args, **kwargs)
        read.append(len(page.items))
        return page

    monkeypatch.setattr(store, "find", counted)

    assert len(StoredGraph(facts).paths("s100", hops=3).paths) == 6
    assert sum(read) <= 5 * 3


@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.neighbors(""),
        lambda g: g.neighbors("a", direction="up"),
        lambda g: g.neighbors("a", fan_out=0),
        lambda g: g.neighbors("a", fan_out=1_001),
        lambda g: g.neighbors("a", valid_at=datetime(2020, 1, 1)),
        lambda g: g.neighbors("a", user_id=""),
        lambda g: g.paths(None),
        lambda g: g.paths("a", hops=0),
        lambda g: g.paths("a", hops=9),
        lambda g: g.paths("a", limit=-1),
        lambda g: g.paths("a", entities=0),
        lambda g: g.recall(7),
        lambda g: FactGraph().neighbors("a", direction="up"),  # type: ignore[arg-type]
        lambda g: FactGraph().neighbors("a", valid_at=datetime(2020, 1, 1)),
        lambda g: FactGraph().traverse(["a"], hops=99),
        lambda g: FactGraph().traverse(["a"], limit=-1),
        lambda g: FactGraph().merge("a", " "),
        lambda g: FactGraph().add_fact("fact"),  # type: ignore[arg-type]
        lambda g: FactGraph().seed_entities(7),  # type: ignore[arg-type]
        lambda g: Path(()),
    ],
)
def test_what_breaks_a_rule_is_refused(call: Callable[[StoredGraph], Any]) -> None:
    with FactStore() as facts, pytest.raises(Invalid):
        call(StoredGraph(facts))


# One walk


edges = st.tuples(
    st.sampled_from("abcde"), st.sampled_from(["knows", "works_at"]), st.sampled_from("abcde")
)
_users = (f"user {n}" for n in itertools.count())


@pytest.fixture(scope="module")
def shared() -> Iterator[FactStore]:
    with FactStore() as facts:
        yield facts


@given(st.lists(edges, min_size=1, max_size=12), st.integers(1, 4))
@settings(max_examples=60)
def test_a_walk_in_a_store_is_the_walk_in_memory(
    shared: FactStore, parts: list[tuple[str, str, str]], hops: int
) -> None:
    user = next(_users)
    shared.append_many([told(*three, user_id=user) for three in parts])
    held = shared.query(user_id=user, limit=1_000)
    memory = FactGraph.from_facts(held)
    for start in "ae":
        found = StoredGraph(shared).paths(start, hops=hops, user_id=user, limit=10_000)

        assert found.cut == ()
        assert list(found.paths) == memory.traverse([start], hops=hops, limit=10_000)
        assert {path.nodes for path in found.paths} == simple_paths(held, start, hops)


def simple_paths(held: list[Fact], start: str, hops: int) -> set[tuple[str, ...]]:
    """Every order of other nodes in which each follows on the one before."""
    near = {(f.subject, f.object) for f in held} | {(f.object, f.subject) for f in held}
    others = [name for name in "abcde" if name != start]
    return {
        (start, *nodes)
        for length in range(1, hops + 1)
        for nodes in itertools.permutations(others, length)
        if all(pair in near for pair in itertools.pairwise((start, *nodes)))
    }


def test_a_walk_from_nowhere_finds_nothing() -> None:
    assert walk([], 3, lambda node: []) == ([], False)

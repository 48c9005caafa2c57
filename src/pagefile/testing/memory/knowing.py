"""Facts as a memory finds them: under every name, and those of the past when they are asked for."""

from __future__ import annotations

from pagefile.memory.memory import Memory
from pagefile.testing.memory.ground import MemoryFixtures, fact


class KnowingContract(MemoryFixtures):
    """What words find of facts."""

    def test_a_fact_is_found_under_every_name_of_whom_it_is_about(self, memory: Memory) -> None:
        known = memory.facts.append(fact("Acme", subject="Robert Stone", predicate="works_at"))
        memory.facts.append(fact("Initech", subject="Carl", predicate="works_at"))
        memory.facts.alias("Bob", "Robert Stone", user_id="ann")
        memory.facts.alias("The Firm", "Acme", user_id="ann")

        for asked in ("Bob", "where is bob?", "Who is at the firm?", "Robert Stone"):
            assert [one.id for one in memory.recall_facts(asked, user_id="ann")] == [known]
            assert [one.id for one in memory.search(asked, user_id="ann")] == [known]
            text = memory.facts.recall_text(asked, user_id="ann")
            assert [one.id for one in text] == [known]
            paths = memory.graph.recall(asked, user_id="ann").paths
            assert [one.id for path in paths for one in path.facts] == [known]
        memory.facts.unalias("Bob", user_id="ann")
        assert memory.recall_facts("Bob", user_id="ann") == []
        assert memory.recall_facts("Bob", user_id="bob") == []

    def test_a_name_counts_from_when_it_was_said(self, memory: Memory) -> None:
        memory.facts.append(fact("Acme", subject="Robert", predicate="works_at"))
        [before] = memory.facts.query(user_id="ann")
        memory.facts.alias("Bob", "Robert", user_id="ann")

        assert memory.recall_facts("Bob", known_at=before.recorded_at, user_id="ann") == []
        assert memory.facts.recall_text("Bob", known_at=before.recorded_at, user_id="ann") == []
        assert len(memory.recall_facts("Bob", user_id="ann")) == 1

    def test_a_graph_is_entered_through_the_index(self, memory: Memory) -> None:
        memory.facts.append_many(
            [fact(f"thing{n}", subject=f"node{n}", predicate="knows") for n in range(300)]
        )
        found = memory.graph.recall("what does node77 know?", user_id="ann")

        assert [path.render() for path in found.paths] == ["node77 —knows→ thing77"]
        assert memory.graph.recall("what does node77 know?", user_id="bob").paths == ()
        assert memory.graph.recall("", user_id="ann").paths == ()

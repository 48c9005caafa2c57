"""Facts as a memory finds them: under every name, and those of the past when they are asked for."""

from __future__ import annotations

from pagefile.memory.memory import Memory
from pagefile.testing.memory.ground import HOUR, START, MemoryFixtures, fact


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

    def test_another_name_that_could_be_a_month_asks_for_no_time(self, memory: Memory) -> None:
        june = START.replace(month=6)
        memory.facts.append(fact("Rome", subject="Ann", predicate="lives_in"))
        memory.facts.append(fact("chess", subject="Dan", predicate="plays", valid_from=june))
        memory.facts.alias("Ann", "June Carter", user_id="ann")

        found = memory.recall_facts("Where does Ann live?", user_id="ann")
        assert [one.object for one in found] == ["Rome"]

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

    def test_what_was_replaced_wherever_it_would_hold_is_found_as_superseded(
        self, memory: Memory
    ) -> None:
        for city, since in (("Tokyo", 0), ("Paris", 0), ("Oslo", 2)):
            memory.facts.append(fact(city, subject="Ann", valid_from=START + since * HOUR))

        for asked in ("Ann lives", ""):
            found = memory.search(asked, user_id="ann", kinds=["fact"], status="superseded")
            assert sorted(one.text.split()[-1] for one in found) == ["Paris", "Tokyo"]
        held = memory.search("Ann lives", user_id="ann", kinds=["fact"], status=None)
        assert sorted(one.text.split()[-1] for one in held) == ["Oslo", "Paris"]

    def test_words_find_the_same_of_many_as_of_few(self, memory: Memory) -> None:
        likes = {"subject": "user", "predicate": "likes"}
        tea = memory.facts.append(fact("tea", **likes, sources=["one"]))
        gone = memory.facts.append(fact("jam", **likes))
        memory.facts.append(fact("tea", subject="Bob", predicate="likes"))
        memory.facts.retract(gone, user_id="ann")
        memory.facts.append(fact("TEA", **likes, sources=["two"]))
        few = memory.recall_facts("what tea or jam does the user like", limit=2, user_id="ann")
        memory.facts.append_many([fact(f"thing{n}", **likes) for n in range(1_500)])
        many = memory.recall_facts("what tea or jam does the user like", limit=2, user_id="ann")

        assert {one.id for one in many} == {one.id for one in few}
        [seen] = [one for one in many if one.id == tea]
        assert (seen.sources, len(seen.asserted)) == (("one", "two"), 2)
        assert memory.search("jam", user_id="ann", kinds=["fact"], status=None) == []

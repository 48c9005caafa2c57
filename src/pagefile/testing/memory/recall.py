"""Recall: what is asked for is found, by words and by vectors, and every hit says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pagefile.errors import Invalid, Unavailable, Unsupported
from pagefile.handle import Pagefile
from pagefile.memory.items.change import Scope
from pagefile.memory.items.item import Status as ItemStatus
from pagefile.memory.memory import Memory
from pagefile.store.batch import Batch, Delete
from pagefile.testing.backend import Backend
from pagefile.testing.memory.fixtures import (
    HOUR,
    START,
    Clock,
    HashedWords,
    MemoryFixtures,
    episode,
    fact,
    inputs,
    item_request,
    objects,
    outcome,
    say,
)

_NAMES = """apron basil cello dune ember fjord garlic harbour igloo jigsaw kayak ladder mango
nickel orchid parrot quilt raisin saddle teapot umbrella violin walnut xylophone yacht zebra
anchor button candle donkey"""
_THINGS = _NAMES.split()
_DOINGS = ["bought", "painted"]
#: Sixty things that were said, each about one thing, and the question that it answers.
SAID = [f"Yesterday I {doing} a {thing} at the market" for doing in _DOINGS for thing in _THINGS]
ASKED = [
    f"What did they tell me about the {thing} that was {doing}?"
    for doing in _DOINGS
    for thing in _THINGS
]


class ByLength:
    """A reranker for which a short text answers best."""

    name = "by-length"

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [-float(len(text)) for text in texts]


_FILTERS: list[tuple[ItemStatus | None, Scope | None]] = [
    ("active", None),
    ("active", "user"),
    ("active", "global"),
    ("superseded", None),
    (None, None),
    ("rejected", None),
]


class RecallingContract(MemoryFixtures):
    """Questions, and what is given back for them."""

    def test_memory_Q2_what_goes_wrong_inside_is_not_taken_for_nothing_found(
        self, handle: Pagefile
    ) -> None:
        class Broken(HashedWords):
            def embed(self, text: str) -> list[float]:
                raise TypeError("a bug in the embedder")

        say(Memory(handle, embedder=HashedWords()), "hello world")
        memory = Memory(handle, embedder=Broken())

        with pytest.raises(Unavailable, match="a bug in the embedder"):
            memory.recall("hello", user_id="ann")
        with pytest.raises(Unavailable, match="a bug in the embedder"):
            say(memory, "hello again")
        assert [one.input for one in memory.recall("", user_id="ann")] == ["hello world"]

    def test_a_question_about_nothing_but_a_time_is_answered_by_the_time(
        self, handle: Pagefile
    ) -> None:
        for embedder in (None, HashedWords()):
            memory = Memory(handle, embedder=embedder, clock=Clock())
            memory.reindex()
            for days in (0, 1, 8, 40):
                moment = START - timedelta(days=days)
                memory.remember(
                    episode(f"talk of day {days}", session=f"s{days}", at=moment, id=f"d{days}")
                )
            found = memory.recall("what did I do yesterday?", user_id="ann")
            assert found[0].id == "d1"

    def test_time_words_are_read_against_the_clock_and_not_the_newest_memory(
        self, handle: Pagefile
    ) -> None:
        clock = Clock()
        memory = Memory(handle, embedder=None, clock=clock)
        for days, text in ((41, "I baked bread"), (40, "I painted"), (1, "I swam"), (0, "I ran")):
            moment = START - timedelta(days=days)
            memory.remember(episode(text, session=f"s{days}", at=moment))
        memory.facts.append(fact("dentist", valid_from=START + timedelta(days=90)))
        asked = "What did I do yesterday?"
        assert inputs(memory.recall(asked, user_id="ann")) == ["I swam", "I ran"]
        clock.passes(days=60)

        assert memory.recall(asked, user_id="ann") == []
        assert inputs(memory.recall("what was 60 days ago?", limit=1, user_id="ann")) == ["I ran"]
        memory.remember(episode("the fair opens", session="f", at=datetime(2027, 5, 2, tzinfo=UTC)))
        assert inputs(memory.recall("what is in May?", limit=1, user_id="ann")) == [
            "the fair opens"
        ]

    def test_memory_Q3_a_fact_that_was_replaced_is_not_told_any_more(self, memory: Memory) -> None:
        memory.facts.append(fact("Oslo", valid_from=START - timedelta(days=900)))
        memory.facts.append(fact("Kyoto", valid_from=START - timedelta(days=400)))
        then = START - timedelta(days=500)

        assert objects(memory.recall_facts("where does the user live", user_id="ann")) == ["Kyoto"]
        assert objects(memory.recall_facts("", user_id="ann")) == ["Kyoto"]
        assert objects(memory.recall_facts("user lives", valid_at=then, user_id="ann")) == ["Oslo"]

    def test_memory_Q4_a_small_user_beside_a_noisy_one_always_gets_theirs(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=HashedWords())
        memory.remember_many([episode(f"tea talk {n}", "noisy", id=f"e{n}") for n in range(400)])
        say(memory, *(f"tea with bob {n}" for n in range(5)), user="bob")

        assert [len(memory.recall("tea talk", limit=5, user_id="bob")) for _ in range(10)] == (
            [5] * 10
        )

    def test_memory_Q5_the_one_memory_of_a_user_is_found_among_everybodys(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=HashedWords())
        for n in range(40):
            say(memory, f"tea number {n}", user=f"neighbour{n % 3}")
        say(memory, "bob drinks tea", user="bob")

        assert [inputs(memory.recall(f"tea number {n}", user_id="bob")) for n in range(40)] == [
            ["bob drinks tea"]
        ] * 40

    def test_memory_Q6_a_question_finds_what_answers_it(self, memory: Memory) -> None:
        say(memory, *SAID)
        found = [inputs(memory.recall(asked, limit=3, user_id="ann")) for asked in ASKED]

        assert sum(said in told for said, told in zip(SAID, found, strict=True)) == 60

    def test_memory_Q7_facts_are_found_by_their_words_without_a_model(self, memory: Memory) -> None:
        memory.facts.declare("*", "multi")
        memory.facts.append_many(
            [fact(thing, predicate=doing, subject="Ann") for doing in _DOINGS for thing in _THINGS]
        )
        wanted = [(doing, thing) for doing in _DOINGS for thing in _THINGS]
        found = [
            [(one.predicate, one.object) for one in memory.recall_facts(asked, user_id="ann")]
            for asked in ASKED
        ]

        assert sum(one in told for one, told in zip(wanted, found, strict=True)) == 60

    def test_memory_Q7_a_weak_embedder_does_not_drown_the_words(self, handle: Pagefile) -> None:
        class Chance(HashedWords):
            """Vectors that have nothing to do with what a text means."""

            def embed(self, text: str) -> list[float]:
                return super().embed(repr(hash_of(text)))

        memory = Memory(handle, embedder=Chance("chance"))
        say(memory, *SAID)
        found = [inputs(memory.recall(asked, limit=3, user_id="ann")) for asked in ASKED]

        assert sum(said in told for said, told in zip(SAID, found, strict=True)) >= 54

    def test_memory_Q8_the_ends_of_alpha_are_one_arm_alone(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=HashedWords())
        say(memory, "tea tea tea tea", "green tea for guests in the garden", "a quiet garden")
        words = memory.recall_scored("green tea garden", alpha=0, user_id="ann")
        vectors = memory.recall_scored("green tea garden", alpha=1, user_id="ann")

        assert all(match.vector_score is None for match in words)
        assert all(match.bm25_score is None for match in vectors)
        told = [match.vector_score for match in vectors]
        assert told == sorted(told, key=lambda score: -(score or 0))
        assert [match.hit is not None for match in (*words, *vectors)] == [True] * (
            len(words) + len(vectors)
        )

    def test_memory_Q9_facts_and_episodes_are_scored_on_one_scale(self, memory: Memory) -> None:
        say(memory, "the ferry to Bergen leaves at nine", "we had soup")
        memory.facts.append(fact("Bergen", predicate="dislikes soup in", subject="Ann"))
        memory.facts.append(fact("tea", predicate="likes", subject="Ann"))
        best = memory.recall_scored("when does the ferry to Bergen leave", user_id="ann")[0]
        told = memory.recall_facts_scored("when does the ferry to Bergen leave", user_id="ann")

        assert [match.score < best.score for match in told] == [True] * len(told)
        first, *rest = memory.search("when does the ferry to Bergen leave", user_id="ann")
        assert first.kind == "episode"
        assert [match.score < first.score for match in rest] == [True] * len(rest)

    def test_one_search_gives_episodes_facts_and_items_of_what_may_be_seen(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "we drank jasmine tea")
        memory.facts.append(fact("jasmine tea", predicate="likes"))
        for user in ("ann", "bob"):
            request = item_request(f"{user} buys jasmine tea", user)
            batch = handle.items.propose([request], user_id=user)
            handle.items.commit(batch.batch_id, reviewer="rev")
        found = memory.search("jasmine tea", user_id="ann")

        assert sorted((one.kind, one.text) for one in found) == [
            ("episode", "we drank jasmine tea"),
            ("fact", "user likes jasmine tea"),
            ("item", "ann buys jasmine tea"),
        ]
        for kind in ("episode", "fact", "item"):
            assert [one.kind for one in memory.search("jasmine", kinds=[kind], user_id="ann")] == (
                [kind]
            )
        assert [one.kind for one in memory.search("tea", session_id="s", user_id="ann")] == (
            ["episode"]
        )

    def test_a_search_leaves_out_what_cannot_match_its_filters(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "we drank jasmine tea")
        memory.facts.append(fact("a jasmine garden", valid_from=START - timedelta(days=9)))
        memory.facts.append(fact("a jasmine house"))
        told = {
            (status, scope): sorted(
                (one.kind, one.text)
                for one in memory.search("jasmine", status=status, scope=scope, user_id="ann")
            )
            for status, scope in _FILTERS
        }
        said = ("episode", "we drank jasmine tea")
        garden = ("fact", "user lives in a jasmine garden")
        house = ("fact", "user lives in a jasmine house")

        assert told == {
            ("active", None): [said, house],
            ("active", "user"): [said, house],
            ("active", "global"): [],
            ("superseded", None): [garden],
            (None, None): [said, garden, house],
            ("rejected", None): [],
        }
        blank = memory.search("", kinds=["fact"], status="superseded", user_id="ann")
        assert [one.text for one in blank] == [garden[1]]

    def test_an_item_that_is_found_says_why(self, handle: Pagefile, memory: Memory) -> None:
        for text in ("jasmine tea in the garden", "tea"):
            batch = handle.items.propose([item_request(text, "ann")], user_id="ann")
            handle.items.commit(batch.batch_id, reviewer="rev")
        found = memory.search("which Jasmine tea?", user_id="ann")
        hits = [one.hit for one in found if one.hit is not None]

        assert [hit.matched for hit in hits] == [("jasmine", "tea"), ("tea",)]
        assert [(hit.kind, hit.status, hit.scope) for hit in hits] == [
            ("item", "active", "user")
        ] * 2
        assert [[(arm.name, arm.rank) for arm in hit.arms] for hit in hits] == [
            [("lexical", 1)],
            [("lexical", 2)],
        ]
        assert [hit.explained() for hit in hits] == [hit.score for hit in hits]
        assert all(handle.store.get(hit.key) is not None for hit in hits)

    def test_memory_Q12_a_time_range_of_a_search_is_not_cut_from_its_answer(
        self, memory: Memory
    ) -> None:
        memory.facts.declare("*", "multi")
        for n in range(30):
            memory.facts.append(fact(f"tea{n} tea", valid_from=START - timedelta(days=n)))
        old = (START - timedelta(days=30), START - timedelta(days=25))

        found = memory.search("tea", limit=3, time_range=old, kinds=["fact"], user_id="ann")

        assert len(found) == 3

    def test_memory_Q10_a_filter_comes_before_the_limit(self, memory: Memory) -> None:
        for n in range(20):
            say(memory, f"tea in the loud session {n}", session="loud")
        say(memory, "tea once", "tea twice", "tea again", session="quiet")

        assert len(memory.recall("tea", limit=3, session_id="quiet", user_id="ann")) == 3
        assert len(memory.recall("", limit=3, session_id="quiet", user_id="ann")) == 3
        for query in ("tea", ""):
            rest = memory.recall(query, limit=3, exclude_session_id="loud", user_id="ann")
            assert [one.session_id for one in rest] == ["quiet"] * 3
            both = memory.recall(query, session_id="loud", exclude_session_id="loud", user_id="ann")
            assert both == []

    def test_memory_Q11_ids_come_back_whole(self, memory: Memory) -> None:
        names = ["episode:ep_1", "a:b:c", "a.b@c+d-e_f", "ep_1"]
        for name in names:
            memory.remember(episode("tea", id=name))
        found = memory.recall("tea", limit=10, user_id="ann")

        assert sorted(one.id for one in found) == sorted(names)
        assert [memory.episode(name, user_id="ann").id for name in names] == names

    def test_memory_Q12_a_time_range_is_searched_not_cut_from_the_answer(
        self, memory: Memory
    ) -> None:
        for n in range(40):
            say(memory, f"tea tea tea {n}", at=START + timedelta(days=n))
        lone = say(memory, "a little tea among many other words", at=START - timedelta(days=9))
        early = (START - timedelta(days=10), START - timedelta(days=1))
        four = (START, START + timedelta(days=3))

        assert [one.id for one in memory.recall("tea", time_range=early, user_id="ann")] == lone
        assert len(memory.recall("tea", limit=5, time_range=four, user_id="ann")) == 4

    def test_memory_Q12_a_profile_shows_the_newest(self, memory: Memory) -> None:
        for n in range(30):
            say(memory, f"hello {n}", session=f"s{n}", at=START + timedelta(hours=n))
            memory.facts.append(fact(f"place{n:02}", predicate="visited"))
        told = memory.profile(user_id="ann")

        assert told.recent_sessions == tuple(f"s{n}" for n in reversed(range(20, 30)))
        assert objects(told.sample_facts) == [f"place{n:02}" for n in reversed(range(20, 30))]
        assert (told.episode_count, told.fact_count) == (30, 30)
        assert told.last_seen == START + timedelta(hours=29)

    def test_memory_Q13_an_index_of_another_model_is_refused_until_it_is_made_anew(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        say(Memory(handle, embedder=HashedWords()), "hello world")
        head = handle.store.head()
        embedders = [HashedWords("another"), HashedWords(dimensions=32), None]
        works: list[Callable[[Memory], Any]] = [
            lambda m: m.recall("hello", user_id="ann"),
            lambda m: say(m, "more"),
            lambda m: m.facts.append(fact("Oslo")),
        ]
        for embedder in embedders:
            # Each is the first call of a handle, and one of a handle that was refused before.
            memories = [Memory(backend.open(), embedder=embedder) for _ in works]
            for n, memory in enumerate(memories):
                for work in (*works[n:], *works[:n]):
                    with pytest.raises(Unsupported, match="reindex"):
                        work(memory)
        unchanged = handle.store.head() == head
        other = Memory(backend.open(), embedder=embedders[0])
        other.reindex()

        assert unchanged
        assert inputs(other.recall("hello", user_id="ann")) == ["hello world"]
        with pytest.raises(Unsupported):
            Memory(backend.open(), embedder=HashedWords()).recall("hello", user_id="ann")

    def test_memory_Q13_what_has_no_vector_is_found_by_its_words_and_the_blank_by_time(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=HashedWords())
        memory.remember(episode("", session="quiet", id="blank"))
        memory.remember(episode("hello world", id="said"))
        memory.remember(episode("unlike", id="given", embedding=HashedWords().embed("green tea")))

        assert memory.recall("hello", user_id="ann")[0].id == "said"
        assert {one.id for one in memory.recall("", user_id="ann")} == {"blank", "said", "given"}
        assert memory.recall_scored("green tea", alpha=1, user_id="ann")[0].episode.id == "given"

    def test_a_vector_of_another_length_is_refused(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=HashedWords())
        say(memory, "hello")
        head = handle.store.head()
        with pytest.raises(Invalid):
            memory.remember(episode("x", embedding=[1.0, 2.0]))

        assert handle.store.head() == head

    def test_memory_Q14_another_kind_is_refused_and_a_reranker_is_heard(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, reranker=ByLength())
        say(memory, "tea with cake and much talk", "tea", "tea with cake")
        told = memory.recall_scored("tea with cake and much talk", limit=2, user_id="ann")

        assert outcome(memory.recall, "tea", kind="semantic", user_id="ann") == "Invalid"
        assert [match.episode.input for match in told] == ["tea", "tea with cake"]
        assert [match.rerank_score for match in told] == [-3.0, -13.0]

    def test_memory_Q14_time_words_count_and_what_shares_nothing_is_not_given(
        self, memory: Memory
    ) -> None:
        for year in (2021, 2022, 2023, 2024):
            at = datetime(year, 5, 10, tzinfo=UTC)
            memory.remember(episode("we went sailing", session=str(year), at=at))
        asked = memory.recall("when we went sailing in May 2023", limit=1, user_id="ann")

        assert asked[0].occurred_at.year == 2023
        assert memory.recall("quantum chromodynamics", user_id="ann") == []

    def test_recall_and_recall_scored_are_one(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=HashedWords())
        say(memory, *SAID[:20])
        for asked in (*ASKED[:5], "", "market"):
            plain = memory.recall(asked, limit=7, user_id="ann")
            scored = memory.recall_scored(asked, limit=7, user_id="ann")

            assert [match.episode for match in scored] == plain
            told = [match.score for match in scored]
            assert told == sorted(told, reverse=True)

    def test_every_hit_says_why_it_is_here(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=HashedWords())
        memory.remember(episode("I paint boats", speaker="Maria"))
        memory.remember(episode("I paint houses", speaker="Tom"))
        best = memory.recall_scored("What does Maria paint?", user_id="ann")[0]

        assert best.episode.speaker == "Maria"
        assert best.hit is not None
        assert {arm.name for arm in best.hit.arms} == {"lexical", "vector"}
        assert all(arm.rank >= 0 for arm in best.hit.arms)
        assert best.hit.matched == ("paint",)

    def test_a_text_is_found_by_the_label_it_begins_with(self, handle: Pagefile) -> None:
        for embedder in (None, HashedWords()):
            memory = Memory(handle, embedder=embedder)
            memory.reindex()
            memory.remember(episode("Allergies: peanuts and shellfish", session="s0", id="e0"))
            for n, text in enumerate(("My medicine is new", "I like nuts", "The gym was full"), 1):
                memory.remember(episode(text, session=f"s{n}", id=f"e{n}"))
            for asked in ("What allergies do I have?", "allergies", "What Allergies has my son?"):
                assert memory.recall(asked, user_id="ann")[0].id == "e0"

    def test_a_speaker_is_found_by_name_alone_given_or_read_from_the_text(
        self, memory: Memory
    ) -> None:
        memory.remember(episode("I live in Rome", speaker="Joe", session="s1"))
        memory.remember(episode("Zoe: I live in Bern", session="s2"))

        for asked in ("Joe", "What did Joe say?", "what did joe tell me"):
            assert inputs(memory.recall(asked, user_id="ann", limit=1)) == ["I live in Rome"]
        for asked in ("Zoe", "What did Zoe say?", "where does zoe live"):
            assert inputs(memory.recall(asked, user_id="ann", limit=1)) == ["Zoe: I live in Bern"]

    def test_a_session_with_an_empty_name_is_one_like_others(self, memory: Memory) -> None:
        say(memory, "apples are red", session="")
        say(memory, "apples are green", session="s")
        memory.facts.append(fact("apples"))
        within = memory.recall("apples", session_id="", user_id="ann")
        elsewhere = memory.recall("apples", exclude_session_id="", user_id="ann")

        assert (inputs(within), inputs(elsewhere)) == (["apples are red"], ["apples are green"])
        assert sorted(memory.profile(user_id="ann").recent_sessions) == ["", "s"]
        assert inputs(memory.recall("", session_id="", user_id="ann")) == ["apples are red"]

    def test_a_late_turn_an_edit_and_a_new_index_leave_neighbours_as_they_were(
        self, handle: Pagefile
    ) -> None:
        talk = ("Any pets?", "Yes, a parrot.", "Its name?", "Kiwi.", "And your home?", "In Lisbon.")
        memory = Memory(handle, embedder=None)

        def tell(user: str, number: int) -> None:
            at = START + number * timedelta(minutes=1)
            memory.remember(episode(talk[number], user, at=at, id=f"e{number * 5 % 7}"))

        def told(user: str) -> list[tuple[str, float]]:
            found = memory.recall_scored("What is the name of the parrot?", user_id=user)
            return [(match.episode.input, match.score) for match in found]

        for number in range(6):
            tell("ann", number)
        for number in (0, 1, 4, 5, 2, 3):
            tell("late", number)
        first = told("ann")
        memory.remember(episode("Hm.", at=START + timedelta(minutes=3), id="e1"))
        tell("ann", 3)

        assert told("ann") == told("late") == first
        memory.reindex()
        assert told("ann") == told("late") == first

    def test_an_answer_is_the_same_every_time_and_in_every_handle(self, backend: Backend) -> None:
        memory = Memory(backend.open(), embedder=HashedWords())
        say(memory, *["tea"] * 10, *SAID[:10])
        told = [memory.recall("tea market", limit=20, user_id="ann") for _ in range(3)]
        other = Memory(backend.open(), embedder=HashedWords())

        assert told == [other.recall("tea market", limit=20, user_id="ann")] * 3

    def test_what_one_handle_remembers_another_finds_at_once(self, backend: Backend) -> None:
        one, other = (Memory(backend.open(), embedder=None) for _ in range(2))
        for n in range(10):
            writer, reader = (one, other) if n % 2 else (other, one)
            say(writer, f"apple{n}", session=f"s{n}")

            assert inputs(reader.recall(f"apple{n}", user_id="ann")) == [f"apple{n}"]

    def test_what_another_handle_changed_or_forgot_is_not_told_as_it_was(
        self, backend: Backend
    ) -> None:
        one, other = (Memory(backend.open(), embedder=None) for _ in range(2))
        say(one, "pear one", "pear two")
        changing = episode("pear three", id="changing")
        one.remember(changing)
        before = inputs(other.recall("pear", user_id="ann"))
        one.remember(episode("pear four", id="changing"))
        changed = inputs(other.recall("pear", user_id="ann"))
        one.forget(user_id="ann")

        assert sorted(before) == ["pear one", "pear three", "pear two"]
        assert sorted(changed) == ["pear four", "pear one", "pear two"]
        assert other.recall("pear", user_id="ann") == []

    def test_a_document_that_is_gone_is_not_told_though_the_index_names_it(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        said = episode("pear", id="gone")
        memory.remember(said)
        before = memory.recall("pear", user_id="ann")
        handle.store.commit(Batch([Delete(said.document)]))

        assert [found.id for found in before] == ["gone"]
        assert memory.recall("pear", user_id="ann") == []

    def test_a_filter_that_was_asked_before_sees_what_came_since(self, memory: Memory) -> None:
        for n in range(5):
            say(memory, f"pear {n}", session="here")
            say(memory, f"pear {n}", session="there")

            assert len(memory.recall("pear", user_id="ann", session_id="here", limit=50)) == n + 1
            assert len(memory.recall("pear", user_id="ann", limit=50)) == 2 * (n + 1)

    def test_a_query_that_is_long_or_strange_is_answered(self, memory: Memory) -> None:
        say(memory, "hello world")
        asked = ["hello " * 10_000, "?" * 500, "\x00", "🦊", "AND OR NOT (", '"', "of the", "\n"]
        told = [outcome(memory.recall, text, user_id="ann") for text in asked]

        assert told == ["done"] * len(asked)
        assert inputs(memory.recall("hello " * 10_000, user_id="ann")) == ["hello world"]

    def test_text_in_other_scripts_is_found(self, memory: Memory) -> None:
        said = ["Я люблю чай", "我喜欢喝茶", "お茶が好き", "Straße und Käse", "كتاب جديد"]
        for n, text in enumerate(said):
            say(memory, text, session=f"s{n}")
        asked = ["чай", "喝茶", "お茶", "STRASSE", "كتاب"]

        assert [inputs(memory.recall(text, user_id="ann"))[:1] for text in asked] == [
            [text] for text in said
        ]

    def test_one_sign_of_a_script_without_spaces_is_found_wherever_it_stands(
        self, memory: Memory
    ) -> None:
        for n, text in enumerate(("我的猫很可爱", "猫です", "大きな猫", "猫", "犬です", "cats")):
            say(memory, text, session=f"s{n}")
        found = memory.recall("猫", limit=9, user_id="ann")

        assert sorted(inputs(found)) == sorted(["我的猫很可爱", "猫です", "大きな猫", "猫"])
        assert inputs(memory.recall("犬?", user_id="ann")) == ["犬です"]


def hash_of(text: str) -> int:
    """A number that has nothing to do with what the text means."""
    return sum(n * ord(sign) for n, sign in enumerate(text, start=1)) * 2_654_435_761 % 2**31


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

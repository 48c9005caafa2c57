"""What needs a decision: duplicates, facts that are not sure, and rounds that cannot go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pagefile.errors import Conflict, Forbidden, LimitExceeded, PagefileError
from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy
from pagefile.memory.episodes.duplicates import Duplicate
from pagefile.memory.episodes.episode import Message, Role, ToolCall
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.extraction.errors import Misdirected, NoApi, Refused
from pagefile.memory.facts.documents import ASSERTION
from pagefile.memory.memory import Memory
from pagefile.store.batch import Batch, Put
from pagefile.store.records import Commit
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import at_once
from pagefile.testing.memory.fixtures import (
    HOUR,
    START,
    Clock,
    HashedWords,
    MemoryFixtures,
    Scripted,
    episode,
    inputs,
    likes,
    objects,
    outcome,
    say,
)

_TEXT = "My sister plays the violin in a small orchestra in Vienna"
_NEAR = "my sister plays the violin in a small orchestra in Vienna!"
_OTHER = "My brother repairs old wooden boats beside the lake"
_DAY = timedelta(days=1)
#: Nearly the same words, and another meaning: negated, the other way round, asked.
_OPPOSITES = [
    ("I am allergic to peanuts and shrimp", "I am not allergic to peanuts and shrimp"),
    ("We can ship the release to them now", "We can't ship the release to them now"),
    ("Ann pays Bob for the red car", "Bob pays Ann for the red car"),
    ("The train goes from Rome to Oslo daily", "The train goes from Oslo to Rome daily"),
    ("Is the office in Lisbon closed today?", "The office in Lisbon is closed today."),
    ("The office in Lisbon closed today", "The office in Lisbon closed today?"),
    ("It was 5 degrees in the cellar room", "It was -5 degrees in the cellar room"),
    ("The new plan looks really good 👍", "The new plan looks really good 👎"),
    ("if (ready) launch rocket engine test", "if (!ready) launch rocket engine test"),
    ("I do", "I do not"),
    ("yes", "no"),
    ("!", "."),
]


class DuplicatesContract(MemoryFixtures):
    """What was said before."""

    def test_all_are_kept_and_can_be_listed(self, handle: Pagefile, memory: Memory) -> None:
        for n, text in enumerate((_TEXT, _OTHER, _NEAR, "yes please", "yes please")):
            memory.remember(episode(text, id=f"e{n}"))
        memory.remember(episode(_TEXT, "bob", id="bobs"))
        embedder = HashedWords()

        assert memory.duplicates(user_id="ann") == [
            Duplicate("e2", "e0", 1.0, is_same=True),
            Duplicate("e4", "e3", 1.0, is_same=True),
        ]
        assert memory.profile(user_id="ann").episode_count == 5
        assert memory.duplicates(user_id="bob") == []
        assert embedder.texts == 0

    def test_the_earlier_is_the_one_of_the_earlier_time_however_it_was_stored(
        self, memory: Memory
    ) -> None:
        texts = ((_TEXT, "long"), ("yes please", "short"))
        for text, name in texts:
            memory.remember(episode(text, id=f"{name}2", at=START + _DAY))
            memory.remember(episode(text, id=f"{name}1"))
        told = memory.duplicates(user_id="ann")
        for text, name in texts:
            memory.remember(episode(text, id=f"{name}1", speaker=None, session="another"))
            memory.remember(episode(text, id=f"{name}2", at=START + _DAY, session="another"))
        again = memory.duplicates(user_id="ann")
        memory.reindex()

        assert [(one.key, one.of) for one in told] == [("long2", "long1"), ("short2", "short1")]
        assert again == told == memory.duplicates(user_id="ann")

    def test_what_is_negated_is_near_and_not_the_same(self, handle: Pagefile) -> None:
        heard: list[Duplicate] = []
        memory = Memory(handle, embedder=None, duplicates="report", on_duplicate=heard.append)
        for n, text in enumerate(
            (
                "Transfer hundred euros to Bob from my savings account",
                "Do not transfer hundred euros to Bob from my savings account",
                "do not transfer hundred euros to Bob from my savings account!",
            )
        ):
            memory.remember(episode(text, id=f"e{n}", at=START + n * _DAY))

        assert memory.duplicates(user_id="ann") == [
            Duplicate("e1", "e0", 1.0, is_same=False),
            Duplicate("e2", "e1", 1.0, is_same=True),
        ]
        assert heard == memory.duplicates(user_id="ann")

    def test_the_threshold_is_the_share_of_words_in_common(self, memory: Memory) -> None:
        memory.remember(episode("apples pears plums cherries figs", id="e0"))
        memory.remember(episode("apples pears plums cherries dates", id="e1"))
        told = memory.duplicates(user_id="ann", threshold=0.6)

        assert [(one.key, one.of, round(one.similarity, 3)) for one in told] == [
            ("e1", "e0", 0.667)
        ]
        assert memory.duplicates(user_id="ann", threshold=0.7) == []

    def test_a_repetition_is_reported_and_stored(self, handle: Pagefile) -> None:
        heard: list[Duplicate] = []
        memory = Memory(handle, embedder=None, duplicates="report", on_duplicate=heard.append)
        memory.remember(episode(_TEXT, id="e0"))
        memory.remember(episode(_NEAR, id="e1"))
        memory.remember(episode(_NEAR, "bob", id="e2"))

        assert heard == [Duplicate("e1", "e0", 1.0, is_same=True)]
        assert memory.profile(user_id="ann").episode_count == 2

    def test_a_repetition_is_merged_into_what_was_there(self, handle: Pagefile) -> None:
        heard: list[Duplicate] = []
        memory = Memory(handle, embedder=None, duplicates="merge", on_duplicate=heard.append)
        memory.remember(episode(_TEXT, id="e0"))
        told = memory.remember(episode(_NEAR, id="e1", at=START + _DAY))
        memory.remember(episode(_OTHER, id="e2"))
        first = memory.episode("e0", user_id="ann")

        assert (told, len(heard)) == ("e0", 1)
        assert (first.input, first.said_again) == (_TEXT, (START + _DAY,))
        assert outcome(memory.episode, "e1", user_id="ann") == "NotFound"
        assert inputs(memory.recall("sister violin", limit=1, user_id="ann")) == [_TEXT]
        assert memory.profile(user_id="ann").episode_count == 2

    def test_what_was_merged_is_merged_once_however_often_it_is_sent(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        again = episode(_NEAR, id="e1", at=START + _DAY)
        memory.remember(episode(_TEXT, id="e0"))
        memory.remember(again)
        head = handle.store.head()
        told = [memory.remember(again), memory.remember(episode(_TEXT, id="e0"))]

        assert (told, handle.store.head()) == (["e0", "e0"], head)
        assert memory.episode("e0", user_id="ann").said_again == (START + _DAY,)

    def test_repetitions_within_one_call_are_merged_too(self, handle: Pagefile) -> None:
        heard: list[Duplicate] = []
        memory = Memory(handle, embedder=None, duplicates="merge", on_duplicate=heard.append)
        memory.remember(episode(_OTHER, id="old"))
        told = memory.remember_many(
            [
                episode(_TEXT, id="e0"),
                episode(_NEAR, id="e1", at=START + _DAY),
                episode(_OTHER, id="e2", at=START + _DAY),
                episode(_OTHER, id="e3", at=START + 2 * _DAY),
                episode(_TEXT, id="e4", at=START + 3 * _DAY),
            ]
        )

        assert told == ["e0", "e0", "old", "old", "e0"]
        assert memory.episode("e0", user_id="ann").said_again == (START + _DAY, START + 3 * _DAY)
        assert memory.episode("old", user_id="ann").said_again == (START + _DAY, START + 2 * _DAY)
        assert (memory.profile(user_id="ann").episode_count, len(heard)) == (2, 4)

    @pytest.mark.parametrize("at_once", [False, True])
    def test_what_says_something_else_in_nearly_the_same_words_is_kept(
        self, handle: Pagefile, at_once: bool
    ) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        for n, (one, other) in enumerate(_OPPOSITES):
            told = [
                episode(one, f"u{n}", id="e0"),
                episode(other, f"u{n}", id="e1", at=START + _DAY),
            ]
            ids = memory.remember_many(told) if at_once else [memory.remember(e) for e in told]

            assert (one, ids) == (one, ["e0", "e1"])
            assert inputs(memory.recall("", user_id=f"u{n}")) == [other, one]

    @pytest.mark.parametrize("at_once", [False, True])
    def test_the_same_words_are_merged_however_few(self, handle: Pagefile, at_once: bool) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        for n, text in enumerate(["I love tea", "yes", "I do", "你好", "¿Qué?", "…", _TEXT]):
            told = [
                episode(text, f"u{n}", id="e0"),
                episode(text, f"u{n}", id="e1", at=START + _DAY),
            ]
            ids = memory.remember_many(told) if at_once else [memory.remember(e) for e in told]

            assert (text, ids) == (text, ["e0", "e0"])
            assert memory.episode("e0", user_id=f"u{n}").said_again == (START + _DAY,)

    def test_what_was_said_in_another_session_is_kept_and_reported(self, handle: Pagefile) -> None:
        heard: list[Duplicate] = []
        memory = Memory(handle, embedder=None, duplicates="merge", on_duplicate=heard.append)
        memory.remember(episode(_TEXT, session="s1", id="e0"))
        memory.remember(episode(_TEXT, session="s2", id="e1"))
        memory.remember(episode(_TEXT, session="s2", id="e2", at=START + _DAY))

        assert heard == [
            Duplicate("e1", "e0", 1.0, is_same=True),
            Duplicate("e2", "e1", 1.0, is_same=True),
        ]
        assert [
            len(memory.session_messages(session, user_id="ann")) for session in ("s1", "s2")
        ] == [1, 1]

    @pytest.mark.parametrize("at_once", [False, True])
    def test_a_repetition_with_another_answer_or_transcript_is_kept(
        self, handle: Pagefile, at_once: bool
    ) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        call = ToolCall(tool="t", id="c1")
        used = [
            Message(Role.ASSISTANT, "", tool_calls=(call,)),
            Message(Role.TOOL, "r", tool_call_id="c1"),
        ]
        told = [
            episode(_TEXT, id="e0", output="Good."),
            episode(_TEXT, id="e1", output="Good.", tool_transcript=used),
            episode(_TEXT, id="e2", output="Not good."),
            episode(_TEXT, id="e3", output="Good.", at=START + _DAY, tool_transcript=used),
        ]
        ids = memory.remember_many(told) if at_once else [memory.remember(e) for e in told]

        assert ids == ["e0", "e1", "e2", "e1"]
        assert memory.episode("e1", user_id="ann").tool_transcript == tuple(used)

    def test_another_speaker_repeats_nobody(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        memory.remember(episode(_TEXT, id="e0", speaker="Ann"))
        memory.remember(episode(_TEXT, id="e1", speaker="Bob"))

        assert memory.profile(user_id="ann").episode_count == 2

    def test_merging_loses_no_time_that_others_add_at_once(self, backend: Backend) -> None:
        memories = [Memory(backend.open(), embedder=None, duplicates="merge") for _ in range(4)]
        memories[0].remember(episode(_TEXT, id="e0"))

        def work(n: int) -> list[str]:
            return [
                memories[n].remember(
                    episode(_NEAR, id=f"e{n}-{k}", at=START + (1 + 5 * n + k) * _DAY)
                )
                for k in range(5)
            ]

        told = at_once(work, 4)

        assert told == [["e0"] * 5] * 4
        times = memories[0].episode("e0", user_id="ann").said_again
        assert sorted(times) == [START + (1 + n) * _DAY for n in range(20)]

    def test_what_was_forgotten_is_not_merged_back(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        memory.remember(episode(_OTHER, session="s1", id="e0"))
        memory.remember(episode(_TEXT, session="s1", id="e1"))
        memory.forget(user_id="ann", session_id="s1")
        memory.remember(episode(_TEXT, session="s2", id="e2"))
        again = outcome(memory.remember, episode(_TEXT, session="s1", id="e1", at=START + _DAY))

        assert again == "Forbidden"
        assert memory.episode("e2", user_id="ann").said_again == ()

    def test_what_was_said_again_is_not_read_again(self, handle: Pagefile) -> None:
        extractor = Scripted()
        memory = Memory(handle, embedder=None, duplicates="merge", extractor=extractor)
        say(memory, _TEXT)
        memory.consolidate()
        memory.remember(episode(_NEAR, at=START + _DAY))
        memory.consolidate()

        assert extractor.read == [_TEXT]


class ReviewingContract(MemoryFixtures):
    """Candidates, and who decides."""

    def test_what_is_not_sure_waits_for_somebody_to_decide(self, handle: Pagefile) -> None:
        clock = Clock()
        unsure = Scripted(lambda one: [*likes(one, 0.5)])
        memory = Memory(handle, embedder=None, extractor=unsure, clock=clock)
        say(memory, "I like tea", "I like jam", user="ann")
        say(memory, "I like figs", user="bob")
        report = memory.consolidate()
        jam, tea = sorted(memory.proposals.waiting(user_id="ann"), key=lambda one: one.fact.object)
        before = memory.facts.query(user_id="ann")
        done = memory.proposals.commit(tea.id, reviewer="rev", user_id="ann")
        head = handle.store.head()
        again = memory.proposals.commit(tea.id, reviewer="other", user_id="ann")
        once = handle.store.head() == head
        gone = memory.proposals.reject(jam.id, reviewer="rev", user_id="ann", reason="not so")
        told = [
            outcome(memory.proposals.reject, tea.id, reviewer="r", user_id="ann"),
            outcome(memory.proposals.commit, jam.id, reviewer="r", user_id="ann"),
            outcome(memory.proposals.commit, tea.id, reviewer="r", user_id="bob"),
            outcome(memory.proposals.commit, "unknown", reviewer="r", user_id="ann"),
        ]

        assert (report.facts, report.proposed, before, once) == (0, 3, [], True)
        assert (done.status, done.decided_by, again) == ("committed", "rev", done)
        assert (gone.status, gone.reason) == ("rejected", "not so")
        assert told == ["Conflict", "Conflict", "NotFound", "NotFound"]
        assert objects(memory.recall_facts("tea jam figs", user_id="ann")) == ["tea"]
        assert len(memory.proposals.waiting_everywhere()) == 1
        assert [one.id for one in memory.proposals.waiting("rejected", user_id="ann")] == [jam.id]

    def test_that_something_ended_waits_for_review_too(self, handle: Pagefile) -> None:
        since = START + timedelta(days=9)
        home = Candidate("user", "lives_in", "Lisbon", 0.9)
        left = Candidate("user", "lives_in", "Lisbon", 0.9, valid_until=since, quote="I left")
        script = Scripted(lambda one: [left] if "left" in one.input else [home])
        policy = ConsolidationPolicy(auto_commit=None)
        memory = Memory(handle, embedder=None, extractor=script, policy=policy)
        say(memory, "at home")
        memory.consolidate()
        (proposed,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.commit(proposed.id, reviewer="rev", user_id="ann")
        say(memory, "I left", at=since)
        report = memory.consolidate()
        (ending,) = memory.proposals.waiting(user_id="ann")

        assert (report.facts, report.proposed, ending.ends) == (0, 1, proposed.id)
        assert [f.object for f in memory.facts.query(user_id="ann")] == ["Lisbon"]
        memory.proposals.commit(ending.id, reviewer="rev", user_id="ann")
        assert memory.facts.query(user_id="ann") == []
        before = memory.facts.query(user_id="ann", valid_at=since - timedelta(days=1))
        assert [(f.object, f.valid_until) for f in before] == [("Lisbon", since)]

    def test_two_who_decide_at_once_decide_once(self, backend: Backend) -> None:
        memories = [
            Memory(backend.open(), embedder=None, extractor=Scripted(lambda one: likes(one, 0.5)))
            for _ in range(4)
        ]
        say(memories[0], "I like tea")
        memories[0].consolidate()
        (tea,) = memories[0].proposals.waiting(user_id="ann")

        def decide(n: int) -> str:
            work = memories[n].proposals.commit if n % 2 else memories[n].proposals.reject
            return outcome(work, tea.id, reviewer=f"r{n}", user_id="ann")

        told = at_once(decide, 4)
        facts = memories[0].facts.query(user_id="ann")
        status = [
            s for s in ("committed", "rejected") if memories[0].proposals.waiting(s, user_id="ann")
        ]

        assert sorted(told) == ["Conflict", "Conflict", "done", "done"]
        assert (len(facts), status) in [(1, ["committed"]), (0, ["rejected"])]

    def test_nothing_is_sure_enough_where_the_policy_says_so(self, handle: Pagefile) -> None:
        memory = Memory(
            handle,
            embedder=None,
            extractor=Scripted(lambda one: likes(one, 1.0)),
            policy=ConsolidationPolicy(auto_commit=None),
        )
        say(memory, "I like tea")

        assert (memory.consolidate().proposed, memory.facts.query(user_id="ann")) == (1, [])

    def test_a_changed_episode_is_read_again_and_what_was_decided_stays_so(
        self, handle: Pagefile
    ) -> None:
        extractor = Scripted(lambda one: [*likes(one, 0.5), Candidate("user", "is", "here", 0.9)])
        memory = Memory(handle, embedder=None, extractor=extractor)
        memory.remember(episode("I like tea", id="e"))
        memory.consolidate()
        (tea,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.reject(tea.id, reviewer="rev", user_id="ann")
        memory.remember(episode("Again, I like tea", id="e"))
        again = memory.consolidate()
        memory.remember(episode("I like jam", id="e"))
        changed = memory.consolidate()
        idle = memory.consolidate()

        assert (again.episodes, again.facts, again.proposed) == (1, 0, 0)
        assert (changed.proposed, idle.episodes) == (1, 0)
        assert len(extractor.read) == 3
        assert memory.proposals.waiting("rejected", user_id="ann")[0].id == tea.id

    def test_what_is_no_longer_so_ends_the_fact_that_is_known(self, handle: Pagefile) -> None:
        def reading(exchange: Exchange) -> list[Candidate]:
            if "no more" in exchange.input:
                return [Candidate("user", "likes", "tea", 0.9, valid_until=exchange.occurred_at)]
            return likes(exchange)

        memory = Memory(handle, embedder=None, extractor=Scripted(reading))
        say(memory, "I like tea", at=START - 5 * HOUR)
        say(memory, "no more", at=START - HOUR)
        report = memory.consolidate()

        assert (report.episodes, report.facts) == (2, 2)
        assert memory.facts.query(user_id="ann") == []
        assert objects(memory.facts.query(user_id="ann", valid_at=START - 2 * HOUR)) == ["tea"]

    def test_what_ends_is_unknown_here_ends_nothing(self, handle: Pagefile) -> None:
        ended = Scripted(lambda one: [Candidate("user", "likes", "tea", 0.9, valid_until=START)])
        memory = Memory(handle, embedder=None, extractor=ended)
        say(memory, "no more tea")

        assert (memory.consolidate().episodes, memory.facts.query(user_id="ann")) == (1, [])


_REFUSED = Refused("request", "status 400", "look at base URL and model")


def _nothing(text: str) -> bool:
    return False


class Refusing:
    """A store that lets no fact in."""

    def __init__(self, store: Store, error: PagefileError) -> None:
        self._store = store
        self._error = error
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, batch: Batch) -> Commit:
        if any(isinstance(one, Put) and one.kind == ASSERTION for one in batch.operations):
            self.refused += 1
            raise self._error
        return self._store.commit(batch)


class Server:
    """What stands behind an extractor: it refuses what it is told to, and reads the rest."""

    def __init__(self, error: PagefileError, refuses: Callable[[str], bool] = bool) -> None:
        self.error = error
        self.refuses = refuses

    def __call__(self, exchange: Exchange) -> list[Candidate]:
        if self.refuses(exchange.input):
            raise self.error
        return likes(exchange)

    def is_mended(self) -> None:
        self.refuses = _nothing


def _memory(handle: Pagefile, server: Server, **policy: Any) -> tuple[Memory, Scripted, Clock]:
    extractor, clock = Scripted(server), Clock()
    memory = Memory(
        handle,
        embedder=None,
        extractor=extractor,
        clock=clock,
        policy=ConsolidationPolicy(**policy),
    )
    return memory, extractor, clock


class MendingContract(MemoryFixtures):
    """Whose fault it is, and what becomes of those that had none."""

    @pytest.mark.parametrize(
        "error",
        [Forbidden("no such key", "give another"), Misdirected("request", "status 404", "look")],
        ids=lambda error: type(error).__name__,
    )
    def test_memory_D7_wrong_settings_end_the_round_and_blame_no_episode(
        self, handle: Pagefile, error: PagefileError
    ) -> None:
        server = Server(error)
        memory, extractor, _ = _memory(handle, server, attempts=1)
        say(memory, *(f"I like tea{n}" for n in range(10)))
        told = [outcome(memory.consolidate) for _ in range(3)]
        asked = len(extractor.read)
        server.is_mended()
        after = memory.consolidate()

        assert (told, asked) == ([type(error).__name__] * 3, 3)
        assert (after.facts, after.failed) == (10, 0)

    @pytest.mark.parametrize(
        "error", [_REFUSED, NoApi("a page", "look")], ids=lambda error: type(error).__name__
    )
    def test_memory_D7_what_is_refused_whatever_it_says_is_never_given_up(
        self, handle: Pagefile, error: PagefileError
    ) -> None:
        server = Server(error)
        memory, extractor, clock = _memory(handle, server, attempts=2)
        say(memory, *(f"I like tea{n}" for n in range(30)))
        told = []
        for _ in range(8):
            told.append(outcome(memory.consolidate))
            clock.passes(days=1)
        asked = len(extractor.read)
        server.is_mended()
        after = memory.consolidate()

        assert (set(told), asked) == ({type(error).__name__}, 8 * 5)
        assert (after.facts, after.failed) == (30, 0)

    def test_memory_D7_one_that_is_refused_for_what_it_says_is_given_up_alone(
        self, handle: Pagefile
    ) -> None:
        """The first of each round: whether it is the text is seen by those after it."""
        server = Server(_REFUSED, lambda text: "long" in text)
        memory, extractor, clock = _memory(handle, server, attempts=3)
        (name, _) = say(memory, "a long story", "I like tea0")
        told = []
        for n in range(1, 6):
            report = memory.consolidate()
            told.append((report.facts, report.failed, [one for one, _ in report.errors]))
            say(memory, f"I like tea{n}")
            clock.passes(days=1)

        assert told == [(1, 1, [name])] * 3 + [(1, 0, [])] * 2
        assert extractor.read.count("a long story") == 3

    def test_memory_D7_many_that_are_refused_at_the_front_block_nobody_for_long(
        self, handle: Pagefile
    ) -> None:
        server = Server(_REFUSED, lambda text: "long" in text)
        memory, extractor, clock = _memory(handle, server, attempts=3)
        say(memory, *(f"a long story {n}" for n in range(12)), "I like tea")
        for _ in range(60):
            outcome(memory.consolidate)
            clock.passes(minutes=1)

        assert objects(memory.facts.query(user_id="ann")) == ["tea"]
        assert len(extractor.read) < 120

    def test_memory_D7_what_was_given_up_is_read_again_when_it_is_asked_for(
        self, handle: Pagefile
    ) -> None:
        server = Server(Refused("request", "x", "y"), lambda text: "bad" in text)
        memory, extractor, clock = _memory(handle, server, attempts=1)
        say(memory, "I like tea", "bad jam", "bad figs")
        gone, given = say(memory, "bad milk", user="bob"), memory.consolidate()
        memory.forget(episode_id=gone[0], user_id="bob")
        server.is_mended()
        clock.passes(days=9)
        without = memory.consolidate()
        again = [memory.consolidate(retry_failed=True) for _ in range(2)]

        assert (given.failed, without.episodes) == (3, 0)
        assert [(one.episodes, one.facts) for one in again] == [(2, 2), (0, 0)]
        assert sorted(objects(memory.facts.query(user_id="ann"))) == ["figs", "jam", "tea"]
        assert len(extractor.read) == 6

    def test_what_was_merged_into_one_that_is_read_again_is_forgotten_with_it(
        self, handle: Pagefile
    ) -> None:
        extractor = Scripted(Server(_REFUSED, lambda text: "bad" in text))
        policy = ConsolidationPolicy(attempts=1)
        memory = Memory(
            handle, embedder=None, extractor=extractor, policy=policy, duplicates="merge"
        )
        said = [episode("bad jam, of all things", id=f"e{n}", at=START + n * HOUR) for n in (0, 1)]
        ids = [memory.remember(one) for one in said]
        say(memory, "I like tea")
        given_up = memory.consolidate().failed
        memory.consolidate(retry_failed=True)
        memory.forget(user_id="ann")

        assert (ids, given_up) == (["e0", "e0"], 1)
        assert [outcome(memory.remember, one) for one in said] == ["Forbidden"] * 2

    def test_memory_D7_what_waits_after_a_failure_need_not_wait_when_it_is_mended(
        self, handle: Pagefile
    ) -> None:
        server = Server(_REFUSED, lambda text: "bad" in text)
        memory, _, _ = _memory(handle, server)
        say(memory, "I like tea", "bad jam")
        memory.consolidate()
        server.is_mended()
        early, again = memory.consolidate(), memory.consolidate(retry_failed=True)

        assert (early.episodes, again.facts) == (0, 1)

    def test_memory_D7_conflicts_in_settling_cost_no_second_reading(self, backend: Backend) -> None:
        """With one attempt: what others commit is none of the episode's failures."""
        other = Memory(backend.open(), embedder=None)
        (old,) = say(other, "something")
        other.forget(episode_id=old, user_id="ann")
        memory, extractor, _ = _memory(backend.open(), Server(_REFUSED, _nothing), attempts=1)
        say(other, "I like tea")
        report = memory.consolidate()

        assert (report.facts, report.failed, extractor.read) == (1, 0, ["I like tea"])

    def test_memory_D7_what_meets_conflicts_without_end_waits_with_what_was_read(
        self, handle: Pagefile
    ) -> None:
        memory, extractor, clock = _memory(handle, Server(_REFUSED, _nothing), attempts=1)
        say(memory, "I like tea")
        faster = Conflict("somebody was faster", "retry", target="x", expected=1, current=2)
        busy = Refusing(handle.store, faster)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "_store", busy)
            first = memory.consolidate()
        clock.passes(days=1)
        second = memory.consolidate()

        assert (first.failed, first.errors[0][1].split(":")[0]) == (1, "Conflict")
        assert 10 <= busy.refused <= 1_000
        assert (second.facts, second.failed, extractor.read) == (1, 0, ["I like tea"])

    def test_memory_D7_what_the_store_refuses_is_paid_for_once_and_given_up_in_the_end(
        self, handle: Pagefile
    ) -> None:
        memory, extractor, clock = _memory(handle, Server(_REFUSED, _nothing), attempts=2)
        say(memory, "I like tea")
        full = LimitExceeded("facts", limit=1, wanted=2, next_step="remove some")
        told = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "_store", Refusing(handle.store, full))
            for _ in range(4):
                told.append(memory.consolidate().failed)
                clock.passes(days=1)
        after = memory.consolidate(), memory.consolidate(retry_failed=True)

        assert told == [1, 1, 0, 0]
        assert [one.facts for one in after] == [0, 1]
        assert extractor.read == ["I like tea"]

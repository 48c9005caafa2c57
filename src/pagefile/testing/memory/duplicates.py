"""Duplicates: kept, reported or merged, without a model."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.episodes.duplicates import Duplicate
from pagefile.memory.episodes.episode import Message, Role, ToolCall
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.context.ground import at_once
from pagefile.testing.memory.ground import (
    START,
    HashedWords,
    MemoryFixtures,
    Scripted,
    episode,
    inputs,
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

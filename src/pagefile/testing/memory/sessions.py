"""Sessions as messages: counted exactly, in order, no call without its answers."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from pagefile.memory.episodes.episode import Message, Role, ToolCall
from pagefile.memory.episodes.store import messages_of
from pagefile.memory.memory import Memory
from pagefile.testing.memory.ground import START, MemoryFixtures, episode, say

_CALLS = st.integers(1, 3)
#: A transcript: numbers are calls with that many answers, texts are what was said between.
_PARTS = st.lists(st.one_of(_CALLS, st.sampled_from(["a", "b"])), max_size=4)
_TEXTS = st.sampled_from(["", "x"])
_STORIES = st.lists(st.tuples(_TEXTS, _PARTS, _TEXTS), max_size=6)


#: A part of a story: ids that are called, an id that is answered, or None for a text.
_Part = tuple[str, ...] | str | None
_IDS = st.sampled_from(["a", "b", "c"])
_MIXED = st.lists(
    st.lists(
        st.one_of(st.lists(_IDS, min_size=1, max_size=2, unique=True).map(tuple), _IDS, st.none()),
        max_size=6,
    ),
    max_size=3,
)


def _message(part: _Part, text: str) -> Message:
    if part is None:
        return Message(Role.ASSISTANT, text)
    if isinstance(part, str):
        return Message(Role.TOOL, text, tool_call_id=part)
    return Message(Role.ASSISTANT, "", tool_calls=tuple(_call(name) for name in part))


def _units(whole: list[Message]) -> list[list[Message]]:
    """The model: each call with the first answer to each of its ids before the id is used again."""
    units: list[list[Message]] = []
    for at, message in enumerate(whole):
        if message.role == Role.TOOL:
            continue
        asked = {call.id for call in message.tool_calls}
        answers: list[Message] = []
        for later in whole[at + 1 :]:
            asked -= {call.id for call in later.tool_calls}
            if later.role == Role.TOOL and later.tool_call_id in asked:
                answers.append(later)
                asked.discard(later.tool_call_id)
        if len(answers) == len({call.id for call in message.tool_calls}):
            units.append([message, *answers])
    return units


def _call(name: str) -> ToolCall:
    return ToolCall(tool="t", id=name)


def _answer(name: str) -> Message:
    return Message(Role.TOOL, "r", tool_call_id=name)


def _told(message: Message) -> str:
    if message.tool_calls:
        return " ".join(["calls", *(call.id for call in message.tool_calls)])
    return f"answers {message.tool_call_id}" if message.role == Role.TOOL else message.content


def transcript(parts: list[int | str]) -> list[Message]:
    said: list[Message] = []
    for part in parts:
        if isinstance(part, str):
            said.append(Message(Role.ASSISTANT, part))
            continue
        calls = tuple(ToolCall(tool="t", id=f"c{n}") for n in range(part))
        said.append(Message(Role.ASSISTANT, "", tool_calls=calls))
        said += [Message(Role.TOOL, "r", tool_call_id=call.id) for call in calls]
    return said


class SessionsContract(MemoryFixtures):
    """What a conversation goes on from."""

    def test_a_session_is_told_in_the_order_it_was_said(self, memory: Memory) -> None:
        memory.remember(episode("q2", output="a2", at=START + timedelta(hours=2), speaker="Bob"))
        memory.remember(episode("q1", output="a1", tool_transcript=transcript([1])))
        told = memory.session_messages("s", user_id="ann")

        assert [(m.role.value, m.content) for m in told] == [
            ("user", "q1"),
            ("assistant", ""),
            ("tool", "r"),
            ("assistant", "a1"),
            ("user", "q2"),
            ("assistant", "a2"),
        ]
        assert told[4].name == "Bob"

    def test_the_limit_counts_messages(self, memory: Memory) -> None:
        for n in range(4):
            at = START + timedelta(hours=n)
            memory.remember(episode(f"q{n}", output=f"a{n}", at=at))
        told = {
            limit: [m.content for m in memory.session_messages("s", user_id="ann", limit=limit)]
            for limit in (0, 1, 2, 3, 10_000)
        }

        assert told[0] == []
        assert told[1] == ["a3"]
        assert told[2] == ["q3", "a3"]
        assert told[3] == ["a2", "q3", "a3"]
        assert told[10_000] == ["q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3"]

    def test_a_call_that_would_be_parted_from_its_answers_is_left_out(self, memory: Memory) -> None:
        memory.remember(episode("q", output="a", tool_transcript=transcript([2, 1])))
        told = {
            limit: len(memory.session_messages("s", user_id="ann", limit=limit))
            for limit in range(8)
        }

        assert told == {0: 0, 1: 1, 2: 1, 3: 3, 4: 3, 5: 3, 6: 6, 7: 7}

    def test_an_answer_to_nothing_is_left_out(self, memory: Memory) -> None:
        stray = Message(Role.TOOL, "r", tool_call_id="unknown")
        memory.remember(episode("q", output="a", tool_transcript=[stray]))

        assert [m.role.value for m in memory.session_messages("s", user_id="ann")] == [
            "user",
            "assistant",
        ]

    def test_an_answer_is_told_behind_its_call_wherever_it_came(self, memory: Memory) -> None:
        call = Message(Role.ASSISTANT, "", tool_calls=(_call("c1"), _call("c2")))
        late = [Message(Role.ASSISTANT, "wait"), _answer("c2"), _answer("c1")]
        memory.remember(episode("q1", tool_transcript=[call]))
        memory.remember(episode("q2", at=START + timedelta(hours=1), tool_transcript=late))
        told = {
            limit: [_told(m) for m in memory.session_messages("s", user_id="ann", limit=limit)]
            for limit in (20, 4, 2)
        }

        assert told[20] == ["q1", "calls c1 c2", "answers c2", "answers c1", "q2", "wait"]
        assert told[4] == told[2] == ["q2", "wait"]

    def test_a_call_that_was_not_answered_in_full_is_left_out(self, memory: Memory) -> None:
        half = Message(Role.ASSISTANT, "", tool_calls=(_call("c1"), _call("c2")))
        none = Message(Role.ASSISTANT, "I look it up", tool_calls=(_call("c3"),))
        told = [_answer("c2"), half, _answer("c1"), none]
        memory.remember(episode("q", output="a", tool_transcript=told))

        assert [_told(m) for m in memory.session_messages("s", user_id="ann")] == [
            "q",
            "I look it up",
            "a",
        ]

    def test_answers_that_name_no_call_belong_to_the_one_before_them(self, memory: Memory) -> None:
        call = Message(Role.ASSISTANT, "", tool_calls=(_call("c1"), _call("c2")))
        nameless = Message(Role.TOOL, "r")
        told = [nameless, call, nameless, nameless, nameless]
        memory.remember(episode("q", tool_transcript=told))

        assert [_told(m) for m in memory.session_messages("s", user_id="ann")] == [
            "q",
            "calls c1 c2",
            "answers c1",
            "answers c2",
        ]

    def test_whatever_is_interleaved_no_call_and_answer_are_parted(self, memory: Memory) -> None:
        """Any order of calls, answers and texts, over several episodes, against a model."""
        users = itertools.count()

        @settings(max_examples=60)
        @given(story=_MIXED, limit=st.integers(0, 15))
        def told_whole(story: list[list[_Part]], limit: int) -> None:
            user = f"m{next(users)}"
            whole: list[Message] = []
            for n, parts in enumerate(story):
                transcript = [_message(part, f"{n}.{at}") for at, part in enumerate(parts)]
                at = START + timedelta(minutes=n)
                memory.remember(episode("", user, at=at, tool_transcript=transcript))
                whole += transcript
            units = _units(whole)
            ends = [[m for unit in units[at:] for m in unit] for at in range(len(units) + 1)]
            told = memory.session_messages("s", user_id=user, limit=limit)

            assert told == next(end for end in ends if len(end) <= limit)

        told_whole()

    def test_a_session_belongs_to_one_user(self, memory: Memory) -> None:
        say(memory, "ann's", user="ann")
        say(memory, "bob's", user="bob")

        assert [m.content for m in memory.session_messages("s", user_id="ann")] == ["ann's"]
        assert memory.session_messages("s", user_id="eve") == []

    def test_sessions_with_names_like_each_other_are_apart(self, memory: Memory) -> None:
        names = ["", "s", "s ", "S", "s/1", "s\x00", "s\x001", "*", "%", "é", "e\u0301"]
        for name in names:
            memory.remember(episode(f"in {name!r}", session=name))

        assert [
            [m.content for m in memory.session_messages(name, user_id="ann")] for name in names
        ] == [[f"in {name!r}"] for name in names]

    def test_the_last_messages_are_the_longest_end_that_parts_nothing(self, memory: Memory) -> None:
        """Against a model: try every end of the whole, take the longest that is whole."""
        users = itertools.count()

        @settings(max_examples=40)
        @given(story=_STORIES, limit=st.integers(0, 25))
        def told_alike(story: list[tuple[str, list[int | str], str]], limit: int) -> None:
            user = f"u{next(users)}"
            episodes = [
                episode(
                    said,
                    user,
                    output=answer,
                    at=START + timedelta(minutes=n),
                    tool_transcript=transcript(parts),
                )
                for n, (said, parts, answer) in enumerate(story)
            ]
            memory.remember_many(episodes)
            whole = [message for one in episodes for message in messages_of(one)]
            ends = [whole[at:] for at in range(len(whole) + 1)]
            fitting = [end for end in ends if len(end) <= limit and _is_whole(end)]

            assert memory.session_messages("s", user_id=user, limit=limit) == fitting[0]

        told_alike()

    def test_a_long_session_is_read_only_as_far_as_it_is_wanted(self, memory: Memory) -> None:
        at = START
        memory.remember_many(
            [episode(f"q{n}", at=at + n * timedelta(minutes=1), id=f"e{n}") for n in range(800)]
        )
        told = memory.session_messages("s", user_id="ann", limit=700)

        assert [m.content for m in told] == [f"q{n}" for n in range(100, 800)]


def _is_whole(messages: list[Message]) -> bool:
    """Whether no answer stands here without its call."""
    return not messages or messages[0].role != Role.TOOL

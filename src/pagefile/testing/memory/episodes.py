"""Episodes: stored once, findable at once, each in its own partition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from pagefile.errors import LimitExceeded
from pagefile.handle import Pagefile
from pagefile.memory.episodes.episode import Episode, Image, Message, Role, ToolCall, ToolDef
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.memory.ground import START, MemoryFixtures, episode, inputs, outcome, say

TRANSCRIPT = (
    Message(
        Role.ASSISTANT, "", tool_calls=(ToolCall(tool="find", id="c1", args={"q": [1, None]}),)
    ),
    Message(Role.TOOL, "found", name="find", tool_call_id="c1", images=(Image("aGk="),)),
)


class EpisodesContract(MemoryFixtures):
    """Finished exchanges."""

    def test_memory_D14_remembering_the_same_again_stores_nothing(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        said = episode("hello there", id="e1", output="hi", tool_transcript=TRANSCRIPT)
        memory.remember(said)
        head = handle.store.head()
        told = [memory.remember(said), Memory(backend.open(), embedder=None).remember(said)]

        assert told == ["e1", "e1"]
        assert handle.store.head() == head

    def test_everything_of_an_episode_is_kept(self, memory: Memory) -> None:
        call = ToolCall(
            tool="pay",
            id="c9",
            args={"to": "bob", "sum": 1.5, "deep": {"a": [True]}},
            tool_def=ToolDef("pay", "Pays.", {"type": "object"}, "bank", True),
            destructive=True,
        )
        said = episode(
            "question",
            output="answer",
            id="e:1@x",
            speaker="Zoé",
            tool_calls=[call],
            tool_transcript=list(TRANSCRIPT),
        )
        memory.remember(said)

        assert memory.episode("e:1@x", user_id="ann") == said
        assert memory.recall("answer", user_id="ann") == [said]

    def test_memory_D9_a_later_version_without_a_transcript_keeps_the_one_there_is(
        self, memory: Memory
    ) -> None:
        memory.remember(episode("one", id="e", tool_transcript=TRANSCRIPT))
        memory.remember(episode("two", id="e"))
        kept = memory.episode("e", user_id="ann")
        memory.remember(episode("two", id="e", tool_transcript=()))
        emptied = memory.episode("e", user_id="ann")

        assert (kept.input, kept.tool_transcript) == ("two", TRANSCRIPT)
        assert emptied.tool_transcript == ()

    def test_a_later_version_that_says_nothing_of_tools_keeps_the_calls_there_are(
        self, memory: Memory
    ) -> None:
        first, other = ToolCall(tool="find", id="c1"), ToolCall(tool="read", id="c2")
        kept: list[Sequence[ToolCall]] = []
        for fields in (
            {"tool_calls": [first]},
            {},
            {"tool_calls": [other]},
            {"tool_transcript": ()},
        ):
            memory.remember(episode(f"said {len(kept)}", id="e", **fields))
            kept.append(memory.episode("e", user_id="ann").tool_calls)

        assert kept == [(first,), (first,), (other,), ()]

    def test_a_changed_episode_is_found_by_what_it_says_now(self, memory: Memory) -> None:
        memory.remember(episode("apricots ripen", id="e"))
        memory.remember(episode("bicycles rust", id="e"))

        assert inputs(memory.recall("bicycles", user_id="ann")) == ["bicycles rust"]
        assert memory.recall("apricots", user_id="ann") == []
        assert memory.profile(user_id="ann").episode_count == 1

    def test_memory_I1_the_same_id_under_two_users_is_two_episodes(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        memory.remember(episode("the first's", "ann", id="e"))
        before = memory.episode("e", user_id="ann")
        memory.remember(episode("the second's", "bob", id="e"))
        told = [memory.episode("e", user_id=user).input for user in ("ann", "bob")]
        memory.forget(user_id="bob")

        assert told == ["the first's", "the second's"]
        assert memory.episode("e", user_id="ann") == before
        assert inputs(memory.recall("first second", user_id="ann")) == ["the first's"]

    def test_many_are_stored_together_or_not_at_all(self, handle: Pagefile, memory: Memory) -> None:
        memory.remember(episode("gone", "bob", id="x"))
        memory.forget(user_id="bob")
        head = handle.store.head()
        fresh = [episode(f"n{n}", "ann", id=f"e{n}") for n in range(3)]
        refused = outcome(memory.remember_many, [*fresh, episode("gone", "bob", id="x")])

        assert (refused, handle.store.head()) == ("Forbidden", head)
        assert memory.remember_many(fresh) == ["e0", "e1", "e2"]
        assert handle.store.head().position == head.position + 1

    def test_a_thousand_are_stored_in_one_commit_and_one_more_is_refused(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        memory.remember(episode("first", id="first"))
        head = handle.store.head()
        many = [episode(f"word{n}", f"u{n % 3}", id=f"e{n}") for n in range(1_001)]
        with pytest.raises(LimitExceeded):
            memory.remember_many(many)
        refused = handle.store.head() == head
        told = memory.remember_many(many[:1_000])

        assert (refused, told) == (True, [f"e{n}" for n in range(1_000)])
        assert handle.store.head().position == head.position + 1
        assert inputs(memory.recall("word998", user_id="u2"))[0] == "word998"

    def test_none_at_all_is_nothing(self, handle: Pagefile, memory: Memory) -> None:
        head = handle.store.head()

        assert (memory.remember_many([]), handle.store.head()) == ([], head)

    def test_of_episodes_of_one_moment_the_later_id_is_the_newer(self, memory: Memory) -> None:
        for name in ("b", "c", "a"):
            memory.remember(episode(name, id=name))

        assert inputs(memory.recall("", user_id="ann")) == ["c", "b", "a"]
        assert [m.content for m in memory.session_messages("s", user_id="ann")] == ["a", "b", "c"]

    def test_both_ends_of_a_time_range_are_in_it(self, memory: Memory) -> None:
        say(memory, *"abcde")
        minute = timedelta(minutes=1)
        ranges = [
            (START + minute, START + 3 * minute),
            (START + 3 * minute, None),
            (None, START),
            (START, START),
        ]

        assert [inputs(memory.recall("", time_range=r, user_id="ann")) for r in ranges] == [
            ["d", "c", "b"],
            ["e", "d"],
            ["a"],
            ["a"],
        ]

    def test_memory_I6_nothing_that_is_given_out_can_change_what_is_stored(
        self, memory: Memory
    ) -> None:
        args = {"list": [1]}
        memory.remember(episode("text", id="e", tool_calls=[ToolCall(tool="t", args=args)]))
        args["list"].append(2)
        given = memory.recall("text", user_id="ann")[0]
        with pytest.raises(AttributeError):
            given.user_id = "bob"  # type: ignore[misc]
        given.tool_calls[0].args["list"].append(3)

        assert memory.episode("e", user_id="ann").tool_calls[0].args == {"list": [1]}
        assert memory.recall("text", user_id="bob") == []

    def test_a_snapshot_shows_blocks_and_episodes_as_plain_values(self, memory: Memory) -> None:
        memory.update_block("b", "text", user_id="ann")
        say(memory, "one", "two")
        told = memory.snapshot(user_id="ann")

        assert [block["content"] for block in told["blocks"]] == ["text"]
        assert [each["input"] for each in told["episodes"]] == ["one", "two"]

    def test_an_episode_tells_itself_in_one_line(self) -> None:
        told = Episode(session_id="s", input="in\n", output="out", occurred_at=START).format()

        assert told == "[2026-03-02T09:00:00+00:00] 'in\\n' -> 'out'"

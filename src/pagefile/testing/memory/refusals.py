"""Bad input: a typed error, and everything as before."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from pagefile.errors import PagefileError
from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy
from pagefile.memory.consolidation.worker import ConsolidationWorker
from pagefile.memory.episodes.episode import Episode, Message, Role, ToolCall
from pagefile.memory.memory import Memory
from pagefile.testing.memory.ground import MemoryFixtures, episode, fact, outcome, say
from pagefile.testing.memory.unfit import (
    CALLS,
    CALLS_OF_A_USER,
    NO_CONSTRUCTIONS,
    NO_FIELDS,
    NO_MESSAGES,
    NO_POLICIES,
    NO_TOOL_CALLS,
    NO_USERS,
)


class RefusalsContract(MemoryFixtures):
    """Every public call with what it cannot take."""

    @pytest.mark.parametrize("call", CALLS)
    def test_what_a_call_cannot_take_is_refused_in_our_words(
        self, handle: Pagefile, memory: Memory, call: str
    ) -> None:
        work, wrong = CALLS[call]
        say(memory, "something", user="ann")
        memory.facts.append(fact("Kyoto"))
        memory.update_block("b", "text", user_id="ann")
        head = handle.store.head()
        told = {_named(n, value): outcome(work, memory, value) for n, value in enumerate(wrong)}

        assert _not_refused(told) == {}
        assert handle.store.head() == head

    @pytest.mark.parametrize("call", CALLS_OF_A_USER)
    def test_who_cannot_be_a_user_is_refused(
        self, handle: Pagefile, memory: Memory, call: str
    ) -> None:
        head = handle.store.head()
        told = [outcome(CALLS_OF_A_USER[call], memory, user) for user in NO_USERS]

        assert told == ["Invalid"] * len(NO_USERS)
        assert handle.store.head() == head

    @pytest.mark.parametrize("field", NO_FIELDS)
    def test_an_episode_that_could_not_be_read_again_is_never_stored(
        self, handle: Pagefile, memory: Memory, field: str
    ) -> None:
        head = handle.store.head()

        def remember(value: Any) -> None:
            fields: dict[str, Any] = {"session_id": "s", "input": "x", field: value}
            memory.remember(Episode(**fields))

        told = {
            _named(n, value): outcome(remember, value) for n, value in enumerate(NO_FIELDS[field])
        }

        assert _not_refused(told) == {}
        assert handle.store.head() == head

    def test_messages_and_calls_that_could_not_be_read_again_are_never_stored(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        head = handle.store.head()

        def said(parts: tuple[Any, ...]) -> None:
            memory.remember(episode("x", tool_transcript=[Message(*parts)]))

        def called(parts: dict[str, Any]) -> None:
            memory.remember(episode("x", tool_calls=[ToolCall(**parts)]))

        def within(parts: dict[str, Any]) -> None:
            call = Message(Role.ASSISTANT, "", tool_calls=(ToolCall(**parts),))
            memory.remember(episode("x", tool_transcript=[call]))

        told = [outcome(said, parts) for parts in NO_MESSAGES]
        told += [outcome(work, parts) for work in (called, within) for parts in NO_TOOL_CALLS]

        assert [each for each in told if each != "Invalid"] == []
        assert handle.store.head() == head

    @pytest.mark.parametrize("option", NO_CONSTRUCTIONS)
    def test_a_memory_is_not_made_with_what_it_could_not_use(
        self, handle: Pagefile, option: str
    ) -> None:
        wrong = NO_CONSTRUCTIONS[option]
        told = [outcome(Memory, handle, **{option: value}) for value in wrong]

        assert told == ["Invalid"] * len(wrong)

    @pytest.mark.parametrize("field", NO_POLICIES)
    def test_a_policy_that_bounds_nothing_is_refused(self, handle: Pagefile, field: str) -> None:
        wrong = NO_POLICIES[field]
        policies = [ConsolidationPolicy(**{field: value}) for value in wrong]
        told = [outcome(Memory, handle, embedder=None, policy=policy) for policy in policies]

        assert told == ["Invalid"] * len(wrong)

    @pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "1", None, True])
    def test_a_worker_needs_a_time_between_its_rounds(self, memory: Memory, wrong: Any) -> None:
        assert outcome(ConsolidationWorker, memory, interval_seconds=wrong) == "Invalid"

    def test_moments_at_the_ends_of_time_can_be_remembered_and_found(self, memory: Memory) -> None:
        moments = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
        for n, moment in enumerate(moments):
            memory.remember(episode("far away", at=moment, id=f"e{n}"))
        found = memory.recall("", time_range=(moments[0], moments[1]), user_id="ann")
        receipt = memory.forget(user_id="ann", session_id="s", before=moments[1], dry_run=True)

        assert [one.occurred_at for one in found] == moments[::-1]
        assert receipt.counts["episodes"] == 1

    def test_odd_text_is_kept_as_it_is(self, memory: Memory) -> None:
        odd = ["\x00 \x07", "🦊" * 50, "a\u202eb", "\ufeff", "ﬁ ½ ①", "' OR 1=1 --", "%_*?["]
        ids = say(memory, *odd)
        for text in odd:
            memory.append_block("b", text, user_id="ann")
            memory.recall(text, user_id="ann")

        assert [memory.episode(one, user_id="ann").input for one in ids] == odd
        assert memory.block("b", user_id="ann").content == "".join(odd)

    def test_no_error_shows_a_long_text_in_full(self, memory: Memory) -> None:
        secret = "secret " * 1_000
        told: list[str] = []
        for work in (
            lambda: memory.recall(secret * 20, user_id="ann"),
            lambda: memory.block(secret, user_id="ann"),
            lambda: memory.episode(secret, user_id="ann"),
            lambda: memory.working(user_id=secret),
        ):
            with pytest.raises(PagefileError) as caught:
                work()
            told.append(str(caught.value))

        assert max(map(len, told)) < 500


def _named(number: int, value: Any) -> str:
    return f"{number}: {value!r}"[:80]


def _not_refused(told: dict[str, str]) -> dict[str, str]:
    return {name: told for name, told in told.items() if told == "done" or told.startswith("raw")}

"""Following a thread: its slots as they come, through a buffer, a view or a handle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pagefile.aio import AsyncPagefile
from pagefile.context.buffer import ContextBuffer
from pagefile.context.thread import AsyncSlotFollower, SlotFollower
from pagefile.errors import Invalid
from pagefile.handle import Pagefile
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import ContextFixtures, indexes, payloads, say

#: Far more than any step takes: what does not come by then does not come.
_PATIENCE = 60.0

_FOLLOW: dict[str, Callable[..., SlotFollower]] = {
    "buffer": lambda b, after=None, **how: b.follow("t", after, **how),
    "view": lambda b, after=None, **how: b.get_or_create_thread("t").follow(after, **how),
    "handle": lambda b, after=None, **how: b.handle("t").follow(after, **how),
}
_FOLLOW_ASYNC: dict[str, Callable[..., AsyncSlotFollower]] = {
    "buffer": lambda b, after=None, **how: b.follow_async("t", after, **how),
    "view": lambda b, after=None, **how: b.get_or_create_thread("t").follow_async(after, **how),
    "handle": lambda b, after=None, **how: b.handle("t").follow_async(after, **how),
}


def _there(follower: SlotFollower) -> list[Any]:
    """What comes without waiting; the follower was made with no time to wait."""
    return payloads(follower)


def _taken(follower: SlotFollower, count: int) -> list[Any]:
    return [next(follower).payload for _ in range(count)]


def _told(story: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(story, _PATIENCE))


class FollowingContract(ContextFixtures):
    """`follow` and `follow_async`: where they begin, what they show, when they end."""

    # Where it begins

    @pytest.mark.parametrize("way", _FOLLOW)
    def test_slots_are_followed_from_behind_an_index(self, buffer: ContextBuffer, way: str) -> None:
        say(buffer, "t", *range(5))
        found = [_there(_FOLLOW[way](buffer, after, timeout=0)) for after in (-1, 2, 4, 9)]

        assert found == [[0, 1, 2, 3, 4], [3, 4], [], []]

    @pytest.mark.parametrize("way", _FOLLOW)
    def test_without_an_index_one_follows_from_now_on(
        self, buffer: ContextBuffer, way: str
    ) -> None:
        say(buffer, "t", "before")
        with _FOLLOW[way](buffer, timeout=_PATIENCE) as follower:
            say(buffer, "other", "elsewhere")
            say(buffer, "t", "one", "two")

            assert _taken(follower, 2) == ["one", "two"]

    @pytest.mark.parametrize("way", _FOLLOW)
    def test_a_thread_that_is_not_there_yet_is_followed_from_its_first_slot(
        self, buffer: ContextBuffer, way: str
    ) -> None:
        with _FOLLOW[way](buffer, timeout=_PATIENCE) as follower:
            say(buffer, "t", "first")

            assert _taken(follower, 1) == ["first"]

    @pytest.mark.parametrize("after", [-2, "0", 1.0, True, 2**40], ids=repr)
    def test_what_is_no_index_to_follow_from_is_refused(
        self, buffer: ContextBuffer, after: Any
    ) -> None:
        say(buffer, "t", 1)
        for follow in (*_FOLLOW.values(), *_FOLLOW_ASYNC.values()):
            with pytest.raises(Invalid, match="after"):
                follow(buffer, after)

    # What it shows

    def test_a_follower_shows_the_slots_that_a_reader_gets(self, buffer: ContextBuffer) -> None:
        buffer.append("t", {"n": 1}, "ann", "bob", "bob-2", True, "How.", "Left: 2", user_id="u")
        say(buffer, "t", 2)
        followed = list(buffer.follow("t", -1, timeout=0))
        read = buffer.get_thread_slots("t")

        assert followed == read
        assert [slot.metadata for slot in followed] == [slot.metadata for slot in read]
        assert [slot.position for slot in followed] == [slot.position for slot in read]

    def test_what_a_handle_follows_has_no_position(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", 1)
        with buffer.handle("t").follow(-1, timeout=_PATIENCE) as follower:
            say(buffer, "t", 2)
            slots = [next(follower), next(follower)]

        assert [(slot.position, slot.entry.position) for slot in slots] == [(None, 0)] * 2

    def test_what_other_handles_append_is_followed_without_gap(
        self, backend: Backend, buffer: ContextBuffer
    ) -> None:
        others = [backend.open().context for _ in range(3)]
        writers = [threading.Thread(target=say, args=(other, "t", *range(10))) for other in others]
        with buffer.follow("t", timeout=_PATIENCE) as follower:
            for writer in writers:
                writer.start()
            followed = [next(follower) for _ in range(30)]
        for writer in writers:
            writer.join()

        assert indexes(followed) == list(range(30))
        assert followed == buffer.get_thread_slots("t")

    def test_a_fork_is_followed_through_what_it_shares_and_not_its_parents_future(
        self, buffer: ContextBuffer
    ) -> None:
        say(buffer, "parent", 0, 1, 2)
        buffer.fork("parent", 2, new_id="t")
        with buffer.follow("t", -1, timeout=_PATIENCE) as follower:
            say(buffer, "parent", "theirs")
            say(buffer, "t", "own")
            slots = [next(follower) for _ in range(3)]

        assert (indexes(slots), payloads(slots)) == ([0, 1, 2], [0, 1, "own"])
        assert {slot.thread_id for slot in slots} == {"t"}

    # When it ends

    @pytest.mark.parametrize("way", _FOLLOW)
    def test_a_deleted_thread_is_followed_to_its_end_and_no_later_one(
        self, buffer: ContextBuffer, way: str
    ) -> None:
        say(buffer, "t", 1)
        follower = _FOLLOW[way](buffer, timeout=_PATIENCE)
        say(buffer, "t", 2)
        first = next(follower).payload
        buffer.delete_thread("t")
        say(buffer, "t", "another thread")

        assert (first, _there(follower)) == (2, [])

    def test_a_parent_that_is_deleted_ends_none_who_follow_its_fork(
        self, buffer: ContextBuffer
    ) -> None:
        say(buffer, "parent", 0, 1)
        buffer.fork("parent", new_id="t")
        with buffer.follow("t", -1, timeout=_PATIENCE) as follower:
            buffer.delete_thread("parent")
            say(buffer, "t", 2)

            assert _taken(follower, 3) == [0, 1, 2]

    @pytest.mark.parametrize("way", _FOLLOW)
    def test_closing_a_follower_wakes_who_waits_for_a_slot(
        self, buffer: ContextBuffer, way: str
    ) -> None:
        ended: list[list[Any]] = []
        follower = _FOLLOW[way](buffer)
        waiting = threading.Thread(target=lambda: ended.append(_there(follower)), daemon=True)
        waiting.start()
        follower.close()
        waiting.join(_PATIENCE)

        assert ended == [[]]

    # Awaited

    @pytest.mark.parametrize("way", _FOLLOW_ASYNC)
    def test_a_loop_follows_what_is_there_and_what_comes(
        self, buffer: ContextBuffer, way: str
    ) -> None:
        async def story() -> list[Any]:
            async with _FOLLOW_ASYNC[way](buffer, 0) as follower:
                first = await anext(follower)
                await buffer.append_async("t", 2, "a", "b", usage_instructions="How.")
                second = await anext(follower)
                return [first.payload, second.payload, second.metadata.usage_instructions]

        say(buffer, "t", 0, 1)

        assert _told(story()) == [1, 2, "How."]

    @pytest.mark.parametrize("way", _FOLLOW_ASYNC)
    def test_a_step_that_is_cancelled_loses_no_slot(self, buffer: ContextBuffer, way: str) -> None:
        async def story() -> list[Any]:
            async with _FOLLOW_ASYNC[way](buffer) as follower:
                step = asyncio.ensure_future(anext(follower))
                await asyncio.sleep(0)
                step.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await step
                await asyncio.to_thread(say, buffer, "t", 1, 2)
                return [(await anext(follower)).payload for _ in range(2)]

        say(buffer, "t", 0)

        assert _told(story()) == [1, 2]

    @pytest.mark.parametrize("way", ["closed", "deleted", "timed out"])
    def test_a_loop_that_follows_comes_to_an_end(self, buffer: ContextBuffer, way: str) -> None:
        async def story() -> list[Any]:
            follower = buffer.follow_async("t", -1, timeout=0 if way == "timed out" else None)
            first = await anext(follower)
            if way == "deleted":
                await asyncio.to_thread(buffer.delete_thread, "t")
            elif way == "closed":
                await follower.aclose()
            return [first.payload, [slot.payload async for slot in follower]]

        say(buffer, "t", 0)

        assert _told(story()) == [0, []]

    def test_an_async_buffer_follows_without_being_awaited(self, handle: Pagefile) -> None:
        async def story() -> list[Any]:
            awaited = AsyncPagefile(handle).context
            async with awaited.follow("t", -1) as follower:
                await awaited.append("t", 1, "a", "b")
                return [(await anext(follower)).payload]

        assert _told(story()) == [1]

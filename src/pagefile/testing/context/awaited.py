"""The same, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pagefile.aio import AsyncContextBuffer, AsyncPagefile
from pagefile.context.appender import NewSlot
from pagefile.errors import Conflict, Forbidden, Invalid, LimitExceeded
from pagefile.handle import Pagefile
from pagefile.testing.backend import promise
from pagefile.testing.context.ground import ContextFixtures, payloads, say


class AwaitedContract(ContextFixtures):
    """`pagefile.aio`: one loop, many tasks."""

    @pytest.fixture
    def awaited(self, handle: Pagefile) -> AsyncContextBuffer:
        return AsyncPagefile(handle).context

    @pytest.mark.parametrize("text", [[], {}, 1, b""], ids=repr)
    def test_a_usage_text_that_is_none_is_refused_in_our_words(
        self, awaited: AsyncContextBuffer, text: Any
    ) -> None:
        with pytest.raises(Invalid, match="usage_instructions"):
            asyncio.run(awaited.append("t", 1, "a", "b", usage_instructions=text))

    @promise("S2")
    def test_threads_M17_64_tasks_append_without_gap_or_loss(
        self, handle: Pagefile, awaited: AsyncContextBuffer
    ) -> None:
        async def write(task: int) -> list[tuple[int, Any]]:
            slots = [await awaited.append("t", f"{task}-{n}", "a", "b") for n in range(5)]
            return [(slot.index, slot.payload) for slot in slots]

        async def story() -> list[tuple[int, Any]]:
            told = await asyncio.gather(*(write(task) for task in range(64)))
            return sorted(pair for pairs in told for pair in pairs)

        acknowledged = asyncio.run(story())

        assert [index for index, _ in acknowledged] == list(range(320))
        assert [p for _, p in acknowledged] == payloads(handle.context.get_thread_slots("t"))

    @promise("S3")
    def test_of_64_tasks_that_expect_one_length_one_wins(self, awaited: AsyncContextBuffer) -> None:
        async def claim(task: int) -> bool:
            try:
                await awaited.append("t", task, "a", "b", expected_len=0)
            except Conflict:
                return False
            return True

        async def story() -> int:
            return sum(await asyncio.gather(*(claim(task) for task in range(64))))

        assert asyncio.run(story()) == 1

    @promise("S8")
    def test_threads_M01_64_tasks_never_pass_the_slot_limit(
        self, handle: Pagefile, awaited: AsyncContextBuffer
    ) -> None:
        handle.context.max_slots_per_thread = 40

        async def story() -> int:
            appends = (awaited.append("t", task, "a", "b") for task in range(64))
            told = await asyncio.gather(*appends, return_exceptions=True)
            return sum(isinstance(each, LimitExceeded) for each in told)

        assert (asyncio.run(story()), handle.store.length("thread/t")) == (24, 40)

    def test_threads_M17_a_view_is_awaited_and_walked(self, awaited: AsyncContextBuffer) -> None:
        async def story() -> list[Any]:
            many = [NewSlot(n, "a" if n % 2 else "c", "b") for n in range(1_200)]
            await awaited.append_many("t", many)
            view = await awaited.get_thread("t")
            assert view is not None
            walked = [slot.payload async for slot in view]
            tail = await view.tail(2)
            found = await view.get_from("a")
            return [walked, payloads(tail), len(found), await view.length()]

        assert asyncio.run(story()) == [list(range(1_200)), [1_198, 1_199], 600, 1_200]

    def test_threads_M17_a_handle_writes_when_it_may(self, awaited: AsyncContextBuffer) -> None:
        async def story() -> list[Any]:
            mine = await awaited.handle("t", write=True)
            slot = await mine.append("hello", "a", "b", usage_instructions="How.")
            read = await awaited.handle("t")
            with pytest.raises(Forbidden):
                await read.append("forged", "system", "b")
            first = await read.at(0)
            return [slot.position, first.payload, first.metadata.usage_instructions]

        assert asyncio.run(story()) == [None, "hello", "How."]

    def test_what_sync_refuses_is_refused_when_awaited(
        self, handle: Pagefile, awaited: AsyncContextBuffer
    ) -> None:
        buffer: Any = awaited
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: buffer.append([], 1, "a", "b"),
            lambda: buffer.append("t", 1, [], "b"),
            lambda: buffer.append("t", 1, "a", "b", usage_instructions=[]),
            lambda: buffer.append("t", object(), "a", "b", usage_instructions="new"),
            lambda: buffer.append("t", 1, "a", "b", expected_len="1"),
            lambda: buffer.append_many("t", None),
            lambda: buffer.append_many("t", ["x"]),
            lambda: buffer.append_many("t", []),
        ]

        async def story() -> None:
            for call in calls:
                with pytest.raises(Invalid):
                    await call()

        say(handle.context, "t", 1)
        before = handle.store.head()
        asyncio.run(story())

        assert handle.store.head() == before

    def test_evictions_reach_those_who_await(self, awaited: AsyncContextBuffer) -> None:
        async def story() -> list[Any]:
            for n in range(3):
                await awaited.append(f"t{n}", n, "a", "b")
            awaited._sync.max_threads = 2  # type: ignore[attr-defined]
            await awaited.append("new", 1, "a", "b", key="k")
            stats = await awaited.get_stats()
            return [stats["resident_threads"], await awaited.sweep()]

        assert asyncio.run(story()) == [2, []]

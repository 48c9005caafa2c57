"""What is kept outlives handles, crashes and releases, and is served to many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pagefile
import pagefile.aio
from pagefile.aio import AsyncPagefile
from pagefile.aio.memory import AsyncMemory
from pagefile.errors import Forbidden
from pagefile.handle import Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.memory import Memory
from pagefile.store.batch import Batch, Put
from pagefile.store.commit.committer import Committer
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.fixtures import at_once
from pagefile.testing.faults import FaultyEngine
from pagefile.testing.memory.fixtures import (
    HashedWords,
    MemoryFixtures,
    episode,
    export_lines,
    fact,
    inputs,
    objects,
    outcome,
    say,
)


class KeepingContract(MemoryFixtures):
    """Durability, threads, loops."""

    def test_memory_D1_a_memory_of_its_own_needs_no_file(self) -> None:
        with Memory(embedder=None) as one, Memory("memory:", embedder=None) as other:
            say(one, "hello")
            one.update_block("b", "x", user_id="ann")

            assert inputs(one.recall("hello", user_id="ann")) == ["hello"]
            assert one.block("b", user_id="ann").content == "x"
            assert other.recall("hello", user_id="ann") == []

    @promise("S4")
    def test_memory_D2_what_was_acknowledged_outlives_the_process(self, backend: Backend) -> None:
        memory = Memory(backend.open(), embedder=None)
        say(memory, "hello")
        for n in range(5):
            memory.append_block("b", str(n), user_id="ann")
        memory.facts.append(fact("Oslo"))
        lines = export_lines(memory)
        backend.crash()
        later = Memory(backend.open(), embedder=None)

        assert export_lines(later) == lines
        assert later.block("b", user_id="ann").content == "01234"
        assert inputs(later.recall("hello", user_id="ann")) == ["hello"]

    def test_memory_D2_appends_of_eight_threads_are_all_there(self, backend: Backend) -> None:
        memories = [Memory(backend.open(), embedder=None) for _ in range(8)]

        def work(n: int) -> None:
            for k in range(10):
                memories[n].append_block("b", f"{n}.{k};", user_id="ann")
                memories[n].update_block(f"own{n}", "x", user_id="ann")

        at_once(work)
        parts = memories[0].block("b", user_id="ann").content.split(";")[:-1]
        order = [block.pinned_order for block in memories[0].working(user_id="ann")]

        assert sorted(parts) == sorted(f"{n}.{k}" for n in range(8) for k in range(10))
        assert order == list(range(9))

    def test_memory_D3_what_an_earlier_release_wrote_is_read(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        """Documents without the fields that came later."""
        whose = owner_key("ann")
        old = {
            "id": "e",
            "session_id": "s",
            "user_id": "ann",
            "occurred_at": "2026-03-02T09:00:00+00:00",
            "input": "hello",
            "output": "",
        }
        block = {
            "name": "b",
            "content": "text",
            "updated_at": "2026-03-02T09:00:00+00:00",
            "pinned_order": 0,
        }
        memory.update_block("b", "first", user_id="ann")
        (name,) = handle.store.names("document", prefix=f"memory/block/{whose}/")
        handle.store.commit(
            Batch(
                [
                    Put(f"memory/episode/{whose}/e", old, user="ann", kind="episode"),
                    Put(name, block, user="ann", kind="block"),
                ]
            )
        )
        memory.reindex()

        assert memory.episode("e", user_id="ann").speaker is None
        assert memory.block("b", user_id="ann").content == "text"
        assert inputs(memory.recall("hello", user_id="ann")) == ["hello"]

    def test_memory_D4_the_first_call_needs_no_preparation(self, backend: Backend) -> None:
        first: list[Callable[[Memory], Any]] = [
            lambda m: m.recall("x", user_id="ann"),
            lambda m: m.working(user_id="ann"),
            lambda m: m.profile(user_id="ann").episode_count,
            lambda m: int(m.forget(user_id="ann")),
            lambda m: m.consolidate().episodes,
            lambda m: m.reindex(),
            lambda m: m.users(),
            lambda m: m.duplicates(user_id="ann"),
        ]
        told = [
            work(Memory(backend.open(f"tenant{n}"), embedder=None)) for n, work in enumerate(first)
        ]

        assert told == [[], [], 0, 0, 0, 0, [], []]

    def test_memory_D11_one_memory_serves_many_threads(self, memory: Memory) -> None:
        def work(n: int) -> list[str]:
            found = []
            for k in range(6):
                say(memory, f"apple{n}x{k}", user=f"u{n % 3}", session=f"{n}-{k}")
                found += inputs(memory.recall(f"apple{n}x{k}", limit=1, user_id=f"u{n % 3}"))
                memory.append_block("b", "x", user_id="shared")
            return found

        told = at_once(work)

        assert told == [[f"apple{n}x{k}" for k in range(6)] for n in range(8)]
        assert memory.block("b", user_id="shared").content == "x" * 48

    def test_memory_D11_one_store_serves_several_loops(self, handle: Pagefile) -> None:
        """Each loop has its own async face, on one memory."""
        shared = Memory(handle, embedder=None)

        async def story(n: int) -> int:
            memory = AsyncMemory(shared)
            await asyncio.gather(
                *(memory.remember(episode(f"w{n}x{k}", id=f"e{n}-{k}")) for k in range(20))
            )
            return len(await memory.recall("", limit=1_000, user_id="ann"))

        at_once(lambda n: asyncio.run(story(n)), 4)

        assert shared.profile(user_id="ann").episode_count == 80

    def test_memory_D15_a_file_is_safe_from_power_cuts_unless_asked_otherwise(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        wanted = "power" if "S4" in backend.promises else "none"

        assert handle.stats().durability == wanted

    def test_memory_D17_the_chain_of_commits_proves_what_was_there(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "one", "two")
        known = handle.store.head()
        memory.forget(user_id="ann")
        say(memory, "three")
        later = backend.open()
        store, lying = later.store, FaultyEngine(later.store._engine, "changed_byte")
        altered = Store(lying, Committer(lying), store._preparer, store.tenant).verify()
        other = msgspec.structs.replace(known, digest=bytes(32))

        assert later.verify(head=known).problems == ()
        assert altered.problems != ()
        assert [one.position for one in later.verify(head=other).problems] == [known.position]

    def test_after_the_handle_is_closed_every_call_says_so(self, backend: Backend) -> None:
        handle = pagefile.open(backend.url or "memory:")
        memory = Memory(handle, embedder=None)
        say(memory, "hello")
        handle.close()

        assert [
            outcome(say, memory, "more"),
            outcome(memory.recall, "hello", user_id="ann"),
            outcome(memory.working, user_id="ann"),
            outcome(memory.forget, user_id="ann"),
        ] == ["Forbidden"] * 4

    def test_the_same_awaited(self, handle: Pagefile, tmp_path: Path) -> None:
        async def story() -> None:
            memory = AsyncPagefile(handle).memory
            name = await memory.remember(episode("hello there", id="e"))
            await memory.update_block("b", "text", user_id="ann")
            await memory.facts.append(fact("Oslo"))
            lines = [line async for line in await memory.export(user_id="ann")]
            written = await (await memory.export(user_id="ann")).write(tmp_path / "ann.jsonl")

            assert name == "e"
            assert inputs(await memory.recall("hello", user_id="ann")) == ["hello there"]
            assert objects(await memory.recall_facts("Oslo", user_id="ann")) == ["Oslo"]
            assert [block.name for block in await memory.working(user_id="ann")] == ["b"]
            assert (len(lines), written) == (5, 3)
            assert (await memory.consolidate()).episodes == 1
            assert await memory.proposals.waiting(user_id="ann") == []
            assert (await memory.why("e", user_id="ann")).kind == "episode"
            assert (await memory.profile(user_id="ann")).episode_count == 1
            assert len((await memory.graph.neighbors("user", user_id="ann")).edges) == 1
            receipt = await memory.forget(user_id="ann")
            assert receipt >= 3
            assert (await memory.import_(lines)).records == 0
            assert await memory.recall("hello", user_id="ann") == []
            await memory.reindex()

        asyncio.run(story())

    def test_episodes_awaited_at_once_are_each_stored_as_one_after_the_other(
        self, handle: Pagefile
    ) -> None:
        """Some are there already, some have no vector, some say something new under an id."""
        memory = Memory(handle, embedder=HashedWords())
        vector = HashedWords().embed("pear")
        awaited = AsyncMemory(memory)

        async def story() -> list[str]:
            twice = [episode(f"pear {n}", id=f"e{n}", embedding=vector) for n in range(10)] * 2
            bare = [episode(f"plum {n}", id=f"b{n}") for n in range(5)]
            await asyncio.gather(*(awaited.remember(one) for one in [*twice, *bare]))
            await awaited.remember(episode("pear again", id="e0", embedding=vector))
            await awaited.remember_many([episode(f"fig {n}", id=f"f{n}") for n in range(3)])
            return inputs(await awaited.recall("pear", user_id="ann", limit=50))

        found = asyncio.run(story())

        assert {text for text in found if text.startswith("pear")} == {
            "pear again",
            *(f"pear {n}" for n in range(1, 10)),
        }
        assert memory.profile(user_id="ann").episode_count == 18

    def test_tasks_that_remember_at_once_share_commits_and_each_finds_its_own(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "first", user="u0")
        before = handle.store.head().position
        awaited = AsyncMemory(memory)

        async def task(number: int) -> list[str]:
            mine = f"u{number % 7}"
            name = await awaited.remember(episode(f"fact {number}", id=f"e{number}", user=mine))
            found = await awaited.recall(f"{number}", user_id=mine, limit=1)
            return [name, *inputs(found)]

        async def story() -> list[list[str]]:
            return await asyncio.gather(*map(task, range(150)))

        told = asyncio.run(story())

        assert told == [[f"e{number}", f"fact {number}"] for number in range(150)]
        assert handle.store.head().position - before < 75
        assert handle.verify()

    def test_one_that_is_refused_among_many_tasks_is_refused_alone(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "stays")
        memory.remember(episode("goes", id="gone", session="t"))
        memory.forget(user_id="ann", session_id="t")
        awaited = AsyncMemory(memory)

        async def story() -> list[Any]:
            names = [*(f"e{number}" for number in range(20)), "gone"]
            asked = [awaited.remember(episode(f"says {name}", id=name)) for name in names]
            return await asyncio.gather(*asked, return_exceptions=True)

        *stored, refused = asyncio.run(story())

        assert stored == [f"e{number}" for number in range(20)]
        assert isinstance(refused, Forbidden)
        assert memory.profile(user_id="ann").episode_count == 21

    def test_a_task_that_is_cancelled_while_it_waits_takes_nobody_with_it(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "first")
        awaited = AsyncMemory(memory)

        async def story() -> list[Any]:
            asked = [
                asyncio.ensure_future(awaited.remember(episode(f"says {number}", id=f"e{number}")))
                for number in range(10)
            ]
            await asyncio.sleep(0)
            asked[3].cancel()
            return await asyncio.gather(*asked, return_exceptions=True)

        told = asyncio.run(story())

        assert isinstance(told.pop(3), asyncio.CancelledError)
        assert told == [f"e{number}" for number in range(10) if number != 3]
        assert {one.input for one in memory.recall("says", user_id="ann", limit=50)} >= {
            f"says {number}" for number in range(10) if number != 3
        }

    def test_tasks_of_several_event_loops_remember_at_once(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "first")
        awaited = AsyncMemory(memory)

        async def story(name: str) -> None:
            asked = (episode(f"{name} {number}", id=f"{name}{number}") for number in range(20))
            await asyncio.gather(*map(awaited.remember, asked))

        told = at_once(lambda number: asyncio.run(story(f"loop{number}")), 4)

        assert told == [None] * 4
        assert memory.profile(user_id="ann").episode_count == 81

    def test_what_was_forgotten_is_refused_when_it_is_awaited_too(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "one")
        gone = episode("two", id="gone", session="t")
        memory.remember(gone)
        memory.forget(user_id="ann", session_id="t")

        with pytest.raises(Forbidden):
            asyncio.run(AsyncMemory(memory).remember(gone))

    def test_a_memory_is_opened_by_url_and_awaited(self, backend: Backend) -> None:
        async def story() -> list[str]:
            async with pagefile.aio.open(backend.url or "memory:") as pf:
                await pf.memory.remember(episode("hello"))
                return inputs(await pf.memory.recall("hello", user_id="ann"))

        assert asyncio.run(story()) == ["hello"]

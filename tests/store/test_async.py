"""The async face, and the group committer under both kinds of callers."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pagefile
import pagefile.aio
from pagefile import Append, Batch, Conflict, Put, Query, Selector, VersionIs
from pagefile.aio.memory import AsyncMemory
from tools import aio_stub


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def url(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> str:
    return url_on(request.param)


def test_what_the_sync_face_can_do_the_async_face_can(url: str) -> None:
    async def story() -> list[object]:
        async with pagefile.aio.open(url) as pf:
            store = pf.store
            await store.commit(Batch([Append("a", 1), Put("d", 1, user="u", keys={"k": 1})]))
            with pytest.raises(Conflict):
                await store.commit(Batch([Put("d", 2)], [VersionIs("d", 7)]))
            await store.update("d", lambda n: n + 1)
            found = await store.get("d")
            page = await store.find(Query("k", 1, user="u"))
            receipt = await store.erase(Selector(user="u"))
            report = await pf.verify()
            return [found and found.value, len(page.items), receipt.records, report.problems]

    assert asyncio.run(story()) == [2, 1, 2, ()]


def test_awaiting_open_gives_a_handle(url: str) -> None:
    async def story() -> int:
        pf = await pagefile.aio.open(url)
        commit = await pf.store.commit(Batch([Append("a", 1)]))
        await pf.close()
        return commit.position

    assert asyncio.run(story()) == 1


def test_many_tasks_share_commits_and_lose_nothing(url: str) -> None:
    async def story() -> tuple[list[int], int]:
        async with pagefile.aio.open(url) as pf:

            async def write(n: int) -> list[int]:
                return [
                    (await pf.store.commit(Batch([Append("a", n)]))).indexes[0] for _ in range(10)
                ]

            indexes = await asyncio.gather(*(write(n) for n in range(64)))
            return sorted(i for some in indexes for i in some), await pf.store.length("a")

    indexes, length = asyncio.run(story())
    assert (indexes, length) == (list(range(640)), 640)


def test_a_commit_never_blocks_the_loop(tmp_path: Path) -> None:
    """Another process holds the write lock; the loop keeps turning meanwhile."""

    async def story() -> int:
        path = tmp_path / "store.db"
        async with pagefile.aio.open(path) as pf:
            await pf.store.commit(Batch([Append("a", 0)]))
            holder = pagefile.open(path)
            file = holder.store._engine._file  # type: ignore[attr-defined]
            file.begin()
            try:
                waiting = asyncio.ensure_future(pf.store.commit(Batch([Append("a", 1)])))
                turns = 0
                until = time.monotonic() + 0.3
                while time.monotonic() < until:
                    await asyncio.sleep(0)
                    turns += 1
                assert not waiting.done()
            finally:
                file.end()
            await waiting
            holder.close()
            return turns

    assert asyncio.run(story()) > 100


def test_a_cancelled_commit_harms_nobody_else(url: str) -> None:
    async def story() -> tuple[int, bool]:
        async with pagefile.aio.open(url) as pf:
            tasks = [
                asyncio.ensure_future(pf.store.commit(Batch([Append("a", n)]))) for n in range(20)
            ]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            acknowledged = sum(isinstance(d, pagefile.Commit) for d in done)
            return acknowledged, (await pf.store.length("a")) >= acknowledged

    acknowledged, all_there = asyncio.run(story())
    assert all_there
    assert acknowledged >= 10


def test_sync_and_async_callers_share_one_store(tmp_path: Path) -> None:
    async def story() -> int:
        async with pagefile.aio.open(tmp_path / "store.db") as pf:
            sync = pf._sync.store  # type: ignore[attr-defined]
            thread = threading.Thread(
                target=lambda: [sync.commit(Batch([Append("a", n)])) for n in range(50)]
            )
            thread.start()
            await asyncio.gather(*(pf.store.commit(Batch([Append("a", n)])) for n in range(50)))
            await asyncio.to_thread(thread.join)
            return await pf.store.length("a")

    assert asyncio.run(story()) == 100


def test_the_stub_of_the_async_face_is_up_to_date() -> None:
    assert aio_stub.TARGET.read_text(encoding="utf-8") == aio_stub.stub()


def test_every_public_sync_method_has_its_async_form() -> None:
    for sync, derived in (
        (pagefile.Store, pagefile.aio.AsyncStore),
        (pagefile.Pagefile, pagefile.aio.AsyncPagefile),
    ):
        names = [n for n, _ in inspect.getmembers(sync, inspect.isfunction) if n[0] != "_"]
        missing = [
            n
            for n in names
            if not n.endswith("_async") and not inspect.iscoroutinefunction(getattr(derived, n))
        ]

        assert missing == []


def test_a_memory_with_options_is_awaited_too(tmp_path: Path) -> None:
    async def story() -> tuple[int, list[str], int, int, int]:
        async with pagefile.aio.open(tmp_path / "state.db") as pf:
            memory = await AsyncMemory.on(pf, embedder=None)
            said = pagefile.Episode(session_id="s", user_id="ann", input="I live in Rome.")
            await memory.remember(said)
            report = await memory.consolidate()
            export = await memory.export(user_id="ann")
            lines = [line async for line in export]
            facts = await memory.recall_facts("live", user_id="ann")
            episodes, told = await export.episodes(), await export.facts()
            with pytest.raises(pagefile.Invalid):
                pagefile.ConsolidationWorker(memory)  # type: ignore[arg-type]
            return report.facts, [f.object for f in facts], len(episodes), len(told), len(lines)

    assert asyncio.run(story()) == (1, ["Rome"], 1, 1, 7)

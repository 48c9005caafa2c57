"""Following a log: in order, without a gap, across processes, and with nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import pagefile
import pagefile.aio
from pagefile import (
    Admin,
    Append,
    Batch,
    Drop,
    Entry,
    Forbidden,
    Fork,
    Invalid,
    Pagefile,
    Prune,
    Put,
    Selector,
    Unavailable,
)
from pagefile.store.log.feed import Feed, feed_of
from pagefile.store.log.follower import PAGE, AsyncFollower, Follower

#: Only so that a failure does not hang: nothing here takes anywhere near as long.
PATIENCE_SECONDS = 60.0

FOLLOWER = """
import sys, pagefile
with pagefile.open(sys.argv[1]) as pf, pf.feed.follow("shared", -1, timeout=60) as follower:
    print([next(follower).index for _ in range(int(sys.argv[2]))] == list(range(int(sys.argv[2]))))
"""


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def url(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> str:
    return url_on(request.param)


@pytest.fixture
def pf(url: str) -> Iterator[Pagefile]:
    """A handle; when it is closed, no thread and no follower may be left of it."""
    before = set(threading.enumerate())
    with pagefile.open(url) as handle:
        yield handle
    until(lambda: not [t for t in set(threading.enumerate()) - before if "pagefile" in t.name])
    assert registered(handle.feed) == 0


def thread_of(feed: Feed) -> threading.Thread | None:
    return feed._thread


def until(condition: Callable[[], object]) -> None:
    """Turn round until it holds; what is asked for happens in another thread."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def registered(feed: Feed) -> int:
    return sum(len(links) for links in feed._followers.values())


def append(pf: Pagefile, log: str, *values: Any) -> None:
    for value in values:
        pf.store.commit(Batch([Append(log, value)]))


def values(entries: Iterator[Entry], count: int) -> list[Any]:
    return [entry.value for entry in islice(entries, count)]


def waits(follower: Follower | AsyncFollower) -> bool:
    """Whether a thread or task is blocked in a step, with nothing told to it."""
    told: Any = follower._told
    return bool(told._cond._waiters if isinstance(follower, Follower) else told._waiters)


# What is yielded


def test_entries_come_in_order_from_the_index_after_which_one_follows(pf: Pagefile) -> None:
    append(pf, "a", *range(5))
    with (
        pf.feed.follow("a", 2, timeout=PATIENCE_SECONDS) as later,
        pf.feed.follow("a", -1, timeout=PATIENCE_SECONDS) as all_of_it,
    ):
        append(pf, "a", 5)

        assert values(later, 3) == [3, 4, 5]
        assert values(all_of_it, 6) == [0, 1, 2, 3, 4, 5]


def test_without_an_index_only_what_comes_after_the_call_is_yielded(pf: Pagefile) -> None:
    append(pf, "a", "old")
    with pf.feed.follow("a", timeout=PATIENCE_SECONDS) as follower:
        append(pf, "a", "new", "newer")

        assert values(follower, 2) == ["new", "newer"]


def test_a_backlog_longer_than_a_page_is_yielded_whole(pf: Pagefile) -> None:
    many = 3 * PAGE
    pf.store.commit(Batch([Append("a", n) for n in range(many)]))

    assert [e.index for e in pf.feed.follow("a", -1, timeout=0)] == list(range(many))


def test_a_backlog_longer_than_a_page_is_yielded_whole_after_its_log_is_dropped(
    pf: Pagefile,
) -> None:
    many = 3 * PAGE
    pf.store.commit(Batch([Append("a", n) for n in range(many)]))
    follower = pf.feed.follow("a", -1, timeout=PATIENCE_SECONDS)
    first = next(follower)
    pf.store.commit(Batch([Drop("a")]))

    assert [first.index, *(entry.index for entry in follower)] == list(range(many))


def test_a_log_that_is_not_there_yet_is_waited_for(pf: Pagefile) -> None:
    with ThreadPoolExecutor(1) as pool, pf.feed.follow("a", timeout=PATIENCE_SECONDS) as follower:
        waiting = pool.submit(next, follower)
        until(lambda: waits(follower))
        append(pf, "b", "another")
        append(pf, "a", "first")

        assert waiting.result(PATIENCE_SECONDS).value == "first"


def test_an_index_ahead_of_the_log_is_waited_for(pf: Pagefile) -> None:
    append(pf, "a", 0)
    with pf.feed.follow("a", 2, timeout=PATIENCE_SECONDS) as follower:
        append(pf, "a", 1, 2, 3)

        assert values(follower, 1) == [3]


def test_erased_entries_show_as_such_and_pruned_ones_are_left_out(pf: Pagefile) -> None:
    pf.store.commit(Batch([Append("a", n, user="ann" if n == 3 else "bob") for n in range(5)]))
    pf.store.commit(Batch([Prune(2, log="a")]))
    pf.store.erase(Selector(user="ann"))

    found = [(e.index, e.erased) for e in pf.feed.follow("a", -1, timeout=0)]

    assert found == [(2, False), (3, True), (4, False)]


def test_a_fork_is_followed_through_its_shared_part_first(pf: Pagefile) -> None:
    append(pf, "base", 0, 1, 2)
    with pf.feed.follow("fork", -1, timeout=PATIENCE_SECONDS) as follower:
        pf.store.commit(Batch([Fork("fork", "base", 2)]))
        append(pf, "base", "not shared")
        append(pf, "fork", "own")
        found = [(e.log, e.index, e.origin, e.value) for e in islice(follower, 3)]

    assert found == [("fork", 0, "base", 0), ("fork", 1, "base", 1), ("fork", 2, "fork", "own")]


def test_followers_are_woken_by_their_own_log_only(pf: Pagefile) -> None:
    with (
        pf.feed.follow("a", timeout=PATIENCE_SECONDS) as of_a,
        pf.feed.follow("b", timeout=PATIENCE_SECONDS) as of_b,
    ):
        append(pf, "a", 1)
        assert next(of_a).value == 1
        until(lambda: pf.feed._followers)
        of_b._told.clear()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, of_b)
            until(lambda: waits(of_b))
            for n in range(20):
                append(pf, "a", n)
                next(of_a)
            pf.store.commit(Batch([Put("b", "a document of the same name")]))
            append(pf, "a", "last")
            next(of_a)

            assert waits(of_b)
            append(pf, "b", 1)
            assert waiting.result(PATIENCE_SECONDS).value == 1


# Many writers


def test_eight_writing_threads_make_no_gap_and_no_duplicate(pf: Pagefile) -> None:
    each, writers = 50, 8
    with (
        ThreadPoolExecutor(writers) as pool,
        pf.feed.follow("a", timeout=PATIENCE_SECONDS) as follower,
    ):
        writing = [
            pool.submit(append, pf, "a", *((w, n) for n in range(each))) for w in range(writers)
        ]
        entries = list(islice(follower, each * writers))
        for future in writing:
            future.result(PATIENCE_SECONDS)

    assert [e.index for e in entries] == list(range(each * writers))
    assert sorted(e.value for e in entries) == [(w, n) for w in range(writers) for n in range(each)]


def test_three_writing_processes_make_no_gap_and_no_duplicate(tmp_path: Path) -> None:
    path, each = str(tmp_path / "store.db"), 60
    with pagefile.open(path) as pf, pf.feed.follow("shared", timeout=PATIENCE_SECONDS) as here:
        there = subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, path, str(3 * each)], stdout=subprocess.PIPE, text=True
        )
        task = [sys.executable, "-m", "pagefile.testing.racer", path, "append_to_one_log"]
        writers = [
            subprocess.Popen([*task, str(each), name], stdout=subprocess.PIPE, text=True)
            for name in "xyz"
        ]
        entries = list(islice(here, 3 * each))
        told = [json.loads(writer.communicate(timeout=PATIENCE_SECONDS)[0]) for writer in writers]
        seen_there = there.communicate(timeout=PATIENCE_SECONDS)[0]

    acknowledged = {
        i: name for name, out in zip("xyz", told, strict=True) for i in out["acknowledged"]
    }
    assert [e.index for e in entries] == list(range(3 * each))
    assert {e.index: e.value["by"] for e in entries} == acknowledged
    assert seen_there == "True\n"


def test_a_slow_follower_holds_up_nobody(pf: Pagefile) -> None:
    with (
        pf.feed.follow("a", timeout=PATIENCE_SECONDS) as slow,
        pf.feed.follow("a", timeout=PATIENCE_SECONDS) as fast,
    ):
        append(pf, "a", 0)
        assert next(slow).value == 0  # And takes nothing more until the fast one is through.
        append(pf, "a", *range(1, 3 * PAGE))

        assert values(fast, 3 * PAGE) == list(range(3 * PAGE))
        assert values(slow, 3 * PAGE - 1) == list(range(1, 3 * PAGE))


def test_threads_that_share_a_follower_get_each_entry_once(pf: Pagefile) -> None:
    many = 4 * PAGE
    pf.store.commit(Batch([Append("a", n) for n in range(many)]))
    with ThreadPoolExecutor(4) as pool, pf.feed.follow("a", -1, timeout=0) as follower:
        shares = [pool.submit(list[Entry], follower) for _ in range(4)]
        found = [e.index for share in shares for e in share.result(PATIENCE_SECONDS)]

    assert sorted(found) == list(range(many))


# How it ends


def test_it_ends_when_no_entry_comes_within_its_timeout(pf: Pagefile) -> None:
    append(pf, "a", 1)
    follower = pf.feed.follow("a", -1, timeout=0.01)

    assert [e.value for e in follower] == [1]
    append(pf, "a", 2)
    assert list(follower) == []


def test_closing_it_from_another_thread_wakes_who_waits(pf: Pagefile) -> None:
    follower = pf.feed.follow("a", timeout=PATIENCE_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list[Entry], follower)
        until(lambda: waits(follower))
        follower.close()
        follower.close()

        assert waiting.result(PATIENCE_SECONDS) == []


def test_closing_it_leaves_what_was_read_ahead(pf: Pagefile) -> None:
    append(pf, "a", 1, 2)
    follower = pf.feed.follow("a", -1, timeout=PATIENCE_SECONDS)
    next(follower)
    follower.close()

    assert list(follower) == []


def test_closing_the_handle_ends_its_followers(url: str) -> None:
    pf = pagefile.open(url)
    followers = [pf.feed.follow(log, timeout=PATIENCE_SECONDS) for log in "ab"]
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(list[Entry], follower) for follower in followers]
        until(lambda: all(waits(follower) for follower in followers))
        pf.close()

        assert [each.result(PATIENCE_SECONDS) for each in waiting] == [[], []]
    with pytest.raises(Forbidden, match="closed"):
        pf.feed.follow("a", timeout=PATIENCE_SECONDS)


def test_closing_all_handles_ends_the_followers_of_each(url: str) -> None:
    admin = Admin(url)
    follower = admin.open("one").feed.follow("a", timeout=PATIENCE_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list[Entry], follower)
        until(lambda: waits(follower))
        admin.close()

        assert waiting.result(PATIENCE_SECONDS) == []


def test_a_dropped_log_is_yielded_to_its_end(pf: Pagefile) -> None:
    append(pf, "a", 0)
    with pf.feed.follow("a", timeout=PATIENCE_SECONDS) as follower:
        append(pf, "a", 1, 2)
        pf.store.commit(Batch([Drop("a")]))

        assert [e.value for e in follower] == [1, 2]


def test_a_log_created_again_is_not_followed_by_who_followed_the_old_one(pf: Pagefile) -> None:
    append(pf, "a", 0)
    follower = pf.feed.follow("a", timeout=PATIENCE_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list[Entry], follower)
        until(lambda: waits(follower))
        pf.store.commit(Batch([Drop("a")]))
        append(pf, "a", *range(10))

        assert waiting.result(PATIENCE_SECONDS) == []


def test_a_log_whose_name_is_erased_ends_its_followers(pf: Pagefile) -> None:
    pf.store.commit(Batch([Append("a", 0, user="ann")]))
    follower = pf.feed.follow("a", timeout=PATIENCE_SECONDS)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list[Entry], follower)
        until(lambda: waits(follower))
        pf.store.erase(Selector(user="ann"))

        assert waiting.result(PATIENCE_SECONDS) == []


def test_an_error_of_the_store_reaches_every_follower_and_ends_it(
    pf: Pagefile, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers = [pf.feed.follow(log, timeout=PATIENCE_SECONDS) for log in "ab"]

    def fail(since: int, **options: Any) -> Any:
        raise Unavailable("the disk failed", "look at it")

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(list[Entry], follower) for follower in followers]
        until(lambda: all(waits(follower) for follower in followers))
        monkeypatch.setattr(pf.store, "changes", fail)

        def all_ended() -> bool:
            append(pf, "c", 1)  # The feed may have begun to watch behind an earlier one.
            return all(each.done() for each in waiting)

        until(all_ended)
        for each in waiting:
            with pytest.raises(Unavailable, match="the disk failed"):
                each.result(PATIENCE_SECONDS)
    monkeypatch.undo()

    assert [list(follower) for follower in followers] == [[], []]
    with pf.feed.follow("a", timeout=PATIENCE_SECONDS) as again:
        append(pf, "a", 1)
        assert next(again).value == 1


@pytest.mark.parametrize(
    ("log", "after", "timeout"),
    [("", None, None), (7, None, None), ("a", -2, None), ("a", "1", None), ("a", None, -1)],
)
def test_odd_arguments_are_refused(pf: Pagefile, log: Any, after: Any, timeout: Any) -> None:
    with pytest.raises(Invalid):
        pf.feed.follow(log, after, timeout=timeout)
    with pytest.raises(Invalid):
        pf.feed.follow_async(log, after, timeout=timeout)
    assert registered(pf.feed) == 0


# Nothing is left behind


def test_the_feed_of_a_store_is_shared(pf: Pagefile) -> None:
    with ThreadPoolExecutor(8) as pool:
        feeds = set(pool.map(feed_of, [pf.store] * 64))

    assert feeds == {pf.feed}


def test_no_thread_runs_before_the_first_follower_nor_long_after_the_last(pf: Pagefile) -> None:
    assert thread_of(pf.feed) is None
    with (
        pf.feed.follow("a", timeout=PATIENCE_SECONDS),
        pf.feed.follow("b", timeout=PATIENCE_SECONDS),
    ):
        assert thread_of(pf.feed) is not None

    until(lambda: thread_of(pf.feed) is None)
    assert registered(pf.feed) == 0


def test_a_follower_that_is_just_dropped_is_forgotten(pf: Pagefile) -> None:
    follower = weakref.ref(pf.feed.follow("a", timeout=PATIENCE_SECONDS))
    gc.collect()

    assert follower() is None
    until(lambda: thread_of(pf.feed) is None)


def test_a_handle_that_is_just_dropped_is_collected_with_its_followers(url: str) -> None:
    pf = pagefile.open(url)
    follower = pf.feed.follow("a", timeout=PATIENCE_SECONDS)
    kept = weakref.ref(pf.store)
    del pf, follower

    def collected() -> bool:
        gc.collect()
        return kept() is None

    until(collected)


def test_a_process_ends_while_it_follows(tmp_path: Path) -> None:
    script = """
import sys, threading, pagefile
pf = pagefile.open(sys.argv[1])
threading.Thread(target=next, args=(pf.feed.follow("a"),), daemon=True).start()
print("done")
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


def said_in_child(work: Callable[[], object]) -> str:
    """What `work` raises in a forked child; a child that hangs is ended by its alarm."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking with threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        said = "nothing"
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the child ends here in any case
            said = type(error).__name__
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def _inside(follower: Follower) -> threading.Condition:
    """The lock of its event, as another thread would hold it at the moment of the fork."""
    told: Any = follower._told
    condition: threading.Condition = told._cond
    return condition


def test_a_forked_child_is_refused_and_does_not_hang(pf: Pagefile) -> None:
    async def one_step() -> Entry:
        return await anext(pf.feed.follow_async("a", -1))

    append(pf, "a", 1, 2)
    with (
        pf.feed.follow("a", -1, timeout=PATIENCE_SECONDS) as follower,
        pf.feed._lock,
        _inside(follower),
    ):
        told = [
            said_in_child(lambda: pf.feed.follow("a", timeout=PATIENCE_SECONDS)),
            said_in_child(lambda: next(follower)),
            said_in_child(lambda: asyncio.run(one_step())),
            said_in_child(follower.close),
            said_in_child(lambda: pf.store.wait(100, 1)),
            said_in_child(pf.close),
        ]

    assert told == ["Forbidden"] * 3 + ["nothing", "Forbidden", "nothing"]


# Async


async def patiently(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, PATIENCE_SECONDS)


async def take(follower: AsyncFollower, count: int) -> list[Entry]:
    return [await patiently(anext(follower)) for _ in range(count)]


async def until_async(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_an_async_follower_yields_what_is_there_and_what_comes(pf: Pagefile) -> None:
    async def story() -> list[int]:
        async with pf.feed.follow_async("a", -1) as follower:
            first = await take(follower, 2)
            rest = asyncio.create_task(take(follower, 2 * PAGE))
            for n in range(2 * PAGE):
                await pf.store.commit_async(Batch([Append("a", n)]))
            return [e.index for e in first + await rest]

    append(pf, "a", "x", "y")
    assert asyncio.run(story()) == list(range(2 * PAGE + 2))


def test_an_async_follower_begins_when_it_is_entered(pf: Pagefile) -> None:
    async def story() -> Any:
        async with pf.feed.follow_async("a", timeout=0) as follower:
            await pf.store.commit_async(Batch([Append("a", "new")]))
            return [e.value async for e in follower]

    append(pf, "a", "old")
    assert asyncio.run(story()) == ["new"]


def test_an_async_handle_has_the_same_feed(url: str) -> None:
    async def story() -> Any:
        async with pagefile.aio.open(url) as pf, pf.feed.follow_async("a") as follower:
            await pf.store.commit(Batch([Append("a", 1)]))
            return (await take(follower, 1))[0].value

    assert asyncio.run(story()) == 1


def test_a_hundred_async_followers_each_get_their_own_log(pf: Pagefile) -> None:
    many, each = 100, 3

    async def follow(log: str) -> list[tuple[str, Any]]:
        async with pf.feed.follow_async(log, -1) as follower:
            return [(e.log, e.value) for e in await take(follower, each)]

    async def story() -> list[list[tuple[str, Any]]]:
        logs = [f"log {n}" for n in range(many)]
        tasks = [asyncio.create_task(follow(log)) for log in logs]
        await until_async(lambda: registered(pf.feed) == many)
        for n in range(each):
            await asyncio.gather(
                *(pf.store.commit_async(Batch([Append(log, (log, n))])) for log in logs)
            )
        return list(await patiently(asyncio.gather(*tasks)))

    assert asyncio.run(story()) == [
        [(f"log {n}", (f"log {n}", i)) for i in range(each)] for n in range(many)
    ]


def test_a_cancelled_step_leaves_nothing_and_the_next_goes_on(pf: Pagefile) -> None:
    async def story() -> tuple[list[int], list[Any]]:
        counts: list[int] = []
        found: list[Any] = []
        follower = pf.feed.follow_async("a", -1)
        for n in range(3):
            step = asyncio.create_task(anext(follower))
            await until_async(lambda: waits(follower))
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            counts.append(registered(pf.feed))
            await pf.store.commit_async(Batch([Append("a", n)]))
            found += [e.value for e in await take(follower, 1)]
        await follower.aclose()
        return counts, found

    assert asyncio.run(story()) == ([0, 0, 0], [0, 1, 2])


def test_cancelling_one_of_two_tasks_leaves_the_other_following(pf: Pagefile) -> None:
    async def story() -> Any:
        async with pf.feed.follow_async("a") as follower:
            tasks = [asyncio.create_task(take(follower, 1)) for _ in range(2)]
            await until_async(lambda: waits(follower) and follower._turn._waiters)
            tasks[1].cancel()
            await asyncio.gather(tasks[1], return_exceptions=True)
            await pf.store.commit_async(Batch([Append("a", 1)]))
            return [e.value for e in await tasks[0]]

    assert asyncio.run(story()) == [1]


def test_closing_an_async_follower_ends_the_task_that_waits(pf: Pagefile) -> None:
    async def drain(follower: AsyncFollower) -> list[Entry]:
        return [entry async for entry in follower]

    async def story() -> tuple[list[Entry], list[Entry], int]:
        follower = pf.feed.follow_async("a")
        task = asyncio.create_task(drain(follower))
        await until_async(lambda: registered(pf.feed))
        await follower.aclose()
        await follower.aclose()
        return await patiently(task), await drain(follower), registered(pf.feed)

    assert asyncio.run(story()) == ([], [], 0)


def test_an_async_follower_ends_with_its_timeout_its_log_or_its_handle(url: str) -> None:
    async def drain(follower: AsyncFollower, into: list[Any]) -> list[Any]:
        async for entry in follower:
            into.append(entry.value)
        return into

    async def story() -> list[list[Any]]:
        async with pagefile.aio.open(url) as pf:
            await pf.store.commit(Batch([Append("dropped", 1), Append("kept", 2)]))
            found: list[list[Any]] = [[], [], []]
            asked = (("kept", 0.01), ("dropped", None), ("kept", None))
            tasks = [
                asyncio.create_task(drain(pf.feed.follow_async(log, -1, timeout=timeout), into))
                for (log, timeout), into in zip(asked, found, strict=True)
            ]
            # A log that is dropped before anybody has seen it would be waited for.
            await until_async(lambda: all(found))
            await pf.store.commit(Batch([Drop("dropped")]))
            ended = [await patiently(task) for task in tasks[:2]]
        return [*ended, await patiently(tasks[2])]

    assert asyncio.run(story()) == [[2], [1], [2]]


def test_a_loop_that_was_closed_does_not_disturb_the_others(pf: Pagefile) -> None:
    loop = asyncio.new_event_loop()
    stranded = pf.feed.follow_async("a", -1)
    step = loop.create_task(anext(stranded))
    while not registered(pf.feed) or not stranded._cursor.is_current:
        loop.run_until_complete(asyncio.sleep(0))
    with pf.feed.follow("a", timeout=PATIENCE_SECONDS) as follower:
        # Without its executor: the step still waits when the loop is gone.
        loop.run_until_complete(loop.shutdown_default_executor())
        step._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        append(pf, "a", 1, 2)

        assert values(follower, 2) == [1, 2]
        until(lambda: registered(pf.feed) == 1)


def test_an_async_follower_does_not_block_its_loop(pf: Pagefile) -> None:
    """While a look is stuck in its worker thread, the loop goes on."""

    async def story() -> int:
        stuck, may_go = threading.Event(), threading.Event()
        follower = pf.feed.follow_async("a", -1)
        look = follower._cursor.look

        def held() -> Any:
            stuck.set()
            assert may_go.wait(PATIENCE_SECONDS)
            return look()

        follower._cursor.look = held  # type: ignore[method-assign]
        task = asyncio.create_task(take(follower, 1))
        await until_async(stuck.is_set)
        may_go.set()
        found = (await task)[0].index
        await follower.aclose()
        return found

    append(pf, "a", 1)
    assert asyncio.run(story()) == 0


# Waiting, which the feed is built on


def test_waiting_ends_when_the_handle_is_closed(url: str) -> None:
    pf = pagefile.open(url)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(pf.store.wait, 1, PATIENCE_SECONDS) for _ in range(4)]
        until(lambda: _waiting(pf) == 4)
        pf.close()
        for each in waiting:
            with pytest.raises(Forbidden, match="closed"):
                each.result(PATIENCE_SECONDS)


def _waiting(pf: Pagefile) -> int:
    engine: Any = pf.store._engine
    if engine.name == "redis":
        return sum(len(server._waiting) for server in engine._shards.servers())
    if engine.name == "manager":
        return len(engine._link._waiting)
    return int(engine._watch.waiting if hasattr(engine, "_watch") else len(engine._changed))


def test_who_waits_for_a_file_looks_only_when_it_changed(tmp_path: Path) -> None:
    looks = 0
    with pagefile.open(tmp_path / "store.db") as pf, ThreadPoolExecutor(1) as pool:
        engine: Any = pf.store._engine
        read = engine.head

        def head(tenant: str) -> Any:
            nonlocal looks
            looks += 1
            return read(tenant)

        engine.head = head
        pool.submit(pf.store.wait, 1, 0.5).result(PATIENCE_SECONDS)

    # Once by itself, and once more because the poller began to watch.
    assert looks <= 2


def test_a_poller_that_fails_tells_who_waits_and_the_next_wait_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise Unavailable("the disk failed", "look at it")

    with pagefile.open(tmp_path / "store.db") as pf:
        monkeypatch.setattr("pagefile.engines.sqlite.poller.fetch", fail)
        with pytest.raises(Unavailable, match="the disk failed"):
            pf.store.wait(1, PATIENCE_SECONDS)
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(pf.store.wait, 1, PATIENCE_SECONDS)
            with pagefile.open(tmp_path / "store.db") as other:
                append(other, "a", 1)

            assert waiting.result(PATIENCE_SECONDS)


def test_a_refused_batch_does_not_show_in_the_length_of_a_log() -> None:
    """One thread is refused again and again; a reader would see the length it tried."""
    with pagefile.open("memory:") as pf, ThreadPoolExecutor(1) as pool:
        append(pf, "a", 0)
        tried: list[Append | Drop] = [Append("a", 1), *[Append("b", n) for n in range(200)]]
        tried.append(Drop("nowhere"))
        done = threading.Event()

        def be_refused() -> None:
            while not done.is_set():
                with pytest.raises(pagefile.NotFound):
                    pf.store.commit(Batch(tried))

        refused = pool.submit(be_refused)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        lengths = {pf.store.length("a") for _ in range(20_000)}
        sys.setswitchinterval(interval)
        done.set()
        refused.result(PATIENCE_SECONDS)

    assert lengths == {1}

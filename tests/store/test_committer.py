"""The committer: closing under load, groups with a culprit, one batch in many hands."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import pagefile
import pagefile.aio
from pagefile import (
    Admin,
    Append,
    Batch,
    Commit,
    Forbidden,
    Options,
    Selector,
    Unavailable,
)
from pagefile.engines import open_engine
from pagefile.errors import PagefileError
from pagefile.handle import Pagefile, machine_clock
from pagefile.store.commit.committer import MOST_PER_GROUP, Committer, Ticket, result_of
from pagefile.store.engine import Engine, Prepared, Sealed
from pagefile.testing.faults import FaultyEngine

PATIENCE_SECONDS = 180.0


class HeldClock:
    """A clock that stops whoever commits, inside the transaction, until it may go on."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_go = threading.Event()

    def __call__(self) -> int:
        self.asked.set()
        assert self.may_go.wait(PATIENCE_SECONDS)
        return machine_clock()


def until(condition: Callable[[], object]) -> None:
    """Turn round until it holds; what is asked for happens in another thread."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0)


def committer_of(store: pagefile.Store) -> Any:
    return store._committer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# Closing


def test_close_sees_commits_under_way_through_and_refuses_later_ones(path: Path) -> None:
    clock = HeldClock()
    pf = pagefile.open(path, options=Options(clock=clock))
    committer = committer_of(pf.store)
    with ThreadPoolExecutor(4) as pool:
        leader = pool.submit(pf.store.commit, Batch([Append("a", "leads")]))
        assert clock.asked.wait(PATIENCE_SECONDS)
        queued = pool.submit(pf.store.commit, Batch([Append("a", "queued")]))
        until(lambda: committer._queue)
        closing = pool.submit(pf.close)
        until(lambda: committer._closed)
        with pytest.raises(Forbidden, match=r"closed.*pagefile.open again"):
            pf.store.commit(Batch([Append("a", "late")]))
        assert not closing.done()
        clock.may_go.set()

        assert [leader.result().position, queued.result().position] == [1, 2]
        closing.result(PATIENCE_SECONDS)
    with pagefile.open(path) as again:
        assert [entry.value for entry in again.store.read("a")] == ["leads", "queued"]
        assert again.check().problems == ()


def test_async_commits_queued_before_close_are_committed_and_later_ones_refused(
    path: Path,
) -> None:
    async def story() -> tuple[list[int], BaseException]:
        clock = HeldClock()
        pf = await pagefile.aio.open(path, options=Options(clock=clock))
        committer = committer_of(pf._sync.store)  # type: ignore[attr-defined]
        tasks = [asyncio.create_task(pf.store.commit(Batch([Append("a", n)]))) for n in range(5)]
        assert await asyncio.to_thread(clock.asked.wait, PATIENCE_SECONDS)
        closing = asyncio.create_task(pf.close())
        await asyncio.to_thread(until, lambda: committer._closed)
        late = await asyncio.gather(
            pf.store.commit(Batch([Append("a", "late")])), return_exceptions=True
        )
        clock.may_go.set()
        commits = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS)
        await asyncio.wait_for(closing, PATIENCE_SECONDS)
        assert isinstance(late[0], BaseException)
        return sorted(commit.position for commit in commits), late[0]

    positions, late = asyncio.run(story())

    assert positions == [1, 2, 3, 4, 5]
    assert type(late) is Forbidden


def test_close_in_the_turn_that_brought_commits_sees_them_through(path: Path) -> None:
    async def story() -> list[int]:
        pf = await pagefile.aio.open(path)
        committer = committer_of(pf.sync.store)
        prepared = [pf.sync.store._preparer.prepare(Batch([Append("a", n)]), 0) for n in range(3)]
        brought = [committer.submit("default", each) for each in prepared]
        # Without a turn in between: nothing of it has reached the queue yet.
        committer.close()
        return [(await each).commit.position for each in brought]

    assert asyncio.run(story()) == [1, 2, 3]


def test_what_one_turn_of_a_loop_brings_is_one_group(path: Path) -> None:
    engine = FaultyEngine(open_engine(str(path), Options()))
    pf = Pagefile(engine, Committer(engine), "default", Options())

    async def story() -> None:
        batches = [Batch([Append("a", n)]) for n in range(50)]
        await asyncio.gather(*(pf.store.commit_async(each) for each in batches))

    asyncio.run(story())
    pf.store._committer.close()

    assert engine.groups == [50]


@pytest.mark.parametrize("attempt", range(5))
def test_closing_under_a_crowd_loses_nothing_and_says_closed(path: Path, attempt: int) -> None:
    pf = pagefile.open(path, durability="process")
    pf.store.commit(Batch([Append("a", "first")]))

    def write() -> tuple[int, type]:
        for n in range(1_000_000):
            try:
                pf.store.commit(Batch([Append("a", n)]))
            except Exception as error:  # noqa: BLE001 - which one is what is asked
                return n, type(error)
        raise AssertionError

    with ThreadPoolExecutor(8) as pool:
        writers = [pool.submit(write) for _ in range(8)]
        assert pf.store.wait(20 * (attempt + 1), timeout=PATIENCE_SECONDS)
        pf.close()
        told = [writer.result(PATIENCE_SECONDS) for writer in writers]
    with pagefile.open(path) as again:
        stored = again.store.length("a") - 1

    assert {error for _, error in told} == {Forbidden}
    assert stored == sum(count for count, _ in told)


def test_close_gives_up_in_time_and_can_be_called_again(path: Path) -> None:
    clock = HeldClock()
    with Admin(path, options=Options(clock=clock)) as admin, ThreadPoolExecutor(1) as pool:
        store = admin.open("t").store
        slow = pool.submit(store.commit, Batch([Append("a", 1)]))
        assert clock.asked.wait(PATIENCE_SECONDS)
        with pytest.raises(Unavailable, match="still under way"):
            committer_of(store).close(timeout=0.01)
        clock.may_go.set()

        assert slow.result(PATIENCE_SECONDS).position == 1


def test_close_may_be_called_by_many_at_once_and_again(path: Path) -> None:
    pf = pagefile.open(path)
    pf.store.commit(Batch([Append("a", 1)]))
    with ThreadPoolExecutor(8) as pool:
        for closing in [pool.submit(pf.close) for _ in range(8)]:
            closing.result(PATIENCE_SECONDS)
    pf.close()
    with pytest.raises(Forbidden):
        pf.store.commit(Batch([Append("a", 2)]))


class SlowScrub(FaultyEngine):
    """Lets a test hold up the rewriting after an erasure."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.entered = threading.Event()
        self.may_go = threading.Event()

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        self.entered.set()
        assert self.may_go.wait(PATIENCE_SECONDS)
        return super().scrub(tenant, timeout)


def test_close_waits_for_the_rewriting_after_an_erasure(path: Path) -> None:
    engine = SlowScrub(open_engine(str(path), Options()))
    committer = Committer(engine)
    store = Pagefile(engine, committer, "default", Options()).store
    store.commit(Batch([Append("a", 1, user="u"), Append("a", 2, user="v")]))
    with ThreadPoolExecutor(2) as pool:
        erasing = pool.submit(store.erase, Selector(user="u"))
        assert engine.entered.wait(PATIENCE_SECONDS)
        closing = pool.submit(committer.close)
        until(lambda: committer._closed)
        assert not closing.done()
        engine.may_go.set()

        assert erasing.result(PATIENCE_SECONDS).level == "bytes"
        closing.result(PATIENCE_SECONDS)
    assert "closed" in committer.scrub("default", 1.0)[0]
    engine.close()


# A culprit in a group


class Choosy(FaultyEngine):
    """Breaks down on one log's name with an error that no engine declares."""

    def __init__(self, engine: Engine, error: Callable[[], BaseException]) -> None:
        super().__init__(engine)
        self.error = error
        self.entered = threading.Event()
        self.may_go = threading.Event()
        self.breaks_after_storing = False

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        self.entered.set()
        assert self.may_go.wait(PATIENCE_SECONDS)
        broken = any(write.name == "bad" for _, batch in items for write in batch.writes)
        if broken and not self.breaks_after_storing:
            raise self.error()
        outcomes = super().apply(items)
        if self.breaks_after_storing and len(items) > 1:
            self.breaks_after_storing = False
            raise self.error()
        return outcomes


@pytest.fixture(params=["memory:", "sqlite"])
def choosy(request: pytest.FixtureRequest, path: Path) -> Choosy:
    url = str(path) if request.param == "sqlite" else request.param
    return Choosy(open_engine(url, Options()), lambda: RuntimeError("nobody foresaw this"))


def _holds(queue: Sized, count: int) -> bool:
    return len(queue) == count


def commit_as_a_group(engine: Choosy, logs: list[str]) -> list[Commit | BaseException]:
    """One commit leads and is held up; those to `logs` queue behind it and form a group."""
    committer = Committer(engine)
    store = Pagefile(engine, committer, "default", Options()).store
    waiting: list[Future[Commit]] = []
    with ThreadPoolExecutor(len(logs) + 1) as pool:
        waiting.append(pool.submit(store.commit, Batch([Append("first", 0)])))
        assert engine.entered.wait(PATIENCE_SECONDS)
        for n, log in enumerate(logs, 1):
            waiting.append(pool.submit(store.commit, Batch([Append(log, n)])))
            until(partial(_holds, committer._queue, n))
        engine.may_go.set()
        answers = [w.exception(PATIENCE_SECONDS) or w.result() for w in waiting]
    committer.close()
    return answers


def test_only_the_culprit_of_a_group_raises_its_error(choosy: Choosy) -> None:
    answers = commit_as_a_group(choosy, ["a", "bad", "b", "a"])
    positions = [answer.position for answer in answers if isinstance(answer, Commit)]
    choosy.close()

    assert [type(answer) for answer in answers] == [Commit, Commit, RuntimeError, Commit, Commit]
    assert positions == [1, 2, 3, 4]


def test_a_group_that_broke_down_after_storing_is_not_stored_twice(choosy: Choosy) -> None:
    choosy.breaks_after_storing = True
    answers = commit_as_a_group(choosy, ["a", "b", "a"])
    head = choosy.head("default")
    choosy.close()

    assert [a.position for a in answers if isinstance(a, Commit)] == [1, 2, 3, 4]
    assert head.position == 4


def test_a_group_whose_outcome_is_unknown_is_not_tried_again(choosy: Choosy) -> None:
    choosy.error = lambda: Unavailable("the answer was lost", "again", outcome="unknown")
    answers = commit_as_a_group(choosy, ["a", "bad", "b"])
    choosy.close()

    assert [type(a) for a in answers] == [Commit, Unavailable, Unavailable, Unavailable]
    assert choosy.groups == [1]


def test_each_of_a_group_that_failed_is_told_the_key_of_its_own_batch(choosy: Choosy) -> None:
    choosy.error = lambda: Unavailable("the answer was lost", "again", outcome="unknown")
    answers = commit_as_a_group(choosy, ["a", "bad", "b"])
    failures = [answer for answer in answers if isinstance(answer, Unavailable)]
    choosy.close()

    assert len({failure.key for failure in failures}) == 3
    assert all(failure.key for failure in failures)


def test_a_crowd_is_committed_in_groups_of_a_bounded_size(choosy: Choosy) -> None:
    choosy.may_go.set()
    committer = Committer(choosy)
    store = Pagefile(choosy, committer, "default", Options()).store

    async def story() -> None:
        crowd = [store.commit_async(Batch([Append("a", n)])) for n in range(1_500)]
        await asyncio.wait_for(asyncio.gather(*crowd), 60)

    asyncio.run(story())
    committer.close()
    choosy.close()

    assert sum(choosy.groups) == 1_500
    assert max(choosy.groups) <= MOST_PER_GROUP


# Leaders that are lost


def test_those_whose_leader_is_interrupted_are_told_that_the_outcome_is_unknown(
    choosy: Choosy,
) -> None:
    choosy.error = KeyboardInterrupt
    answers = commit_as_a_group(choosy, ["a", "bad", "b"])
    told = [answer.outcome for answer in answers if isinstance(answer, Unavailable)]
    choosy.close()

    assert [type(answer) for answer in answers[:2]] == [Commit, KeyboardInterrupt]
    assert told == ["unknown", "unknown"]


class InterruptedWait:
    """The lock that a waiter waits at; Ctrl-C comes when it has just been let through."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def acquire(self, timeout: float) -> bool:
        assert self._lock.acquire(timeout=PATIENCE_SECONDS)
        raise KeyboardInterrupt

    def release(self) -> None:
        self._lock.release()


def _ticket(store: pagefile.Store, log: str) -> Ticket:
    return Ticket(store.tenant, store._preparer.prepare(Batch([Append(log, 1)]), 0))


def test_one_interrupted_just_when_it_was_to_lead_leads_those_behind_it(path: Path) -> None:
    """A task waits behind it, and nobody else: without a leader it would wait for ever."""
    clock = HeldClock()
    pf = pagefile.open(path, options=Options(clock=clock))
    store, committer = pf.store, committer_of(pf.store)
    interrupted, wait = _ticket(store, "interrupted"), InterruptedWait()
    interrupted.wake = cast(threading.Lock, wait)

    async def story() -> Commit:
        task = asyncio.create_task(store.commit_async(Batch([Append("behind", 1)])))
        await asyncio.to_thread(until, lambda: len(committer._queue) == 2)
        clock.may_go.set()
        return await asyncio.wait_for(task, PATIENCE_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        pool.submit(store.commit, Batch([Append("leads", 1)]))
        assert clock.asked.wait(PATIENCE_SECONDS)
        with committer._mutex:
            committer._enqueue(interrupted)
        waiting = pool.submit(committer._wait, interrupted)
        behind = asyncio.run(story())

        assert isinstance(waiting.exception(PATIENCE_SECONDS), KeyboardInterrupt)
    assert (behind.position, store.length("interrupted")) == (3, 1)
    pf.close()


def test_what_a_loop_brought_that_was_closed_in_the_same_turn_is_stored(path: Path) -> None:
    with pagefile.open(path) as pf:
        ticket, loop = _ticket(pf.store, "left"), asyncio.new_event_loop()
        committer = committer_of(pf.store)

        def bring() -> None:
            place: asyncio.Future[Any] = loop.create_future()
            committer.hand_in(ticket.tenant, ticket.batch, place, loop)
            loop.stop()

        loop.call_soon(bring)
        loop.run_forever()
        loop.close()
        before = pf.store.length("left")
        asyncio.run(pf.store.commit_async(Batch([Append("other", 1)])))
        until(lambda: pf.store.length("left") == 1)

    assert before == 0


class InterruptedAtOnce:
    """A lock whose waiter is interrupted (Ctrl-C) while it stands in the queue."""

    def acquire(self, timeout: float) -> bool:
        raise KeyboardInterrupt


def test_one_interrupted_in_the_queue_is_not_stored_later(path: Path) -> None:
    clock = HeldClock()
    with pagefile.open(path, options=Options(clock=clock)) as pf, ThreadPoolExecutor(2) as pool:
        store, committer = pf.store, committer_of(pf.store)
        interrupted = _ticket(store, "interrupted")
        interrupted.wake = cast(threading.Lock, InterruptedAtOnce())
        leads = pool.submit(store.commit, Batch([Append("leads", 1)]))
        assert clock.asked.wait(PATIENCE_SECONDS)
        with committer._mutex:
            committer._enqueue(interrupted)
        with pytest.raises(KeyboardInterrupt):
            committer._wait(interrupted)
        clock.may_go.set()
        leads.result(PATIENCE_SECONDS)
        store.append(Append("later", 1))

        assert (store.length("interrupted"), store.head().position) == (0, 2)


def test_one_whose_leader_was_lost_is_told_that_the_outcome_is_unknown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader took it out of the queue and was ended before it could say anything."""
    monkeypatch.setattr("pagefile.store.commit.committer.LOST_SECONDS", 0.01)
    with pagefile.open(path) as pf:
        lost = _ticket(pf.store, "a")
        lost.wake = threading.Lock()
        lost.wake.acquire()
        committer_of(pf.store)._wait(lost)
        with pytest.raises(Unavailable) as caught:
            result_of(lost.outcome)

    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("error", [RuntimeError, StopIteration, MemoryError])
def test_only_the_culprit_among_tasks_raises_its_error(choosy: Choosy, error: Any) -> None:
    choosy.error = error
    choosy.may_go.set()
    committer = Committer(choosy)
    store = Pagefile(choosy, committer, "default", Options()).store

    async def story() -> list[Commit | BaseException]:
        logs = ["a", "b", "bad", "b", "a"]
        commits: list[Coroutine[Any, Any, Commit]] = [
            store.commit_async(Batch([Append(log, 1)])) for log in logs
        ]
        waiting = asyncio.gather(*commits, return_exceptions=True)
        return await asyncio.wait_for(waiting, PATIENCE_SECONDS)

    answers = asyncio.run(story())
    committer.close()
    choosy.close()

    # A coroutine cannot raise StopIteration: Python makes it a RuntimeError.
    raised = RuntimeError if error is StopIteration else error
    assert [type(answer) for answer in answers] == [Commit, Commit, raised, Commit, Commit]


# In a forked child


def said_in_child(work: Callable[[], object]) -> str:
    """What `work` raises in a forked child; a child that hangs is ended by its alarm."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking with threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(PATIENCE_SECONDS / 2))
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


def test_a_child_forked_in_the_middle_of_a_commit_is_refused_and_does_not_hang(path: Path) -> None:
    clock = HeldClock()
    with (
        pagefile.open(path, options=Options(clock=clock)) as pf,
        ThreadPoolExecutor(1) as pool,
    ):
        clock.may_go.set()
        pf.store.commit(Batch([Append("a", 0)]))
        clock.may_go.clear()
        clock.asked.clear()
        under_way = pool.submit(pf.store.commit, Batch([Append("a", 1)]))
        assert clock.asked.wait(PATIENCE_SECONDS)
        batch = Batch([Append("a", 2)])
        told = [
            said_in_child(lambda: pf.store.commit(batch)),
            said_in_child(lambda: asyncio.run(pf.store.commit_async(batch))),
            said_in_child(pf.close),
        ]
        clock.may_go.set()

        assert told == ["Forbidden", "Forbidden", "nothing"]
        assert under_way.result(PATIENCE_SECONDS).position == 2


def test_a_child_of_a_process_with_async_commits_is_refused_and_does_not_hang(path: Path) -> None:
    with pagefile.open(path) as pf:
        asyncio.run(pf.store.commit_async(Batch([Append("a", 1)])))
        batch = Batch([Append("a", 2)])

        assert said_in_child(lambda: asyncio.run(pf.store.commit_async(batch))) == "Forbidden"


# One batch in many hands


@pytest.fixture(params=["memory:", "sqlite"])
def url(request: pytest.FixtureRequest, path: Path) -> str:
    return str(path) if request.param == "sqlite" else request.param


def test_a_batch_that_another_commits_while_its_key_is_made_is_stored_once(url: str) -> None:
    """The second comes along exactly when the first draws its key's random bytes."""
    draws: list[int] = []

    def entropy(count: int) -> bytes:
        draws.append(count)
        # Salts are drawn 256 at a time: the batch takes the first 256, then comes the key.
        if len(draws) == 2:
            others.append(store.commit(batch))
        return os.urandom(count)

    with pagefile.open(url, options=Options(entropy=entropy)) as pf:
        store, others = pf.store, list[Commit]()
        batch = Batch([Append("a", n) for n in range(256)])
        mine = store.commit(batch)
        length = store.length("a")

    assert [c.position for c in (*others, mine)] == [1, 1]
    assert (mine.key, length) == (others[0].key, 256)
    assert mine.repeated


def test_a_first_attempt_that_comes_second_to_the_engine_is_a_repeat(url: str) -> None:
    """It was told that its key is new; another thread has overtaken it since."""
    with pagefile.open(url) as pf:
        store = pf.store
        batch = Batch([Append("a", 1)])
        overtaken = store._preparer.prepare(batch, 0)
        commit = store.commit(batch)
        sealed = committer_of(store).commit("default", overtaken)

        assert not commit.repeated
        assert (sealed.repeated, sealed.commit.position) == (True, commit.position)
        assert store.length("a") == 1


@pytest.mark.parametrize("handles", [1, 2])
def test_one_batch_in_eight_threads_is_stored_once(path: Path, handles: int) -> None:
    opened = [pagefile.open(path, durability="process") for _ in range(handles)]
    batches = [Batch([Append("a", n)]) for n in range(100)]
    start = threading.Barrier(8)

    def commit_all(number: int) -> list[int]:
        store = opened[number % handles].store
        start.wait(PATIENCE_SECONDS)
        return [store.commit(batch).position for batch in batches]

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(commit_all, range(8)))
    lengths = {pf.store.length("a") for pf in opened}
    for pf in opened:
        pf.close()

    assert lengths == {100}
    assert [positions for positions in told if positions != told[0]] == []


# Who is waited for


class _Waits:
    """Notes for how long a leader waits for others to arrive."""

    def __init__(self, committer: Any) -> None:
        self.seconds: list[float] = []
        self._flag = committer._arrived
        committer._arrived = self

    def wait(self, timeout: float) -> bool:
        self.seconds.append(timeout)
        return bool(self._flag.wait(timeout))

    def set(self) -> None:
        self._flag.set()

    def clear(self) -> None:
        self._flag.clear()


def test_a_leader_does_not_wait_for_more_than_there_are(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who were in the last group are back: who was counted twice would never come."""
    monkeypatch.setattr("pagefile.store.commit.committer.GATHER_FROM_SECONDS", 0.0)

    async def story() -> list[float]:
        async with pagefile.aio.open(path) as pf:
            committer = committer_of(pf.sync.store)
            waits = _Waits(committer)
            for number in range(5):
                await asyncio.gather(
                    *(pf.store.commit(Batch([Append("a", number)])) for _ in range(8))
                )
                assert committer._last_group == 8
            return waits.seconds

    assert asyncio.run(story()) == []


def test_a_leader_waits_for_those_who_were_released_and_for_those_who_stood_behind_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pagefile.open(path) as pf:
        committer = committer_of(pf.store)
        committer._last_group, committer._last_seconds, committer._left_waiting = 4, 0.01, 3
        waits = _Waits(committer)
        monkeypatch.setattr(waits, "wait", lambda timeout: waits.seconds.append(timeout))
        awaited: list[int] = []
        monkeypatch.setattr(waits, "clear", lambda: awaited.append(committer._awaited))
        committer._gather()

        assert awaited == [6]  # Seven, and the leader is one of them.
        assert waits.seconds == [0.0025]

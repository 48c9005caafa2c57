"""Group commit: the first caller commits for all who wait."""

from __future__ import annotations

import copy
import functools
import os
import threading
import time
import weakref
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from pagefile.errors import Forbidden, PagefileError, Unavailable
from pagefile.store.commit.rules import batched
from pagefile.store.engine import Engine, Lone, Prepared, Sealed, TakesLone
from pagefile.store.threads import Flag

if TYPE_CHECKING:
    import asyncio


class Place(Protocol):
    """Where a loop hears what a batch came to, in its own thread; an `asyncio.Future` is one."""

    def get_loop(self) -> asyncio.AbstractEventLoop: ...

    def done(self) -> bool: ...

    def set_result(self, result: Sealed, /) -> None: ...

    def set_exception(self, exception: Exception, /) -> None: ...


class Ticket:
    """One batch in the queue, and whoever waits for it."""

    __slots__ = ("batch", "leads", "outcome", "place", "tenant", "wake")

    def __init__(self, tenant: str, batch: Prepared) -> None:
        self.tenant = tenant
        self.batch = batch
        self.outcome: Sealed | Exception | None = None
        self.leads = False
        self.wake: threading.Lock | None = None
        self.place: Place | None = None


def own_copy(failure: PagefileError) -> PagefileError:
    """Each waiter raises its own copy: it grows a traceback of its own."""
    mine = copy.copy(failure)
    mine.__cause__ = failure.__cause__
    return mine


def stopped_commit() -> Unavailable:
    """What those are told whose commit ended in the middle."""
    return Unavailable(
        "the commit stopped on an unexpected error",
        "commit again with the same key to learn the outcome",
        outcome="unknown",
    )


def result_of(outcome: Sealed | Exception | None) -> Sealed:
    """What a batch came to, returned or raised."""
    assert outcome is not None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def settle(place: Place, outcome: Sealed | Exception) -> None:
    """Hand over what a batch came to; in the thread of the loop."""
    if place.done():  # Cancelled by its caller; the batch committed all the same.
        return
    if isinstance(outcome, StopIteration):
        # A coroutine cannot raise it, and its future would never be done.
        stopped = RuntimeError("the commit raised StopIteration")
        stopped.__cause__ = outcome
        place.set_exception(stopped)
    elif isinstance(outcome, Exception):
        place.set_exception(outcome)
    else:
        place.set_result(outcome)


def _settle_all(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        assert ticket.place is not None
        assert ticket.outcome is not None
        settle(ticket.place, ticket.outcome)


def release_group(group: list[Ticket], leader: Ticket) -> None:
    """Let all of the group have their outcomes; a leader that is a thread has its own already."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
    for ticket in group:
        if ticket.place is not None:
            by_loop.setdefault(ticket.place.get_loop(), []).append(ticket)
        elif ticket is not leader:
            assert ticket.wake is not None
            ticket.wake.release()
    for loop, tickets in by_loop.items():
        try:
            # One wake-up for the whole group: waking a loop costs a system call.
            loop.call_soon_threadsafe(_settle_all, tickets)
        except RuntimeError:
            continue  # The loop was closed; nobody waits there any more.


#: Bounds one engine transaction, so that nobody waits for an endless group.
MOST_PER_GROUP = 512

#: After a shared sync, a leader waits this share of the sync's time for the
#: writers it just released to come back; without it they would split into two
#: halves that take turns, and each sync would carry half of them.
GATHER_SHARE = 0.25
#: Waiting costs a wake-up; below this many seconds of sync it is not worth it.
GATHER_FROM_SECONDS = 0.0004

#: How long `close` waits for what is under way, unless told.
CLOSE_SECONDS = 60.0
#: Ctrl-C can end a leader between any two steps. Whoever waits looks so often whether one is there.
LOST_SECONDS = 1.0
_SCRUB_CLOSED = "old pages are not overwritten yet (the handle was closed): the next erase does it"


class Committer:
    """The only door to what an engine writes: `apply`, and `scrub` after an erasure."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lone = engine if isinstance(engine, TakesLone) else None
        self._last_group = 1
        self._last_seconds = 0.0
        #: Who was waiting when the last group was through, and so was not in it.
        self._left_waiting = 0
        #: Once closed, `_busy` stays true, so that only those who would queue need to ask.
        self._closed = False
        self._start()
        _watch_forks()
        _LIVING.add(self)

    def _start(self) -> None:
        """With nobody committing: when new, and in a forked child, where nobody else lives."""
        self._mutex = threading.Lock()
        self._queue: deque[Ticket] = deque()
        #: What loops bring in the turn that is under way.
        self._turns: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}
        self._busy = self._closed
        #: Held by whoever leads, for as long as it does.
        self._leading = threading.Lock()
        self._arrived = Flag()
        self._awaited = 0
        self._errands: SimpleQueue[Ticket | None] = SimpleQueue()
        self._runner: threading.Thread | None = None
        self._scrubbing = 0
        #: Somebody was committing when it was closed, and still is.
        self._unfinished = False
        self._at_rest = Flag()
        #: One closes at a time; a signal handler may do so while its own thread does.
        self.closing = threading.RLock()

    def commit(self, tenant: str, batch: Prepared | Lone) -> Sealed:
        """Commit and wait; a single append as such only where the engine `TakesLone`."""
        if self._engine.instant:
            return result_of(self._engine.apply(((tenant, batched(batch)),))[0])
        ticket: Ticket | None = None
        with self._mutex:
            if not self._busy:
                self._busy = True
            else:
                self._require_open()
                ticket = Ticket(tenant, batched(batch))
                ticket.wake = threading.Lock()
                ticket.wake.acquire()
                self._enqueue(ticket)
        if ticket is None:
            if self._last_group < 2:
                return self._commit_alone(tenant, batch)
            ticket = Ticket(tenant, batched(batch))
            ticket.leads = True
        else:
            self._wait(ticket)
        if ticket.leads:
            self._lead(ticket)
        return result_of(ticket.outcome)

    def _commit_alone(self, tenant: str, batch: Prepared | Lone) -> Sealed:
        """A group of one, for a writer who finds nobody else: no ticket, no waiting."""
        started = time.perf_counter()
        outcome: Sealed | PagefileError
        with self._leading:
            try:
                if self._lone is not None and type(batch) is Lone:
                    outcome = self._lone.apply_lone(tenant, batch)
                else:
                    outcome = self._engine.apply(((tenant, batched(batch)),))[0]
            finally:
                self._last_seconds = time.perf_counter() - started
                following: Ticket | None = None
                with self._mutex:
                    if self._queue or self._closed:
                        following = self._next_leader()
                    else:
                        self._busy = False
                if following is not None:
                    self._hand_over(following)
        return result_of(outcome)

    def _next_leader(self) -> Ticket | None:
        """Who leads now; with the mutex held."""
        if not self._queue:
            self._busy, self._unfinished = self._closed, False
            self._note_rest()
            return None
        following = self._queue.popleft()
        following.leads = True
        return following

    def submit(self, tenant: str, batch: Prepared) -> asyncio.Future[Sealed]:
        """Commit without blocking the running event loop."""
        # Imported here: whoever never awaits does not pay for loading it.
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sealed] = loop.create_future()
        self.hand_in(tenant, batch, future, loop)
        return future

    def hand_in(
        self, tenant: str, batch: Prepared, place: Place, loop: asyncio.AbstractEventLoop
    ) -> None:
        """The same for a place of the caller's own, in the thread of its loop."""
        if self._engine.instant:
            settle(place, self._engine.apply(((tenant, batch),))[0])
            return
        ticket = Ticket(tenant, batch)
        ticket.place = place
        with self._mutex:
            self._require_open()
            turn = self._turns.get(loop)
            if turn is not None:
                turn.append(ticket)
                return
            # First: one that is noted and never handed in would wait for ever.
            loop.call_soon(self._end_turn, loop)
            self._turns[loop] = [ticket]
            leader = self._take_in_closed()
        if leader is not None:
            self._send_runner(leader)

    def _take_in_closed(self) -> Ticket | None:
        """What loops brought that were closed in the same turn. With the mutex held."""
        leader: Ticket | None = None
        if len(self._turns) > 1:
            for loop in [each for each in self._turns if each.is_closed()]:
                leader = self._take_in(loop) or leader
        return leader

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that one turn of a loop has brought, at once.

        A thread that led for the first of them would fight with the loop for the
        interpreter's lock while the others are still on their way.
        """
        with self._mutex:
            leader = self._take_in(loop)
        if leader is not None:
            self._send_runner(leader)

    def _take_in(self, loop: asyncio.AbstractEventLoop) -> Ticket | None:
        """Queue what a loop has brought; who leads now, if nobody did. With the mutex held."""
        leader: Ticket | None = None
        for ticket in self._turns.pop(loop, ()):
            if self._busy:
                self._enqueue(ticket)
            else:
                self._busy = ticket.leads = True
                leader = ticket
        return leader

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        """The engine's `scrub`, which a `close` waits for as it does for commits."""
        with self._mutex:
            if self._closed:
                return (_SCRUB_CLOSED,)  # The erasure has committed: no reason to raise.
            self._scrubbing += 1
        try:
            return self._engine.scrub(tenant, timeout)
        finally:
            with self._mutex:
                self._scrubbing -= 1
                self._note_rest()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Refuse what comes from now on, see the rest through, end the helper thread.

        Raises:
            Unavailable: commits are still under way after `timeout` seconds. The
                engine must stay open for them; closing again waits again.
        """
        leader: Ticket | None = None
        with self._mutex:
            if not self._closed:
                for loop in list(self._turns):
                    # Only for the first of them can there be nobody who leads.
                    leader = self._take_in(loop) or leader
                self._closed = True
                self._unfinished, self._busy = self._busy, True
            self._note_rest()
        if leader is not None:
            self._send_runner(leader)
        if not self._comes_to_rest(timeout):
            raise Unavailable(
                f"commits are still under way after {timeout:g} seconds",
                "look for a stopped or debugged process on this file, then close again",
            )
        with self._mutex:
            runner, self._runner = self._runner, None
        if runner is not None:
            self._errands.put(None)
            runner.join()

    def _comes_to_rest(self, timeout: float) -> bool:
        until = time.monotonic() + timeout
        while not self._at_rest.wait(min(LOST_SECONDS, max(until - time.monotonic(), 0))):
            if time.monotonic() >= until:
                return False
            # A leader that was lost with nobody waiting leaves nothing to wait for.
            with self._mutex:
                if not self._leading.locked() and not self._queue:
                    self._unfinished = False
                    self._note_rest()
        self._at_rest.set()  # It stays at rest, for whoever closes again.
        return True

    def _require_open(self) -> None:
        if self._closed:
            raise Forbidden("the store is closed on this handle", "call pagefile.open again")

    def _note_rest(self) -> None:
        """With the mutex held: whoever closes may go on when nothing is under way."""
        if self._closed and not self._unfinished and not self._scrubbing:
            self._at_rest.set()

    def _enqueue(self, ticket: Ticket) -> None:
        self._queue.append(ticket)
        if self._awaited and len(self._queue) >= self._awaited:
            self._arrived.set()

    def _wait(self, ticket: Ticket) -> None:
        assert ticket.wake is not None
        woken = False
        try:
            while not woken:
                woken = ticket.wake.acquire(timeout=LOST_SECONDS) or self._is_lost(ticket)
        finally:
            if not woken:
                self._abandon(ticket)

    def _is_lost(self, ticket: Ticket) -> bool:
        """Whether nobody leads any more: then whoever asks does, or has an outcome already."""
        with self._mutex:
            if self._leading.locked():
                return False
            # One who was told to lead may be about to: then there are two, one after the other.
            if ticket in self._queue:
                self._queue.remove(ticket)
                ticket.leads = True
            elif not ticket.leads and ticket.outcome is None:
                ticket.outcome = stopped_commit()
        return True

    def _abandon(self, ticket: Ticket) -> None:
        """The waiter was interrupted (Ctrl-C): leave the queue, or pass the lead on."""
        with self._mutex:
            if not ticket.leads and ticket in self._queue:
                self._queue.remove(ticket)
        if ticket.leads:
            # Whoever was just made leader must lead, or all behind it wait for ever.
            self._lead(ticket)

    def _lead(self, ticket: Ticket) -> None:
        following = self._commit_group(ticket)
        if following is not None:
            self._hand_over(following)

    def _commit_group(self, first: Ticket) -> Ticket | None:
        """Commit `first` and those who wait; return who leads next, if anyone."""
        with self._leading:
            return self._led_group(first)

    def _led_group(self, first: Ticket) -> Ticket | None:
        group = [first]
        started = time.perf_counter()
        answered = False
        following: Ticket | None = None
        try:
            self._gather()
            with self._mutex:
                while self._queue and len(group) < MOST_PER_GROUP:
                    group.append(self._queue.popleft())
            started = time.perf_counter()
            self._apply(group)
            answered = True
        finally:
            # Also on Ctrl-C, or when this thread is made to end: nobody else may hang.
            if not answered:
                for ticket in group:
                    if ticket.outcome is None:
                        ticket.outcome = stopped_commit()
            with self._mutex:
                self._last_seconds = time.perf_counter() - started
                self._last_group = len(group)
                self._left_waiting = len(self._queue)
                following = self._next_leader()
            release_group(group, leader=first)
            if not answered and following is not None:
                self._hand_over(following)
        return following

    def _apply(self, group: list[Ticket]) -> None:
        """Fill in what each of the group came to."""
        try:
            outcomes = self._engine.apply([(t.tenant, t.batch) for t in group])
        except PagefileError as failure:
            for ticket in group:
                ticket.outcome = own_copy(failure)
        except Exception as error:  # noqa: BLE001 - its own caller raises it
            if len(group) == 1:
                group[0].outcome = error
            else:
                self._apply_each(group)
        else:
            for ticket, outcome in zip(group, outcomes, strict=True):
                ticket.outcome = outcome

    def _apply_each(self, group: list[Ticket]) -> None:
        """One batch met an error that nobody foresaw: the others must not suffer from it."""
        for ticket in group:
            # A driver that fails like this in the middle of its commit may have
            # stored the group after all: the engine looks for each key.
            self._apply([ticket])

    def _gather(self) -> None:
        if self._last_group < 2 or self._last_seconds < GATHER_FROM_SECONDS:
            return
        with self._mutex:
            # All who were there after the last group, save the leader, who left the queue.
            # Those in the queue now are not counted besides: some of them have come back.
            self._awaited = min(self._last_group + self._left_waiting, MOST_PER_GROUP) - 1
            self._arrived.clear()
            enough = len(self._queue) >= self._awaited
        if not enough:
            self._arrived.wait(self._last_seconds * GATHER_SHARE)
        self._awaited = 0

    def _hand_over(self, following: Ticket) -> None:
        if following.wake is not None:
            following.wake.release()
        else:
            self._send_runner(following)

    def _send_runner(self, ticket: Ticket) -> None:
        self._errands.put(ticket)
        with self._mutex:
            self._start_runner()

    def _start_runner(self) -> None:
        if self._runner is None:
            self._runner = threading.Thread(
                target=self._run_errands, name="pagefile-committer", daemon=True
            )
            self._runner.start()

    def _run_errands(self) -> None:
        asked_to_end = False
        try:
            while (ticket := self._errands.get()) is not None:
                following: Ticket | None = ticket
                while following is not None and following.wake is None:
                    following = self._commit_group(following)
                if following is not None:
                    self._hand_over(following)
            asked_to_end = True
        finally:
            if not asked_to_end:
                # An unforeseen error ends this thread, loudly; what is queued goes on.
                with self._mutex:
                    self._runner = None
                    if not self._errands.empty():
                        self._start_runner()


#: Every committer of this process, to be started anew in a forked child.
_LIVING: weakref.WeakSet[Committer] = weakref.WeakSet()


@functools.cache
def _watch_forks() -> None:
    # Once, and not on import. What a child inherits would wait for threads that it does
    # not have; started anew, its commits reach the engine, which refuses them in words.
    os.register_at_fork(after_in_child=_start_all)


def _start_all() -> None:
    for committer in _LIVING:
        committer._start()

"""One batch in the queue of a committer, and how whoever waits for it learns what it came to."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Protocol

from pagefile.errors import PagefileError, Unavailable
from pagefile.store.engine import Prepared, Sealed

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

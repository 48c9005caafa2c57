"""How much a buffer holds, and which threads stay at hand: the least recently used leave first."""

from __future__ import annotations

import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal, NamedTuple, Protocol

import msgspec

from pagefile.context.names import THREADS
from pagefile.errors import Invalid, LimitExceeded, shown
from pagefile.store.batch import Drop, Operation
from pagefile.store.engine import Engine
from pagefile.store.store import Store

#: How many entries a log takes.
MOST_SLOTS = 2**32 - 2


class Policy:
    """The limits of one buffer, checked whenever they are set."""

    def __init__(
        self,
        max_slots_per_thread: int,
        max_threads: int,
        idle_seconds: float | None,
        on_evict: Callable[[Eviction], None] | None,
    ) -> None:
        self.max_slots_per_thread = _count("max_slots_per_thread", max_slots_per_thread)
        self.max_threads = _count("max_threads", max_threads)
        self.idle_seconds = _seconds("idle_seconds", idle_seconds)
        if on_evict is not None and not callable(on_evict):
            raise Invalid("on_evict", f"{shown(on_evict)} cannot be called", "give a function")
        self.on_evict = on_evict

    def change(self, name: str, value: object) -> None:
        """Set one limit; it holds from the next append on."""
        setattr(self, name, (_seconds if name == "idle_seconds" else _count)(name, value))

    def announce(self, evictions: list[Eviction]) -> None:
        """Tell whoever asked to be told. The append that made them leave is stored."""
        if self.on_evict is None:
            return
        for eviction in evictions:
            try:
                self.on_evict(eviction)
            except Exception:
                # Imported here: it takes longer to load than all of this package's own modules.
                import logging

                logging.getLogger("pagefile.context").exception(
                    "on_evict failed for thread %r", eviction.thread_id
                )


def _count(field: str, value: object) -> int:
    if type(value) is not int or not 0 < value <= MOST_SLOTS:
        raise Invalid(
            field, f"{shown(value)} is no limit", f"give a whole number from 1 to {MOST_SLOTS}"
        )
    return value


def _seconds(field: str, value: object) -> float | None:
    return None if value is None else require_time(field, value)


def require_time(field: str, value: object) -> float:
    """Seconds that are more than none and less than for ever."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Invalid(field, f"{shown(value)} is no number of seconds", "give a number or None")
    if not math.isfinite(value) or value <= 0:
        raise Invalid(field, f"{shown(value)} is no time to wait", "give more than 0, or None")
    return float(value)


Reason = Literal["max_threads", "idle"]

#: What a refusal says is limited.
NUMBER_OF_THREADS = "the number of threads"
#: Bounds what one append has to carry along when a limit was lowered by much.
_MOST_AT_ONCE = 1_000


class Eviction(msgspec.Struct, frozen=True):
    """A thread left: which, why, and whether its slots went with it."""

    thread_id: str
    reason: Reason
    deleted: bool


class Leaver(NamedTuple):
    """A thread on its way out, and when it was last used, should it have to stay."""

    thread_id: str
    reason: Reason
    used: float


class Listener(Protocol):
    """Whoever is told of evictions."""

    def announce(self, evictions: list[Eviction]) -> None: ...


class Residency:
    """The resident threads of one tenant in the order of their last use; all steps are O(1).

    `residency_of` gives the one that all buffers on an open store share: they
    count the same threads, and a pin holds for all of them.
    """

    def __init__(self) -> None:
        #: Held around a whole append where leaving deletes, so that no slot is
        #: acknowledged in a thread that is on its way out.
        self.lock = threading.RLock()
        self.listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._is_filled = False
        #: Resident, and free to leave.
        self._used: OrderedDict[str, float] = OrderedDict()
        #: Resident, and pinned.
        self._kept: set[str] = set()
        #: Whoever is not to leave, resident or not.
        self._pinned: set[str] = set()

    def __len__(self) -> int:
        return len(self._used) + len(self._kept)

    def __contains__(self, thread_id: str) -> bool:
        return thread_id in self._used or thread_id in self._kept

    def fill(self, thread_ids: Callable[[], Iterable[str]], now: float) -> None:
        """Count the threads that were there before; once, whoever comes first."""
        with self.lock:
            if not self._is_filled:
                for thread_id in thread_ids():
                    self._admit(thread_id, now)
            self._is_filled = True

    def touch(self, thread_id: str, now: float) -> bool:
        """Note a use; False when the thread is not resident."""
        used = self._used
        with self.lock:
            if thread_id in used:
                used[thread_id] = now
                used.move_to_end(thread_id)
                return True
            return thread_id in self._kept

    def remove(self, thread_id: str) -> None:
        """The thread is gone, and its pin with it."""
        with self.lock:
            self.turn_away(thread_id)
            self._pinned.discard(thread_id)

    def turn_away(self, thread_id: str) -> None:
        """The thread did not come into being after all."""
        with self.lock:
            self._used.pop(thread_id, None)
            self._kept.discard(thread_id)

    def take_back(self, leaving: Sequence[Leaver]) -> None:
        """They could not leave after all: first in line for the next time, in their order."""
        with self.lock:
            for leaver in reversed(leaving):
                if leaver.thread_id not in self:
                    self._admit(leaver.thread_id, leaver.used)
                    if leaver.thread_id in self._used:
                        self._used.move_to_end(leaver.thread_id, last=False)

    def pin(self, thread_id: str) -> None:
        """From now on, or from when there is such a thread."""
        with self.lock:
            self._pinned.add(thread_id)
            if self._used.pop(thread_id, None) is not None:
                self._kept.add(thread_id)

    def unpin(self, thread_id: str, now: float) -> None:
        with self.lock:
            self._pinned.discard(thread_id)
            if thread_id in self._kept:
                self._kept.discard(thread_id)
                self._used[thread_id] = now

    def is_crowded(
        self, most: int, now: float, idle_seconds: float | None, *, newcomer: str
    ) -> bool:
        """Whether somebody has to leave for it."""
        with self.lock:
            if len(self) + (newcomer not in self) > most:
                return True
            oldest = next(iter(self._used.values()), now)
            return idle_seconds is not None and oldest < now - idle_seconds

    def leaving(
        self,
        most: int,
        now: float,
        idle_seconds: float | None,
        *,
        newcomer: str = "",
        beside: str = "",
    ) -> list[Leaver]:
        """Take out the idle, and whoever must leave so that `newcomer`, if any, has a place.

        It has it from now on: two who come at once need two. `beside` is used
        together with it and stays.

        Raises:
            LimitExceeded: nobody is left who could leave.
        """
        gone: list[Leaver] = []
        idle_before = None if idle_seconds is None else now - idle_seconds
        with self.lock:
            for used_now in (beside, newcomer):
                self.touch(used_now, now)
            room_for = 1 if newcomer and newcomer not in self else 0
            while len(gone) < _MOST_AT_ONCE and self._used:
                oldest, used = next(iter(self._used.items()))
                # Used a moment ago: whoever could leave has left.
                if oldest in (beside, newcomer):
                    break
                if idle_before is not None and used < idle_before:
                    gone.append(Leaver(oldest, "idle", used))
                elif len(self) + room_for > most:
                    gone.append(Leaver(oldest, "max_threads", used))
                else:
                    break
                del self._used[oldest]
            wanted = len(self) + room_for
            # There may be more to come: what one append takes along is bounded.
            is_last = next(iter(self._used), newcomer) in (beside, newcomer)
            if room_for and wanted > most and is_last:
                self.take_back(gone)
                raise LimitExceeded(
                    NUMBER_OF_THREADS,
                    limit=most,
                    wanted=wanted,
                    next_step="unpin or delete some, or raise max_threads",
                )
            if room_for:
                self._admit(newcomer, now)
        return gone

    def tell(self, evictions: list[Eviction]) -> None:
        """Say who left to all who asked, through whatever buffer it was."""
        if evictions:
            for listener in list(self.listeners):
                listener.announce(evictions)

    def _admit(self, thread_id: str, now: float) -> None:
        if thread_id in self._pinned:
            self._kept.add(thread_id)
        else:
            self._used[thread_id] = now
            self._used.move_to_end(thread_id)


#: By engine and tenant. Weak both ways: it lives as long as a buffer on the store does.
_RESIDENTS: weakref.WeakKeyDictionary[Engine, weakref.WeakValueDictionary[str, Residency]] = (
    weakref.WeakKeyDictionary()
)
_MAKING = threading.Lock()


def residency_of(store: Store) -> Residency:
    """The residency that all buffers on this store share."""
    with _MAKING:
        of_tenants = _RESIDENTS.setdefault(store._engine, weakref.WeakValueDictionary())
        found = of_tenants.get(store.tenant)
        if found is None:
            found = of_tenants[store.tenant] = Residency()
        return found


def _known_residency(store: Store) -> Residency | None:
    with _MAKING:
        of_tenants = _RESIDENTS.get(store._engine)
        return None if of_tenants is None else of_tenants.get(store.tenant)


@contextmanager
def ending(store: Store, operations: Iterable[Operation]) -> Iterator[None]:
    """Around a commit that may end threads: no buffer counts them from then on."""
    ended = [
        operation.log.removeprefix(THREADS)
        for operation in operations
        if isinstance(operation, Drop) and operation.log.startswith(THREADS)
    ]
    residents = _known_residency(store) if ended else None
    if residents is None:
        yield
        return
    # Where leaving deletes, nobody may come back between the commit and the note of it.
    with nullcontext() if store.is_shared else residents.lock:
        yield
        for thread_id in ended:
            residents.remove(thread_id)

"""Which threads stay at hand: the least recently used leave first, the pinned never.

What leaving means is the store's to say. On one that keeps things, the process
only forgets that it used the thread; on one that keeps nothing, the thread goes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from pagefile.errors import LimitExceeded

Reason = Literal["max_threads", "idle"]

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


class Residency:
    """The resident threads of one buffer in the order of their last use; all steps are O(1)."""

    def __init__(self) -> None:
        #: Held around a whole append where leaving deletes, so that no slot is
        #: acknowledged in a thread that is on its way out.
        self.lock = threading.RLock()
        self._used: OrderedDict[str, float] = OrderedDict()
        self._pinned: set[str] = set()

    def __len__(self) -> int:
        return len(self._used) + len(self._pinned)

    def __contains__(self, thread_id: str) -> bool:
        return thread_id in self._used or thread_id in self._pinned

    def touch(self, thread_id: str, now: float) -> bool:
        """Note a use; False when the thread is not resident."""
        used = self._used
        with self.lock:
            if thread_id in used:
                used[thread_id] = now
                used.move_to_end(thread_id)
                return True
            return thread_id in self._pinned

    def admit(self, thread_id: str, now: float) -> None:
        """The thread is resident from now on."""
        with self.lock:
            if thread_id not in self._pinned:
                self._used[thread_id] = now
                self._used.move_to_end(thread_id)

    def remove(self, thread_id: str) -> None:
        """The thread is gone, or free to go."""
        with self.lock:
            self._used.pop(thread_id, None)
            self._pinned.discard(thread_id)

    def take_back(self, leaving: Sequence[Leaver]) -> None:
        """They could not leave after all: first in line for the next time, in their order."""
        with self.lock:
            for leaver in reversed(leaving):
                if leaver.thread_id not in self:
                    self._used[leaver.thread_id] = leaver.used
                    self._used.move_to_end(leaver.thread_id, last=False)

    def pin(self, thread_id: str) -> None:
        with self.lock:
            self._used.pop(thread_id, None)
            self._pinned.add(thread_id)

    def unpin(self, thread_id: str, now: float) -> None:
        with self.lock:
            if thread_id in self._pinned:
                self._pinned.discard(thread_id)
                self._used[thread_id] = now

    def leaving(
        self, most: int, now: float, idle_seconds: float | None, *, keep: str = ""
    ) -> list[Leaver]:
        """Take out the idle, and whoever must leave so that `keep`, if any, has a place.

        It has it from now on: two who come at once need two.

        Raises:
            LimitExceeded: everybody who could leave is pinned.
        """
        gone: list[Leaver] = []
        idle_before = None if idle_seconds is None else now - idle_seconds
        with self.lock:
            room_for = 1 if keep and keep not in self else 0
            while len(gone) < _MOST_AT_ONCE and self._used:
                oldest, used = next(iter(self._used.items()))
                if oldest == keep:
                    break
                if idle_before is not None and used < idle_before:
                    gone.append(Leaver(oldest, "idle", used))
                elif len(self) + room_for > most:
                    gone.append(Leaver(oldest, "max_threads", used))
                else:
                    break
                del self._used[oldest]
            if len(self) + room_for > most and not self._used and room_for:
                self.take_back(gone)
                raise LimitExceeded(
                    "the number of threads",
                    limit=most,
                    wanted=len(self) + room_for,
                    next_step="unpin or delete some, or raise max_threads",
                )
            if room_for:
                self._used[keep] = now
        return gone

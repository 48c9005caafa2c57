"""The tail of a thread: as many of the newest messages as fit, read from the end."""

from __future__ import annotations

from collections import deque

import msgspec

from pagefile.assembly.token_count import Meter
from pagefile.assembly.turns import Dropped, Paired, Told, Unit, paired, told
from pagefile.context.names import log_of
from pagefile.context.slot import BufferSlot, is_anothers
from pagefile.store.snapshot import Snapshot

_FIRST_PAGE = 32
_LARGEST_PAGE = 512


class Tail(msgspec.Struct, frozen=True):
    """The end of a thread in units, oldest first, with what each costs."""

    log: str
    units: tuple[Unit, ...]
    costs: tuple[int, ...]
    dropped: tuple[Dropped, ...]
    length: int

    @property
    def newest(self) -> int:
        """What the newest unit costs; 0 when there is none."""
        return self.costs[-1] if self.costs else 0

    def within(self, limit: int, room: int) -> int:
        """How many of the newest units to show: within `limit`, the newest one within `room`.

        The first one shown is chosen so that it stays the same for a while as the
        thread grows: a cache of prompts then finds all but the end again.
        """
        taken = count = 0
        for cost in reversed(self.costs):
            if taken + cost > (limit if count else max(limit, room)):
                break
            taken += cost
            count += 1
        return self._settled(count)

    def _settled(self, count: int) -> int:
        if count == len(self.units) and (not count or self.units[0].first == 0):
            return count
        # A power of two, a quarter of what fits at most: with slot numbers that it divides the
        # window begins at the same slot until as many more have come.
        step = 1 << max(0, (count // 4).bit_length() - 1)
        for fewer in range(count, max(count - step, 0), -1):
            if self.units[-fewer].first % step == 0:
                return fewer
        return count


class TailReader:
    """Reads a thread at a position from its end, so that the rest of it costs nothing."""

    def __init__(
        self,
        past: Snapshot,
        thread_id: str,
        agent: str,
        by: Meter,
        *,
        only_user: str | None = None,
    ) -> None:
        self._past = past
        self._thread_id = thread_id
        self._agent = agent
        self._by = by
        self._only_user = only_user

    def read(self, room: int, most: int) -> Tail:
        """The newest messages that could fit into `room` tokens, of `most` slots at most."""
        log = log_of(self._thread_id)
        length = self._past.length(log)
        found, from_start = self._newest(log, length, room, most)
        made: Paired = paired(found, from_start=from_start)
        costs = tuple(sum(map(self._by.message, unit.messages)) for unit in made.units)
        return Tail(log, tuple(made.units), costs, tuple(made.dropped), length)

    def _newest(self, log: str, length: int, room: int, most: int) -> tuple[deque[Told], bool]:
        """Slots from the end, and whether there is nothing before them."""
        found: deque[Told] = deque()
        stop, page, taken = length, _FIRST_PAGE, 0
        while stop > 0 and len(found) < most and taken <= room:
            start = max(0, stop - min(page, most - len(found)))
            entries = self._past.read(log, start, stop)
            if not entries:
                return found, True  # The rest was let go.
            for entry in reversed(entries):
                if is_anothers(entry, self._only_user):
                    continue
                one = told(BufferSlot(entry, self._thread_id), self._agent)
                taken += sum(map(self._by.message, one[1]))
                found.appendleft(one)
            stop = start
            page = min(2 * page, _LARGEST_PAGE)
        return found, stop == 0

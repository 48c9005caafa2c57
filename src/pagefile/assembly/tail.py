"""The tail of a thread: as many whole turns as fit, read from the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from pagefile.assembly.message import ChatMessage, messages_of
from pagefile.assembly.prompt import Meter
from pagefile.assembly.receipt import Reason
from pagefile.context.names import log_of
from pagefile.context.slot import BufferSlot, is_anothers
from pagefile.store.snapshot import Snapshot

# Units of a conversation: a call of tools and its answers are one, and stay or go together.


class Unit(msgspec.Struct, frozen=True):
    """Messages that are shown together or not at all, and the slot that each comes from."""

    messages: tuple[ChatMessage, ...]
    slots: tuple[BufferSlot, ...]

    @property
    def first(self) -> int:
        return min(slot.index for slot in self.slots)


class Dropped(msgspec.Struct, frozen=True):
    """A slot that cannot be shown, or not all of it."""

    slot: BufferSlot
    reason: Reason


class Paired(msgspec.Struct, frozen=True):
    """A stretch of a thread in units, oldest first, and what is not in them."""

    units: Sequence[Unit]
    dropped: Sequence[Dropped]


class _Draft:
    def __init__(self, slot: BufferSlot, message: ChatMessage) -> None:
        self.slot = slot
        self.message = message
        self.answers: dict[str, tuple[BufferSlot, ChatMessage]] = {}


#: A slot and the messages it stands for.
Told = tuple[BufferSlot, list[ChatMessage]]


def told(slot: BufferSlot, agent: str) -> Told:
    """The slot with its messages; an erased one has none."""
    return slot, [] if slot.erased else messages_of(slot, agent)


def paired(slots: Iterable[Told], *, from_start: bool) -> Paired:
    """The units of these slots, which stand next to each other in a thread.

    Answers come right behind their call, in the order of the calls, whatever was
    said between. A call without an answer is taken out; what its message says
    besides stays. So is an answer without a call. `from_start` says that there
    is nothing before these slots: otherwise the call may be further up.
    """
    drafts: list[_Draft] = []
    dropped: list[Dropped] = []
    waiting: dict[str, _Draft] = {}
    for slot, messages in slots:
        if slot.erased:
            dropped.append(Dropped(slot, "erased"))
        for message in messages:
            call = message.get("tool_call_id")
            if message["role"] == "tool" and isinstance(call, str):
                # Taken from those who wait: a second answer to one call has no call.
                asked = waiting.pop(call, None)
                if asked is None:
                    unpaired: Reason = "unpaired_tool_result" if from_start else "budget"
                    dropped.append(Dropped(slot, unpaired))
                else:
                    asked.answers[call] = (slot, message)
                continue
            draft = _Draft(slot, message)
            drafts.append(draft)
            # An id that is used again means the newer call from here on.
            waiting |= {made["id"]: draft for made in message.get("tool_calls", ())}
    units: list[Unit] = []
    for draft in drafts:
        units += _unit(draft, dropped)
    return Paired(units, dropped)


def _unit(draft: _Draft, dropped: list[Dropped]) -> list[Unit]:
    calls = draft.message.get("tool_calls")
    if not calls:
        return [Unit((draft.message,), (draft.slot,))]
    answered = [call for call in calls if call["id"] in draft.answers]
    message = draft.message
    if len(answered) < len(calls):
        dropped.append(Dropped(draft.slot, "unpaired_tool_call"))
        message = {name: value for name, value in message.items() if name != "tool_calls"}
        if answered:
            message["tool_calls"] = answered
        elif not message["content"]:
            return []
    answers = [draft.answers[call["id"]] for call in answered]
    slots = (draft.slot, *(slot for slot, _ in answers))
    return [Unit((message, *(answer for _, answer in answers)), slots)]


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

"""Units of a conversation: a call of tools and its answers are one, and stay or go together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pagefile.assembly.message import ChatMessage, messages_of
from pagefile.assembly.receipt import Reason
from pagefile.context.slot import BufferSlot


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

"""One call on its way: from the message that opened it to the one that answers it."""

from __future__ import annotations

from collections import deque

import msgspec

from pagefile.dispatch.letter import Letter


class Watcher(msgspec.Struct):
    """What an activation waits to see on its thread."""

    id: str
    wait_for: str
    from_listener: str = ""
    description: str = ""
    raised: bool = False

    def matches(self, payload_type: str, sender: str) -> bool:
        """The type's whole name, or its class's; never part of it."""
        if self.from_listener and self.from_listener != sender:
            return False
        if self.wait_for == payload_type:
            return True
        return payload_type.rpartition(":")[2].rpartition(".")[2] == self.wait_for


class Activation(msgspec.Struct, eq=False, gc=False):
    """The state of one call; `caller` is the thread that waits for its answer, if any."""

    thread: str
    listener: str
    caller: str | None
    #: Who called whom, down to the listener itself.
    names: tuple[str, ...]
    inbox: deque[Letter] = msgspec.field(default_factory=deque)
    running: Letter | None = None
    #: It stands in the schedule, or waits for its time.
    queued: bool = False
    #: The threads it called and has no answer from.
    calls: set[str] = set()
    watchers: dict[str, Watcher] | None = None

    @property
    def depth(self) -> int:
        """How many calls stand above it, itself included."""
        return len(self.names) - 2

    @property
    def is_done(self) -> bool:
        """Nothing is left that could make it say anything."""
        return not self.inbox and not self.calls and self.running is None


def nudge_of(watchers: dict[str, Watcher] | None) -> str:
    """What the metadata says about raised watchers; empty when none is."""
    raised = [watcher for watcher in (watchers or {}).values() if watcher.raised]
    if not raised:
        return ""
    lines = ["SYSTEM NOTE: what you were waiting for has come."]
    for watcher in raised:
        source = f" from {watcher.from_listener}" if watcher.from_listener else ""
        about = f" ({watcher.description})" if watcher.description else ""
        lines.append(
            f"- {watcher.wait_for}{source}{about}: when you are done with it, "
            f'send TodoComplete(id="{watcher.id}")'
        )
    return "\n".join(lines)

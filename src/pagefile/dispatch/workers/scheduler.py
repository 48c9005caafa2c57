"""Whose turn it is: listeners in turns, and in each of them conversations in turns."""

from __future__ import annotations

from collections import deque

import msgspec

from pagefile.dispatch.conversation import Activation, Conversation
from pagefile.dispatch.listener import DispatchLimits, Listener, Listeners


class _Queue:
    """What is ready for one listener, conversation by conversation."""

    __slots__ = ("lanes", "limit", "listed", "listener", "order", "running", "waiting")

    def __init__(self, listener: Listener, limit: int) -> None:
        self.listener = listener
        self.limit = limit
        self.running = 0
        self.waiting = 0
        self.listed = False
        self.order: deque[Conversation] = deque()
        self.lanes: dict[Conversation, deque[Activation]] = {}


class Turn(msgspec.Struct, eq=False, gc=False):
    """One activation whose turn it is."""

    queue: _Queue
    conversation: Conversation
    act: Activation

    @property
    def listener(self) -> Listener:
        return self.queue.listener


class Schedule:
    """What is ready to run. A busy agent keeps nobody waiting but its own callers."""

    def __init__(self, listeners: Listeners, limits: DispatchLimits) -> None:
        self._listeners = listeners
        self._limits = limits
        self._depth_first = limits.thread_scheduling == "depth-first"
        self._queues: dict[str, _Queue] = {}
        self._ring: deque[_Queue] = deque()
        self.running = 0
        #: How many activations are ready and wait for their turn.
        self.waiting = 0

    def push(self, conversation: Conversation, act: Activation) -> bool:
        """Add an activation with something in its inbox; False when nobody listens to it."""
        queue = self._queues.get(act.listener)
        if queue is None:
            listener = self._listeners.get(act.listener)
            if listener is None:
                return False
            most = self._limits.max_concurrent_handlers
            if listener.agent:
                most = self._limits.max_concurrent_per_agent
            queue = self._queues[act.listener] = _Queue(listener, most)
        lane = queue.lanes.get(conversation)
        if lane is None:
            queue.lanes[conversation] = deque((act,))
            if self._depth_first:
                queue.order.appendleft(conversation)
            else:
                queue.order.append(conversation)
        else:
            lane.append(act)
        queue.waiting += 1
        self.waiting += 1
        if not queue.listed:
            queue.listed = True
            self._ring.append(queue)
        return True

    def pop(self) -> Turn | None:
        """Whose turn it is now; None when nobody may run."""
        if self.running >= self._limits.max_concurrent_handlers:
            return None
        ring = self._ring
        for _ in range(len(ring)):
            queue = ring.popleft()
            if not queue.waiting:
                queue.listed = False
                continue
            ring.append(queue)
            if queue.running < queue.limit:
                return self._take(queue)
        return None

    def _take(self, queue: _Queue) -> Turn:
        conversation = queue.order.popleft()
        lane = queue.lanes[conversation]
        act = lane.popleft()
        if lane:
            queue.order.append(conversation)
        else:
            del queue.lanes[conversation]
        queue.waiting -= 1
        self.waiting -= 1
        queue.running += 1
        self.running += 1
        return Turn(queue, conversation, act)

    def done(self, turn: Turn) -> None:
        """The handler is through; another may have its place."""
        turn.queue.running -= 1
        self.running -= 1

    def names_running(self) -> list[str]:
        """The listeners whose handlers run now, one name for each run."""
        return [
            queue.listener.name for queue in self._queues.values() for _ in range(queue.running)
        ]

    def by_listener(self) -> dict[str, dict[str, int]]:
        """How many activations of each listener wait, and how many run."""
        return {
            name: {"waiting": queue.waiting, "running": queue.running}
            for name, queue in list(self._queues.items())
        }

"""One client of a manager, as the manager sees it: bytes that came, bytes that are to go."""

from __future__ import annotations

import socket

import msgspec

from pagefile.engines.manager.protocol import HEADER, HEADER_BYTES, Hello
from pagefile.engines.manager.service import Host
from pagefile.errors import LimitExceeded

_LEAST_READ, _MOST_READ = 64 * 1024, 1024 * 1024


class Greeting(msgspec.Struct, frozen=True):
    """What a client that has not proved the key yet was told."""

    hello: Hello


class Connection:
    """A socket that never blocks, at most one frame in and one frame out."""

    __slots__ = (
        "_inbox",
        "client",
        "greeting",
        "host",
        "is_ending",
        "is_pending",
        "outbox",
        "sock",
        "turn",
        "waits_for",
    )

    host: Host

    def __init__(self, sock: socket.socket, greeting: Greeting) -> None:
        self.sock = sock
        #: Until the key is proved.
        self.greeting: Greeting | None = greeting
        self.client = b""
        self._inbox = bytearray()
        self.outbox = memoryview(b"")
        #: Whether the rest of an answer waits for room.
        self.is_pending = False
        #: Whether it closes when its last answer is out.
        self.is_ending = False
        self.waits_for: tuple[Host, str] | None = None
        #: Grows whenever what is to happen next changes; old plans are known by it.
        self.turn = 0

    def enter(self, host: Host, client: bytes) -> None:
        """The key is proved."""
        self.greeting, self.host, self.client = None, host, client

    @property
    def is_busy(self) -> bool:
        """Whether its last request is still to be answered."""
        return self.is_pending or self.is_ending or self.waits_for is not None

    @property
    def is_in_frame(self) -> bool:
        return bool(self._inbox)

    @property
    def has_more(self) -> bool:
        """Whether another whole frame is here already."""
        return len(self._inbox) >= HEADER_BYTES and len(self._inbox) >= self._frame_end()

    def receive(self, most_bytes: int) -> bool:
        """Take what came; False when the client is gone.

        Raises:
            LimitExceeded: its frame is longer than it may be. Nothing of that size is kept.
        """
        inbox = self._inbox
        wanted = _LEAST_READ
        if len(inbox) >= HEADER_BYTES:
            wanted = min(max(self._frame_end() - len(inbox), _LEAST_READ), _MOST_READ)
        came = self.sock.recv(wanted)
        if not came:
            return False
        inbox += came
        if len(inbox) >= HEADER_BYTES:
            size = self._frame_end() - HEADER_BYTES
            # More than a frame may come while one is answered, but not without end.
            held = len(inbox) - HEADER_BYTES
            if size > most_bytes or held > most_bytes + _MOST_READ:
                inbox.clear()
                raise LimitExceeded(
                    "the bytes of one frame",
                    limit=most_bytes,
                    wanted=max(size, held),
                    next_step="commit in smaller batches",
                )
        return True

    def take_frame(self) -> bytes | None:
        """The next whole frame."""
        if not self.has_more:
            return None
        end = self._frame_end()
        frame = bytes(memoryview(self._inbox)[HEADER_BYTES:end])
        del self._inbox[:end]
        return frame

    def _frame_end(self) -> int:
        size: int = HEADER.unpack_from(self._inbox)[0]
        return HEADER_BYTES + size

    def flush(self) -> bool:
        """Send what fits; True when all of it is out."""
        while self.outbox:
            try:
                sent = self.sock.send(self.outbox)
            except BlockingIOError:
                return False
            self.outbox = self.outbox[sent:]
        return True

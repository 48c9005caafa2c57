"""Where a stream of events stands, and what to do when it is cut."""

from __future__ import annotations

import msgspec

from pagefile.client.events import Event
from pagefile.client.request import Ask
from pagefile.client.responses import cannot_resume
from pagefile.client.retry import Lost, Reply, Wait, course


class Following:
    """The last event that was seen; every event that comes begins the count of attempts anew."""

    def __init__(self, ask: Ask, after: int | None, retries: int) -> None:
        self._ask = ask
        self._last = after
        self._retries = retries
        self._course = course(ask, retries)
        next(self._course)
        self._has_begun = False
        self.is_over = False
        self.pause = 0.0

    def begin(self) -> Ask:
        """The request that goes on where the stream stands."""
        self.pause = 0.0
        headers = self._ask.headers | {"accept": "text/event-stream"}
        query = dict(self._ask.query)
        if self._last is not None:
            query["after"] = str(self._last)
        return msgspec.structs.replace(self._ask, query=query, headers=headers)

    def seen(self, event: Event) -> bool:
        """Take note of an event; whether it is one to show."""
        if event.is_end:
            # One that stops is started again, or another one is in its place.
            self.is_over = not event.is_cut
            return False
        if event.number is not None:
            if self._last is not None and event.number <= self._last:
                return False
            self._last = event.number
        self._has_begun = True
        return True

    def lost(self, lost: Lost) -> None:
        """The stream was cut.

        Raises:
            Unavailable: nobody knows where it stood, or it was cut too often.
        """
        if self._last is None and lost.was_sent:
            raise cannot_resume(lost.error) from lost.error
        self._next(lost)

    def refused(self, reply: Reply) -> None:
        """The server said no, or not now.

        Raises:
            PagefileError: it said no, or not now too often.
        """
        self._next(reply)

    def ended(self) -> None:
        """The connection ended; without the server's word for it, that is a cut."""
        if not self.is_over and not self.pause:
            self.lost(Lost(EOFError("the stream ended"), was_sent=True))

    def _next(self, outcome: Lost | Reply) -> None:
        if self._has_begun:
            self._has_begun = False
            self._course = course(self._ask, self._retries)
            next(self._course)
        step = self._course.send(outcome)
        assert isinstance(step, Wait)
        self.pause = step.seconds
        next(self._course)

"""An append that waits for nothing but its commit: no task, no messages, one call back.

Most requests are one slot for a thread that is at hand, from a caller who was
known a moment ago. To wait in a task of its own costs such a request more than
to be read and answered. Whatever is unusual about one, and whatever comes of it
but a new slot, is left to the way that every request can go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import Scope

from pagefile.context.appender import NewSlot
from pagefile.errors import PagefileError
from pagefile.operations import threads as slots
from pagefile.operations.answer import encoded
from pagefile.store.records import Entry
from pagefile.surfaces.http import hot_routes
from pagefile.surfaces.http.bodies import LARGE_BYTES, decoded
from pagefile.surfaces.http.call import Call
from pagefile.surfaces.http.caller import key_in, store_key
from pagefile.surfaces.http.deadlines import Deadlines, too_long
from pagefile.surfaces.http.problems import Refused

if TYPE_CHECKING:
    from pagefile.surfaces.http.middleware import Once, Parts
    from pagefile.surfaces.http.tenants import Lease

_JSON = b"application/json"
#: `hot_routes.appended` and `Call.answered` say the same in pieces; a test compares.
_HEAD = (
    b"HTTP/1.1 201 Created\r\n"
    b"content-type: application/json\r\n"
    b"content-length: %d\r\n"
    b'etag: "%d"\r\n'
    b"x-request-id: %b\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"cache-control: no-store\r\n"
)


class Express:
    """Sees appends through; calls `instead` for one that turns out to need another way.

    `instead` is given the request again, when it began, and what answers it now.
    It has been counted against the caller's rate by then.
    """

    def __init__(
        self,
        parts: Parts,
        deadlines: Deadlines,
        request_id: Callable[[dict[bytes, bytes]], str],
        instead: Callable[[Scope, bytes, Once, float, hot_routes.Route], None],
    ) -> None:
        self.parts = parts
        self.deadlines = deadlines
        self.instead = instead
        self._request_id = request_id

    def takes(self, scope: Scope, body: bytes, once: Once) -> bool:
        """Whether this append is on its way; if not, nothing has been done about it."""
        started = time.perf_counter()
        parts, headers = self.parts, scope["headers"]
        heads: dict[bytes, bytes] = dict(headers)
        identity = parts.gate.known(heads, len(headers))
        if (
            identity is None
            or identity.user_id is not None  # Whose thread it is has to be looked up.
            or "write" not in identity.rights
            or heads.get(b"content-type") != _JSON
            or b"if-match" in heads
            or b"if-none-match" in heads
            or b"content-encoding" in heads
            or len(body) > min(LARGE_BYTES, parts.config.max_body_bytes)
            or not parts.rates.has(identity.principal)
        ):
            return False
        lease = parts.tenants.at_hand(identity.tenant)
        if lease is None:
            return False
        is_on_its_way = False
        try:
            given = decoded(body, slots.NewSlot)
            if given.expected_len is None:
                key = ""
                if b"idempotency-key" in heads:
                    key = store_key(identity, key_in(scope))
                client = scope["client"]
                call = Call(
                    self._request_id(heads), client[0] if client else "", parts.config, heads
                )
                call.identity, call.route = identity, hot_routes.APPEND
                passing = _Passing(self, scope, body, once, call, given, lease, started)
                is_on_its_way = lease.threads.append_then_async(
                    passing.thread_id, _message(given), passing.told, key=key
                )
        except (PagefileError, Refused):
            return False  # Where it is refused again, it is put into words too.
        finally:
            if not is_on_its_way:
                lease.release()
        if is_on_its_way:
            parts.rates.has(identity.principal, take=True)
            parts.metrics.in_flight += 1
            self.deadlines.running.add(passing)
            self.deadlines.watch()
        return is_on_its_way


class _Passing:
    """One append on its way, with a deadline."""

    __slots__ = (
        "_body",
        "_call",
        "_express",
        "_given",
        "_lease",
        "_once",
        "_scope",
        "_started",
        "at",
        "is_over",
        "thread_id",
    )

    def __init__(
        self,
        express: Express,
        scope: Scope,
        body: bytes,
        once: Once,
        call: Call,
        given: slots.NewSlot,
        lease: Lease,
        started: float,
    ) -> None:
        self._express = express
        self._scope = scope
        self._body = body
        self._once = once
        self._call = call
        self._given = given
        self._lease = lease
        self._started = started
        self.thread_id: str = scope["path"][12:-6]
        self.at: float | None = time.monotonic() + express.parts.config.request_seconds
        self.is_over = False

    def told(self, what: Entry | Exception | None) -> None:
        """The commit is through."""
        if self.is_over:
            return  # It was answered before, and that it was not known then what came of it.
        self._leave()
        if isinstance(what, Entry):
            self._answer(what)
        else:
            # None is a repeat, which has to be read.
            self._go_on(hot_routes.append_slot if what is None else _raising(what))

    def end(self) -> None:
        """It has taken too long."""
        self._leave()
        self._go_on(_raising(too_long(self._express.parts.config.request_seconds)))

    def _leave(self) -> None:
        express = self._express
        self.is_over = True
        self._lease.release()
        express.parts.metrics.in_flight -= 1
        express.deadlines.running.discard(self)

    def _answer(self, entry: Entry) -> None:
        call, given, parts, once = self._call, self._given, self._express.parts, self._once
        body = encoded(slots.shown_as_given(self.thread_id, entry, given, given.user_id))
        call.status = 201
        try:
            once.write(_HEAD % (len(body), entry.index + 1, call.request_id.encode()), body)
        finally:
            once.end()
        seconds = time.perf_counter() - self._started
        parts.metrics.observe("POST", call, seconds)
        parts.log.request("POST", call, seconds)

    def _go_on(self, route: hot_routes.Route) -> None:
        self._express.instead(self._scope, self._body, self._once, self._started, route)


def _message(given: slots.NewSlot) -> NewSlot:
    return NewSlot(
        given.payload,
        given.from_id,
        given.to_id,
        given.own_name,
        given.is_self_call,
        given.usage_instructions,
        given.todo_nudge,
        given.user_id,
    )


def _raising(error: Exception) -> hot_routes.Route:
    """A route that ends as the append did."""

    async def route(scope: Scope, call: Call, body: bytes) -> hot_routes.Answer:
        call.route = hot_routes.APPEND
        raise error

    return route

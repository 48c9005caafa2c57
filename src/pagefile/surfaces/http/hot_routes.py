"""The two routes that are asked most: a working set, and the next slot.

The front calls these by itself, without FastAPI, which matches routes and
resolves parameters anew for every request. What they take and give is told in
the same document as everything else. As of an earlier moment, a working set is
read by an ordinary route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import Scope

from pagefile.errors import Conflict, NotFound
from pagefile.operations import threads as slots
from pagefile.operations.answer import encoded
from pagefile.runs.names import RUNS, WORKING_SET, require_id
from pagefile.runs.patch import working_set_in
from pagefile.store.records import Document, Entry
from pagefile.surfaces.http import etag
from pagefile.surfaces.http.bodies import LARGE_BYTES, decoded_aside, require_json
from pagefile.surfaces.http.call import Call
from pagefile.surfaces.http.caller import caller_of, key_in, store_key
from pagefile.surfaces.http.limits import is_packed, packed_body
from pagefile.surfaces.http.problems import AsRefused

#: Status, body and headers of an answer.
Answer = tuple[int, bytes, tuple[tuple[bytes, bytes], ...]]
APPEND = "/v1/threads/{thread_id}/slots"
#: Takes a request and its body, where one is read.
Route = Callable[[Scope, Call, bytes], Awaitable[Answer]]


def route_of(method: str, path: str, query: bytes) -> Route | None:
    """What answers this request, if it appends one slot or reads a working set as it is now."""
    if method == "POST":
        is_append = path[:12] == "/v1/threads/" and path[-6:] == "/slots" and path.count("/") == 4
        return append_slot if is_append else None
    if method != "GET" or query:
        return None
    parts = path.split("/")
    if len(parts) == 4 and parts[2] == "runs" and parts[1] == "v1":
        return _v1_run
    if len(parts) < 3 or parts[1] != "runs":
        return None
    if len(parts) == 3:
        return _legacy_run
    return _legacy_ws if len(parts) == 4 and parts[3] == "ws" else None


async def _v1_run(scope: Scope, call: Call, body: bytes) -> Answer:
    call.route = "/v1/runs/{run_id}"
    return await _working_set(call, scope["path"][9:])


async def _legacy_run(scope: Scope, call: Call, body: bytes) -> Answer:
    call.route = "/runs/{run_id}"
    run_id = scope["path"][6:]
    try:
        return await _working_set(call, run_id)
    except NotFound as error:
        raise AsRefused(error, 404, f"Run {run_id} not found") from error


async def _legacy_ws(scope: Scope, call: Call, body: bytes) -> Answer:
    call.route = "/runs/{run_id}/ws"
    try:
        return await _working_set(call, scope["path"][6:-3])
    except NotFound as error:
        raise AsRefused(error, 404, "run not found") from error


async def _working_set(call: Call, run_id: str) -> Answer:
    assert call.reads is not None
    document = await call.reads.get(RUNS + require_id("run_id", run_id))
    seen = require_working_set(call, run_id, document)
    tag = b'"%d"' % (seen.version - 1)
    if tag in call.heads.get(b"if-none-match", b""):
        return 304, b"", ((b"etag", tag),)
    body = readable(seen)
    return (
        200,
        body,
        (
            (b"etag", tag),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ),
    )


def require_working_set(call: Call, run_id: str, document: Document | None) -> Document:
    """The document, if it is a working set that the caller may see.

    Raises:
        NotFound: it is not; somebody else's looks as if there were none.
    """
    own = None if call.identity is None else call.identity.user_id
    if (
        document is None
        or document.erased
        or document.kind != WORKING_SET
        or (own is not None and document.user != own)
    ):
        raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
    return document


def readable(document: Document) -> bytes:
    """The bytes of a working set, which is stored as the JSON it is answered with.

    Raises:
        Corrupt: they are none any more.
    """
    working_set_in(document)
    return document.body


async def append_slot(scope: Scope, call: Call, body: bytes) -> Answer:
    """Append one slot; it is durable when this returns."""
    call.route = APPEND
    identity, threads, heads = call.identity, call.threads, call.heads
    assert identity is not None
    assert threads is not None
    thread_id: str = scope["path"][12:-6]
    if (media := heads.get(b"content-type", b"")) != b"application/json":
        require_json(media.decode("latin-1"))
    if is_packed(call):
        raise packed_body()
    given = await decoded_aside(body, slots.NewSlot, call.config.max_body_values)
    user_id = call.partition = given.user_id
    if identity.user_id is not None:
        user_id = caller_of(Request(scope)).user(user_id)
    key = store_key(identity, key_in(scope)) if b"idempotency-key" in heads else ""
    expected = given.expected_len
    if b"if-match" in heads or b"if-none-match" in heads:
        expected = etag.expected(Request(scope), expected)
    told = (
        *(thread_id, given.payload, given.from_id, given.to_id, given.own_name),
        *(given.is_self_call, given.usage_instructions, given.todo_nudge),
    )
    own = identity.user_id

    def append() -> Answer:
        slot = threads.append(*told, user_id=user_id, key=key, expected_len=expected, owner=own)
        return appended(thread_id, slot.entry, given, user_id)

    try:
        if len(body) > LARGE_BYTES:
            return await asyncio.to_thread(append)
        # The derived face would await the same method, one call further away.
        slot = await threads.append_async(
            *told, user_id=user_id, key=key, expected_len=expected, owner=own
        )
    except Conflict as error:
        raise etag.refusal(Request(scope), error) from error
    return appended(thread_id, slot.entry, given, user_id)


def appended(thread_id: str, entry: Entry, given: slots.NewSlot, user_id: str | None) -> Answer:
    """What is answered to a slot that was appended."""
    answer = encoded(slots.shown_as_given(thread_id, entry, given, user_id))
    return (
        201,
        answer,
        (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(answer)),
            (b"etag", b'"%d"' % (entry.index + 1)),
        ),
    )

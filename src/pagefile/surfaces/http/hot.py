"""The two routes that are asked most: a working set, and the next slot.

The front calls these by itself, without FastAPI, which matches routes and
resolves parameters anew for every request. What they take and give is told in
the same document as everything else. As of an earlier moment, a working set is
read by an ordinary route.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.types import Scope, Send

from pagefile.errors import Conflict, NotFound
from pagefile.records import Document
from pagefile.runs.names import RUNS, WORKING_SET, require_id
from pagefile.surfaces.http import etag, slots
from pagefile.surfaces.http.bodies import decoded, encoded, require_json
from pagefile.surfaces.http.call import Call, Caller, caller_of
from pagefile.surfaces.http.documents import named
from pagefile.surfaces.http.idempotency import key_in
from pagefile.surfaces.http.owning import require_own_thread
from pagefile.surfaces.http.problems import AsRefused

Route = Callable[[Scope, Call, Send], Awaitable[None]]


def read_route(scope: Scope) -> Route | None:
    """What answers this request, if it is for a working set as it is now."""
    if scope["method"] != "GET" or scope["query_string"]:
        return None
    parts = scope["path"].split("/")
    if len(parts) == 4 and parts[2] == "runs" and parts[1] == "v1":
        return _v1_run
    if len(parts) < 3 or parts[1] != "runs":
        return None
    if len(parts) == 3:
        return _legacy_run
    return _legacy_ws if len(parts) == 4 and parts[3] == "ws" else None


def is_append(scope: Scope) -> bool:
    """Whether a request appends one slot."""
    path: str = scope["path"]
    return (
        scope["method"] == "POST"
        and path.startswith("/v1/threads/")
        and path.endswith("/slots")
        and path.count("/") == 4
    )


async def _v1_run(scope: Scope, call: Call, send: Send) -> None:
    call.route = "/v1/runs/{run_id}"
    await _working_set(scope, call, send, scope["path"][9:])


async def _legacy_run(scope: Scope, call: Call, send: Send) -> None:
    call.route = "/runs/{run_id}"
    run_id = scope["path"][6:]
    try:
        await _working_set(scope, call, send, run_id)
    except NotFound as error:
        raise AsRefused(error, 404, f"Run {run_id} not found") from error


async def _legacy_ws(scope: Scope, call: Call, send: Send) -> None:
    call.route = "/runs/{run_id}/ws"
    try:
        await _working_set(scope, call, send, scope["path"][6:-3])
    except NotFound as error:
        raise AsRefused(error, 404, "run not found") from error


async def _working_set(scope: Scope, call: Call, send: Send, run_id: str) -> None:
    assert call.reads is not None
    document = await call.reads.get(RUNS + require_id("run_id", run_id))
    seen = require_working_set(call, run_id, document)
    tag = b'"%d"' % (seen.version - 1)
    status, body = 200, seen.body
    for name, value in scope["headers"]:
        if name == b"if-none-match" and tag in value:
            status, body = 304, b""
    headers = [(b"etag", tag)]
    if body:
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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


async def append_slot(scope: Scope, call: Call, body: bytes, send: Send) -> None:
    """Append one slot; it is durable when this answers."""
    call.route = "/v1/threads/{thread_id}/slots"
    request = Request(scope)
    caller = caller_of(request)
    thread_id: str = scope["path"][12:-6]
    headers = dict(scope["headers"])
    require_json(headers.get(b"content-type", b"").decode("latin-1"))
    given = decoded(body, slots.NewSlot)
    user_id = caller.user(given.user_id)
    if caller.identity.user_id is not None:
        await require_own_thread(caller, thread_id)
    key = store_key(caller, key_in(scope)) if b"idempotency-key" in headers else ""
    expected = given.expected_len
    if b"if-match" in headers or b"if-none-match" in headers:
        expected = etag.expected(request, expected)
    try:
        slot = await caller.pf.context.append(
            thread_id,
            given.payload,
            given.from_id,
            given.to_id,
            given.own_name,
            given.is_self_call,
            given.usage_instructions,
            given.todo_nudge,
            user_id=user_id,
            key=key,
            expected_len=expected,
        )
    except Conflict as error:
        raise etag.refusal(request, error) from error
    answer = encoded(slots.shown_as_given(slot, given, user_id))
    told = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(answer)),
        (b"etag", b'"%d"' % (slot.index + 1)),
    ]
    await send({"type": "http.response.start", "status": 201, "headers": told})
    await send({"type": "http.response.body", "body": answer})


def store_key(caller: Caller, key: str | None) -> str:
    """A caller's key as the store's: two callers who choose the same never meet."""
    return "" if key is None else f"http:{caller.identity.principal}:{key}"


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _answer(status: str, schema: dict[str, Any], says: str) -> dict[str, Any]:
    return {status: {"description": says, "content": {"application/json": {"schema": schema}}}}


#: How the document tells of the route that FastAPI does not have.
OPERATIONS: list[dict[str, Any]] = [
    {
        "path": "/v1/threads/{thread_id}/slots",
        "method": "post",
        "told": {
            "tags": ["threads"],
            "summary": "Append a slot",
            "parameters": [_named("thread_id")],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": named(slots.NewSlot)}},
            },
            "responses": _answer("201", named(slots.Slot), "The slot as it is stored."),
        },
    }
]

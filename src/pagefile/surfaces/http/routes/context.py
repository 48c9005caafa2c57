"""Context: a prompt within a token budget, and the receipt of how it was made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from pagefile.assembly.options import AssemblyOptions
from pagefile.assembly.prompt import Prompt
from pagefile.assembly.receipt import AssemblyReceipt
from pagefile.context.names import log_of
from pagefile.errors import Forbidden
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.ownership import own_run, require_own_thread
from pagefile.surfaces.http.pagination import Cursor, Limit, Page
from pagefile.surfaces.http.problems import Refused

router = APIRouter(prefix="/v1/context", tags=["context"])

Format = Literal["openai", "anthropic", "text"]
_PAGE = 1_000


class ContextRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a prompt is about: a thread, a run, or neither; and how much it may take.

    `record` stores the receipt, which needs `write`; left out, it is stored for
    whoever may.
    """

    query: str | None = None
    budget: int = 8_000
    thread_id: str | None = None
    run_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    system: str = ""
    agent: str = ""
    counter: str | None = None
    at: int | None = None
    record: bool | None = None
    format: Format = "openai"
    options: AssemblyOptions | None = None


class ContextAnswer(msgspec.Struct, kw_only=True):
    """A prompt in the form that was asked for; `system` stands apart for `anthropic`."""

    format: Format
    messages: list[dict[str, Any]] | None
    system: str | None
    text: str | None
    tokens: int
    receipt: AssemblyReceipt


class VerifyReceipt(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a receipt does not hold: the question and the instructions of its prompt."""

    query: str | None = None
    system: str = ""
    user_id: str | None = None


class ReceiptVerified(msgspec.Struct, kw_only=True):
    """Whether the same bytes came out; `differs` names the fields that did not."""

    ok: bool
    receipt_id: str
    differs: list[str]
    reason: str


@router.post("", **told(takes=ContextRequest, gives=ContextAnswer, optional=True, refuses=(404,)))
async def assemble(request: Request) -> Response:
    """A prompt from a thread or run, pinned blocks and memory, never over its budget."""
    caller = caller_of(request)
    given = await body_of(request, ContextRequest, may_be_empty=True)
    if given.thread_id is not None and given.run_id is not None:
        raise Refused(422, "thread_id: give thread_id or run_id, not both")
    if given.record:
        caller.require("write")
    record = "write" in caller.identity.rights if given.record is None else given.record
    user_id = caller.user(given.user_id)
    source: Any = given.thread_id
    thread_id = given.thread_id
    if given.run_id is not None:
        source = await own_run(caller, given.run_id)
        thread_id = (await source.load())["thread_id"]
    at = given.at
    if thread_id is not None:
        at = await _own_messages(caller, thread_id, at)
    await caller.memory()
    prompt = await caller.pf.assemble(
        source,
        given.query,
        given.budget,
        user_id=user_id,
        project_id=given.project_id,
        system=given.system,
        agent=given.agent,
        counter=given.counter,
        at=at,
        record=record,
        options=given.options,
    )
    return reply(_shown(prompt, given.format))


@router.get("/receipts", **told(gives=Page))
async def list_receipts(
    request: Request,
    limit: Limit = 100,
    cursor: Cursor = None,
    user_id: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """The receipts of a user's prompts, newest first."""
    caller = caller_of(request)
    await caller.memory()
    whose = caller.user(user_id)
    page = await caller.pf.assembly.receipts(user_id=whose, limit=limit, cursor=cursor)
    return reply(Page(items=list(page.receipts), cursor=page.cursor))


@router.post(
    "/receipts/{receipt_id}/verify",
    **told(takes=VerifyReceipt, gives=ReceiptVerified, optional=True),
)
async def verify_receipt(
    request: Request, receipt_id: Annotated[str, Path(max_length=512)]
) -> Response:
    """Make a prompt again, at its position, and compare; `query` and `system` as they were."""
    caller = caller_of(request)
    given = await body_of(request, VerifyReceipt, may_be_empty=True)
    await caller.memory()
    made = await caller.pf.assembly.verify_receipt(
        receipt_id,
        user_id=caller.user(given.user_id),
        query=given.query,
        system=given.system,
    )
    told = ReceiptVerified(
        ok=bool(made),
        receipt_id=made.receipt_id,
        differs=list(made.differs),
        reason=made.reason,
    )
    return reply(told)


@router.get("/receipts/{receipt_id}", **told(gives=AssemblyReceipt))
async def get_receipt(
    request: Request,
    receipt_id: Annotated[str, Path(max_length=512)],
    user_id: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """What went into a prompt that was made, what was left out, and why."""
    caller = caller_of(request)
    await caller.memory()
    return reply(await caller.pf.assembly.receipt(receipt_id, user_id=caller.user(user_id)))


def _shown(prompt: Prompt, form: Format) -> ContextAnswer:
    messages: list[dict[str, Any]] | None = None
    system = text = None
    if form == "text":
        text = prompt.text()
    elif form == "anthropic":
        made = prompt.anthropic()
        messages, system = made["messages"], made["system"]
    else:
        messages = [dict(message) for message in prompt.messages]
    receipt = prompt.receipt
    return ContextAnswer(
        format=form,
        messages=messages,
        system=system,
        text=text,
        tokens=receipt.tokens,
        receipt=receipt,
    )


async def _own_messages(caller: Caller, thread_id: str, at: int | None) -> int | None:
    """Refuse a caller who is bound to one user a thread with somebody else's messages.

    What was looked at is what is read: the position is that of the look.

    Raises:
        Forbidden: there are such messages.
    """
    own = caller.identity.user_id
    if own is None:
        return at
    await require_own_thread(caller, thread_id)
    store, log = caller.pf.store, log_of(thread_id)
    if at is None:
        at = (await store.head()).position
    start, length = 0, await store.length(log, at=at)
    while start < length:
        entries = await store.read(log, start, limit=_PAGE)
        if any(not entry.erased and entry.user != own for entry in entries[: length - start]):
            raise Forbidden("others speak in this thread too", "use a key for the whole tenant")
        start += len(entries) or length
    return at

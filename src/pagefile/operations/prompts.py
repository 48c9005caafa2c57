"""Prompts: made within a token budget, each with the receipt of how it was made."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pagefile.assembly.assembly import Assembly
from pagefile.assembly.options import AssemblyOptions
from pagefile.assembly.prompt import Prompt
from pagefile.assembly.receipt import AssemblyReceipt
from pagefile.context.names import log_of
from pagefile.errors import Forbidden, Invalid
from pagefile.operations.answer import Page
from pagefile.operations.binder import Id
from pagefile.operations.caller import Caller
from pagefile.operations.operation import get, operation, post

Format = Literal["openai", "anthropic", "text"]
_PAGE = 1_000


class ContextAnswer(msgspec.Struct, kw_only=True):
    """A prompt in the form that was asked for; `system` stands apart for `anthropic`."""

    format: Format
    messages: list[dict[str, Any]] | None
    system: str | None
    text: str | None
    tokens: int
    receipt: AssemblyReceipt


class ReceiptVerified(msgspec.Struct, kw_only=True):
    """Whether the same bytes came out; `differs` names the fields that did not."""

    ok: bool
    receipt_id: str
    differs: list[str]
    reason: str


@operation(
    Assembly.assemble,
    http=post("/v1/context", "context"),
    right="read",
    takes=(
        "ContextRequest: What a prompt is about: a thread, a run, or neither; and how much it "
        "may take.\n\n`record` stores the receipt, which needs `write`; left out, it is stored "
        "for\nwhoever may."
    ),
    may_be_empty=True,
    refuses=(404,),
    span="pagefile.assemble",
)
async def assemble(
    caller: Caller,
    *,
    query: str | None = None,
    budget: int = 8_000,
    thread_id: str | None = None,
    run_id: str | None = None,
    user_id: str | None = None,
    project_id: str | None = None,
    system: str = "",
    agent: str = "",
    counter: str | None = None,
    at: int | None = None,
    record: bool | None = None,
    format: Format = "openai",
    options: AssemblyOptions | None = None,
) -> ContextAnswer:
    """A prompt from a thread or run, pinned blocks and memory, never over its budget."""
    if thread_id is not None and run_id is not None:
        raise Invalid("thread_id", "is given beside run_id", "give thread_id or run_id, not both")
    if record:
        caller.require("write")
    source: Any = thread_id
    if run_id is not None:
        source = await caller.run(run_id)
        thread_id = (await source.load())["thread_id"]
    if thread_id is not None:
        at = await _own_messages(caller, thread_id, at)
    await caller.memory()
    prompt = await caller.pf.assemble(
        source,
        query,
        budget,
        user_id=user_id,
        project_id=project_id,
        system=system,
        agent=agent,
        counter=counter,
        at=at,
        record="write" in caller.identity.rights if record is None else record,
        options=options,
    )
    return _shown(prompt, format)


@operation(Assembly.receipts, http=get("/v1/context/receipts", "context"))
async def list_receipts(
    caller: Caller, *, limit: int = 100, cursor: str | None = None, user_id: str | None = None
) -> Page:
    """The receipts of a user's prompts, newest first."""
    await caller.memory()
    page = await caller.pf.assembly.receipts(user_id=user_id, limit=limit, cursor=cursor)
    return Page(items=list(page.receipts), cursor=page.cursor)


@operation(
    Assembly.verify_receipt,
    http=post("/v1/context/receipts/{receipt_id}/verify", "context"),
    right="read",
    changes=True,
    takes=(
        "VerifyReceipt: What a receipt does not hold: the question and the instructions of "
        "its prompt."
    ),
    may_be_empty=True,
)
async def verify_receipt(
    caller: Caller,
    receipt_id: Id,
    *,
    query: str | None = None,
    system: str = "",
    user_id: str | None = None,
) -> ReceiptVerified:
    """Make a prompt again, at its position, and compare; `query` and `system` as they were."""
    await caller.memory()
    made = await caller.pf.assembly.verify_receipt(
        receipt_id, user_id=user_id, query=query, system=system
    )
    return ReceiptVerified(
        ok=bool(made),
        receipt_id=made.receipt_id,
        differs=list(made.differs),
        reason=made.reason,
    )


get_receipt = operation(
    Assembly.receipt,
    http=get("/v1/context/receipts/{receipt_id}", "context"),
    wire={"receipt_id": Id},
)


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
    await caller.require_own_thread(thread_id)
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

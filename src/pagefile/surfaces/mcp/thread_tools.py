"""Tools about conversations: append to one, read one, and a prompt's worth of context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pagefile.errors import Invalid, LimitExceeded
from pagefile.surfaces.mcp.budget import Capped, LeftOut
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.memory_tools import UserId
from pagefile.surfaces.mcp.tool import Tool

if TYPE_CHECKING:
    from pagefile.context.slot import BufferSlot
    from pagefile.context.thread import ThreadContext

ThreadId = Annotated[str, Meta(description="The thread's id.")]
_MOST_MESSAGES = 1_000
_OLDER = "ask again with a larger max_tokens, or with before set to the smallest index here"
#: What an answer takes around the text of a prompt.
_AROUND_TOKENS = 100
#: How often a prompt is made smaller.
_ATTEMPTS = 8


class AppendMessage(Capped, frozen=True, kw_only=True):
    thread_id: ThreadId
    text: Annotated[str, Meta(description="The message.")] | None = None
    payload: Annotated[Any, Meta(description="Any JSON instead of a text.")] = None
    sender: Annotated[str, Meta(description="Who says it.")] = "user"
    recipient: Annotated[str, Meta(description="To whom.")] = "agent"
    user_id: UserId | None = None
    key: Annotated[str, Meta(description="Makes a repeat harmless.")] = ""
    expected_len: (
        Annotated[int, Meta(description="Refuse unless the thread has so many messages.")] | None
    ) = None


class Appended(msgspec.Struct, frozen=True):
    index: int
    timestamp: str


def append(caller: Caller, given: AppendMessage) -> Appended:
    if (given.text is None) == (given.payload is None):
        raise Invalid("text", "and payload: one of them is needed", "give exactly one")
    user = caller.user(given.user_id)
    payload = {"text": given.text} if given.text is not None else given.payload
    slot = caller.pf.context.append(
        *(given.thread_id, payload, given.sender, given.recipient),
        user_id=user,
        key=caller.key(given.thread_id, given.key),
        expected_len=given.expected_len,
        owner=caller.identity.user,
    )
    return Appended(slot.index, slot.metadata.timestamp)


class GetThread(Capped, frozen=True, kw_only=True):
    thread_id: ThreadId
    limit: Annotated[
        int, Meta(ge=1, le=_MOST_MESSAGES, description="How many at most, the newest.")
    ] = 50
    before: Annotated[int, Meta(ge=0, description="Only those before this index.")] | None = None


class Said(msgspec.Struct, frozen=True):
    index: int
    timestamp: str
    sender: str
    recipient: str
    payload: Any
    erased: bool = False


class Messages(msgspec.Struct, frozen=True):
    """The newest messages that fit, oldest first, of a thread of `length`."""

    length: int
    messages: Sequence[Said]
    left_out: LeftOut | None = None


def get(caller: Caller, given: GetThread) -> Messages:
    view = caller.thread(given.thread_id)
    return messages_of(caller, view, limit=given.limit, before=given.before)


def messages_of(
    caller: Caller, view: ThreadContext, *, limit: int, before: int | None = None
) -> Messages:
    """The newest messages of a thread that the caller may see and that fit, oldest first."""
    length = len(view)
    stop = length if before is None else min(before, length)
    slots = _newest(caller, view, limit, stop)

    def told(newest: Sequence[Said], left: LeftOut | None) -> Messages:
        return Messages(length, tuple(reversed(newest)), left)

    return caller.budget.filled([_said(slot) for slot in slots], told, _OLDER)


def _newest(caller: Caller, view: ThreadContext, limit: int, stop: int) -> list[BufferSlot]:
    """The newest slots before an index that the caller may see, newest first."""
    found: list[BufferSlot] = []
    while stop and len(found) < limit:
        start = max(0, stop - limit)
        found += [each for each in reversed(view.get_slice(start, stop)) if caller.sees(each)]
        stop = start
    return found[:limit]


def _said(slot: BufferSlot) -> Said:
    known = slot.metadata
    payload = None if slot.erased else _plain(slot.payload)
    return Said(
        *(known.slot_index, known.timestamp, known.from_id, known.to_id), payload, slot.erased
    )


def _plain(payload: Any) -> Any:
    # A value whose class is not loaded here shows its fields.
    to_dict = getattr(payload, "to_dict", None)
    return msgspec.to_builtins(
        to_dict() if callable(to_dict) else payload, enc_hook=str, str_keys=True
    )


class GetContext(Capped, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="What memory is asked.")] | None = None
    thread_id: Annotated[str, Meta(description="The conversation under way.")] | None = None
    run_id: Annotated[str, Meta(description="A run, with its thread.")] | None = None
    user_id: UserId | None = None


class Context(msgspec.Struct, frozen=True):
    """A prompt's worth of context. `sections` says what each part of it takes, in tokens."""

    text: str
    tokens: int
    sections: dict[str, int]
    left_out: int


def context(caller: Caller, given: GetContext) -> Context:
    user, budget = caller.user(given.user_id), caller.budget
    if given.thread_id is not None and given.run_id is not None:
        raise Invalid("run_id", "is given beside thread_id", "give one: a run has its thread")
    if given.query is None and given.thread_id is None and given.run_id is None:
        raise Invalid("query", "is missing", "give a query, a thread_id or a run_id")
    source: Any = None
    at: int | None = None
    if given.run_id is not None:
        # The prompt of a user's run leaves out what others said in its thread.
        source = caller.run(given.run_id)
    elif given.thread_id is not None:
        source = caller.thread(given.thread_id)
        at = caller.settled(given.thread_id)
    room = budget.most - _AROUND_TOKENS
    for attempt in range(_ATTEMPTS):
        prompt = caller.pf.assemble(
            *(source, given.query, room),
            user_id=user,
            counter=budget.counter,
            at=at,
            record=False,
        )
        receipt = prompt.receipt
        told = Context(prompt.text(), receipt.tokens, receipt.sections, len(receipt.left_out))
        over = budget.cost(told) - budget.most
        if over <= 0:
            return told
        # JSON writes quotes and line ends with two signs; how many go with what is cut varies.
        room -= over * (attempt + 1)
        if room <= 0:
            break
    raise LimitExceeded(
        "the context in tokens",
        limit=budget.most,
        wanted=budget.most + over,
        next_step="ask again with a larger max_tokens",
    )


THREAD_TOOLS = (
    Tool(
        name="get_context",
        title="Context for a prompt",
        about="What belongs into a prompt now: the conversation, the run's state and what memory"
        " knows about the query, within max_tokens.",
        takes=GetContext,
        gives=Context,
        call=context,
    ),
    Tool(
        name="append_message",
        title="Record a message",
        about="Add a message at the end of a thread; it is there for good.",
        takes=AppendMessage,
        gives=Appended,
        call=append,
    ),
    Tool(
        name="get_thread",
        title="Read a thread",
        about="The newest messages of a thread, oldest first.",
        takes=GetThread,
        gives=Messages,
        call=get,
    ),
)

"""`pagefile threads`, `tail` and `prompt`: threads of messages, and what a model is sent."""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import Invalid, NotFound, shown
from pagefile.store.arguments import bounded
from pagefile.surfaces.cli.call import Answer, Call, encoded, plain
from pagefile.surfaces.cli.memory_view import count, second, short
from pagefile.surfaces.cli.parameters import Limit, Yes, confirm, given_text
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.assembly.prompt import Prompt
    from pagefile.assembly.receipt import AssemblyReceipt, LeftOut, Piece
    from pagefile.context.slot import BufferSlot
    from pagefile.context.thread import ThreadContext
    from pagefile.handle import Pagefile


app = typer.Typer(help="Threads of messages.")
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]
_HEADINGS = ("index", "when", "from", "to", "payload")


@app.callback(invoke_without_command=True)
def threads(context: typer.Context) -> Answer | None:
    """Threads of messages: list, show, append, fork, delete."""
    return _listed(Call.of(context), "", 100) if context.invoked_subcommand is None else None


@app.command("list")
def list_(
    context: typer.Context,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Ids that begin so.", metavar="TEXT")
    ] = "",
    limit: Limit = 100,
) -> Answer:
    """The ids of threads, and how many slots each has."""
    return _listed(Call.of(context), prefix, limit)


def _listed(call: Call, prefix: str, limit: int) -> Answer:
    from pagefile.context.names import THREADS

    with call.open() as pf:
        names = pf.store.names("log", prefix=THREADS + prefix, limit=limit)
        told = [
            {"thread_id": name.removeprefix(THREADS), "slots": pf.store.length(name)}
            for name in names
        ]
    rows = [(each["thread_id"], each["slots"]) for each in told]
    return Answer(told, lambda screen: screen.table(("thread", "slots"), rows, none="no threads"))


@app.command("show")
def show(
    context: typer.Context,
    thread: Thread,
    start: Annotated[
        int, typer.Option("--start", help="From this index; -10 is the tenth last.", metavar="N")
    ] = 0,
    limit: Limit = 100,
) -> Answer:
    """The slots of a thread, oldest first."""
    call = Call.of(context)
    with call.open() as pf:
        view = _view(pf, thread)
        first = max(0, len(view) + start) if start < 0 else start
        slots = view.get_slice(first, first + bounded(limit))
        told = [slot_told(slot) for slot in slots]
    return Answer(told, lambda screen: _table(screen, told))


@app.command("append")
def append(
    context: typer.Context,
    thread: Thread,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The message; '-' or a pipe is standard input."),
    ] = None,
    sender: Annotated[str, typer.Option("--from", help="Who says it.", metavar="NAME")] = "user",
    recipient: Annotated[str, typer.Option("--to", help="To whom.", metavar="NAME")] = "agent",
    payload: Annotated[
        bool, typer.Option("--payload", help="The message is JSON, stored as it is.")
    ] = False,
    key: Annotated[str, typer.Option("--key", help="Makes a repeat harmless.", metavar="KEY")] = "",
    expected_len: Annotated[
        int | None,
        typer.Option("--expected-len", help="Refuse unless it has so many.", metavar="N"),
    ] = None,
) -> Answer:
    """Record one message at the end of a thread."""
    call = Call.of(context)
    given = given_text("text", text)
    value: Any = _parsed(given) if payload else {"text": given}
    with call.open(create=True) as pf:
        slot = pf.context.append(
            *(thread, value, sender, recipient),
            user_id=call.user,
            key=key,
            expected_len=expected_len,
        )
        told = slot_told(slot)
    return Answer(told, lambda screen: screen.done(f"{thread}[{told['index']}]"))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid("payload", f"{shown(text)} is no JSON ({error})", "mend it") from None


@app.command("fork")
def fork(
    context: typer.Context,
    thread: Thread,
    at: Annotated[
        int | None,
        typer.Option("--at", help="Share so many slots; all, when left out.", metavar="N"),
    ] = None,
    new_id: Annotated[
        str | None, typer.Option("--id", help="The new thread's id.", metavar="ID")
    ] = None,
) -> Answer:
    """A new thread that shares the slots there are; nothing is copied."""
    call = Call.of(context)
    with call.open() as pf:
        child = pf.context.fork(thread, at, new_id=new_id)
        slots = len(pf.context.get_or_create_thread(child))
    told = {"thread_id": child, "forked_from": thread, "slots": slots}
    return Answer(told, lambda screen: screen.line(child))


@app.command("delete")
def delete(context: typer.Context, thread: Thread, yes: Yes = False) -> Answer:
    """End a thread; what forks share of it stays theirs."""
    call = Call.of(context)
    with call.open() as pf:
        slots = len(_view(pf, thread))
        confirm(call, f"Delete {thread} with {count(slots, 'slot')}?", yes=yes)
        gone = pf.context.delete_thread(thread)
    told = {"thread_id": thread, "deleted": gone}
    return Answer(told, lambda screen: screen.done(f"{thread} deleted"), count=int(gone))


def tail(
    context: typer.Context,
    thread: Thread,
    limit: Limit = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as messages come, from any process.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="End after so long without one.", metavar="SECONDS"),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", help="End after so many new ones.", min=1, metavar="N")
    ] = None,
) -> Answer | None:
    """The last messages of a thread; with --follow, those to come too."""
    call = Call.of(context)
    if not follow and (timeout is not None or most is not None):
        raise Invalid("follow", "--timeout and --most are about following", "add --follow")
    # A thread that is yet to come is waited for, and so is its file.
    with call.open(create=follow) as pf:
        view = pf.context.get_or_create_thread(thread) if follow else _view(pf, thread)
        last = view.tail(bounded(limit))
        if not follow:
            told = [slot_told(slot) for slot in last]
            return Answer(told, lambda screen: _table(screen, told))
        after = last[-1].index if last else len(view) - 1
        for slot in last:
            _line(call, slot)
        with view.follow(after, timeout=timeout) as coming:
            for slot in islice(coming, most):
                _line(call, slot)
    return None


def _view(pf: Pagefile, thread: str) -> ThreadContext:
    view = pf.context.get_thread(thread)
    if view is None:
        raise NotFound(f"there is no thread {shown(thread)}", "see 'pagefile threads'")
    return view


def slot_told(slot: BufferSlot) -> dict[str, Any]:
    """A slot as plain values."""
    known = slot.metadata
    return {
        "thread_id": known.thread_id,
        "index": known.slot_index,
        "timestamp": known.timestamp,
        "from_id": known.from_id,
        "to_id": known.to_id,
        "payload_type": known.payload_type,
        "user_id": known.user_id,
        "erased": slot.erased,
        "payload": None if slot.erased else plain(_opened(slot.payload)),
    }


def _opened(payload: Any) -> Any:
    # A value whose class is not loaded here shows its fields.
    to_dict = getattr(payload, "to_dict", None)
    return to_dict() if callable(to_dict) else payload


def said(told: dict[str, Any]) -> str:
    """The message itself, in one line."""
    if told["erased"]:
        return "(erased)"
    payload = told["payload"]
    if isinstance(payload, dict) and isinstance(payload.get("text"), str) and len(payload) == 1:
        return short(payload["text"])
    return short(payload if isinstance(payload, str) else encoded(payload))


def _row(told: dict[str, Any]) -> tuple[Any, ...]:
    return told["index"], second(told["timestamp"]), told["from_id"], told["to_id"], said(told)


def _table(screen: Screen, slots: list[dict[str, Any]]) -> None:
    screen.table(_HEADINGS, [_row(slot) for slot in slots], none="no slots")


def _line(call: Call, slot: BufferSlot) -> None:
    """One message as it comes: a line of JSON for programs."""
    told = slot_told(slot)
    if call.json:
        print(encoded(told), flush=True)
        return
    index, when, sender, recipient, message = _row(told)
    if call.screen.is_terminal:
        call.screen.line(f"{index:>5}  {when}  {sender} → {recipient}: {message}")
        return
    _table(call.screen, [told])
    sys.stdout.flush()


# `pagefile prompt`: what a model would be sent, and why.


_PROMPT_HEADINGS = ("in", "section", "tokens", "score", "reason", "text", "id")


def prompt(
    context: typer.Context,
    thread: Annotated[
        str | None, typer.Argument(metavar="THREAD", help="The thread's id; may be left out.")
    ] = None,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUESTION", help="What memory is asked; '-' is standard input."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="The prompt of this run.", metavar="RUN")
    ] = None,
    budget: Annotated[
        int, typer.Option("--budget", "-b", help="How many tokens at most.", metavar="N")
    ] = 8_000,
    system: Annotated[
        str, typer.Option("--system", help="The text that stands first.", metavar="TEXT")
    ] = "",
    everything: Annotated[
        bool, typer.Option("--unrelated", help="Take memories that only score best, too.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what went in, what did not, and why.")
    ] = False,
) -> Answer:
    """Show the prompt that a question gives, and with --explain why it is what it is."""
    from pagefile.assembly.options import AssemblyOptions

    call = Call.of(context)
    if question is None:  # One argument is the question.
        thread, question = None, thread
    if thread is not None and run is not None:
        raise Invalid("run", "a thread is named too", "give one of the two")
    asked = given_text("question", question)
    with call.open() as pf:
        made = pf.assemble(
            thread if run is None else pf.runs.open(run),
            asked,
            budget,
            user_id=call.user,
            system=system,
            record=False,
            options=AssemblyOptions(related_only=not everything),
        )
        rows = _rows(pf, made.receipt) if explain else []
    told: dict[str, Any] = {"messages": made.messages, "tokens": made.receipt.tokens}
    if explain:
        told["receipt"] = made.receipt

    def show(screen: Screen) -> None:
        _messages(screen, made)
        if explain:
            screen.line()
            screen.table(_PROMPT_HEADINGS, rows, none="nothing went in, and nothing was left out")

    return Answer(told, show, count=len(made.messages))


def _messages(screen: Screen, made: Prompt) -> None:
    for at, message in enumerate(made.messages):
        if at:
            screen.line()
        name = f" ({message['name']})" if message.get("name") else ""
        screen.line(f"{message['role']}{name}", "bold cyan")
        if message.get("content"):
            screen.line(str(message["content"]).rstrip("\n"))
        for each in message.get("tool_calls") or ():
            called = each["function"]
            screen.line(f"calls {called['name']} {called['arguments']}")
    taken, budget = count(made.receipt.tokens, "token"), made.receipt.budget
    number = count(len(made.messages), "message")
    screen.note(f"{number}, {taken} of {budget:,}")


def _rows(pf: Pagefile, receipt: AssemblyReceipt) -> list[tuple[Any, ...]]:
    """What went in, then what did not, each with its text if it is a memory."""
    entries: list[Piece | LeftOut] = [*receipt.pieces, *receipt.left_out]
    rows: list[tuple[Any, ...]] = []
    for one in entries:
        reason = getattr(one, "reason", None)
        text = _text(pf, one.stream) if one.section == "recall" else None
        tokens = one.tokens or None
        rows.append((reason is None, one.section, tokens, one.score, reason, text, _id(one)))
    return rows


def _id(one: Piece | LeftOut) -> str | None:
    """What `pagefile get` takes of a memory; a thread with the numbers of its slots."""
    if one.section == "recall":
        return one.stream.rpartition("/")[2]
    if one.section != "tail":
        return one.item or one.stream or None
    last = getattr(one, "last", one.number)
    return f"{one.stream} {one.number}" + ("" if last == one.number else f" to {last}")


def _text(pf: Pagefile, document: str) -> str | None:
    from pagefile.memory.episodes.episode import episode_of
    from pagefile.memory.facts.documents import assertion_in
    from pagefile.memory.items.item import revision_of

    record = pf.store.get(document)
    if record is None or record.erased:
        return None
    if record.kind == "episode":
        return short(episode_of(record).text)
    if record.kind == "item":
        return short(revision_of(record).item.content)
    fact = assertion_in(record)
    return short(f"{fact.subject} {fact.stored.predicate} {fact.object}")

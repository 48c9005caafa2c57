"""`pagefile prompt`: what a model would be sent, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import Invalid
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.memory_view import count, short
from pagefile.surfaces.cli.parameters import given_text
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.assembly.prompt import Prompt
    from pagefile.assembly.receipt import AssemblyReceipt, LeftOut, Piece
    from pagefile.handle import Pagefile

_HEADINGS = ("in", "section", "tokens", "score", "reason", "text", "id")


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
            screen.table(_HEADINGS, rows, none="nothing went in, and nothing was left out")

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

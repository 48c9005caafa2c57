"""`pagefile runs` and `ledger`: the tasks of agents, and all that happened to them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import Corrupt, Invalid, shown
from pagefile.store.arguments import bounded
from pagefile.store.atomic_file import new_file
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call, encoded, plain
from pagefile.surfaces.cli.memory_view import count, second, short, tree
from pagefile.surfaces.cli.parameters import Limit, Yes, confirm, given_text

if TYPE_CHECKING:
    from pagefile.handle import Pagefile


app = typer.Typer(help="Runs: the tasks of agents.")
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
_WRITER = "cli"
#: What to do about a patch that was refused, by why it was.
_NEXT = {
    "conflict": "read it again with 'pagefile runs show', then patch with its _update_seq",
    "invalid": "mend the patch",
    "limit_exceeded": "patch less",
}


@app.callback(invoke_without_command=True)
def runs(context: typer.Context) -> Answer | None:
    """Runs: list, boot, show, brief, patch, milestone, fork, rebuild, repair, delete."""
    return _listed(Call.of(context), "", 100) if context.invoked_subcommand is None else None


@app.command("list")
def list_(
    context: typer.Context,
    after: Annotated[
        str, typer.Option("--after", help="Go on behind this id.", metavar="RUN")
    ] = "",
    limit: Limit = 100,
) -> Answer:
    """The runs there are, and where each stands."""
    return _listed(Call.of(context), after, limit)


def _listed(call: Call, after: str, limit: int) -> Answer:
    fields = ("run_id", "status", "current_stage", "_update_seq", "objective", "next_action")
    with call.open() as pf:
        sets = [_loaded(pf, name) for name in pf.runs.list(after=after, limit=limit)]
    told = [{name: ws[name] for name in fields} for ws in sets]
    rows = [(ws["run_id"], ws["status"], ws["_update_seq"], short(ws["objective"])) for ws in sets]
    headings = ("run", "status", "seq", "objective")
    return Answer(told, lambda screen: screen.table(headings, rows, none="no runs"))


def _loaded(pf: Pagefile, run_id: str) -> dict[str, Any]:
    """A working set; of a damaged one, that it is: the others are there all the same."""
    try:
        return pf.runs.open(run_id).load()
    except Corrupt as error:
        words = f"damaged: 'pagefile runs repair {run_id}' ({error.fact})"
        none = dict.fromkeys(("status", "current_stage", "_update_seq", "next_action"))
        return none | {"run_id": run_id, "status": "CORRUPT", "objective": words}


@app.command("boot")
def boot(
    context: typer.Context,
    objective: Annotated[str, typer.Argument(metavar="OBJECTIVE", help="What is to be done.")],
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", "-c", help="When it is done; may be repeated.", metavar="TEXT"),
    ] = None,
    constraints: Annotated[
        list[str] | None,
        typer.Option("--constraint", help="What binds it; may be repeated.", metavar="TEXT"),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--id", help="An id of your own.", metavar="ID")
    ] = None,
    thread_id: Annotated[
        str | None, typer.Option("--thread", help="The run's thread.", metavar="ID")
    ] = None,
) -> Answer:
    """Start a run."""
    call = Call.of(context)
    with call.open(create=True) as pf:
        run = pf.runs.boot(
            *(objective, criteria or (), constraints or ()),
            run_id=run_id,
            thread_id=thread_id,
            user_id=call.user,
            writer_id=_WRITER,
        )
        told = run.load()
    return Answer(told, lambda screen: screen.line(run.run_id))


@app.command("show")
def show(
    context: typer.Context,
    run: RunId,
    at: Annotated[
        int | None, typer.Option("--at", help="As it was at this sequence.", metavar="SEQ")
    ] = None,
) -> Answer:
    """A run's working set, now or as it was."""
    call = Call.of(context)
    with call.open() as pf:
        found = pf.runs.open(run)
        told = found.load() if at is None else found.at(at)
    return Answer(told, lambda screen: tree(screen, told))


@app.command("brief")
def brief(
    context: typer.Context,
    run: RunId,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="How long at most.", metavar="N")
    ] = None,
) -> Answer:
    """The working set as Markdown for a prompt."""
    call = Call.of(context)
    with call.open() as pf:
        text = pf.runs.open(run).brief(max_tokens=max_tokens)
    return Answer({"run_id": run, "brief": text}, lambda screen: screen.markdown(text))


@app.command("patch")
def patch(
    context: typer.Context,
    run: RunId,
    text: Annotated[
        str | None,
        typer.Argument(metavar="PATCH", help="The patch as JSON; '-' or a pipe is standard input."),
    ] = None,
) -> Answer:
    """Change a working set, if it still is what the patch expects."""
    call = Call.of(context)
    given = given_text("patch", text)
    try:
        parsed = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise Invalid("patch", f"{shown(given)} is no JSON ({error})", "mend it") from None
    with call.open() as pf:
        result = pf.runs.open(run).apply_patch(parsed, writer_id=_WRITER)
    told = {
        "ok": result.ok,
        "ws": result.new_ws,
        "evicted": result.evicted,
        "error": result.error,
        "code": result.code,
    }
    status = exit_codes.FINE if result.ok else exit_codes.status_of(result.code or "")

    def shown_to_people(screen: Any) -> None:
        if not result.ok:
            step = _NEXT.get(result.code or "", "")
            screen.error(result.code or "error", result.error or "", step)
            return
        seq = (result.new_ws or {}).get("_update_seq")
        left = f", {count(len(result.evicted), 'item')} left" if result.evicted else ""
        screen.done(f"{run} is at {seq}{left}")

    return Answer(told, shown_to_people, status=status)


@app.command("milestone")
def milestone(
    context: typer.Context,
    run: RunId,
    reason: Annotated[str, typer.Option("--reason", help="Why now.", metavar="TEXT")] = "manual",
    batch: Annotated[
        str | None,
        typer.Option("--batch", help="A batch of items to commit with it.", metavar="ID"),
    ] = None,
) -> Answer:
    """Keep a milestone, and commit a batch of items with it."""
    call = Call.of(context)
    with call.open() as pf:
        made = pf.runs.open(run).milestone(reason, memory_batch_id=batch, writer_id=_WRITER)
    return Answer(plain(made), lambda screen: screen.line(made.episode_id))


@app.command("fork")
def fork(
    context: typer.Context,
    run: RunId,
    at: Annotated[
        int | None, typer.Option("--at", help="Where it stood at SEQ.", metavar="SEQ")
    ] = None,
    new_id: Annotated[
        str | None, typer.Option("--id", help="The new run's id.", metavar="ID")
    ] = None,
) -> Answer:
    """A new run that begins where another stands, or stood."""
    call = Call.of(context)
    with call.open() as pf:
        made = pf.runs.fork(run, at, new_run_id=new_id, writer_id=_WRITER)
        told = made.load()
    return Answer(told, lambda screen: screen.line(made.run_id))


@app.command("rebuild")
def rebuild(context: typer.Context, run: RunId) -> Answer:
    """Fold the ledger, and say whether it gives the stored working set."""
    call = Call.of(context)
    with call.open() as pf:
        same = bool(pf.runs.open(run).rebuild())
    words = "the ledger tells the same" if same else "the ledger tells something else"
    status = exit_codes.FINE if same else exit_codes.PROBLEMS
    return Answer({"run_id": run, "same": same}, lambda screen: screen.line(words), status=status)


@app.command("repair")
def repair(context: typer.Context, run: RunId) -> Answer:
    """Make a damaged working set again from the ledger, as its newest version."""
    call = Call.of(context)
    with call.open() as pf:
        done = pf.runs.open(run).repair(writer_id=_WRITER)
    seq = done.ws["_update_seq"]
    words = f"{run} is at {seq} again: {done.found}" if done.repaired else "nothing was wrong"
    return Answer(plain(done), lambda screen: screen.done(words), count=int(done.repaired))


@app.command("delete")
def delete(context: typer.Context, run: RunId, yes: Yes = False) -> Answer:
    """End a run; its id is not free again."""
    call = Call.of(context)
    with call.open() as pf:
        events = len(pf.runs.open(run).ledger)
        confirm(call, f"Delete {run} with {count(events, 'event')}?", yes=yes)
        gone = pf.runs.delete(run)
    told = {"run_id": run, "deleted": gone}
    return Answer(told, lambda screen: screen.done(f"{run} deleted"), count=int(gone))


# `pagefile ledger`: everything that happened to a run.


def ledger(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    after: Annotated[int, typer.Option("--after", help="Behind this number.", metavar="N")] = 0,
    limit: Limit = 100,
    last: Annotated[bool, typer.Option("--last", help="The last ones, not the first.")] = False,
    event_type: Annotated[
        str | None, typer.Option("--type", help="Events of this type alone.", metavar="TYPE")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Write all of it, as lines of JSON.", metavar="FILE"),
    ] = None,
) -> Answer:
    """The events of a run, numbered from 1."""
    call = Call.of(context)
    if last and (after or event_type is not None):
        raise Invalid("last", "is about the end of all events", "leave --after and --type out")
    with call.open() as pf:
        book = pf.runs.open(run).ledger
        if export is not None:
            return _exported(book, run, export)
        bounded(limit)
        found = book.tail(limit) if last else book.read(after, limit=limit, event_type=event_type)
    rows = [
        (e["sequence_id"], _when(e), e["event_type"], e["writer_id"], _payload(e)) for e in found
    ]
    headings = ("number", "when", "type", "writer", "payload")
    return Answer(found, lambda screen: screen.table(headings, rows, none="no events"))


def _when(event: dict[str, Any]) -> str:
    return second(str(event["timestamp"]))


def _payload(event: dict[str, Any]) -> str:
    return short(encoded(event["payload"]))


def _exported(book: Any, run: str, path: Path) -> Answer:
    with new_file(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8")
        events = book.export_jsonl(lines)
        lines.flush()
        lines.detach()
    told = {"run_id": run, "path": str(path), "events": events}
    words = f"{count(events, 'event')} written to {path}"
    return Answer(told, lambda screen: screen.done(words), count=events)

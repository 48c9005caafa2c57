"""`pagefile forget`, `export` and `import`: a user's memories as a whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pagefile.errors import Invalid
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.envelope import plain
from pagefile.surfaces.cli.parameters import (
    STDIN,
    DryRun,
    Nobody,
    Session,
    Yes,
    confirm,
    given_file,
    moment,
)
from pagefile.surfaces.cli.screen import Screen
from pagefile.surfaces.cli.shown import count


def forget(
    context: typer.Context,
    session: Session = None,
    before: Annotated[
        str | None,
        typer.Option("--before", help="What happened before this moment.", metavar="MOMENT"),
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="All slots of this thread.", metavar="ID")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    nobody: Nobody = False,
    scrub: Annotated[
        bool, typer.Option("--scrub/--no-scrub", help="Write the file anew at once.")
    ] = True,
) -> Answer:
    """Erase what is kept of a user, a session or a thread, to the last byte."""
    call = Call.of(context)
    moment_before = moment("before", before)
    if thread is not None:
        if session is not None or before is not None:
            raise Invalid("thread", "and --session or --before", "give the thread alone")
        return _forget_thread(call, thread, dry_run=dry_run, yes=yes)
    user = call.require_user(nobody=nobody)
    scope: dict[str, Any] = {"user_id": user, "session_id": session, "before": moment_before}
    with call.open() as pf:
        receipt = pf.memory.forget(**scope, dry_run=True)
        if not dry_run:
            whose = "nobody" if user is None else user
            if not yes:
                _show_counts(call.screen, receipt.counts, aside=True)
            confirm(call, f"Erase {count(int(receipt), 'thing')} of {whose} for good?", yes=yes)
            receipt = pf.memory.forget(**scope, scrub=scrub)
    told = {
        "forgotten": int(receipt),
        "counts": receipt.counts,
        "dry_run": receipt.dry_run,
        "receipt": receipt.receipt,
    }

    def show(screen: Screen) -> None:
        _show_counts(screen, receipt.counts)
        if receipt.dry_run:
            screen.note(f"{count(int(receipt), 'thing')} would go; nothing was touched")
        else:
            screen.done(f"{count(int(receipt), 'thing')} forgotten ({receipt.receipt.level})")
            for step in receipt.receipt.remaining:
                screen.warn(f"left to do: {step}")

    return Answer(told, show, count=int(receipt))


def _show_counts(screen: Screen, counts: Any, *, aside: bool = False) -> None:
    rows = sorted((kind, number) for kind, number in counts.items() if number)
    if aside:
        for kind, number in rows:
            screen.note(f"  {kind}: {number:,}")
    else:
        screen.fields(rows)


def _forget_thread(call: Call, thread: str, *, dry_run: bool, yes: bool) -> Answer:
    from pagefile.batch import Selector
    from pagefile.context.names import log_of

    with call.open() as pf:
        receipt = pf.store.erase(Selector(log=log_of(thread)), dry_run=True)
        if not dry_run:
            confirm(call, f"Erase {count(receipt.records, 'slot')} of {thread}?", yes=yes)
            receipt = pf.context.erase_thread(thread)
    told = {"thread_id": thread, "dry_run": dry_run, "receipt": receipt}
    words = "would go; nothing was touched" if dry_run else f"erased ({receipt.level})"
    return Answer(
        told, lambda s: s.done(f"{count(receipt.records, 'slot')} {words}"), count=receipt.records
    )


def export(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A file that is not there yet; '-' is standard output."
        ),
    ] = Path(STDIN),
    nobody: Nobody = False,
) -> Answer | None:
    """Write everything that is kept of a user as lines of JSON."""
    call = Call.of(context)
    user = call.require_user(nobody=nobody)
    with call.open() as pf:
        exported = pf.memory.export(user_id=user)
        if str(file) == STDIN:
            if call.json:
                raise Invalid("json", "standard output is the export itself", "name a FILE")
            for line in exported:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return None
        records = exported.write(file)
    told = {"path": str(file), "records": records}
    return Answer(
        told, lambda s: s.done(f"{count(records, 'record')} written to {file}"), count=records
    )


def import_(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="An export, or a ledger; '-' is standard input."),
    ] = None,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="It is a run's ledger: make a run of it.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", help="The id of the run that is made.", metavar="ID")
    ] = None,
) -> Answer:
    """Take in what `export` wrote, or a run's ledger; doing it again does nothing."""
    call = Call.of(context)
    if run is not None and not ledger:
        raise Invalid("run", "is for --ledger", "leave it out, or add --ledger")
    with given_file(file) as source, call.open(create=True) as pf:
        if ledger:
            made = pf.runs.import_jsonl(source, new_run_id=run)
            told: dict[str, Any] = {"run_id": made.run_id, "events": len(made.ledger)}
            return Answer(told, lambda screen: screen.line(made.run_id))
        receipt = pf.memory.import_(source)
    told = plain(receipt)
    words = (
        f"{count(receipt.records, 'record')} taken in, {receipt.present:,} streams were here"
        f" already, {receipt.forgotten:,} stay forgotten"
    )
    return Answer(told, lambda screen: screen.done(words), count=receipt.records)

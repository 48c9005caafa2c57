"""`pagefile forget`, `export` and `import`: a user's memories as a whole."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import Invalid, NotFound, Unsupported, shown
from pagefile.surfaces.cli.call import Answer, Call, plain
from pagefile.surfaces.cli.memory_view import count, unseen
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

if TYPE_CHECKING:
    from pagefile.handle import Pagefile

#: What receipts call the entries of the search index, and how people see it.
_INDEX = "index"
_NAMES = {_INDEX: "index entries"}


def forget(
    context: typer.Context,
    episode: Annotated[
        str | None, typer.Argument(metavar="ID", help="One episode, and what follows from it.")
    ] = None,
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
    """Erase an episode, a session, a thread, or all that is kept of a user, to the last byte."""
    call = Call.of(context)
    moment_before = moment("before", before)
    if episode is not None and not (session is before is thread is None):
        raise Invalid("id", "and --session, --before or --thread", "give the episode alone")
    if thread is not None:
        if session is not None or before is not None:
            raise Invalid("thread", "and --session or --before", "give the thread alone")
        return _forget_thread(call, thread, dry_run=dry_run, yes=yes)
    user = call.require_user(nobody=nobody)
    scope: dict[str, Any] = {"user_id": user, "session_id": session, "before": moment_before}
    with call.open() as pf:
        if episode is not None:
            _require_episode(pf, call, episode)
            scope["episode_id"] = episode
        receipt = pf.memory.forget(**scope, dry_run=True)
        if not dry_run:
            whose = "nobody" if user is None else user
            if not yes:
                _show_counts(call.screen, receipt.counts, aside=True)
            if receipt.receipt.removed:
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
        things = count(int(receipt), "thing")
        if entries := receipt.counts.get(_INDEX, 0):
            things = f"{things} and {count(entries, 'index entry')}"
        if not receipt.receipt.removed:
            screen.warn(_nothing_of(user, session, before))
        elif receipt.dry_run:
            screen.note(f"{things} would go; nothing was touched")
        else:
            screen.done(f"{things} forgotten ({receipt.receipt.level})")
        for step in receipt.receipt.remaining:
            screen.warn(f"left to do: {step}")

    return Answer(told, show, count=int(receipt))


def _nothing_of(user: str | None, session: str | None = None, before: str | None = None) -> str:
    """Who mistyped a name must not think that something is gone now."""
    whose = "nobody" if user is None else f"user {shown(user)}"
    part = "" if session is None else f" of session {shown(session)}"
    part += "" if before is None else f" from before {before}"
    return f"nothing{part} is kept for {whose}; 'pagefile list users' shows who is known"


def _require_episode(pf: Pagefile, call: Call, identity: str) -> None:
    """Say that there is nothing of the name, rather than that nothing went."""
    try:
        kind = pf.memory.why(identity, user_id=call.user).kind
    except NotFound as error:
        raise unseen(error) from None
    if kind != "episode":
        raise Unsupported(
            f"{shown(identity)} is no episode but {'an' if kind == 'item' else 'a'} {kind}",
            "forget the episode it was read from: 'pagefile get' names it",
        )


def _show_counts(screen: Screen, counts: Any, *, aside: bool = False) -> None:
    # What is derived comes last: it is counted apart.
    rows = sorted(
        ((_NAMES.get(kind, kind), number) for kind, number in counts.items() if number),
        key=lambda row: (row[0] == _NAMES[_INDEX], row[0]),
    )
    if aside:
        for kind, number in rows:
            screen.note(f"  {kind}: {number:,}")
    else:
        screen.fields(rows)


def _forget_thread(call: Call, thread: str, *, dry_run: bool, yes: bool) -> Answer:
    from pagefile.context.names import log_of
    from pagefile.store.batch import Selector

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

    def show(screen: Screen) -> None:
        screen.done(f"{count(records, 'record')} written to {file}")
        if not records:
            screen.warn(_nothing_of(user))

    return Answer(told, show, count=records)


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
            made = pf.runs.import_jsonl(source, new_run_id=run, user_id=call.user)
            told: dict[str, Any] = {"run_id": made.run_id, "events": len(made.ledger)}
            return Answer(told, lambda screen: screen.line(made.run_id))
        receipt = pf.memory.import_(source)
    told = plain(receipt)
    words = f"{count(receipt.records, 'record')} taken in"
    if receipt.present:
        words += f"; {_streams(receipt.present, 'was', 'were')} here already"
    if receipt.forgotten:
        words += f"; {_streams(receipt.forgotten, 'stays', 'stay')} forgotten"
    return Answer(told, lambda screen: screen.done(words), count=receipt.records)


def _streams(number: int, one: str, many: str) -> str:
    """What is not counted in records: a document with all its versions, a log with its entries."""
    return f"1 document or log {one}" if number == 1 else f"{number:,} documents and logs {many}"

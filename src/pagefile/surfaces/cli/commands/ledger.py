"""`pagefile ledger`: everything that happened to a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any

import typer

from pagefile.errors import Invalid
from pagefile.store.arguments import bounded
from pagefile.store.atomic_file import new_file
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.envelope import encoded
from pagefile.surfaces.cli.memory_view import count, second, short
from pagefile.surfaces.cli.parameters import Limit


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

"""`pagefile copy` and `pagefile migrate`: to another engine, to a newer format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from pagefile.errors import Invalid
from pagefile.store.arguments import MOST_SECONDS
from pagefile.surfaces.cli import exit_codes
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.envelope import masked
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.migration import MigrationReport


def copy(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The URL of the store to copy.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The URL to copy into.")],
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="All of them, one after the other.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written meanwhile.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option("--for", help="Follow for so long.", metavar="SECONDS", min=0.0),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the copy back and check it.")
    ] = False,
) -> Answer:
    """Copy a tenant into another store, history and all; go on where an earlier call ended."""
    from pagefile.store.log.copy import CopyReport
    from pagefile.surfaces.cli import copy as copying

    call = Call.of(context)
    if all_tenants and "tenant" in call.given:
        raise Invalid("tenant", "one is named, and all are asked for", "give one of the two")
    call.about = {"url": masked(source), "target": masked(target)}
    if follow and seconds is None:
        seconds = MOST_SECONDS
    last: list[CopyReport] = []
    status = exit_codes.FINE
    with call.screen.progress("copying") as bar:

        def tell(done: CopyReport) -> None:
            last[:] = [done]
            if bar is not None:
                bar(done.position, done.total)

        try:
            answers = copying.copy(
                source,
                target,
                tenant=call.tenant,
                all_tenants=all_tenants,
                follow_seconds=seconds,
                verify=verify,
                progress=tell,
            )
        except KeyboardInterrupt:
            # What is stored is whole up to a position; the next call goes on from there.
            answers = [copying.answer_of(done) for done in last]
            status = exit_codes.FINE if follow else exit_codes.INTERRUPTED

    def show(screen: Screen) -> None:
        for answer in answers:
            told = msgspec.to_builtins(answer)
            if not told.pop("verified"):
                told["check"] = "not asked for: add --verify"
            else:
                told["check"] = "read back, nothing wrong"
            screen.fields(told.items())

    return Answer(answers, show, count=len(answers), status=status)


def migrate(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The store; the one in force if left out.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say what there is to do.")] = False,
    grant: Annotated[
        str | None,
        typer.Option("--grant", help="Let this PostgreSQL user use the store.", metavar="ROLE"),
    ] = None,
) -> Answer:
    """Bring a store to the format of this version; say from which to which."""
    from pagefile.migration import migrate as bring

    call = Call.of(context)
    report = bring(url or call.url, check=check, grant=grant)
    status = exit_codes.FINE if report.is_current else exit_codes.EXIT_STATUS["conflict"]
    return Answer(report, lambda screen: screen.done(_format_words(report)), status=status)


def _format_words(report: MigrationReport) -> str:
    """What a migration found and did, in a sentence."""
    engine, before, after, known = report.engine, report.before, report.after, report.known
    if known is None:
        return f"{engine} has no format to bring up to date"
    if before is None:
        made = "there is no store yet" if after is None else "there was no store"
        todo = f"without --check one of format {known} is made"
        return f"{engine}: {made}; {todo if after is None else f'one of format {after} was made'}"
    if after != known:
        return f"{engine}: format {before}; without --check it is brought to format {known}"
    if before == after:
        return f"{engine}: format {after}, which is current; there was nothing to do"
    return f"{engine}: brought from format {before} to {after}, which is current"

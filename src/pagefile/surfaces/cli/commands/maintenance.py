"""`pagefile verify`, `check`, `reindex`, `consolidate`, `copy`, `migrate`: a store in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import MOST_SECONDS
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call, masked
from pagefile.surfaces.cli.memory_view import count
from pagefile.surfaces.cli.parameters import EmbedderName
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.migration import MigrationReport
    from pagefile.store.records import Head, Report


def verify(
    context: typer.Context,
    head: Annotated[
        str | None,
        typer.Option("--head", help="A head kept elsewhere, as printed.", metavar="POSITION:HEX"),
    ] = None,
) -> Answer:
    """Walk the hash chain from the first commit, and recompute every digest."""
    call = Call.of(context)
    kept = None if head is None else _head(head)
    with call.open() as pf, call.screen.progress("verifying") as progress:
        report = pf.store.verify(head=kept, progress=progress)
    return _reported(report, "verified")


def check(context: typer.Context) -> Answer:
    """Examine the engine's structures: files, indexes, counters."""
    call = Call.of(context)
    with call.open() as pf:
        report = pf.check()
    return _reported(report, "checked")


def _head(text: str) -> Head:
    from pagefile.store.records import Head

    position, _, digest = text.partition(":")
    try:
        if not position.isascii() or not position.isdecimal() or len(position) > 13:
            raise ValueError
        raw = bytes.fromhex(digest)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise Invalid("head", f"{shown(text)} is no head", "give it as 'verify' printed it")
    return Head(int(position), raw)


def _reported(report: Report, done: str) -> Answer:
    head = f"{report.head.position}:{report.head.digest.hex()}"
    told: dict[str, Any] = {
        "ok": bool(report),
        "commits": report.commits,
        "records": report.records,
        "problems": report.problems,
        "head": head,
    }

    def show(screen: Screen) -> None:
        if report:
            screen.done(f"{done}: {count(report.commits, 'commit')}, nothing wrong")
            screen.line(f"head {head}")
            return
        for problem in report.problems:
            screen.line(f"at {problem.position}: {problem.what}", "red")
        screen.error(
            "corrupt", count(len(report.problems), "problem"), "stop writing, and restore a copy"
        )

    status = exit_codes.FINE if report else exit_codes.PROBLEMS
    return Answer(told, show, count=len(report.problems), status=status)


def reindex(
    context: typer.Context,
    embedder: Annotated[
        EmbedderName, typer.Option("--embedder", help="What makes the vectors.")
    ] = "auto",
) -> Answer:
    """Make the search index of the tenant anew, also with another embedder."""
    from pagefile.memory.memory import Memory

    call = Call.of(context)
    with call.open() as pf, call.screen.progress("indexing") as progress:
        memory = Memory(pf, embedder=None if embedder == "none" else embedder)
        tell = None if progress is None else (lambda done: progress(done, done))
        number = memory.reindex(tell)
        model = "none" if memory.embedder is None else memory.embedder.name
    told = {"indexed": number, "embedder": model}
    words = f"{count(number, 'memory')} indexed, embedder {model}"
    return Answer(told, lambda screen: screen.done(words), count=number)


def consolidate(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="How many episodes.", min=1, max=1_000_000)
    ] = 1_000,
    extractor: Annotated[
        Literal["rules", "openai"], typer.Option("--extractor", help="What reads them.")
    ] = "rules",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also those that were given up.")
    ] = False,
) -> Answer:
    """Read facts out of episodes that nobody has read yet, of all users."""
    from pagefile.memory.memory import Memory

    call = Call.of(context)
    with call.open() as pf:
        memory = Memory(pf, extractor=extractor)
        report = memory.consolidate(limit=limit, retry_failed=retry_failed)

    def show(screen: Screen) -> None:
        screen.done(
            f"{count(report.episodes, 'episode')} read, {count(report.facts, 'fact')},"
            f" {report.proposed:,} to be reviewed"
        )
        if report.budget_spent:
            screen.warn("the token budget is spent: consolidate again to go on")
        for identity, why in report.errors:
            screen.warn(f"{identity}: {why}")

    status = exit_codes.PROBLEMS if report.failed else exit_codes.FINE
    return Answer(report, show, count=report.episodes, status=status)


# `pagefile copy` and `pagefile migrate`: to another engine, to a newer format.


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

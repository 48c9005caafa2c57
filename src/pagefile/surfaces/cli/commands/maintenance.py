"""`pagefile verify`, `check`, `reindex` and `consolidate`: keeping a store in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pagefile.errors import Invalid, shown
from pagefile.surfaces.cli import exit_codes
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.memory_view import count
from pagefile.surfaces.cli.parameters import EmbedderName
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
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

"""`pagefile bench`: what this machine and this disk give, next to bare SQLite."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.surfaces.cli.call import Answer, Call
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    pass

_WRITERS = 8
_MOST = 100_000
_EPISODES = 500


def bench(
    context: typer.Context,
    seconds: Annotated[
        float,
        typer.Option("--seconds", help="How long each row takes.", min=0.05, max=60, metavar="N"),
    ] = 1.0,
    folder: Annotated[
        Path,
        typer.Option(
            "--folder", help="On this disk; what is made there is removed.", metavar="FOLDER"
        ),
    ] = Path("."),
) -> Answer:
    """Measure commits, reads and recall on this machine; the noise of one run included."""
    call = Call.of(context)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pagefile-bench-", dir=folder) as place:
        cases = _cases(Path(place), seconds)
        with call.screen.progress("measuring") as progress:
            for number, (name, measure) in enumerate(cases, 1):
                rows.append({"what": name} | measure())
                if progress is not None:
                    progress(number, len(cases))
    bare = rows[0]["per_second"]
    for row in rows:
        row["of_bare_sqlite"] = round(row["per_second"] / bare, 2) if row["durable"] else None

    def show(screen: Screen) -> None:
        screen.table(
            ("what", "per second", "median ms", "99 % ms", "of bare SQLite"),
            [
                (
                    row["what"],
                    round(row["per_second"]),
                    row["median_ms"],
                    row["p99_ms"],
                    row["of_bare_sqlite"],
                )
                for row in rows
            ],
        )
        screen.note("one run on a machine that does other things too: compare within it alone")

    return Answer(rows, show)


def _cases(place: Path, seconds: float) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    return [
        ("bare SQLite, one durable insert", lambda: _bare(place, seconds)),
        ("append, one writer", lambda: _appends(place, seconds, 1)),
        (f"append, {_WRITERS} writers share syncs", lambda: _appends(place, seconds, _WRITERS)),
        ("read the last 50 of a thread", lambda: _reads(place, seconds)),
        (f"recall among {_EPISODES}, words alone", lambda: _recalls(place, seconds)),
    ]


def _bare(place: Path, seconds: float) -> dict[str, Any]:
    import apsw

    connection = apsw.Connection(str(place / "bare.db"))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL").fetchall()
    connection.execute("CREATE TABLE entries (body TEXT) STRICT")
    body = '{"text": "a message of an ordinary length, such as people write"}'

    def insert() -> None:
        connection.execute("INSERT INTO entries VALUES (?)", (body,))

    try:
        return _figures(_timed(insert, seconds), seconds, durable=True)
    finally:
        connection.close()


def _appends(place: Path, seconds: float, writers: int) -> dict[str, Any]:
    from pagefile.handle import open as open_pagefile

    payload = {"text": "a message of an ordinary length, such as people write"}
    with open_pagefile(place / f"appends{writers}.db") as pf:
        times: list[list[float]] = [[] for _ in range(writers)]

        def write(number: int) -> None:
            context = pf.context
            times[number] = _timed(
                lambda: context.append(f"t{number}", payload, "user", "agent"), seconds
            )

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return _figures([each for own in times for each in own], seconds, durable=True)


def _reads(place: Path, seconds: float) -> dict[str, Any]:
    from pagefile.handle import open as open_pagefile

    with open_pagefile(place / "appends1.db") as pf:
        view = pf.context.get_or_create_thread("t0")
        return _figures(_timed(lambda: view.tail(50), seconds), seconds)


def _recalls(place: Path, seconds: float) -> dict[str, Any]:
    from pagefile.handle import open as open_pagefile
    from pagefile.memory.memory import Memory

    with open_pagefile(place / "recall.db") as pf:
        memory = Memory(pf, embedder=None)
        _fill(memory)
        ask = lambda: memory.recall("what about number 77", user_id="u")  # noqa: E731
        return _figures(_timed(ask, seconds), seconds)


def _fill(memory: Any) -> None:
    from pagefile.memory.episodes.episode import Episode

    memory.remember_many(
        [
            Episode(
                session_id=f"s{n // 20}", user_id="u", input=f"Remark number {n} about {n % 97}"
            )
            for n in range(_EPISODES)
        ]
    )


def _timed(work: Callable[[], object], seconds: float) -> list[float]:
    """How long each call took, until the time is over."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end and len(taken) < _MOST:
        work()
        taken.append(time.perf_counter() - began)
    return taken


def _figures(taken: list[float], seconds: float, *, durable: bool = False) -> dict[str, Any]:
    ordered = sorted(taken) or [seconds]
    return {
        "per_second": round(len(taken) / seconds, 1),
        "median_ms": round(statistics.median(ordered) * 1_000, 3),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1_000, 3),
        "durable": durable,
    }

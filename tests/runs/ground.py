"""What tests of runs and imports share: patches, requests, writers, damage, type confusion."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

import pagefile
from pagefile.handle import Options
from pagefile.runs.run import Run
from pagefile.store.commit.committer import Committer
from pagefile.store.engine import Engine

MCR: dict[str, Any] = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "fact",
    "scope": "global",
    "content": "water is wet",
    "confidence": 0.9,
    "rationale": "seen",
    "source_refs": [],
}

#: One of each type of JSON, and what the codec gives a meaning of its own.
WRONG: list[Any] = [None, True, -1, 1.5, "", [1], {"a": 1}, {"$tuple": [1]}]


def patch(seq: int, **fields: Any) -> dict[str, Any]:
    return {"_schema_version": "2.1", "expected_seq": seq, "set": fields}


def slide(n: int, priority: int = 5, size: int = 10) -> dict[str, Any]:
    return {
        "id": f"s{n}",
        "content": f"{n} " + "x" * size,
        "timestamp": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z",
        "priority": priority,
    }


def kinds(run: Run) -> list[str]:
    return [event["event_type"] for event in run.ledger]


def handle_on(engine: Engine) -> pagefile.Pagefile:
    """A handle on an engine of the test's own; the engine stays the test's to close."""
    return pagefile.Pagefile(engine, Committer(engine), "default", Options())


def agree(run: Run) -> bool:
    """Whether ledger and working set tell the same, event by event and version by version."""
    events = list(run.ledger)
    changes = ("WS_UPDATE_APPLIED", "WS_ROLLBACK", "WS_REPAIRED")
    made = [e["payload"]["new_seq"] for e in events if e["event_type"] in changes]
    return (
        [e["sequence_id"] for e in events] == list(range(1, len(events) + 1))
        and made == list(range(1, run.load()["_update_seq"] + 1))
        and bool(run.rebuild())
    )


def change_newest(path: Path | str, stream: str, sql: str, *values: Any) -> None:
    """Change the newest record of a stream in an SQLite file, as somebody with an editor would."""
    connection = apsw.Connection(str(path))
    try:
        newest = "SELECT r.id FROM records r JOIN streams s ON s.id = r.stream WHERE s.name = ?"
        found = f"{newest} ORDER BY r.number DESC LIMIT 1"
        connection.execute(f"UPDATE records SET {sql} WHERE id = ({found})", (*values, stream))
    finally:
        connection.close()


def started(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs the script; it waits for a line of its standard input where it asks."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def lines_left(process: subprocess.Popen[str]) -> list[str]:
    """What a process that was killed had printed and nobody read; the last line may be cut off.

    Not with `communicate`, which begins behind what `readline` has read ahead, anywhere in a line.
    """
    assert process.stdout is not None
    assert process.stdin is not None
    lines = process.stdout.readlines()
    process.wait()
    process.stdout.close()
    process.stdin.close()
    return lines


def released(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Let all go at once, when all are there; what each printed."""
    for one in processes:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    told = [one.communicate(timeout=120)[0] for one in processes]
    assert [one.returncode for one in processes] == [0] * len(processes)
    return told


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value; of a list the first one's, for they are alike."""
    yield at
    inside = range(len(value[:1])) if type(value) is list else value
    for key in inside if isinstance(value, dict | list) else ():
        yield from places(value[key], (*at, key))


def wrong_at(place: int) -> list[Any]:
    """What is put into the place of this number: three of them, or all in a soak."""
    if os.environ.get("PAGEFILE_SOAK") == "1":
        return WRONG
    return [WRONG[(3 * place + n) % len(WRONG)] for n in range(3)]


def with_(value: Any, at: Sequence[Any], other: Any) -> Any:
    """The same value with another in one place."""
    if not at:
        return other
    value = copy.copy(value)
    value[at[0]] = with_(value[at[0]], at[1:], other)
    return value

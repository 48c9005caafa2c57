"""`pagefile demo`: what it does, shown on a store of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import Conflict, Unavailable, shown
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call
from pagefile.surfaces.cli.memory_view import count
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.handle import Pagefile

_SAID = ("I live in Lisbon.", "My sister Clara is a nurse.", "I am allergic to peanuts.")
_ASKED = "Where does Ann live?"
_ACKNOWLEDGED = 100
_WRITER = """
import sys
import pagefile

with pagefile.open(sys.argv[1]) as pf:
    for number in range(1_000_000):
        slot = pf.context.append("crash", {"number": number}, "writer", "nobody")
        print(slot.index, flush=True)
"""


class _Story:
    """The steps so far, told as they happen."""

    def __init__(self, screen: Screen, *, silent: bool) -> None:
        self._screen = screen
        self._silent = silent
        self.steps: list[dict[str, Any]] = []

    def step(self, title: str, *lines: str, good: bool = True) -> None:
        self.steps.append({"step": title, "ok": good, "said": list(lines)})
        if self._silent:
            return
        mark = "✓" if good else "✗"
        self._screen.line(f"{mark} {title}", "bold green" if good else "bold red")
        for line in lines:
            self._screen.line(f"    {line}")


def demo(
    context: typer.Context,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Leave the store in this file.", metavar="FILE"),
    ] = None,
) -> Answer:
    """Remember, recall, fork, race, crash and forget, in a few seconds, without a key."""
    call = Call.of(context)
    if keep is not None and keep.exists():
        raise Conflict(
            f"there is a file {shown(str(keep))}",
            "give a name that is free",
            target=str(keep),
            expected=0,
            current=1,
        )
    story = _Story(call.screen, silent=call.json)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pagefile-demo-") as folder:
        path = Path(folder, "demo.db") if keep is None else keep
        _tell(story, path)
    seconds = time.perf_counter() - began
    good = all(step["ok"] for step in story.steps)

    def show(screen: Screen) -> None:
        screen.note(f"{seconds:.1f} s; " + (f"the file is {keep}" if keep else "nothing is left"))
        if not keep:
            screen.note("start your own: pagefile init")

    return Answer(story.steps, show, status=exit_codes.FINE if good else exit_codes.PROBLEMS)


def _tell(story: _Story, path: Path) -> None:
    from pagefile.handle import open as open_pagefile

    with open_pagefile(path) as pf:
        _remember(story, pf)
        _fork(story, pf)
        _race(story, pf)
        acknowledged = _crash(path)
        stored = [slot.index for slot in pf.context.get_thread_slots("crash")]
        kept = stored[: len(acknowledged)] == acknowledged
        verified = bool(pf.verify()) and bool(pf.check())
        story.step(
            "A writer was killed with kill -9, and nothing it was told is lost",
            f"{count(len(acknowledged), 'append')} acknowledged, {len(stored)} stored,"
            f" hash chain {'intact' if verified else 'BROKEN'}",
            good=kept and verified,
        )
        _forget(story, pf, path)


def _remember(story: _Story, pf: Pagefile) -> None:
    from pagefile.memory.episodes.episode import Episode
    from pagefile.memory.memory import Memory

    # The words alone: the same on every machine, whatever is installed.
    memory = Memory(pf, embedder=None)
    memory.remember_many([Episode(session_id="demo", user_id="ann", input=said) for said in _SAID])
    found = memory.recall(_ASKED, user_id="ann", limit=1)
    memory.consolidate()
    facts = memory.recall_facts(_ASKED, user_id="ann", limit=1)
    story.step(
        "Ann says three things; a question finds the one that answers it",
        f"{_ASKED} → {found[0].input if found else 'nothing'}",
        f"as a fact, read by rules: {facts[0].text if facts else 'none'}",
        f"for another user: {memory.recall(_ASKED, user_id='bob') or 'nothing'}",
        good=bool(found and facts) and found[0].input == _SAID[0],
    )


def _fork(story: _Story, pf: Pagefile) -> None:
    for number in range(3):
        pf.context.append("plan", {"text": f"step {number}"}, "user", "planner")
    child = pf.context.fork("plan", new_id="plan/what-if")
    pf.context.append(child, {"text": "or by night train?"}, "planner", "user")
    own, shared = (len(pf.context.get_thread_slots(name)) for name in ("plan", child))
    story.step(
        "A thread is forked for a sub-agent; nothing is copied",
        f"plan has {own} slots, plan/what-if shares them and has {shared}",
        good=(own, shared) == (3, 4),
    )


def _race(story: _Story, pf: Pagefile) -> None:
    run = pf.runs.boot("Plan a trip", run_id="trip")
    patch = {"_schema_version": "2.1", "expected_seq": 0, "set": {"next_action": "ask"}}
    first, second = run.apply_patch(patch), run.apply_patch(patch)
    story.step(
        "Two writers expect the same state; one wins, and the other is told",
        f"first: {'applied' if first.ok else first.error}; second: {second.error}",
        good=first.ok and not second.ok,
    )


def _crash(path: Path) -> list[int]:
    """Let another process write, kill it in the middle; what it had been told."""
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with writer:
        try:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(_ACKNOWLEDGED)]
        finally:
            writer.kill()
        _, told = writer.communicate()
    if not lines[-1].strip():
        reason = told.decode(errors="replace").strip().splitlines()
        raise Unavailable(
            f"the writing process ended by itself ({reason[-1] if reason else 'no word'})",
            "see 'pagefile doctor'",
        )
    return [int(line) for line in lines]


def _forget(story: _Story, pf: Pagefile, path: Path) -> None:
    from pagefile.memory.memory import Memory

    receipt = Memory(pf, embedder=None).forget(user_id="ann")
    files = [each for each in path.parent.glob(f"{path.name}*") if each.is_file()]
    left = sum(each.read_bytes().count(b"Lisbon") for each in files)
    story.step(
        "Ann is forgotten, to the last byte",
        f"{count(int(receipt), 'thing')} erased; 'Lisbon' in the files now: {left} times;"
        f" hash chain {'intact' if pf.verify() else 'BROKEN'}",
        good=left == 0,
    )

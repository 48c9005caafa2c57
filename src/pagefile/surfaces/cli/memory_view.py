"""How people see memories: one form of each kind, whichever command shows it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from pagefile.errors import NotFound
from pagefile.surfaces.cli.screen import Screen

#: As much of a text as a terminal shows of it in a list; elsewhere it is whole.
_MOST_CELL = 160
_NOTHING: tuple[Any, ...] = (None, "", [], {}, ())


def day(when: datetime | None) -> str:
    """A moment, to the minute, in UTC, and marked so: what is typed without a mark is local."""
    return "-" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def second(iso: str) -> str:
    """A moment that is text already, to the second, in UTC, and marked so."""
    try:
        when = datetime.fromisoformat(iso)
        when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError):  # A ledger from elsewhere may say anything.
        return iso


def short(text: str) -> str:
    """A text in one line: its beginning for people, all of it for programs."""
    line = " ".join(text.split())
    is_long = len(line) > _MOST_CELL and sys.stdout.isatty()
    return f"{line[: _MOST_CELL - 1]}…" if is_long else line


def unseen(error: NotFound) -> NotFound:
    """The same, with the next step of somebody at a command line."""
    return NotFound(error.fact, "check the id, and whose it is: --user NAME")


def count(number: int, noun: str) -> str:
    """A number and its noun: 1 episode, 2 episodes, 1,000 entries."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {plural}"


def tree(screen: Screen, value: Any, indent: str = "") -> None:
    """Plain values as indented lines: what is empty is left out."""
    for name, each in value.items():
        if each in _NOTHING:
            continue
        if isinstance(each, dict):
            screen.line(f"{indent}{name}:", "cyan")
            tree(screen, each, f"{indent}  ")
        elif isinstance(each, (list, tuple)):
            screen.line(f"{indent}{name}:", "cyan")
            for item in each:
                _item(screen, item, f"{indent}  ")
        else:
            screen.line(f"{indent}{name}: {each}")


def _item(screen: Screen, item: Any, indent: str) -> None:
    """One of several: its fields a line each, the first behind a dash."""
    if not isinstance(item, dict):
        screen.line(f"{indent}- {item}")
        return
    told = {name: each for name, each in item.items() if each not in _NOTHING}
    first = True
    for name, each in told.items():
        lead = f"{indent}- " if first else f"{indent}  "
        first = False
        if isinstance(each, (dict, list, tuple)):
            screen.line(f"{lead}{name}:", "cyan")
            below = each if isinstance(each, dict) else None
            if below is not None:
                tree(screen, below, f"{indent}    ")
            else:
                for one in each:
                    _item(screen, one, f"{indent}    ")
        else:
            screen.line(f"{lead}{name}: {each}")

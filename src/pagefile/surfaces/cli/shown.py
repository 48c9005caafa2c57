"""How people see memories: one form of each kind, whichever command shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pagefile.surfaces.cli.screen import Screen

_MOST_CELL = 160


def day(when: datetime | None) -> str:
    """A moment, to the minute, in UTC."""
    return "-" if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def short(text: str) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CELL else f"{line[: _MOST_CELL - 1]}…"


def count(number: int, noun: str) -> str:
    """A number and its noun: 1 episode, 2 episodes, 1,000 entries."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {plural}"


def tree(screen: Screen, value: Any, indent: str = "") -> None:
    """Plain values as indented lines: what is empty is left out."""
    for name, each in value.items():
        if each in (None, "", [], {}, ()):
            continue
        if isinstance(each, dict):
            screen.line(f"{indent}{name}:", "cyan")
            tree(screen, each, f"{indent}  ")
        elif isinstance(each, list):
            screen.line(f"{indent}{name}:", "cyan")
            for item in each:
                if isinstance(item, dict):
                    said = ", ".join(f"{k}={v}" for k, v in item.items() if v not in (None, "", []))
                else:
                    said = str(item)
                screen.line(f"{indent}  - {said}")
        else:
            screen.line(f"{indent}{name}: {each}")

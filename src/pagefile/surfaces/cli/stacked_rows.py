"""Rows on a terminal that is too narrow for a table: a few lines each, nothing cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Headings of cells that are texts: they may be broken into lines. All others stay whole.
TEXTS = frozenset(
    {"text", "fact", "payload", "objective", "quote", "value", "does", "takes", "error", "about"}
)
#: Headings of cells that say by themselves what they are.
_PLAIN = frozenset(
    {
        *("id", "run", "batch", "thread", "user", "tenant", "session", "setting", "command"),
        *(
            "score",
            "when",
            "kind",
            "status",
            "type",
            "name",
            "listener",
            "process",
            "dead letter",
            "code",
        ),
    }
)
#: A text in a table has at least so much room.
_LEAST_TEXT = 24
#: What rich puts between two columns.
_BETWEEN = 3


def needed(headings: Sequence[str], rows: Sequence[Sequence[str]], between: int = _BETWEEN) -> int:
    """How wide a terminal has to be for these rows as a table."""
    from rich.cells import cell_len

    width = between * (len(headings) - 1)
    for at, heading in enumerate(headings):
        widest = max([cell_len(heading), *(_widest(row[at]) for row in rows)])
        width += min(widest, _LEAST_TEXT) if heading in TEXTS else widest
    return width


def _widest(cell: str) -> int:
    from rich.cells import cell_len

    return max((cell_len(line) for line in cell.split("\n")), default=0)


def stacked(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[RenderableType]:
    """Each row as a line or more of what is short, then its texts."""
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = []
    for row in rows:
        cells = [pair for pair in zip(headings, row, strict=True) if pair[1] not in ("", "-")]
        facts = [_fact(*pair) for pair in cells if pair[0] not in TEXTS]
        texts = [cell for heading, cell in cells if heading in TEXTS]
        parts += [Text(line, "dim" if texts else "", no_wrap=True) for line in packed(facts, width)]
        parts += [Padding(Text(cell, "bold"), (0, 0, 0, 2), expand=False) for cell in texts]
    return parts


def _fact(heading: str, cell: str) -> str:
    return cell if heading in _PLAIN else f"{heading} {cell}"


def packed(pieces: Sequence[str], width: int) -> list[str]:
    """As many pieces a line as fit; one that is too long has a line of its own."""
    from rich.cells import cell_len

    lines: list[str] = []
    for piece in pieces:
        if lines and cell_len(lines[-1]) + 2 + cell_len(piece) <= width:
            lines[-1] += f"  {piece}"
        else:
            lines.append(piece)
    return lines

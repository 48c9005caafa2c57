"""Output for people: colours, tables and bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


Progress = Callable[[int, int], None]
#: What a table has beside its first and its last column.
_EDGES = 2
#: What is over sooner needs no bar.
_PATIENCE_SECONDS = 0.5


def visible(text: str) -> str:
    """Stored text as it may be printed: nothing in it can move a cursor or change a colour."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


class Screen:
    """Where one command prints.

    Results go to standard output, everything else to standard error, so that
    what is piped on is the result alone. Rich is loaded for a terminal only.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._out: Console | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether people look at standard output."""
        return sys.stdout.isatty()

    def line(self, text: str = "", style: str = "") -> None:
        """One line of a result."""
        text = visible(text)
        if not self.is_terminal:
            print(text)
            return
        from rich.text import Text

        self._console().print(Text(text, style), soft_wrap=True)

    def fields(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Names and values, one pair a line."""
        shown = [(name, _said(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        if not self.is_terminal:
            for name, value in shown:
                print(f"{name:<{width}}  {value}")
            return
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        for name, value in shown:
            grid.add_row(Text(name, "cyan"), Text(value))
        self._console().print(grid)

    def table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        none: str = "nothing",
        stack: bool = False,
    ) -> None:
        """Rows under headings; tabs between the cells where no person looks.

        On a terminal that is too narrow, or with `stack`, each row is a few lines.
        """
        given = [list(row) for row in rows]
        said = [[_said(cell) for cell in row] for row in given]
        if not said:
            self.note(none)
            return
        if not self.is_terminal:
            for row in said:
                print("\t".join(" ".join(cell.split()) for cell in row))
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        console = self._console()
        if stack or needed(headings, said) + _EDGES > console.width:
            for part in stacked(headings, said, console.width):
                # A long id is left to the terminal, which breaks it and copies it whole.
                console.print(part, soft_wrap=isinstance(part, Text))
            return
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1), pad_edge=False)
        for at, heading in enumerate(headings):
            counts = all(type(row[at]) in (int, float) for row in given)
            table.add_column(
                heading,
                justify="right" if counts else "left",
                overflow="fold",
                # An id stays in one piece, to be copied; texts take the room that is left.
                no_wrap=heading not in TEXTS,
            )
        for row in said:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)

    def markdown(self, text: str) -> None:
        """Markdown, formatted for people and as it is for programs."""
        if not self.is_terminal:
            print(visible(text), end="" if text.endswith("\n") else "\n")
            return
        from rich.markdown import Markdown

        self._console().print(Markdown(visible(text)))

    def note(self, text: str) -> None:
        """Something beside the result; silent with `--quiet`."""
        if not self.quiet:
            self._aside(text, "dim")

    def done(self, text: str) -> None:
        """That something was done; silent with `--quiet`."""
        if not self.quiet:
            self.line(text, "green")

    def warn(self, text: str) -> None:
        """Something that may be wrong; told with `--quiet` too."""
        self._aside(text, "yellow")

    def error(self, code: str, fact: str, next_step: str = "") -> None:
        """Why the command failed: the code, the fact, the next step."""
        end = "" if fact.endswith((".", "?")) else "."
        told = f"{fact}{end} {next_step}" if next_step else fact
        if not sys.stderr.isatty():
            print(visible(f"{code}: {told}"), file=sys.stderr)
            return
        from rich.text import Text

        words = Text.assemble((f"{code}: ", "bold red"), visible(told))
        self._errors().print(words, soft_wrap=True)

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """A bar while something goes on for long, for a terminal; None where no person looks."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        bar = Progress(*columns, console=self._errors(), transient=True)
        task = bar.add_task(what, total=None)
        waiting = threading.Timer(_PATIENCE_SECONDS, bar.start)
        waiting.daemon = True
        waiting.start()
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total)
        finally:
            waiting.cancel()
            waiting.join()  # It may be starting the bar just now.
            bar.stop()

    def _aside(self, text: str, style: str) -> None:
        if not sys.stderr.isatty():
            print(visible(text), file=sys.stderr)
            return
        from rich.text import Text

        self._errors().print(Text(visible(text), style), soft_wrap=True)

    def _console(self) -> Console:
        from rich.console import Console

        if self._out is None:
            # Rich knows NO_COLOR by itself.
            self._out = Console(highlight=False, markup=False, emoji=False)
        return self._out

    def _errors(self) -> Console:
        from rich.console import Console

        return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _said(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        # Grouped for people; as programs read it elsewhere.
        return f"{value:,}" if sys.stdout.isatty() else str(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_said(each) for each in value) or "-"
    return visible(str(value))


# Rows on a terminal that is too narrow for a table: a few lines each, nothing cut.


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

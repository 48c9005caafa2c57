"""What several commands take: counts with bounds, moments, texts from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from pagefile.errors import Invalid, LimitExceeded, shown
from pagefile.surfaces.cli.call import Call

#: More than any one text may have; what is longer is no text.
MOST_INPUT_BYTES = 4_000_000
STDIN = "-"
EmbedderName = Literal["auto", "bundled", "openai", "none"]

Limit = Annotated[int, typer.Option("--limit", "-n", help="How many at most.", metavar="N")]
Session = Annotated[
    str | None, typer.Option("--session", "-s", help="A session's id.", metavar="ID")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Nobody = Annotated[bool, typer.Option("--nobody", help="Mean the memories of no user.")]


def moment(field: str, text: str | None) -> datetime | None:
    """An ISO 8601 moment; without an offset it is this machine's time."""
    if text is None:
        return None
    try:
        # Before year 2 and behind 9998 there is no time of every place.
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(
            field, f"{shown(text)} is no moment", "write 2026-05-01 or 2026-05-01T09:30:00Z"
        ) from None


def last_moment(field: str, text: str | None) -> datetime | None:
    """The same where something ends: a day without an hour ends with the day."""
    found = moment(field, text)
    try:
        date.fromisoformat(text or "")
        return found if found is None else found + timedelta(days=1, microseconds=-1)
    except (ValueError, OverflowError):
        return found


def is_piped() -> bool:
    """Whether somebody other than a person stands behind standard input."""
    return sys.stdin is not None and not sys.stdin.isatty()


def given_text(field: str, text: str | None) -> str:
    """The argument, or what standard input says when it is left out or "-"."""
    if text is not None and text != STDIN:
        return text
    if text is None and not is_piped():
        raise Invalid(field, "is missing", "give it, or pipe it in")
    return read_stdin(field).removesuffix("\n")


def read_stdin(field: str) -> str:
    """All of standard input, as far as it is text of a bounded length."""
    if sys.stdin is None:
        raise Invalid(field, "standard input is closed", "give it as an argument")
    raw = sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
    if len(raw) > MOST_INPUT_BYTES:
        raise LimitExceeded(
            f"standard input for {field}, in bytes,",
            limit=MOST_INPUT_BYTES,
            wanted=len(raw),
            next_step="give less at once",
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise Invalid(field, f"standard input is no UTF-8 ({error.reason})", "encode it") from error


@contextmanager
def given_file(file: Path | None) -> Iterator[Path]:
    """The file, or a copy of standard input when it is left out or "-": it is read twice."""
    if file is not None and str(file) != STDIN:
        yield file
        return
    if file is None and not is_piped():
        raise Invalid("file", "is missing", "name one, or pipe it in")
    import shutil
    import tempfile

    if sys.stdin is None:
        raise Invalid("file", "standard input is closed", "name a file")
    with tempfile.NamedTemporaryFile(prefix="pagefile-import-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def confirm(call: Call, question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone.

    Raises:
        Invalid: nobody is there to be asked. typer.Abort: the answer is no.
    """
    if yes:
        return
    if call.json or is_piped() or not sys.stderr.isatty():
        raise Invalid("yes", "it cannot be undone, and nobody is here to ask", "add --yes")
    typer.confirm(question, abort=True, err=True)

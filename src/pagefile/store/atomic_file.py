"""Files that are made for people: whole or not there, and readable by their owner alone."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pagefile.errors import Conflict, Invalid, shown


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, replaces: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to, which gets its name only when all of it is on disk.

    It is written beside its place; whatever ends the block early leaves nothing, and the same
    name can be used again.

    Raises:
        Conflict: there is a file of that name, unless `replaces`.
        Invalid: no file can have that name.
        OSError: the disk refused.
    """
    place = Path(path)
    if "\0" in str(place):
        raise Invalid("path", shown(str(place)), "a file name has no zero character")
    if not replaces and os.path.lexists(place):
        raise _taken(place)
    # Readable by the owner of the process alone: what people told an agent is nobody else's.
    descriptor, beside = tempfile.mkstemp(dir=place.parent, prefix=".", suffix=".part")
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            os.replace(beside, place)
        else:
            _name(beside, place)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _name(beside: str, place: Path) -> None:
    """Give the file its name, if that is still free."""
    try:
        os.link(beside, place)
    except FileExistsError as error:
        raise _taken(place) from error
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        # A file system without links: the name is taken first, and the content put there.
        try:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError as taken:
            raise _taken(place) from taken
        os.replace(beside, place)


def _taken(place: Path) -> Conflict:
    return Conflict(
        f"there is a file {shown(str(place))}",
        "give a name that is free",
        target=str(place),
        expected=0,
        current=1,
    )

"""A body that is too large for memory: kept in a file until it is known, then given as it came."""

from __future__ import annotations

import asyncio
import tempfile
from typing import IO, Protocol

from starlette.types import Message, Receive

from pagefile.errors import Unavailable
from pagefile.surfaces.http.problems import Refused

_PIECE = 1_048_576


class Digest(Protocol):
    """What is told every byte; `hashlib` makes them."""

    def update(self, data: bytes, /) -> object: ...


class Spool:
    """One request's body, in a file without a name that goes when it is closed."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pagefile-upload-")  # noqa: SIM115
        self._is_given = False

    async def fill(self, receive: Receive, digest: Digest) -> None:
        """Take in the whole body. How large and slow it may be, the front sees to.

        Raises:
            Refused: the client went away. Unavailable: the disk takes no more.
        """
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refused(400, "the client went away")
            piece: bytes = message.get("body", b"")
            digest.update(piece)
            await asyncio.to_thread(self._write, piece)
            if not message.get("more_body", False):
                break
        self._file.seek(0)

    async def receive(self) -> Message:
        """The body again, piece by piece."""
        if self._is_given:
            return {"type": "http.disconnect"}
        piece = await asyncio.to_thread(self._file.read, _PIECE)
        self._is_given = len(piece) < _PIECE
        return {"type": "http.request", "body": piece, "more_body": not self._is_given}

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write(self, piece: bytes) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            raise Unavailable(
                f"the upload could not be kept ({error.strerror})", "look at the server's disk"
            ) from error

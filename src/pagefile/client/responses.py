"""Answers on their way in: bounded, whole, and of the shape that was promised."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import msgspec

from pagefile.client.retry import Lost
from pagefile.errors import (
    Invalid,
    LimitExceeded,
    NotFound,
    Unavailable,
    Unsupported,
    shown,
)
from pagefile.store.atomic_file import new_file
from pagefile.store.codec.decoder import json_decoder

Shape = TypeVar("Shape")
#: Where a download goes: a file that is made when all of it is there, or one that is open.
Target: TypeAlias = str | os.PathLike[str] | IO[bytes]
#: What is uploaded: bytes, a file by its path, or one that is open.
Upload: TypeAlias = bytes | str | os.PathLike[str] | IO[bytes]

PIECE_BYTES = 1 << 16
_decoders: dict[Any, Callable[[bytes], Any]] = {}


def decoded(body: bytes, shape: type[Shape]) -> Shape:
    """An answer as a value.

    Raises:
        Unsupported: it has another shape.
    """
    decode = _decoders.get(shape)
    if decode is None:
        decode = _decoders[shape] = json_decoder(shape).decode
    try:
        value: Shape = decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unsupported(
            f"the answer is not as expected ({error})",
            "check base_url, and that client and server are of one version",
        ) from None
    return value


class Gathering:
    """The pieces of one answer, held to a size and a time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._until = time.monotonic() + seconds
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Keep a piece.

        Raises:
            LimitExceeded: it would be too much. TimeoutError: it took too long.
        """
        require_size(self._size + len(piece), self._most)
        if time.monotonic() > self._until:
            raise TimeoutError("the answer took too long")
        self._size += len(piece)
        self._pieces.append(piece)

    @property
    def body(self) -> bytes:
        return b"".join(self._pieces)


def require_size(size: int, most: int) -> None:
    """Refuse an answer that is larger than the client takes."""
    if size > most:
        raise LimitExceeded(
            "an answer",
            limit=most,
            wanted=size,
            next_step="ask for less, or open the client with a larger limit",
        )


@contextlib.contextmanager
def sink(target: Target) -> Iterator[IO[bytes]]:
    """Where a download is written; a file appears under its name when it is whole."""
    if not isinstance(target, (str, os.PathLike)):
        if not callable(getattr(target, "write", None)):
            raise Invalid("to", f"{shown(target)} cannot be written to", "give a path or a file")
        yield target
        return
    path = Path(target)
    if not path.name or path.is_dir():
        raise Invalid("to", f"{shown(str(path))} is no file's name", "give another path")
    with contextlib.ExitStack() as held:
        with _in_our_words("to", path):
            file = held.enter_context(new_file(path, replaces=True))
        yield file


@contextlib.contextmanager
def source(upload: Upload) -> Iterator[IO[bytes] | bytes]:
    """What an upload is read from."""
    if not isinstance(upload, (str, os.PathLike)):
        if not isinstance(upload, bytes) and not callable(getattr(upload, "read", None)):
            rule = "give bytes, a path or an open file"
            raise Invalid("content", f"{shown(upload)} cannot be sent", rule)
        yield upload
        return
    with contextlib.ExitStack() as held:
        with _in_our_words("content", upload):
            file = held.enter_context(open(upload, "rb"))
        yield file


@contextlib.contextmanager
def _in_our_words(field: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Why a file cannot be opened, as an error of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"there is no {shown(os.fspath(path))}", "check the path") from error
    except (OSError, ValueError) as error:
        told = f"{shown(os.fspath(path))} cannot be opened ({error})"
        raise Invalid(field, told, "give another path") from error


def may_send_again(upload: Upload) -> bool:
    """Whether it can be read from its beginning a second time."""
    return isinstance(upload, (bytes, str, os.PathLike))


def pieces(content: IO[bytes]) -> Iterator[bytes]:
    """A file in pieces."""
    while piece := content.read(PIECE_BYTES):
        yield piece


def lost(library: Any, error: Exception) -> Lost:
    """What a failure of the network means."""
    before = (library.ConnectError, library.ConnectTimeout, library.PoolTimeout)
    return Lost(error, was_sent=not isinstance(error, before))


def cannot_resume(error: Exception) -> Unavailable:
    """A stream broke before it said where it stood."""
    return Unavailable(
        f"the stream was cut before its first event ({type(error).__name__})",
        "follow again, with `after` if nothing may be missed",
    )

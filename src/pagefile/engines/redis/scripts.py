"""The scripts that run in the server, by name."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

from pagefile.engines.redis.connection import Command


@functools.cache
def script(name: str) -> tuple[bytes, str]:
    """A script from its file: its text, and the digest by which the server knows it."""
    if name == "release":
        # What lets content go must run on a full server too, and is otherwise the same.
        text = script("commit")[0].replace(b"#!lua\n", b"#!lua flags=allow-oom\n", 1)
    elif name == "append":
        start, rest = script("commit")[0].split(b"-- The commands.\n")
        text = start + _text(name) + rest[rest.index(b"-- The head") :]
    else:
        text = _text(name)
    # What Redis names it by; nothing secret is digested.
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _text(name: str) -> bytes:
    return (files(__package__) / "lua" / f"{name}.lua").read_bytes()


def in_full(command: Command) -> Command:
    """The same script by its text instead of its digest."""
    for name in ("append", "commit", "release"):
        text, digest = script(name)
        if command[1] == digest:
            return ("EVAL", text, *command[2:])
    return command

"""Where a thread stands: the names called one after the other, and their text form.

A path is a tuple of names. Text is for the edge: names joined by dots, a dot or
backslash inside a name escaped by a backslash (`calculator\\.add`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from pagefile.errors import Invalid, LimitExceeded, shown
from pagefile.store.arguments import Naming

#: The first name of the system's own root. No table may be called so.
SYSTEM = "system"
#: A root is two names: "system" or the table, then the organism.
ROOT_NAMES = 2
MOST_NAMES = 1_000
MOST_NAME_BYTES = 512

_TO_ESCAPE = re.compile(r"[.\\]")
#: A name in text: plain characters, and escaped dots and backslashes.
_NAME = re.compile(r"(?:[^.\\]|\\[.\\])*")
_TEXT_RULE = r"write names joined by dots, and \. for a dot or \\ for a backslash inside a name"


class Path(msgspec.Struct, frozen=True):
    """The place of one activation.

    `conversation` tells apart conversations between the same names; None for a
    path that was made by its names alone. `caller` is the id of the thread that
    called this one, None for the first of a conversation. `root` says what the
    first two names are: the system's root, a table's root, or nothing special.
    """

    names: tuple[str, ...]
    conversation: str | None = None
    caller: str | None = None
    root: Literal["system", "table", ""] = ""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The names joined by dots; `parse` gives them back whole."""
        return text_of(self.names)

    @property
    def is_root(self) -> bool:
        """True for a root itself, which nobody called and nobody answers."""
        return bool(self.root) and len(self.names) == ROOT_NAMES

    @property
    def table(self) -> str | None:
        """The table it stands on, if it is one."""
        return self.names[0] if self.root == "table" else None

    def called(self, name: str, *, caller: str, conversation: str) -> Path:
        """The path of what this one calls."""
        names = (*self.names, name)
        _require_depth(names)
        return Path(names, conversation, caller, self.root)

    def awaits(self, callee: Path) -> bool:
        """True when this very activation made the call, and can be answered; a root cannot.

        The id of a released thread may have been registered again since.
        """
        same = self.conversation is None or self.conversation == callee.conversation
        return same and not self.is_root and self.names == callee.names[:-1]


def text_of(names: Sequence[str]) -> str:
    """Names as one text."""
    return ".".join(_TO_ESCAPE.sub(r"\\\g<0>", name) for name in names)


def parse(text: str, field: str = "chain") -> tuple[str, ...]:
    """The names in a text.

    Raises:
        Invalid: an empty name, or a backslash that escapes nothing.
    """
    if type(text) is not str:
        raise Invalid(field, f"is of type {type(text).__name__}", _TEXT_RULE)
    names: list[str] = []
    start = 0
    while True:
        match = _NAME.match(text, start)
        end = start if match is None else match.end()
        names.append(re.sub(r"\\(.)", r"\1", text[start:end]))
        if end == len(text):
            return require_names(names, field)
        if text[end] != ".":
            raise Invalid(field, f"{shown(text)} has a lone backslash at {end}", _TEXT_RULE)
        start = end + 1


def require_names(names: Sequence[str], field: str = "chain") -> tuple[str, ...]:
    """The names as a tuple, each of them fit to be one, and not too many."""
    if not isinstance(names, (tuple, list)):
        raise Invalid(field, f"is of type {type(names).__name__}", "give text, or a tuple of names")
    if not names:
        raise Invalid(field, "has no names", "give at least one")
    _require_depth(names)
    naming = Naming(MOST_NAME_BYTES)
    for n, name in enumerate(names):
        naming.check_text(f"{field}[{n}]", name)
    return tuple(names)


def _require_depth(names: Sequence[str]) -> None:
    if len(names) > MOST_NAMES:
        raise LimitExceeded(
            "the number of names in a call path",
            limit=MOST_NAMES,
            wanted=len(names),
            next_step="answer some calls before making more; a listener may be calling itself",
        )

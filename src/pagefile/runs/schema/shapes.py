"""The vocabulary in which artifacts are defined: what a JSON value may look like.

A definition is the one source of three things: the compiled check
(`compiler`), the words of a refusal (`mismatches`) and the published file
(`json_schema`). Compared by identity, so that each can be remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

#: Characters of what people and models write, of references and paths, and of ids and names.
CONTENT: Final = 1_000_000
REFERENCE: Final = 4_096
NAME: Final = 1_024
#: Entries of a list or a table.
ENTRIES: Final = 10_000
#: The largest whole number that every JSON reader keeps exact.
WHOLE: Final = 2**53 - 1
#: Lists and objects inside one another in a value that is free otherwise.
DEPTH: Final = 64

Shape: TypeAlias = (
    "Text | Moment | Word | Whole | Number | Flag | Free | Maybe | Either | Never | Items | Table"
    " | Fields"
)


@dataclass(frozen=True, eq=False)
class Text:
    """A string of `least` to `most` characters that matches `pattern`, told as `rule`."""

    most: int = CONTENT
    least: int = 0
    pattern: str = ""
    rule: str = ""


@dataclass(frozen=True, eq=False)
class Moment:
    """An RFC 3339 date-time with an offset."""


@dataclass(frozen=True, eq=False)
class Word:
    """One of a few strings."""

    choices: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Whole:
    """A whole number; 2.0 is one, true is none."""

    least: int = 0
    most: int = WHOLE


@dataclass(frozen=True, eq=False)
class Number:
    """Any finite number between two."""

    least: int
    most: int


@dataclass(frozen=True, eq=False)
class Flag:
    """True or false."""


@dataclass(frozen=True, eq=False)
class Free:
    """Any plain JSON value, or any of one `kind`: "object" or "array"."""

    kind: str = ""


@dataclass(frozen=True, eq=False)
class Maybe:
    """The shape, or null."""

    shape: Text | Whole


@dataclass(frozen=True, eq=False)
class Either:
    """A string, or an object of any content."""

    text: Text
    free: Free


@dataclass(frozen=True, eq=False)
class Never:
    """A field that must be absent."""


@dataclass(frozen=True, eq=False)
class Items:
    """A list. With `unique_ids`, no two of its objects have the same `id`."""

    each: Shape
    most: int = ENTRIES
    least: int = 0
    unique_ids: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """An object from free names to values of one shape."""

    names: Text
    values: Shape
    most: int = ENTRIES


@dataclass(frozen=True, eq=False)
class When:
    """Where `field` is one of `values`, the fields named here have these shapes instead."""

    field: str
    values: tuple[str, ...]
    shapes: Mapping[str, Shape]
    required: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Fields:
    """A closed object. A `name` makes it a definition of its own in the published file."""

    required: Mapping[str, Shape] = field(default_factory=dict)
    optional: Mapping[str, Shape] = field(default_factory=dict)
    name: str = ""
    whens: tuple[When, ...] = ()
    #: At least one of these is present.
    any_of: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, Shape]:
        """All fields, in the order of their definition."""
        return {**self.required, **self.optional}

    def case_of(self, value: Mapping[Any, object]) -> tuple[str, ...]:
        """What decides between the conditions for `value`; see `resolve`."""
        found = (value.get(name) for name in dict.fromkeys(when.field for when in self.whens))
        return tuple(word if isinstance(word, str) else "" for word in found)

    def resolve(self, case: tuple[str, ...]) -> Fields:
        """The same object without conditions, as it must be in one case."""
        named = list(dict.fromkeys(when.field for when in self.whens))
        shapes, required = self.shapes, set(self.required)
        for when in self.whens:
            if case[named.index(when.field)] in when.values:
                shapes.update(when.shapes)
                required.update(when.required)
        return Fields(
            {name: shape for name, shape in shapes.items() if name in required},
            {name: shape for name, shape in shapes.items() if name not in required},
            any_of=self.any_of,
        )

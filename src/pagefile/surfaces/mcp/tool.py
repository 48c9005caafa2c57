"""A tool: its name, what it takes and gives, and what a client may know before it calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from pagefile.errors import Invalid
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.mcp.budget import Capped, encoded
from pagefile.surfaces.mcp.caller import NEEDS, READ, Caller

# Which words a place in a tool's arguments may hold, for who gave another.


_PLACE = re.compile(r"Invalid enum value .* - at `\$(.*)`$")
_STEP = re.compile(r"\.(\w+)|\[[^\]]*\]")


def allowed_at(message: str, schema: dict[str, Any]) -> str:
    """The words behind a refusal by msgspec, as a sentence goes on; "" when it is none of words."""
    place = _PLACE.search(message)
    if place is None:
        return ""
    found = [schema]
    for step in _STEP.finditer(place[1]):
        below = [each for one in found for each in _below(_opened(one, schema), step[1])]
        found = below
    words = [
        str(word)
        for one in found
        for each in _opened(one, schema)
        for word in each.get("enum", ())
        if word is not None
    ]
    return f", allowed: {', '.join(words)}" if words else ""


def _opened(one: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """A part of a schema, or the parts that it names or chooses between."""
    if "$ref" in one:
        return _opened(schema.get("$defs", {}).get(one["$ref"].rpartition("/")[2], {}), schema)
    if "anyOf" in one:
        return [part for each in one["anyOf"] for part in _opened(each, schema)]
    return [one]


def _below(parts: list[dict[str, Any]], name: str | None) -> list[dict[str, Any]]:
    """What a step leads to: a field of that name, or the items of a list."""
    if name is None:
        return [part["items"] for part in parts if isinstance(part.get("items"), dict)]
    return [part["properties"][name] for part in parts if name in part.get("properties", {})]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `takes` and `gives` are structs; their schemas are what a client sees.

    `destroys` and `repeatable` are about tools that write: whether something may be
    lost, and whether a second call with the same arguments changes nothing more.
    """

    name: str
    title: str
    about: str
    takes: type[Capped]
    gives: type[msgspec.Struct]
    call: Callable[[Caller, Any], msgspec.Struct]
    destroys: bool = False
    repeatable: bool = False
    #: The answer for clients that read text alone.
    text: Callable[[Any], str] = encoded

    @property
    def right(self) -> str:
        """The least right that calling it needs."""
        return NEEDS[self.name].right

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return self.right != READ

    def arguments(self, given: dict[str, Any] | None) -> Capped:
        """What was given, in its types.

        Raises:
            Invalid: something is missing, unknown, too long or of another type.
        """
        try:
            return convert(given or {}, self.takes)
        except (msgspec.ValidationError, RecursionError) as error:
            fact = str(error) + allowed_at(str(error), schema_of(self.takes))
            raise Invalid("arguments", fact, f"see the schema of {self.name}") from None


def schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a struct, with the object itself at the top, as clients want it."""
    _, named = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    top = dict(named.pop(struct.__name__))
    return top | ({"$defs": named} if named else {})

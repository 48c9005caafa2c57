"""Which words a place in a tool's arguments may hold, for who gave another."""

from __future__ import annotations

import re
from typing import Any

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

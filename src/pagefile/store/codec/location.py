"""Where in a value something is, written like JSONPath: `$.items[3].score`."""

from __future__ import annotations

import json
from typing import TypeAlias

from pagefile.errors import Invalid

# A linked list costs nothing to extend; it is written out only for an error.
Location: TypeAlias = "tuple[Location, str | int] | None"

ROOT: Location = None


def written(location: Location) -> str:
    """The location as text."""
    parts: list[str] = []
    while location is not None:
        location, step = location
        parts.append(_written_step(step))
    return "$" + "".join(reversed(parts))


def _written_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() and step.isascii() else f"[{json.dumps(step)}]"


def invalid(location: Location, fact: str, rule: str) -> Invalid:
    """The error for a value that cannot be stored, at its place."""
    return Invalid(written(location), fact, rule)

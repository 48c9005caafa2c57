"""A tool: its name, what it takes and gives, and what a client may know before it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pagefile.errors import Invalid
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.mcp.allowed_values import allowed_at
from pagefile.surfaces.mcp.budget import Capped, encoded
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.identity import READ
from pagefile.surfaces.mcp.rights import NEEDS


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

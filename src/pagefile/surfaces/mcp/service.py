"""What the server offers, apart from the protocol: tools, resources and prompts for an identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile.errors import Invalid, NotFound, shown
from pagefile.runs.tokens import counter_named
from pagefile.store.arguments import require_count
from pagefile.surfaces.mcp.budget import LEAST_TOKENS, MOST_TOKENS, Budget
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.identity import Identity
from pagefile.surfaces.mcp.memory_tools import MEMORY_TOOLS
from pagefile.surfaces.mcp.proposal_tools import PROPOSAL_TOOLS
from pagefile.surfaces.mcp.tenants import Places
from pagefile.surfaces.mcp.thread_tools import THREAD_TOOLS
from pagefile.surfaces.mcp.tool import Tool

#: Our own tools.
TOOLS = (*MEMORY_TOOLS, *THREAD_TOOLS, *PROPOSAL_TOOLS)


class Service:
    """Everything that can be asked of one store.

    `compat` "reference" offers the nine tools of the reference memory server instead
    of ours. `max_tokens` caps every answer, whatever a call asks for; `counter` names
    how tokens are counted.
    """

    def __init__(
        self,
        places: Places,
        *,
        compat: str | None = None,
        max_tokens: int = MOST_TOKENS,
        counter: str = "chars/4",
    ) -> None:
        require_count(max_tokens, "max_tokens", least=LEAST_TOKENS, most=MOST_TOKENS)
        self._places = places
        self._most = max_tokens
        self._counter = counter_named(counter)
        self.compat = compat
        offered: tuple[Tool, ...] = TOOLS
        if compat is not None:
            if compat != "reference":
                raise Invalid("compat", f"{shown(compat)} is not known", "give 'reference'")
            from pagefile.surfaces.mcp.reference.graph_tools import REFERENCE_TOOLS

            offered = REFERENCE_TOOLS
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in offered}

    def tools(self, identity: Identity) -> list[Tool]:
        """The tools that an identity may call."""
        return [tool for tool in self._tools.values() if tool.right in identity.rights]

    def knows(self, name: str) -> bool:
        """Whether there is a tool of that name."""
        return name in self._tools

    def call(
        self, identity: Identity, name: str, arguments: dict[str, Any] | None
    ) -> tuple[msgspec.Struct, str]:
        """Call a tool; its answer, and the same as text, are within its cap.

        Raises:
            PagefileError: the call was refused; what it changes is unchanged.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise NotFound(f"there is no tool {shown(name)}", "list the tools")
        given = tool.arguments(arguments)
        caller = self.caller(identity, given.max_tokens)
        caller.require(tool.right)
        answer = tool.call(caller, given)
        return answer, tool.text(answer)

    def caller(self, identity: Identity, max_tokens: int = MOST_TOKENS) -> Caller:
        """What tools, resources and prompts work with."""
        budget = Budget(self._counter, min(max_tokens, self._most))
        return Caller(self._places.of(identity.tenant), identity, budget)

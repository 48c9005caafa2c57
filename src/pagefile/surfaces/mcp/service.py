"""What the server offers apart from the protocol, and the handles of its tenants."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from pagefile.errors import Invalid, NotFound, Unavailable, shown
from pagefile.runs.tokens import counter_named
from pagefile.store.arguments import require_count
from pagefile.surfaces.mcp.budget import LEAST_TOKENS, MOST_TOKENS, Budget
from pagefile.surfaces.mcp.caller import Caller, Identity
from pagefile.surfaces.mcp.memory_tools import MEMORY_TOOLS, PROPOSAL_TOOLS
from pagefile.surfaces.mcp.thread_tools import THREAD_TOOLS
from pagefile.surfaces.mcp.tool import Tool

if TYPE_CHECKING:
    from pagefile.handle import Admin, Pagefile


# The handles of a server's tenants, opened when they are asked for.


#: More tenants than this at once, and the one used longest ago is opened anew when it returns.
_MOST_OPEN = 256


class Places:
    """One store, and a handle for each tenant that was asked for."""

    def __init__(self, admin: Admin, *, most: int = _MOST_OPEN) -> None:
        self._admin = admin
        self._most = most
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Pagefile] = OrderedDict()

    def of(self, tenant: str) -> Pagefile:
        """The handle of a tenant."""
        with self._lock:
            handle = self._open.get(tenant)
            if handle is None:
                handle = self._open[tenant] = self._admin.open(tenant)
            self._open.move_to_end(tenant)
            leaving = self._open.popitem(last=False)[1] if len(self._open) > self._most else None
        if leaving is not None:
            with suppress(Unavailable):
                leaving.close()
        return handle

    def close(self) -> None:
        """Close what was opened; the store itself belongs to whoever opened it."""
        with self._lock:
            handles = list(self._open.values())
            self._open.clear()
        for handle in handles:
            handle.close()


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

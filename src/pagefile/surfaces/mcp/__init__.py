"""The MCP server: memory, threads and runs as tools, resources and prompts for any client.

Read in this order:

caller          who calls, with which rights, and what a tool is given
tool            one tool: what it takes and gives
budget          the cap on an answer, and what was left out
memory_tools, thread_tools
                our ten tools
resources       threads, runs and packs by address
service         all of it, apart from the protocol
server          the protocol and its prompts, on the official SDK
transport       a server on standard input and output, or as an ASGI application
reference/      the tools of the reference memory server, on our store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagefile.errors import Unsupported
from pagefile.surfaces.mcp.budget import MOST_TOKENS
from pagefile.surfaces.mcp.caller import Identity

if TYPE_CHECKING:
    from pagefile.handle import Admin
    from pagefile.surfaces.mcp.service import Service
    from pagefile.surfaces.mcp.transport import Authenticate, McpApp

__all__ = ["Identity", "mcp_app", "mcp_service"]


def mcp_service(
    admin: Admin,
    *,
    compat: str | None = None,
    max_tokens: int = MOST_TOKENS,
    counter: str = "chars/4",
) -> Service:
    """What a server offers of a store; see `Service`.

    Raises:
        Unsupported: the extra `mcp` is not installed.
    """
    require_sdk()
    from pagefile.surfaces.mcp.service import Places, Service

    return Service(Places(admin), compat=compat, max_tokens=max_tokens, counter=counter)


def mcp_app(
    service: Service,
    *,
    identity: Identity | None = None,
    authenticate: Authenticate | None = None,
    hosts: Sequence[str] | None = None,
) -> McpApp:
    """An ASGI application that answers at `/mcp`.

    Give `identity` for a server that speaks for one tenant without keys, on this
    machine alone; otherwise `authenticate`, which gets a request's headers and says
    who sends it, or None. `hosts` are the names under which it may be reached, those of
    this machine if left out.
    """
    require_sdk()
    from pagefile.surfaces.mcp.transport import LOOPBACK, McpApp

    return McpApp(
        service,
        identity=identity,
        authenticate=authenticate,
        hosts=LOOPBACK if hosts is None else hosts,
    )


def require_sdk() -> None:
    """Refuse, with the way to mend it, where the SDK is not installed."""
    try:
        import mcp.server.lowlevel.server  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"the SDK for MCP is not installed ({error})", "pip install 'pagefile[mcp]'"
        ) from error

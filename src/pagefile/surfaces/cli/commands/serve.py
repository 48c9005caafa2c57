"""`pagefile serve`: the REST server."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pagefile.settings import Settings
from pagefile.surfaces.cli.call import Call


def serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", help="The address to bind (default 127.0.0.1).")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Default 8000.", metavar="N")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="How many processes (default 1).", metavar="N")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="No keys: for this machine alone.")
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option("--log-level", help="How much is logged."),
    ] = None,
) -> None:
    """Serve over HTTP until told to stop; the first start makes a key and shows it."""
    # Loaded here: nothing else on the command line needs a server.
    from pagefile.surfaces.http.config import config_from, set_by
    from pagefile.surfaces.http.server import serve

    call = Call.of(context)
    options = {"host": host, "port": port, "workers": workers, "log_level": log_level}
    given = {
        **set_by(Settings.from_environment()),
        **{name: value for name, value in options.items() if value is not None},
        "url": call.url,
        "tenant": call.tenant,
        "local": local,
        "mounts": _mounts(call.url),
    }
    config = config_from(given)
    if config.tokens is not None:
        from pagefile.surfaces.access.tokens import TokenVerifier

        TokenVerifier(config.tokens)  # What is wrong with it is told here, not by a worker.
    serve(config)


def _mounts(url: str) -> tuple[str, ...]:
    """What is served beside REST: MCP, where its extra is installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        return ()
    from pagefile.surfaces.combined import ALONE, MCP

    return () if url in ALONE else (MCP,)

"""`pagefile mcp`: the store as an MCP server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from pagefile.errors import Invalid
from pagefile.settings import Settings
from pagefile.surfaces.cli.call import Answer, Call
from pagefile.surfaces.cli.memory_view import count

if TYPE_CHECKING:
    from pagefile.surfaces.mcp.caller import Identity


def mcp(
    context: typer.Context,
    http: Annotated[
        bool, typer.Option("--http", help="On a port of this machine, at /mcp.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", help="With --http: the address.", metavar="HOST")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", help="With --http: the port; 0 is any.", metavar="N", min=0, max=65_535
        ),
    ] = 8_765,
    compat: Annotated[
        Literal["reference"] | None,
        typer.Option(
            "--compat", help="The tools of the reference memory server.", metavar="reference"
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Offer no tool that writes.")
    ] = False,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="How long any answer may be.", metavar="N")
    ] = 100_000,
    counter: Annotated[
        str, typer.Option("--counter", help="How tokens are counted.", metavar="NAME")
    ] = "chars/4",
    import_: Annotated[
        Path | None,
        typer.Option("--import", help="Take in a memory.jsonl, and end.", metavar="FILE"),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Write a memory.jsonl, and end.", metavar="FILE"),
    ] = None,
) -> Answer | None:
    """Serve the store to an MCP client, on standard input and output or over HTTP."""
    call = Call.of(context)
    if compat is None and (import_ is not None or export is not None):
        raise Invalid("compat", "memory.jsonl is the reference server's", "add --compat reference")
    if import_ is not None and export is not None:
        raise Invalid("export", "is given beside --import", "give one of them")
    if import_ is not None:
        return _take_in(call, import_)
    if export is not None:
        return _write_out(call, export)
    _serve(
        call,
        listen=(host, port) if http else None,
        read_only=read_only,
        compat=compat,
        max_tokens=max_tokens,
        counter=counter,
    )
    return None


def _serve(
    call: Call,
    *,
    listen: tuple[str, int] | None,
    read_only: bool,
    compat: str | None,
    **options: Any,
) -> None:
    from pagefile.handle import Admin
    from pagefile.surfaces.mcp import mcp_service

    identity = _identity(call, read_only)
    with Admin(call.url) as admin:
        service = mcp_service(admin, compat=compat, **options)
        from pagefile.surfaces.mcp import transport

        service.caller(identity)  # What is wrong with the tenant's name shows now.
        file = Settings.from_environment().memory_file
        if compat is not None and not read_only and file and Path(file).expanduser().exists():
            from pagefile.surfaces.mcp.reference.graph import take_in

            take_in(admin.open(identity.tenant).store, identity.user, file)
        if listen is None:
            if sys.stdin is not None and sys.stdin.isatty():
                call.screen.note(
                    "serving MCP on standard input and output: a client is expected there,"
                    " and starts this command itself; Ctrl-C ends it"
                )
            transport.serve_stdio(service, identity)
        else:
            transport.serve_http(service, identity, *listen)


def _identity(call: Call, read_only: bool) -> Identity:
    from pagefile.memory.documents import require_user
    from pagefile.surfaces.mcp.caller import ADMIN, READ, WRITE, Identity

    require_user(call.user)
    # Whoever starts it has the store itself at hand.
    rights = frozenset({READ} if read_only else {READ, WRITE, ADMIN})
    return Identity(call.tenant, call.user, rights)


def _take_in(call: Call, path: Path) -> Answer:
    from pagefile.surfaces.mcp.reference.graph import take_in

    with call.open(create=True) as pf:
        made = take_in(pf.store, call.user, path)
    words = f"{count(made.entities, 'entity')}, {count(made.relations, 'relation')} added"
    told = msgspec.to_builtins(made)
    return Answer(told, lambda screen: screen.done(words), count=made.entities + made.relations)


def _write_out(call: Call, path: Path) -> Answer:
    from pagefile.surfaces.mcp.reference.graph import write_out

    with call.open() as pf:
        entities, relations = write_out(pf.store, call.user, path)
    words = f"{count(entities, 'entity')}, {count(relations, 'relation')} written to {path}"
    told = {"path": str(path), "entities": entities, "relations": relations}
    return Answer(told, lambda screen: screen.done(words), count=entities + relations)

"""`pagefile serve` and `keys`: the REST server, and who may use it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pagefile.settings import Settings
from pagefile.surfaces.cli.call import Answer, Call
from pagefile.surfaces.cli.memory_view import day
from pagefile.surfaces.cli.parameters import Yes, confirm
from pagefile.surfaces.cli.screen import Screen


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


# `pagefile keys`: who may use the server, for which tenant, with which rights.


app = typer.Typer(help="Keys of the server.", no_args_is_help=True)


@app.callback()
def keys() -> None:
    """Keys of the server: who may do what, for which tenant."""


@app.command("create")
def create(
    context: typer.Context,
    right: Annotated[
        list[str] | None,
        typer.Option(
            "--right",
            help="read, write or admin; may be given several times (default read and write).",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What it is for.")] = "",
    days: Annotated[
        int | None, typer.Option("--days", help="How long it counts; for ever without.", min=1)
    ] = None,
) -> Answer:
    """Make a key for the tenant, and for one user of it with --user; its secret is shown once."""
    from pagefile.surfaces.access.keys import KeyStore

    call = Call.of(context)
    # Whoever did not ask for it is told why, and how to have the other kind.
    where = Settings.from_environment().origins.get("user", "")
    by = "by --user" if "user" in call.given else f"by {where}; set PAGEFILE_USER= for one of all"
    with call.admin() as admin:
        made = KeyStore(admin).create(
            call.tenant,
            tuple(right or ("read", "write")),
            user_id=call.user,
            name=name,
            days=days,
        )

    def show(screen: Screen) -> None:
        screen.line(made.secret)
        screen.note(f"key {made.key.key_id} of tenant {made.key.tenant}: shown this once, keep it")
        if made.key.user_id is not None:
            screen.note(f"it reaches what is {made.key.user_id}'s, and nothing else ({by})")

    return Answer({"key": made.key, "secret": made.secret}, show)


@app.command("list")
def list_(
    context: typer.Context,
    everywhere: Annotated[
        bool, typer.Option("--all-tenants", help="Those of every tenant.")
    ] = False,
) -> Answer:
    """List keys: never their secrets, which are not kept."""
    from pagefile.surfaces.access.keys import KeyStore

    call = Call.of(context)
    with call.admin() as admin:
        found = KeyStore(admin).list(None if everywhere else call.tenant)
    headings = ("id", "tenant", "user", "rights", "name", "made", "ends", "revoked")
    rows = [
        (
            *(one.key_id, one.tenant, one.user_id, one.rights, one.name),
            *(day(one.created_at), day(one.expires_at), bool(one.revoked_at)),
        )
        for one in found
    ]
    return Answer(found, lambda screen: screen.table(headings, rows, none="no keys"))


@app.command("revoke")
def revoke(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as listed.")],
    yes: Yes = False,
) -> Answer:
    """Let a key in no longer; it takes effect within seconds in every server process."""
    from pagefile.surfaces.access.keys import KeyStore

    call = Call.of(context)
    confirm(call, f"Revoke the key {key_id}?", yes=yes)
    with call.admin() as admin:
        gone = KeyStore(admin).revoke(key_id)
    return Answer(gone, lambda screen: screen.done(f"key {gone.key_id} is revoked"))

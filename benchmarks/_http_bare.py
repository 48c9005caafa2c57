"""What we measure ourselves against: bare endpoints that know of nothing but their work.

    python _http_bare.py PORT granian|uvicorn reads JSON
    python _http_bare.py PORT granian|uvicorn appends URL

`reads` is FastAPI with an endpoint that answers with this JSON from memory. `appends` is
Starlette with an endpoint that appends to the store with the library, and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec


def reading(body: str) -> Any:
    """An application that answers with one document."""
    from fastapi import FastAPI

    document: dict[str, Any] = json.loads(body)
    app = FastAPI()

    @app.get("/run")
    async def run() -> dict[str, Any]:
        return document

    return app


def appending(url: str) -> Any:
    """An application that appends what it is sent."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    import pagefile.aio

    held: list[Any] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with pagefile.aio.open(url) as pf:
            held.append(pf.context)
            yield

    async def append(request: Request) -> Response:
        given = msgspec.json.decode(await request.body())
        slot = await held[0].append(
            request.path_params["thread_id"], given["payload"], given["from_id"], given["to_id"]
        )
        return Response(b'{"index":%d}' % slot.index, 201, media_type="application/json")

    route = Route("/threads/{thread_id}/slots", append, methods=["POST"])
    return Starlette(routes=[route], lifespan=lifespan)


def on_granian(port: int, load: Callable[[], Any]) -> None:
    """With granian, as `pagefile serve` sets it up."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces

    server = Granian(
        "bare",
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2048,
        log_enabled=False,
    )
    server.serve(target_loader=load, wrap_loader=False)


def on_uvicorn(port: int, load: Callable[[], Any]) -> None:
    """With uvicorn, at its fastest."""
    import uvicorn

    uvicorn.run(load(), port=port, access_log=False, log_level="error", ws="none")


if __name__ == "__main__":
    port, program, what, given = sys.argv[1:]
    load = functools.partial({"reads": reading, "appends": appending}[what], given)
    {"granian": on_granian, "uvicorn": on_uvicorn}[program](int(port), load)

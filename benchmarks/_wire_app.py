"""The application that benchmarks/wire.py puts behind each server program.

python _wire_app.py PORT granian|uvicorn-httptools|uvicorn-h11
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from typing import Any

_seen: deque[dict[str, Any]] = deque(maxlen=50)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Notes what reached it: method, path, headers, body, and how the body ended."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    body, end = b"", "whole"
    while True:
        message = await receive()
        if message["type"] != "http.request":
            end = "broken off"
            break
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    if scope["path"] == "/large":
        answer = b"x" * 200_000
    elif scope["path"] == "/seen":
        answer = json.dumps([*_seen]).encode()
        _seen.clear()
    else:
        if scope["path"] == "/slow":
            await asyncio.sleep(1)
        seen = {
            "method": scope["method"],
            "path": scope["path"],
            "headers": [
                [name.decode("latin-1"), value.decode("latin-1")]
                for name, value in scope["headers"]
            ],
            "body": body.decode("latin-1"),
            "end": end,
        }
        _seen.append(seen)
        answer = b"{}"
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def on_granian(port: int) -> None:
    """granian, with the settings that pagefile gives it."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings

    Granian(
        "wire",
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2_048,
        backpressure=1_024,
        http1_settings=HTTP1Settings(header_read_timeout=10_000, max_buffer_size=65_536),
        log_enabled=False,
    ).serve(target_loader=lambda: app, wrap_loader=False)


def on_uvicorn(port: int, parser: str) -> None:
    """uvicorn with one of its two parsers."""
    import uvicorn

    uvicorn.run(
        app,
        port=port,
        http=parser,
        ws="none",
        access_log=False,
        log_level="critical",
        limit_concurrency=1_024,
        timeout_keep_alive=10,
        h11_max_incomplete_event_size=65_536,
    )


if __name__ == "__main__":
    if sys.argv[2] == "granian":
        on_granian(int(sys.argv[1]))
    else:
        on_uvicorn(int(sys.argv[1]), sys.argv[2].removeprefix("uvicorn-"))

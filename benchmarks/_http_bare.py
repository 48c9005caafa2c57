"""What we measure ourselves against: a bare FastAPI endpoint with the same JSON.

python _http_bare.py PORT JSON granian|uvicorn
"""

from __future__ import annotations

import json
import sys
from typing import Any

from fastapi import FastAPI


def load(body: str) -> FastAPI:
    """An application that answers with one document and knows nothing else."""
    document: dict[str, Any] = json.loads(body)
    app = FastAPI()

    @app.get("/run")
    async def run() -> dict[str, Any]:
        return document

    return app


def on_granian(port: int, body: str) -> None:
    import functools

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
    server.serve(target_loader=functools.partial(load, body), wrap_loader=False)


def on_uvicorn(port: int, body: str) -> None:
    import uvicorn

    uvicorn.run(load(body), port=port, access_log=False, log_level="error")


if __name__ == "__main__":
    {"granian": on_granian, "uvicorn": on_uvicorn}[sys.argv[3]](int(sys.argv[1]), sys.argv[2])

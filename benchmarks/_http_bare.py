"""What we measure ourselves against: a bare FastAPI endpoint with the same JSON, on granian."""

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


if __name__ == "__main__":
    import functools

    from granian import Granian
    from granian.constants import HTTPModes, Interfaces

    server = Granian(
        "bare",
        port=int(sys.argv[1]),
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2048,
        log_enabled=False,
    )
    server.serve(target_loader=functools.partial(load, sys.argv[2]), wrap_loader=False)

"""A real MCP server for tests: in this process, or as the program that a client starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

_STOP_SECONDS = 20.0
_HERE = [sys.executable, "-m", "pagefile"]


class ToolRefused(Exception):
    """A tool's error; `code` is the same word as everywhere."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(f"{told['code']}: {told['fact']}")
        self.code = told["code"]
        self.told = told


class Served:
    """A client of the SDK, called from a test that is not asynchronous."""

    def __init__(self, portal: Any, client: Any) -> None:
        self.portal = portal
        self.client = client

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the client."""
        return self.portal.call(getattr(self.client, name), *arguments)

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool; its structured content."""
        return self.call_with(name, arguments)

    def call_with(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool with arguments of any names."""
        return told_by(self.ask("call_tool", name, dict(arguments)))

    def code_of(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool; the code of its refusal, or nothing."""
        try:
            self.call_with(name, arguments)
        except ToolRefused as refusal:
            return str(refusal.code)
        return ""

    def at_once(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        """Call tools side by side; the answers, in the order of the calls."""
        waiting = [
            self.portal.start_task_soon(self.client.call_tool, name, dict(arguments))
            for name, arguments in calls
        ]
        return [told_by(each.result()) for each in waiting]


def told_by(answer: Any) -> dict[str, Any]:
    """The structured content of an answer, or its refusal."""
    if answer.is_error:
        raise ToolRefused(json.loads(answer.content[0].text))
    told: dict[str, Any] = answer.structured_content
    return told


@contextmanager
def connected(server: Any, *, headers: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A client of a server: the SDK's own object, the parameters of a program, or a URL.

    `headers` go with every request to a URL.
    """
    from anyio.from_thread import start_blocking_portal
    from mcp import Client

    if headers is not None:
        server = _with_headers(server, headers)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(server)) as client,
    ):
        yield Served(portal, client)


@asynccontextmanager
async def _with_headers(url: str, headers: Mapping[str, str]) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=30) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


def program(*words: str, env: Mapping[str, str] | None = None) -> Any:
    """The parameters that start `pagefile` with these words as a server of the SDK's client."""
    from mcp import StdioServerParameters

    return StdioServerParameters(
        command=_HERE[0],
        args=[*_HERE[1:], *words],
        env={**os.environ, **(env or {})},
    )


@contextmanager
def listening(*words: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """`pagefile mcp --http` as a process of its own; its address."""
    process = subprocess.Popen(
        [*_HERE, "mcp", "--http", "--port", "0", *words],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    # Read on, so that the server never waits for a full pipe.
    rest = threading.Thread(target=process.stderr.read, daemon=True)
    rest.start()
    try:
        assert told.startswith("serving MCP at "), told
        yield told.split()[-1]
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)
        rest.join(_STOP_SECONDS)
        process.stderr.close()


@contextmanager
def application(app: Any) -> Iterator[str]:
    """An ASGI application on a port of this machine, in a thread; its address."""
    import socket

    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)
        listener.close()

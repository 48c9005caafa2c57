"""MCP behind the REST server's front: one process, one set of keys, two surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("mcp", reason="pagefile[mcp] is not installed")
pytest.importorskip("granian", reason="pagefile[server] is not installed")

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from pagefile.handle import Admin
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.combined import MCP
from tests.servers.http import HttpServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    url = str(tmp_path_factory.mktemp("together") / "store.db")
    with HttpServer(url, {"mounts": [MCP], "durability": "process"}) as running:
        yield running


@pytest.fixture(scope="module")
def keys(server: HttpServer) -> dict[str, str]:
    with Admin(server.url) as admin:
        store = KeyStore(admin)
        return {
            "reader": store.create("default", ("read",)).secret,
            "ann": store.create("default", ("read", "write"), user_id="ann").secret,
            "other": store.create("other", ("read", "write")).secret,
        }


def call(server: HttpServer, key: str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What tools answer to a client with that key."""

    async def ask() -> list[Any]:
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            streamable_http_client(f"{server.base}/mcp", http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            return [await session.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(ask())


def texts(answer: Any) -> list[str]:
    return [one["memory"] for one in answer.structured_content["memories"]]


SEARCH = ("search_memory", {"query": "Lisbon", "user_id": "ann"})
ADD = ("add_memory", {"text": "I live in Lisbon.", "user_id": "ann"})


def test_a_memory_added_over_mcp_is_found_over_both(server: HttpServer) -> None:
    added, found = call(server, server.key, ADD, SEARCH)
    body = {"query": "Lisbon", "user_id": "ann"}
    rest = httpx2.post(f"{server.base}/v1/recall", json=body, headers=server.headers)

    assert not added.is_error
    assert texts(found) == ["I live in Lisbon."]
    assert rest.status_code == 200
    assert "I live in Lisbon." in rest.text


def test_a_key_reaches_its_tenant_its_user_and_its_rights_alone(
    server: HttpServer, keys: dict[str, str]
) -> None:
    call(server, server.key, ADD)
    for_bob = ("search_memory", {"query": "Lisbon", "user_id": "bob"})
    [foreign] = call(server, keys["other"], SEARCH)
    [refused] = call(server, keys["ann"], for_bob)
    [denied] = call(server, keys["reader"], ADD)

    assert texts(foreign) == []
    assert (refused.is_error, denied.is_error) == (True, True)
    assert "forbidden" in str(refused.content)


def test_nobody_is_let_in_without_a_key_or_from_another_page(server: HttpServer) -> None:
    without = httpx2.post(f"{server.base}/mcp", json={})
    away = httpx2.post(
        f"{server.base}/mcp", json={}, headers={**server.headers, "Host": "evil.example"}
    )

    assert without.status_code == 401
    assert away.status_code in (403, 421)

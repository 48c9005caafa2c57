"""A route that is called plainly answers as it does through Starlette."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("granian", reason="pagefile[server] is not installed")

from starlette.testclient import TestClient

from pagefile.surfaces.http import app as application
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.endpoints import Router

#: What a request has that no other has.
_OWN = re.compile(
    r'"(request_id|detail|error|timestamp|position|created_at|updated_at)":("[^"]*"|\d+)'
)
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\dT[0-9:.+Z]+|pf_[0-9a-f]+|[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}"
)
SLOT = {"payload": {"text": "x"}, "from_id": "a", "to_id": "b"}
ASKED: list[tuple[str, str, Any]] = [
    ("POST", "/v1/threads/t/slots", SLOT),
    ("POST", "/v1/threads/t/slots", {"payload": 1}),
    ("POST", "/v1/threads/t%2e/slots", SLOT),
    ("POST", "/v1/threads//slots", SLOT),
    ("POST", "/v1/threads/t/slots/batch", {"slots": [SLOT]}),
    ("GET", "/v1/threads", None),
    ("GET", "/v1/threads?limit=0", None),
    ("GET", "/v1/threads?limit=1", None),
    ("GET", "/v1/threads/t", None),
    ("GET", "/v1/threads/t/slots/0", None),
    ("GET", "/v1/threads/t/slots/x", None),
    ("GET", "/v1/threads/none", None),
    ("POST", "/v1/runs", {"objective": "x", "run_id": "r"}),
    ("POST", "/v1/runs", {"objective": "x", "run_id": "r"}),
    ("GET", "/v1/runs/r", None),
    ("GET", "/v1/runs/r?seq=0", None),
    ("GET", "/v1/runs/r?seq=x", None),
    ("GET", "/v1/runs/r?nothing=1", None),
    ("GET", "/v1/runs/none", None),
    ("GET", "/runs/r/ws", None),
    ("GET", "/runs/none", None),
    ("HEAD", "/v1/runs/r", None),
    ("PUT", "/v1/runs/r", {}),
    ("DELETE", "/v1/threads/t/slots", None),
    ("POST", "/v1/recall", {"query": "x"}),
    ("POST", "/v1/recall", {"query": 1}),
    ("GET", "/v1/whoami", None),
    ("GET", "/v1/nothing", None),
    ("GET", "/v1/runs/r/", None),
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("GET", "/", None),
]


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[Any]]]:
    """Of each request the answer of a server as it is, and of one that FastAPI answers alone."""
    found: list[list[Any]] = []
    with ExitStack() as stack:
        for name in ("plainly", "fastapi"):
            if name == "fastapi":
                monkeypatch.setattr(application, "Router", lambda app, routes: app)
            config = ServerConfig(
                url=str(tmp_path / f"{name}.db"),
                durability="process",
                log_level="error",
                local=True,
            )
            client = TestClient(
                make_app(config), base_url="http://127.0.0.1:8000", follow_redirects=False
            )
            stack.enter_context(client)
            found.append([_shown(client.request(*each[:2], json=each[2])) for each in ASKED])
        yield found


def _shown(answer: Any) -> tuple[int, dict[str, str], str]:
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in ("x-request-id", "content-length")
    }
    return answer.status_code, headers, _STAMP.sub("", _OWN.sub("", answer.text))


def test_an_answer_is_the_same_with_fastapi_and_without(answers: list[list[Any]]) -> None:
    plainly, through_fastapi = answers

    for asked, mine, theirs in zip(ASKED, plainly, through_fastapi, strict=True):
        assert mine == theirs, asked


def test_the_routes_that_are_asked_most_are_called_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on: list[str] = []

    def noting(app: Any, routes: Any) -> Router:
        async def noted(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                passed_on.append(scope["path"])
            await app(scope, receive, send)

        return Router(noted, routes)

    monkeypatch.setattr(application, "Router", noting)
    config = ServerConfig(
        url=str(tmp_path / "s.db"), durability="process", log_level="error", local=True
    )
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client:
        client.post("/v1/threads/t/slots", json=SLOT)
        client.get("/v1/runs/r")
        client.post("/v1/recall", json={"query": "x"})

    assert passed_on == []

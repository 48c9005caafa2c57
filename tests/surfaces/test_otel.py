"""Spans: what memory does, as OpenTelemetry's conventions name it, and nothing of what is said."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

import pagefile
from pagefile import tracing
from pagefile.client import Remote
from pagefile.client.calls import operations
from pagefile.errors import Invalid, NotFound
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.fact import Fact
from pagefile.memory.memory import Memory
from pagefile.settings import Settings
from pagefile.store.store import Store
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig

SECRET = "the vault opens with swordfish"


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[dict[str, Any]]:
        return [dict(span.attributes or {}) for span in self.all if span.name == name]

    @property
    def text(self) -> str:
        return "".join(span.to_json() for span in self.all)


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    tracing.enable(spans.provider)
    yield spans
    tracing.disable()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "none")


def use(pf: pagefile.Pagefile) -> str:
    memory = pf.memory
    told = Episode(session_id="s1", user_id="ann", input=SECRET)
    identity = memory.remember(told)
    memory.recall("Which word opens the vault?", user_id="ann", session_id="s1")
    memory.search("vault", user_id="ann")
    memory.update_block("persona", "kind", user_id="ann")
    memory.append_block(user_id="ann", name="persona", content=" and quick")
    fact = memory.facts.append(
        Fact(subject="vault", predicate="opens with", object="swordfish", user_id="ann")
    )
    memory.facts.retract(fact, user_id="ann")
    pf.assemble(None, "vault", 500, user_id="ann")
    memory.forget(user_id="ann")
    return identity


def test_memory_operations_have_the_names_and_attributes_of_the_conventions(spans: Spans) -> None:
    with pagefile.open("memory:", tenant="acme") as pf:
        identity = use(pf)

    [remembered, asserted] = spans.named("create_memory")
    assert remembered == {
        "gen_ai.operation.name": "create_memory",
        "gen_ai.provider.name": "pagefile",
        "gen_ai.memory.store.id": "acme",
        "gen_ai.memory.record.id": identity,
        "gen_ai.memory.record.count": 1,
        "gen_ai.conversation.id": "s1",
    }
    assert asserted["gen_ai.memory.record.id"].startswith("f")
    [recalled, searched] = spans.named("search_memory")
    assert recalled["gen_ai.memory.record.count"] == searched["gen_ai.memory.record.count"] == 1
    assert recalled["gen_ai.conversation.id"] == "s1"
    assert [len(spans.named(n)) for n in ("upsert_memory", "update_memory")] == [1, 1]
    assert spans.named("upsert_memory")[0]["gen_ai.memory.record.id"] == "persona"
    assert spans.named("update_memory")[0]["gen_ai.memory.record.id"] == "persona"
    retracted, forgotten = spans.named("delete_memory")
    assert "gen_ai.memory.record.id" in retracted
    assert "gen_ai.memory.record.id" not in forgotten
    assert forgotten["gen_ai.memory.record.count"] > 0
    [assembled] = spans.named("pagefile.assemble")
    assert 0 < assembled["pagefile.tokens"] <= assembled["pagefile.budget"] == 500
    assert all(span.kind is trace.SpanKind.INTERNAL for span in spans.all)


def test_commits_stand_inside_the_operation_that_made_them(spans: Spans) -> None:
    with pagefile.open("memory:") as pf:
        pf.memory.remember(Episode(session_id="s", user_id="ann", input="hello"))

    [whole] = [span for span in spans.all if span.name == "create_memory"]
    commits = [span for span in spans.all if span.name == "pagefile.commit"]
    assert commits
    assert whole.context is not None
    assert {span.parent.span_id for span in commits if span.parent} == {whole.context.span_id}
    operations = dict(commits[0].attributes or {})["pagefile.operations"]
    assert isinstance(operations, int)
    assert operations >= 1


def test_nothing_that_anybody_said_is_in_a_span_unless_it_is_asked_for(spans: Spans) -> None:
    with pagefile.open("memory:") as pf:
        use(pf)
    assert "swordfish" not in spans.text
    assert "vault" not in spans.text

    tracing.enable(spans.provider, content=True)
    with pagefile.open("memory:") as pf:
        use(pf)
    told = spans.named("search_memory")[-1]
    assert told["gen_ai.memory.query.text"] == "vault"
    [record, *_] = json.loads(told["gen_ai.memory.records"])
    assert record["content"] == SECRET
    assert {"id", "score"} <= record.keys()


def test_a_refusal_is_told_by_its_code_alone(spans: Spans) -> None:
    with pagefile.open("memory:") as pf:
        with pytest.raises(Invalid):
            pf.memory.search(SECRET, user_id="ann", limit=-1)
        with pytest.raises(NotFound):
            pf.memory.facts.retract("swordfish-fact-that-is-absent", user_id="ann")

    assert spans.named("search_memory")[0]["error.type"] == "invalid"
    assert [span.status.status_code.name for span in spans.all] == ["ERROR", "ERROR"]
    assert "vault" not in spans.text
    assert [event for span in spans.all for event in span.events] == []


def test_awaited_operations_are_traced_once_and_in_their_trace(spans: Spans) -> None:
    async def work() -> None:
        from pagefile import aio

        async with aio.open("memory:") as pf:
            with spans.provider.get_tracer("test").start_as_current_span("outer"):
                await pf.memory.remember(Episode(session_id="s", user_id="ann", input="hello"))
                await pf.memory.recall("hello", user_id="ann")
                await pf.assemble(None, "hello", 500, user_id="ann")
                await pf.context.append("t", "hello", "a", "b")

    asyncio.run(work())

    for name in ("create_memory", "search_memory", "pagefile.assemble"):
        assert len(spans.named(name)) == 1, name
    [outer] = [span for span in spans.all if span.name == "outer"]
    assert outer.context is not None
    assert {span.context.trace_id for span in spans.all if span.context} == {outer.context.trace_id}


def test_switched_off_every_method_is_what_it_was(spans: Spans) -> None:
    tracing.disable()

    assert not tracing.is_enabled()
    assert not hasattr(Memory.recall, "__wrapped__")
    assert not hasattr(Memory.forget, "__wrapped__")
    assert not hasattr(Store.commit, "__wrapped__")
    with pagefile.open("memory:") as pf:
        pf.memory.recall("hello", user_id="ann")
    assert spans.all == ()


OFF = """
import os, sys
os.environ["PAGEFILE_EMBEDDER"] = "none"
import pagefile
import pagefile.client
with pagefile.open("memory:") as pf:
    pf.memory.recall("hello", user_id="ann")
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_without_tracing_nothing_of_opentelemetry_is_loaded(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OFF], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    assert ran.stdout.strip() == "[]"


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFILE_TRACING", "on")
    with pagefile.open("memory:"):
        assert tracing.is_enabled()
    tracing.disable()
    with pytest.raises(Invalid, match="PAGEFILE_TRACING"):
        tracing.enable_if_set(Settings(tracing="sometimes"))
    assert not tracing.is_enabled()


def test_a_server_whose_spans_nobody_exports_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ServerConfig(url="memory:", local=True, packs_dir=str(tmp_path))
    monkeypatch.setenv("PAGEFILE_TRACING", "on")
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000"):
        alone = tracing.is_exported()
    warned = capsys.readouterr().err
    tracing.enable(TracerProvider())
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000"):
        given = tracing.is_exported()
    content = capsys.readouterr().err
    tracing.disable()

    assert (alone, given) == (False, True)
    assert "exported by nobody" in warned
    assert "exported by nobody" not in content


def test_a_request_goes_on_with_the_trace_it_came_in(spans: Spans, tmp_path: Path) -> None:
    config = ServerConfig(
        url="memory:", local=True, packs_dir=str(tmp_path / "packs"), log_level="error"
    )
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as http:
        body = {"session_id": "s", "input": SECRET, "user_id": "ann"}
        http.post("/v1/episodes", json=body, headers={"traceparent": parent})
        http.get("/v1/runs/swordfish", headers={"traceparent": parent})

    [made] = [span for span in spans.all if span.name == "create_memory"]
    [request] = [span for span in spans.all if span.name == "POST /v1/episodes"]
    assert made.context is not None
    assert request.context is not None
    assert f"{made.context.trace_id:032x}" == parent.split("-")[1]
    assert request.kind is trace.SpanKind.SERVER
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == parent.split("-")[2]
    assert made.parent is not None
    assert made.parent.span_id == request.context.span_id
    [absent] = spans.named("GET /v1/runs/{run_id}")
    assert absent["http.response.status_code"] == 404
    assert "swordfish" not in spans.text


def test_a_call_of_the_client_has_a_span_that_the_servers_stands_in(
    spans: Spans, tmp_path: Path
) -> None:
    config = ServerConfig(url="memory:", local=True, packs_dir=str(tmp_path), log_level="error")
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as http:

        def passed(request: httpx.Request) -> httpx.Response:
            headers = dict(request.headers) | {"host": "127.0.0.1"}
            target = request.url.raw_path.decode()
            answer = http.request(request.method, target, content=request.read(), headers=headers)
            return httpx.Response(answer.status_code, content=answer.content)

        remote = Remote(transport=httpx.MockTransport(passed))
        with pagefile.open("http://127.0.0.1:8000", remote=remote) as pf:
            pf.memory.remember(Episode(session_id="s", input=SECRET, user_id="ann"))
            with pytest.raises(NotFound):
                pf.runs.open("swordfish")
    # The first says whose the key is, when the handle is opened.
    called = [span for span in spans.all if span.kind is trace.SpanKind.CLIENT][1:]
    [request] = [span for span in spans.all if span.name == "POST /v1/episodes"]

    assert [span.name for span in called] == ["create_memory", "GET"]
    assert called[0].context is not None
    assert request.parent is not None
    assert request.parent.span_id == called[0].context.span_id
    done, absent = (dict(span.attributes or {}) for span in called)
    assert done["gen_ai.operation.name"] == "create_memory"
    assert (done["http.response.status_code"], done["server.port"]) == (201, 8000)
    assert absent["error.type"] == "not_found"
    assert "swordfish" not in spans.text


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("memory.recall_facts_scored", "search_memory"),
        ("memory.facts.retract", "delete_memory"),
        ("memory.append_block", "update_memory"),
        ("memory.delete_block", "delete_memory"),
        ("items.commit", "upsert_memory"),
        ("runs.boot", ""),
    ],
)
def test_a_request_is_the_memory_operation_that_the_library_would_do(
    method: str, operation: str
) -> None:
    assert operations()[method].span == operation

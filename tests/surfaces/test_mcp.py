"""The MCP server, through the SDK's client: tools, caps, who may see what, transports."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile.errors import LimitExceeded, PagefileError
from pagefile.handle import Admin
from pagefile.memory.facts.fact import Fact
from pagefile.runs.tokens import CharsPerFour, counter_named
from pagefile.surfaces.mcp import Identity, mcp_app, mcp_service, resources
from pagefile.surfaces.mcp.budget import Budget
from pagefile.surfaces.mcp.caller import ERASING, NEEDS, PACKING
from pagefile.surfaces.mcp.reference.graph import Entity, Graph, Relation, take_in, write_out
from pagefile.surfaces.mcp.reference.graph_tools import REFERENCE_TOOLS
from pagefile.surfaces.mcp.resources import TEMPLATES
from pagefile.surfaces.mcp.server import PROMPTS, server_of
from pagefile.surfaces.mcp.service import TOOLS
from pagefile.surfaces.mcp.tool import schema_of
from tests import ROOT
from tests.servers.mcp import (
    Served,
    ToolRefused,
    application,
    connected,
    listening,
    program,
)

REFERENCE = (ROOT / "docs/reference/mcp.md").read_text(encoding="utf-8")
HOWTO = (ROOT / "docs/howto/mcp.md").read_text(encoding="utf-8")
READ_ONLY = frozenset({"read"})
EVERY = frozenset({"read", "write", "admin"})
CONFORMANCE = "0.1.13"


@pytest.fixture(autouse=True)
def words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vectors: what is asked here needs none, and the servers start sooner."""
    for name in [each for each in os.environ if each.startswith("PAGEFILE_")]:
        if name != "PAGEFILE_SOAK":
            monkeypatch.delenv(name)
    monkeypatch.delenv("MEMORY_FILE_PATH", raising=False)
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "none")


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin("memory:") as opened:
        yield opened


@contextmanager
def served(admin: Admin, identity: Identity | None = None, **options: Any) -> Iterator[Served]:
    service = mcp_service(admin, **options)
    with connected(server_of(service, identity or Identity("default", "ann", EVERY))) as client:
        yield client


@pytest.fixture
def ann(admin: Admin) -> Iterator[Served]:
    with served(admin) as client:
        yield client


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(ToolRefused) as refusal:
        call()
    return str(refusal.value.code)


# What there is, and that it is documented


def test_there_are_at_most_ten_tools_and_a_client_knows_what_each_does(ann: Served) -> None:
    from jsonschema import Draft202012Validator

    tools = ann.ask("list_tools").tools

    assert [tool.name for tool in tools] == [tool.name for tool in TOOLS]
    assert len(tools) <= 10
    for tool in tools:
        hints = tool.annotations
        assert hints.open_world_hint is False
        assert hints.destructive_hint == (tool.name in ("forget", "commit_memory"))
        assert hints.idempotent_hint or tool.name in (
            *("add_memory", "update_memory", "append_message", "propose_memory"),
        )
        assert tool.output_schema["type"] == tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert "max_tokens" in tool.input_schema["properties"]
        Draft202012Validator.check_schema(tool.input_schema)
        Draft202012Validator.check_schema(tool.output_schema)
    listed = json.dumps([[t.name, t.description, t.input_schema] for t in tools])
    assert CharsPerFour().count(listed) < 3_000


def test_every_tool_argument_and_answer_is_in_the_reference() -> None:
    for tool in TOOLS:
        found = re.search(rf"^### {tool.name}\n(.*?)(?=^##|\Z)", REFERENCE, re.M | re.S)
        section = "" if found is None else found[1]
        taken = set(schema_of(tool.takes)["properties"]) - {"max_tokens"}
        given = set(schema_of(tool.gives)["properties"]) - {"left_out"}
        row = (
            f"| `{tool.name}` | {_yes(not tool.writes)} | {_yes(tool.destroys)}"
            f" | {_yes(tool.repeatable or not tool.writes)} |"
        )

        assert [name for name in sorted(taken | given) if f"`{name}`" not in section] == []
        assert row in REFERENCE
    assert [t.name for t in REFERENCE_TOOLS if f"`{t.name}`" not in REFERENCE] == []


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def test_every_resource_and_prompt_is_in_the_reference() -> None:
    assert [each.address for each in TEMPLATES if f"| `{each.address}` |" not in REFERENCE] == []
    for form in PROMPTS:
        assert f"| `{form.name}` |" in REFERENCE
        assert [a.name for a in form.arguments if f"`{a.name}`" not in REFERENCE] == []


# The tools


def test_a_memory_is_added_found_read_changed_and_forgotten(ann: Served) -> None:
    added = ann.call("add_memory", text="I live in Lisbon.", session_id="monday")
    fact = ann.call("add_memory", fact={"subject": "Ann", "predicate": "likes", "object": "tea"})

    assert (added["kind"], fact["kind"]) == ("episode", "fact")
    [found] = ann.call("search_memory", query="Lisbon")["memories"]
    assert (found["id"], found["memory"]) == (added["id"], "I live in Lisbon.")
    read = ann.call("get_memory", memory_id=added["id"])
    assert (read["text"], read["sources"]) == ("I live in Lisbon.", ["monday"])
    assert ann.call("update_memory", memory_id=added["id"], text="I live in Oslo.") == {
        "id": added["id"],
        "kind": "episode",
        "replaces": None,
    }
    newer = ann.call("update_memory", memory_id=fact["id"], text="coffee")
    assert newer["replaces"] == fact["id"] != newer["id"]
    found_kinds = ann.call("search_memory", query="Ann likes coffee", kinds=["fact"])["memories"]
    assert "coffee" in found_kinds[0]["memory"]
    rehearsed = ann.call("forget", memory_id=added["id"], dry_run=True)
    assert ann.call("forget", memory_id=added["id"])["counts"] == rehearsed["counts"]
    assert code_of(lambda: ann.call("get_memory", memory_id=added["id"])) == "not_found"
    assert ann.call("forget", memory_id=newer["id"])["forgotten"] == 1
    assert ann.call("forget", everything=True)["forgotten"] > 0


def test_a_fact_with_a_new_object_no_longer_has_the_old_one(ann: Served, admin: Admin) -> None:
    """Ann may like many things at once, and lives in one place at a time."""
    facts = admin.open("default").memory.facts
    for predicate in ("likes", "lives_in"):
        told = {"subject": "Ann", "predicate": predicate, "object": "old"}
        first = ann.call("add_memory", fact=told)
        second = ann.call("update_memory", memory_id=first["id"], text="new")
        same = ann.call("update_memory", memory_id=second["id"], text="New")

        held = facts.query(predicate=predicate, user_id="ann")
        assert [(fact.id, fact.object) for fact in held] == [(second["id"], "new")]
        assert held[0].asserted == (second["id"], same["id"])


def test_a_fact_of_next_year_gets_its_new_object_then(ann: Served, admin: Admin) -> None:
    facts = admin.open("default").memory.facts
    start, end = datetime(2190, 1, 1, tzinfo=UTC), datetime(2191, 1, 1, tzinfo=UTC)
    for predicate in ("likes", "lives_in"):
        for until in (end, None):
            fact = Fact(
                subject=f"Ann {until}",
                predicate=predicate,
                object="old",
                user_id="ann",
                valid_from=start,
                valid_until=until,
            )
            ann.call("update_memory", memory_id=facts.append(fact), text="new")

            held = facts.query(
                subject=fact.subject, predicate=predicate, user_id="ann", history=True
            )
            assert [(f.object, f.valid_from, f.valid_until) for f in held] == [
                ("new", start, until)
            ]


def test_messages_are_appended_and_make_a_context(ann: Served) -> None:
    ann.call("add_memory", text="I am allergic to peanuts.", session_id="june")
    first = ann.call("append_message", thread_id="t", text="What can I eat?", key="k")
    again = ann.call("append_message", thread_id="t", text="What can I eat?", key="k")
    ann.call("append_message", thread_id="t", payload=[1, {"x": None}], sender="agent")
    read = ann.call("get_thread", thread_id="t")
    context = ann.call("get_context", thread_id="t", query="What is Ann allergic to?")

    assert first == again
    assert [each["payload"] for each in read["messages"]] == [
        {"text": "What can I eat?"},
        [1, {"x": None}],
    ]
    assert (read["length"], read["left_out"]) == (2, None)
    assert "peanuts" in context["text"]
    assert "What can I eat?" in context["text"]
    assert set(context["sections"]) == {"recall", "tail"}


def test_a_proposal_holds_once_somebody_agreed(ann: Served, admin: Admin) -> None:
    change = {"op": "add", "content": "Ann prefers metric units", "rationale": "she said so"}
    made = ann.call("propose_memory", changes=[change])

    assert (made["count"], made["problems"]) == (1, [])
    assert ann.call("search_memory", query="units")["memories"] == []
    done = ann.call("commit_memory", batch_id=made["batch_id"], reviewer="carl")
    assert ann.call("commit_memory", batch_id=made["batch_id"], reviewer="carl") == done
    [found] = ann.call("search_memory", query="units")["memories"]
    assert (found["id"], found["kind"]) == (done["memory_ids"][0], "item")
    assert code_of(lambda: ann.call("forget", memory_id=found["id"])) == "unsupported"
    assert code_of(lambda: ann.call("update_memory", memory_id=found["id"], text="x")) == (
        "unsupported"
    )


def test_a_refusal_has_its_code_and_changes_nothing(ann: Served, admin: Admin) -> None:
    ann.call("append_message", thread_id="t", text="one")
    before = admin.open("default").store.head()
    refusals: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "invalid": [
            ("add_memory", {}),
            ("add_memory", {"text": "x", "tenant": "other"}),
            ("add_memory", {"text": "x", "occurred_at": "yesterday"}),
            ("search_memory", {"query": "x", "limit": -1}),
            ("search_memory", {"query": "x", "max_tokens": 1}),
            ("get_context", {}),
            ("get_context", {"thread_id": "t", "run_id": "r"}),
            ("append_message", {"thread_id": "t"}),
            ("append_message", {"thread_id": "t", "text": "x", "payload": 1}),
            ("append_message", {"thread_id": "t\n", "text": "x"}),
            ("forget", {}),
            ("forget", {"everything": True, "session_id": "s"}),
            ("propose_memory", {"changes": []}),
        ],
        "not_found": [
            ("get_memory", {"memory_id": "ep_none"}),
            ("update_memory", {"memory_id": "ep_none", "text": "x"}),
            ("forget", {"memory_id": "ep_none"}),
            ("get_thread", {"thread_id": "none"}),
            ("get_context", {"run_id": "none"}),
            ("commit_memory", {"batch_id": "batch_none", "reviewer": "carl"}),
        ],
        "conflict": [("append_message", {"thread_id": "t", "text": "x", "expected_len": 5})],
    }
    for code, calls in refusals.items():
        for name, arguments in calls:
            assert (name, arguments, ann.code_of(name, arguments)) == (name, arguments, code)
    assert admin.open("default").store.head() == before


JUNK: list[Any] = [
    *(
        None,
        True,
        -1,
        2**70,
        1.5,
        "",
        "\x00",
        "\ud7ff\ue000",
        "../../etc/passwd",
        "a" * 70_000,
    ),
    *([], [[]], {}, {"$ref": "#"}, [None] * 200, {"a": {"b": [{}] * 50}}),
    json.loads("[" * 150 + "]" * 150),
]


def test_no_argument_makes_the_server_fail(admin: Admin) -> None:
    for compat, tools in ((None, TOOLS), ("reference", REFERENCE_TOOLS)):
        with served(admin, compat=compat) as client:
            for tool in tools:
                named = list(schema_of(tool.takes)["properties"])
                for n, junk in enumerate(JUNK):
                    arguments = {name: JUNK[(n + i) % len(JUNK)] for i, name in enumerate(named)}
                    for given in (dict.fromkeys(named, junk), arguments):
                        code = client.code_of(tool.name, given)
                        assert code in _codes(), (tool.name, given)
            assert client.ask("list_tools").tools


def _codes() -> set[str]:
    return {"", *(error.code for error in pagefile.PagefileError.__subclasses__())}


def test_an_unknown_tool_is_an_error_of_the_protocol(ann: Served) -> None:
    from mcp import MCPError

    with pytest.raises(MCPError, match="Unknown tool"):
        ann.ask("call_tool", "drop_everything", {})


ODD_PAYLOADS: list[Any] = [
    *(2**70, -1, 0, False, "", [], {}, 1.5e300, "\x00\x1b", "漢字🚆"),
    {"": {"a": [None]}},
    json.loads("[" * 100 + "]" * 100),
]


def test_whatever_a_thread_holds_can_be_read(ann: Served, admin: Admin) -> None:
    for payload in ODD_PAYLOADS[:-5]:
        client_sent = {"thread_id": "sent", "payload": payload}
        assert ann.code_of("append_message", client_sent) in ("", "invalid")
    stored = [*ODD_PAYLOADS, b"\xff", (1, {2, 3}), datetime(2026, 1, 1, tzinfo=UTC), None]
    for payload in stored:
        admin.open("default").context.append("t", payload, "a", "b", user_id="ann")
    read = ann.call("get_thread", thread_id="t", limit=100)["messages"]

    assert len(read) == len(stored)
    assert [m["payload"] for m in read if m["payload"] in ("漢字🚆", {"": {"a": [None]}})]
    assert ann.call("get_context", thread_id="t")["text"]
    assert ann.ask("read_resource", "pagefile://threads/t").contents[0].text


def test_without_the_sdk_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pagefile.surfaces.cli import main

    monkeypatch.setitem(sys.modules, "mcp", None)

    assert main(["mcp", "--url", str(tmp_path / "store.db")]) == 9
    assert "pip install 'pagefile[mcp]'" in capsys.readouterr().err


# The cap


@pytest.mark.parametrize("counter", ["chars/4", "o200k_base"])
def test_an_answer_is_cut_between_items_and_keeps_its_cap(admin: Admin, counter: str) -> None:
    count = counter_named(counter).count
    with served(admin, counter=counter) as client:
        for n in range(40):
            text = f"news {n}: " + '"quoted" \n lines, 漢字, ' * 4 * (40 - n)
            client.call("append_message", thread_id="t", text=text)
            client.call("add_memory", text=text, memory_id=f"m{n}")
        whole = client.call("get_thread", thread_id="t", max_tokens=100_000)
        assert (len(whole["messages"]), whole["left_out"]) == (40, None)
        for cap in (256, 300, 777, 2_000, 8_000):
            cut = client.call("get_thread", thread_id="t", max_tokens=cap)
            kept = len(cut["messages"])
            assert _cost(cut, count) <= cap
            assert cut["messages"] == whole["messages"][40 - kept :]
            assert kept + cut["left_out"]["items"] == 40
            needed = cut["left_out"]["tokens"]
            more = client.call("get_thread", thread_id="t", max_tokens=max(256, needed))
            assert len(more["messages"]) > kept

            found = client.call("search_memory", query="news", limit=30, max_tokens=cap)
            assert _cost(found, count) <= cap
            left = found["left_out"]
            assert len(found["memories"]) + (left["items"] if left else 0) == 30

            context = client.call("get_context", thread_id="t", query="news", max_tokens=2 * cap)
            assert _cost(context, count) <= 2 * cap


def _cost(answer: Mapping[str, Any], count: Callable[[str], int]) -> int:
    return count(json.dumps(answer, separators=(",", ":"), ensure_ascii=False))


def test_what_cannot_be_cut_is_refused_with_what_it_needs(ann: Served) -> None:
    ann.call("add_memory", text="long " * 2_000, memory_id="long")
    with pytest.raises(ToolRefused) as refusal:
        ann.call("get_memory", memory_id="long", max_tokens=500)
    needed = refusal.value.told["wanted"]

    assert refusal.value.code == "limit_exceeded"
    assert ann.call("get_memory", memory_id="long", max_tokens=needed + 20)["text"]


def test_the_servers_own_cap_holds_whatever_a_call_asks_for(admin: Admin) -> None:
    with served(admin, max_tokens=300) as client:
        for _ in range(30):
            client.call("append_message", thread_id="t", text="word " * 20)
        cut = client.call("get_thread", thread_id="t", max_tokens=100_000)
        read = client.ask("read_resource", "pagefile://threads/t").contents[0].text

    assert 0 < len(cut["messages"]) < 30
    assert CharsPerFour().count(read) <= 300


def test_a_counter_that_counts_more_for_the_whole_is_kept_too() -> None:
    class Superlinear:
        name = "superlinear"

        def count(self, text: str) -> int:
            return len(text) ** 2 // 400

    budget = Budget(Superlinear(), 1_000)
    answer = budget.filled(["x" * 20] * 100, lambda items, left: [list(items), left], "less")

    assert answer[0]
    assert budget.cost(answer) <= 1_000


# Who may see what


def test_a_connection_of_one_user_reaches_no_other(admin: Admin) -> None:
    pf = admin.open("default")
    pf.runs.boot("Bob's plan", run_id="bobs", user_id="bob")
    change = {"op": "add", "content": "Bob likes rum", "rationale": "x"}
    with served(admin, Identity("default", "bob")) as bob:
        secret = bob.call("add_memory", text="Bob's secret")["id"]
        bob.call("append_message", thread_id="bobs", text="Bob's secret")
        batch = bob.call("propose_memory", changes=[change])["batch_id"]
        assert {str(each.uri) for each in _resources(bob)} == {
            "pagefile://threads/bobs",
            "pagefile://runs/bobs",
        }
    with served(admin) as ann:
        ann.call("add_memory", text="Ann's own", user_id="ann")
        refused: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "forbidden": [
                ("add_memory", {"text": "x", "user_id": "bob"}),
                ("search_memory", {"query": "secret", "user_id": "bob"}),
                ("get_memory", {"memory_id": secret, "user_id": "bob"}),
                ("forget", {"everything": True, "user_id": "bob"}),
                ("append_message", {"thread_id": "new", "text": "x", "user_id": "bob"}),
                ("get_context", {"query": "secret", "user_id": "bob"}),
                ("propose_memory", {"changes": [{**change, "scope": "global"}]}),
                ("propose_memory", {"changes": [change], "user_id": "bob"}),
            ],
            "not_found": [
                ("get_memory", {"memory_id": secret}),
                ("get_thread", {"thread_id": "bobs"}),
                ("append_message", {"thread_id": "bobs", "text": "x"}),
                ("get_context", {"thread_id": "bobs"}),
                ("get_context", {"run_id": "bobs"}),
                ("propose_memory", {"changes": [change], "run_id": "bobs"}),
                ("commit_memory", {"batch_id": batch, "reviewer": "ann"}),
            ],
        }
        for code, calls in refused.items():
            for name, arguments in calls:
                assert (name, arguments, ann.code_of(name, arguments)) == (name, arguments, code)
        assert ann.call("search_memory", query="secret")["memories"] == []
        assert _resources(ann) == []
        for uri in ("pagefile://threads/bobs", "pagefile://runs/bobs", "pagefile://packs/bobs"):
            _not_there(ann, uri)
        assert ann.call("forget", everything=True)["forgotten"] == 1
    with served(admin, Identity("default")) as anybody:
        assert anybody.call("get_memory", memory_id=secret, user_id="bob")["text"]
        assert len(_resources(anybody)) == 2


def _resources(client: Served) -> list[Any]:
    page = client.ask("list_resources")
    found = list(page.resources)
    while page.next_cursor is not None:
        listing = partial(client.client.list_resources, cursor=page.next_cursor)
        page = client.portal.call(listing)
        found += page.resources
    return found


def _not_there(client: Served, uri: str) -> None:
    from mcp import MCPError

    with pytest.raises(MCPError) as refusal:
        client.ask("read_resource", uri)
    assert (refusal.value.error.code, refusal.value.error.data["code"]) == (-32002, "not_found")


def test_two_users_who_begin_one_thread_do_not_share_it(tmp_path: Path) -> None:
    with Admin(str(tmp_path / "store.db")) as admin, ExitStack() as opened:
        clients = [opened.enter_context(served(admin, Identity("default", u))) for u in "abcd"]

        def append(client: Served) -> str:
            return client.code_of("append_message", {"thread_id": "t", "text": "mine"})

        with ThreadPoolExecutor(4) as pool:
            ended = sorted(pool.map(append, clients))

        assert ended == ["", *["not_found"] * 3]


def test_who_may_only_read_is_offered_nothing_else(admin: Admin) -> None:
    admin.open("default").runs.boot("Plan", run_id="r", user_id="ann")
    with served(admin, Identity("default", "ann", READ_ONLY)) as client:
        names = [tool.name for tool in client.ask("list_tools").tools]

        assert names == ["search_memory", "get_memory", "get_context", "get_thread"]
        assert code_of(lambda: client.call("add_memory", text="x")) == "forbidden"
        assert code_of(lambda: client.call("forget", everything=True)) == "forbidden"
        with pytest.raises(Exception, match="no right to write"):
            client.ask("read_resource", "pagefile://packs/r")


# Resources and prompts


def test_threads_runs_and_packs_are_read_by_address(ann: Served, admin: Admin) -> None:
    admin.open("default").runs.boot("Plan a trip", run_id="trip", user_id="ann")
    ann.call("append_message", thread_id="a/b ü?#", text="hello")
    addresses = [str(each.uri) for each in _resources(ann)]
    thread, run = (ann.ask("read_resource", uri).contents[0] for uri in addresses)
    pack = ann.ask("read_resource", "pagefile://packs/trip").contents[0]

    assert json.loads(thread.text)["messages"][0]["payload"] == {"text": "hello"}
    assert json.loads(run.text)["objective"] == "Plan a trip"
    assert pack.mime_type == "application/zip"
    for uri in ("pagefile://threads/none", "pagefile://other/x", "file:///etc/passwd", "x"):
        _not_there(ann, uri)


def test_all_threads_are_listed_page_by_page(admin: Admin) -> None:
    pf = admin.open("default")
    for n in range(230):
        pf.context.append(f"t{n:03}", n, "a", "b", user_id="ann" if n % 2 else "bob")
    with served(admin) as ann, served(admin, Identity("default")) as anybody:
        assert [each.name for each in _resources(anybody)] == [f"t{n:03}" for n in range(230)]
        assert [each.name for each in _resources(ann)] == [f"t{n:03}" for n in range(1, 230, 2)]


def test_prompts_carry_what_is_known(ann: Served, admin: Admin) -> None:
    from mcp import MCPError

    ann.call("add_memory", text="I live in Lisbon.")
    admin.open("default").runs.boot("Plan a trip", run_id="trip", user_id="ann")

    def text(name: str, **given: str) -> str:
        return str(ann.ask("get_prompt", name, given).messages[0].content.text)

    assert "Lisbon" in text("answer_from_memory", question="Lisbon?")
    assert "Plan a trip" in text("resume_run", run_id="trip")
    for name, given in (
        *(("none", {}), ("resume_run", {}), ("resume_run", {"run_id": "x", "y": "z"})),
        ("answer_from_memory", {"question": "x", "user_id": "bob"}),
    ):
        with pytest.raises(MCPError):
            ann.ask("get_prompt", name, given)


# The reference memory server's tools


def entity(name: str, *observations: str) -> dict[str, Any]:
    return {"name": name, "entityType": "person", "observations": list(observations)}


def relation(start: str, end: str, kind: str = "knows") -> dict[str, str]:
    return {"from": start, "to": end, "relationType": kind}


def test_the_nine_tools_answer_in_the_shapes_of_the_reference_server(admin: Admin) -> None:
    with served(admin, compat="reference") as client:
        ann, bob = entity("Ann", "likes tea"), entity("Bob")
        made = client.call("create_entities", entities=[ann, bob, entity("Ann", "twice")])
        assert made == {"entities": [ann, bob]}
        assert client.call("create_entities", entities=[entity("Ann", "other")]) == {"entities": []}
        links = [relation("Ann", "Bob"), relation("Ann", "Bob")]
        assert client.call("create_relations", relations=links) == {"relations": links[:1]}
        assert client.call("create_relations", relations=links) == {"relations": []}
        missing = [relation("Ann", "Zoe")]
        assert code_of(lambda: client.call("create_relations", relations=missing)) == "not_found"
        added = {"entityName": "Bob", "contents": ["sings", "sings", "runs"]}
        assert client.call("add_observations", observations=[added]) == {
            "results": [{"entityName": "Bob", "addedObservations": ["sings", "runs"]}]
        }
        absent = {"entityName": "Zoe", "contents": ["x"]}
        assert (
            code_of(lambda: client.call("add_observations", observations=[added, absent]))
            == "not_found"
        )
        whole = {"entities": [ann, entity("Bob", "sings", "runs")], "relations": links[:1]}
        assert client.call("read_graph") == whole
        assert json.loads(client.ask("read_resource", "memory://knowledge-graph").contents[0].text)
        assert client.call("search_nodes", query="TEA") == {**whole, "entities": [ann]}
        assert client.call("open_nodes", names=["Bob", "Zoe"]) == {
            **whole,
            "entities": whole["entities"][1:],
        }
        gone = {"entityName": "Bob", "observations": ["runs", "swims"]}
        assert client.call("delete_observations", deletions=[gone])["success"] is True
        assert client.call("delete_relations", relations=missing)["success"] is True
        assert client.call("delete_entities", entityNames=["Ann", "Zoe"])["success"] is True
        assert client.call("read_graph") == {"entities": [entity("Bob", "sings")], "relations": []}
        assert client.call("create_entities", entities=[ann]) == {"entities": [ann]}


def test_a_graph_that_is_too_long_is_cut_between_its_parts(admin: Admin) -> None:
    with served(admin, compat="reference") as client:
        client.call("create_entities", entities=[entity(f"e{n}", "o" * 100) for n in range(100)])
        cut = client.call("read_graph", max_tokens=1_000)

    assert _cost(cut, CharsPerFour().count) <= 1_000
    assert 0 < len(cut["entities"]) == 100 - cut["left_out"]["items"]


def test_each_user_has_a_graph_and_it_goes_when_they_are_forgotten(admin: Admin) -> None:
    pf = admin.open("default")
    ann, bob = Graph(pf.store, "ann"), Graph(pf.store, "bob")
    with served(admin, compat="reference") as client:
        client.call("create_entities", entities=[entity("Ann"), entity("Tea")])
        client.call("create_relations", relations=[relation("Ann", "Tea")])
        assert (bob.entities(), len(ann.entities())) == ([], 2)
        pf.memory.forget(user_id="ann")
        assert client.call("read_graph") == {"entities": [], "relations": []}
        client.call("create_entities", entities=[entity("Ann"), entity("Tea")])
        client.call("create_relations", relations=[relation("Ann", "Tea")])
        assert len(client.call("read_graph")["relations"]) == 1
    assert pf.verify()


def test_calls_made_at_once_all_survive(tmp_path: Path) -> None:
    with (
        Admin(str(tmp_path / "store.db")) as admin,
        served(admin, compat="reference") as client,
    ):
        client.at_once(
            [("create_entities", {"entities": [entity(f"e{n}"), entity("all")]}) for n in range(20)]
        )
        added = [{"entityName": "all", "contents": [str(n)]} for n in range(20)]
        client.at_once([("add_observations", {"observations": [each]}) for each in added])
        client.at_once(
            [("create_relations", {"relations": [relation(f"e{n}", "all")]}) for n in range(20)]
        )
        graph = client.call("read_graph")

    assert {each["name"] for each in graph["entities"]} == {"all", *(f"e{n}" for n in range(20))}
    observed = next(each for each in graph["entities"] if each["name"] == "all")["observations"]
    assert sorted(observed, key=int) == [str(n) for n in range(20)]
    assert len(graph["relations"]) == 20


def test_calls_from_four_processes_at_once_all_survive(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    words = ("mcp", "--compat", "reference", "--url", url)

    def write(process: int) -> None:
        with connected(program(*words)) as client:
            client.at_once(
                [
                    ("create_entities", {"entities": [entity(f"p{process}-{n}"), entity("all")]})
                    for n in range(20)
                ]
            )
            added = [{"entityName": "all", "contents": [f"p{process}"]}]
            client.call("add_observations", observations=added)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    with pagefile.open(url) as pf:
        entities = {each.name: each for each in Graph(pf.store, None).entities()}
        assert len(entities) == 81
        assert sorted(entities["all"].observations) == ["p0", "p1", "p2", "p3"]
        assert pf.verify()


LINES = [
    {"type": "entity", **entity("Ann", "likes tea")},
    {"type": "entity", **entity("Bob")},
    {"type": "relation", **relation("Ann", "Bob")},
    {"type": "relation", **relation("Ann", "gone")},
]


def test_a_file_of_the_reference_server_comes_in_once_and_goes_out_the_same(
    tmp_path: Path, admin: Admin
) -> None:
    source, copy = tmp_path / "memory.jsonl", tmp_path / "copy.jsonl"
    source.write_text("".join(f"{json.dumps(line)}\n" for line in LINES) + "{broken\n\n[]\n")
    store = admin.open("default").store
    first = take_in(store, "ann", source)
    Graph(store, "ann").delete_entities(["Bob"])
    again = take_in(store, "ann", source)

    assert (first.entities, first.relations, first.skipped, first.repeated) == (2, 2, 2, False)
    assert (again.entities, again.relations, again.repeated) == (0, 0, True)
    assert [each.name for each in Graph(store, "ann").entities()] == ["Ann"]
    with source.open("a") as file:
        file.write(json.dumps({"type": "entity", **entity("Ann", "runs")}) + "\n")
    take_in(store, "bob", source)
    assert write_out(store, "bob", copy) == (2, 2)
    assert [json.loads(line) for line in copy.read_text().splitlines()] == LINES
    with pytest.raises(pagefile.Conflict):
        write_out(store, "bob", copy)
    with pytest.raises(pagefile.NotFound):
        take_in(store, "bob", tmp_path / "none.jsonl")


# Keys, hosts and origins


def identify(headers: Mapping[str, str]) -> Identity | None:
    keys = {
        "Bearer ann-key": Identity("one", "ann", name="k1"),
        "Bearer bob-key": Identity("two", "bob", name="k2"),
        "Bearer look-key": Identity("one", "ann", READ_ONLY, name="k3"),
    }
    return keys.get(headers.get("authorization", ""))


def post(client: Any, url: str, method: str, params: Any = None, **headers: str) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    accepted = {"accept": "application/json, text/event-stream"}
    return client.post(url, json=body, headers={**accepted, **headers})


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def test_a_key_says_who_calls_and_a_session_is_its_owners_alone(admin: Admin) -> None:
    import httpx

    def said(answer: Any) -> Any:
        line = next(each for each in answer.text.splitlines() if each.startswith("data: {"))
        return json.loads(line.removeprefix("data: "))["result"]

    def tool(key: str, session: str, name: str, **arguments: Any) -> Any:
        headers = {"authorization": f"Bearer {key}", "mcp-session-id": session}
        given = {"name": name, "arguments": arguments}
        return post(client, url, "tools/call", given, **headers)

    app = mcp_app(mcp_service(admin), authenticate=identify)
    with application(app) as url, httpx.Client(timeout=30) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "ann-key"}):
            refused = post(client, url, "initialize", HELLO, **headers)
            assert (refused.status_code, refused.json()["error"]) == (401, "forbidden")
        sessions = {}
        for key in ("ann-key", "bob-key"):
            begun = post(client, url, "initialize", HELLO, authorization=f"Bearer {key}")
            sessions[key] = begun.headers["mcp-session-id"]
        added = said(tool("ann-key", sessions["ann-key"], "add_memory", text="Ann's secret"))
        secret = added["structuredContent"]["id"]
        found = said(tool("bob-key", sessions["bob-key"], "get_memory", memory_id=secret))
        assert json.loads(found["content"][0]["text"])["code"] == "not_found"
        stolen = tool("bob-key", sessions["ann-key"], "get_memory", memory_id=secret)
        assert stolen.status_code == 404
        assert "Ann" not in stolen.text
        weaker = tool("look-key", sessions["ann-key"], "forget", everything=True)
        assert weaker.status_code == 404
        assert client.get(url.removesuffix("/mcp")).status_code == 401
        assert client.get(f"{url}/other").status_code == 404
    assert admin.open("one").memory.why(secret, user_id="ann").text == "Ann's secret"


def test_nobody_is_let_in_while_keys_cannot_be_checked(admin: Admin) -> None:
    import httpx

    def fail(headers: Mapping[str, str]) -> Identity | None:
        raise pagefile.Unavailable("the store does not answer: secret detail")

    with (
        application(mcp_app(mcp_service(admin), authenticate=fail)) as url,
        httpx.Client(timeout=30) as client,
    ):
        answer = post(client, url, "initialize", HELLO, authorization="Bearer ann-key")

    assert (answer.status_code, "secret" in answer.text) == (503, False)


def test_the_newest_protocol_asks_for_the_key_with_every_request(admin: Admin) -> None:
    app = mcp_app(mcp_service(admin), authenticate=identify)
    with application(app) as url:
        for key, tenant in (("ann-key", "one"), ("bob-key", "two")):
            with connected(url, headers={"authorization": f"Bearer {key}"}) as client:
                identity = client.call("add_memory", text="mine")["id"]
                user = key.partition("-")[0]
                assert client.client.protocol_version >= "2026"
                foreign = {"text": "x", "user_id": "eve"}
                assert client.code_of("add_memory", foreign) == "forbidden"
            assert admin.open(tenant).memory.why(identity, user_id=user).text == "mine"


def test_another_host_or_origin_is_refused(admin: Admin) -> None:
    import httpx

    app = mcp_app(mcp_service(admin), identity=Identity("default"))
    with application(app) as url, httpx.Client(timeout=30) as client:
        assert post(client, url, "initialize", HELLO).status_code == 200
        assert post(client, url, "initialize", HELLO, host="evil.example").status_code == 421
        assert post(client, url, "initialize", HELLO, host="127.0.0.1.evil").status_code == 421
        evil = post(client, url, "initialize", HELLO, origin="http://evil.example")
        assert evil.status_code == 403
        near = post(client, url, "initialize", HELLO, origin="http://localhost:3000")
        assert near.status_code == 200
        huge = client.post(url, content=b" " * (8 * 1024 * 1024 + 1))
        assert huge.status_code == 413


def test_it_is_a_route_of_another_application(admin: Admin) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    inner = mcp_app(mcp_service(admin), identity=Identity("default", "ann"))
    app = Starlette(routes=[Route("/mcp", inner)], lifespan=lambda _: inner.running())
    with application(app) as url, connected(url) as client:
        assert client.call("add_memory", text="x")["kind"] == "episode"
    below = mcp_app(mcp_service(admin), identity=Identity("default", "ann"))
    app = Starlette(routes=[Mount("/api", below)], lifespan=lambda _: below.running())
    with application(app) as url, connected(url.replace("/mcp", "/api/mcp")) as client:
        assert client.call("add_memory", text="x")["kind"] == "episode"


def test_an_application_needs_a_key_or_an_identity(admin: Admin) -> None:
    service = mcp_service(admin)
    with pytest.raises(pagefile.Invalid):
        mcp_app(service)
    with pytest.raises(pagefile.Invalid):
        mcp_app(service, identity=Identity("default"), authenticate=identify)
    with pytest.raises(pagefile.Invalid):
        mcp_service(admin, compat="other")
    with pytest.raises(pagefile.Invalid):
        mcp_service(admin, max_tokens=1)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["mcp", "--http", "--host", "0.0.0.0"], 10),
        (["mcp", "--counter", "none"], 3),
        (["mcp", "--max-tokens", "1"], 5),
        (["mcp", "--export", "x"], 5),
        (["mcp", "--compat", "reference", "--import", "x", "--export", "y"], 5),
        (["mcp", "--user", ""], 5),
        (["mcp", "--tenant", "a\nb"], 5),
    ],
)
def test_a_server_that_cannot_be_says_why(
    words: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pagefile.surfaces.cli import main

    assert main([*words, "--url", str(tmp_path / "store.db")]) == status
    assert ": " in capsys.readouterr().err


# What a person pastes into a client


def configurations() -> list[dict[str, Any]]:
    """Every server that the page configures, in whichever client's form."""
    found = []
    for block in re.findall(r"^```json\n(.*?)^```$", HOWTO, re.M | re.S):
        [servers] = json.loads(block).values()
        found += servers.values()
    for command in re.findall(r"^\$ claude mcp add (.+)$", HOWTO, re.M):
        options, _, program_words = command.partition(" -- ")
        if program_words:
            name, *words = shlex.split(program_words)
            found.append({"command": name, "args": words})
        else:
            found.append({"url": next(word for word in options.split() if "://" in word)})
    return found


def one_call_of_each(client: Served) -> None:
    change = {"op": "add", "content": "Ann likes tea", "rationale": "she said so"}
    added = client.call("add_memory", text="I live in Lisbon.")
    client.call("append_message", thread_id="t", text="hello")
    batch = client.call("propose_memory", changes=[change])["batch_id"]
    called = [
        ("search_memory", {"query": "Lisbon"}),
        ("get_memory", {"memory_id": added["id"]}),
        ("update_memory", {"memory_id": added["id"], "text": "I live in Oslo."}),
        ("get_context", {"query": "Where?", "thread_id": "t"}),
        ("get_thread", {"thread_id": "t"}),
        ("commit_memory", {"batch_id": batch, "reviewer": "carl"}),
        ("forget", {"memory_id": added["id"]}),
    ]
    for name, arguments in called:
        assert client.call_with(name, arguments)
    names = {"add_memory", "append_message", "propose_memory", *(name for name, _ in called)}
    assert names == {tool.name for tool in client.ask("list_tools").tools}


def test_the_pasted_configurations_start_a_server_that_answers(tmp_path: Path) -> None:
    started = [each for each in configurations() if "command" in each]
    addresses = {each["url"] for each in configurations() if "url" in each}

    assert len(started) == 6
    assert {each["command"] for each in started} == {"pagefile"}
    # The second is that of `pagefile serve`, which asks for a key.
    assert addresses == {f"http://127.0.0.1:{port}/mcp" for port in (8765, 8000)}
    seen = set()
    for each in started:
        (tmp_path / "memory.jsonl").write_text(json.dumps(LINES[0]) + "\n")
        mine = json.loads(json.dumps(each).replace("/home/you", str(tmp_path)))
        if json.dumps([mine["args"], mine.get("env")]) in seen:
            continue
        seen.add(json.dumps([mine["args"], mine.get("env")]))
        with connected(program(*mine["args"], env=mine.get("env"))) as client:
            if "reference" in mine["args"]:
                assert client.call("read_graph")["entities"] == [entity("Ann", "likes tea")]
            else:
                one_call_of_each(client)
                foreign = {"text": "x", "user_id": "eve"}
                assert client.code_of("add_memory", foreign) == "forbidden"
    assert len(seen) == 3


def test_an_interrupted_server_ends_at_once(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pagefile", "mcp", "--url", str(tmp_path / "store.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"] == {}
        process.send_signal(signal.SIGINT)

        assert process.wait(60) == -signal.SIGINT


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("mcp") / "store.db"
    words = ("--url", str(store), "--user", "ann")
    with listening(*words, env={"PAGEFILE_EMBEDDER": "none"}) as url:
        yield url


def test_a_server_on_a_port_answers_as_one_on_standard_input(address: str) -> None:
    with connected(address) as client:
        one_call_of_each(client)


def conformance() -> Path | None:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache, "pagefile", f"mcp-conformance-{CONFORMANCE}")
    suite = folder / "node_modules/.bin/conformance"
    return suite if os.access(suite, os.X_OK) else None


@pytest.mark.skipif(conformance() is None, reason="run .ci/fetch-conformance, which needs npm")
@pytest.mark.parametrize(
    "scenario",
    [
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
        "server-sse-multiple-streams",
    ],
)
def test_the_conformance_suite_passes(scenario: str, address: str, tmp_path: Path) -> None:
    words = [str(conformance()), "server", "--url", address, "--scenario", scenario]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"Passed: ([1-9]\d*)/\1, 0 failed", ran.stdout), ran.stdout


# The same rights as over HTTP

CALLS: dict[str, dict[str, Any]] = {
    "add_memory": {"text": "I live in Rome"},
    "search_memory": {"query": "Rome"},
    "get_memory": {"memory_id": "m"},
    "update_memory": {"memory_id": "m", "text": "x"},
    "forget": {"memory_id": "f"},
    ERASING: {"everything": True},
    "get_context": {"query": "Rome"},
    "append_message": {"thread_id": "t", "text": "x"},
    "get_thread": {"thread_id": "t"},
    "propose_memory": {"changes": [{"op": "add", "content": "x", "rationale": "y"}]},
    "commit_memory": {"batch_id": "b", "reviewer": "The CEO"},
}
BODIES: dict[str, dict[str, Any]] = {
    "search_memory": {"query": "Rome"},
    "append_message": {"payload": 1, "from_id": "a", "to_id": "b"},
    "commit_memory": {"reviewer": "The CEO"},
}


def test_every_call_needs_the_right_that_it_needs_over_http(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from pagefile.surfaces.access.keys import KeyStore
    from pagefile.surfaces.http.app import make_app
    from pagefile.surfaces.http.config import ServerConfig
    from pagefile.surfaces.http.gate import right_for

    url = str(tmp_path / "s.db")
    rights = (("read",), ("write",), ("admin",), ("read", "write"), ("write", "admin"))
    with Admin(url) as admin:
        keys = {held: KeyStore(admin).create("default", held).secret for held in rights}
        service = mcp_service(admin)
        offered = {tool.name for tool in (*TOOLS, *REFERENCE_TOOLS)}
        pf = admin.open("default")
        # What the requests are about, for those that look before they ask for a right.
        pf.runs.boot("o", run_id="r")
        change = {"_schema_version": "2.1", "scope": "global", "type": "fact", "source_refs": []}
        more = {"op": "add", "content": "x", "rationale": "y", "confidence": 0.5}
        batch = pf.items.propose([change | more]).batch_id
        assert set(NEEDS) == offered | {ERASING, PACKING}
        config = ServerConfig(url=url, durability="process", log_level="error")
        with TestClient(make_app(config), base_url="http://127.0.0.1") as client:
            for name, need in NEEDS.items():
                if not need.path:
                    continue
                path = need.path.replace("/b/", f"/{batch}/")
                least = right_for(need.method, path)
                assert need.right in (least, "admin"), name
                for held, secret in keys.items():
                    header = {"authorization": f"Bearer {secret}"}
                    body = BODIES.get(name, {}) if need.method == "POST" else None
                    answer = client.request(need.method, path, json=body, headers=header)
                    over_http = answer.status_code == 403
                    over_mcp = _is_forbidden(service, held, name)
                    # Over HTTP the least right is asked for besides what a route asks for.
                    expected = not {need.right, least} <= set(held)
                    assert (name, held, over_http) == (name, held, expected)
                    if need.right == least or least in held:
                        assert (name, held, over_mcp) == (name, held, expected)


def _is_forbidden(service: Any, held: tuple[str, ...], name: str) -> bool:
    who = Identity("default", rights=frozenset(held))
    try:
        if name == PACKING:
            resources.read(service.caller(who), "pagefile://packs/none")
        else:
            service.call(who, name.partition(":")[0], CALLS[name])
    except pagefile.Forbidden:
        return True
    except pagefile.PagefileError:
        pass
    return False


def test_a_key_that_may_write_erases_nothing_and_reviews_nothing(admin: Admin) -> None:
    with served(admin, Identity("default")) as writer, served(admin) as ann:
        ann.call("add_memory", text="I live in Rome")
        made = writer.call("propose_memory", changes=CALLS["propose_memory"]["changes"])
        given = {"batch_id": made["batch_id"], "reviewer": "The CEO"}
        everything = {"everything": True, "user_id": "ann"}

        assert writer.code_of("commit_memory", given) == "forbidden"
        assert writer.code_of("forget", everything) == "forbidden"
        assert writer.call("forget", **everything, dry_run=True)["forgotten"] == 1
        assert ann.call("search_memory", query="Rome")["memories"]
        assert "commit_memory" not in [tool.name for tool in writer.ask("list_tools").tools]
        fact = {"subject": "Ann", "predicate": "likes", "object": "tea"}
        known = writer.call("add_memory", fact=fact, user_id="ann")["id"]
        assert writer.call("forget", memory_id=known, user_id="ann")["forgotten"] == 1


def test_no_cursor_names_what_its_reader_may_not_see(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_MOST_LOOKED", 20)
    monkeypatch.setattr(resources, "_LOOKED_AT_ONCE", 10)
    pf = admin.open("default")
    for n in range(90):
        pf.context.append(f"bob-divorce-{n:02}", "x", "a", "b", user_id="bob")
    pf.context.append("carls", "x", "a", "b", user_id="carl")
    pf.runs.boot("o", run_id="zz", user_id="carl")
    caller = mcp_service(admin).caller(Identity("default", "carl"))
    found, cursor = resources.listed(caller, None)
    pages = 1
    while cursor is not None:
        assert b"bob" not in base64.urlsafe_b64decode(cursor)
        more, cursor = resources.listed(caller, cursor)
        found += more
        pages += 1

    assert [each.name for each in found] == ["carls", "zz"]
    assert pages > 3
    for odd in ("threads:bob", "", "x" * 9_000, "e30=", "WyJ0aHJlYWRzIiwiIiwtMV0="):
        with pytest.raises(pagefile.Invalid):
            resources.listed(caller, odd)


def test_callers_who_choose_the_same_key_do_not_meet(admin: Admin) -> None:
    service = mcp_service(admin)
    said = {"text": "x", "key": "1"}
    bound = [Identity("default", user) for user in ("ann", "bob")]
    for n, who in enumerate((*bound, Identity("default", name="k"))):
        for thread in (f"t{n}", f"u{n}"):
            for _ in range(2):
                service.call(who, "append_message", said | {"thread_id": thread})
            assert len(admin.open("default").context.get_thread(thread) or ()) == 1


def test_of_a_thread_with_others_a_user_is_shown_their_own_alone(admin: Admin) -> None:
    context = admin.open("default").context
    admin.open("default").runs.boot("o", run_id="anns", thread_id="shared", user_id="ann")
    for n in range(40):
        user = "ann" if n in (0, 3) else "bob"
        context.append("shared", f"{user} {n}", "user", "x", user_id=user)
    with served(admin) as ann:
        read = ann.call("get_thread", thread_id="shared", limit=5)
        resource = ann.ask("read_resource", "pagefile://threads/shared").contents[0].text

        assert [each["payload"] for each in read["messages"]] == ["ann 0", "ann 3"]
        assert "bob" not in resource
        assert ann.code_of("get_context", {"thread_id": "shared"}) == "forbidden"
        told = ann.call("get_context", run_id="anns")["text"]
        assert ("ann 3" in told, "bob" in told) == (True, False)
        with pytest.raises(Exception, match="others speak"):
            ann.ask("read_resource", "pagefile://packs/anns")


@pytest.mark.parametrize("user", ["ann", None])
def test_a_graph_is_forgotten_with_everything_also_when_it_is_nobodys(
    admin: Admin, user: str | None, tmp_path: Path
) -> None:
    store = admin.open("default").store
    file = tmp_path / "memory.jsonl"
    file.write_text('{"type":"entity","name":"Ann","entityType":"person","observations":["x"]}\n')
    take_in(store, user, file)
    Graph(store, user).create_relations([Relation("Ann", "Ann", "knows")])
    with served(admin, Identity("default", user, EVERY)) as client:
        would = client.call("forget", everything=True, dry_run=True)
        gone = client.call("forget", everything=True)

    assert would["counts"] == gone["counts"] == {"other": 3}
    assert Graph(store, user).entities() == []
    assert Graph(store, user).relations() == []


@pytest.mark.parametrize("move", [take_in, write_out], ids=["import", "export"])
@pytest.mark.parametrize("path", ["{}/none/x", "{}", "a\0b", "~nobody of that name/x", "x" * 300])
def test_a_file_of_a_graph_that_the_system_refuses_is_refused_in_our_words(
    tmp_path: Path, path: str, move: Callable[..., object]
) -> None:
    with pagefile.open("memory:") as pf, pytest.raises(PagefileError):
        move(pf.store, "ann", path.format(tmp_path))


def test_all_relations_of_an_entity_are_shown_and_too_many_are_not_deleted_at_once() -> None:
    many = 10_500
    with pagefile.open("memory:") as pf:
        graph = Graph(pf.store, "ann")
        graph.create_entities([Entity("hub", "place", [])])
        for start in range(0, many, 500):
            links = [Relation("hub", f"end {n}", "leads to") for n in range(start, start + 500)]
            graph.create_relations(links, between_known=False)

        assert len(graph.around(["hub"])) == many
        with pytest.raises(LimitExceeded, match="delete relations first"):
            graph.delete_entities(["hub"])
        graph.delete_relations(graph.relations()[:600])
        assert graph.delete_entities(["hub"]) == (["hub"], [])
        assert graph.relations() == []

"""The remote handle, against a real server in a process of its own, and networks that fail."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

import pagefile
import pagefile.aio
from pagefile.client import Remote
from pagefile.client.calls import offers
from pagefile.client.follow import EventReader, Following
from pagefile.client.handle import RemoteHandle
from pagefile.client.memory import (
    RemoteAssembly,
    RemoteFacts,
    RemoteGraph,
    RemoteItems,
    RemoteMemory,
    RemoteProposals,
    RemoteStore,
)
from pagefile.client.request import Lost, Reply, Step, Wait, asked, course
from pagefile.client.runs import (
    RemoteEpisodes,
    RemoteKnowledge,
    RemoteLedger,
    RemoteRun,
    RemoteRuns,
)
from pagefile.client.threads import RemoteContext, RemoteRegistry, RemoteThread
from pagefile.context.appender import NewSlot
from pagefile.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    Unavailable,
    Unsupported,
)
from pagefile.handle import Pagefile
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.fact import Fact
from tests import ROOT
from tests.servers.proxy import Proxy
from tests.surfaces.remote_ground import Running, running_in

pytestmark = pytest.mark.xdist_group("client")

PATCH = {"_schema_version": "2.1", "expected_seq": 0, "set": {"next_action": "x"}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from running_in(tmp_path_factory.mktemp("client"))


@pytest.fixture
def pf(running: Running) -> Iterator[Pagefile]:
    with running.open() as pf:
        yield pf


@pytest.fixture
def proxy(running: Running) -> Iterator[Proxy]:
    proxy = Proxy(running.server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def through(running: Running, proxy: Proxy) -> Iterator[Pagefile]:
    with running.open(base=f"http://127.0.0.1:{proxy.port}") as pf:
        yield pf


# What is offered

ROOMS = (
    RemoteHandle,
    RemoteContext,
    RemoteThread,
    RemoteRegistry,
    RemoteMemory,
    RemoteFacts,
    RemoteGraph,
    RemoteProposals,
    RemoteItems,
    RemoteRuns,
    RemoteRun,
    RemoteLedger,
    RemoteEpisodes,
    RemoteKnowledge,
    RemoteAssembly,
    RemoteStore,
)
REFERENCE = ROOT / "docs" / "reference" / "client.md"


def test_the_reference_names_exactly_what_is_not_offered() -> None:
    missing = {
        f"{room.place or 'pf'}.{name}"
        for room in ROOMS
        for name, offered in offers(room).items()
        if offered is None
    }
    section = REFERENCE.read_text().partition("## Not offered")[2].partition("\n## ")[0]

    assert set(re.findall(r"`([a-z.]+\.\w+)`", section)) == missing


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_what_is_offered_has_the_signature_of_the_library(room: Any) -> None:
    for name, offered in offers(room).items():
        known = getattr(room.library, name, None)
        if inspect.isfunction(offered) and inspect.isfunction(known):
            ours, theirs = (inspect.signature(each).parameters for each in (offered, known))
            assert [(p.name, p.kind, p.default) for p in ours.values()] == [
                (p.name, p.kind, p.default) for p in theirs.values()
            ], name


def test_what_is_not_offered_says_so_by_its_name(pf: Pagefile) -> None:
    with pytest.raises(Unsupported, match=r"store\.commit is not offered over HTTP"):
        pf.store.commit(cast(Any, None))
    with pytest.raises(Unsupported, match=r"context\.append\(owner=…\)"):
        pf.context.append("t", 1, "a", "b", owner="ann")
    with pytest.raises(Unsupported, match="payload"):
        pf.context.append("t", {1, 2}, "a", "b")


def test_a_handle_loads_no_engine_and_no_server(running: Running) -> None:
    code = (
        "import sys, pagefile\n"
        f"pf = pagefile.open({running.base!r}, key={running.key!r})\n"
        "pf.context.append('t-light', 1, 'a', 'b')\n"
        "print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {"apsw", "sqlite3", "starlette", "opentelemetry"} & set(ran.stdout.split()) == set()
    assert "pagefile.surfaces" not in ran.stdout


# Opening


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://me:secret@host"},
        {"url": "http://[::1"},
        {"url": "http://host:99999"},
        {"key": "two words"},
        {"key": "line\nbreak"},
        {"user": ""},
        {"user": 5},
        {"user": "\ud800"},
        {"durability": "power"},
        {"remote": Remote(timeout=0)},
        {"remote": Remote(timeout=float("nan"))},
        {"remote": Remote(retries=-1)},
        {"remote": Remote(max_answer_bytes=0)},
        {"remote": 5},
    ],
)
def test_a_handle_that_cannot_work_is_not_made(options: dict[str, Any]) -> None:
    given = {"url": "http://127.0.0.1:8000", "key": "k", **options}
    with pytest.raises(Invalid) as refusal:
        pagefile.open(given.pop("url"), **given)
    assert "secret" not in str(refusal.value)


def test_a_key_is_for_a_server_alone(tmp_path: Path) -> None:
    with pytest.raises(Invalid):
        pagefile.open(tmp_path / "store.db", key="pf_x")


def test_the_key_comes_from_the_environment_and_says_the_tenant(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEFILE_API_KEY", running.key)
    with pagefile.open(running.base + "/") as pf:
        assert pf.tenant == "default"
    with pytest.raises(Forbidden, match="belongs to tenant 'default'"):
        pagefile.open(running.base, tenant="another")
    with pytest.raises(Forbidden):
        pagefile.open(running.base, key="pf_000000000000_x")


def test_a_server_that_is_not_there_is_said_when_it_is_opened() -> None:
    with pytest.raises(Unavailable) as lost:
        pagefile.open("http://127.0.0.1:9", key="k", remote=Remote(retries=1))
    assert lost.value.outcome == "nothing"


# Errors


def test_a_conflict_tells_both_versions(pf: Pagefile) -> None:
    pf.context.append("t-conflict", 1, "a", "b")

    with pytest.raises(Conflict) as refusal:
        pf.context.append("t-conflict", 2, "a", "b", expected_len=0)
    assert (refusal.value.expected, refusal.value.current) == (0, 1)
    assert refusal.value.target
    assert refusal.value.status == 409  # type: ignore[attr-defined]
    assert len(pf.context.get_thread_slots("t-conflict")) == 1


def test_refusals_are_the_librarys_own_classes(pf: Pagefile, running: Running) -> None:
    with pytest.raises(NotFound):
        pf.runs.open("absent")
    with pytest.raises(Invalid) as invalid:
        pf.memory.search("x", user_id="ann", limit=-1)
    assert invalid.value.field == "limit"
    with pytest.raises(Forbidden), running.open(key=running.key_for(rights=("read",))) as reading:
        reading.context.append("t", 1, "a", "b")
    with pytest.raises(LimitExceeded), running.open(remote=Remote(retries=0)) as large:
        large.context.append("t-large", "x" * (17 << 20), "a", "b")
    with pytest.raises(NotFound):
        pf.memory.proposals.commit("absent", reviewer="me", user_id="ann")
    with pytest.raises(NotFound):
        pf.memory.proposals.reject("absent", reviewer="me", user_id="ann")


def test_a_patch_that_is_refused_is_a_result(pf: Pagefile) -> None:
    run = pf.runs.boot("patch me", run_id="r-patch")

    assert run.apply_patch(PATCH).ok
    for patch, code in ((PATCH, "conflict"), ({"set": {}}, "invalid")):
        result = run.apply_patch(patch)
        assert (bool(result), result.code, result.new_ws) == (False, code, None)


def test_a_key_in_use_is_waited_for_by_its_code_and_not_by_its_words() -> None:
    def refused(code: str, detail: str) -> Reply:
        body = {"status": 409, "code": code, "detail": detail}
        return Reply(409, {}, json.dumps(body).encode())

    def after_a_loss(reply: Reply) -> Step:
        steps = course(asked("POST", "/v1/runs", body={}), 3)
        next(steps)
        steps.send(Lost(TimeoutError(), was_sent=True))
        next(steps)
        return steps.send(reply)

    assert isinstance(after_a_loss(refused("under_way", "in other words")), Wait)
    with pytest.raises(Conflict):
        after_a_loss(refused("conflict", "a run that is under way has this id"))


@pytest.mark.parametrize("name", ["", "a/b", "..", "\ud800"])
def test_what_cannot_stand_in_a_path_is_refused_before_it_is_sent(pf: Pagefile, name: str) -> None:
    with pytest.raises(Invalid):
        pf.context.append(name, 1, "a", "b")


# Values


@pytest.mark.parametrize(
    "payload", [None, True, 7, 1.5, "text", [1, [2]], {"a": {"b": None}}, {"$x": 1}, {"ü": "🚆"}]
)
def test_a_payload_comes_back_as_it_was_given(pf: Pagefile, payload: Any) -> None:
    made = pf.context.append("t-payload", payload, "a", "b", "me", True, "how", "do")
    read = pf.context.get_or_create_thread("t-payload")[-1]

    assert (made.payload, read.payload) == (payload, payload)
    assert made == read
    assert (read.metadata.own_name, read.metadata.is_self_call) == ("me", True)
    assert (read.metadata.usage_instructions, read.metadata.todo_nudge) == ("how", "do")


def test_a_thread_is_read_as_in_process(pf: Pagefile) -> None:
    assert pf.context.get_thread("t-none") is None
    slots = [NewSlot(n, "ann" if n % 2 else "bob", "agent") for n in range(7)]
    pf.context.append_many("t-read", slots)
    thread = pf.context.get_thread("t-read")
    assert thread is not None

    assert [slot.payload for slot in thread] == [*range(7)]
    assert [slot.payload for slot in thread[1:6:2]] == [1, 3, 5]
    assert [slot.payload for slot in thread[::-3]] == [6, 3, 0]
    assert [slot.payload for slot in reversed(thread)] == [*range(6, -1, -1)]
    assert (len(thread), thread[-2].payload, thread.at(0).payload) == (7, 5, 0)
    assert [slot.payload for slot in thread.tail(2)] == [5, 6]
    assert [slot.payload for slot in thread.get_from("ann")] == [1, 3, 5]
    assert [slot.payload for slot in thread.get_to("agent")] == [*range(7)]
    assert [slot.payload for slot in thread.get_by_type(int)] == [*range(7)]
    with pytest.raises(IndexError):
        thread[7]


def test_more_than_a_page_is_fetched_page_after_page(pf: Pagefile) -> None:
    for part in range(3):
        slots = [NewSlot(part * 500 + n, "a", "b") for n in range(500)]
        pf.context.append_many("t-long", slots)
    pf.memory.facts.append_many(
        [Fact(subject=f"s{n}", predicate="is", object="x", user_id="pages") for n in range(1_100)]
    )

    thread = pf.context.get_or_create_thread("t-long")
    assert [slot.payload for slot in thread] == [*range(1_500)]
    assert [slot.payload for slot in thread.tail(1_200)] == [*range(300, 1_500)]
    assert len(pf.memory.facts.query(user_id="pages", limit=1_050)) == 1_050
    assert len(pf.store.read("thread/t-long")) == 1_500


def test_memory_gives_the_librarys_values(pf: Pagefile) -> None:
    given = Episode(session_id="s", input="I live in Lisbon.", user_id="values")
    assert pf.memory.remember(given) == given.id
    fact = Fact(subject="ann", predicate="lives_in", object="Oslo", user_id="values")
    assert pf.memory.facts.append(fact) == fact.id

    assert pf.memory.episode(given.id, user_id="values") == given
    assert pf.memory.recall("Lisbon", user_id="values") == [given]
    [match] = pf.memory.search("Lisbon", user_id="values", kinds=["episode"])
    assert match.value == given
    [known] = pf.memory.facts.query(user_id="values", object_="Oslo")
    assert (known.id, known.status, known.asserted) == (fact.id, "active", (fact.id,))
    block = pf.memory.update_block("persona", "kind", user_id="values", expected_version=0)
    with pytest.raises(Conflict):
        pf.memory.delete_block("persona", user_id="values", expected_version=5)
    pf.memory.delete_block("persona", user_id="values", expected_version=block.version)
    assert pf.memory.working(user_id="values") == []


def test_an_export_comes_in_again_and_what_was_forgotten_is_gone(
    pf: Pagefile, running: Running, tmp_path: Path
) -> None:
    pf.memory.remember(Episode(session_id="s", input="a secret", user_id="leaver"))
    count = pf.memory.export(user_id="leaver").write(tmp_path / "leaver.jsonl")
    assert count > 0

    gone = pf.memory.forget(user_id="leaver")
    assert (gone.dry_run, gone.counts["episodes"]) == (False, 1)
    assert pf.memory.recall("secret", user_id="leaver") == []
    other = running.key_for("other", rights=("read", "write", "admin"))
    with running.open(key=other) as elsewhere:
        assert elsewhere.memory.import_(tmp_path / "leaver.jsonl").records == count
        [found] = elsewhere.memory.recall("secret", user_id="leaver")
        assert found.input == "a secret"


def test_a_run_moves_in_a_pack(pf: Pagefile, tmp_path: Path) -> None:
    run = pf.runs.boot("pack me", run_id="r-pack")
    run.apply_patch(PATCH)
    path = run.create_resume_pack(tmp_path)

    assert [*tmp_path.iterdir()] == [path]
    assert cast(Any, pf).server.list_packs().items == []
    assert pf.runs.verify_pack(path).run_id == "r-pack"
    again = pf.runs.restore_from_pack(path, "r-unpacked")
    assert (again.load()["next_action"], bool(again.rebuild())) == ("x", True)
    with pytest.raises((Invalid, Corrupt)):
        pf.runs.import_jsonl(path)


def test_a_prompt_and_its_receipt_are_the_librarys(pf: Pagefile) -> None:
    for n in range(50):
        pf.context.append("t-prompt", f"message {n} " + "word " * 20, "user", "agent")
    run = pf.runs.boot("Plan a trip", run_id="r-prompt", thread_id="t-prompt")
    for source in ("t-prompt", run, pf.context.get_or_create_thread("t-prompt")):
        prompt = pf.assemble(source, budget=400)
        assert 0 < prompt.receipt.tokens <= 400
        assert "message 49" in prompt.text()
        assert pf.assembly.verify_receipt(prompt.receipt)
    assert pf.assembly.receipt(prompt.receipt.receipt_id) == prompt.receipt
    with pytest.raises(LimitExceeded):
        pf.assemble("t-prompt", budget=1)


def test_what_a_server_alone_has_is_there_by_its_name(pf: Pagefile) -> None:
    server = cast(Any, pf).server
    pf.context.append("t-served", 1, "a", "b")

    assert server.whoami().tenant == "default"
    assert "t-served" in server.list_threads(limit=1_000).items
    with pytest.raises(AttributeError):
        server.absent  # noqa: B018


# Conflicts


def test_updates_of_many_writers_are_all_there(pf: Pagefile, running: Running) -> None:
    pf.runs.boot("count", run_id="r-race")

    def add(name: str) -> None:
        with running.open() as own:
            run = own.runs.open("r-race")
            for n in range(8):
                done = run.update(
                    lambda ws: {"constraints": [*ws["constraints"], f"{name}{n}"]}  # noqa: B023
                )
                assert done

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    wanted = sorted(f"{name}{n}" for name in "abc" for n in range(8))
    assert sorted(pf.runs.open("r-race").load()["constraints"]) == wanted


def test_an_update_gives_up_when_somebody_is_always_faster(pf: Pagefile) -> None:
    run = pf.runs.boot("count", run_id="r-always")
    calls: list[int] = []

    def change(ws: dict[str, Any]) -> dict[str, Any]:
        calls.append(ws["_update_seq"])
        assert run.apply_patch({**PATCH, "expected_seq": ws["_update_seq"]})
        return {"next_action": "mine"}

    assert run.update(change, attempts=3).code == "conflict"
    assert calls == [0, 1, 2]


# A network that fails


WRITES: dict[str, Callable[[Pagefile, str], object]] = {
    "slot": lambda c, mark: c.context.append(f"t-{mark}", mark, "a", "b"),
    "slots": lambda c, mark: c.context.append_many(f"t-{mark}", [NewSlot(mark, "a", "b")]),
    "episode": lambda c, mark: c.memory.remember(
        Episode(session_id=f"s-{mark}", input=mark, user_id="cut")
    ),
    "run": lambda c, mark: c.runs.boot(mark, thread_id=f"t-{mark}"),
    "append": lambda c, mark: c.memory.append_block(f"b-{mark}", mark, user_id="cut"),
}
COUNTS: dict[str, Callable[[Pagefile, str], int]] = {
    "slot": lambda c, mark: len(c.context.get_thread_slots(f"t-{mark}")),
    "slots": lambda c, mark: len(c.context.get_thread_slots(f"t-{mark}")),
    "episode": lambda c, mark: len(c.memory.session_messages(f"s-{mark}", user_id="cut")),
    "run": lambda c, mark: sum(
        c.runs.open(r).load()["objective"] == mark for r in c.runs.list(limit=1_000)
    ),
    "append": lambda c, mark: c.memory.block(f"b-{mark}", user_id="cut").version,
}


@pytest.mark.parametrize("where", ["request", "answer", "half"])
@pytest.mark.parametrize("what", WRITES)
def test_a_write_whose_connection_is_cut_is_stored_once(
    pf: Pagefile, through: Pagefile, proxy: Proxy, what: str, where: Any
) -> None:
    mark = f"mark-{what}-{where}"
    proxy.cut_at(mark.encode(), where)
    WRITES[what](through, mark)

    assert proxy.cuts == 1
    assert COUNTS[what](pf, mark) == 1


def test_an_awaited_write_whose_answer_is_cut_is_stored_once(
    pf: Pagefile, running: Running, proxy: Proxy
) -> None:
    async def write() -> int:
        where = f"http://127.0.0.1:{proxy.port}"
        async with pagefile.aio.open(where, key=running.key) as awaited:
            proxy.cut_at(b"mark-awaited", "half")
            return (await awaited.context.append("t-cut-awaited", "mark-awaited", "a", "b")).index

    assert asyncio.run(write()) == 0
    assert (proxy.cuts, len(pf.context.get_thread_slots("t-cut-awaited"))) == (1, 1)


def test_a_write_that_may_have_happened_says_so_and_can_be_asked_again(
    pf: Pagefile, running: Running, proxy: Proxy
) -> None:
    where = f"http://127.0.0.1:{proxy.port}"
    with running.open(base=where, remote=Remote(retries=1)) as through:
        proxy.cut_at(b"mark-unknown", "answer", then_refuse=True)
        with pytest.raises(Unavailable) as lost:
            through.context.append("t-unknown", "mark-unknown", "a", "b")

    assert lost.value.outcome == "unknown"
    again = pf.context.append("t-unknown", "mark-unknown", "a", "b", key=lost.value.key)
    assert (again.index, len(pf.context.get_thread_slots("t-unknown"))) == (0, 1)


def test_connections_are_used_again(through: Pagefile, proxy: Proxy) -> None:
    for n in range(20):
        through.context.append("t-reuse", n, "a", "b")

    assert proxy.connections == 1


def test_a_stream_that_is_cut_goes_on_where_it_stood(
    pf: Pagefile, through: Pagefile, proxy: Proxy
) -> None:
    for n in range(3):
        pf.context.append("t-stream", n, "a", "b")
    seen: list[int] = []
    for slot in through.context.follow("t-stream", -1, timeout=20):
        seen.append(slot.payload)
        if len(seen) == 3:
            proxy.cut_now()
            pf.context.append_many("t-stream", [NewSlot(n, "a", "b") for n in (3, 4)])
        if len(seen) == 5:
            break

    assert (seen, proxy.cuts) == ([0, 1, 2, 3, 4], 1)


def test_a_stream_begins_behind_what_there_was_when_it_was_asked_for(pf: Pagefile) -> None:
    pf.context.append("t-from", 0, "a", "b")
    with pf.context.follow("t-from", timeout=20) as coming:
        pf.context.append("t-from", 1, "a", "b")
        assert next(coming).payload == 1
        threading.Timer(0.3, coming.close).start()
        assert list(coming) == []


def test_a_ledger_is_followed_as_a_thread_is(pf: Pagefile) -> None:
    run = pf.runs.boot("follow me", run_id="r-follow")
    run.apply_patch(PATCH)
    found = [event["sequence_id"] for event in cast(Any, run.ledger).follow(0, timeout=0.2)]

    assert found == [event["sequence_id"] for event in run.ledger]


def test_the_end_of_a_stream_is_no_end_where_the_server_only_stops() -> None:
    reader = EventReader()
    slot, stopping, end = (
        *reader.feed(b"event: slot\nid: 4\ndata: 1\n\n"),
        *reader.feed(b'event: end\ndata: {"stopping":true}\n\n'),
        *reader.feed(b"event: end\ndata: {}\n\n"),
    )
    following = Following(asked("GET", "/v1/threads/t/follow", is_safe=True), None, retries=2)
    shown = [following.seen(slot), following.seen(stopping)]
    following.ended()

    assert shown == [True, False]
    assert (following.is_over, following.pause > 0) == (False, True)
    assert following.begin().query["after"] == "4"
    assert (following.seen(end), following.is_over) == (False, True)


def test_an_awaited_stream_shows_what_is_appended_meanwhile(running: Running) -> None:
    async def follow() -> list[int]:
        seen: list[int] = []
        async with pagefile.aio.open(running.base, key=running.key) as pf:
            await pf.context.append("t-live", 0, "a", "b")
            async for slot in pf.context.follow("t-live", -1, timeout=20):
                seen.append(slot.payload)
                if len(seen) == 4:
                    break
                await pf.context.append("t-live", len(seen), "a", "b")
        return seen

    assert asyncio.run(follow()) == [0, 1, 2, 3]


def test_the_awaited_handle_has_the_same_calls(running: Running, tmp_path: Path) -> None:
    async def walk() -> None:
        async with pagefile.aio.open(running.base, key=running.key, user="awaited") as pf:
            await pf.context.append("t-awaited", {"n": 1}, "a", "b")
            thread = await pf.context.get_or_create_thread("t-awaited")
            assert (await thread.length(), (await thread.at(-1)).payload) == (1, {"n": 1})
            assert [slot.payload async for slot in thread] == [{"n": 1}]
            await pf.memory.remember(Episode(session_id="s", input="I live in Lisbon."))
            [found] = await pf.memory.recall("Lisbon")
            assert found.user_id == "awaited"
            await pf.memory.facts.append(Fact(subject="a", predicate="is", object="b"))
            assert len(await pf.memory.facts.query()) == 1
            run = await pf.runs.boot("await me", run_id="r-awaited")
            assert await run.apply_patch(PATCH)
            assert [event["sequence_id"] async for event in run.ledger] == [1, 2]
            assert (await run.create_resume_pack(tmp_path)).exists()
            exported = await pf.memory.export()
            assert len([line async for line in exported]) >= 3
            assert await pf.registry.root_uuid() is None
            with pytest.raises(NotFound):
                await pf.runs.open("absent")
            with pytest.raises(Unsupported):
                await pf.store.commit(cast(Any, None))

    asyncio.run(walk())


def test_a_download_that_is_cut_leaves_no_file_behind(
    pf: Pagefile, running: Running, proxy: Proxy, tmp_path: Path
) -> None:
    pf.runs.boot("download me", run_id="r-cut")
    where = f"http://127.0.0.1:{proxy.port}"
    with running.open(base=where, remote=Remote(retries=0)) as through:
        run = through.runs.open("r-cut")
        proxy.cut_at(b"GET /v1/packs/", "request", then_refuse=True)
        with pytest.raises(Unavailable):
            run.create_resume_pack(tmp_path)
    assert list(tmp_path.iterdir()) == []

    small = Remote(max_download_bytes=100)
    with pytest.raises(LimitExceeded), running.open(remote=small) as little:
        little.runs.open("r-cut").create_resume_pack(tmp_path)
    assert list(tmp_path.iterdir()) == []


# A server that is busy: its answers are scripted, where a real one would take its time


ME = (200, {"tenant": "default", "user_id": None, "name": "me", "rights": ["read"]})
#: An answer to `remember`.
DONE = (201, {"id": "ep_1"})
EPISODE = Episode(session_id="s", input="x", id="ep_1")


def scripted(
    answers: list[tuple[int, dict[str, Any]]], **options: Any
) -> tuple[Pagefile, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/whoami":
            return httpx.Response(ME[0], json=ME[1])
        seen.append(request)
        status, body = answers[len(seen) - 1]
        return httpx.Response(status, json=body, headers={"retry-after": "0"})

    remote = Remote(transport=httpx.MockTransport(answer), **options)
    return pagefile.open("http://server", key="k", remote=remote), seen


def problem(status: int, code: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    return status, {"status": status, "code": code, "detail": "a fact: a step", **fields}


@pytest.mark.parametrize(
    "busy",
    [
        problem(429, "too_many_requests"),
        problem(503, "unavailable", outcome="nothing"),
    ],
)
def test_a_busy_server_is_asked_again_with_the_same_key(busy: tuple[int, dict[str, Any]]) -> None:
    pf, seen = scripted([busy, busy, DONE])
    with pf:
        assert pf.memory.remember(EPISODE) == "ep_1"

    keys = {request.headers["idempotency-key"] for request in seen}
    assert (len(seen), len(keys)) == (3, 1)
    assert len({request.content for request in seen}) == 1


def test_what_may_have_been_done_is_not_done_again() -> None:
    pf, seen = scripted([problem(503, "unavailable", outcome="unknown"), DONE])
    with pf, pytest.raises(Unavailable) as lost:
        pf.memory.remember(EPISODE)
    assert (len(seen), lost.value.outcome) == (1, "unknown")


def test_a_slot_is_asked_again_even_then_for_the_store_knows_its_key() -> None:
    stored = {"thread_id": "t", "index": 0, "from_id": "a", "to_id": "b", "payload_type": "int"}
    stored |= {"payload": 1, "timestamp": "2026-01-31T09:30:00+00:00", "own_name": None}
    stored |= {"usage_instructions": "", "todo_nudge": "", "user_id": None, "position": 1}
    stored |= {"is_self_call": False, "erased": False}
    pf, seen = scripted([problem(503, "unavailable", outcome="unknown"), (201, stored)])
    with pf:
        assert pf.context.append("t", 1, "a", "b").index == 0
    assert len(seen) == 2


def test_a_request_under_way_for_somebody_else_is_not_waited_for() -> None:
    """Nothing of ours was lost: whoever uses this key is another."""
    pf, seen = scripted([problem(409, "under_way"), DONE])
    with pf, pytest.raises(Conflict):
        pf.memory.remember(EPISODE)

    assert len(seen) == 1


def test_a_write_without_a_key_whose_answer_is_lost_is_not_sent_again() -> None:
    ask = asked("POST", "/v1/runs", body={})
    bare = {name: text for name, text in ask.headers.items() if name != "idempotency-key"}
    steps = course(msgspec.structs.replace(ask, headers=bare), 3)
    next(steps)
    with pytest.raises(Unavailable) as lost:
        steps.send(Lost(TimeoutError(), was_sent=True))

    assert (lost.value.outcome, lost.value.key) == ("unknown", "")


@pytest.mark.parametrize(("told", "most"), [("86400", 60.0), ("inf", 1.0), ("-5", 1.0), ("x", 1.0)])
def test_no_server_makes_a_client_wait_for_long(told: str, most: float) -> None:
    steps = course(asked("GET", "/v1/runs", is_safe=True), 3)
    next(steps)
    body = json.dumps(problem(429, "too_many_requests")[1]).encode()
    step = steps.send(Reply(429, {"retry-after": told}, body))

    assert isinstance(step, Wait)
    assert step.seconds <= most


def test_a_server_that_says_when_to_come_again_is_given_that_time() -> None:
    steps = course(asked("GET", "/v1/runs", is_safe=True), 3)
    next(steps)
    body = json.dumps(problem(429, "too_many_requests")[1]).encode()
    step = steps.send(Reply(429, {"retry-after": "7"}, body))

    assert isinstance(step, Wait)
    assert step.seconds >= 7


def test_a_write_that_may_have_arrived_once_is_unknown_whatever_came_after() -> None:
    """The first attempt was sent and lost; the last did not even leave."""
    steps = course(asked("POST", "/v1/runs", body={}), 1)
    next(steps)
    steps.send(Lost(TimeoutError(), was_sent=True))
    next(steps)
    with pytest.raises(Unavailable) as lost:
        steps.send(Lost(ConnectionRefusedError(), was_sent=False))

    assert lost.value.outcome == "unknown"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_takes_the_key_along(status: int) -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.host)
        return httpx.Response(status, headers={"location": "http://elsewhere/v1/whoami"})

    remote = Remote(transport=httpx.MockTransport(answer), retries=0)
    with pytest.raises(PagefileError):
        pagefile.open("http://server", key="k", remote=remote)

    assert seen == ["server"]


def test_an_event_that_was_shown_before_a_cut_is_not_shown_again() -> None:
    reader = EventReader()
    (slot,) = reader.feed(b"event: slot\nid: 4\ndata: 1\n\n")
    following = Following(asked("GET", "/v1/threads/t/follow", is_safe=True), None, retries=2)

    assert [following.seen(slot), following.seen(slot)] == [True, False]


def test_a_refusal_is_not_asked_again() -> None:
    for status, code, kind in (
        (409, "conflict", Conflict),
        (422, "invalid", Invalid),
        (401, "unauthenticated", Forbidden),
        (500, "corrupt", Corrupt),
        (501, "unsupported", Unsupported),
        (500, "a word of tomorrow", Unavailable),
        (418, "a word of tomorrow", PagefileError),
    ):
        pf, seen = scripted([problem(status, code), DONE])
        with pf, pytest.raises(kind) as refusal:
            pf.memory.remember(EPISODE)
        assert (len(seen), type(refusal.value)) == (1, kind)
        assert (refusal.value.fact, refusal.value.next_step) == ("a fact", "a step")


def test_an_answer_of_another_shape_or_size_is_refused() -> None:
    pf, _ = scripted([(200, {"unexpected": True})])
    with pf, pytest.raises(Unsupported):
        pf.memory.remember(EPISODE)

    pf, _ = scripted([(201, {"id": "x" * 2_000})], max_answer_bytes=1_000)
    with pf, pytest.raises(LimitExceeded):
        pf.memory.remember(EPISODE)


def test_a_proxy_that_answers_in_its_own_words_is_no_server() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(502, text="<html>bad gateway"))
    with pytest.raises(Unavailable) as lost:
        pagefile.open("http://server", key="k", remote=Remote(transport=transport, retries=0))
    assert "502" in str(lost.value)


# Whose


def test_calls_that_name_no_user_are_for_the_handles_own(running: Running, pf: Pagefile) -> None:
    with running.open(user="own") as own:
        own.memory.remember(Episode(session_id="s", input="I live in Oslo."))
        own.memory.remember_many([Episode(session_id="s", input="Oslo is cold.")])
        own.memory.facts.append(Fact(subject="a", predicate="is", object="b"))

        assert len(own.memory.search("Oslo")) == 2
        assert own.context.append("t-own", 1, "a", "b").metadata.user_id == "own"
        assert [fact.user_id for fact in own.memory.facts.query()] == ["own"]
    assert len(pf.memory.search("Oslo", user_id="own")) == 2
    assert pf.memory.search("Oslo", user_id="somebody") == []


def test_the_key_is_shown_nowhere(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with running.open() as pf:
        with pytest.raises(NotFound) as refusal:
            pf.runs.open("absent")
        address = cast(Any, pf)._link.address
        shown = f"{pf!r}{address!r}{vars(refusal.value)}{caplog.text}"

    assert caplog.text
    assert running.key not in shown


def test_a_reader_gets_a_prompt_and_records_none(pf: Pagefile, running: Running) -> None:
    pf.context.append("t-reader", "hello", "user", "agent")
    with running.open(key=running.key_for(rights=("read",))) as reader:
        assert not reader.assemble("t-reader", record=False).receipt.recorded
        with pytest.raises(Forbidden):
            reader.assemble("t-reader")


def test_a_key_of_one_user_gets_no_prompt_of_others_words(pf: Pagefile, running: Running) -> None:
    pf.context.append("t-mixed", "mine", "user", "agent", user_id="ann")
    pf.context.append("t-mixed", "a secret", "user", "agent", user_id="bob")
    pf.context.append("t-bob", "a secret", "user", "agent", user_id="bob")
    pf.context.append("t-ann", "mine", "user", "agent", user_id="ann")
    with running.open(key=running.key_for(user_id="ann")) as ann:
        with pytest.raises(NotFound):
            ann.runs.boot("borrow", run_id="r-borrow", thread_id="t-bob")

        assert "mine" in str(ann.assemble("t-ann").messages)
        for source in ("t-mixed", "t-bob"):
            with pytest.raises((Forbidden, NotFound)) as refusal:
                ann.assemble(source)
            assert "secret" not in str(refusal.value)
        with pytest.raises(Forbidden):
            ann.assemble(user_id="bob", query="secret")


# The example


def test_the_agent_of_the_example_works_over_http(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = ROOT / "examples" / "http_agent.py"
    monkeypatch.setenv("PAGEFILE_API_KEY", running.key)
    ran = subprocess.run(
        [sys.executable, str(example), running.base], capture_output=True, text=True, timeout=60
    )

    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "refused: conflict",
        "done: book the night train",
        "learnt: Night trains are preferred to flights.",
        "resumed at 3: True",
    ]


# What cannot be sent


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.memory.facts.query(subject="\ud800"),
        lambda c: c.memory.profile(user_id="\ud800"),
        lambda c: c.store.names("log", prefix="\ud800"),
        lambda c: c.memory.delete_block("persona", expected_version="é"),
        lambda c: c.memory.import_("no such file"),
        lambda c: c.memory.import_("a\0b"),
        lambda c: c.runs.verify_pack("."),
        lambda c: c.runs.verify_pack(5),
        lambda c: c.memory.remember("text"),
        lambda c: c.memory.profile(user_id=5),
        lambda c: c.memory.profile(user_id=b"ann"),
        lambda c: c.memory.recall(b"text"),
        lambda c: c.memory.recall_scored("text", alpha=float("nan")),
        lambda c: c.memory.facts.query(valid_at="today"),
        lambda c: c.memory.session_messages("s", limit="5"),
        lambda c: c.context.append("t", 1, b"a", "b"),
        lambda c: c.memory.facts.append({"subject": "x"}),
        lambda c: c.context.append_many("t", []),
        lambda c: c.runs.boot("x", config={}),
    ],
)
def test_what_cannot_be_sent_is_refused_in_our_words(
    running: Running, pf: Pagefile, call: Callable[[Any], Any]
) -> None:
    with pytest.raises(PagefileError):
        call(pf)

    async def ask() -> None:
        async with pagefile.aio.open(running.base, key=running.key) as other:
            await call(other)

    with pytest.raises(PagefileError):
        asyncio.run(ask())

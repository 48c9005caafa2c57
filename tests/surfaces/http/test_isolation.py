"""What one user's key cannot reach of others, whatever it sends."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import io
import json
import secrets
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

import pagefile
from pagefile import (
    Append,
    Batch,
    ConsolidationPolicy,
    Corrupt,
    Episode,
    Fact,
    Forbidden,
    Invalid,
    Memory,
    NotFound,
    Put,
)
from pagefile.dispatch import HandlerResponse, Organism
from pagefile.dispatch import Identity as Caller
from pagefile.memory.documents import owner_key
from pagefile.memory.facts.store import FactStore
from pagefile.memory.facts.view import PredicateKinds
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.mcp import Identity, mcp_service

pytestmark = [
    pytest.mark.filterwarnings("ignore::pagefile.memory.privacy.isolation.IsolationWarning"),
    pytest.mark.xdist_group("isolation"),
]

THEN = "2026-01-01T00:00:00Z"
ZIP = {"content-type": "application/zip"}


class Place(NamedTuple):
    """A server in this process, and the headers of its callers."""

    client: TestClient
    url: str
    ann: dict[str, str]
    bob: dict[str, str]
    boss: dict[str, str]
    writer: dict[str, str]

    def import_(self, lines: list[bytes], who: dict[str, str] | None = None) -> Any:
        kind = {"content-type": "application/x-ndjson"}
        return self.client.post(
            "/v1/import", headers=(who or self.ann) | kind, content=b"".join(lines)
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("isolation")
    url = f"{folder}/s.db"
    with pagefile.Admin(url) as admin:
        keys = KeyStore(admin)
        made = [
            keys.create("default", ("read", "write"), user_id="ann"),
            keys.create("default", ("read", "write"), user_id="bob"),
            keys.create("default", ("read", "write", "admin")),
            keys.create("default", ("read", "write")),
        ]
    headers = [{"authorization": f"Bearer {each.secret}"} for each in made]
    config = ServerConfig(url=url, durability="process", log_level="error")
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client:
        made_place = Place(client, url, *headers)
        slot = {"payload": "my PIN is 4711", "from_id": "user", "to_id": "x"}
        client.post("/v1/threads/bobs/slots", headers=made_place.bob, json=slot)
        client.post(
            "/v1/runs", headers=made_place.bob, json={"objective": "o", "run_id": "bobs-run"}
        )
        yield made_place


def export(user: str, *lines: dict[str, Any]) -> list[bytes]:
    """An export made by hand, with the digests that belong to it."""
    header = {"format": "pagefile-export", "version": 1, "user_id": user, "exported_at": THEN}
    made = [json.dumps(header).encode() + b"\n"]
    for line in lines:
        body = json.dumps({"number": 1, "time_us": 1, "user": user, **line}).encode()
        digest = hashlib.sha256(body).hexdigest().encode()
        made.append(body[:-1] + b',"sha256":"' + digest + b'"}\n')
    whole = hashlib.sha256(b"".join(made)).hexdigest()
    end = {"end": "pagefile-export", "lines": len(made), "sha256": whole}
    return [*made, json.dumps(end).encode() + b"\n"]


def document(name: str, value: Any, kind: str, **more: Any) -> dict[str, Any]:
    return {"stream": "document", "name": name, "value": value, "kind": kind, **more}


def entry(name: str, value: Any, kind: str, **more: Any) -> dict[str, Any]:
    return {"stream": "log", "name": name, "value": value, "kind": kind, **more}


def item(scope: str, content: str, user: str | None, memory_id: str = "i") -> dict[str, Any]:
    told = {
        "memory_id": memory_id,
        "type": "policy",
        "scope": scope,
        "content": content,
        "confidence": 1.0,
        "status": "active",
        "source_refs": [],
        "rationale": "",
        "created_at": THEN,
        "updated_at": THEN,
        "batch_id": "b",
        "user_id": user,
        "project_id": "p" if scope == "project" else None,
    }
    return {"item": told, "cause": {"op": "add", "batch_id": "b", "gate": "reviewer", "by": "boss"}}


def keys_of(scope: str) -> dict[str, Any]:
    start = ["p"] if scope == "project" else []
    return {
        f"item.{scope}": {"$tuple": [*start, "active"]},
        f"item.{scope}.type": {"$tuple": [*start, "active", "policy"]},
    }


_P = hashlib.sha256(b"p").hexdigest()[:32]
_STATE = {
    "run_id": "bobs-run",
    "task_id": "t",
    "thread_id": "t",
    "status": "BOOT",
    "objective": "o",
    "next_action": "",
    "current_stage": "",
    "last_action_summary": "",
    "acceptance_criteria": [],
    "constraints": [],
    "blockers": [],
    "artifact_refs": [],
    "pinned_context": [],
    "sliding_context": [],
    "_update_seq": 0,
}
#: Lines that a key of ann's must not be able to bring in.
_FORGED: dict[str, dict[str, Any]] = {
    "an item for everybody": document(
        "item/global/i", item("global", "x", "ann"), "item", tenant_keys=keys_of("global")
    ),
    "an item of a project": document(
        f"item/project/{_P}/i", item("project", "x", "ann"), "item", tenant_keys=keys_of("project")
    ),
    "an item of another's, by its place": document(
        f"item/user/{owner_key('bob')}/i", item("user", "x", "ann"), "item", keys=keys_of("user")
    ),
    "an item of another's, by its body": document(
        f"item/user/{owner_key('bob')}/i", item("user", "x", "bob"), "item", keys=keys_of("user")
    ),
    "an own item that others find": document(
        f"item/user/{owner_key('ann')}/i",
        item("user", "x", "ann"),
        "item",
        keys=keys_of("user"),
        tenant_keys=keys_of("global"),
    ),
    "what predicates mean": entry("fact-kinds", {"predicate": "x", "kind": "multi"}, "fact-kind"),
    "the index": entry(f"recall/1/{owner_key('ann')}", {}, "x"),
    "what servers answered": document("http/once/x", {}, "x"),
    "the root of a registry": document("registry/root", {"names": ["a"], "thread": "t"}, "pointer"),
    "where a thread stands": document("path/bobs", {"names": ["a"]}, "path"),
    "a pass for items": document("item-token/abc", {}, "item-token"),
    "what dispatch works on": document("dispatch/conversation/x", {}, "x"),
    "a name of nobody's": document("whatever", {}, "x"),
    "a run of another's": document("run/bobs-run", _STATE, "working_set"),
    "an event of another's run": entry(
        "ledger/bobs-run",
        {"event_id": "e", "parent_event_id": None, "payload": {}},
        "NOTE",
        keys={"type": "NOTE"},
    ),
    "what left another's run": entry(
        "evicted/bobs-run",
        {"id": "x", "content": "y", "priority": 1},
        "evicted",
        keys={"item": hashlib.sha256(b"x").hexdigest()},
    ),
    "items that came with another's run": document("brought/bobs-run", [], "brought"),
    "another's items as those of a run": document(
        "brought/mine", [f"item/user/{owner_key('bob')}/i"], "brought"
    ),
    "a slot of another's thread": entry("thread/bobs", "a guess", "slot"),
}


class TestImport:
    @pytest.mark.parametrize("forgery", _FORGED)
    def test_a_forged_line_is_refused_and_nobody_else_is_reached(
        self, place: Place, forgery: str
    ) -> None:
        with pagefile.open(place.url) as pf:
            head = pf.store.head()
        answer = place.import_(export("ann", _FORGED[forgery]))

        assert answer.status_code == 422, answer.text
        assert place.client.get("/v1/facts?subject=x", headers=place.bob).status_code == 200
        with pagefile.open(place.url) as pf:
            assert pf.store.head() == head

    def test_a_guess_at_what_another_said_is_answered_the_same_right_or_wrong(
        self, place: Place
    ) -> None:
        told = [
            place.import_(export("ann", entry("thread/bobs", guess, "slot"))).json()["detail"]
            for guess in ("my PIN is 0000", "my PIN is 4711")
        ]

        assert told[0] == told[1]

    def test_a_users_own_export_comes_back_with_the_users_own_key(
        self, place: Place, tmp_path: Path
    ) -> None:
        lines = _everything_of("ann", tmp_path)
        first, again = place.import_(lines), place.import_(lines)

        assert (first.status_code, first.json()["records"]) == (200, len(lines) - 2), first.text
        assert (again.status_code, again.json()["records"]) == (200, 0), again.text

    def test_an_import_with_admin_brings_items_for_everybody_too(self, place: Place) -> None:
        name = f"i{secrets.token_hex(4)}"
        line = document(
            f"item/global/{name}",
            item("global", "x", "ann", name),
            "item",
            tenant_keys=keys_of("global"),
        )

        assert place.import_(export("ann", line), place.writer).status_code == 422
        assert place.import_(export("ann", line), place.boss).json()["records"] == 1

    def test_what_predicates_mean_is_never_imported(self) -> None:
        with pagefile.open("memory:") as pf:
            memory = Memory(pf, embedder=None)
            with pytest.raises(Invalid):
                memory.import_(export("ann", entry("fact-kinds", {"nonsense": 1}, "x")))

    def test_odd_and_erased_declarations_count_for_nothing(self) -> None:
        with pagefile.open("memory:") as pf:
            memory = Memory(pf, embedder=None)
            for value in (1, {"nonsense": 1}, {"predicate": "eats", "kind": "odd"}):
                pf.store.append(Append("fact-kinds", value, user="eve"))
            memory.facts.declare("eats", "multi")
            memory.forget(user_id="eve")

            assert PredicateKinds(pf.store).kind("eats") == "multi"
            assert memory.facts.query(user_id="ann") == []


def _everything_of(user: str, folder: Path) -> list[bytes]:
    """An export with something of every kind that one user's key may bring in."""
    mcr = {
        "_schema_version": "2.1",
        "op": "add",
        "type": "policy",
        "scope": "user",
        "user_id": user,
        "content": "c",
        "confidence": 0.9,
        "rationale": "r",
        "source_refs": ["x"],
    }
    with pagefile.open("memory:") as pf:
        memory = Memory(pf, embedder=None, record_use=True)
        memory.remember(Episode(session_id="s", user_id=user, input="I live in Rome."))
        memory.consolidate()
        memory.update_block("b", "x", user_id=user)
        memory.update_block("c", "x", user_id=user)
        memory.delete_block("c", user_id=user)
        made = Fact(subject="c", predicate="p", object="d", user_id=user)
        memory.facts.append(made)
        memory.facts.retract(made.id, user_id=user)
        memory.facts.alias("c", "q", user_id=user)
        memory.recall("Rome", user_id=user)
        pf.context.append("own", {"a": 1}, "u", "v", user_id=user, usage_instructions="be kind")
        run = pf.runs.boot("o", user_id=user, run_id="own", thread_id="own")
        run.update(lambda _: {"blockers": ["x"]})
        batch = run.memory.propose([mcr]).batch_id
        run.milestone(memory_batch_id=batch)
        run.memory.propose([mcr])
        copy = pf.runs.restore_from_pack(run.create_resume_pack(folder), new_run_id="copy")
        assert copy.run_id == "copy"
        return list(memory.export(user_id=user))


class TestMalformed:
    """What something else wrote stops nobody, and is told as what it is."""

    @pytest.mark.parametrize("value", [1, {}, {"target": "f"}, "é"])
    def test_a_record_that_is_none_does_not_keep_its_user_from_being_forgotten(
        self, value: Any
    ) -> None:
        with pagefile.open("memory:") as pf:
            memory = Memory(pf, embedder=None)
            memory.remember(Episode(id="e", session_id="s", user_id="ann", input="I live in Rome"))
            kept = Fact(
                id="f", subject="a", predicate="p", object="b", user_id="ann", sources=("e",)
            )
            memory.facts.append(kept)
            memory.facts.retract("f", user_id="ann")
            owner = owner_key("ann")
            for name in (
                *pf.store.names("document", prefix=f"fact-retraction/{owner}/"),
                *pf.store.names("document", prefix=f"fact/{owner}/"),
            ):
                was = pf.store.get(name)
                assert was is not None
                pf.store.commit(
                    Batch(
                        [
                            Put(
                                name,
                                value,
                                user="ann",
                                kind=was.kind,
                                keys=was.keys,
                                sources=was.sources,
                            )
                        ]
                    )
                )
            assert memory.forget(user_id="ann", session_id="s").counts["facts"] == 1
            memory.forget(user_id="ann")

            assert len(list(memory.export(user_id="ann"))) == 2

    @pytest.mark.parametrize("value", [1, [], {}, {"run_id": "r"}, {"_update_seq": "x"}])
    def test_a_run_that_is_none_is_corrupt(self, value: Any) -> None:
        with pagefile.open("memory:") as pf:
            pf.runs.boot("o", run_id="r")
            pf.store.commit(Batch([Put("run/r", value, kind="working_set")]))
            run = pf.runs.open("r")
            with pytest.raises(Corrupt):
                run.load()
            with pytest.raises(Corrupt, match="roll back"):
                run.repair()  # Something else wrote a version that the ledger does not tell of.
            run.rollback(0)

            assert run.load()["objective"] == "o"
            assert run.rebuild()

    @pytest.mark.parametrize(
        "value",
        [
            1,
            {},
            {"event_id": "e", "parent_event_id": None, "payload": 1},
            {"event_id": "e", "parent_event_id": None, "payload": {}},
            {"event_id": "e", "parent_event_id": None, "payload": {"new_seq": "x"}},
        ],
    )
    def test_a_ledger_with_what_is_no_event_is_corrupt(self, value: Any) -> None:
        with pagefile.open("memory:") as pf:
            run = pf.runs.boot("o", run_id="r")
            event = Append(
                "ledger/r", value, kind="WS_UPDATE_APPLIED", keys={"type": "WS_UPDATE_APPLIED"}
            )
            pf.store.append(event)
            with pytest.raises(Corrupt):
                run.rebuild()


def mcr(scope: str, **more: Any) -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "op": "add",
        "type": "policy",
        "scope": scope,
        "content": f"refund {scope}",
        "confidence": 0.9,
        "rationale": "r",
        "source_refs": ["x"],
        **more,
    }


def members(pack: bytes | Path) -> bytes:
    """All that a pack holds, unpacked."""
    source = io.BytesIO(pack) if isinstance(pack, bytes) else pack
    with zipfile.ZipFile(source) as archive:
        return b"".join(map(archive.read, archive.namelist()))


SLOT = {"from_id": "user", "to_id": "agent"}


class TestThreadsOfUsers:
    def test_a_users_key_deletes_no_thread_that_holds_what_others_said(self, place: Place) -> None:
        """Neither another user's words nor those of the anonymous user."""
        client, path = place.client, "/v1/threads/shared"
        for who, user in ((place.ann, "ann"), (place.boss, "bob"), (place.boss, None)):
            body = {"payload": "said", "user_id": user, **SLOT}
            made = client.post(f"{path}/slots", headers=who, json=body)
            assert made.status_code == 201, made.text
        refused = client.delete(path, headers=place.ann)
        left = client.get(f"{path}/slots", headers=place.boss).json()["items"]

        assert refused.status_code == 403, refused.text
        assert [slot["user_id"] for slot in left] == ["ann", "bob", None]

    def test_a_users_key_deletes_a_thread_of_its_own_and_no_other(self, place: Place) -> None:
        client = place.client
        client.post("/v1/threads/anns/slots", headers=place.ann, json={"payload": "x", **SLOT})
        answers = [
            client.delete(f"/v1/threads/{name}", headers=place.ann)
            for name in ("bobs", "anns", "anns")
        ]

        assert [answer.status_code for answer in answers] == [404, 200, 404]
        assert client.get("/v1/threads/bobs", headers=place.bob).status_code == 200

    def test_a_thread_that_two_users_begin_at_once_belongs_to_one(self, place: Place) -> None:
        """Whoever is answered with 201 reads what they said; the other is refused."""
        both = {"ann": place.ann, "bob": place.bob}

        def begin(thread: str, who: str, together: threading.Barrier) -> int:
            together.wait(60)
            body = {"payload": who, **SLOT}
            path = f"/v1/threads/{thread}/slots"
            return place.client.post(path, headers=both[who], json=body).status_code

        outcomes = set()
        with ThreadPoolExecutor(2) as pool:
            for number in range(40):
                thread, together = f"raced-{number}", threading.Barrier(2)
                begun = {who: pool.submit(begin, thread, who, together) for who in both}
                path = f"/v1/threads/{thread}/slots"
                answers = {who: answered.result(60) for who, answered in begun.items()}
                for who, status in answers.items():
                    seen = place.client.get(path, headers=both[who])
                    shown = [slot["payload"] for slot in seen.json().get("items", ())]
                    outcomes.add((status, seen.status_code, tuple(shown) == (who,)))

        assert outcomes == {(201, 200, True), (404, 404, False)}

    def test_a_thread_that_changed_hands_since_it_was_looked_at_is_not_written_to(self) -> None:
        """Between the look and the commit it ends, and another user begins it again."""
        with pagefile.open("memory:") as pf:
            store, look = pf.store, pf.store.read
            pf.context.append("t", "mine", "a", "b", user_id="ann")

            def changed_hands(*given: Any, **more: Any) -> Any:
                found = look(*given, **more)
                store.read = look  # type: ignore[method-assign]
                pf.context.delete_thread("t")
                pf.context.append("t", "of bob", "a", "b", user_id="bob")
                return found

            outcomes = []
            for change in (
                lambda: pf.context.append("t", "late", "a", "b", user_id="ann", owner="ann"),
                lambda: pf.context.delete_thread("t", owner="ann"),
                lambda: pf.context.fork("t", owner="ann"),
            ):
                pf.context.delete_thread("t")
                pf.context.append("t", "mine", "a", "b", user_id="ann")
                store.read = changed_hands  # type: ignore[method-assign]
                with pytest.raises(NotFound):
                    change()
                outcomes.append([slot.payload for slot in pf.context.get_thread_slots("t")])

            assert outcomes == [["of bob"]] * 3
            assert pf.context.get_stats()["thread_count"] == 1

    def test_a_user_is_shown_of_a_shared_thread_what_they_said(self, place: Place) -> None:
        client, path = place.client, "/v1/threads/spoken"
        for user in ("ann", "bob", None, "ann"):
            body = {"payload": f"of {user}", "user_id": user, **SLOT}
            assert client.post(f"{path}/slots", headers=place.boss, json=body).is_success
        listed = client.get(f"{path}/slots", headers=place.ann).json()["items"]
        tail = client.get(f"{path}/slots?tail=3", headers=place.ann).json()["items"]
        single = [client.get(f"{path}/slots/{n}", headers=place.ann).status_code for n in range(4)]
        followed = client.get(f"{path}/follow?after=-1&seconds=0", headers=place.ann).text

        assert [slot["index"] for slot in listed] == [0, 3]
        assert [slot["index"] for slot in tail] == [3]
        assert single == [200, 404, 404, 200]
        assert "of bob" not in followed
        assert "of None" not in followed

    def test_nothing_is_appended_to_or_forked_over_the_thread_of_another(
        self, place: Place
    ) -> None:
        client, slot = place.client, {"payload": "x", **SLOT}
        client.post("/v1/threads/for-forks/slots", headers=place.ann, json=slot)
        length = client.get("/v1/threads/bobs", headers=place.bob).json()["length"]
        refused = [
            client.post("/v1/threads/bobs/slots", headers=place.ann, json=slot),
            client.post("/v1/threads/bobs/slots/batch", headers=place.ann, json={"slots": [slot]}),
            client.post("/v1/threads/bobs/fork", headers=place.ann, json={}),
            client.post("/v1/threads/for-forks/fork", headers=place.ann, json={"new_id": "bobs"}),
        ]

        assert [answer.status_code for answer in refused] == [404] * 4
        assert client.get("/v1/threads/bobs", headers=place.bob).json()["length"] == length

    def test_an_empty_thread_that_another_writes_to_meanwhile_is_theirs(self) -> None:
        with pagefile.open("memory:") as pf:
            pf.context.append("t", "mine", "a", "b", user_id="ann")
            pf.context.fork("t", 0, new_id="empty")
            store, look = pf.store, pf.store.read

            def faster(*given: Any, **more: Any) -> Any:
                found = look(*given, **more)
                store.read = look  # type: ignore[method-assign]
                pf.context.append("empty", "of bob", "a", "b", user_id="bob")
                return found

            store.read = faster  # type: ignore[method-assign]
            with pytest.raises(NotFound):
                pf.context.append("empty", "late", "a", "b", user_id="ann", owner="ann")

            assert [slot.payload for slot in pf.context.get_thread_slots("empty")] == ["of bob"]

    def test_an_empty_fork_that_two_users_write_to_at_once_belongs_to_one(self) -> None:
        with pagefile.open("memory:") as pf:
            pf.context.append("t", "mine", "a", "b", user_id="ann")
            pf.context.fork("t", 0, new_id="empty")
            pf.context.append("empty", "first", "a", "b", user_id="ann", owner="ann")
            with pytest.raises(NotFound):
                pf.context.append("empty", "second", "a", "b", user_id="bob", owner="bob")

            assert [slot.payload for slot in pf.context.get_thread_slots("empty")] == ["first"]

    def test_two_users_whose_connections_have_one_name_do_not_share_keys_for_repeats(self) -> None:
        with pagefile.Admin("memory:") as admin:
            context, service = admin.open("default").context, mcp_service(admin)
            for user in ("ann", "bob"):
                identity = Identity("default", user, name="the same")
                said = {"thread_id": "t", "text": f"of {user}", "key": "k"}
                service.call(identity, "append_message", said)
                slots = context.get_thread_slots("t")
                assert [slot.entry.user for slot in slots] == [user]
                context.delete_thread("t")

    @pytest.mark.parametrize("way", ["http", "mcp"])
    def test_another_users_thread_is_refused_in_the_words_for_one_that_is_not_there(
        self, place: Place, way: str
    ) -> None:
        told = set()
        if way == "http":
            for name in ("bobs", "nones"):
                answer = place.client.get(f"/v1/threads/{name}", headers=place.ann)
                told.add((answer.status_code, answer.json()["detail"].replace(name, "x")))
        else:
            with pagefile.Admin("memory:") as admin:
                admin.open("default").context.append("bobs", "x", "a", "b", user_id="bob")
                service, ann = mcp_service(admin), Identity("default", "ann")
                for name in ("bobs", "nones"):
                    with pytest.raises(NotFound) as refused:
                        service.call(ann, "get_thread", {"thread_id": name})
                    told.add((0, str(refused.value).replace(name, "x")))
                with pytest.raises(NotFound):
                    service.call(ann, "append_message", {"thread_id": "bobs", "text": "x"})

        assert len(told) == 1


class TestRunsAndThreads:
    def test_a_run_id_that_another_has_is_taken_and_nothing_more_is_told(
        self, place: Place
    ) -> None:
        """Whether it is at its first state, further on, or deleted."""
        client, told = place.client, []
        boot = {"objective": "o", "run_id": "told-run"}
        changes: list[Callable[[], Any]] = [
            lambda: client.post("/v1/runs", headers=place.bob, json=boot),
            lambda: client.patch(
                "/v1/runs/told-run",
                headers=place.bob,
                json={"expected_seq": 0, "set": {"next_action": "x"}},
            ),
            lambda: client.delete("/v1/runs/told-run", headers=place.boss),
        ]
        for change in changes:
            assert change().is_success
            answer = client.post("/v1/runs", headers=place.ann, json=boot)
            shown = answer.json()
            told.append({name: shown[name] for name in shown if name != "request_id"})

        assert told[0]["status"] == 409
        assert told == [told[0]] * 3

    @pytest.mark.parametrize("path", ["/v1/runs", "/runs/boot"])
    def test_no_run_is_begun_in_the_thread_of_another(self, place: Place, path: str) -> None:
        body = {"objective": "o", "thread_id": "bobs"}
        answer = place.client.post(path, headers=place.ann, json=body)

        assert answer.status_code == 404, answer.text

    def test_a_library_refuses_a_users_run_in_a_thread_where_others_speak(self) -> None:
        with pagefile.open("memory:") as pf:
            pf.context.append("t", "x", "a", "b", user_id="bob")
            with pytest.raises(Forbidden):
                pf.runs.boot("o", user_id="ann", thread_id="t")

            assert pf.runs.list() == []

    def test_what_others_say_later_is_in_no_pack_or_prompt_of_the_run(self, tmp_path: Path) -> None:
        with pagefile.open("memory:") as pf:
            run = pf.runs.boot("o", user_id="ann", thread_id="t")
            for user, said in (("ann", "mine"), (None, "of nobody"), ("bob", "of bob")):
                pf.context.append("t", said, "a", "b", user_id=user, usage_instructions=f"u {said}")
            pack = run.create_resume_pack(tmp_path)
            shown = pf.assemble(run, None, 4_000).text()
            restored = pf.runs.restore_from_pack(pack)
            slots = pf.context.get_thread_slots(restored.load()["thread_id"])

            assert [text in shown for text in ("mine", "of nobody", "of bob")] == [
                True,
                True,
                False,
            ]
            assert b"of bob" not in members(pack)
            assert len(slots) == 3

    @pytest.mark.parametrize("user_id", ["ann", None])
    def test_an_event_that_names_another_users_batch_brings_no_items_of_theirs(
        self, tmp_path: Path, user_id: str | None
    ) -> None:
        with pagefile.open("memory:") as pf:
            theirs = pf.items.propose([mcr("user", user_id="bob")], user_id="bob").batch_id
            pf.items.commit(theirs, reviewer="r")
            run = pf.runs.boot("o", user_id=user_id)
            forged = {"batch_id": theirs, "memory_ids": []}
            # As an import or a pack of somebody's own making would bring it.
            run.record("MEMORY_COMMIT", forged, "forger")
            with pytest.raises(Invalid, match="the run's own"):
                run.log("MEMORY_COMMIT", forged)

            assert b"refund" not in members(run.create_resume_pack(tmp_path))

    def test_a_connection_for_one_user_is_shown_nothing_that_others_said(
        self, tmp_path: Path
    ) -> None:
        with pagefile.Admin(f"{tmp_path}/s.db") as admin:
            pf = admin.open("default")
            run = pf.runs.boot("o", user_id="ann", run_id="r", thread_id="t")
            for user, said in (("ann", "mine"), ("bob", "of bob")):
                pf.context.append("t", said, "a", "b", user_id=user)
            service, ann = mcp_service(admin), Identity("default", "ann")
            told = service.call(ann, "get_thread", {"thread_id": "t"})[1]
            context = service.call(ann, "get_context", {"run_id": run.run_id})[1]

            assert ("mine" in told, "of bob" in told) == (True, False)
            assert ("mine" in context, "of bob" in context) == (True, False)
            with pytest.raises(Forbidden):
                service.call(ann, "get_context", {"thread_id": "t"})


class TestReview:
    @pytest.mark.parametrize(
        ("path", "scope"),
        [
            ("/v1/batches", "global"),
            ("/v1/runs/{run}/batches", "global"),
            ("/v1/runs/{run}/batches", "project"),
            ("/runs/{run}/memory/propose", "global"),
        ],
    )
    def test_a_users_key_proposes_nothing_that_concerns_others(
        self, place: Place, path: str, scope: str
    ) -> None:
        run = self._run(place)
        body = {"mcrs": [mcr(scope, **({"project_id": "p"} if scope == "project" else {}))]}
        answer = place.client.post(path.format(run=run), headers=place.ann, json=body)

        assert answer.status_code == 403, answer.text

    @pytest.mark.parametrize("path", ["/v1/runs/{run}/milestones", "/runs/{run}/milestone"])
    def test_no_milestone_of_a_users_key_commits_what_concerns_others(
        self, place: Place, path: str
    ) -> None:
        run = self._run(place)
        staged = place.client.post(
            f"/v1/runs/{run}/batches", headers=place.writer, json={"mcrs": [mcr("global")]}
        ).json()
        body = {"memory_batch_id": staged["batch_id"]}
        refused = place.client.post(path.format(run=run), headers=place.ann, json=body)
        batch = place.client.get(f"/v1/batches/{staged['batch_id']}", headers=place.boss)

        assert (refused.status_code, batch.json()["status"]) == (403, "staged"), refused.text

    def test_a_users_key_still_commits_its_own_with_a_milestone(self, place: Place) -> None:
        run = self._run(place)
        body = {"mcrs": [mcr("user", user_id="ann")]}
        made = place.client.post(f"/v1/runs/{run}/batches", headers=place.ann, json=body).json()
        done = place.client.post(
            f"/v1/runs/{run}/milestones",
            headers=place.ann,
            json={"memory_batch_id": made["batch_id"]},
        )

        assert (done.status_code, len(done.json()["committed_memory_ids"])) == (201, 1), done.text

    def test_items_of_a_pack_come_in_with_admin_alone(self, place: Place, tmp_path: Path) -> None:
        mark = secrets.token_hex(8)
        with pagefile.open("memory:") as pf:
            run = pf.runs.boot("o")
            batch = run.memory.propose([mcr("global") | {"content": mark}]).batch_id
            run.memory.commit(batch, reviewer="me")
            pack = run.create_resume_pack(tmp_path).read_bytes()
        told = []
        for who in (place.writer, place.boss):
            answer = place.client.post("/v1/packs", headers=who | ZIP, content=pack)
            found = place.client.get(f"/v1/items?q={mark}", headers=place.bob).json()["items"]
            told.append((answer.status_code, answer.json().get("items_left_out"), len(found)))

        assert told == [(201, 1, 0), (201, 0, 1)]

    @pytest.mark.parametrize("decision", ["commit", "reject"])
    def test_a_reviewer_of_facts_needs_admin(self, place: Place, decision: str) -> None:
        with pagefile.open(place.url) as pf:
            careful = ConsolidationPolicy(auto_commit=None)
            memory = Memory(pf, policy=careful)
            memory.remember(
                Episode(session_id="s", user_id="ann", input=f"I live in {decision.title()}ville")
            )
            memory.consolidate()
            fact_id = memory.proposals.waiting(user_id="ann")[0].id
        path = f"/v1/proposals/{fact_id}/{decision}"
        told = [
            place.client.post(path, headers=who, json={"user_id": "ann"}).status_code
            for who in (place.ann, place.writer, place.boss)
        ]

        assert told == [403, 403, 200]

    def _run(self, place: Place) -> str:
        made = place.client.post("/v1/runs", headers=place.ann, json={"objective": "o"})
        return str(made.json()["run_id"])


class TestForgetting:
    def test_packs_that_wait_on_the_server_go_with_their_user(self, place: Place) -> None:
        client, boss = place.client, place.boss
        body = {"objective": "o", "run_id": "dans", "user_id": "dan", "thread_id": "dans"}
        client.post("/v1/runs", headers=boss, json=body)
        body = {"objective": "o", "run_id": "group", "thread_id": "group"}
        client.post("/v1/runs", headers=boss, json=body)
        slot = {"payload": "x", "from_id": "a", "to_id": "b", "user_id": "dan"}
        client.post("/v1/threads/group/slots", headers=boss, json=slot)
        client.post("/v1/runs", headers=boss, json={"objective": "o", "run_id": "another"})
        made = {
            run: client.post(f"/v1/runs/{run}/packs", headers=boss).json()["download"]
            for run in ("dans", "group", "another")
        }
        body = {"user_id": "dan", "session_id": "group"}
        partly = client.post("/v1/forget", headers=boss, json=body).json()
        wholly = client.post("/v1/forget", headers=boss, json={"user_id": "dan"}).json()
        left = {run: client.get(path, headers=boss).status_code for run, path in made.items()}

        assert sorted(made[run] in str(partly["receipt"]["remaining"]) for run in made) == [
            False,
            True,
            True,
        ]
        assert left == {"dans": 404, "group": 404, "another": 200}
        assert wholly["receipt"]["remaining"] == []

    def test_a_pack_brings_nothing_back_of_who_was_forgotten(self, tmp_path: Path) -> None:
        with pagefile.open("memory:") as pf:
            memory = Memory(pf, embedder=None)
            own = pf.runs.boot("o", user_id="ann", run_id="own")
            shared = pf.runs.boot("o", run_id="shared", thread_id="t")
            for user in ("ann", "bob"):
                pf.context.append("t", f"of {user}", "a", "b", user_id=user)
            batch = shared.memory.propose([mcr("user", user_id="ann")]).batch_id
            shared.memory.commit(batch, reviewer="r")
            packs = [run.create_resume_pack(tmp_path) for run in (own, shared)]
            memory.forget(user_id="ann")
            with pytest.raises(Forbidden):
                pf.runs.restore_from_pack(packs[0])
            restored = pf.runs.restore_from_pack(packs[1])
            slots = pf.context.get_thread_slots(restored.load()["thread_id"])

            assert [slot.erased or slot.payload for slot in slots] == [True, "of bob"]
            assert len(list(memory.export(user_id="ann"))) == 2

    def test_what_a_users_slots_say_about_their_use_goes_with_the_user(
        self, tmp_path: Path
    ) -> None:
        with pagefile.open(f"{tmp_path}/s.db") as pf:
            memory = Memory(pf, embedder=None)
            for user in ("ann", "bob", None):
                pf.context.append("t", "x", "a", "b", user_id=user, usage_instructions="be ZEBRA")
            pf.context.append("u", "x", "a", "b", user_id="ann", usage_instructions="ann's ZEBU")
            memory.forget(user_id="ann")
            told = [
                slot.metadata.usage_instructions
                for slot in pf.context.get_thread_slots("t")
                if not slot.erased
            ]
            pf.context.append("u", "y", "a", "b", user_id="ann", usage_instructions="be ZEBRA")
            anew = pf.context.get_thread_slots("u")[-1].metadata.usage_instructions

        assert (told, anew) == (["be ZEBRA", "be ZEBRA"], "be ZEBRA")
        assert b"ZEBU" not in Path(f"{tmp_path}/s.db").read_bytes()

    def test_a_usage_text_of_a_store_of_before_is_still_shown(self) -> None:
        with pagefile.open("memory:") as pf:
            text = "How."
            digest = hashlib.sha256(text.encode()).hexdigest()
            keys = {"lane": ("str", "a", "b")}
            old = Append(
                "thread/t", "x", user="ann", kind="slot", keys=keys, notes={"usage": digest}
            )
            pf.store.commit(Batch([Put(f"usage/{digest}", text, kind="usage"), old]))

            assert pf.context.get_thread_slots("t")[0].metadata.usage_instructions == text

    def test_a_usage_text_in_a_pack_is_restored_for_each_user_who_has_it(
        self, tmp_path: Path
    ) -> None:
        with pagefile.open("memory:") as pf, pagefile.open("memory:") as other:
            run = pf.runs.boot("o", thread_id="t")
            for user in ("ann", "bob"):
                pf.context.append("t", "x", "a", "b", user_id=user, usage_instructions="How.")
            restored = other.runs.restore_from_pack(run.create_resume_pack(tmp_path))
            slots = other.context.get_thread_slots(restored.load()["thread_id"])

            assert [slot.metadata.usage_instructions for slot in slots] == ["How."] * 2

    def test_who_waits_for_an_answer_is_told_that_the_conversation_is_gone(self) -> None:
        with pagefile.open("memory:") as pf:
            asyncio.run(_forgotten_meanwhile(pf))

    def test_the_tenants_own_name_is_no_user(self) -> None:
        with pagefile.open("memory:") as pf:
            memory = Memory(pf, embedder=None)
            memory.facts.declare("eats", "multi")
            for call in (memory.forget, memory.export, memory.profile):
                with pytest.raises(Invalid):
                    call(user_id="~pagefile")

            assert PredicateKinds(pf.store).kind("eats") == "multi"


async def _forgotten_meanwhile(pf: pagefile.Pagefile) -> None:
    organism = Organism(pf, name="o")
    started, going_on = asyncio.Event(), asyncio.Event()

    @organism.listener("slow", payload=Asked)
    async def slow(payload: Asked) -> HandlerResponse:
        started.set()
        await going_on.wait()
        return HandlerResponse.respond(payload)

    async with organism:
        caller = Caller("cli", "ann")
        delivery = await organism.inject(Asked("x"), "slow", caller=caller)
        await started.wait()
        early = asyncio.create_task(organism.answer(delivery))
        await asyncio.to_thread(Memory(pf, embedder=None).forget, user_id="ann")
        going_on.set()
        async with asyncio.timeout(60):
            for waiting in (early, organism.answer(delivery)):
                with pytest.raises(NotFound):
                    await waiting


@dataclasses.dataclass
class Asked:
    text: str


class TestOddInput:
    @pytest.mark.parametrize("path", [None, 5, b"x", "\ud800", "x" * 600, "x\x00"])
    def test_what_is_no_path_is_refused(self, path: Any) -> None:
        with pagefile.open("memory:") as pf:
            for call in (pf.runs.restore_from_pack, pf.runs.verify_pack, pf.runs.import_jsonl):
                with pytest.raises(Invalid):
                    call(path)

    def test_limits_that_are_none_are_refused(self, tmp_path: Path) -> None:
        with pagefile.open("memory:") as pf:
            pack = pf.runs.boot("o").create_resume_pack(tmp_path)
            with pytest.raises(Invalid):
                pf.runs.verify_pack(pack, limits=True)  # type: ignore[arg-type]

    def test_numbers_and_lists_that_are_none_are_refused(self) -> None:
        with pagefile.open("memory:") as pf:
            memory = Memory(pf, embedder=None)
            calls: list[Callable[[], Any]] = [
                lambda: memory.duplicates(user_id="ann", threshold=10**5000),
                lambda: memory.facts.restore(None, user_id="ann"),  # type: ignore[arg-type]
                lambda: memory.facts.derived_from(None, user_id="ann"),  # type: ignore[arg-type]
                lambda: memory.facts.derived_from("id", user_id="ann"),
                lambda: memory.facts.derived_from([[]], user_id="ann"),  # type: ignore[list-item]
                lambda: memory.facts.documents_of(None, user_id="ann"),  # type: ignore[arg-type]
                lambda: memory.facts.holding([["x"]], user_id="ann"),  # type: ignore[list-item]
            ]
            for call in calls:
                with pytest.raises(Invalid):
                    call()

    def test_two_aliases_that_are_said_at_once_make_no_circle(self) -> None:
        """One of them is said between the other's look and its commit."""
        with pagefile.open("memory:") as pf:
            facts = FactStore(pf)
            store = facts._store
            commit = store.commit

            def slowly(batch: Batch, **more: Any) -> Any:
                store.commit = commit  # type: ignore[method-assign]
                facts.alias("y", "x", user_id="ann")
                return commit(batch, **more)

            store.commit = slowly  # type: ignore[method-assign]
            with pytest.raises(Invalid):
                facts.alias("x", "y", user_id="ann")

            assert facts.aliases(user_id="ann") == {"y": "x"}

"""What one user's key cannot reach of others, whatever it sends."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient

import pagefile
from pagefile import Append, Batch, Corrupt, Episode, Fact, Invalid, Memory, Put
from pagefile.access.keys import KeyStore
from pagefile.memory.fact_kinds import PredicateKinds
from pagefile.memory.owner import owner_key
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig

pytestmark = [
    pytest.mark.filterwarnings("ignore::pagefile.memory.isolation.IsolationWarning"),
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
            with pytest.raises(Corrupt):
                pf.runs.open("r")

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

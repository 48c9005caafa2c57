"""Resume packs: all of a run in one file, and a run again wherever it is restored."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pagefile
from pagefile.errors import (
    Conflict,
    Corrupt,
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    Unavailable,
    Unsupported,
)
from pagefile.memory.items.store import LongTermItems
from pagefile.runs.config import RunConfig
from pagefile.runs.kinds import EPISODES, EVICTED, LEDGERS, RUNS
from pagefile.runs.packs import format as errors
from pagefile.runs.packs import format as pack_format
from pagefile.runs.packs import restore
from pagefile.runs.packs.archive import open_members
from pagefile.runs.packs.format import MANIFEST, PackLimits
from pagefile.runs.packs.reader import verify_pack
from pagefile.runs.packs.restore import restore_from_pack
from pagefile.runs.packs.writer import create_resume_pack
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.store.batch import Batch, Prune, Selector
from tests.runs.ground import places, with_, wrong_at

Edit = Callable[[dict[str, bytes]], None]


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def pf(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[pagefile.Pagefile]:
    with pagefile.open(url_on(request.param)) as handle:
        yield handle
        assert handle.verify().problems + handle.check().problems == ()


@pytest.fixture
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pagefile.Pagefile]:
    """A store on the other engine."""
    is_memory = "memory" in request.node.callspec.id if hasattr(request.node, "callspec") else False
    with pagefile.open(str(tmp_path / "to.db") if is_memory else "memory:") as handle:
        yield handle
        assert handle.verify().problems + handle.check().problems == ()


@pytest.fixture
def here() -> Iterator[pagefile.Pagefile]:
    """A store where only what matters is the pack."""
    with pagefile.open("memory:") as handle:
        yield handle


def runs_of(pf: pagefile.Pagefile) -> Runs:
    return Runs(pf.store, LongTermItems(pf.store))


def slide(n: int, size: int = 10) -> dict[str, Any]:
    return {
        "id": f"s{n}",
        "content": f"{n} " + "x" * size,
        "timestamp": f"2026-01-01T00:00:{n % 60:02}Z",
        "priority": n % 10,
    }


def fact(content: str) -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "op": "add",
        "type": "fact",
        "scope": "user",
        "user_id": "ann",
        "content": content,
        "confidence": 0.9,
        "rationale": "she said so",
        "source_refs": ["slot 0"],
    }


def a_full_run(pf: pagefile.Pagefile, run_id: str = "r1") -> Run:
    """A run with a bit of everything that a pack can hold."""
    memory = LongTermItems(pf.store)
    runs = Runs(pf.store, memory)
    run = runs.boot("Ship it", ["tests pass"], run_id=run_id, thread_id="t1", user_id="ann")
    pf.context.append("t1", {"text": "größer", "pair": (1, 2)}, "user", "agent")
    pf.context.append("t1", ["a", 1.5], "agent", "user", usage_instructions="Use it well.")
    for n in range(12):
        ops = [{"op": "append", "field": "sliding_context", "items": [slide(n, 1_200)]}]
        patch = {"_schema_version": "2.1", "expected_seq": n, "ops": ops}
        assert run.apply_patch(patch).ok
    run.log("TOOL_CALL", {"tool_name": "ls", "arguments": {"$odd": ["ü", 1e-9, None, 2**40]}})
    batch = memory.propose([fact("prefers metric"), fact("lives in Bonn")], run_id=run_id)
    run.milestone("first", memory_batch_id=batch.batch_id, next_entry_point="go on")
    run.apply_patch({"_schema_version": "2.1", "expected_seq": 3, "set": {"status": "DONE"}})
    assert run.rollback(4).ok
    assert run.update(lambda _: {"status": "BUSY"}).ok
    run.milestone("second")
    return run


def content(pf: pagefile.Pagefile, run_id: str) -> dict[str, Any]:
    """Every byte of a run that a restore has to keep, by the names of the parts."""
    store, ws = pf.store, Runs(pf.store).open(run_id).load()
    own = {"run_id", "thread_id"}
    events = [e for e in store.read(LEDGERS + run_id) if e.kind != "RUN_RESTORED"]
    events = [e for e in events if e.kind != "RESUME_SNAPSHOT"]
    episodes = store.names("document", prefix=f"{EPISODES}{run_id}/")
    documents = [store.get(name) for name in episodes]
    items = [store.get(name) for name in store.names("document", prefix="item/")]
    whole = Runs(pf.store).open(run_id).ledger
    return {
        "ws": {name: value for name, value in ws.items() if name not in own},
        "history": [
            {k: v for k, v in version.value.items() if k not in own}
            for version in store.history(RUNS + run_id, limit=1_000)
        ],
        "ledger": [(e.kind, e.actor, e.user, e.body) for e in events],
        "times": [whole.whole(e)["timestamp"] for e in events],
        "episodes": [(d.body, d.notes["digest"], d.actor) for d in documents if d],
        "made": [
            Runs(pf.store).open(run_id).episodes.get(d.name[-35:])["created_at"]
            for d in documents
            if d
        ],
        "items": [(d.name, d.body, d.user, d.keys) for d in items if d],
        "slots": [
            (e.type_name, e.body, e.user, e.kind, e.actor, e.keys, e.notes)
            for e in store.read("thread/" + ws["thread_id"])
        ],
        "evicted": [(e.body, e.actor, e.keys) for e in store.read(EVICTED + run_id)],
    }


# Round trips


def test_a_round_trip_keeps_every_byte_on_the_same_and_on_another_engine(
    pf: pagefile.Pagefile, other: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(pf)
    was = content(pf, "r1")
    path = create_resume_pack(run, tmp_path)
    same = restore_from_pack(runs_of(pf), path)
    restore_from_pack(runs_of(other), path, new_run_id="r2")

    assert len(was["evicted"]) > 0
    assert len(was["items"]) == 2
    assert content(pf, same.run_id) == was
    assert content(other, "r2") == was


def test_runs_R07_nothing_is_lost_on_the_second_hop(
    pf: pagefile.Pagefile, other: pagefile.Pagefile, tmp_path: Path
) -> None:
    was = content(pf, a_full_run(pf).run_id)
    path = create_resume_pack(Runs(pf.store).open("r1"), tmp_path)
    there = restore_from_pack(runs_of(other), path, new_run_id="r2")
    back = create_resume_pack(there, tmp_path)
    with pagefile.open("memory:") as third:
        restore_from_pack(runs_of(third), back, new_run_id="r3")

        assert content(third, "r3") == was
        thread = third.context.get_thread(Runs(third.store).open("r3").load()["thread_id"])
        assert thread is not None
        assert thread[1].metadata.usage_instructions == "Use it well."


def test_a_restored_run_goes_on(
    pf: pagefile.Pagefile, other: pagefile.Pagefile, tmp_path: Path
) -> None:
    path = create_resume_pack(a_full_run(pf), tmp_path)
    run = restore_from_pack(runs_of(other), path, new_run_id="r2")
    seq = run.load()["_update_seq"]

    assert run.rebuild()
    assert run.update(lambda _: {"status": "IDLE"}).ok
    assert run.load()["_update_seq"] == seq + 1
    assert run.at(2)["_update_seq"] == 2
    assert run.rollback(1).ok
    assert run.milestone("third").first_sequence_id == len(runs_of(pf).open("r1").ledger)
    assert run.rebuild()
    assert run.episodes.events(run.episodes.list()[0])[0]["event_type"] == "RUN_START"
    assert run.find_evicted("x" * 1_200)
    assert LongTermItems(other.store).search("metric", user_id="ann")[0].item.content


def test_runs_R05_ids_are_rewritten_and_the_fork_is_recorded(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    path = create_resume_pack(a_full_run(pf), tmp_path)
    run = restore_from_pack(runs_of(pf), path, new_run_id="r2")
    last = run.ledger.tail(1)[0]

    assert run.load()["run_id"] == "r2"
    assert {event["run_id"] for event in run.ledger} == {"r2"}
    assert last["event_type"] == "RUN_RESTORED"
    assert last["payload"] == {
        "pack_id": verify_pack(path).pack_id,
        "parent_run_id": "r1",
        "thread_id": run.load()["thread_id"],
    }
    assert run.load()["thread_id"] != "t1"


def test_the_pack_is_recorded_and_later_packs_tell_of_it(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(pf)
    path = create_resume_pack(run, tmp_path, pointers={"branch": "main", "api_key": "hush-1"})
    last = run.ledger.tail(1)[0]

    assert last["event_type"] == "RESUME_SNAPSHOT"
    assert path.name == f"r1_{last['payload']['pack_id']}.zip"
    assert last["payload"]["pointers"]["branch"] == "main"
    assert "hush-1" not in json.dumps(last)
    assert verify_pack(create_resume_pack(run, tmp_path)).events == len(run.ledger) - 1


def test_runs_R07_packs_of_one_second_do_not_overwrite_each_other(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(pf)

    assert len({create_resume_pack(run, tmp_path / "packs") for _ in range(5)}) == 5
    assert len(list((tmp_path / "packs").iterdir())) == 5


def test_the_same_content_gives_the_same_bytes(here: pagefile.Pagefile, tmp_path: Path) -> None:
    run = a_full_run(here)
    made = [members_of(create_resume_pack(run, tmp_path)) for _ in range(2)]
    for members in made:
        members.pop(MANIFEST)
        members["ledger.jsonl"] = members["ledger.jsonl"].split(b'"RESUME_SNAPSHOT"')[0][:5_000]

    assert made[0] == made[1]


def test_runs_R09_a_pack_is_one_cut_whoever_writes_meanwhile(
    pf: pagefile.Pagefile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_format, "_STEPS_TOLD", 7)
    run = a_full_run(pf)
    seq, events = run.load()["_update_seq"], len(run.ledger)
    writer = Runs(pf.store).open("r1")

    def meddle(done: int, total: int) -> None:
        assert writer.update(lambda _: {"next_action": f"{done} of {total}"}).ok
        pf.context.append("t1", {"late": True}, "user", "agent")
        writer.milestone("late")

    report = verify_pack(create_resume_pack(run, tmp_path, progress=meddle))

    assert (report.seq, report.events, report.slots, report.episodes) == (seq, events, 2, 2)
    assert report.proved


def test_a_long_run_is_restored_in_many_commits_and_seen_only_whole(
    here: pagefile.Pagefile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_resume_pack(a_full_run(here), tmp_path)
    monkeypatch.setattr(restore, "_MOST_OPERATIONS", 3)
    seen: list[Any] = []

    def look(done: int, total: int) -> None:
        if done <= total // 2:
            return  # The pack is only read so far.
        with pytest.raises(Conflict):
            Runs(here.store).boot("Mine", run_id="r2")
        seen.append((done, total, Runs(here.store).exists("r2"), Runs(here.store).list()))

    run = restore_from_pack(runs_of(here), path, new_run_id="r2", progress=look)

    assert len(seen) > 10
    assert {(exists, *ids) for _, _, exists, ids in seen[:-1]} == {(False, "r1")}
    assert seen[-1][2:] == (True, ["r1", "r2"])
    assert content(here, "r2") == content(here, "r1")
    assert run.rebuild()


def test_an_interrupted_restore_leaves_no_run_and_can_be_done_again(
    here: pagefile.Pagefile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_resume_pack(a_full_run(here), tmp_path)
    monkeypatch.setattr(restore, "_MOST_OPERATIONS", 5)

    def stop(done: int, total: int) -> None:
        if done > total * 3 // 4:
            raise KeyboardInterrupt

    with pagefile.open(str(tmp_path / "to.db")) as to:
        with pytest.raises(KeyboardInterrupt):
            restore_from_pack(runs_of(to), path, new_run_id="r2", progress=stop)
        with pytest.raises(NotFound):
            Runs(to.store).open("r2")
        with pytest.raises(Conflict, match="choose another id"):
            restore_from_pack(runs_of(to), path, new_run_id="r2")

        assert (Runs(to.store).list(), to.store.names("document", prefix="item/")) == ([], [])
        assert Runs(to.store).delete("r2")
        restore_from_pack(runs_of(to), path, new_run_id="r3")
        assert content(to, "r3") == content(here, "r1")


def test_runs_R06_an_existing_run_is_never_overwritten(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    path = create_resume_pack(a_full_run(pf), tmp_path)
    head = pf.store.head()
    with pytest.raises(Conflict, match="r1"):
        restore_from_pack(runs_of(pf), path, new_run_id="r1")

    assert pf.store.head() == head


def test_a_long_term_item_that_the_store_has_stays_as_it_is(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    path = create_resume_pack(a_full_run(here), tmp_path)
    memory = LongTermItems(here.store, allow_ungated=True)
    (hit,) = memory.search("metric", user_id="ann")
    gone = fact("no more") | {"op": "deprecate", "target_memory_id": hit.item.memory_id}
    memory.commit(memory.propose([gone]).batch_id)
    restore_from_pack(runs_of(here), path)

    assert memory.get(hit.item.memory_id, user_id="ann").status == "deprecated"


def test_what_was_erased_stays_erased_and_the_numbers_stay_right(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(here)
    here.store.erase(Selector(log=LEDGERS + "r1", first=3, last=4))
    here.store.erase(Selector(document=RUNS + "r1", first=3, last=3))
    here.store.erase(Selector(log="thread/t1", first=0, last=0))
    path = create_resume_pack(run, tmp_path)
    again = restore_from_pack(runs_of(here), path)
    thread = here.context.get_thread(again.load()["thread_id"])

    assert verify_pack(path).proved
    assert len(again.ledger) == verify_pack(path).events + 1
    assert again.ledger.read(3, limit=1)[0]["event_id"] == "erased"
    assert again.at(1)["_update_seq"] == 1
    with pytest.raises(NotFound):
        again.at(2)
    assert again.update(lambda _: {"status": "IDLE"}).ok
    assert thread is not None
    assert len(thread) == 2
    assert verify_pack(create_resume_pack(again, tmp_path)).slots == 2


def test_the_place_of_an_erased_slot_is_no_message_where_it_is_restored(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = here.runs.boot("Plan a trip", run_id="r1", thread_id="t1")
    for said in ("mine", "gone", "mine again"):
        here.context.append("t1", said, "user", "agent")
    here.store.erase(Selector(log="thread/t1", first=1, last=1))
    again = restore_from_pack(here.runs, create_resume_pack(run, tmp_path))
    thread = here.context.get_or_create_thread(again.load()["thread_id"])
    shown, was = (here.assemble(one, None, 2_000) for one in (again, run))

    assert [slot.erased for slot in thread] == [False, True, False]
    assert shown.messages == was.messages
    with pytest.raises(NotFound):
        _ = thread[1].payload


def test_a_run_whose_old_versions_were_pruned_keeps_its_numbers(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(here)
    here.store.commit(Batch([Prune(6, document=RUNS + "r1")]))
    again = restore_from_pack(runs_of(here), create_resume_pack(run, tmp_path))

    assert again.at(5) == run.at(5) | {
        "run_id": again.run_id,
        "thread_id": again.load()["thread_id"],
    }
    with pytest.raises(NotFound):
        again.at(4)
    assert again.update(lambda _: {"status": "IDLE"}).ok
    assert again.rebuild()


def test_runs_R10_there_is_no_pack_of_a_run_that_is_not_there(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(here)
    Runs(here.store).delete("r1")
    with pytest.raises(NotFound, match="r1"):
        create_resume_pack(run, tmp_path / "packs")

    assert not (tmp_path / "packs").exists()


# Writing it


def test_runs_R08_a_failure_in_the_middle_leaves_no_file(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = a_full_run(here)

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create_resume_pack(run, tmp_path / "packs", progress=fail)

    assert list((tmp_path / "packs").iterdir()) == []
    assert "RESUME_SNAPSHOT" not in {event["event_type"] for event in run.ledger}


KILLED = """
import os, sys
import pagefile
from pagefile.runs.packs.writer import create_resume_pack
from pagefile.runs.runs import Runs
with pagefile.open(sys.argv[1]) as pf:
    run = Runs(pf.store).open("r1")
    create_resume_pack(run, sys.argv[2], progress=lambda done, total: os._exit(9))
"""


def test_runs_R08_a_kill_in_the_middle_leaves_nothing_under_the_final_name(tmp_path: Path) -> None:
    with pagefile.open(str(tmp_path / "from.db")) as pf:
        a_full_run(pf)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "from.db"), str(tmp_path / "packs")]
    killed = subprocess.run(command, timeout=60)
    left = list((tmp_path / "packs").iterdir())

    assert killed.returncode == 9
    assert [path.suffix for path in left] == [".part"]
    with pagefile.open(str(tmp_path / "from.db")) as pf:
        path = create_resume_pack(Runs(pf.store).open("r1"), tmp_path / "packs")
        assert verify_pack(path).proved


def test_a_folder_that_cannot_be_written_is_said_so(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="no pack could be written"):
        create_resume_pack(a_full_run(here), tmp_path / "file" / "packs")


# Refusing it


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pagefile.open("memory:") as pf:
        return create_resume_pack(a_full_run(pf), tmp_path_factory.mktemp("sound"))


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zip_of(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return file.getvalue()


def sealed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a manifest that lists them as they are now."""
    manifest = json.loads(members[MANIFEST])
    manifest["files"] = {
        name: hashlib.sha256(raw).hexdigest() for name, raw in members.items() if name != MANIFEST
    }
    return members | {MANIFEST: json.dumps(manifest).encode()}


def refused(
    pf: pagefile.Pagefile, path: Path, kind: type[PagefileError], limits: PackLimits | None = None
) -> Any:
    """The error that the pack is refused with, by both calls, the store untouched."""
    head = pf.store.head()
    with pytest.raises(kind):
        verify_pack(path, limits)
    with pytest.raises(kind) as caught:
        restore_from_pack(runs_of(pf), path, limits=limits)
    assert type(caught.value) is kind
    assert pf.store.head() == head
    return caught.value


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "episodes/../../x.json",
        "/etc/passwd",
        "C:/x",
        "c:x",
        "episodes\\x.json",
        "..\\x",
        "./working_set.json",
    ],
)
def test_runs_R02_a_name_that_leaves_the_pack_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(members_of(sound) | {name: b"{}"}))
    error = refused(here, path, errors.UnsafeName)

    assert isinstance(error, Invalid)
    assert error.field == repr(name)


def test_runs_R02_a_manifest_that_names_a_file_outside_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    members = members_of(sound)
    manifest = json.loads(members[MANIFEST])
    manifest["files"]["../../etc/hosts"] = "0" * 64
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(members | {MANIFEST: json.dumps(manifest).encode()}))

    refused(here, path, errors.UnsafeName)


def test_runs_R02_a_link_is_refused(here: pagefile.Pagefile, sound: Path, tmp_path: Path) -> None:
    members = members_of(sound)
    members.pop("working_set.json")
    file = io.BytesIO(zip_of(members))
    with zipfile.ZipFile(file, "a") as archive:
        link = zipfile.ZipInfo("working_set.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    path = tmp_path / "bad.zip"
    path.write_bytes(file.getvalue())

    refused(here, path, errors.LinkMember)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_runs_R02_a_name_that_is_there_twice_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    file = io.BytesIO(sound.read_bytes())
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("working_set.json", "{}")
    path = tmp_path / "bad.zip"
    path.write_bytes(file.getvalue())

    refused(here, path, errors.DuplicateMember)


@pytest.mark.parametrize("name", ["notes.txt", "episodes/", "episodes/x.txt", "run.jsonl"])
def test_runs_R02_a_member_that_no_pack_has_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(sealed(members_of(sound) | {name: b""})))

    refused(here, path, errors.UnknownMember)


def test_a_member_that_the_manifest_does_not_list_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(members_of(sound) | {"episodes/ep_x.json": b"{}"}))

    refused(here, path, errors.UnknownMember)


@pytest.mark.parametrize("name", ["working_set.json", "ledger.jsonl", "thread_slots.jsonl"])
def test_a_missing_member_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path, name: str
) -> None:
    members = members_of(sound)
    members.pop(name)
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(members))

    assert refused(here, path, errors.MissingMember).field == repr(name)


@pytest.mark.parametrize("said", ["a" * 7_000_000, '"' * 4_300_000], ids=["dense", "escaped"])
def test_a_pack_of_whatever_a_store_takes_is_read_again(
    here: pagefile.Pagefile, tmp_path: Path, said: str
) -> None:
    run = here.runs.boot("Plan a trip", run_id="r1", thread_id="t1")
    here.context.append("t1", said, "user", "agent")
    again = here.runs.restore_from_pack(run.create_resume_pack(tmp_path))

    assert here.context.get_thread_slots(again.load()["thread_id"])[0].payload == said


def test_a_pack_that_the_ledger_cannot_tell_of_is_not_left_behind(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = here.runs.boot("Plan a trip", run_id="r1")
    with pytest.raises(LimitExceeded):
        run.create_resume_pack(tmp_path, pointers={"note": "x" * 17_000_000})

    assert list(tmp_path.glob("*.zip")) == []


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("directory", None),
        ("directory", 7),
        ("directory", "a\0b"),
        ("pointers", ["a"]),
        ("pointers", "text"),
        ("progress", 5),
    ],
)
def test_an_odd_argument_for_a_pack_is_refused_and_nothing_written(
    here: pagefile.Pagefile, tmp_path: Path, field: str, given: Any
) -> None:
    run = here.runs.boot("Plan a trip", run_id="r1")
    with pytest.raises(Invalid, match=field):
        run.create_resume_pack(**({"directory": tmp_path / "packs", field: given}))

    assert not (tmp_path / "packs").exists()


@pytest.mark.parametrize("call", ["verify_pack", "restore_from_pack"])
def test_a_progress_that_cannot_be_called_is_refused(
    here: pagefile.Pagefile, tmp_path: Path, call: str
) -> None:
    pack = here.runs.boot("Plan a trip", run_id="r1").create_resume_pack(tmp_path)
    with pytest.raises(Invalid, match="progress"):
        getattr(here.runs, call)(pack, progress=5)

    assert here.runs.list() == ["r1"]


def test_runs_R10_a_bomb_is_refused_by_its_ratio(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(sealed(members_of(sound) | {"evicted.jsonl": b"\n" * 50_000_000})))

    assert isinstance(refused(here, path, errors.PackTooDense), LimitExceeded)


def test_runs_R10_a_bomb_is_refused_by_its_size(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    limits = PackLimits(max_bytes=10_000)
    path = tmp_path / "bad.zip"
    path.write_bytes(sound.read_bytes())

    assert refused(here, path, errors.PackTooLarge, limits).limit == 10_000


@pytest.mark.parametrize("limits", [PackLimits(max_members=3), PackLimits(max_line_bytes=100)])
def test_runs_R10_too_many_members_and_too_long_lines_are_refused(
    here: pagefile.Pagefile, sound: Path, limits: PackLimits
) -> None:
    refused(here, sound, errors.PackTooLarge, limits)


def test_runs_R10_a_header_that_lies_about_the_size_gains_nothing(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    raw = bytearray(zip_of(sealed(members_of(sound) | {"evicted.jsonl": b"\n" * 50_000_000})))
    # The directory says that both sizes are four gigabytes, less a bit.
    at = raw.rfind(b"evicted.jsonl") - 46
    raw[at + 20 : at + 28] = b"\xf0\xff\xff\xff" * 2
    path = tmp_path / "bad.zip"
    path.write_bytes(raw)
    head = here.store.head()
    with pytest.raises((LimitExceeded, Corrupt)):
        restore_from_pack(runs_of(here), path)

    assert here.store.head() == head


@pytest.mark.parametrize("edit", [(b"1", b"2"), (b"{", b"["), (b'"', b""), (b"seq", b"saq")])
def test_a_member_that_was_edited_is_refused_by_its_digest(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path, edit: tuple[bytes, bytes]
) -> None:
    edited = 0
    for name in sorted(members_of(sound).keys() - {MANIFEST}):
        members = members_of(sound)
        if edit[0] not in members[name]:
            continue
        # The last one: all that comes before it reads well.
        members[name] = edit[1].join(members[name].rsplit(edit[0], 1))
        path = tmp_path / "bad.zip"
        path.write_bytes(zip_of(members))
        edited += 1

        assert refused(here, path, errors.WrongDigest).field == name
    assert edited >= 3


def test_a_flipped_byte_in_any_member_is_found(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    raw, path = sound.read_bytes(), tmp_path / "bad.zip"
    head = here.store.head()
    with zipfile.ZipFile(sound) as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename) + 20
            bad = bytearray(raw)
            bad[start + info.compress_size // 2] ^= 0x10
            path.write_bytes(bad)
            with pytest.raises((Corrupt, Invalid, LimitExceeded)):
                restore_from_pack(runs_of(here), path)

    assert here.store.head() == head


def test_a_cut_off_file_is_refused(here: pagefile.Pagefile, sound: Path, tmp_path: Path) -> None:
    raw, path = sound.read_bytes(), tmp_path / "bad.zip"
    for length in range(0, len(raw) - 1, max(1, len(raw) // 40)):
        path.write_bytes(raw[:length])

        refused(here, path, errors.NotAPack)


@pytest.mark.parametrize("kind", ["absent", "text", "fifo", "empty zip", "empty folder", "none"])
def test_what_is_no_pack_is_refused(here: pagefile.Pagefile, tmp_path: Path, kind: str) -> None:
    path: Any = tmp_path / "thing"
    if kind == "text":
        path.write_text("not a zip at all, though long enough to be one")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty zip":
        path.write_bytes(zip_of({}))
    elif kind == "empty folder":
        path.mkdir()
    elif kind == "none":
        path = None

    assert isinstance(refused(here, path, errors.NotAPack), Invalid)


def test_a_newer_format_is_refused(here: pagefile.Pagefile, sound: Path, tmp_path: Path) -> None:
    def newer(**changes: Any) -> bytes:
        members = members_of(sound)
        manifest = json.loads(members[MANIFEST])
        manifest["pointers"] |= changes.pop("pointers", {})
        return zip_of(members | {MANIFEST: json.dumps(manifest | changes).encode()})

    path = tmp_path / "bad.zip"
    for raw in (
        newer(pointers={"format": 2}),
        newer(_schema_version="2.2"),
        newer(compatible_engine_versions=["pagefile-pack/2"]),
    ):
        path.write_bytes(raw)

        assert isinstance(refused(here, path, errors.NewerPack), Unsupported)


def _in_json(member: str, change: Callable[[Any], None]) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        value = json.loads(members[member])
        change(value)
        members[member] = json.dumps(value).encode()

    return edit


def _in_line(member: str, at: int, change: Callable[[Any], None]) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        lines = members[member].splitlines()
        value = json.loads(lines[at])
        change(value)
        lines[at] = json.dumps(value).encode()
        members[member] = b"\n".join(lines) + b"\n"

    return edit


def _without_line(member: str, at: int) -> Edit:
    def edit(members: dict[str, bytes]) -> None:
        lines = members[member].splitlines()
        del lines[at]
        members[member] = b"\n".join(lines) + b"\n"

    return edit


FORGED: dict[str, Edit] = {
    "ws": _in_json("working_set.json", lambda ws: ws.update(status="DONE")),
    "ws shape": _in_json("working_set.json", lambda ws: ws.update(status="NAPPING")),
    "ws id": _in_json("working_set.json", lambda ws: ws.update(run_id="r9")),
    "ws no object": lambda members: members.update({"working_set.json": b"[]"}),
    "ws no json": lambda members: members.update({"working_set.json": b"{"}),
    "ws too deep": lambda members: members.update({"working_set.json": b"[" * 100_000}),
    "patch": _in_line("ledger.jsonl", 2, lambda e: e["payload"].update(patch={"set": {}})),
    "event type": _in_line("ledger.jsonl", 2, lambda e: e.update(event_type="X")),
    "event number": _in_line("ledger.jsonl", 2, lambda e: e.update(sequence_id=9)),
    "event run": _in_line("ledger.jsonl", 2, lambda e: e.update(run_id="r9")),
    "config": _in_line(
        "ledger.jsonl", 0, lambda e: e["payload"]["config"].update(ws_max_tokens="x")
    ),
    "event gone": _without_line("ledger.jsonl", -1),
    "version": _in_line(
        "working_set_history.jsonl", 2, lambda v: v["working_set"].update(next_action="x")
    ),
    "version gone": _without_line("working_set_history.jsonl", -1),
    "version number": _in_line("working_set_history.jsonl", 2, lambda v: v.update(seq=0)),
    "evicted": _in_line("evicted.jsonl", 0, lambda v: v["item"].update(priority=99)),
    "item": _in_line("memory_items.jsonl", 0, lambda v: v["item"].update(confidence=2)),
    "item owner": _in_line("memory_items.jsonl", 0, lambda v: v["item"].update(user_id=None)),
    "item more": _in_line("memory_items.jsonl", 0, lambda v: v.update(more=1)),
    "slot body": _in_line("thread_slots.jsonl", 0, lambda v: v.update(body="{")),
    "slot form": _in_line("thread_slots.jsonl", 0, lambda v: v.update(body='{ "a":1}')),
    "slot keys": _in_line("thread_slots.jsonl", 0, lambda v: v.update(keys="[]")),
    "slot usage": _in_line("thread_slots.jsonl", 1, lambda v: v.update(usage_text="Else")),
    "slot more": _in_line("thread_slots.jsonl", 1, lambda v: v.update(more="Else")),
    "slot surrogate": _in_line("thread_slots.jsonl", 1, lambda v: v.update(actor="\ud800")),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_member_that_does_not_say_what_it_has_to_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path, what: str
) -> None:
    """The digests are right: whoever forged it wrote the manifest too."""
    members = members_of(sound)
    FORGED[what](members)
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(sealed(members)))

    refused(here, path, errors.WrongContent)


def test_a_working_set_that_no_event_tells_of_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    """History and working set agree with each other, and go beyond the ledger."""
    members = members_of(sound)
    ws = json.loads(members["working_set.json"])
    ws |= {"_update_seq": ws["_update_seq"] + 1, "status": "DONE"}
    line = json.dumps({"seq": ws["_update_seq"], "working_set": ws}).encode()
    members["working_set.json"] = json.dumps(ws).encode()
    members["working_set_history.jsonl"] += line
    _in_json(MANIFEST, lambda m: m["pointers"].update(seq=ws["_update_seq"]))(members)
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(sealed(members)))

    assert "fold" in str(refused(here, path, errors.WrongContent))


def test_a_number_of_versions_that_no_ledger_can_have_is_refused(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    """Restoring it would write gaps without end."""
    members, far = members_of(sound), 2**50
    members = {name: raw for name, raw in members.items() if not name.startswith("episodes/")}
    _in_json(MANIFEST, lambda m: m["pointers"].update(seq=far, ledger_last_seq=1))(members)
    _in_json("working_set.json", lambda ws: ws.update(_update_seq=far))(members)
    ws = json.loads(members["working_set.json"])
    members["working_set_history.jsonl"] = json.dumps({"seq": far, "working_set": ws}).encode()
    members["ledger.jsonl"] = members["ledger.jsonl"].splitlines()[0]
    _in_line("ledger.jsonl", 0, lambda e: e["payload"].update(working_set=ws))(members)
    path = tmp_path / "bad.zip"
    path.write_bytes(zip_of(sealed(members)))

    assert "too few" in str(refused(here, path, errors.WrongContent))


def test_a_forged_episode_is_refused(here: pagefile.Pagefile, sound: Path, tmp_path: Path) -> None:
    name = next(name for name in members_of(sound) if name.startswith("episodes/"))
    path = tmp_path / "bad.zip"
    changes: list[dict[str, Any]] = [{"digest": "0" * 64}, {"first": "x"}, {"episode": {}}]
    for change in changes:
        members = members_of(sound)
        members[name] = json.dumps(json.loads(members[name]) | change).encode()
        path.write_bytes(zip_of(sealed(members)))

        refused(here, path, errors.WrongContent)
    members = members_of(sound)
    members["episodes/ep_other.json"] = members[name]
    path.write_bytes(zip_of(sealed(members)))
    refused(here, path, errors.WrongContent)


@pytest.mark.parametrize("run_id", ["../escaped", "/abs", "", "a" * 65, "a b", 7])
def test_runs_R03_a_run_id_that_is_none_is_refused(
    here: pagefile.Pagefile, sound: Path, run_id: Any
) -> None:
    head = here.store.head()
    with pytest.raises(Invalid, match="new_run_id"):
        restore_from_pack(runs_of(here), sound, new_run_id=run_id)

    assert here.store.head() == head


def test_runs_R01_nothing_beside_the_pack_is_touched(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    """The earlier system deleted the folder that is called as the zip file is."""
    path = tmp_path / "x.zip"
    beside = tmp_path / "x"
    beside.mkdir()
    (beside / "thesis.txt").write_text("three years of work")
    (tmp_path / "temp_load").mkdir()
    for raw in (sound.read_bytes(), b"no zip"):
        path.write_bytes(raw)
        before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
        try:
            restore_from_pack(runs_of(here), path)
        except Invalid:
            assert raw == b"no zip"

        assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before


def test_runs_R04_a_refused_pack_leaves_nothing_that_the_next_restore_adopts(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.zip"
    members = members_of(sound)
    FORGED["ws"](members)
    bad.write_bytes(zip_of(sealed(members)))
    refused(here, bad, errors.WrongContent)
    run = restore_from_pack(runs_of(here), sound)

    assert Runs(here.store).list() == [run.run_id]
    assert len(run.ledger) == verify_pack(sound).events + 1


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_pack_never_gives_a_raw_error_nor_touches_the_store(
    data: st.DataObject, sound: Path, tmp_path: Path
) -> None:
    raw = bytearray(sound.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        what = data.draw(st.sampled_from(["flip", "cut", "insert", "directory"]))
        if what == "flip":
            raw[at] ^= data.draw(st.integers(1, 255))
        elif what == "cut":
            del raw[at : at + data.draw(st.integers(1, 50))]
        elif what == "insert":
            raw[at:at] = data.draw(st.binary(min_size=1, max_size=50))
        elif raw:
            # Most of what can be wrong with an archive is wrong in its directory.
            raw[max(0, len(raw) - 1 - at % 1_200)] ^= data.draw(st.integers(1, 255))
        if not raw:
            break
    path = tmp_path / "fuzzed.zip"
    path.write_bytes(raw)
    with pagefile.open("memory:") as pf:
        head = pf.store.head()
        try:
            run = restore_from_pack(Runs(pf.store), path)
        except PagefileError:
            assert pf.store.head() == head
        else:
            assert run.rebuild()


# The older formats


def old_ws() -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "_update_seq": 7,
        "task_id": "task_123",
        "thread_id": "thread_1",
        "run_id": "run_old",
        "status": "BUSY",
        "objective": "Migrate",
        "acceptance_criteria": [],
        "current_stage": "WORK",
        "next_action": "copy",
        "constraints": ["no downtime"],
        "artifact_refs": [{"type": "file", "id": "a", "sha256": "A" * 64}],
        "blockers": [],
        "last_action_summary": "",
        "pinned_context": [{"id": "p", "content": "pinned"}],
        "sliding_context": [slide(1)],
    }


def old_event(number: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "event_id": f"e{number}",
        "parent_event_id": None,
        "sequence_id": number,
        "event_type": kind,
        "timestamp": "2025-11-05T10:00:00Z",
        "writer_id": "cli",
        "task_id": "task_123",
        "thread_id": "thread_1",
        "run_id": "run_old",
        "payload": payload,
    }


def old_ledger() -> bytes:
    events = [
        old_event(1, "RUN_START", {"config": {"ws_max_tokens": 900, "engine": "x"}}),
        old_event(2, "WS_UPDATE_APPLIED", {"new_seq": 1}),
        old_event(2, "WS_UPDATE_APPLIED", {"new_seq": 7}),
        old_event(4, "MILESTONE", {"reason": "manual"}),
    ]
    return b"".join(json.dumps(event).encode() + b"\n" for event in events) + b"\n"


def old_episode() -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "episode_id": "ep_" + "a" * 32,
        "created_at": "2025-11-05T10:00:00Z",
        "summary": "Event counts",
        "ws_before": {},
        "ws_after": old_ws(),
        "memory_commits": [],
        "next_entry_point": "",
    }


def old_members() -> dict[str, bytes]:
    ws = json.dumps(old_ws(), indent=2).encode() + b"\n"
    members = {
        "state/working_set.v2.1.json": ws,
        "ledger/run.v2.1.jsonl": old_ledger(),
        f"episodes/ep_{'a' * 32}.v2.1.json": json.dumps(old_episode()).encode(),
    }
    manifest = {
        "_schema_version": "2.1",
        "pack_id": "pack_" + "b" * 32,
        "created_at": "2025-11-05T10:00:00Z",
        "compatible_engine_versions": ["aos-context/2.1.0"],
        "files": {name: hashlib.sha256(raw).hexdigest() for name, raw in members.items()},
        "pointers": {"ledger_last_seq": 4},
    }
    return members | {MANIFEST: json.dumps(manifest).encode()}


def assert_goes_on(run: Run, seq: int = 0) -> None:
    assert run.load() == old_ws() | {"run_id": run.run_id, "_update_seq": seq}
    assert run.update(lambda _: {"status": "DONE"}).ok
    assert run.milestone("new").episode_id in run.episodes.list()
    assert run.rebuild()


@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_simple_pack_of_the_earlier_system_is_read(
    pf: pagefile.Pagefile, tmp_path: Path, with_ledger: bool
) -> None:
    members = {"working_set.json": json.dumps(old_ws(), indent=2).encode() + b"\n"}
    if with_ledger:
        members["run.jsonl"] = old_ledger()
    path = tmp_path / "task_task_123_resume_20251105_100000.zip"
    path.write_bytes(zip_of(members))
    report = verify_pack(path)
    run = restore_from_pack(runs_of(pf), path, new_run_id="r2")

    assert (report.format, report.seq, report.run_id) == ("simple", 7, "run_old")
    assert report.events == (4 if with_ledger else 0)
    assert run.ledger.tail(1)[0]["payload"]["parent_run_id"] == "run_old"
    assert run.config.ws_max_tokens == (900 if with_ledger else 2_000)
    assert Runs(pf.store).open("r2").config == run.config
    assert_goes_on(run)
    again = restore_from_pack(runs_of(pf), create_resume_pack(run, tmp_path))
    assert again.rebuild()
    assert again.load()["status"] == "DONE"


@pytest.mark.parametrize("form", ["folder", "zip", "zip with folders"])
def test_a_manifest_pack_of_the_earlier_system_is_read(
    pf: pagefile.Pagefile, tmp_path: Path, form: str
) -> None:
    path, members = tmp_path / ("pack_" + "b" * 32), old_members()
    if form == "folder":
        for name, raw in members.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(raw)
    else:
        folders = {"state/": b"", "ledger/": b"", "episodes/": b""} if "folders" in form else {}
        path.write_bytes(zip_of(folders | members))
    report = verify_pack(path)
    run = restore_from_pack(runs_of(pf), path, new_run_id="r2")
    events = list(run.ledger)

    assert (report.format, report.events, report.episodes) == ("manifest", 4, 1)
    assert run.episodes.get("ep_" + "a" * 32) == old_episode()
    assert run.episodes.list() == ["ep_" + "a" * 32]
    assert [event["event_id"] for event in events[:4]] == ["e1", "e2", "e2", "e4"]
    assert events[0]["timestamp"] == "2025-11-05T10:00:00Z"
    assert [event["sequence_id"] for event in events] == list(range(1, len(events) + 1))
    assert events[-2]["payload"]["parent"]["at_seq"] == 7
    assert_goes_on(run)


def test_runs_R10_an_older_pack_is_held_to_its_manifest_too(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    path = tmp_path / "old.zip"
    state = "state/working_set.v2.1.json"
    manifest = json.loads(old_members()[MANIFEST])
    newer = json.dumps(manifest | {"compatible_engine_versions": ["aos-context/3.0"]}).encode()
    cases: list[tuple[dict[str, bytes], type[PagefileError]]] = [
        (old_members() | {state: old_members()[state] + b" "}, errors.WrongDigest),
        (old_members() | {state: b"{}"}, errors.WrongDigest),
        (old_members() | {MANIFEST: newer}, errors.NewerPack),
        (old_members() | {"artifacts/x": b""}, errors.UnknownMember),
        ({"working_set.json": b"{}"}, errors.WrongContent),
        ({"working_set.json": b"{}", "x": b""}, errors.UnknownMember),
        ({"run.jsonl": b""}, errors.NotAPack),
    ]
    for members, kind in cases:
        path.write_bytes(zip_of(members))

        refused(here, path, kind)


def test_runs_R02_a_link_in_an_older_pack_s_folder_is_refused(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    path = tmp_path / "old"
    for name, raw in old_members().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(raw)
    (path / "ledger" / "run.v2.1.jsonl").unlink()
    (path / "ledger" / "run.v2.1.jsonl").symlink_to("/etc/passwd")

    refused(here, path, errors.LinkMember)


def test_a_link_put_into_a_folder_after_it_was_looked_at_is_not_followed(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "old", tmp_path / "elsewhere"
    for name, raw in old_members().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(raw)
    name = "ledger/run.v2.1.jsonl"
    elsewhere.write_bytes((path / name).read_bytes())
    with open_members(path, PackLimits()) as members:
        (path / name).unlink()
        (path / name).symlink_to(elsewhere)

        with pytest.raises(errors.DamagedPack, match="symbolic link"):
            members.read(name)


def simple_pack(path: Path, ws: dict[str, Any], ledger: bytes | None = None) -> Path:
    members = {"working_set.json": json.dumps(ws).encode()}
    if ledger is not None:
        members["run.jsonl"] = ledger
    path.write_bytes(zip_of(members))
    return path


def test_times_that_the_earlier_system_took_are_brought_into_form(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    times = ["not-a-date", "2025-11-05T10:00:00", "2025-11-05 10:00:00.5", "2025-11-05T10:00:00Z"]
    items = [slide(n) | {"timestamp": time} for n, time in enumerate(times)]
    event = old_event(1, "TOOL_CALL", {"tool_name": "t"}) | {"timestamp": "2025-11-05T10:00:00"}
    path = simple_pack(
        tmp_path / "old.zip",
        old_ws() | {"sliding_context": items},
        json.dumps(event).encode(),
    )
    report = verify_pack(path)
    run = restore_from_pack(runs_of(here), path, new_run_id="r2")

    assert [item["timestamp"] for item in run.load()["sliding_context"]] == [
        "1970-01-01T00:00:00Z",
        "2025-11-05T10:00:00Z",
        "2025-11-05T10:00:00.500000Z",
        "2025-11-05T10:00:00Z",
    ]
    assert run.ledger.read(limit=1)[0]["timestamp"] == "2025-11-05T10:00:00Z"
    assert len(report.normalised) == 4
    assert "sliding_context.0: timestamp 'not-a-date' became 1970" in report.normalised[0]
    start = run.ledger.read(event_type="RUN_START")[0]
    assert start["payload"]["parent"]["normalised"] == list(report.normalised)
    assert run.update(lambda _: {"status": "DONE"}).ok
    assert run.rebuild()


def test_runs_W10_items_of_one_id_in_an_older_pack_get_ids_of_their_own(
    here: pagefile.Pagefile, tmp_path: Path
) -> None:
    same, other = slide(1), slide(1) | {"content": "other"}
    taken = slide(1) | {"id": "s1-2"}
    refs = [{"type": "file", "id": "a"}, {"type": "url", "id": "a"}]
    ws = old_ws() | {"sliding_context": [same, same, other, taken, other], "artifact_refs": refs}
    path = simple_pack(tmp_path / "old.zip", ws)
    report = verify_pack(path)
    run = restore_from_pack(runs_of(here), path, new_run_id="r2")
    ids = [(item["id"], item["content"]) for item in run.load()["sliding_context"]]

    assert ids == [
        ("s1", same["content"]),
        ("s1-3", "other"),
        ("s1-2", taken["content"]),
        ("s1-4", "other"),
    ]
    assert [ref["id"] for ref in run.load()["artifact_refs"]] == ["a", "a-2"]
    assert len(report.normalised) == 4
    assert run.rebuild()


@pytest.mark.parametrize("glued", [False, True])
def test_runs_L06_a_torn_line_of_an_older_ledger_is_left_out_and_told(
    here: pagefile.Pagefile, tmp_path: Path, glued: bool
) -> None:
    lines = old_ledger().splitlines(keepends=True)
    torn = lines[3][:-30]
    ledger = b"".join([*lines[:3], torn, *(lines[2:3] if glued else [])])
    path = simple_pack(tmp_path / "old.zip", old_ws(), ledger)
    report = verify_pack(path)
    run = restore_from_pack(runs_of(here), path, new_run_id="r2")

    assert report.events == 3
    assert report.normalised == ("run.jsonl:4 was torn by a crash, and is left out",)
    assert [event["event_id"] for event in run.ledger][:3] == ["e1", "e2", "e2"]
    assert_goes_on(run)


@pytest.mark.parametrize("ledger", [b"no event\n", b"[]\n", b"{}\n", old_ledger() + b"7\n"])
def test_what_was_never_an_event_is_still_refused_in_an_older_ledger(
    here: pagefile.Pagefile, tmp_path: Path, ledger: bytes
) -> None:
    path = simple_pack(tmp_path / "old.zip", old_ws(), ledger)

    refused(here, path, errors.WrongContent)


SECRET = "hunter2-very-secret"


@pytest.mark.parametrize("form", ["simple", "manifest", "run folder"])
def test_runs_L10_secrets_in_an_older_pack_are_not_taken_in(tmp_path: Path, form: str) -> None:
    config = {"ws_max_tokens": 900, "llm_config": {"api_key": SECRET, "model_name": "m"}}
    call = {"tool_name": "t", "arguments": {"password": SECRET, "n": 1}}
    events = [old_event(1, "RUN_START", {"config": config}), old_event(2, "TOOL_CALL", call)]
    ledger = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    path = tmp_path / "packs" / "old"
    path.parent.mkdir()
    if form == "simple":
        simple_pack(path, old_ws(), ledger)
    else:
        episode = old_episode() | {"ws_before": {"token": SECRET}}
        members = old_members() | {
            "ledger/run.v2.1.jsonl": ledger,
            f"episodes/ep_{'a' * 32}.v2.1.json": json.dumps(episode).encode(),
        }
        members = sealed(members)
        if form == "run folder":
            del members[MANIFEST]
        for name, raw in members.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(raw)
    assert found_in(tmp_path / "packs", SECRET)
    (tmp_path / "after").mkdir()
    with pagefile.open(tmp_path / "after" / "s.db") as pf:
        run = pf.runs.restore_from_pack(path, new_run_id="r2")
        run.create_resume_pack(tmp_path / "after")
        with (tmp_path / "after" / "l.jsonl").open("w") as file:
            run.ledger.export_jsonl(file)

        assert run.config.ws_max_tokens == 900
        assert run.ledger.read()[0]["payload"]["config"]["llm_config"]["model_name"] == "m"
        assert run.ledger.read()[1]["payload"]["arguments"]["n"] == 1
    assert not found_in(tmp_path / "after", SECRET)


def test_runs_L10_secrets_in_an_exported_ledger_or_a_pack_are_not_taken_in(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    exported = tmp_path / "before" / "l.jsonl"
    config = RunConfig(token_counter="chars/4", ws_max_tokens=1_234)
    with pagefile.open("memory:") as pf:
        run = pf.runs.boot("o", run_id="r1", settings={"llm": {"key_of": "k"}}, config=config)
        run.log("TOOL_CALL", {"tool_name": "t", "arguments": {"page": 1}})
        run.update(lambda _: {"status": "BUSY"})
        with exported.open("w") as file:
            run.ledger.export_jsonl(file)
        members = members_of(run.create_resume_pack(tmp_path / "before"))
    edited = exported.read_text().replace('"page": 1', f'"api_key": "{SECRET}"')
    exported.write_text(edited)
    leaky = members["ledger.jsonl"].replace(b'"page":1', f'"api_key":"{SECRET}"'.encode())
    pack = tmp_path / "before" / "leaky.zip"
    pack.write_bytes(zip_of(sealed(members | {"ledger.jsonl": leaky})))
    assert exported.read_text().count(SECRET) == leaky.decode().count(SECRET) == 1
    with pagefile.open(tmp_path / "after" / "s.db") as pf:
        for made in (pf.runs.import_jsonl(exported), pf.runs.restore_from_pack(pack)):
            made.create_resume_pack(tmp_path / "after")
            with (tmp_path / "after" / f"{made.run_id}.jsonl").open("w") as file:
                made.ledger.export_jsonl(file)

            assert made.ledger.read()[1]["payload"]["arguments"] == {"api_key": "[redacted]"}
            assert pf.runs.open(made.run_id).config == config
            assert made.rebuild()
    assert not found_in(tmp_path / "after", SECRET)


def found_in(folder: Path, text: str) -> bool:
    """Whether any byte of the files below holds it, packs unpacked."""
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        raw = [file.read_bytes()]
        if zipfile.is_zipfile(file):
            raw += members_of(file).values()
        if any(text.encode() in each for each in raw):
            return True
    return False


# Type confusion: a member has, in one place, what no pack has there


def confusions(value: Any) -> Iterator[Any]:
    """The value with something of another type in one of its places, each in turn."""
    for number, at in enumerate(places(value)):
        for wrong in wrong_at(number):
            yield with_(value, at, wrong)


def confused_members(members: dict[str, bytes]) -> Iterator[tuple[str, Any, dict[str, bytes]]]:
    """The pack with one member confused, and a manifest that has its digest, if it has one."""
    for name, raw in members.items():
        if name == MANIFEST:
            continue
        seen = set()
        lines = raw.splitlines() if name.endswith(".jsonl") else [raw]
        for number, line in enumerate(lines):
            said = json.loads(line or "{}")
            # Of lines that are alike, one.
            form = tuple(places(said)), said.get("event_type")
            if not said or form in seen:
                continue
            seen.add(form)
            for changed in confusions(said):
                made = [*lines[:number], json.dumps(changed).encode(), *lines[number + 1 :]]
                whole = members | {name: b"\n".join(made) + b"\n"}
                yield name, changed, sealed(whole) if MANIFEST in members else whole


def taken_in_strangely(
    pf: pagefile.Pagefile, pack: Path, again: Path, members: dict[str, bytes]
) -> str:
    """What is wrong about how a pack was taken in; "" when it was refused, or is whole."""
    pack.write_bytes(zip_of(members))
    before = pf.store.head()
    try:
        run = restore_from_pack(runs_of(pf), pack)
    except PagefileError as error:
        return "" if pf.store.head() == before else f"stored in part: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a refusal
        return f"not refused: {error!r}"
    try:
        run.load()
        assert list(run.ledger)
        for episode in run.episodes.list():
            run.episodes.get(episode)
        create_resume_pack(run, again)
    except Exception as error:  # noqa: BLE001 - what was taken in has to be readable
        return f"taken in and then unreadable: {error!r}"
    return ""


@pytest.mark.parametrize("form", ["ours", "manifest", "simple"])
def test_a_confused_member_of_a_pack_is_refused_or_read_again(
    here: pagefile.Pagefile, sound: Path, tmp_path: Path, form: str
) -> None:
    simple = {"working_set.json": json.dumps(old_ws()).encode(), "run.jsonl": old_ledger()}
    members = {"ours": members_of(sound), "manifest": old_members(), "simple": simple}[form]
    pack, again = tmp_path / "confused.zip", tmp_path / "again"
    found, count = [], 0
    for name, changed, made in confused_members(members):
        count += 1
        if wrong := taken_in_strangely(here, pack, again, made):
            found.append((name, changed, wrong))

    assert count > 100
    assert [(name, wrong, str(changed)[:300]) for name, changed, wrong in found] == []

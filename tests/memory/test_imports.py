"""Type confusion: what is imported has, in each place, what an export never has there."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import pagefile
from pagefile import Episode, Fact, PagefileError
from pagefile.surfaces.cli import main
from pagefile.surfaces.cli.call import INTERNAL
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from tests.runs.ground import places, with_, wrong_at

pytestmark = pytest.mark.filterwarnings(
    "ignore::pagefile.memory.privacy.isolation.IsolationWarning"
)

TYPES = ["Decimal", "dict", "pagefile.memory.episodes.episode:Episode", "nowhere:Nothing"]
MCR = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "fact",
    "scope": "user",
    "content": "likes tea",
    "confidence": 0.9,
    "rationale": "said so",
    "source_refs": ["t/0"],
    "user_id": "ann",
}


def confused(lines: list[Any], kind: Callable[[Any], Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The lines with one wrong value in one of them; each place of each kind of line once."""
    seen = set()
    for number, line in enumerate(lines):
        for at in places(line):
            if (kind(line), at) in seen:
                continue
            seen.add((kind(line), at))
            for wrong in wrong_at(len(seen)):
                yield (kind(line), at, wrong), with_(lines, (number, *at), wrong)
        if isinstance(line, dict) and "value" in line:
            for name in TYPES:
                yield (kind(line), "type", name), with_(lines, (number,), line | {"type": name})


def fill(pf: pagefile.Pagefile) -> None:
    """Something of every kind for ann."""
    memory = pf.memory
    memory.remember(Episode(session_id="s", user_id="ann", input="I like tea", output="noted"))
    memory.update_block("persona", "kind", user_id="ann")
    facts = [Fact(subject="ann", predicate=each, object="tea", user_id="ann") for each in "ab"]
    first, _ = memory.facts.append_many(facts)
    memory.facts.retract(first, reason="no", user_id="ann")
    memory.facts.alias("Annie", "ann", user_id="ann")
    batch = pf.items.propose([MCR], user_id="ann").batch_id
    pf.items.commit(batch, reviewer="carl")
    pf.context.append("t", {"text": "hi"}, "a", "b", "own", True, "use", "todo", user_id="ann")
    pf.registry.register_thread("t", "a", "b", user_id="ann")
    run = pf.runs.boot("o", ["a"], ["c"], user_id="ann", run_id="r", thread_id="t")
    run.apply_patch({"_schema_version": "2.1", "expected_seq": 0, "set": {"next_action": "x"}})
    run.milestone("m")
    run.rollback(0)
    memory.recall("tea", user_id="ann")


def sealed(lines: list[Any]) -> list[bytes]:
    """An export of these lines, with the digests that belong to it."""
    made: list[bytes] = []
    for line in lines:
        raw = json.dumps(line).encode()
        if made and isinstance(line, dict) and line:
            digest = hashlib.sha256(raw).hexdigest().encode()
            raw = raw[:-1] + b',"sha256":"' + digest + b'"}'
        made.append(raw + b"\n")
    whole = hashlib.sha256(b"".join(made)).hexdigest()
    end = {"end": "pagefile-export", "lines": len(made), "sha256": whole}
    return [*made, json.dumps(end).encode() + b"\n"]


def strange(pf: pagefile.Pagefile, which: Any, take_in: Callable[[], object]) -> list[Any]:
    """What is wrong about how something confused was taken in."""
    before = pf.store.head()
    try:
        take_in()
    except PagefileError as error:
        return [] if pf.store.head() == before else [(which, "stored in part", error)]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not a refusal
        return [(which, error)]
    return []


@pytest.mark.parametrize("own_only", [False, True])
def test_a_confused_export_is_refused_and_nothing_of_it_is_stored(own_only: bool) -> None:
    with pagefile.open("memory:") as pf:
        fill(pf)
        lines = [json.loads(line) for line in pf.memory.export(user_id="ann")][:-1]
    for line in lines:
        line.pop("sha256", None)
    found, count = [], 0
    for which, changed in confused(lines, lambda line: line.get("name", "").split("/")[0]):
        count += 1
        with pagefile.open("memory:") as pf:
            found += strange(
                pf,
                which,
                lambda: pf.memory.import_(sealed(changed), own_only=own_only),  # noqa: B023
            )

    assert count > 500
    assert found == []


def test_a_confused_ledger_is_refused_and_nothing_of_it_is_stored(tmp_path: Path) -> None:
    told = io.StringIO()
    with pagefile.open("memory:") as pf:
        fill(pf)
        pf.runs.open("r").ledger.export_jsonl(told)
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    file, found, count = tmp_path / "run.jsonl", [], 0
    with pagefile.open("memory:") as pf:
        for which, changed in confused(lines, lambda line: line["event_type"]):
            count += 1
            file.write_text("".join(json.dumps(line) + "\n" for line in changed))
            found += strange(pf, which, lambda: pf.runs.import_jsonl(file))

    assert count > 200
    assert found == []


def confused_packs(folder: Path) -> Iterator[tuple[Any, bytes]]:
    """A pack with another manifest in turn; it has the digests that belong to it."""
    with pagefile.open("memory:") as pf:
        fill(pf)
        pack = pf.runs.open("r").create_resume_pack(folder / "packs")
    with zipfile.ZipFile(pack) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest_name = next(name for name in members if "manifest" in name)
    manifest = json.loads(members[manifest_name])
    for which, changed in confused([manifest], lambda _: "manifest"):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, raw in members.items():
                is_it = name == manifest_name
                archive.writestr(name, json.dumps(changed[0]) if is_it else raw)
        yield which, made.getvalue()


def test_a_confused_pack_is_refused_and_nothing_of_it_is_stored(tmp_path: Path) -> None:
    file, found, count = tmp_path / "confused.zip", [], 0
    with pagefile.open("memory:") as pf:
        for which, made in confused_packs(tmp_path):
            count += 1
            file.write_bytes(made)
            found += strange(pf, which, lambda: pf.runs.restore_from_pack(file))

    assert count > 50
    assert found == []


# The same through the server and the command line: each gives its own refusal.


IMPORTERS = {
    "export": ("/v1/import", "application/x-ndjson"),
    "ledger": ("/v1/runs/import", "application/x-ndjson"),
    "pack": ("/v1/packs", "application/zip"),
}


def exported() -> dict[str, list[Any]]:
    """The lines of what two importers take, by the name of each."""
    told = io.StringIO()
    with pagefile.open("memory:") as pf:
        fill(pf)
        lines = [json.loads(line) for line in pf.memory.export(user_id="ann")][:-1]
        pf.runs.open("r").ledger.export_jsonl(told)
    for line in lines:
        line.pop("sha256", None)
    return {"export": lines, "ledger": [json.loads(line) for line in told.getvalue().splitlines()]}


def confused_bytes(name: str, folder: Path) -> Iterator[tuple[Any, bytes]]:
    if name == "pack":
        yield from confused_packs(folder)
        return
    kinds: dict[str, Callable[[Any], Any]] = {
        "export": lambda line: line.get("name", "").split("/")[0],
        "ledger": lambda line: line["event_type"],
    }
    for which, lines in confused(exported()[name], kinds[name]):
        plain = [json.dumps(line).encode() + b"\n" for line in lines]
        yield which, b"".join(sealed(lines) if name == "export" else plain)


def some(name: str, folder: Path) -> Iterator[tuple[Any, bytes]]:
    """Some of what confuses an importer; every one in a soak."""
    every = 1 if os.environ.get("PAGEFILE_SOAK") == "1" else 7
    return itertools.islice(confused_bytes(name, folder), 0, None, every)


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_confused_import_over_http_is_the_clients_fault(name: str, tmp_path: Path) -> None:
    settings = ServerConfig(
        url="memory:", local=True, packs_dir=f"{tmp_path}/packs", log_level="error"
    )
    path, header = IMPORTERS[name]
    count, found = 0, []
    with TestClient(make_app(settings), base_url="http://127.0.0.1:8000") as client:
        for which, body in some(name, tmp_path):
            count += 1
            answer = client.post(path, content=body, headers={"content-type": header})
            if answer.status_code >= 500 or "Traceback" in answer.text:
                found.append((which, answer.status_code, answer.text[:300]))

    assert count > 5
    assert found == []


@pytest.mark.parametrize("name", IMPORTERS)
def test_a_confused_import_by_command_is_refused_in_words(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "given"
    command = {"export": ["import"], "ledger": ["import", "--ledger"], "pack": ["restore"]}[name]
    words = [*command, str(file), "--url", "memory:"]
    count = 0
    found: list[Any] = []
    for which, body in some(name, tmp_path):
        count += 1
        file.write_bytes(body)
        try:
            status = main(words)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not a refusal
            found.append((which, "raised", repr(error)))
            continue
        told = "".join(capsys.readouterr())
        if status == INTERNAL or "Traceback" in told:
            found.append((which, status, told[-300:]))

    assert count > 5
    assert found == []

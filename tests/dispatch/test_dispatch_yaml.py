"""organism.yaml: every key has an effect, everything else is an error with line and key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pagefile import Invalid, NotFound, PagefileError
from pagefile.dispatch.listener import DispatchLimits, Retry
from pagefile.dispatch.organism_file import check, load
from pagefile.dispatch.workers.pool import ProcessPool
from tests.dispatch import cpu as dispatch_cpu
from tests.dispatch.ground import ANN, Ask, Told, run
from tests.runs.ground import WRONG, places, with_

WHOLE = """\
organism:
  name: desk
  register_calls: true
backend:
  url: {folder}/desk.db
  tenant: acme
process_pool:
  workers: 2
  max_tasks_per_child: 7
  grace_seconds: 5
limits:
  max_concurrent_handlers: 3
  thread_scheduling: depth-first
  lease_seconds: 4.5
prompts:
  short: Be brief.
  long:
    file: long.txt
listeners:
  - name: forward
    payload_class: tests.dispatch.ground:Ask
    handler: tests.dispatch.cpu.forward
    description: Passes on.
    agent: true
    peers: [echo]
    prompt: long
    timeout_seconds: 12
    retry: {{attempts: 2, pause: 0.5, factor: 2, most: 9}}
  - name: echo
    payload_class: tests.dispatch.ground.Ask
    handler: tests.dispatch.ground:echo
    broadcast: true
  - name: compute
    payload_class: tests.dispatch.ground:News
    handler: tests.dispatch.cpu:compute
    cpu_bound: true
"""
SMALL = """\
organism: {name: small}
backend: {url: "memory:"}
listeners:
  - {name: echo, payload_class: "tests.dispatch.ground:Ask", handler: "tests.dispatch.ground:echo"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "long.txt").write_text("Be thorough.", encoding="utf-8")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    file = folder / "organism.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def complaints(folder: Path, text: str) -> list[str]:
    return [str(problem) for problem in check(written(folder, text))]


def test_every_key_has_its_effect(folder: Path) -> None:
    file = written(folder, WHOLE.format(folder=folder))
    assert check(file) == []
    found = load(file)

    assert (found.name, found.url, found.tenant) == ("desk", f"{folder}/desk.db", "acme")
    assert found.register_calls is True
    assert found.process_pool == ProcessPool(2, 7, 5)
    assert found.limits == DispatchLimits(
        max_concurrent_handlers=3, thread_scheduling="depth-first", lease_seconds=4.5
    )
    forward, echo, compute = found.listeners
    assert forward.handler is dispatch_cpu.forward
    assert (forward.agent, forward.peers, forward.timeout) == (True, frozenset({"echo"}), 12.0)
    assert (forward.prompt, forward.description) == ("Be thorough.", "Passes on.")
    assert forward.retry == Retry(2, 0.5, 2, 9)
    assert (echo.payload, echo.broadcast, echo.mode) == ((Ask,), True, "async")
    assert (compute.mode, compute.entry) == ("pool", "tests.dispatch.cpu:compute")


def test_threads_W04_the_section_alone_turns_the_pool_on(folder: Path) -> None:
    text = WHOLE.format(folder=folder)
    off = text.replace("process_pool:\n", "process_pool:\n  enabled: false\n")

    assert load(written(folder, text)).process_pool is not None
    assert any("needs a process_pool" in line for line in complaints(folder, off))


def test_threads_W08_the_organism_of_a_file_runs(folder: Path) -> None:
    async def story() -> None:
        found = load(written(folder, WHOLE.format(folder=folder)))
        async with found.organism() as organism:
            answer = await organism.ask(Ask("x"), "forward", caller=ANN)

        assert answer.payload == Told("x")

    run(story())


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("{name: small}", "{nmae: small}", "line 1: organism.nmae: unknown key"),
        ("backend:", "backed:", "line 2: backed: unknown key"),
        ('url: "memory:"', 'type: "memory"', "line 2: backend.type: unknown key"),
        ("name: echo,", "name: echo, tool: 1,", "line 4: listeners[0].tool: unknown key"),
        ("name: small", "name: 7", "line 1: organism.name: 7 is no text"),
        ("name: small", "name: a, name: b", "line 1: organism.name: is given twice"),
        ("name: echo,", "name: echo, agent: sure,", "listeners[0].agent: 'sure' is no truth"),
        ("name: echo,", "name: echo, peers: [ghost],", "there is no listener 'ghost'"),
        ("name: echo,", "name: echo, prompt: ghost,", "there is no prompt 'ghost'"),
        ("name: echo,", "name: echo, timeout_seconds: 0,", "timeout"),
        ("name: echo,", "name: system.echo,", "belongs to the organism"),
        ("name: echo,", "name: echo, retry: {attempts: 0},", "retry.attempts"),
        (":echo", ":nothing", "listeners[0].handler: cannot be imported"),
        (
            "tests.dispatch.ground:Ask",
            "nowhere:Ask",
            "listeners[0].payload_class: cannot be imported",
        ),
        ("listeners:", "limits: {max_depth: 0}\nlisteners:", "line 3: limits.max_depth"),
        ("listeners:", "limits: {thread_scheduling: fifo}\nlisteners:", "use 'breadth-first'"),
        ("listeners:", "process_pool: {}\nlisteners:", "line 3: process_pool: needs a store"),
        ("listeners:", "prompts: {a: {file: ../x}}\nlisteners:", "outside the folder"),
        ("organism:", "organism: [", "line 2"),
        ("organism:", "url: memory: x\norganism:", "put quotes around text with a colon"),
        ("listeners:", " listeners:", "begin in the same column"),
        ("memory:", "postgresql://u:secret@h/d", "line 2: backend.url: holds a password"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_key(
    folder: Path, old: str, new: str, complaint: str
) -> None:
    found = complaints(folder, SMALL.replace(old, new, 1))

    assert [line for line in found if complaint in line], found
    assert not [line for line in found if "secret" in line]
    with pytest.raises(Invalid):
        load(folder / "organism.yaml")


def test_all_errors_are_found_at_once(folder: Path) -> None:
    text = SMALL.replace("name: small", "nmae: small").replace(":echo", ":nothing")

    assert len(complaints(folder, text)) == 3


def test_yaml_cannot_make_objects(folder: Path) -> None:
    text = SMALL.replace("name: small", "name: !!python/object/apply:os.getcwd []")

    assert complaints(folder, text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SMALL.replace("small", "!!int x").encode(), "line 1: organism.name: 'x' is no int"),
        (SMALL.replace("small", "!!int ''").encode(), "line 1: organism.name: '' is no int"),
        (SMALL.replace("small", "!!bool x").encode(), "line 1: organism.name: 'x' is no bool"),
        (
            SMALL.replace("small", "!!timestamp 2020-13-01").encode(),
            "line 1: organism.name: '2020-13-01' is no timestamp",
        ),
        (SMALL.replace("small", "!!timestamp x").encode(), "line 1: organism.name: 'x' is no"),
        (SMALL.replace("small", "9" * 5_000).encode(), "line 1: organism.name"),
        (SMALL.replace("tests.dispatch.ground:Ask", ".a:b").encode(), "cannot be imported"),
        (SMALL.replace("memory:", "http://[").encode(), "line 2: backend.url: is no address"),
        (SMALL.encode() + b"\xff\x99", "is no text"),
        (b"a: 1\nb: \xff\x99", "line 2: is no text"),
        (b"a: 1\nb: \x00", "line 2: is no text"),
        (b"a: 1\nb: " + b"[" * 20_000, "line 2: is nested too deep"),
        (b"- " * 20_000, "line 1: is nested too deep"),
        (b"a: 1\n? &a [*a]\n: 1", "line 2: a key is no text"),
        (b"a: &a {b: *a}", "is nested too deep"),
        (
            b"".join(
                b"a%d: &a%d [%s]\n" % (n, n, b"*a%d, " % (n - 1) * 10) for n in range(1, 9)
            ).replace(b"*a0", b"1"),
            "has more than 100000 values",
        ),
    ],
    ids=lambda given: str(given)[:40],
)
def test_no_file_makes_the_check_fail(folder: Path, text: bytes, complaint: str) -> None:
    (folder / "organism.yaml").write_bytes(text)
    found = [str(problem) for problem in check(folder / "organism.yaml")]

    assert [line for line in found if complaint in line], found
    with pytest.raises(Invalid):
        load(folder / "organism.yaml")


def test_a_missing_file_is_not_found(folder: Path) -> None:
    with pytest.raises(NotFound):
        check(folder / "none.yaml")


def test_the_address_may_come_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEFILE_URL", str(folder / "env.db"))
    monkeypatch.setenv("PAGEFILE_TENANT", "env")
    found = load(written(folder, SMALL.replace('backend: {url: "memory:"}\n', "")))

    assert (found.url, found.tenant) == (str(folder / "env.db"), "env")


def test_threads_S06_S07_dispatch_is_imported_from_anywhere_with_nothing_beside_it(
    tmp_path: Path,
) -> None:
    program = (
        "import sys, pagefile.dispatch as d; [getattr(d, n) for n in d.__all__]; "
        "print([m for m in ('yaml', 'dask', 'lxml', 'termcolor') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_a_confused_file_is_refused_with_its_line_or_makes_an_organism(folder: Path) -> None:
    whole = yaml.safe_load(WHOLE.format(folder=folder))
    found, refused, count = [], 0, 0
    for at in places(whole):
        for wrong in WRONG:
            count += 1
            # JSON is YAML; one key on each line.
            file = written(folder, json.dumps(with_(whole, at, wrong), indent=1))
            try:
                problems = check(file)
                if problems:
                    refused += 1
                    assert all(problem.line for problem in problems)
                else:
                    load(file).organism()
            except PagefileError as error:
                found.append((at, wrong, f"checked, and then refused: {error}"))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is not a refusal
                found.append((at, wrong, f"not refused: {error!r}"))

    assert refused > count / 2 > 100
    assert found == []

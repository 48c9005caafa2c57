"""The command line: what it prints, what it refuses, and with which status it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pagefile
from pagefile import Append, Options
from pagefile.handle import machine_clock
from pagefile.settings import IN_FILE, SHARED_URLS, VARIABLES, Settings
from pagefile.surfaces.cli import EXIT_STATUS, main
from pagefile.surfaces.cli import screen as screens
from pagefile.surfaces.cli.commands.help import described, everywhere, statuses
from pagefile.surfaces.cli.registry import ALIASES, HOOKS, loaded
from pagefile.testing.memory.fixtures import item_request
from tests import ROOT
from tests.servers.ports import free_port

PAGE = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
ENVELOPE = {"status", "command", "duration_ms", "scope", "count", "data"}
#: Variables that would lead a test elsewhere.
OURS = (
    "PAGEFILE_",
    "DATABASE_URL",
    "REDIS_URL",
    "QDRANT_",
    "AOS_RUNS_ROOT",
    "OPENAI_",
    "MEMORY_FILE_PATH",
)
COMMAND = [sys.executable, "-m", "pagefile"]


class Ran(NamedTuple):
    """How one command ended."""

    status: int
    out: str
    err: str

    @property
    def told(self) -> Any:
        return json.loads(self.out)

    @property
    def data(self) -> Any:
        return self.told["data"]


class Keyboard(io.TextIOWrapper):
    """Standard input with a person behind it."""

    def isatty(self) -> bool:
        return True


Cli = Callable[..., Ran]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and no settings but one: words alone, so that no model is loaded."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "none")
    return tmp_path


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process."""

    def run(*words: str, stdin: str | bytes | None = None) -> Ran:
        raw = stdin.encode() if isinstance(stdin, str) else stdin or b""
        kind = Keyboard if stdin is None else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(raw), encoding="utf-8"))
        status = main(words)
        return Ran(status, *capsys.readouterr())

    return run


# What there is


def test_every_command_of_the_plan_is_there() -> None:
    wanted = [
        "init",
        "add",
        "search",
        "list",
        "get",
        "update",
        "forget",
        "threads",
        "tail",
        "runs",
        "ledger",
        "pack",
        "restore",
        "mcp",
        "verify",
        "check",
        "copy",
        "keys",
        "serve",
        "reindex",
        "export",
        "import",
        "doctor",
        "demo",
        "bench",
        "config",
    ]

    assert [name for name in wanted if name not in {hook.name for hook in HOOKS}] == []
    assert {"pack verify", "pack create"} <= {each["name"] for each in described()}


def test_other_names_of_commands_do_the_same_and_are_in_the_reference(cli: Cli) -> None:
    cli("remember", "I live in Lisbon.", "-u", "ann", "--id", "e1")
    found = cli("recall", "Lisbon", "-u", "ann", "--json")
    told = {name: cli(name, "--help").out for name in ALIASES}
    gone = cli("delete", "-u", "ann", "--yes", "--json")
    well = cli("status", "--json")

    assert (found.told["command"], found.data[0]["id"]) == ("search", "e1")
    assert (gone.status, gone.told["command"]) == (0, "forget")
    assert (well.status, well.told["command"]) == (0, "doctor")
    assert told == {name: cli(ALIASES[name], "--help").out for name in ALIASES}
    rows = dict(re.findall(r"^\| `pagefile (\w+)` \| \[`pagefile (\w+)`\]", PAGE, re.M))
    assert rows == ALIASES


def test_the_exit_statuses_stay_what_they_are() -> None:
    assert dict(EXIT_STATUS) == {
        "not_found": 3,
        "conflict": 4,
        "invalid": 5,
        "limit_exceeded": 6,
        "unavailable": 7,
        "corrupt": 8,
        "unsupported": 9,
        "forbidden": 10,
    }
    assert len(set(statuses().values())) == len(statuses())


def section_of(name: str) -> str:
    found = re.search(rf"^### pagefile {re.escape(name)}\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
    return "" if found is None else found[1]


@pytest.mark.parametrize("command", described(), ids=lambda command: str(command["name"]))
def test_every_command_and_option_is_in_the_reference(command: dict[str, Any]) -> None:
    section = section_of(command["name"])
    flags = [flag for option in command["options"] for flag in option["flags"]]
    names = [argument["name"] for argument in command["arguments"]]

    assert section
    assert [each for each in flags + names if f"`{each}" not in section] == []
    known = {*flags, *(flag for option in everywhere() for flag in option["flags"])}
    assert sorted(set(re.findall(r"`(--?[a-z][a-z-]*)", section)) - known) == []


def test_the_options_of_every_command_and_all_statuses_are_in_the_reference() -> None:
    flags = [flag for option in everywhere() for flag in option["flags"]]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", PAGE, re.M))

    assert [flag for flag in flags if f"`{flag}" not in PAGE] == []
    assert rows == {name: str(number) for name, number in statuses().items()}


def test_every_variable_and_every_setting_of_the_file_is_in_the_reference() -> None:
    reference = PAGE + "".join(
        (ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8")
        for name in ("store", "recall")
    )
    variables = {name for names in VARIABLES.values() for name in names} | set(SHARED_URLS)

    assert sorted(name for name in variables if f"`{name}`" not in reference) == []
    assert [name for name in IN_FILE if f"`{name}`" not in PAGE] == []
    fields = {name.partition(".")[0] for name in VARIABLES}
    assert fields == set(Settings.__struct_fields__) - {"origins", "rivals"}


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: str(hook.name))
def test_every_command_says_what_it_does(hook: Any, cli: Cli) -> None:
    command = loaded(hook.name)
    shown = cli(hook.name, "--help")

    assert (command.help or "").strip()
    assert (shown.status, shown.err) == (0, "")
    assert all(flag in shown.out for flag in ("--url", "--json", "--quiet"))


def test_help_as_json_describes_every_command(cli: Cli) -> None:
    ran = cli("help", "--json")
    names = {each["name"] for each in ran.data["commands"]}

    assert ran.status == 0
    assert {"add", "threads fork", "runs boot", "help"} <= names
    assert ran.data["exit_statuses"]["conflict"] == 4
    assert cli("help", "runs").status == 0
    assert cli("help", "nothing").status == EXIT_STATUS["not_found"]


def test_no_command_at_all_shows_the_help(cli: Cli) -> None:
    ran = cli()

    assert (ran.status, "Usage: pagefile" in ran.out, ran.err) == (2, True, "")
    assert cli("--version").out == f"pagefile {pagefile.__version__}\n"


GUIDES = ["README.md", "docs/reference/cli.md", "docs/howto/command-line.md"]
#: What is piped into a command on a page, as far as these pages go.
PIPED = re.compile(r"(?:(echo|printf) (.+?) \| )?pagefile (.+)")


def samples_of(page: str) -> Iterator[tuple[str, list[str]]]:
    """Commands of a page, each with the lines that the page says it prints."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *printed = part.splitlines()
            if "pagefile " in command:
                yield command, printed


@pytest.mark.parametrize("page", GUIDES)
def test_every_command_of_a_page_runs_and_prints_what_the_page_says(page: str, cli: Cli) -> None:
    samples = list(samples_of(page))
    for command, printed in samples:
        found = PIPED.fullmatch(command)
        assert found is not None, command
        how, piped, words = found.groups()
        stdin = None if how is None else "".join(shlex.split(piped)).replace("\\n", "\n")
        ran = cli(*shlex.split(words), stdin=stdin if how != "echo" else f"{stdin}\n")

        assert (command, ran.status) == (command, 0)
        if printed:
            # Where the page has dots, there is a time.
            shape = "\n".join(re.escape(line).replace("…", r"\S+") for line in printed)
            assert re.fullmatch(f"{shape}\n", ran.out), (command, ran.out)
    assert len(samples) >= 3


# One form of answer


def one_of_each() -> list[list[str]]:
    """A command for every command, in an order in which they work."""
    return [
        ["init"],
        ["config"],
        ["doctor"],
        ["add", "I live in Lisbon.", "--id", "e1", "--consolidate"],
        ["add", "--fact", "Ann", "likes", "tea"],
        ["add", "--block", "persona", "Answer briefly."],
        ["update", "e1", "I live in Oslo."],
        ["update", "--block", "persona", "Answer at length."],
        ["search", "Oslo"],
        ["prompt", "Where does Ann live?", "--explain"],
        ["list"],
        ["list", "facts"],
        ["list", "blocks"],
        ["list", "users"],
        ["list", "tenants"],
        ["list", "proposals"],
        ["list", "batches"],
        ["get", "e1"],
        ["get", "--block", "persona"],
        ["consolidate", "--retry-failed"],
        ["threads", "append", "t", "hello"],
        ["threads", "fork", "t", "--id", "t2"],
        ["threads", "show", "t"],
        ["threads"],
        ["threads", "list"],
        ["tail", "t"],
        ["threads", "delete", "t2", "--yes"],
        ["runs", "boot", "Plan a trip", "--id", "r1"],
        ["runs", "patch", "r1", json.dumps(patch(0))],
        ["runs"],
        ["runs", "list"],
        ["runs", "show", "r1"],
        ["runs", "show", "r1", "--at", "0"],
        ["runs", "brief", "r1"],
        ["runs", "milestone", "r1"],
        ["runs", "fork", "r1", "--id", "r2"],
        ["runs", "rebuild", "r1"],
        ["ledger", "r1"],
        ["ledger", "r1", "--last", "-n", "1"],
        ["ledger", "r1", "--export", "ledger.jsonl"],
        ["import", "ledger.jsonl", "--ledger", "--run", "r3"],
        ["pack", "create", "r1", "packs"],
        ["runs", "delete", "r2", "--yes"],
        ["reindex"],
        ["export", "ann.jsonl"],
        ["import", "ann.jsonl"],
        ["mcp", "--compat", "reference", "--export", "graph.jsonl"],
        ["verify"],
        ["check"],
        ["keys", "create", "--name", "laptop", "--right", "read"],
        ["keys", "list"],
        ["organism", "top", "--once"],
        ["migrate", "--check"],
        ["copy", "pagefile.db", "copied.db", "--tenant", "default"],
        ["forget", "--dry-run"],
        ["forget", "--yes"],
        ["help"],
    ]


def test_a_prompt_is_shown_with_what_went_in_and_what_did_not(cli: Cli) -> None:
    cli("init")
    for text in ("I live in Lisbon.", "My salary is 50000."):
        cli("add", text, "-u", "ann")
    cli("add", "--fact", "Ann", "likes", "tea", "-u", "ann")
    cli("threads", "append", "t", "hello there", "-u", "ann")
    cli("runs", "boot", "Plan a trip", "--id", "r1")
    where = "Where does Ann live?"
    alone = cli("prompt", where, "-u", "ann", "--budget", "600", "-q")
    piped = cli("prompt", "-u", "ann", "--budget", "600", "-q", stdin=where)
    told = cli("prompt", "t", where, "-u", "ann", "--explain", "--json", "--system", "Be brief.")
    shown = cli("prompt", "t", where, "-u", "ann", "--explain", "-q").out
    every = cli("prompt", where, "-u", "ann", "--explain", "--unrelated", "-q").out
    of_run = cli("prompt", "--run", "r1", where, "-u", "ann", "-q").out

    assert alone.out.startswith("user (context)\n# From memory\n")
    assert "- I live in Lisbon. (episode" in alone.out
    assert "salary" not in alone.out
    assert alone == piped
    assert [message["role"] for message in told.data["messages"]] == ["system", "user", "user"]
    assert told.data["receipt"]["tokens"] == told.data["tokens"]
    rows = [line.split("\t") for line in shown.splitlines() if "\t" in line]
    cells = {(row[0], row[1], row[4], row[5]) for row in rows}
    assert {
        ("yes", "tail", "-", "-"),
        ("yes", "recall", "-", "I live in Lisbon."),
        ("yes", "recall", "-", "ann likes tea"),
        ("no", "recall", "unrelated", "My salary is 50000."),
    } <= cells
    found = next(row[6] for row in rows if row[5] == "I live in Lisbon.")
    assert cli("get", found, "-u", "ann").status == 0
    assert "- My salary is 50000." in every
    assert "Plan a trip" in of_run
    assert cli("list", "episodes", "-u", "ann", "--json").told["count"] == 2
    assert cli("prompt", "t", where, "--run", "r1").status == 5
    assert cli("prompt", "unknown", where, "-u", "ann").status == 3
    assert cli("prompt", where, "-u", "ann", "--system", "x" * 99, "--budget", "9").status == 6


def test_a_key_is_shown_once_and_let_in_until_it_is_revoked(cli: Cli) -> None:
    cli("init")
    made = cli("keys", "create", "--json").told["data"]
    listed = cli("keys", "list", "--json")
    unasked = cli("keys", "revoke", made["key"]["key_id"])
    gone = cli("keys", "revoke", made["key"]["key_id"], "--yes", "--json")

    assert made["secret"] not in listed.out
    assert [one["key_id"] for one in listed.told["data"]] == [made["key"]["key_id"]]
    assert unasked.status == 5
    assert (gone.status, gone.told["data"]["revoked_at"] is None) == (0, False)
    assert cli("keys", "revoke", "0" * 12, "--yes").status == 3


def test_a_key_that_is_bound_to_a_user_says_to_whom_and_why(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    of_all = cli("keys", "create")
    asked_for = cli("keys", "create", "--user", "bob")
    with (folder / "pagefile.toml").open("a") as file:
        file.write('user = "ann"\n')
    by_file = cli("keys", "create")
    monkeypatch.setenv("PAGEFILE_USER", "")
    unset = cli("keys", "create")

    assert "nothing else" not in of_all.err + unset.err
    assert "bob's, and nothing else (by --user)" in asked_for.err
    assert "ann's, and nothing else (by pagefile.toml" in by_file.err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PAGEFILE_SERVER_MAX_PACKS", "many", "is not a number"),
        ("PAGEFILE_SERVER_WORKERS", "0", "workers"),
        ("PAGEFILE_SERVER_DURABILITY", "hope", "durability"),
        ("PAGEFILE_JWT_ISSUER", "https://issuer", "PAGEFILE_JWT_JWKS"),
        ("PAGEFILE_JWT_BIND_USER", "perhaps", "on or off"),
    ],
)
def test_a_variable_that_no_server_can_be_started_with_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    refused = cli("serve")
    shown = cli("config", "--json")

    assert (refused.status, says in refused.err) == (5, True)
    assert [each["value"] for each in shown.data if each["from"] == name] == [value]


def test_tokens_without_keys_are_refused_before_a_server_starts(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("JWKS", "nowhere.json"), ("ISSUER", "i"), ("AUDIENCE", "a")):
        monkeypatch.setenv(f"PAGEFILE_JWT_{name}", value)
    refused = cli("serve")

    assert (refused.status, "holds no keys" in refused.err) == (5, True)


def patch(seq: int) -> dict[str, Any]:
    return {"_schema_version": "2.1", "expected_seq": seq, "set": {"next_action": "ask"}}


def test_every_command_answers_in_one_envelope_and_in_lines_for_people(cli: Cli) -> None:
    for command in one_of_each():
        ran = cli("--user", "ann", *command, "--json")

        assert (command, ran.status, ran.err) == (command, 0, "")
        assert set(ran.told) == ENVELOPE
        assert ran.told["status"] == "ok"
        beside = {"target": "copied.db"} if command[0] == "copy" else {}
        scope = {"url": "pagefile.db", "tenant": "default", "user": "ann"}
        assert ran.told["scope"] == scope | beside
        assert ran.told["count"] >= 0
        assert " ".join(command).startswith(ran.told["command"])
    for command in one_of_each():
        people = cli("--user", "bob", "--tenant", "other", "--url", "people.db", *command, "-q")

        # Files that the first round wrote are there already.
        wanted = 4 if {"ledger.jsonl", "ann.jsonl", "graph.jsonl", "init"} & set(command) else 0
        if command[0] != "import":
            assert (command, people.status) == (command, wanted)
        assert not people.out.startswith("{")


def test_options_stand_before_the_command_or_behind_it(cli: Cli) -> None:
    before = cli("--json", "--url", "a.db", "--user", "ann", "add", "one")
    behind = cli("add", "two", "--json", "--url", "a.db", "-u", "ann")
    found = cli("--url", "wrong.db", "list", "--url", "a.db", "-u", "ann", "--json")

    assert (before.status, behind.status) == (0, 0)
    assert sorted(each["input"] for each in found.data) == ["one", "two"]


def test_an_error_is_told_with_its_code_its_fact_and_the_next_step(cli: Cli) -> None:
    cli("init")
    plain = cli("get", "ep_none", "-u", "ann")
    told = cli("get", "ep_none", "-u", "ann", "--json")

    assert plain == (
        3,
        "",
        "not_found: there is no memory 'ep_none' to be seen here."
        " check the id, and whose it is: --user NAME\n",
    )
    assert told.status == 3
    assert set(told.told) == ENVELOPE | {"error"}
    assert (told.told["status"], told.told["error"]["code"]) == ("error", "not_found")


def damaged_pack(folder: Path) -> str:
    with zipfile.ZipFile(folder / "bad.zip", "w") as archive:
        archive.writestr("working_set.json", "{}")
    raw = bytearray((folder / "bad.zip").read_bytes())
    raw[45] ^= 0xFF  # Inside the content: the checksum no longer fits.
    (folder / "bad.zip").write_bytes(raw)
    return str(folder / "bad.zip")


def test_each_kind_of_error_has_its_exit_status(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    cli("runs", "boot", "Plan", "--id", "r1")
    cli("add", "x", "--id", "e1", "-u", "ann")
    cli("forget", "-u", "ann", "--yes")
    (folder / "blocked").write_text("a file, no folder")
    cases = {
        "not_found": ["runs", "show", "r2"],
        "conflict": ["runs", "boot", "Plan", "--id", "r1"],
        "invalid": ["search", "x", "--limit", "-1"],
        "limit_exceeded": ["runs", "boot", "x" * 50_000],
        "unavailable": ["pack", "create", "r1", str(folder / "blocked")],
        "corrupt": ["pack", "verify", damaged_pack(folder)],
        "unsupported": ["list", "--url", "mysql://host/db"],
        "forbidden": ["add", "x", "--id", "e1", "-u", "ann"],
    }
    seen = {code: cli(*words, "--json") for code, words in cases.items()}

    told = {code: (ran.status, ran.told["error"]["code"]) for code, ran in seen.items()}
    assert told == {code: (EXIT_STATUS[code], code) for code in cases}


@pytest.mark.parametrize(
    "words",
    [
        ["serach", "x"],
        ["search", "--limt", "3", "x"],
        ["search", "x", "--limit", "many"],
        ["list", "elephants"],
        ["runs", "nothing"],
        ["--url"],
        ["pack", "verify"],
        ["add", "--fact", "Ann", "likes"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_ends_with_2(cli: Cli, words: list[str]) -> None:
    plain, told = cli(*words), cli("--json", *words)

    assert (plain.status, plain.out, plain.err[:7]) == (2, "", "usage: ")
    assert (told.status, told.told["error"]["code"]) == (2, "usage")


# Nothing unasked


def test_a_command_that_reads_makes_no_file(cli: Cli, folder: Path) -> None:
    for words in (["list"], ["search", "x"], ["verify"], ["runs"], ["threads"], ["tail", "t"]):
        assert cli(*words).status == EXIT_STATUS["not_found"]
    assert cli("doctor").status == 0
    assert list(folder.iterdir()) == []


def test_what_cannot_be_undone_wants_a_yes_and_a_name(cli: Cli) -> None:
    cli("add", "I live in Lisbon.", "-u", "ann")
    cli("threads", "append", "t", "x")
    cli("runs", "boot", "Plan", "--id", "r1")

    for words in (["forget", "-u", "ann"], ["threads", "delete", "t"], ["runs", "delete", "r1"]):
        ran = cli(*words, stdin="")
        assert (ran.status, "--yes" in ran.err) == (EXIT_STATUS["invalid"], True)
        assert cli(*words, "--json", stdin="").status == EXIT_STATUS["invalid"]
    assert cli("forget", "--yes").status == EXIT_STATUS["invalid"]
    assert cli("forget", "--yes", "-u", "ann", "--nobody").status == EXIT_STATUS["invalid"]
    assert len(cli("list", "-u", "ann", "--json").data) == 1
    assert [each["thread_id"] for each in cli("threads", "--json").data] == ["t"]


def test_what_was_proposed_is_let_in_or_turned_away(cli: Cli, folder: Path) -> None:
    cli("init", "--user", "bob")
    told = cli("add", "I'm Bob.", "--consolidate")
    cli("add", "I'm Robert.", "--consolidate")
    with pagefile.open(folder / "pagefile.db") as pf:
        batches = [
            pf.items.propose([item_request(said, "bob")], user_id="bob").batch_id
            for said in ("likes tea", "likes jam")
        ]
    first, second = (each["fact"]["id"] for each in cli("list", "proposals", "--json").data)
    seen = [cli("review", each, "--json") for each in (first, batches[0])]
    done = [
        cli("review", first, "--commit", "--by", "ann"),
        cli("review", second, "--reject", "--reason", "a nickname"),
        cli("review", batches[0], "--commit", "--by", "ann"),
        cli("review", batches[1], "--reject"),
    ]
    wrong = [
        cli("review", "nosuch", "--commit"),
        cli("review", "nosuch"),
        cli("review", first, "--reject"),
        cli("review", batches[0], "--reason", "so"),
        cli("review", batches[1], "--commit"),
    ]
    found = [each["memory"] for each in cli("search", "likes tea Bob", "--json").data]

    assert "1 to be reviewed" in told.err
    assert [one.data["status"] for one in seen] == ["proposed", "staged"]
    assert [one.status for one in done] == [0] * 4, [one.err for one in done]
    assert f"{first} committed by ann" in done[0].out
    assert [one.status for one in wrong] == [3, 3, 4, 5, 4]
    assert cli("list", "proposals", "--json").data == []
    assert "user has name Bob" in found
    assert "likes tea" in found
    assert "likes jam" not in found


def test_a_user_who_is_not_known_is_no_success(cli: Cli, folder: Path) -> None:
    cli("add", "I live in Lisbon.", "-u", "ann", "-s", "s1")
    told = [
        cli("forget", "-u", "an", "--yes"),
        cli("forget", "-u", "an"),
        cli("forget", "-u", "ann", "-s", "nosuch", "--yes"),
        cli("export", str(folder / "an.jsonl"), "-u", "an"),
    ]
    known = cli("forget", "-u", "ann", "--yes")

    assert [one.status for one in told] == [0] * 4
    assert ["is kept for user" in one.err and "list users" in one.err for one in told] == [True] * 4
    assert "of session 'nosuch'" in told[2].err
    assert "is kept for" not in known.err


def test_a_day_that_something_is_until_is_the_whole_day(cli: Cli) -> None:
    cli("add", "I was in Rome.", "-u", "ann", "--at", "2026-11-17T10:00:00", "--id", "e1")
    days = ("2026-11-16", "2026-11-17", "2026-11-17T09:00:00", "2026-11-17T11:00:00")
    listed = [cli("list", "-u", "ann", "--until", day, "--json").data for day in days]

    assert [len(found) for found in listed] == [0, 1, 0, 1]


def test_forgetting_a_thread_erases_its_bytes(cli: Cli, folder: Path) -> None:
    cli("threads", "append", "t", "a very secret word")
    rehearsed = cli("forget", "--thread", "t", "--dry-run", "--json")
    there = b"secret word" in (folder / "pagefile.db").read_bytes() + _journal(folder)
    gone = cli("forget", "--thread", "t", "--yes", "--json")

    assert (rehearsed.told["count"], gone.told["count"], there) == (1, 1, True)
    assert b"secret word" not in (folder / "pagefile.db").read_bytes() + _journal(folder)


def _journal(folder: Path) -> bytes:
    journal = folder / "pagefile.db-wal"
    return journal.read_bytes() if journal.exists() else b""


def test_stored_text_cannot_steer_a_terminal(cli: Cli) -> None:
    cli("threads", "append", "t", "red \x1b[31m bell \x07 \x9b31m end")
    ran = cli("threads", "show", "t")

    assert ran.status == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", ran.out)
    assert cli("threads", "show", "t", "--json").data[0]["payload"]["text"].startswith("red \x1b")


# Input


def test_text_comes_from_an_argument_or_a_pipe(cli: Cli) -> None:
    cli("add", "-u", "ann", stdin="one\n")
    cli("add", "-", "-u", "ann", stdin="two")
    lines = cli("add", "--lines", "-u", "ann", "--json", stdin="three\n\nfour\n")
    found = cli("list", "-u", "ann", "--json").data

    assert lines.told["count"] == 2
    assert sorted(each["input"] for each in found) == ["four", "one", "three", "two"]
    assert cli("add", "-u", "ann").status == EXIT_STATUS["invalid"]
    assert cli("add", "-u", "ann", stdin="").status == EXIT_STATUS["invalid"]
    assert cli("add", "-u", "ann", stdin=b"\xff\xfe").status == EXIT_STATUS["invalid"]
    assert cli("add", "-u", "ann", stdin=b"x" * 4_000_001).status == EXIT_STATUS["limit_exceeded"]


def test_more_lines_than_one_commit_holds_are_all_stored(cli: Cli) -> None:
    ran = cli("add", "--lines", "-u", "ann", stdin="".join(f"line {n}\n" for n in range(1_001)))

    assert ran.status == 0
    [profile] = cli("list", "users", "--json").data
    assert (profile["user_id"], profile["episodes"]) == ("ann", 1_001)


def test_a_patch_and_an_export_are_piped_in(cli: Cli, folder: Path) -> None:
    cli("runs", "boot", "Plan", "--id", "r1")
    applied = cli("runs", "patch", "r1", "--json", stdin=json.dumps(patch(0)))
    stale = cli("runs", "patch", "r1", stdin=json.dumps(patch(0)))
    cli("add", "I live in Lisbon.", "-u", "ann")
    cli("export", "-u", "ann", "ann.jsonl")
    exported = (folder / "ann.jsonl").read_bytes()
    taken = cli("import", "--url", "there.db", "--json", stdin=exported)

    assert applied.data["ws"]["next_action"] == "ask"
    assert (stale.status, stale.err[:20]) == (4, "conflict: LOCK_ERROR")
    assert taken.data["records"] > 0
    assert cli("runs", "patch", "r1", "{").status == EXIT_STATUS["invalid"]
    assert cli("import", "nothing.jsonl").status == EXIT_STATUS["not_found"]


def test_a_fact_is_taken_over_and_its_history_stays(cli: Cli) -> None:
    first = cli("add", "--fact", "Ann", "lives_in", "Oslo", "--at", "2020-01-01", "--json")
    cli("update", first.data[0]["id"], "Rome", "--at", "2024-01-01")
    now = cli("list", "facts", "--json").data
    ever = cli("list", "facts", "--history", "--json").data

    assert [fact["object"] for fact in now] == ["Rome"]
    assert sorted(fact["object"] for fact in ever) == ["Oslo", "Rome"]


def test_a_fact_that_is_updated_no_longer_has_its_old_object(cli: Cli) -> None:
    first = cli("--user", "ann", "add", "--fact", "Ann", "likes", "tea", "--json")
    cli("--user", "ann", "update", first.data[0]["id"], "coffee")

    held = cli("--user", "ann", "list", "facts", "--json").data
    assert [fact["object"] for fact in held] == ["coffee"]


def test_a_block_is_changed_only_at_the_version_one_expects(cli: Cli) -> None:
    cli("update", "--block", "plan", "one")
    good = cli("update", "--block", "plan", "two", "--expected-version", "1", "--json")
    late = cli("update", "--block", "plan", "three", "--expected-version", "1")

    assert (good.data["version"], late.status) == (2, EXIT_STATUS["conflict"])
    assert cli("get", "--block", "plan").out == "two\n"


def test_a_search_is_narrowed_and_explained(cli: Cli) -> None:
    cli("add", "Trains to Oslo", "-s", "a", "--at", "2020-01-01", "-u", "ann")
    cli("add", "Trains to Rome", "-s", "b", "-u", "ann")
    of_session = cli("search", "trains", "-s", "a", "-u", "ann", "--json").data
    recent = cli("search", "trains", "--since", "2021-01-01", "-u", "ann", "--json").data
    facts = cli("search", "trains", "--kind", "fact", "-u", "ann", "--json").data
    why = cli("search", "trains", "--explain", "-u", "ann", "--json").data

    assert [each["memory"] for each in of_session] == ["Trains to Oslo"]
    assert [each["memory"] for each in recent] == ["Trains to Rome"]
    assert facts == []
    assert why[0]["hit"]["matched"] == ["train"]
    assert cli("search", "x", "--since", "soon").status == EXIT_STATUS["invalid"]
    assert cli("search", "x", "--kind", "cat").status == EXIT_STATUS["invalid"]


def test_a_call_for_nobody_says_so_when_others_have_names(cli: Cli) -> None:
    cli("add", "I live in Lisbon.", "-u", "ann")
    ran = cli("search", "Lisbon", "--json")

    assert (ran.status, ran.data) == (0, [])
    assert ran.err.startswith("note: no --user was given")


# Settings


def config_of(cli: Cli, *words: str) -> dict[str, tuple[Any, str]]:
    told = cli("config", "--json", *words).data
    return {each["name"]: (each["value"], each["from"]) for each in told}


def test_init_makes_a_store_and_a_file_that_the_library_reads_too(cli: Cli, folder: Path) -> None:
    ran = cli("init", "--url", "data.db", "--tenant", "acme", "--user", "ann")
    cli("add", "I live in Lisbon.")
    with pagefile.open() as pf:
        found = pf.memory.recall("", user_id="ann")

    assert ran.status == 0
    assert (folder / "data.db").exists()
    assert (pf.tenant, [episode.input for episode in found]) == ("acme", ["I live in Lisbon."])
    assert cli("init").status == 0  # The same again changes nothing.
    assert cli("init", "--user", "bob").status == EXIT_STATUS["conflict"]
    assert cli("init", "--user", "bob", "--force").status == 0
    assert config_of(cli)["user"] == ("bob", "pagefile.toml")


def test_a_password_is_written_to_no_file_and_shown_nowhere(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://ann:hunter2@127.0.0.1:1/db"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    ran = [cli(*words, "--url", url, "--json") for words in (["init"], ["config"], ["doctor"])]
    ran += [cli(*words, "--url", url) for words in (["init"], ["config"], ["doctor"], ["list"])]

    assert ran[0].status == EXIT_STATUS["invalid"]
    assert all("hunter2" not in each.out + each.err for each in ran)
    assert not (folder / "pagefile.toml").exists()
    assert config_of(cli)["openai_api_key"] == ("set, not shown", "OPENAI_API_KEY")


def test_an_option_beats_the_environment_which_beats_the_file_which_beats_others_variables(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config_of(cli)["url"] == ("pagefile.db", "default")
    monkeypatch.setenv("REDIS_URL", "redis://localhost/1")
    assert config_of(cli)["url"] == ("redis://localhost/1", "REDIS_URL")
    (folder / "pagefile.toml").write_text('url = "file.db"\n')
    assert config_of(cli)["url"] == ("file.db", "pagefile.toml")
    monkeypatch.setenv("PAGEFILE_URL", "env.db")
    assert config_of(cli)["url"] == ("env.db", "PAGEFILE_URL")
    assert config_of(cli, "--url", "option.db")["url"] == ("option.db", "--url")


def test_two_variables_that_name_two_stores_are_refused_not_guessed(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://localhost/1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://localhost/db")
    ran = cli("list")

    assert (ran.status, "PAGEFILE_URL" in ran.err) == (EXIT_STATUS["invalid"], True)
    assert cli("doctor").status == 1
    assert config_of(cli)["url"][0] is None
    with pytest.raises(pagefile.Invalid, match="PAGEFILE_URL"):
        pagefile.open()
    with pagefile.open("memory:") as pf:  # Who names a store is not concerned.
        assert pf.tenant == "default"


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:///app.db", "postgresql+psycopg://h/d"])
def test_another_programs_database_is_left_alone(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DATABASE_URL", url)

    assert Settings.from_environment().store_url() == "pagefile.db"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("url = ", "invalid"),
        ("colour = 'red'", "invalid"),
        ("openai_api_key = 'x'", "invalid"),
        ("llm_base_url = 'https://evil.example'", "invalid"),
        ("url = 7", "invalid"),
        ("[tool]\nurl = 'x'", "invalid"),
        ("#" * 70_000, "invalid"),
        (b"\xff".decode("latin-1"), "invalid"),
    ],
)
def test_a_file_of_settings_that_makes_no_sense_is_refused(
    cli: Cli, folder: Path, text: str, code: str
) -> None:
    (folder / "pagefile.toml").write_text(text, encoding="latin-1")

    assert cli("list").status == EXIT_STATUS[code]
    assert cli("doctor").status == 1


def test_the_file_of_settings_can_be_elsewhere(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "pf.toml").write_text('url = "data.db"\nembedding_dimensions = 7\n')
    monkeypatch.setenv("PAGEFILE_CONFIG", "etc/pf.toml")
    shown = config_of(cli)

    assert shown["url"] == ("etc/data.db", "etc/pf.toml")  # Beside the file that names it.
    assert shown["embedding_dimensions"] == (7, "etc/pf.toml")
    assert cli("init", "--force", "--user", "ann").status == 0
    assert config_of(cli)["url"] == (str(folder / "etc/data.db"), "etc/pf.toml")
    (folder / "etc" / "pf.toml").write_text('url = "~/data.db"')
    assert config_of(cli)["url"] == ("~/data.db", "etc/pf.toml")
    monkeypatch.setenv("PAGEFILE_CONFIG", "etc/nothing.toml")
    assert cli("list").status == EXIT_STATUS["not_found"]


# The doctor


def found_wrong(ran: Ran) -> dict[str, str]:
    return {each["name"]: each["mend"] for each in ran.data if each["state"] == "wrong"}


def test_the_doctor_asks_the_vector_server_that_is_set(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("qdrant_client")
    cli("init")
    monkeypatch.setenv("QDRANT_URL", f"http://127.0.0.1:{free_port()}")
    glance, deep = cli("doctor", "--json"), cli("doctor", "--deep", "--json")
    monkeypatch.setenv("PAGEFILE_VECTORS", "memory")
    unused = cli("doctor", "--deep", "--json")

    assert [ran.status for ran in (glance, deep, unused)] == [0, 1, 0]
    [wrong] = [each for each in deep.data if each["state"] == "wrong"]
    assert (wrong["name"], bool(wrong["mend"])) == ("qdrant", True)


def test_the_doctor_notes_a_clock_that_ran_ahead(cli: Cli, folder: Path) -> None:
    cli("add", "I live in Lisbon.")
    before = cli("doctor", "--json").data
    hours_ahead = Options(clock=lambda: machine_clock() + 3 * 3_600_000_000)
    with pagefile.open(folder / "pagefile.db", options=hours_ahead) as pf:
        pf.store.append(Append("a", 1))
    ran = cli("doctor", "--json")
    [note] = [each for each in ran.data if each["name"] == "clock"]

    assert "clock" not in {each["name"] for each in before}
    assert (ran.status, note["state"], bool(note["mend"])) == (0, "note", True)
    assert "ahead of this machine's clock by 2:5" in note["fact"]


def test_the_doctor_notes_a_journal_that_readers_keep_from_being_cut(
    cli: Cli, folder: Path
) -> None:
    import apsw

    with pagefile.open(folder / "pagefile.db") as pf:
        reader = apsw.Connection("pagefile.db")
        reader.execute("BEGIN; SELECT count(*) FROM records").fetchall()
        before = cli("doctor", "--json").data
        for _ in range(80):
            pf.store.append(Append("a", "x" * 1_000_000))
        ran = cli("doctor", "--json")
        reader.close()
        for _ in range(3):
            pf.store.append(Append("a", 1))
        after = cli("doctor", "--json").data
    [note] = [each for each in ran.data if each["name"] == "journal"]

    assert "journal" not in {each["name"] for each in (*before, *after)}
    assert (ran.status, note["state"], bool(note["mend"])) == (0, "note", True)
    assert " MB: " in note["fact"]


def test_the_doctor_finds_nothing_wrong_with_a_sound_store(cli: Cli) -> None:
    cli("add", "I live in Lisbon.")
    ran = cli("doctor", "--deep", "--json")
    facts = {each["name"]: each["fact"] for each in ran.data}

    assert (ran.status, found_wrong(ran)) == (0, {})
    assert facts["durability"].startswith("power: ")
    assert facts["index"] == "made with: words alone"
    assert facts["sqlite"][0].isdigit()
    assert "extra embed" in facts
    assert facts["verify"] == facts["check"] == "nothing wrong"


def test_the_doctor_says_what_is_wrong_and_how_to_mend_it(cli: Cli, folder: Path) -> None:
    (folder / "notes.db").write_text("this is no database, " * 100)
    foreign = cli("doctor", "--url", "notes.db", "--json")
    with pagefile.open("odd.db") as pf:
        model = {"name": "strange", "dimensions": 3, "analysis": 1}
        value = {"model": model, "generation": 1, "rebuilding": False}
        pf.store.commit(pagefile.Batch([pagefile.Put("recall-model", value)]))
    unknown = cli("doctor", "--url", "odd.db", "--json")

    assert (foreign.status, foreign.told["status"]) == (1, "problems")
    assert list(found_wrong(foreign)) == ["store"]
    assert "reindex" in found_wrong(unknown)["index"]


def test_a_changed_byte_is_found_by_verify_and_by_a_deep_look(cli: Cli, folder: Path) -> None:
    import apsw

    cli("threads", "append", "t", "the truth")
    head = cli("verify", "--json").data["head"]
    connection = apsw.Connection("pagefile.db")
    connection.execute(
        "UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'truth', 'trust') AS BLOB)"
    )
    connection.close()

    assert cli("verify").status == 1
    assert cli("verify", "--json").told["status"] == "problems"
    assert "verify" in found_wrong(cli("doctor", "--deep", "--json"))
    assert cli("verify", "--head", head).status == 1


def test_a_head_kept_elsewhere_shows_a_cut_off_tail(cli: Cli) -> None:
    cli("threads", "append", "t", "x")
    head = cli("verify", "--json").data["head"]
    later = f"9{head[1:]}"

    assert cli("verify", "--head", head).status == 0
    assert cli("verify", "--head", later).status == 1
    for odd in ("", "1", "x:00", "1:zz", f"-1:{'0' * 64}", "9" * 5_000 + ":" + "0" * 64):
        assert cli("verify", "--head", odd).status == EXIT_STATUS["invalid"]


# Packs and the earlier system's runs


def earlier_run(root: Path, name: str) -> Path:
    """A run as the earlier system kept it in its folder."""
    ws = {
        "_schema_version": "2.1",
        "_update_seq": 7,
        "task_id": "task_1",
        "thread_id": "thread_1",
        "run_id": name,
        "status": "BUSY",
        "objective": f"Do {name}",
        "acceptance_criteria": [],
        "current_stage": "s",
        "next_action": "go on",
        "constraints": [],
        "artifact_refs": [],
        "blockers": [],
        "last_action_summary": "",
        "pinned_context": [],
        "sliding_context": [],
    }
    folder = root / name
    for part in ("state", "ledger", "episodes", "resume", "artifacts"):
        (folder / part).mkdir(parents=True)
    (folder / "state" / "working_set.v2.1.json").write_text(json.dumps(ws))
    (folder / "resume" / "pack_1.zip").write_bytes(b"an older snapshot")
    return folder


def test_runs_below_the_earlier_systems_root_are_brought_in_once(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder / "runs"
    for name in ("run_a", "run_b"):
        earlier_run(root, name)
    (root / "no_run").mkdir()
    assert cli("restore", "--all").status == EXIT_STATUS["invalid"]
    monkeypatch.setenv("AOS_RUNS_ROOT", str(root))
    rehearsed = cli("restore", "--all", "--dry-run", "--json")
    assert not (folder / "pagefile.db").exists()
    first, again = cli("restore", "--all", "--json"), cli("restore", "--all", "--json")
    one = cli("restore", "run_a", "--id", "copy", "--json")

    assert [each["status"] for each in rehearsed.data] == ["sound", "sound"]
    assert [each["status"] for each in first.data] == ["restored", "restored"]
    assert [each["status"] for each in again.data] == ["present", "present"]
    assert one.data["run_id"] == "copy"
    shown = cli("runs", "show", "run_b", "--json").data
    assert (shown["objective"], shown["next_action"]) == ("Do run_b", "go on")
    assert cli("runs", "rebuild", "run_b").status == 0
    assert cli("restore", "--all", "--root", "nowhere").status == EXIT_STATUS["not_found"]


def test_a_strange_file_in_a_run_s_folder_is_refused(cli: Cli, folder: Path) -> None:
    place = earlier_run(folder, "run_a")
    (place / "state" / "other.json").write_text("{}")

    assert cli("restore", str(place)).status == EXIT_STATUS["invalid"]


def test_a_pack_is_made_checked_and_restored(cli: Cli) -> None:
    cli("runs", "boot", "Plan a trip", "--id", "r1")
    pack = cli("pack", "create", "r1", "--json").data["path"]
    rehearsed = cli("restore", pack, "--dry-run", "--url", "there.db", "--json")
    made = cli("restore", pack, "--id", "r2", "--url", "there.db", "--json")

    assert cli("pack", "verify", pack).out.startswith("format")
    assert rehearsed.data["run_id"] == "r1"
    assert made.data["run_id"] == "r2"
    taken = cli("restore", pack, "--id", "r2", "--url", "there.db")
    assert taken.status == EXIT_STATUS["conflict"]


# The demonstration and the measurement


def test_the_demo_tells_its_story_and_leaves_nothing(cli: Cli, folder: Path) -> None:
    ran = cli("demo", "--json")

    assert (ran.status, [each["ok"] for each in ran.data]) == (0, [True] * 5)
    assert list(folder.iterdir()) == []


def test_bench_measures_and_leaves_nothing(cli: Cli, folder: Path) -> None:
    ran = cli("bench", "--seconds", "0.05", "--json")

    assert ran.status == 0
    assert all(row["per_second"] > 0 for row in ran.data)
    assert ran.data[0]["of_bare_sqlite"] == 1.0
    assert list(folder.iterdir()) == []


# Whatever is typed

WORDS = sorted(
    {word for each in described() for word in str(each["name"]).split()}
    - {"demo", "bench", "init", "tail", "help"}
)
FLAGS = sorted(
    {flag for each in described() for option in each["options"] for flag in option["flags"]}
    - {"--follow", "-f", "--export", "--force", "--install-completion", "--show-completion"}
)
ODD = [
    "",
    "-",
    "--",
    "x",
    "e1",
    "ann",
    "0",
    "-1",
    "9" * 30,
    "ünï",
    "\x1b[2J",
    "a/b",
    "..",
    "{}",
    "1:",
]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    command=st.sampled_from(WORDS),
    rest=st.lists(
        st.one_of(st.sampled_from(WORDS), st.sampled_from(FLAGS), st.sampled_from(ODD), st.text()),
        max_size=5,
    ),
)
def test_whatever_is_typed_is_answered_or_refused_in_words(
    cli: Cli, command: str, rest: list[str]
) -> None:
    ran = cli("--json", "--url", "memory:", command, *rest, stdin="")

    assert ran.status in {*range(11)}, (command, rest, ran)
    assert "Traceback" not in ran.err
    # What these two print is for somebody else: lines of a file, messages of a protocol.
    if "--help" not in rest and "-h" not in rest and command not in ("export", "mcp"):
        assert set(ran.told) >= ENVELOPE


# The program itself


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return kept | {"HOME": str(folder), "PAGEFILE_EMBEDDER": "none"} | more


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the program; what still runs at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: str, **more: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options = {**pipes, "text": True, "cwd": folder, "env": environment(folder), **more}
        process = subprocess.Popen([*COMMAND, *words], **options)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_the_program_stores_what_is_piped_in_and_another_finds_it(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    stored = start("add", "-u", "ann")
    stored.communicate("I live in Lisbon.\n", timeout=60)
    found = start("search", "where does Ann live", "-u", "ann", "--json")
    out, err = found.communicate(timeout=60)

    assert (stored.returncode, found.returncode, err) == (0, 0, "")
    assert [each["memory"] for each in json.loads(out)["data"]] == ["I live in Lisbon."]


def test_following_shows_what_another_process_appends_and_ends_quietly_on_interrupt(
    start: Callable[..., subprocess.Popen[str]], cli: Cli
) -> None:
    cli("threads", "append", "t", "first")
    tail = start("tail", "t", "--follow", "--json")
    assert tail.stdout is not None
    first = json.loads(tail.stdout.readline())
    cli("threads", "append", "t", "second")
    second = json.loads(tail.stdout.readline())
    tail.send_signal(signal.SIGINT)
    out, err = tail.communicate(timeout=60)

    assert [each["payload"]["text"] for each in (first, second)] == ["first", "second"]
    assert (tail.returncode, out, err) == (130, "", "")


def test_a_reader_that_goes_away_ends_it_quietly(
    start: Callable[..., subprocess.Popen[str]], cli: Cli
) -> None:
    cli("add", "x" * 900_000, "-u", "ann")
    export = start("export", "-u", "ann")
    assert export.stdout is not None
    export.stdout.read(10)
    export.stdout.close()
    assert export.stderr is not None
    told = export.stderr.read()

    assert (export.wait(timeout=60), told) == (141, "")
    # Gone before the first line: what fails is the last flush.
    at_once = start("help", "--json")
    assert at_once.stdout is not None
    at_once.stdout.close()
    assert at_once.stderr is not None
    assert (at_once.stderr.read(), at_once.wait(timeout=60)) == ("", 141)


@pytest.mark.parametrize(
    ("redirection", "status", "words"),
    [
        (">/dev/full", 7, "unavailable: standard output: "),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed_end_in_no_traceback(
    folder: Path, redirection: str, status: int, words: str
) -> None:
    command = " ".join([*map(shlex.quote, COMMAND), "config", redirection])
    ran = subprocess.run(
        command, shell=True, env=environment(folder), cwd=folder, capture_output=True, text=True
    )

    assert (ran.returncode, ran.stderr.startswith(words)) == (status, True)
    assert "Traceback" not in ran.stderr


def test_bytes_that_are_no_text_are_refused_in_words(cli: Cli) -> None:
    cli("init")
    for words in (
        ["add", "\udcff"],
        ["search", "x", "--user", "\udcff"],
        ["pack", "verify", "\udcff"],
    ):
        told = cli(*words, "--json")

        assert told.told["status"] == "error"
        assert told.status in EXIT_STATUS.values()


def test_help_loads_nothing_heavy(folder: Path) -> None:
    code = (
        "import sys\nfrom pagefile.surfaces.cli import main\n"
        "main(['--help'])\nprint(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(folder), capture_output=True, text=True
    )
    loaded_modules = set(ran.stdout.splitlines()[-1].split())

    assert "typer" in loaded_modules
    assert {"numpy", "apsw", "rich", "httpx", "fastapi", "Stemmer"} & loaded_modules == set()
    commands = [name for name in ran.stdout.splitlines() if name.startswith("  doctor")]
    assert len(commands) == 1


def test_completion_knows_commands_and_options_and_is_installed(folder: Path) -> None:
    def completed(*words: str) -> list[str]:
        asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        env = environment(folder, _PAGEFILE_COMPLETE="complete_bash", **asked)
        return subprocess.run(COMMAND, env=env, capture_output=True, text=True).stdout.split()

    assert sorted(completed("pagefile", "re")) == ["reindex", "restore", "review"]
    assert sorted(completed("pagefile", "runs", "b")) == ["boot", "brief"]
    assert completed("pagefile", "search", "--k") == ["--kind"]
    env = environment(folder, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    ran = subprocess.run(
        [*COMMAND, "--install-completion", "bash"], env=env, capture_output=True, text=True
    )
    assert (ran.returncode, "installed" in ran.stdout) == (0, True)
    assert "_PAGEFILE_COMPLETE" in (folder / ".bash_completions/pagefile.sh").read_text()


def in_a_terminal(folder: Path, typed: bytes, *words: str, **more: str) -> tuple[int, str]:
    """Run it with a terminal on all sides: the status, and what was on the screen."""
    ours, theirs = pty.openpty()
    env = environment(folder, **{"TERM": "xterm-256color", "COLUMNS": "100"} | more)
    process = subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, typed)
    seen = b""
    try:
        while part := os.read(ours, 65_536):
            seen += part
    except OSError:  # Linux says so when the other side is closed.
        pass
    os.close(ours)
    return process.wait(timeout=60), seen.decode(errors="replace")


def test_a_terminal_gets_colours_and_tables_unless_it_wants_none(folder: Path, cli: Cli) -> None:
    cli("threads", "append", "t", "hello")
    status, coloured = in_a_terminal(folder, b"", "threads", "show", "t")
    _, plain = in_a_terminal(folder, b"", "threads", "show", "t", NO_COLOR="1")

    assert status == 0
    assert "─" in coloured
    assert "hello" in coloured
    assert "\x1b[1m" in coloured
    assert re.search(r"\x1b\[(3|9)\dm", plain) is None


def test_a_person_sees_how_far_a_copy_is(folder: Path, cli: Cli) -> None:
    for n in range(3):
        cli("threads", "append", "t", f"number {n}")
    copying = ("copy", "pagefile.db", "copied.db", "--tenant", "default")
    # A bar comes up for what takes long, and following does.
    status, seen = in_a_terminal(folder, b"", *copying, "--follow", "--for", "3")
    piped = cli(*copying)

    assert status == 0
    assert "copying" in seen
    assert re.search(r"(\d+)/\1\b", seen)
    assert "copying" not in piped.err


class Terminal(io.StringIO):
    """Standard error with a person in front of it."""

    def isatty(self) -> bool:
        return True


def test_what_takes_long_shows_a_terminal_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setattr(screens, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    until = time.monotonic() + 60
    with screens.Screen().progress("copying") as progress:
        assert progress is not None
        while "3/10" not in seen.getvalue() and time.monotonic() < until:
            progress(3, 10)
    with screens.Screen(quiet=True).progress("copying") as unasked:
        pass

    assert "copying" in seen.getvalue()
    assert "3/10" in seen.getvalue()
    assert "━" in seen.getvalue()
    assert unasked is None


def test_a_person_is_asked_before_what_cannot_be_undone(folder: Path, cli: Cli) -> None:
    cli("add", "I live in Lisbon.", "-u", "ann")
    refused, asked = in_a_terminal(folder, b"n\n", "forget", "-u", "ann")
    kept = len(cli("list", "-u", "ann", "--json").data)
    agreed, _ = in_a_terminal(folder, b"y\n", "forget", "-u", "ann")

    assert "Erase" in asked
    assert (refused, kept, agreed) == (1, 1, 0)
    assert cli("list", "-u", "ann", "--json").data == []

"""What somebody new to the command line meets: typing errors, narrow terminals, pipes, words."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pagefile
from pagefile.dispatch import DeadLetter, Overview, WorkerView
from pagefile.surfaces.cli import EXIT_STATUS
from pagefile.surfaces.cli.commands.doctor import EXTRAS
from pagefile.surfaces.cli.commands.organism import Frames, drawn
from pagefile.surfaces.cli.screen import packed
from pagefile.surfaces.mcp.memory_tools import PROPOSAL_TOOLS
from tests import ROOT
from tests.surfaces.test_cli import Cli, cli, folder, in_a_terminal, patch

if TYPE_CHECKING:
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer

__all__ = ["cli", "folder"]  # Fixtures: a folder of one's own, and commands in this process.
NOT_FOUND = EXIT_STATUS["not_found"]
INVALID = EXIT_STATUS["invalid"]
MARKED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?Z")


# Reading makes nothing


def test_reading_a_mistyped_postgresql_url_makes_no_schema(
    cli: Cli, postgres_server: PostgresServer
) -> None:
    import psycopg

    url = postgres_server.new_url()
    schema = url.rpartition("=")[2]
    for words in (["list"], ["verify"], ["search", "x"], ["list", "tenants"]):
        ran = cli("--url", url, *words)

        assert (ran.status, "there is no store at" in ran.err) == (NOT_FOUND, True)
    with psycopg.connect(url.partition("?")[0]) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,))
        assert found.fetchall() == []
    assert cli("--url", url, "add", "x").status == 0
    assert cli("--url", url, "list").status == 0


def test_reading_a_mistyped_redis_url_says_so_and_makes_no_key(
    cli: Cli, redis_server: RedisServer
) -> None:
    url = f"{redis_server.url}?prefix=typo"
    before = redis_server.ask(b"DBSIZE")

    assert cli("--url", url, "list").status == NOT_FOUND
    assert redis_server.ask(b"DBSIZE") == before


def test_a_tenant_or_an_organism_that_is_not_there_is_not_found(cli: Cli) -> None:
    cli("init")
    empty = cli("list")  # The only tenant may be yet to begin.
    cli("add", "x")

    assert (empty.status, empty.err) == (0, "no episodes\n")
    for words in (["list"], ["search", "x"], ["runs"], ["verify"]):
        assert cli("--tenant", "typo", *words).status == NOT_FOUND
    assert cli("list", "tenants", "--json").data == ["default"]
    assert cli("organism", "top", "nope").status == NOT_FOUND
    assert cli("organism", "top").status == 0


def test_the_tenant_of_the_servers_keys_is_not_listed(cli: Cli) -> None:
    cli("add", "x")
    cli("keys", "create")

    assert cli("list", "tenants", "--json").data == ["default"]


# Settings and options have an effect, or are refused


def test_auto_is_an_embedder_and_a_mistyped_one_is_refused(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("init", "--embedder", "auto").status == 0
    assert 'embedder = "auto"' in (folder / "pagefile.toml").read_text()
    cli("add", "x")  # With none: the index is made.
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "auto")
    assert cli("search", "x").status == 0
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "foo")
    for words in (["search", "x"], ["--url", "new.db", "add", "x"]):
        ran = cli(*words)

        assert (ran.status, "auto, bundled, openai, none" in ran.err) == (INVALID, True)


@pytest.mark.parametrize(
    "option",
    [
        *(["--session", "s"], ["--output", "x"], ["--speaker", "Ann"], ["--lines"]),
        ["--consolidate"],
    ],
    ids=lambda option: str(option[0]),
)
def test_options_of_episodes_are_refused_beside_facts_and_blocks(
    cli: Cli, folder: Path, option: list[str]
) -> None:
    fact = cli("add", "--fact", "Ann", "likes", "tea", *option)
    block = cli("add", "--block", "persona", "x", *option)

    assert (fact.status, option[0] in fact.err) == (INVALID, True)
    assert (block.status, option[0] in block.err) == (INVALID, True)
    assert list(folder.iterdir()) == []


def test_a_fact_may_have_an_id_of_ones_own_and_a_block_has_no_time(cli: Cli) -> None:
    made = cli("add", "--fact", "Ann", "likes", "tea", "--id", "fact_tea", "--at", "2020-01-01")

    assert made.out == "fact_tea\n"
    assert [fact["id"] for fact in cli("list", "facts", "--json").data] == ["fact_tea"]
    assert cli("add", "--block", "b", "x", "--id", "i").status == INVALID
    assert cli("add", "--block", "b", "x", "--at", "2020-01-01").status == INVALID
    assert cli("update", "--block", "b", "x", "--at", "2020-01-01").status == INVALID


# Forgetting and counting


def test_one_episode_is_forgotten_by_its_id(cli: Cli, folder: Path) -> None:
    cli("add", "the secret word", "--id", "e1", "-u", "ann")
    cli("add", "something else", "--id", "e2", "-u", "ann")
    rehearsed = cli("forget", "e1", "-u", "ann", "--dry-run", "--json")
    unasked = cli("forget", "e1", "-u", "ann", stdin="")
    kept = len(cli("list", "-u", "ann", "--json").data)
    gone = cli("forget", "e1", "-u", "ann", "--yes", "--json")

    assert (rehearsed.data["counts"]["episodes"], unasked.status, kept) == (1, INVALID, 2)
    assert gone.data["counts"]["episodes"] == 1
    assert [each["id"] for each in cli("list", "-u", "ann", "--json").data] == ["e2"]
    assert b"secret word" not in (folder / "pagefile.db").read_bytes()
    assert cli("forget", "nope", "-u", "ann", "--yes").status == NOT_FOUND
    assert cli("forget", "e2", "-u", "ann", "--yes", "--session", "s").status == INVALID
    assert cli("forget", "e2", "--yes").status == INVALID
    fact = cli("add", "--fact", "Ann", "likes", "tea", "-u", "ann", "--json").data[0]["id"]
    assert cli("forget", fact, "-u", "ann", "--yes").status == EXIT_STATUS["unsupported"]


def test_the_rows_of_a_rehearsal_add_up_to_what_it_says(cli: Cli) -> None:
    cli("add", "I live in Lisbon.", "-u", "ann", "--consolidate")
    ran = cli("forget", "-u", "ann", "--dry-run")
    rows = [int(line.split()[-1]) for line in ran.out.splitlines()]
    things, entries = map(int, re.findall(r"(\d+) (?:things?|index entr)", ran.err))

    assert sum(rows) == things + entries
    assert rows[-1] == entries > 0


def test_users_have_as_many_facts_as_are_listed(cli: Cli) -> None:
    for _ in range(2):
        cli("add", "--fact", "Ann", "likes", "tea", "-u", "ann")
    cli("add", "--fact", "Ann", "lives_in", "Oslo", "-u", "ann", "--at", "2020-01-01")
    cli("add", "--fact", "Ann", "lives_in", "Rome", "-u", "ann", "--at", "2024-01-01")
    [user] = cli("list", "users", "--json").data

    assert user["facts"] == len(cli("list", "facts", "-u", "ann", "--json").data) == 2


def test_an_import_says_what_it_counts(cli: Cli) -> None:
    cli("add", "I live in Lisbon.", "-u", "ann")
    cli("export", "ann.jsonl", "-u", "ann")
    again = cli("import", "ann.jsonl")
    cli("forget", "-u", "ann", "--yes")
    after = cli("import", "ann.jsonl")

    assert again.out == "0 records taken in; 1 document or log was here already\n"
    assert after.out == "0 records taken in; 1 document or log stays forgotten\n"
    assert cli("import", "nofile").err.startswith("not_found: there is no file 'nofile'.")


# Times


def test_every_time_that_is_printed_says_that_it_is_utc(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("add", "x", "-u", "ann")
    cli("add", "--fact", "Ann", "likes", "tea", "-u", "ann")
    cli("update", "--block", "b", "x", "-u", "ann")
    cli("threads", "append", "t", "x")
    cli("runs", "boot", "x", "--id", "r1")
    cli("keys", "create")
    for words in (
        *(["list"], ["list", "facts"], ["list", "blocks"], ["list", "users"], ["search", "x"]),
        *(["threads", "show", "t"], ["tail", "t"], ["tail", "t", "-f", "--timeout", "0"]),
        *(["ledger", "r1"], ["keys", "list"]),
    ):
        ran = cli(*words, "-u", "ann")

        assert (words, len(MARKED.findall(ran.out)) >= 1) == (words, True)
        assert re.findall(r"\d{4}-\d\d-\d\d(?! \d\d:\d\d(?::\d\d)?Z)", ran.out) == []


# Whole on pipes, in lines on narrow terminals


def test_a_text_is_whole_on_a_pipe_and_following_has_the_same_form(cli: Cli) -> None:
    text = "word " * 100 + "end"
    cli("add", text, "-u", "ann")
    cli("threads", "append", "t", text)
    once, following = cli("tail", "t"), cli("tail", "t", "-f", "--timeout", "0")

    assert text in cli("list", "-u", "ann").out
    assert text in once.out
    assert once.out == following.out


def test_a_fact_is_shown_in_short_lines_without_python_in_them(cli: Cli) -> None:
    ids = [cli("add", "--fact", "Ann", "likes", "tea", "--json").data[0]["id"] for _ in range(2)]
    ran = cli("get", ids[0])

    assert max(map(len, ran.out.splitlines())) <= 80
    assert not set("{}()'") & set(ran.out)
    assert f"        - {ids[1]}" in ran.out.splitlines()


@pytest.mark.parametrize("words", [["list"], ["list", "facts"], ["search", "Lisbon"]], ids=" ".join)
def test_a_narrow_terminal_shows_ids_dates_and_texts(
    cli: Cli, folder: Path, words: list[str]
) -> None:
    cli("add", "Lisbon is where I live", "-u", "ann", "--id", "ep_0123456789abcdef0123456789")
    cli(
        "add", "--fact", "Ann", "likes", "Lisbon", "-u", "ann", "--id", "fact_0123456789abcdef01234"
    )
    status, seen = in_a_terminal(folder, b"", *words, "-u", "ann", COLUMNS="40", NO_COLOR="1")
    lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", seen).splitlines()]

    assert status == 0
    assert max(map(len, lines)) <= 40
    assert sum(bool(MARKED.search(line)) for line in lines) >= 1
    assert {"ep_0123456789abcdef0123456789", "fact_0123456789abcdef01234"} & set(lines)
    assert any("Lisbon" in line for line in lines)


def test_pieces_stay_whole_however_little_room_there_is() -> None:
    assert packed(["one", "two", "a-long-name"], 8) == ["one  two", "a-long-name"]
    assert packed([], 8) == []


@pytest.mark.parametrize("width", [20, 40, 50, 60])
def test_a_narrow_frame_of_organisms_cuts_no_number(width: int) -> None:
    from rich.console import Console

    view = WorkerView("0123456789abcdef", 16_945, 1_000_000, 1.0, {"hops": 1_234_567})
    letter = DeadLetter(
        *("0123456789abcdef-12", "desk", "research", "ann", "request", "t", 0, "t", "handler"),
        *("ValueError: a long story", 1, "ann"),
    )
    frame = Frames().frame(Overview("desk", (view,), (), (letter,)), 2_000_000)
    console = Console(width=width, color_system=None)
    with console.capture() as seen:
        console.print(drawn([frame], "", width))

    for whole in ("pid 16945", "hops 1,234,567", "0123456789abcdef-12", "0123456789abcdef"):
        assert whole in seen.get()


def test_one_episode_shows_no_bar(folder: Path) -> None:
    status, seen = in_a_terminal(folder, b"", "add", "x", "--id", "e1", "-q")
    _, told = in_a_terminal(folder, b"", "add", "x", "--id", "e2")

    assert (status, "storing" in seen + told, "e2" in told) == (0, False, True)


# Words


def test_help_shows_no_types_of_a_programming_language(folder: Path, cli: Cli) -> None:
    plain = cli("add", "--help").out
    _, boxed = in_a_terminal(folder, b"", "add", "--help", NO_COLOR="1", COLUMNS="100")
    boxed = re.sub(r"\x1b\[[\d;]*m", "", boxed)

    assert "<str>" not in plain + boxed
    assert "<bool>" not in boxed
    assert "╭─ Arguments" in boxed


def test_help_on_a_command_has_its_options(cli: Cli) -> None:
    out = cli("help", "forget").out

    assert "pagefile forget [ID]" in out
    assert all(flag in out for flag in ("--before MOMENT", "--dry-run", "--session, -s ID"))
    assert cli("help", "runs").out.count("pagefile runs ") == 10


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["search", "x", "--limit", "many"], "'many' is no whole number"),
        (["bench", "--seconds", "long"], "'long' is no number"),
        (["list", "elephants"], "'elephants' is not one of 'episodes', 'facts'"),
        (["keys", "create", "--days", "0"], "'0' is less than 1"),
        (["mcp", "--port", "70000"], "'70000' is more than 65535"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_usage_error_is_in_peoples_words(cli: Cli, words: list[str], told: str) -> None:
    err = cli(*words).err

    assert told in err
    assert "Value error" not in err
    assert "Input should" not in err


def test_the_next_step_is_one_that_can_be_taken(cli: Cli) -> None:
    cli("runs", "boot", "Plan", "--id", "r1")
    mended = cli("runs", "patch", "r1", "{}").err
    cli("runs", "patch", "r1", json.dumps(patch(0)))
    stale = cli("runs", "patch", "r1", json.dumps(patch(0))).err
    cli("runs", "delete", "r1", "--yes")
    deleted = cli("runs", "boot", "Plan", "--id", "r1").err

    assert mended.endswith("mend the patch\n")
    assert "runs show" in stale
    assert deleted == "conflict: run 'r1' was deleted. choose another id: it stays taken\n"
    assert "project_id" not in cli("get", "nope").err + cli("update", "nope", "x").err
    assert "postgresql://" in cli("--url", "mysql://x", "list").err


def test_a_copy_names_its_stores_and_claims_no_check_that_was_not_made(cli: Cli) -> None:
    cli("--url", "a.db", "add", "x")
    missing = cli("copy", "none.db", "b.db")
    plain, told = cli("copy", "a.db", "b.db"), cli("copy", "a.db", "b.db", "--json")
    checked = cli("copy", "a.db", "b.db", "--verify")

    assert (missing.status, "'none.db'" in missing.err) == (NOT_FOUND, True)
    assert "verified" not in plain.out
    assert "nothing wrong" in checked.out
    assert (told.told["scope"]["url"], told.told["scope"]["target"]) == ("a.db", "b.db")


def test_init_again_without_options_leaves_what_is_there(cli: Cli, folder: Path) -> None:
    cli("init", "--user", "ann", "--embedder", "none")
    before = (folder / "pagefile.toml").read_bytes()
    again = cli("init")

    assert (again.status, "nothing was changed" in again.out) == (0, True)
    assert (folder / "pagefile.toml").read_bytes() == before


def test_a_migration_is_told_in_a_sentence(cli: Cli) -> None:
    none = cli("migrate", "--check")
    cli("init")

    assert (none.status, "there is no store yet" in none.out) == (4, True)
    assert cli("migrate", "--check").out == (
        "sqlite: format 2, which is current; there was nothing to do\n"
    )
    assert cli("migrate", "memory:").out == "memory has no format to bring up to date\n"


def test_one_slot_is_no_slots_and_a_line_is_named_once(cli: Cli, folder: Path) -> None:
    pytest.importorskip("yaml")
    cli("threads", "append", "t", "x")
    (folder / "bad.yaml").write_text("organism: [\n")
    out = cli("organism", "check", "bad.yaml").out

    assert "has 1 slot, not 5" in cli("threads", "append", "t", "x", "--expected-len", "5").err
    assert re.match(r"bad\.yaml:\d+: (?!line)", out)


def test_the_doctor_knows_every_extra_in_lines_of_eighty_columns(cli: Cli) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = [name for name, _, _ in EXTRAS]

    assert sorted(known) == sorted(set(project["optional-dependencies"]) - {"bench", "dev"})
    cli("init")
    lines = [line for line in cli("doctor").out.splitlines() if "/" not in line]
    assert max(map(len, lines)) <= 80


def test_a_tool_that_is_given_another_word_names_those_it_takes() -> None:
    [propose] = [tool for tool in PROPOSAL_TOOLS if tool.name == "propose_memory"]
    change: dict[str, Any] = {"op": "ADD", "content": "x", "rationale": "y"}

    with pytest.raises(pagefile.Invalid, match="allowed: add, "):
        propose.arguments({"changes": [change]})


def test_a_server_for_clients_says_so_to_a_person_who_starts_it(folder: Path) -> None:
    pytest.importorskip("mcp")
    status, seen = in_a_terminal(folder, b"\x04", "mcp")  # Ctrl-D: nobody says anything.

    assert (status, "serving MCP on standard input" in seen) == (0, True)

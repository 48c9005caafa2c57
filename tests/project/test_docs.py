"""The docs are held to the code: blocks run, promises agree, nothing public is left out."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec
import pytest

import pagefile
from pagefile.runs.config import TRANSITIONS
from pagefile.runs.schema.artifacts import schema
from pagefile.testing.promises import markdown, table
from tests import ROOT
from tests.servers.http import HttpServer

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
REFERENCE = "\n".join(
    page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/reference").glob("*.md"))
)
PACKAGE = ROOT / "src/pagefile"
MOST_BLOCKS_NOT_RUN = 2

_FENCE = re.compile(
    r"(?P<not_run><!-- not run: .+? -->\n+)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """One fenced block; `follows` when only blank lines part it from the one before."""

    kind: str
    body: str
    line: int
    not_run: bool
    follows: bool


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("kind")) + 1
        follows = bool(found) and not text[end : match.start()].strip()
        not_run = match["not_run"] is not None
        found.append(Block(match["kind"], match["body"], line, not_run, follows))
        end = match.end()
    return found


def id_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with(kind: str, start: str = "") -> list[Path]:
    return [
        page
        for page in PAGES
        if any(block.kind == kind and block.body.startswith(start) for block in blocks_of(page))
    ]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty folder, no settings, and a module for the blocks to be in."""
    monkeypatch.chdir(tmp_path)
    for name in (*environment_variables(), "DATABASE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def servers(
    page: Path,
    workplace: ModuleType,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """A server behind each URL that the blocks of the page take from the environment."""
    blocks = "".join(block.body for block in blocks_of(page) if block.kind == "python")
    with contextlib.ExitStack() as running:
        if "DATABASE_URL" in blocks:
            server = request.getfixturevalue("postgres_server")
            server.add_pgvector()
            monkeypatch.setenv("DATABASE_URL", server.url("").partition("?")[0])
        if "REDIS_URL" in blocks:
            monkeypatch.setenv("REDIS_URL", request.getfixturevalue("redis_server").url)
        if "PAGEFILE_URL names the server" in blocks:
            local = running.enter_context(HttpServer(str(tmp_path / "agent.db"), {"local": True}))
            monkeypatch.setenv("PAGEFILE_URL", local.base)
        yield


def run_block(block: Block, page: Path, module: ModuleType) -> str:
    """Execute it as if it stood in the page at its own line; what it printed."""
    code = compile("\n" * block.line + block.body, str(page), "exec", dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, vars(module))
    return printed.getvalue()


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("page", pages_with("python"), ids=id_of)
def test_every_python_block_runs_and_prints_what_the_page_says(
    page: Path, workplace: ModuleType
) -> None:
    printed = ""
    for block in blocks_of(page):
        if block.kind == "python" and not block.not_run:
            printed = run_block(block, page, workplace)
        elif block.kind == "text" and block.follows:
            assert (block.line, printed) == (block.line, block.body)


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no SQLite shell here")
@pytest.mark.parametrize("page", pages_with("console", "$ sqlite3 "), ids=id_of)
def test_the_sqlite_shell_prints_what_the_page_says(page: Path, workplace: ModuleType) -> None:
    for block in blocks_of(page):
        if block.kind == "python":
            run_block(block, page, workplace)
        elif block.body.startswith("$ sqlite3 "):
            command, _, expected = block.body.removeprefix("$ ").partition("\n")
            ran = subprocess.run(command, shell=True, capture_output=True, text=True)

            assert (block.line, ran.stdout, ran.stderr) == (block.line, expected, "")


def test_hardly_any_block_is_left_unrun() -> None:
    left = [f"{id_of(page)}:{b.line}" for page in PAGES for b in blocks_of(page) if b.not_run]

    assert len(left) <= MOST_BLOCKS_NOT_RUN, left


def test_the_readme_shows_what_its_sample_prints() -> None:
    first, second = blocks_of(ROOT / "README.md")[:2]

    assert (first.kind, second.kind, second.follows) == ("python", "text", True)


# Promises


def promises_in_docstring() -> dict[str, str]:
    numbered = re.split(r"\n\s*\n|^\s*(?=S\d+ )", pagefile.Store.__doc__ or "", flags=re.MULTILINE)
    words = (part.split() for part in numbered)
    return {
        each[0]: " ".join(each[1:])
        for each in words
        if each
        and re.fullmatch(r"S\d+|Not", each[0])
        and (each[0] != "Not" or "promised" in each[1])
    }


def promises_in_page() -> dict[str, str]:
    page = (ROOT / "docs/reference/promises.md").read_text(encoding="utf-8")
    paragraphs = (part.replace("**", "").split() for part in page.split("\n## ")[0].split("\n\n"))
    return {
        each[0]: " ".join(each[1:]) for each in paragraphs if re.fullmatch(r"S\d+|Not", each[0])
    }


def test_the_page_of_promises_has_the_words_of_the_docstring() -> None:
    in_docstring = promises_in_docstring()

    assert list(in_docstring) == [*(f"S{n}" for n in range(1, 12)), "Not"]
    assert promises_in_page() == in_docstring


def test_the_page_of_promises_says_which_engine_keeps_which() -> None:
    page = (ROOT / "docs/reference/promises.md").read_text(encoding="utf-8")

    assert markdown(table()) in page


# Nothing is left out


@functools.cache
def environment_variables() -> frozenset[str]:
    """Every PAGEFILE_… that the package's code mentions as a text of its own."""
    return frozenset(
        node.value
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"PAGEFILE_[A-Z_]+", node.value)
    )


def undocumented(names: list[str]) -> list[str]:
    return [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", REFERENCE)]


def public_methods(cls: type) -> list[str]:
    found = inspect.getmembers(cls, inspect.isfunction)
    return [name for name, _ in found if not name.startswith("_")]


def test_every_public_name_is_in_the_reference() -> None:
    assert undocumented(pagefile.__all__) == []


def test_every_method_of_the_store_has_a_heading_with_its_parameters() -> None:
    headings = re.findall(r"^### Store\.(\w+)\((.*?)\)(?: |$)", REFERENCE, re.MULTILINE)
    shown = {name: re.findall(r"(?:^|, )(\w+)", parameters) for name, parameters in headings}
    methods = public_methods(pagefile.Store)
    real = {
        name: list(inspect.signature(getattr(pagefile.Store, name)).parameters)[1:]
        for name in methods
    }

    assert shown == real


@pytest.mark.parametrize("cls", [pagefile.Pagefile, pagefile.Admin])
def test_every_method_of_a_handle_is_in_the_reference(cls: type) -> None:
    assert undocumented([f"{name}(" for name in public_methods(cls)]) == []


def test_every_error_has_its_row_with_its_code() -> None:
    errors: list[type[pagefile.PagefileError]] = [pagefile.PagefileError]
    errors += pagefile.PagefileError.__subclasses__()
    public = [error for error in errors if error.__name__ in pagefile.__all__]
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", REFERENCE, re.MULTILINE))

    assert {error.__name__: error.code for error in public}.items() <= rows.items()


@pytest.mark.parametrize("cls", [pagefile.Options, pagefile.Limits])
def test_every_option_and_limit_has_its_row(cls: type[msgspec.Struct]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", REFERENCE, re.MULTILINE)

    assert [field for field in cls.__struct_fields__ if field not in rows] == []


def test_every_default_limit_is_the_one_in_the_reference() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([\d,]+|None)`? \| `", REFERENCE, re.MULTILINE))
    defaults = {name: f"{value:,}" if value else "None" for name, value in limits().items()}

    assert defaults.items() <= rows.items()


def test_every_field_of_a_working_set_and_of_its_items_is_in_the_page_of_runs() -> None:
    page = (ROOT / "docs/reference/runs.md").read_text(encoding="utf-8")
    made = schema("working_set")
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (✓?) ?\| ", page, re.MULTILINE))
    patched = schema("ws_patch")["properties"]["set"]["properties"]

    assert rows == {name: "✓" if name in patched else "" for name in made["properties"]}
    for item in ("sliding", "pinned", "artifact"):
        shape = made["$defs"][{"artifact": "artifact_ref"}.get(item, f"{item}_item")]
        row = re.search(rf"^\| {item} \| (.*) \| (.*)\|$", page, re.MULTILINE)
        assert row is not None
        must, may = (re.findall(r"`(\w+)`", cell) for cell in row.groups())
        assert (must, set(must + may)) == (shape["required"], set(shape["properties"]))


def test_the_page_of_runs_has_the_table_of_statuses() -> None:
    page = (ROOT / "docs/reference/runs.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", page, re.MULTILINE))
    told = {before: frozenset(re.findall(r"`(\w+)`", after)) for before, after in rows.items()}

    assert told == TRANSITIONS


def limits() -> dict[str, int | None]:
    return msgspec.structs.asdict(pagefile.Limits())


@pytest.mark.parametrize(
    "cls",
    [
        pagefile.Append,
        pagefile.Put,
        pagefile.Delete,
        pagefile.Fork,
        pagefile.Drop,
        pagefile.Prune,
        pagefile.VersionIs,
        pagefile.Absent,
        pagefile.LengthIs,
        pagefile.LengthBelow,
        pagefile.CreatedAt,
        pagefile.CountBelow,
        pagefile.Unchanged,
        pagefile.Batch,
        pagefile.Selector,
        pagefile.Query,
    ],
)
def test_every_field_of_what_a_caller_builds_is_in_its_signature(cls: type[msgspec.Struct]) -> None:
    found = re.search(rf"^(?:\| `|### ){cls.__name__}\((.+?)\)(?:`|$)", REFERENCE, re.MULTILINE)
    shown = [] if found is None else [part.split("=")[0] for part in found[1].split(", ")]

    assert shown == list(cls.__struct_fields__)


def test_every_environment_variable_is_in_the_reference() -> None:
    assert {"PAGEFILE_URL", "PAGEFILE_TENANT", "PAGEFILE_EMBEDDER"} <= environment_variables()
    assert undocumented(sorted(environment_variables())) == []


# Links, commands, layers


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", GUIDES, ids=id_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for target in _LINK.findall(text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors_of(there)):
            dead.append(target)

    assert dead == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            paths = (t.partition("#")[0] for t in _LINK.findall(page.read_text(encoding="utf-8")))
            waiting += [(page.parent / p).resolve() for p in paths if p.endswith(".md")]

    assert sorted(set(PAGES) - reached) == []


def make_targets() -> list[str]:
    return re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_commands_of_the_guides_are_targets_of_the_makefile() -> None:
    shown = {
        target
        for page in GUIDES
        for target in re.findall(r"(?:\$ |`)make (\w+)", page.read_text(encoding="utf-8"))
    }

    assert {"demo", "test"} <= shown
    assert sorted(shown - set(make_targets())) == []


def layers() -> list[list[str]]:
    blocks = blocks_of(ROOT / "CONTRIBUTING.md")
    listed = next(block for block in blocks if block.kind == "text")
    return [line.split(" · ") for line in listed.body.splitlines()]


def imports_of(file: Path) -> set[str]:
    """The modules of the package, by the name of their layer, that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "pagefile":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pagefile."):
            found.add((node.module or "").split(".")[1])
    return found


def test_every_module_imports_only_from_the_layers_above_its_own() -> None:
    rank = {name: i for i, names in enumerate(layers()) for name in names}
    wrong = [
        f"{path.stem} is not listed" for path in PACKAGE.glob("[!_]*.py") if path.stem not in rank
    ]
    for file in sorted(PACKAGE.rglob("*.py")):
        layer = file.relative_to(PACKAGE).with_suffix("").parts[0]
        if layer not in ("__init__", "__main__"):
            above = {name for name in rank if rank[name] < rank.get(layer, 0)}
            # Where a URL is a server's, `open` hands over to what is made from all the rest.
            opened = {"client"} if layer in ("handle", "aio") else set()
            allowed = above | opened | {layer, "_aio_types"}
            wrong += [f"{layer} imports {name}" for name in imports_of(file) - allowed]

    assert wrong == []


#: Folders whose own folders are named, too.
_DEEP = ("store", "engines", "recall", "memory", "runs", "dispatch", "surfaces")


def test_the_reading_order_names_every_folder() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    order = page.partition("## 6. ")[2].partition("\nDecisions")[0]
    named = set(re.findall(r"\b(\w+)/", order))
    folders = {path.parent for path in PACKAGE.rglob("__init__.py")} - {PACKAGE}
    left_out = {
        "/".join(folder.relative_to(PACKAGE).parts)
        for folder in folders
        if folder.name not in named and folder.parent.name in (PACKAGE.name, *_DEEP)
    }

    assert left_out == set()


def test_every_folder_says_what_it_is() -> None:
    silent = [
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("__init__.py")
        if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]

    assert silent == []

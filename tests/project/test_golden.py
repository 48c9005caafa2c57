"""What callers see and what data is called, held to the files in `tests/golden`.

A difference is either a mistake or a change that belongs in the changelog. In the second case
write the files again, and commit the difference with the change:

    .venv/bin/python -m tests.project.test_golden
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import gzip
import hashlib
import inspect
import io
import json
import os
import re
import sys
import typing
import zipfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import datetime
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import pagefile
import pagefile.aio
import pagefile.client
import pagefile.dispatch
from pagefile import Admin, Assembly, Memory
from pagefile.dispatch import (
    NoReply,
    Organism,
    SystemError,
    TodoClosed,
    TodoComplete,
    TodoRegistered,
    TodoUntil,
)
from pagefile.store import codec
from pagefile.surfaces.access.identity import RIGHTS
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.cli import main
from pagefile.surfaces.cli.commands.help import described
from pagefile.surfaces.http.openapi import document
from pagefile.surfaces.mcp import mcp_service
from pagefile.surfaces.mcp.caller import Identity
from pagefile.surfaces.mcp.reference.graph import Graph
from pagefile.surfaces.mcp.resources import TEMPLATES
from pagefile.surfaces.mcp.server import PROMPTS
from pagefile.surfaces.mcp.tool import schema_of
from pagefile.testing.memory.fixtures import HashedWords
from tests import ROOT
from tests.engines.story import World, tell

GOLDEN = ROOT / "tests/golden"
PUBLIC: tuple[ModuleType, ...] = (
    pagefile,
    pagefile.aio,
    pagefile.client,
    pagefile.dispatch,
)
#: Where a class lives is not part of what callers see.
_MODULE = re.compile(r"\b(?:pagefile|collections\.abc|typing|datetime|pathlib)\.(?:[a-z_]+\.)*")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def names_and_signatures() -> str:
    """Every public name with its parameters, and those of its methods."""
    lines: list[str] = []
    for module in PUBLIC:
        lines.append(f"{module.__name__}:")
        for name in sorted(module.__all__):
            lines += _about(name, getattr(module, name))
    return "\n".join(lines) + "\n"


def _about(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, type):
        yield f"  {name}{_signature(value) if callable(value) else ''}"
        return
    bases = [base.__name__ for base in value.__mro__[1:] if _is_public(base)]
    yield f"  class {name}{_signature(value)}" + (f" is {', '.join(bases)}" if bases else "")
    if issubclass(value, Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in value)
    for method, found in inspect.getmembers_static(value):
        if not method.startswith("_") and method not in dir(Exception):
            yield f"    {_member(method, found)}"


def _member(name: str, found: Any) -> str:
    if isinstance(found, property):
        return f"{name}: property{_signature(found.fget)}"
    if isinstance(found, classmethod | staticmethod):
        return f"{type(found).__name__} {name}{_signature(found.__func__)}"
    if inspect.isfunction(found):
        kind = "async " if inspect.iscoroutinefunction(found) else ""
        return f"{kind}{name}{_signature(found)}"
    return name


def _is_public(cls: type) -> bool:
    return any(getattr(module, cls.__name__, None) is cls for module in PUBLIC)


def _signature(value: Any) -> str:
    try:
        told = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    return _ADDRESS.sub("", _MODULE.sub("", told.replace("'", "")))


def openapi() -> str:
    """The document that the server describes itself with."""
    return _json(document())


def mcp() -> str:
    """The tools, resources and prompts that MCP clients are offered, and the reference tools."""
    told: dict[str, Any] = {}
    with Admin("memory:") as admin:
        for compat in (None, "reference"):
            service = mcp_service(admin, compat=compat)
            told[compat or "tools"] = [
                {
                    "name": tool.name,
                    "title": tool.title,
                    "about": tool.about,
                    "right": tool.right,
                    "hints": [tool.writes, tool.destroys, tool.repeatable],
                    "takes": schema_of(tool.takes),
                    "gives": schema_of(tool.gives),
                }
                for tool in service.tools(Identity("default", None, frozenset(RIGHTS)))
            ]
    told["resources"] = [each.address for each in TEMPLATES]
    told["prompts"] = [
        {"name": form.name, "takes": [each.name for each in form.arguments]} for form in PROMPTS
    ]
    return _json(told)


def cli() -> str:
    """The help of the program and of every command."""
    parts = []
    for name in ("", *sorted(each["name"] for each in described())):
        shown = io.StringIO()
        with redirect_stdout(shown):
            main([*name.split(), "--help"])
        parts.append(f"$ pagefile {name} --help\n{shown.getvalue().strip()}\n")
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def stored_names() -> str:
    """What data calls the classes that callers can store: the public ones, and what those give."""
    found: set[type] = set()
    waiting = [getattr(module, name) for module in PUBLIC for name in module.__all__]
    while waiting:
        value = waiting.pop()
        if isinstance(value, type) and value.__module__.startswith("pagefile."):
            if value not in found:
                found.add(value)
                waiting += _given_by(value)
        else:
            waiting += typing.get_args(value)
    typed = [cls for cls in found if codec.is_typed(cls) and cls.__module__.split(".")[1] != "aio"]
    remote = "pagefile.client"  # Only its own programs have what a client gives.
    names = (codec.type_name(cls) for cls in typed if not cls.__module__.startswith(remote))
    return "\n".join(sorted(names)) + "\n"


def _given_by(cls: type) -> Iterator[Any]:
    """What the annotations of fields and of the answers of methods name."""
    yield from _hints(cls).values()
    for name, method in inspect.getmembers(cls):
        if not name.startswith("_") and (inspect.isfunction(method) or inspect.ismethod(method)):
            yield _hints(method).get("return")
        elif isinstance(method, property):
            yield _hints(method.fget).get("return")


def _hints(of: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(of, localns=_for_type_checkers(of.__module__))
    except (NameError, TypeError):  # What a struct or a property of C has no names for.
        return {}


@functools.cache
def _for_type_checkers(module: str) -> dict[str, Any]:
    """What a module imports where only type checkers see it."""
    if not module.startswith("pagefile."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        alias.asname or alias.name: getattr(import_module(node.module), alias.name)
        for guard in tree.body
        if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
        for node in guard.body
        if isinstance(node, ast.ImportFrom) and node.module and not node.module.endswith("_types")
        for alias in node.names
    }


def story() -> str:
    """Digests of what a scripted life of a store leaves, with vectors and without."""
    told = {}
    for title, embedder in (("words", None), ("vectors", HashedWords())):
        kept = tell(World(), lambda options: pagefile.open("memory:", options=options), embedder)
        told[title] = {
            name: hashlib.sha256(_portable(name, value)).hexdigest() for name, value in kept.items()
        }
    return _json(told)


def _portable(name: str, value: bytes) -> bytes:
    """The same on every machine: what is compressed as it was before, scores to six digits."""
    if value.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(value)) as archive:
            return b"".join(
                f"{info.filename} {info.file_size}\n".encode() + archive.read(info)
                for info in archive.infolist()
            )
    if name.startswith("recalled"):
        found = [[(key, f"{score:.6f}") for key, score in each] for each in json.loads(value)]
        return json.dumps(found).encode()
    return value


def _json(value: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=1)
    return text.decode() + "\n"


KEPT: dict[str, Callable[[], str]] = {
    "names.txt": names_and_signatures,
    "openapi.json": openapi,
    "mcp.json": mcp,
    "cli.txt": cli,
    "stored_names.txt": stored_names,
    "story.json": story,
}


@pytest.mark.parametrize("name", KEPT)
def test_nothing_that_others_rely_on_has_changed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in [each for each in os.environ if each.startswith("PAGEFILE_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "100")
    kept = (GOLDEN / name).read_text(encoding="utf-8")

    assert KEPT[name]().splitlines() == kept.splitlines()


# A file of the state in which the modules had other names


class Order(msgspec.Struct, frozen=True):
    number: int
    note: str = ""


@dataclasses.dataclass
class Parcel:
    due: datetime
    raw: bytes


class Colour(Enum):
    RED = "red"


#: Making one of these runs their code, which reading data never does.
_CHECKED = {"AssemblyOptions", "Episode", "Fact", "Message", "RunConfig"}
#: What an organism itself sends.
_PAYLOADS = {SystemError, NoReply, TodoUntil, TodoRegistered, TodoComplete, TodoClosed}
_DIGEST = "268762b8ce935d145a4b417ac78bc3eec386c53d0010f728c4e0860e187ec754"


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Admin]:
    for cls in (Order, Parcel, Colour):
        codec.register(cls, f"kept:{cls.__name__}")
    path = tmp_path / "kept.db"
    packed = ROOT / "tests/kept" / "flat-modules.db.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    with Admin(path) as admin:
        yield admin


def test_a_file_of_the_flat_modules_verifies_and_every_room_reads_it(kept: Admin) -> None:
    with kept.open("default") as pf, Memory(pf, embedder=HashedWords()) as memory:
        assert (pf.verify().problems, pf.check().problems) == ((), ())
        assert (kept.tenants(), pf.store.head().digest.hex()) == (
            ["default", "second", "~access"],
            _DIGEST,
        )
        assert pf.runs.open("trip").load()["next_action"] == "book the night train"
        assert bool(pf.runs.open("trip").rebuild())
        assert [hit.item.content for hit in pf.items.search("trains", user_id="ann")] == [
            "Ann prefers night trains"
        ]
        found = memory.recall("which train?", user_id="ann", limit=1)
        assert [one.input for one in found] == ["I prefer night trains to flights."]
        assert [one.object for one in memory.facts.query(user_id="ann", predicate="likes")] == [
            "ferns"
        ]
        [receipt] = Assembly(pf, memory=memory).receipts(user_id="ann").receipts
        assert receipt.agent == ""
        [relation] = Graph(pf.store, "ann").relations()
        assert (relation.from_, relation.to) == ("Ann", "Oslo")
        assert [key.name for key in KeyStore(kept).list()] == ["kept"]


def test_values_of_the_flat_modules_come_back_as_their_classes(kept: Admin) -> None:
    with kept.open("default") as pf:
        stored = {
            name.removeprefix("typed/"): pf.store.history(name)[-1].value
            for name in pf.store.names("document", prefix="typed/")
        }
        inside = [entry.value["inside"][0] for entry in pf.store.read("typed")]
        slots = [
            slot.payload
            for thread in pf.context.get_stats()["threads"]
            for slot in pf.context.get_thread_slots(thread)
        ]
        organism = Organism(pf)
        [letter] = organism.dead_letters()

    classes = {name: type(value).__name__ for name, value in stored.items()}
    assert len(classes) == 37
    assert classes == {name: "Record" if name in _CHECKED else name for name in stored}
    # A member of a StrEnum inside of something else is the equal text.
    nested = {type(value).__name__ for value in inside}
    assert nested == {*classes.values(), "str"} - {"Role"}
    assert {type(payload) for payload in slots} >= {Order, Parcel, *_PAYLOADS}
    assert letter.listener == "broken"


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    for title, make in KEPT.items():
        (GOLDEN / title).write_text(make(), encoding="utf-8")

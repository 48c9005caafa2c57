"""Writes `pagefile/client/calls`, `awaited` and `shapes` from the routes of the server.

    python -m pagefile.testing.client_calls

A route is described once, where it is answered: its path, parameters, body and
answer. What a program calls is made from that, for clients that block and for
those that await; a test fails when it is out of date, or a route has no name here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from pagefile.testing.client_routes import Described, Parameter, described
from pagefile.testing.client_shapes import Shapes

TARGET = Path(__file__).parent.parent / "client"
HEADER = '"""Made by `python -m pagefile.testing.client_calls` from the server\'s routes."""'
#: Nouns with more than routes: where their classes are, blocking and awaited.
EXTENDED = {"runs": ("run", "async_run")}
_IN = " " * 8


def written() -> dict[str, str]:
    """The text of every file, by its path below the client."""
    shapes = Shapes()
    calls = list(described(shapes))
    for call in calls:
        shapes.want(call.gives, call.noun)
    files = {f"shapes/{noun}.py": f"{HEADER}\n\n{text}" for noun, text in shapes.files().items()}
    nouns = sorted({call.noun for call in calls})
    for noun in nouns:
        mine = [call for call in calls if call.noun == noun]
        names = [call.name for call in mine]
        assert len(set(names)) == len(names), (noun, names)
        files[f"calls/{noun}.py"] = _module(noun, mine, shapes, is_async=False)
        files[f"awaited/{noun}.py"] = _module(noun, mine, shapes, is_async=True)
    files["calls/nouns.py"] = _nouns(nouns, is_async=False)
    files["awaited/nouns.py"] = _nouns(nouns, is_async=True)
    for package, said in (
        ("calls", "Calls that block."),
        ("awaited", "Calls that are awaited."),
    ):
        files[f"{package}/__init__.py"] = f'"""{said}"""\n'
    files["shapes/__init__.py"] = (
        '"""What the server takes and answers with, a module for each noun."""\n\n'
        f"from pagefile.client.shapes import {', '.join(shapes.nouns)}\n\n"
        f"__all__ = {shapes.nouns}\n"
    )
    return _formatted(files)


def _nouns(nouns: list[str], *, is_async: bool) -> str:
    link, module = ("AsyncLink", "async_connection") if is_async else ("Link", "connection")
    prefix, package = ("Async", "awaited") if is_async else ("", "calls")
    homes = dict.fromkeys(nouns, f"pagefile.client.{package}")
    lines = ["from __future__ import annotations"]
    for noun, home in homes.items():
        place = (
            f"pagefile.client.{EXTENDED[noun][is_async]}" if noun in EXTENDED else f"{home}.{noun}"
        )
        lines.append(f"from {place} import {prefix}{class_of(noun)}")
    lines += [f"from pagefile.client.{module} import {link}", "", ""]
    lines += [
        f"class {prefix}Nouns:",
        '    """What there is to ask about, one attribute for each."""',
        "",
        f"    def __init__(self, link: {link}) -> None:",
        *(f"        self.{noun} = {prefix}{class_of(noun)}(link)" for noun in nouns),
    ]
    return f"{HEADER}\n\n" + "\n".join(lines) + "\n"


def class_of(noun: str) -> str:
    """The class that has the calls of a noun."""
    return noun.capitalize()


def _module(noun: str, calls: list[Described], shapes: Shapes, *, is_async: bool) -> str:
    link, module = ("AsyncLink", "async_connection") if is_async else ("Link", "connection")
    name = ("Async" if is_async else "") + class_of(noun)
    lines = [
        f"class {name}:",
        f'    """Routes about {noun}; see `docs/reference/http.md`."""',
        "",
        f"    def __init__(self, link: {link}) -> None:",
        "        self._link = link",
        "",
    ]
    for call in sorted(calls, key=lambda call: call.name == "list"):
        # A method named `list` would hide the type from what stands behind it.
        lines += _method(call, shapes, is_async=is_async)
    imports = [
        "from __future__ import annotations",
        "from collections.abc import AsyncIterator, Iterator, Mapping, Sequence",
        "from datetime import datetime",
        "from decimal import Decimal",
        "from typing import Any, Literal",
        "import pagefile.store.records as library",
        "from pagefile.client import shapes",
        "from pagefile.client.responses import Target, Upload",
        "from pagefile.client.request import Ask, asked, given, place",
        f"from pagefile.client.{module} import {link}",
        "from pagefile.client.page import Page",
    ]
    text = shapes.resolved("\n".join(lines), outside="shapes.")
    return f"{HEADER}\n\n" + "\n".join(imports) + "\n\n\n" + text


def _method(call: Described, shapes: Shapes, *, is_async: bool) -> list[str]:
    gives = _given_type(call, shapes)
    required = [p.told for p in call.parameters if p.default is None]
    optional = [p.told for p in call.parameters if p.default is not None]
    if call.kind == "upload":
        required.append("content: Upload")
    if call.kind == "download":
        required.append("to: Target")
    if call.is_guarded:
        optional.append("expected_version: int | None = None")
    has_key = not call.is_safe and call.kind in ("send", "upload")
    if has_key:
        optional.append("idempotency_key: str | None = None")
    taken = ", ".join(["self", *required, *(["*"] if optional else []), *optional])
    returns = f"AsyncIterator[{gives}]" if is_async else f"Iterator[{gives}]"
    returns = returns if call.kind == "follow" else gives
    is_awaited = is_async and call.kind != "follow"
    # An iterator is handed on as it is; nothing of it is awaited here.
    head = f"    {'async ' if is_awaited else ''}def {call.name}({taken}) -> {returns}:"
    ask = _ask(call, has_key=has_key)
    shape = "" if call.kind in ("text", "download") else f", {gives}"
    more = {"upload": ", content", "download": ", to", "follow": ", after"}.get(call.kind, "")
    return [
        head,
        *textwrap.wrap(f'"""{call.says}"""', 100, initial_indent=_IN, subsequent_indent=_IN),
        f"        ask = {ask}",
        f"        return {'await ' if is_awaited else ''}self._link.{call.kind}(ask{more}{shape})",
        "",
    ]


def _given_type(call: Described, shapes: Shapes) -> str:
    if isinstance(call.gives, tuple):
        return f"Page[{shapes.spelled_for(call.gives[1], call.noun, request=False)}]"
    return shapes.spelled_for(call.gives, call.noun, request=False)


def _ask(call: Described, *, has_key: bool) -> str:
    named = [p for p in call.parameters if p.where == "path"]
    filled = "".join(f", {p.wire}={p.name}" for p in named)
    path = f"place({call.path!r}{filled})" if named else repr(call.path)
    parts = [repr(call.method), path]
    if any(p.where == "query" for p in call.parameters):
        parts.append(f"query={_values(call, 'query')}")
    if call.has_body:
        parts.append(f"body={_values(call, 'body')}")
    if call.kind == "upload":
        parts.append(f"media={call.media!r}")
    if has_key:
        parts.append("key=idempotency_key")
    if call.is_guarded:
        parts.append("if_match=expected_version")
    if call.is_safe:
        parts.append("is_safe=True")
    if call.is_exact:
        parts.append("is_exact=True")
    return f"asked({', '.join(parts)})"


def _values(call: Described, where: str) -> str:
    mine = [p for p in call.parameters if p.where == where]
    required = [f"{p.wire!r}: {_value(p)}" for p in mine if p.default is None]
    optional = [p for p in mine if p.default is not None]
    keywords = [f"{p.wire}={_value(p)}" for p in optional if p.wire.isidentifier()]
    spread = f"**given({', '.join(keywords)})" if keywords else ""
    if not required and spread:
        return spread.removeprefix("**")
    return "{" + ", ".join([*required, *([spread] if spread else [])]) + "}"


def _value(parameter: Parameter) -> str:
    if parameter.name == "user_id":
        return "self._link.user(user_id)"
    return f"self._link.owned({parameter.name})" if parameter.is_owned else parameter.name


def _formatted(files: dict[str, str]) -> dict[str, str]:
    """The same, as the house formats its code; unused imports are gone."""
    with tempfile.TemporaryDirectory(prefix="pagefile-client-") as folder:
        for path, text in files.items():
            file = Path(folder, path)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        ruff = [sys.executable, "-m", "ruff"]
        rules = ["--isolated", "--line-length", "100", "--target-version", "py311"]
        known = 'lint.isort.known-first-party=["pagefile"]'
        subprocess.run(
            [
                *ruff,
                "check",
                "-q",
                *rules,
                "--config",
                known,
                "--select",
                "F401,I",
                "--fix",
                folder,
            ],
            check=True,
        )
        subprocess.run([*ruff, "format", "-q", *rules, folder], check=True)
        return {path: Path(folder, path).read_text() for path in files}


def main() -> None:
    """Write them all."""
    for path, text in written().items():
        file = TARGET / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


if __name__ == "__main__":
    main()

"""The table of operations: said once, described, and nothing beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagefile.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    Unavailable,
    as_fields,
    from_fields,
)
from pagefile.operations import table
from pagefile.surfaces.http.openapi import document
from pagefile.surfaces.http.table import served

SOURCE = Path(__file__).parents[2] / "src/pagefile"


def test_every_field_and_parameter_of_the_document_is_described() -> None:
    made = document()
    fields = [
        f"{name}.{field}"
        for name, shape in made["components"]["schemas"].items()
        for field, part in shape.get("properties", {}).items()
        if not part.get("description")
    ]
    parameters = [
        f"{method} {path}: {parameter['name']}"
        for path, methods in made["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]

    assert fields + parameters == []


def files_that_name(word: str) -> set[str]:
    """Files of the package that hold a word; the kit of contracts is not among them."""
    return {
        str(file.relative_to(SOURCE))
        for file in (*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyi"))
        if re.search(rf"\b{word}\b", file.read_text(encoding="utf-8"))
        and file.relative_to(SOURCE).parts[0] != "testing"
    }


def test_an_operation_is_named_in_four_files_at_most() -> None:
    """Its method, its row, and the stubs that are generated."""
    named = files_that_name("session_messages")

    assert "operations/memory.py" in named
    assert len(named) <= 4


def test_a_parameter_is_named_in_four_files_at_most() -> None:
    """Where it is used, and the stubs that are generated; no row names it."""
    named = {
        name
        for name in files_that_name("exclude_session_id")
        if not name.startswith(("client/calls/", "client/awaited/"))
    }

    assert not any(name.startswith("surfaces/") for name in named)
    assert len(named) <= 4


def test_every_row_is_of_a_method_that_a_handle_has() -> None:
    lost = [
        each.name
        for each in table()
        if each.method is not None and not hasattr(each.classes[0], each.method.__name__)
    ]

    assert lost == []


def test_no_two_rows_answer_at_one_place() -> None:
    places = [(each.http.method, each.http.path) for each in served() if each.http is not None]

    assert len(places) == len(set(places)) == 128


def test_the_table_is_loaded_by_who_asks_for_it() -> None:
    code = (
        "import sys, pagefile, pagefile.operations;"
        "print([name for name in sys.modules if name.startswith('pagefile.operations.')"
        " and name.rpartition('.')[2] in ('memory', 'binder', 'runs')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


@pytest.mark.parametrize(
    "error",
    [
        NotFound("there is no such thread", "append to it first"),
        Conflict("thread 't' has 2 slots, not 1", "read it", target="t", expected=1, current=2),
        Invalid("limit", "-1 is too small", "give 0 or more"),
        LimitExceeded("slots per thread", limit=2, wanted=3, next_step="begin another"),
        Unavailable("the disk is full", "make room", outcome="unknown", key="k"),
        Forbidden("this key has no right to write"),
    ],
    ids=lambda error: error.code,
)
def test_an_error_comes_out_of_the_wire_as_it_went_in(error: PagefileError) -> None:
    back = from_fields(as_fields(error))

    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))

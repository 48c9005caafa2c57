"""Kinds: each room says what it stores, nothing is stored besides, and the docs show it."""

from __future__ import annotations

from pathlib import Path

import pytest

import pagefile
from pagefile.context.conversations import Conversations
from pagefile.store.batch import Append, Batch, Put
from pagefile.store.kinds import ROOMS, Kind, registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "names.md"
MARK = "<!-- made by tests/memory/test_kinds.py -->"


def test_every_folder_that_declares_kinds_is_asked() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "pagefile").glob("*/kinds.py")}
    assert folders == {*ROOMS, "store"}


def test_a_name_is_of_one_kind_at_most() -> None:
    prefixes = [kind.prefix for kind in registry()]
    assert len(prefixes) == len(set(prefixes))
    assert [
        (one, other)
        for one in prefixes
        for other in prefixes
        if one != other and one.startswith(other) and registry().of(other + "x") is not None
    ] == []


def test_a_name_that_only_begins_like_a_whole_name_is_the_callers_own() -> None:
    assert registry().of("fact-kinds") is not None
    assert registry().of("fact-kinds-of-mine") is None
    assert registry().of("orders") is None


def test_a_room_that_writes_under_an_undeclared_name_fails(
    undeclared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagefile.context.conversations.USES", "hidden/")
    with (
        pagefile.open("memory:") as pf,
        pytest.raises(AssertionError, match=r"'hidden/t'.*pagefile\.context\.conversations"),
    ):
        Conversations(pf, ttl_seconds=60).touch("t")
    assert len(undeclared) == 1
    undeclared.clear()


def test_a_caller_may_use_any_name(undeclared: list[str]) -> None:
    with pagefile.open("memory:") as pf:
        pf.store.append(Append("hidden/log", 1))
        pf.store.commit(Batch([Put("orders/1", {"a": 1}, user="ann")]))
    assert undeclared == []


def test_the_reference_says_of_every_kind_what_it_is() -> None:
    assert PAGE.read_text().split(MARK)[1].strip() == table(), (
        "make it again: .venv/bin/python tests/test_kinds.py"
    )


def table() -> str:
    """All kinds, as the reference shows them."""
    head = ("Name", "Stream", "What", "Whose", "Forgetting its user", "In exports", "Imports")
    rows = [head, ("---",) * len(head), *map(_row, registry())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(kind: Kind) -> tuple[str, ...]:
    return (
        f"`{kind.prefix}`" + ("…" if kind.form else ""),
        kind.stream,
        kind.what,
        "of each record's user" if kind.owner == "user" else "the tenant's",
        kind.erasure,
        "yes" if kind.exported else "no",
        "with a user's own key" if kind.own else "with the whole store" if kind.exported else "",
    )


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().split(MARK)[0] + f"{MARK}\n\n{table()}\n")

"""Arguments of every wrong type, everywhere: a typed answer, and the store as before."""

from __future__ import annotations

import asyncio
import enum
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pagefile
import pagefile.aio
from pagefile import (
    Absent,
    Admin,
    Append,
    Batch,
    CountBelow,
    CreatedAt,
    Delete,
    Drop,
    Fork,
    Head,
    Invalid,
    LengthBelow,
    LengthIs,
    Limits,
    Options,
    PagefileError,
    Prune,
    Put,
    Query,
    Selector,
    Store,
    Unchanged,
    VersionIs,
)


class Number(enum.IntEnum):
    SEVEN = 7


class Text(str):
    __slots__ = ()


class Untold:
    """Says of itself what a message cannot hold."""

    def __repr__(self) -> str:
        return "untold\n" * 1_000


ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "minus one": -1,
    "seven": 7,
    "an enum's seven": Number.SEVEN,
    "two to the 70": 2**70,
    "five thousand digits": 10**5_000,
    "one and a half": 1.5,
    "NaN": math.nan,
    "infinity": math.inf,
    "a decimal": Decimal(1),
    "no text": "",
    "text": "x",
    "a digit": "7",
    "a subclass of str": Text("x"),
    "a surrogate": "\ud800",
    "a NUL": "a\x00b",
    "long text": "x" * 100_000,
    "bytes": b"x",
    "a bytearray": bytearray(b"x"),
    "a list": [],
    "a list of lists": [[]],
    "a dict": {},
    "a tuple": (),
    "a set": {1},
    "a date": date(2026, 1, 1),
    "a naive datetime": datetime(2026, 1, 1),
    "a path": Path("x"),
    "a class": int,
    "a function": print,
    "an object": object(),
    "untold": Untold(),
    "an operation": Append("a", 1),
    "a batch": Batch([Append("a", 1)]),
    "an error": ValueError("x"),
}


def say_so(error: PagefileError) -> list[str]:
    """What is missing from a refusal."""
    missing = [part for part in ("fact", "next_step") if not getattr(error, part)]
    if isinstance(error, Invalid) and not error.field:
        missing.append("field")
    if len(str(error)) > 1_000 or "\n" in str(error):
        missing.append("brevity")
    return missing


def refusals(store: Store, attempt: Callable[[Any], object]) -> dict[str, str]:
    """Which odd values were answered otherwise than typed, or left a trace though refused."""
    wrong: dict[str, str] = {}
    for name, odd in ODD.items():
        before = store.head()
        try:
            attempt(odd)
        except PagefileError as error:
            if missing := say_so(error):
                wrong[name] = f"{error!r:.200} lacks {missing}"
            elif store.head() != before:
                wrong[name] = "refused, and changed something"
        except Exception as error:  # noqa: BLE001 - that it is no typed one is the finding
            wrong[name] = f"{error!r:.200}"
    return wrong


@pytest.fixture(params=["memory", "sqlite"])
def pf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pagefile.Pagefile]:
    url = "memory:" if request.param == "memory" else str(tmp_path / "store.db")
    with pagefile.open(url, durability=None if url == "memory:" else "process") as pf:
        batch = Batch([Append("a", 1, user="u", keys={"k": 1}), Put("d", 1, keys={"k": 1})])
        pf.store.commit(batch)
        yield pf
        assert pf.check().problems == ()
        assert pf.verify().problems == ()


CALLS: dict[str, Callable[[Store, Any], object]] = {
    "commit": lambda s, x: s.commit(x),
    "update document": lambda s, x: s.update(x, lambda v: v),
    "update change": lambda s, x: s.update("d", x) if x not in (print, int) else None,
    "update value": lambda s, x: s.update("e", lambda _: x),
    "update attempts": lambda s, x: s.update("d", lambda v: v, attempts=x),
    "length log": lambda s, x: s.length(x),
    "length at": lambda s, x: s.length("a", at=x),
    "read log": lambda s, x: s.read(x),
    "read start": lambda s, x: s.read("a", x),
    "read stop": lambda s, x: s.read("a", 0, x),
    "read limit": lambda s, x: s.read("a", limit=x),
    "read at": lambda s, x: s.read("a", at=x),
    "get document": lambda s, x: s.get(x),
    "get version": lambda s, x: s.get("d", version=x),
    "get at": lambda s, x: s.get("d", at=x),
    "history document": lambda s, x: s.history(x),
    "history after": lambda s, x: s.history("d", after=x),
    "history limit": lambda s, x: s.history("d", limit=x),
    "history of nothing": lambda s, x: s.history("missing", after=x, limit=x),
    "find query": lambda s, x: s.find(x),
    "find limit": lambda s, x: s.find(Query("k", 1), limit=x),
    "find at": lambda s, x: s.find(Query("k", 1), at=x),
    "names kind": lambda s, x: s.names(x),
    "names prefix": lambda s, x: s.names("log", prefix=x),
    "names after": lambda s, x: s.names("log", after=x),
    "names limit": lambda s, x: s.names("log", limit=x),
    "changes since": lambda s, x: s.changes(x),
    "changes limit": lambda s, x: s.changes(limit=x),
    "wait position": lambda s, x: s.wait(x, 0),
    "wait timeout": lambda s, x: s.wait(1, x),
    "erase selector": lambda s, x: s.erase(x),
    "erase dry_run": lambda s, x: s.erase(Selector(user="x"), dry_run=x, scrub=False),
    "erase scrub": lambda s, x: s.erase(Selector(user="x"), scrub=x),
    "erase timeout": lambda s, x: s.erase(Selector(user="x"), scrub=False, timeout=x),
    "verify head": lambda s, x: s.verify(head=x),
    "verify head's position": lambda s, x: s.verify(head=Head(x, b"")),
    "verify head's digest": lambda s, x: s.verify(head=Head(1, x)),
    "verify progress": lambda s, x: s.verify(progress=x if x is not int else None),
}
PARTS: list[tuple[Any, Callable[[Store, Any], object]]] = [
    *(
        (operation, lambda s, op: s.commit(Batch([op])))
        for operation in (
            Append("a", 1),
            Put("d", 1),
            Delete("d"),
            Fork("b", "a", 1),
            Drop("a"),
            Prune(before=1, log="a"),
        )
    ),
    *(
        (condition, lambda s, c: s.commit(Batch([Append("a", 1)], [c])))
        for condition in (
            VersionIs("d", 1),
            Absent("e"),
            LengthIs("a", 1),
            LengthBelow("a", 9),
            CreatedAt("a", 1),
            CountBelow("k", 1, 9),
            Unchanged("k", 1, 1),
        )
    ),
    (Batch([Append("a", 1)]), lambda s, batch: s.commit(batch)),
    (Query("k", 1), lambda s, query: s.find(query)),
    (Query("k", log="a"), lambda s, query: s.find(query)),
    (Query("k", everyone=True), lambda s, query: s.find(query)),
    (Selector(user="x"), lambda s, selector: s.erase(selector, scrub=False)),
    (Selector(log="x", first=1), lambda s, selector: s.erase(selector, scrub=False)),
]


@pytest.mark.parametrize("call", CALLS)
def test_an_odd_argument_gets_a_typed_answer(pf: pagefile.Pagefile, call: str) -> None:
    assert refusals(pf.store, lambda odd: CALLS[call](pf.store, odd)) == {}


@pytest.mark.parametrize(
    ("part", "use", "field"),
    [
        pytest.param(part, use, field, id=f"{type(part).__name__}{at}.{field}")
        for at, (part, use) in enumerate(PARTS)
        for field in part.__struct_fields__
    ],
)
def test_an_odd_part_of_a_request_gets_a_typed_answer(
    pf: pagefile.Pagefile, part: Any, use: Callable[[Store, Any], object], field: str
) -> None:
    def attempt(odd: Any) -> None:
        use(pf.store, msgspec.structs.replace(part, **{field: odd}))

    assert refusals(pf.store, attempt) == {}


def test_an_odd_argument_of_the_async_face_gets_a_typed_answer(pf: pagefile.Pagefile) -> None:
    store = pagefile.aio.AsyncPagefile(pf).store

    async def ask(odd: Any) -> None:
        for attempt in (store.commit, store.read, store.get, store.changes, store.erase):
            with suppress(PagefileError):
                await attempt(odd)

    assert refusals(pf.store, lambda odd: asyncio.run(ask(odd))) == {}


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize(
    ("part", "field"),
    [(part, field) for part in (Options(), Limits()) for field in part.__struct_fields__],
    ids=lambda p: p if isinstance(p, str) else type(p).__name__,
)
def test_an_odd_option_gets_a_typed_answer(
    tmp_path: Path, engine: str, part: Any, field: str
) -> None:
    url = "memory:" if engine == "memory" else tmp_path / "store.db"

    def attempt(odd: Any) -> None:
        changed = msgspec.structs.replace(part, **{field: odd})
        options = changed if isinstance(changed, Options) else Options(limits=changed)
        with pagefile.open(url, options=options) as pf:
            pf.store.commit(Batch([Append("a", 1, keys={"k": 1}, sources=("s",))]))
            pf.store.commit(Batch([Append("a", 1)], key="mine"))

    with pagefile.open("memory:") as other:
        assert refusals(other.store, attempt) == {}


@pytest.mark.parametrize(
    "attempt",
    [
        lambda x: pagefile.open(x).close(),
        lambda x: pagefile.open("memory:", tenant=x).close(),
        lambda x: pagefile.open("memory:", durability=x).close(),
        lambda x: pagefile.open("memory:", options=x).close(),
        lambda x: Admin(x).close(),
        lambda x: Admin("memory:", options=x).close(),
        lambda x: Admin("memory:").open(x).close(),
        lambda x: asyncio.run(_open_and_close(x)),
    ],
    ids=["url", "tenant", "durability", "options", "admin", "admin options", "its", "aio"],
)
def test_an_odd_opening_gets_a_typed_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: Callable[[Any], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pagefile.open("memory:") as other:
        assert refusals(other.store, attempt) == {}


def test_a_path_that_the_system_refuses_is_refused_in_our_words(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for url in ("~nobody of that name/s.db", "x" * 300, loop / "s.db", tmp_path / "s.db" / "t"):
        with pytest.raises(Invalid) as caught:
            pagefile.open(url)

        assert say_so(caught.value) == []


def test_no_message_says_a_where_it_should_say_an(pf: pagefile.Pagefile) -> None:
    for request in (
        Batch(Append("a", 1)),  # type: ignore[arg-type]
        Batch([VersionIs("d", 1)]),  # type: ignore[list-item]
        Batch([Append("a", 1)], [Append("a", 1)]),  # type: ignore[list-item]
        Batch([Append("a", OSError())]),
        Batch([Append("a", 1, keys={"k": OSError()})]),  # type: ignore[dict-item]
        Batch([Append("a", {1: 1})]),
        Append("a", 1),
    ):
        with pytest.raises(Invalid) as caught:
            pf.store.commit(request)  # type: ignore[arg-type]

        assert not re.search(r"\ba [aeiou]", str(caught.value), re.IGNORECASE)


async def _open_and_close(url: Any) -> None:
    async with pagefile.aio.open(url):
        pass

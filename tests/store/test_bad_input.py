"""Bad input: a typed error with field, fact and next step, and the store as before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import pagefile
from pagefile import (
    Absent,
    Append,
    Batch,
    CountBelow,
    Delete,
    Drop,
    Fork,
    Invalid,
    LengthIs,
    LimitExceeded,
    PagefileError,
    Prune,
    Put,
    Query,
    Selector,
    Store,
    VersionIs,
)
from pagefile.store.codec.sort_key import decode, encode
from pagefile.testing.backend import Backend, FileBackend, SharedBackend


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        backend: Backend = SharedBackend("memory:")
    else:
        backend = FileBackend(str(tmp_path / "store.db"))
    store = backend.open().store
    store.commit(Batch([Append("a", 1, user="u"), Put("d", 1)]))
    yield store
    assert backend.finish() == []


def cyclic() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD_NAMES = ["", "a\x00b", "tab\there", "line\nbreak", "\x7f", "\ud800", "x" * 513, "é" * 300]
BAD_VALUES: list[tuple[str, Any, str]] = [
    ("NaN", {"score": math.nan}, "$.score"),
    ("infinity", [1.0, math.inf], "$[1]"),
    ("a lone surrogate", {"text": "\ud800"}, "$.text"),
    ("a naive datetime", {"when": datetime(2026, 1, 1)}, "$.when"),
    ("a number as key", {"m": {1: 2}}, "$.m"),
    ("an object", {"thing": object()}, "$.thing"),
    ("a function", {"f": print}, "$.f"),
    ("a bytearray", [bytearray(b"x")], "$[0]"),
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
@pytest.mark.parametrize(
    "operation",
    [
        lambda n: Append(n, 1),
        lambda n: Put(n, 1),
        lambda n: Delete(n),
        lambda n: Drop(n),
        lambda n: Fork(n, "a"),
        lambda n: Fork("b", n),
        lambda n: Prune(before=0, log=n),
        lambda n: Append("a", 1, user=n),
        lambda n: Append("a", 1, sources=(n,)),
        lambda n: Append("a", 1, keys={n: 1}),
    ],
)
def test_a_bad_name_is_refused_everywhere(
    store: Store, operation: Callable[[str], Any], name: str
) -> None:
    before = store.head()
    with pytest.raises(Invalid) as caught:
        store.commit(Batch([Append("ok", 1), operation(name)]))

    assert caught.value.field
    assert caught.value.rule
    assert store.head() == before


@pytest.mark.parametrize("name", [n for n in BAD_NAMES if n], ids=ascii)
def test_a_bad_kind_or_actor_or_key_is_refused(store: Store, name: str) -> None:
    for batch in (
        Batch([Append("a", 1, kind=name)]),
        Batch([Append("a", 1, actor=name)]),
        Batch([Append("a", 1)], key=name),
    ):
        with pytest.raises(Invalid):
            store.commit(batch)


@pytest.mark.parametrize(
    ("value", "field"), [pytest.param(v, f, id=name) for name, v, f in BAD_VALUES]
)
def test_a_value_json_cannot_carry_is_refused_at_its_place(
    store: Store, value: Any, field: str
) -> None:
    before = store.head()
    for operation in (Append("a", value), Put("d", value)):
        with pytest.raises(Invalid) as caught:
            store.commit(Batch([operation]))

        assert caught.value.field.startswith(field)
    assert store.head() == before


@pytest.mark.parametrize("value", [cyclic(), deep(101), deep(100_000)], ids=["ring", "101", "100k"])
def test_a_cyclic_or_too_deep_value_is_refused(store: Store, value: Any) -> None:
    with pytest.raises(Invalid):
        store.commit(Batch([Append("a", value)]))

    assert store.length("a") == 1


@pytest.mark.parametrize(
    "batch",
    [
        Batch([]),
        Batch(None),  # type: ignore[arg-type]
        Batch("append"),  # type: ignore[arg-type]
        Batch([{"log": "a"}]),  # type: ignore[list-item]
        Batch([Append("a", 1)], ["always"]),  # type: ignore[list-item]
        Batch([Append("a", 1)], [VersionIs("d", -1)]),
        Batch([Append("a", 1)], [VersionIs("d", 1.5)]),  # type: ignore[arg-type]
        Batch([Append("a", 1)], [LengthIs("a", True)]),
        Batch([Append("a", 1)], [Absent("")]),
        Batch([Append("a", 1)], key="~mine"),
        Batch([Append("a", 1)], key="~ff-" + "0" * 32),
        Batch([Append("a", 1)], [CountBelow("k", print, 1)]),  # type: ignore[arg-type]
        Batch([Append("a", 1)], [CountBelow("k", 1, 1, user="")]),
        Batch([Append("a", 1, limit=-1)]),
        Batch([Append("a", 1, keys={"k": 1.5})]),  # type: ignore[dict-item]
        Batch([Append("a", 1, keys={"k": 2**70})]),
        Batch([Append("a", 1, keys={"k": ()})]),
        Batch([Append("a", 1, keys={"k": datetime(2026, 1, 1)})]),
        Batch([Append("a", 1, keys={"k": "x" * 3000})]),
        Batch([Append(7, 1)]),  # type: ignore[arg-type]
        Batch([Append([], 1)]),  # type: ignore[arg-type]
        Batch([Append("a", 1, kind=0)]),  # type: ignore[arg-type]
        Batch([Append("a", 1, kind=[])]),  # type: ignore[arg-type]
        Batch([Append("a", 1, actor=None)]),  # type: ignore[arg-type]
        Batch([Append("a", 1, sources=5)]),  # type: ignore[arg-type]
        Batch([Append("a", 1, keys=[1])]),  # type: ignore[arg-type]
        Batch([Put("d", 1, tenant_keys="k")]),  # type: ignore[arg-type]
        Batch([Fork("b", "a", True)]),
        Batch([Prune(before=True, log="a")]),
        Batch([Append("a", 1, user=7)]),  # type: ignore[arg-type]
        Batch([Fork("b", "a", -1)]),
        Batch([Prune(before=-1, log="a")]),
        Batch([Prune(before=1)]),
        Batch([Prune(before=1, log="a", document="d")]),
    ],
    ids=repr,
)
def test_a_malformed_batch_is_refused_and_changes_nothing(store: Store, batch: Batch) -> None:
    before = store.head()
    with pytest.raises(Invalid):
        store.commit(batch)

    assert store.head() == before


def test_a_batch_over_the_limits_is_refused(store: Store) -> None:
    with pytest.raises(LimitExceeded):
        store.commit(Batch([Append("a", 1)] * 10_001))
    with pytest.raises(LimitExceeded):
        store.commit(Batch([Append("a", 1, keys={f"k{n}": n for n in range(33)})]))
    with pytest.raises(LimitExceeded):
        store.commit(Batch([Append("a", 1, sources=("s",) * 1025)]))

    assert store.length("a") == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.read("a", limit=-1),
        lambda s: s.read("a", limit=10_001),
        lambda s: s.read("a", at=-1),
        lambda s: s.read(""),
        lambda s: s.get("d", at=-5),
        lambda s: s.get("\x00"),
        lambda s: s.history("d", limit=-1),
        lambda s: s.names("table"),
        lambda s: s.names("log", limit=99_999),
        lambda s: s.changes(-1),
        lambda s: s.wait(1, timeout=-1),
        lambda s: s.wait(1, timeout=1e9),
        lambda s: s.wait(1, timeout=math.nan),
        lambda s: s.erase(Selector(log="a"), timeout=None),
        lambda s: s.get("d", version="1"),
        lambda s: s.get("d", at=2**70),
        lambda s: s.changes(2**70),
        lambda s: s.find("author"),
        lambda s: s.find(Query("k", 1, low=2)),
        lambda s: s.find(Query("k", 1, user="u", everyone=True)),
        lambda s: s.erase("u"),
        lambda s: s.verify(head=3),
        lambda s: s.commit([Append("a", 1)]),
        lambda s: s.commit(Batch([Append("a", 1)], VersionIs("d", 1))),  # type: ignore[arg-type]
        lambda s: s.find(Query("", 1)),
        lambda s: s.find(Query("k", 1, user="")),
        lambda s: s.find(Query("k", 1, cursor="not a cursor")),
        lambda s: s.find(Query("k", 1, log="")),
        lambda s: s.erase(Selector()),
        lambda s: s.erase(Selector(user="u", anonymous=True)),
        lambda s: s.erase(Selector(user="")),
        lambda s: s.erase(Selector(log="a", document="d")),
        lambda s: s.erase(Selector(user="u", first=1)),
        lambda s: s.erase(Selector(log="a", first=-1)),
        lambda s: s.erase(Selector(user="u", sparing=frozenset({""}))),
        lambda s: s.erase(Selector(user="u", sparing=["a"])),  # type: ignore[arg-type]
        lambda s: s.update("d", lambda v: v, attempts=0),
    ],
)
def test_a_bad_question_gets_a_typed_answer(store: Store, call: Callable[[Store], Any]) -> None:
    with pytest.raises(Invalid):
        call(store)


def test_what_is_not_there_is_empty_not_an_error(store: Store) -> None:
    assert store.read("missing") == []
    assert store.length("missing") == 0
    assert store.get("missing") is None
    assert store.get("d", version=99) is None
    assert store.history("missing") == []
    assert store.find(Query("missing", 1)).items == ()
    assert store.read("a", 5, 2) == []


def test_another_tenants_names_are_simply_unknown(tmp_path: Path) -> None:
    with pagefile.Admin(str(tmp_path / "s.db")) as admin:
        admin.open("theirs").store.commit(Batch([Append("secret", 1), Put("doc", 1)]))
        mine = admin.open("mine").store
        with pytest.raises(pagefile.NotFound):
            mine.commit(Batch([Fork("copy", "secret")]))
        with pytest.raises(pagefile.NotFound):
            mine.commit(Batch([Delete("doc")]))

        assert mine.erase(Selector(log="secret")).records == 0
        assert admin.open("theirs").store.length("secret") == 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@settings(
    max_examples=max(150, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(log=st.text(), value=anything, user=st.none() | st.text(), key=anything)
def test_whatever_comes_in_is_stored_whole_or_refused_whole(
    store: Store, log: str, value: Any, user: str | None, key: Any
) -> None:
    before = store.head()
    operations: list[Append | Put] = [
        Append(log, value, user=user),
        Put("other", value, keys={"k": key}),
    ]
    try:
        commit = store.commit(Batch(operations))
    except PagefileError:
        assert store.head() == before
    else:
        assert store.read(log, -1)[0].value == value
        assert commit.position == before.position + 1


# Fixed offsets: a named zone has times that do not exist, which equal nothing.
offsets = st.integers(-23, 23).map(lambda hours: timezone(timedelta(hours=hours)))
key_parts = (
    st.text(alphabet=st.characters(exclude_categories=["Cs"]))
    | st.integers(-(2**63), 2**63 - 1)
    | st.binary()
    | st.booleans()
    | st.datetimes(timezones=offsets)
)


@given(parts=st.lists(key_parts, min_size=1, max_size=4))
def test_a_key_reads_back_as_it_was(parts: list[Any]) -> None:
    value = parts[0] if len(parts) == 1 else tuple(parts)

    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "strategy",
    [
        st.integers(-(2**63), 2**63 - 1),
        st.text(alphabet=st.characters(exclude_categories=["Cs"])),
        st.binary(),
        st.tuples(st.integers(-9, 9), st.text("ab\x00", max_size=3)),
        st.datetimes(timezones=offsets),
    ],
)
def test_keys_sort_like_their_values(strategy: st.SearchStrategy[Any]) -> None:
    @given(one=strategy, two=strategy)
    def compare(one: Any, two: Any) -> None:
        assert (encode(one) < encode(two)) == (one < two)

    compare()


@given(raw=st.binary(max_size=30))
@example(raw=b"\x40\xff\x00")
@example(raw=b"\x30" + b"\xff" * 8)
def test_a_damaged_key_is_reported_as_such(raw: bytes) -> None:
    try:
        decode(raw)
    except pagefile.Corrupt:
        return

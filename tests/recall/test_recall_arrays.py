"""The arrays that an index lies in: each says the same as the plain thing it stands for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pagefile
from pagefile import Batch, Selector
from pagefile.recall import columns as keys_module
from pagefile.recall import partition_cache as shelf_module
from pagefile.recall.columns import Column, Keys
from pagefile.recall.embed.embedder import unit_rows
from pagefile.recall.partition import PartitionIndex
from pagefile.recall.partition_cache import Resident
from pagefile.recall.records import PAGE, REREAD, IndexEntry, append_entry, log_of
from pagefile.recall.text.inverted_index import LexicalIndex, different
from pagefile.recall.vectors.quantization import CompactRows, turned, turned_back, turned_one
from pagefile.recall.vectors.vector_index import NOBODY, Slots, VectorIndex


def directions(count: int, seed: int, width: int) -> Any:
    """Vectors of which some numbers are always large, as those of models are."""
    rough = np.random.default_rng(seed).standard_normal((count, width))
    return unit_rows(rough / np.sqrt(1 + np.arange(width)), count)


# Keys

_names = st.lists(st.sampled_from([f"{s}{n}" for s in ("", "a/", "ü/b/") for n in range(6)]))


@pytest.mark.parametrize("is_one_hash", [False, True], ids=["hashes", "one hash for all"])
def test_keys_find_the_rows_that_a_dictionary_would(
    is_one_hash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled every few keys, and with hashes that say nothing."""
    monkeypatch.setattr(keys_module, "_LEAST_LATE", 3)
    if is_one_hash:
        monkeypatch.setattr(keys_module, "_hash", lambda key: 7)

    @given(st.lists(st.tuples(st.booleans(), _names), max_size=12))
    def story(steps: list[tuple[bool, list[str]]]) -> None:
        keys = Keys()
        rows: list[str] = []
        row_of: dict[str, int] = {}
        for is_added, names in steps:
            wanted = list(dict.fromkeys(names))
            expected = {row_of.pop(name) for name in wanted if name in row_of}
            assert set(keys.take_out(wanted)) == expected
            if is_added:
                keys.extend(wanted)
                row_of.update({name: len(rows) + n for n, name in enumerate(wanted)})
                rows += wanted
        assert len(keys) == len(rows)
        assert keys.living == len(row_of)
        assert keys.of(range(len(rows))) == rows
        assert {name: keys.row_of(name) for name in set(rows)} == {
            name: row_of.get(name) for name in set(rows)
        }
        assert "never" not in keys
        living = sorted(row_of.values())
        anew = keys.compacted(np.array(living, np.int64))
        assert [anew.row_of(rows[row]) for row in living] == [*range(len(living))]

    story()


def test_keys_of_more_beginnings_than_a_byte_counts_are_told_apart() -> None:
    names = [f"{n}/{n % 7}" for n in range(70_000)]
    keys = Keys()
    keys.extend(names)

    assert keys.of([0, 255, 256, 257, 65_535, 65_536, 69_999]) == [
        names[n] for n in (0, 255, 256, 257, 65_535, 65_536, 69_999)
    ]
    assert keys.row_of("65536/2") == 65_536


def test_a_hundred_thousand_keys_take_a_fraction_of_what_objects_would() -> None:
    keys = Keys()
    names = [f"memory/episode/{'0' * 32}/ep_{n:026d}" for n in range(100_000)]
    for start in range(0, len(names), 250):
        keys.extend(names[start : start + 250])

    assert keys.size_bytes < 75 * len(names)


# Columns


def test_a_column_holds_what_a_list_would_through_every_change() -> None:
    """Also where it is large, and where numbers grow beyond the width it began with."""
    chance = random.Random(3)
    column, plain = Column(np.uint8), list[int]()
    for highest in (200, 60_000, 2**31):
        for _ in range(6):
            some = [chance.randrange(highest) for _ in range(40_000)]
            column.fit(highest)
            column.extend(some)
            plain += some
        kept = sorted(chance.sample(range(len(plain)), len(plain) // 2))
        column.keep(np.array(kept))
        plain = [plain[n] for n in kept]
        assert column.values.tolist() == plain
    column.append(5)
    assert column.values[-1] == 5
    column.clear()
    assert len(column) == 0
    assert column.size_bytes < 1_000
    column.extend([1, 2**31])
    assert column.values.tolist() == [1, 2**31]


# Slots


@given(
    st.lists(st.lists(st.booleans(), max_size=5), max_size=6),
    st.sets(st.integers(0, 29)),
    st.sets(st.integers(0, 29)),
)
def test_slots_tell_which_rows_have_a_vector(
    given_to: list[list[bool]], freed: set[int], allowed: set[int]
) -> None:
    slots = Slots()
    slot_of: list[int] = []
    for having in given_to:
        slots.extend(np.array(having, np.bool_))
        for has in having:
            slot_of.append(sum(slot != NOBODY for slot in slot_of) if has else NOBODY)
    given = sum(slot != NOBODY for slot in slot_of)
    rows = np.arange(len(slot_of))
    row_of = {slot: row for row, slot in enumerate(slot_of) if slot != NOBODY}
    for row in sorted(freed & set(rows.tolist())):
        slots.free(row)
        row_of.pop(slot_of[row], None)
        slot_of[row] = NOBODY

    may = np.array([row in allowed for row in rows], np.bool_)
    found = slots.allowed(may)
    every = slots.allowed(None)

    assert (len(slots), slots.living) == (given, len(row_of))
    assert slots.of(rows).tolist() == slot_of
    assert slots.having(rows).tolist() == [slot != NOBODY for slot in slot_of]
    assert found is not None
    assert found.tolist() == [slot for slot, row in row_of.items() if row in allowed]
    assert slots.rows(found).tolist() == [row_of[slot] for slot in found.tolist()]
    assert (every is None and len(row_of) == given) or (
        every is not None and every.tolist() == list(row_of)
    )


# Vectors


@pytest.mark.parametrize("width", [1, 2, 3, 7, 96, 384, 1_000])
def test_turned_vectors_have_the_same_cosines_and_turn_back(width: int) -> None:
    rows = directions(300, 1, width)
    around = turned(rows)

    assert around @ around[0] == pytest.approx(rows @ rows[0], abs=1e-5)
    assert turned_back(around) == pytest.approx(rows, abs=1e-5)
    assert turned_one(rows[5]) == pytest.approx(around[5], abs=1e-5)


def test_a_vector_is_turned_into_the_same_bytes_among_any_others() -> None:
    rows = directions(600, 2, 384)
    around = turned(rows)

    assert turned(rows[:1]).tobytes() == around[:1].tobytes()
    assert turned(rows[299:501]).tobytes() == around[299:501].tobytes()


def test_a_byte_for_each_number_is_nearer_when_vectors_are_turned() -> None:
    rows, query = directions(5_000, 3, 384), directions(1, 4, 384)[0]

    def error(some: Any, asked: Any) -> float:
        held = CompactRows(384)
        held.extend(some)
        return float(np.abs(held.scores(asked, np.arange(len(some))) - rows @ query).max())

    assert 2 * error(turned(rows), turned_one(query)) < error(rows, query)


def test_many_vectors_that_become_few_are_whole_again() -> None:
    """From bytes back to floats, and to bytes once more."""
    rows = directions(3_000, 5, 96)
    index = VectorIndex(1_000)
    index.add_many(rows, np.ones(3_000, np.bool_))
    few = np.arange(0, 3_000, 4)
    query = directions(1, 6, 96)[0]

    whole = index.compacted(few)
    whole.add_many(rows[:1_000], np.ones(1_000, np.bool_))
    expected = np.concatenate((rows[few], rows[:1_000])) @ query

    assert whole.exact(query, np.arange(1_750)) == pytest.approx(expected, abs=0.005)


def test_nearest_gives_the_cosines_of_rows_asked_about_beside() -> None:
    rows = directions(30_000, 7, 64)
    index = VectorIndex(1_000)
    having = np.ones(30_001, np.bool_)
    having[123] = False
    index.add_many(rows, having)
    query = directions(1, 8, 64)[0]
    far = np.argsort(rows @ query)[:50]
    beside = np.sort(np.append(far + (far >= 123), 123))

    found = index.nearest(query, None, 0.5, beside=beside)

    assert np.all(np.diff(found.rows) > 0)
    assert 123 not in found.rows
    assert set(beside.tolist()) - {123} <= set(found.rows.tolist())
    at = np.searchsorted(found.rows, beside[beside != 123])
    told = index.exact(query, beside[beside != 123])
    assert found.scores[at].tolist() == told.tolist()


# Words


def test_words_that_are_sorted_in_are_found_as_before_also_after_removals() -> None:
    chance = random.Random(4)
    words = [f"w{n}" for n in range(50)]
    documents = [chance.choices(words, k=chance.randrange(9)) for _ in range(4_000)]
    index = LexicalIndex()
    index.add_many(documents[:3_000])
    index.settle()
    index.add_many(documents[3_000:])
    dead = set(chance.sample(range(4_000), 1_500))
    for row in dead:
        index.kill(row)
    rows = np.array([row for row in range(4_000) if row not in dead], np.int64)
    compacted = index.compacted(rows)
    compacted.add_many(documents[:100])
    anew = LexicalIndex()
    anew.add_many([*(documents[row] for row in rows), *documents[:100]])

    for asked in (words[:3], words[20:21], ["never"]):
        expected = anew.bm25(anew.match(asked), 0.6, 0.3).tolist()
        assert compacted.bm25(compacted.match(asked), 0.6, 0.3).tolist() == expected


@given(st.lists(st.integers(-1, 20)))
def test_different_rows_are_in_order_and_each_there_once(rows: list[int]) -> None:
    assert different(np.array(rows, np.int64)).tolist() == sorted(set(rows))


# The whole


def test_an_index_of_many_takes_half_of_what_its_vectors_alone_would() -> None:
    rows = directions(12_000, 9, 384)
    index = PartitionIndex()
    index.add_many(
        IndexEntry(
            key=f"memory/episode/{'0' * 32}/ep_{n:026d}",
            kind="episode",
            text=f"word{n % 50} word{n % 999} term{n % 4000}",
            session=f"s{n // 20}",
            time_us=n,
            vector=rows[n].astype("<f2").tobytes(),
        )
        for n in range(len(rows))
    )
    index.settle()

    assert index.size_bytes < rows.nbytes / 2


@pytest.mark.parametrize("is_behind", [True, False], ids=["that was read", "that is being read"])
def test_an_erasure_far_behind_in_the_log_is_heeded(
    is_behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a page after what was folded, or while the pages before it are."""
    log = log_of(1, "somebody")

    def entries(first: int, count: int) -> Batch:
        things = [IndexEntry(key=f"k{n}", kind="episode") for n in range(first, first + count)]
        return Batch([append_entry(log, thing, None) for thing in things])

    with pagefile.open("memory:") as pf:
        again = Batch([append_entry(log, IndexEntry(key="", kind=REREAD), None)])
        resident = Resident(log)

        def erase() -> None:
            pf.store.erase(Selector(log=log, numbers=frozenset([3])), beside=again)

        pf.store.commit(entries(0, 10))
        if is_behind:
            resident.catch_up(pf.store)
            pf.store.commit(entries(10, PAGE + 10))
            erase()
        else:
            pf.store.commit(entries(10, PAGE + 10))
            fold = resident._fold
            waiting = [erase]

            def folded(*page: Any) -> None:
                fold(*page)
                while waiting:
                    waiting.pop()()

            monkeypatch.setattr(resident, "_fold", folded)

        resident.catch_up(pf.store)

        assert "k3" not in resident.index
        assert len(resident.index) == PAGE + 19


def test_a_long_fold_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(shelf_module, "_LONG", 2 * PAGE)
    monkeypatch.setattr(shelf_module, "give_back", lambda: asked.append(True))
    log = log_of(1, "somebody")
    with pagefile.open("memory:") as pf:
        for count in (PAGE, 2 * PAGE):
            things = [IndexEntry(key=f"{count}/{n}", kind="episode") for n in range(count)]
            pf.store.commit(Batch([append_entry(log, thing, None) for thing in things]))
        resident = Resident(log)
        resident.catch_up(pf.store)
        resident.catch_up(pf.store)

    assert asked == [True]

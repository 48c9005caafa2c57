"""Batches, order, reading back, and what outlives the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound
from pagefile.handle import Options
from pagefile.store.batch import (
    Append,
    Batch,
    Delete,
    Drop,
    Fork,
    LengthIs,
    Prune,
    Put,
    Query,
    Selector,
)
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.fixtures import ContractFixtures, append, put, value_of, values
from pagefile.testing.faults import InterruptedEngine

#: Everything that a call may show, of what `_write` makes.
_READS: dict[str, Callable[[Store, str, int], Any]] = {
    "find": lambda store, tag, at: store.find(Query("k", value=tag, user=tag)),
    "find at": lambda store, tag, at: store.find(Query("k", value=tag, user=tag), at=at),
    "find in a fork": lambda store, tag, at: store.find(Query("k", value=tag, log=f"fork {tag}")),
    "get": lambda store, tag, at: store.get(f"shared {tag}"),
    "get own": lambda store, tag, at: store.get(f"own {tag}"),
    "get version": lambda store, tag, at: store.get(f"shared {tag}", version=1),
    "get own version": lambda store, tag, at: store.get(f"own {tag}", version=1),
    "get at": lambda store, tag, at: store.get(f"shared {tag}", at=at),
    "get many": lambda store, tag, at: store.get_many([f"shared {tag}", f"own {tag}"]),
    "history": lambda store, tag, at: store.history(f"shared {tag}"),
    "history own": lambda store, tag, at: store.history(f"own {tag}"),
    "read": lambda store, tag, at: store.read(f"log {tag}"),
    "read own": lambda store, tag, at: store.read(f"own {tag}"),
    "read a fork": lambda store, tag, at: store.read(f"fork {tag}"),
    "read at": lambda store, tag, at: store.read(f"log {tag}", at=at),
    "length at": lambda store, tag, at: store.length(f"log {tag}", at=at),
}


def _write(store: Store, tag: str) -> int:
    """Records of a user alone and beside others', under keys; the position in the middle."""
    keys = {"k": tag}
    store.commit(
        Batch(
            [
                Append(f"log {tag}", 1, keys=keys, user=tag),
                Append(f"log {tag}", 2, keys=keys),
                Append(f"own {tag}", 3, keys=keys, user=tag),
                Put(f"shared {tag}", 4, keys=keys),
                Put(f"own {tag}", 5, keys=keys, user=tag),
                Put(f"other {tag}", 6, keys=keys, user=tag),
            ]
        )
    )
    middle = store.commit(
        Batch(
            [
                Append(f"log {tag}", 7, keys=keys, user=tag),
                Put(f"shared {tag}", 8, keys=keys, user=tag),
                Put(f"own {tag}", 9, keys=keys, user=tag),
                Fork(f"fork {tag}", f"log {tag}"),
            ]
        )
    )
    store.commit(Batch([Append(f"fork {tag}", 10, keys=keys, user=tag)]))
    store.commit(Batch([Append(f"log {tag}", n, keys=keys) for n in range(5)]))
    return middle.position


def _erase(store: Store, tag: str) -> None:
    note = Batch([Append(f"log {tag}", "what was hers is erased")])
    store.erase(Selector(user=tag), beside=note, scrub=False)


def _on(engine: InterruptedEngine, store: Store) -> Store:
    """Another handle to the same tenant, whose reads are interrupted."""
    interrupted: Any = engine
    return Store(interrupted, store._committer, store._preparer, store.tenant)


class AtomicContract(ContractFixtures):
    """S1, S2, S6: batches, order, reading back."""

    @promise("S1")
    def test_a_refused_batch_stores_none_of_its_operations(self, store: Store) -> None:
        put(store, "d", 1)
        before = store.head()
        with pytest.raises(NotFound):
            store.commit(Batch([Append("a", 1), Put("d", 2), Fork("f", "a"), Delete("missing")]))

        assert (store.head(), values(store, "a"), value_of(store, "d")) == (before, [], 1)
        assert store.names("log") == []

    @promise("S6", "S10")
    def test_notes_come_back_and_are_proved(self, backend: Backend) -> None:
        store = backend.open().store
        store.commit(Batch([Append("a", 1, notes={"to": "bob", "n": [1]}), Append("a", 2)]))
        store.commit(Batch([Put("d", 1, notes={"why": "asked"})]))
        store = backend.open().store
        document = store.get("d")

        assert [entry.notes for entry in store.read("a")] == [{"to": "bob", "n": [1]}, {}]
        assert document is not None
        assert document.notes == {"why": "asked"}
        with pytest.raises(Invalid):
            store.commit(Batch([Append("a", 1, notes=["x"])]))  # type: ignore[arg-type]
        with pytest.raises(LimitExceeded):
            store.commit(Batch([Append("a", 1, notes={"x": "y" * 70_000})]))

    @promise("S2", "S8", "S10")
    def test_a_single_append_is_a_commit_like_any_other(self, store: Store) -> None:
        one = store.append(Append("a", {"n": 1}, user="u", keys={"k": 7}, notes={"x": 1}))
        store.commit(Batch([Append("a", 2)]))
        three = store.append(Append("a", 3, limit=3))
        with pytest.raises(LimitExceeded):
            store.append(Append("a", 4, limit=3))
        with pytest.raises(Invalid):
            store.append(Append("", 4))

        assert [entry.index for entry in store.read("a")] == [0, 1, 2]
        assert (one, three) == (store.read("a")[0], store.read("a")[2])
        assert store.find(Query("k", value=7, log="a")).items == (one,)
        assert [change.position for change in store.changes()] == [1, 2, 3]

    @promise("S6")
    def test_names_with_a_prefix_are_all_found(self, store: Store) -> None:
        last = "\U0010ffff"
        names = ["p", "p" + last, "pq", "q", last, last + "z", "p\ud7ff", "p\ue000"]
        store.commit(Batch([Append(name, 1) for name in names]))

        for prefix in ("", "p", "p" + last, last, "p\ud7ff", "r"):
            expected = sorted(name for name in names if name.startswith(prefix))
            assert store.names("log", prefix=prefix) == expected

    @promise("S1")
    def test_a_reader_never_sees_half_of_a_batch(self, backend: Backend) -> None:
        """One thread appends pairs while this one reads; an odd count would be half a pair."""
        writer, reader = backend.open().store, backend.open().store
        done = threading.Event()

        def write() -> None:
            for i in range(60):
                append(writer, "pairs", i, i)
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        lengths = []
        while not done.is_set():
            lengths.append(len(reader.read("pairs")))
        thread.join()

        assert [n for n in lengths if n % 2] == []

    @promise("S1")
    def test_operations_of_a_batch_see_each_other_in_order(self, store: Store) -> None:
        commit = store.commit(
            Batch([Append("a", 1), Append("a", 2), Fork("b", "a", 1), Append("b", 3), Put("d", 4)])
        )

        assert (commit.indexes, commit.versions) == ((0, 1, 1, 1), (1,))
        assert (values(store, "a"), values(store, "b")) == ([1, 2], [1, 3])

    @promise("S2")
    def test_positions_and_indexes_have_no_gap_and_no_repeat(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(4)]
        commits: list[tuple[int, int]] = []

        def write(store: Store) -> None:
            for i in range(25):
                commit = store.commit(Batch([Append("shared", i)]))
                commits.append((commit.position, commit.indexes[0]))

        threads = [threading.Thread(target=write, args=(store,)) for store in stores for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(commits) == [(n + 1, n) for n in range(200)]
        assert [entry.index for entry in stores[0].read("shared")] == list(range(200))

    @promise("S1")
    @pytest.mark.parametrize("name", _READS)
    def test_a_call_shows_what_was_before_an_erasure_or_after_it(
        self, store: Store, name: str
    ) -> None:
        """A call asks the engine several questions; the erasure comes between any two of them."""
        read, engine = _READS[name], InterruptedEngine(store._engine)
        interrupted = _on(engine, store)
        neither: list[tuple[int, Any]] = []
        at = 0
        while at <= engine.asked:
            at += 1
            tag = f"user {at}"
            middle = _write(store, tag)
            before = read(store, tag, middle)
            engine.before(at, partial(_erase, store, tag))
            seen = read(interrupted, tag, middle)
            if seen not in (before, read(store, tag, middle)):
                neither.append((at, seen))

        assert neither == []

    @promise("S6")
    def test_a_length_in_the_past_is_right_while_its_log_is_pruned(self, store: Store) -> None:
        engine = InterruptedEngine(store._engine)
        interrupted = _on(engine, store)
        wrong: list[tuple[int, int]] = []
        at = 0
        while at <= engine.asked:
            at += 1
            log = f"log {at}"
            for number in range(8):
                append(store, log, number)
            position = store.head().position - 2
            engine.before(at, partial(store.commit, Batch([Prune(log=log, before=8)])))
            length = interrupted.length(log, at=position)
            if length not in (6, store.length(log, at=position)):
                wrong.append((at, length))

        assert wrong == []

    @promise("S2")
    def test_a_refused_batch_uses_up_no_number(self, store: Store) -> None:
        append(store, "a", 1)
        with pytest.raises(Conflict):
            store.commit(Batch([Append("a", 2)], [LengthIs("a", 9)]))
        commit = store.commit(Batch([Append("a", 3)]))

        assert (commit.position, commit.indexes) == (2, (1,))

    @promise("S2")
    def test_time_never_runs_backwards(self, backend: Backend) -> None:
        ticks = iter([500, 400, 600])
        options = Options(clock=lambda: next(ticks, 700))
        store = backend.open(options=options).store
        times = [store.commit(Batch([Append("a", i)], key=f"k{i}")).time_us for i in range(3)]

        assert times == sorted(times)

    @promise("S6")
    def test_what_was_committed_is_read_back_at_once_by_every_handle(
        self, backend: Backend
    ) -> None:
        writer, reader = backend.open().store, backend.open().store
        for i in range(20):
            append(writer, "a", i)

            assert reader.read("a")[-1].value == i

    @promise("S6")
    def test_a_read_at_a_position_shows_what_was_there_then(self, store: Store) -> None:
        put(store, "d", "one")
        append(store, "a", 1, 2)
        put(store, "d", "two")
        append(store, "a", 3)
        store.commit(Batch([Delete("d")]))
        then = [
            (store.length("a", at=at), [e.value for e in store.read("a", at=at)], _value(store, at))
            for at in range(6)
        ]

        assert then == [
            (0, [], None),
            (0, [], "one"),
            (2, [1, 2], "one"),
            (2, [1, 2], "two"),
            (3, [1, 2, 3], "two"),
            (3, [1, 2, 3], None),
        ]

    @promise("S6")
    def test_every_version_stays_readable(self, store: Store) -> None:
        for i in range(1, 6):
            put(store, "d", i)

        assert [store.get("d", version=n).value for n in range(1, 6)] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]
        assert [d.version for d in store.history("d", after=3)] == [4, 5]

    @promise("S6")
    def test_reading_counts_from_the_end_like_a_slice(self, store: Store) -> None:
        append(store, "a", *range(10))
        slices = [(-3, None), (2, 5), (-5, -2), (8, 99), (0, 0), (20, None)]

        assert [[e.value for e in store.read("a", *s)] for s in slices] == [
            list(range(10))[slice(*s)] for s in slices
        ]

    @promise("S6")
    def test_changes_list_everything_that_happened_in_order(self, store: Store) -> None:
        append(store, "a", 1, 2)
        store.commit(Batch([Fork("b", "a", 1), Put("d", 1)]))
        store.commit(Batch([Drop("b"), Prune(before=1, log="a"), Delete("d")]))
        told = [
            [(t.action, t.name, t.first, t.last) for t in change.touched]
            for change in store.changes()
        ]

        assert told == [
            [("append", "a", 0, 0), ("append", "a", 1, 1)],
            [("fork", "b", 1, 1), ("put", "d", 1, 1)],
            [("drop", "b", 0, 0), ("prune", "a", 0, 0), ("delete", "d", 2, 2)],
        ]
        assert [c.position for c in store.changes(1, limit=1)] == [2]

    @promise("S6")
    def test_wait_returns_when_another_handle_commits(self, backend: Backend) -> None:
        waiter, writer = backend.open().store, backend.open().store
        thread = threading.Thread(target=append, args=(writer, "a", 1))
        thread.start()
        arrived = waiter.wait(1, timeout=30)
        thread.join()

        assert arrived
        assert not waiter.wait(2, timeout=0.02)


def _value(store: Store, at: int) -> Any:
    found = store.get("d", at=at)
    return None if found is None else found.value


class DurabilityContract(ContractFixtures):
    """S4, S11: what outlives the process."""

    @promise("S4")
    def test_acknowledged_commits_outlive_an_abandoned_handle(self, backend: Backend) -> None:
        store = backend.open().store
        for i in range(10):
            append(store, "a", i)
        backend.crash()

        assert values(backend.open().store, "a") == list(range(10))

    @promise("S4")
    def test_the_engine_states_its_level(self, backend: Backend) -> None:
        levels = [
            backend.open(f"t-{level}", Options(durability=level)).stats().durability
            for level in ("power", "process")
        ]

        assert levels == ["power", "process"]

    @promise("S11")
    def test_a_store_opens_by_itself_after_a_crash_in_the_middle(self, backend: Backend) -> None:
        store = backend.open().store
        append(store, "a", 1)
        with pytest.raises(NotFound):
            store.commit(Batch([Append("a", 2), Delete("missing")]))
        backend.crash()
        again = backend.open()

        assert (values(again.store, "a"), again.check().problems) == ([1], ())

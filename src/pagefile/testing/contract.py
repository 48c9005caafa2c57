"""The store's contract as tests. An engine supplies one fixture and may not override a test.

    class TestMyEngine(StoreContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

A test that is about a promise the engine does not declare is skipped by that
promise's name. Every test ends by checking and verifying what it left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import pagefile
from pagefile.batch import (
    Absent,
    Append,
    Batch,
    CountBelow,
    Delete,
    Drop,
    Fork,
    LengthBelow,
    LengthIs,
    Prune,
    Put,
    Selector,
    Unchanged,
    VersionIs,
)
from pagefile.engine import Limits
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound
from pagefile.handle import Options
from pagefile.records import Head
from pagefile.store import Query, Store
from pagefile.testing.backend import Backend, promise


class ContractFixtures:
    """What every suite over an engine starts from."""

    @pytest.fixture
    def place(self) -> Backend:
        raise NotImplementedError("an engine's test class supplies the fixture `place`")

    @pytest.fixture
    def backend(self, place: Backend, request: pytest.FixtureRequest) -> Iterator[Backend]:
        wanted = getattr(request.function, "promises", ())
        missing = [number for number in wanted if number not in place.promises]
        if missing:
            place.finish()
            pytest.skip(f"this engine does not promise {', '.join(missing)}")
        yield place
        problems = place.finish()
        assert problems == []

    @pytest.fixture
    def store(self, backend: Backend) -> Store:
        return backend.open().store


def append(store: Store, log: str, *values: Any, user: str | None = None) -> None:
    """One commit that appends the values."""
    store.commit(Batch([Append(log, value, user=user) for value in values]))


def append_each(store: Store, log: str, numbers: Iterable[int]) -> None:
    """One commit for each number."""
    for number in numbers:
        append(store, log, number)


def put(store: Store, document: str, value: Any, user: str | None = None) -> int:
    """One commit that puts the value; the version."""
    return store.commit(Batch([Put(document, value, user=user)])).versions[0]


def values(store: Store, log: str) -> list[Any]:
    """The values of all entries."""
    return [entry.value for entry in store.read(log)]


def value_of(store: Store, document: str) -> Any:
    """The document's value, or None."""
    found = store.get(document)
    return None if found is None else found.value


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


class ConditionContract(ContractFixtures):
    """S3, S7, S8: conditions, repeats, limits."""

    @promise("S3")
    def test_of_many_writers_expecting_one_version_exactly_one_commits(
        self, backend: Backend
    ) -> None:
        stores = [backend.open().store for _ in range(4)]
        outcomes: list[str] = []

        def write(store: Store) -> None:
            for version in range(20):
                batch = Batch([Put("d", version)], [VersionIs("d", version)])
                try:
                    store.commit(batch)
                    outcomes.append("won")
                except Conflict as conflict:
                    outcomes.append("lost" if conflict.current > version else "early")

        threads = [threading.Thread(target=write, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        won = outcomes.count("won")
        assert won == len(stores[0].history("d"))
        assert len(outcomes) == 80

    @promise("S3")
    def test_update_loses_no_increment(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(3)]

        def count(store: Store) -> None:
            for _ in range(20):
                store.update("n", lambda n: (n or 0) + 1)

        threads = [threading.Thread(target=count, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert value_of(stores[0], "n") == 60

    @promise("S3")
    def test_a_conflict_names_the_target_and_both_numbers(self, store: Store) -> None:
        put(store, "d", 1)
        put(store, "d", 2)
        with pytest.raises(Conflict) as caught:
            store.commit(Batch([Append("a", 1), Put("d", 3)], [VersionIs("d", 1)]))

        conflict = caught.value
        assert (conflict.target, conflict.expected, conflict.current) == ("d", 1, 2)
        assert values(store, "a") == []

    @promise("S3")
    @pytest.mark.parametrize(
        ("condition", "holds"),
        [
            (VersionIs("d", 2), True),
            (VersionIs("d", 1), False),
            (VersionIs("never", 0), True),
            (Absent("never"), True),
            (Absent("gone"), True),
            (Absent("d"), False),
            (LengthIs("a", 3), True),
            (LengthIs("a", 2), False),
            (LengthIs("none", 0), True),
            (Unchanged("state", "new", since=99, user="u"), True),
            (Unchanged("state", "new", since=0, user="u"), False),
            (Unchanged("state", "new", since=0), True),
            (Unchanged("state", "old", since=3, user="u"), False),
            (Unchanged("state", "old", since=4, user="u"), True),
            (Unchanged("queue", "x", since=0, everyone=True), False),
        ],
    )
    def test_a_condition_decides_whether_the_batch_commits(
        self, store: Store, condition: Any, holds: bool
    ) -> None:
        append(store, "a", 1, 2, 3)
        store.commit(Batch([Put("gone", 1)]))
        store.commit(Batch([Put("d", 1, user="u", keys={"state": "old"})]))
        store.commit(
            Batch(
                [
                    Put("d", 2, user="u", keys={"state": "new"}, tenant_keys={"queue": "x"}),
                    Delete("gone"),
                ]
            )
        )
        batch = Batch([Append("proof", 1)], [condition])
        if holds:
            store.commit(batch)
        else:
            with pytest.raises(Conflict):
                store.commit(batch)

        assert store.length("proof") == int(holds)

    @promise("S3")
    def test_appends_without_a_condition_never_conflict(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(3)]
        threads = [
            threading.Thread(target=append_each, args=(store, "a", range(20))) for store in stores
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert stores[0].length("a") == 60

    @promise("S7")
    def test_a_repeated_batch_answers_with_its_first_commit(self, backend: Backend) -> None:
        batch = Batch([Append("a", {"n": 1}), Put("d", 1), Fork("b", "a")])
        first = backend.open().store.commit(batch)
        store = backend.open().store
        again = store.commit(batch)

        assert (again.position, again.indexes, again.versions) == (
            first.position,
            first.indexes,
            first.versions,
        )
        assert (first.repeated, again.repeated, store.length("a")) == (False, True, 1)

    @promise("S7")
    def test_a_given_key_commits_once_across_handles(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(4)]
        positions: list[int] = []

        def write(store: Store) -> None:
            positions.append(store.commit(Batch([Append("a", "once")], key="order-7")).position)

        threads = [threading.Thread(target=write, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (positions, stores[0].length("a")) == ([1, 1, 1, 1], 1)

    @promise("S7")
    @pytest.mark.parametrize(
        "other",
        [
            [Append("a", 2)],
            [Append("b", 1)],
            [Append("a", 1, actor="x")],
            [Append("a", 1), Append("a", 1)],
            [Put("a", 1)],
        ],
    )
    def test_a_key_used_for_other_content_is_refused(self, store: Store, other: list[Any]) -> None:
        store.commit(Batch([Append("a", 1)], key="k"))
        with pytest.raises(Invalid, match="already committed something else"):
            store.commit(Batch(other, key="k"))

        assert store.head().position == 1

    @promise("S7")
    def test_a_key_is_forgotten_after_its_lifetime(self, backend: Backend) -> None:
        now = [1_000_000]
        options = Options(clock=lambda: now[0], key_lifetime_seconds=10)
        store = backend.open(options=options).store
        store.commit(Batch([Append("a", 1)], key="k"))
        now[0] += 11_000_000
        for i in range(600):
            store.commit(Batch([Append("b", i)]))

        assert not store.commit(Batch([Append("a", 2)], key="k")).repeated

    @promise("S8")
    def test_a_log_never_passes_its_limit_under_a_race(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(4)]
        refused: list[int] = []

        def write(store: Store) -> None:
            for i in range(20):
                try:
                    store.commit(Batch([Append("a", i, limit=50)]))
                except LimitExceeded:
                    refused.append(i)

        threads = [threading.Thread(target=write, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (stores[0].length("a"), len(refused)) == (50, 30)

    @promise("S8")
    def test_limits_refuse_with_the_limit_and_what_was_wanted(self, backend: Backend) -> None:
        limits = Limits(
            entry_bytes=50, batch_operations=3, batch_bytes=100, log_entries=3, logs=2, documents=1
        )
        store = backend.open(options=Options(limits=limits)).store
        append(store, "a", 1, 2)
        append(store, "b", 1)
        put(store, "d", 1)
        refused = []
        for operations in (
            [Append("a", "x" * 60)],
            [Append("a", 1)] * 4,
            [Append("a", "x" * 45)] * 3,
            [Append("a", 1)] * 2,
            [Append("c", 1)],
            [Fork("c", "a")],
            [Put("e", 1)],
        ):
            with pytest.raises(LimitExceeded) as caught:
                store.commit(Batch(operations))
            refused.append((caught.value.limit, caught.value.wanted))

        assert refused == [(50, 62), (3, 4), (100, 141), (3, 4), (2, 3), (2, 3), (1, 2)]
        assert store.head().position == 3

    @promise("S8")
    def test_a_count_under_a_key_is_never_passed(self, store: Store) -> None:
        for i in range(5):
            batch = Batch(
                [Put(f"job-{i}", i, user="u", keys={"state": "open"})],
                [CountBelow("state", "open", limit=3, user="u")],
            )
            if i < 3:
                store.commit(batch)
            else:
                with pytest.raises(LimitExceeded):
                    store.commit(batch)
        store.commit(Batch([Delete("job-0")]))
        store.commit(
            Batch(
                [Put("job-9", 9, user="u", keys={"state": "open"})],
                [CountBelow("state", "open", limit=3, user="u")],
            )
        )

        assert store.names("document") == ["job-1", "job-2", "job-9"]

    @promise("S8")
    def test_a_length_below_condition_refuses_a_full_log(self, store: Store) -> None:
        append(store, "a", 1, 2)
        with pytest.raises(LimitExceeded) as caught:
            store.commit(Batch([Put("d", 1)], [LengthBelow("a", 2)]))

        assert isinstance(caught.value, MemoryError)
        assert store.get("d") is None


class KeyContract(ContractFixtures):
    """S5, S6: secondary keys, users, tenants."""

    @promise("S6")
    def test_a_range_of_keys_comes_in_order_and_in_pages(self, store: Store) -> None:
        for i in (5, 3, 9, 1, 7):
            store.commit(Batch([Put(f"d{i}", i, keys={"due": i})]))
        first = store.find(Query("due", low=2, high=9), limit=2)
        second = store.find(Query("due", low=2, high=9, cursor=first.cursor), limit=2)
        back = store.find(Query("due", reverse=True), limit=3)
        rest = store.find(Query("due", reverse=True, cursor=back.cursor), limit=3)

        assert [[d.value for d in page.items] for page in (first, second, back, rest)] == [
            [3, 5],
            [7],
            [9, 7, 5],
            [3, 1],
        ]
        assert (second.cursor, rest.cursor) == (None, None)

    @promise("S6")
    def test_keys_follow_the_current_version_and_the_past_is_kept(self, store: Store) -> None:
        store.commit(Batch([Put("d", 1, keys={"state": "open"})]))
        store.commit(Batch([Put("d", 2, keys={"state": "done"})]))
        store.commit(Batch([Delete("d")]))
        found = [
            [(d.value, state) for state in ("open", "done") for d in _under(store, state, at)]
            for at in (None, 1, 2, 3)
        ]

        assert found == [[], [(1, "open")], [(2, "done")], []]

    @promise("S6")
    def test_keys_of_entries_are_found_in_their_log_and_its_forks(self, store: Store) -> None:
        for i in range(6):
            who = "even" if i % 2 == 0 else "odd"
            store.commit(Batch([Append("a", i, keys={"from": who})]))
        store.commit(Batch([Fork("b", "a", 3)]))
        store.commit(Batch([Append("b", 30, keys={"from": "odd"})]))
        store.commit(Batch([Fork("c", "b")]))

        assert [
            [e.value for e in store.find(Query("from", "odd", log=log)).items] for log in "abc"
        ] == [[1, 3, 5], [1, 30], [1, 30]]

    @promise("S6")
    def test_tuples_are_found_by_their_prefix(self, store: Store) -> None:
        for place in (("eu", "de"), ("eu", "fr"), ("us", "ny"), ("eu2", "x")):
            store.commit(Batch([Put("-".join(place), list(place), keys={"place": place})]))
        found = store.find(Query("place", ("eu",), prefix=True)).items

        assert [d.value for d in found] == [["eu", "de"], ["eu", "fr"]]

    @promise("S5")
    def test_a_call_for_one_user_never_sees_another_users_records(self, store: Store) -> None:
        for user in ("alice", "bob", None):
            store.commit(
                Batch([Put(f"{user}-d", user, user=user, keys={"k": 1}, tenant_keys={"k": 1})])
            )
        seen = [
            [d.value for d in store.find(query).items]
            for query in (
                Query("k", 1, user="alice"),
                Query("k", 1, user="bob"),
                Query("k", 1),
                Query("k", 1, user="carol"),
                Query("k", 1, everyone=True),
            )
        ]

        assert seen == [["alice"], ["bob"], [None], [], ["alice", "bob", None]]

    @promise("S5")
    def test_what_a_tenant_observes_does_not_depend_on_other_tenants(
        self, backend: Backend
    ) -> None:
        def observe(store: Store) -> list[Any]:
            head = store.head()
            return [
                head.position,
                store.names("log"),
                store.names("document"),
                values(store, "a"),
                store.length("secret"),
                store.get("secret-doc"),
                store.find(Query("k", 1, everyone=True)).items,
                store.changes(),
                store.stats(),
                store.commit(Batch([Append("x", 1)], key="same-key")).position,
            ]

        mine = backend.open("mine").store
        append(mine, "a", 1)
        other = backend.open("other").store
        append(other, "secret", 1, 2, 3)
        other.commit(Batch([Put("secret-doc", 1, tenant_keys={"k": 1})], key="same-key"))
        alone, beside = observe(backend.open("alone").store), observe(mine)

        assert beside[0] == 1
        assert beside[1:8:2] != []
        assert (beside[1], beside[2], beside[4], beside[5], beside[6]) == (["a"], [], 0, None, ())
        assert (beside[9], alone[9]) == (2, 1)
        assert [change.position for change in beside[7]] == [1]

    @promise("S5")
    def test_the_same_key_in_two_tenants_is_two_keys(self, backend: Backend) -> None:
        one, two = backend.open("one").store, backend.open("two").store
        commits = [s.commit(Batch([Append("a", i)], key="k")) for i, s in enumerate((one, two))]

        assert [(c.position, c.repeated) for c in commits] == [(1, False), (1, False)]

    @promise("S5")
    def test_names_are_listed_in_order_by_prefix_and_in_pages(self, store: Store) -> None:
        for name in ("b/2", "a", "b/1", "c", "b/3"):
            append(store, name, 1)

        assert store.names("log", prefix="b/") == ["b/1", "b/2", "b/3"]
        assert store.names("log", after="b/1", limit=2) == ["b/2", "b/3"]


def _under(store: Store, state: str, at: int | None) -> Any:
    return store.find(Query("state", state), at=at).items


class ForkContract(ContractFixtures):
    """S2, S6, S9: forks, drops and prunings."""

    @promise("S6")
    def test_a_fork_shares_the_past_and_owns_its_future(self, store: Store) -> None:
        append(store, "a", 0, 1, 2)
        store.commit(Batch([Fork("b", "a", 2)]))
        append(store, "b", "b2")
        append(store, "a", 3)
        store.commit(Batch([Fork("c", "b")]))
        append(store, "c", "c3")

        assert [values(store, log) for log in "abc"] == [
            [0, 1, 2, 3],
            [0, 1, "b2"],
            [0, 1, "b2", "c3"],
        ]
        assert [e.index for e in store.read("c")] == [0, 1, 2, 3]
        assert [e.origin for e in store.read("c")] == ["a", "a", "b", "c"]
        assert [e.value for e in store.read("c", -3, -1)] == [1, "b2"]

    @promise("S6")
    def test_dropping_a_parent_keeps_what_forks_share(self, store: Store) -> None:
        append(store, "a", 0, 1)
        store.commit(Batch([Fork("b", "a")]))
        store.commit(Batch([Drop("a")]))

        assert (values(store, "a"), values(store, "b")) == ([], [0, 1])

    @promise("S2")
    def test_a_dropped_name_starts_again_from_zero(self, store: Store) -> None:
        append(store, "a", "old")
        store.commit(Batch([Drop("a")]))
        append(store, "a", "new")

        assert [(e.index, e.value) for e in store.read("a")] == [(0, "new")]
        assert [e.value for e in store.read("a", at=1)] == ["old"]

    @promise("S2")
    def test_pruning_shifts_no_number(self, store: Store) -> None:
        append(store, "a", *range(6))
        for i in range(1, 5):
            put(store, "d", i)
        store.commit(Batch([Prune(before=4, log="a"), Prune(before=3, document="d")]))
        append(store, "a", 6)

        assert [(e.index, e.value) for e in store.read("a")] == [(4, 4), (5, 5), (6, 6)]
        assert store.length("a") == 7
        assert [d.version for d in store.history("d")] == [3, 4]

    @promise("S2")
    def test_a_log_pruned_to_its_end_goes_on_counting(self, backend: Backend) -> None:
        store = backend.open().store
        append(store, "a", 0, 1)
        store.commit(Batch([Prune(before=2, log="a")]))
        store = backend.open().store
        append(store, "a", 2)

        assert [(e.index, e.value) for e in store.read("a")] == [(2, 2)]

    @promise("S6")
    def test_pruning_keeps_what_a_living_fork_shares(self, store: Store) -> None:
        append(store, "a", *range(5))
        store.commit(Batch([Fork("b", "a", 3)]))
        store.commit(Batch([Prune(before=5, log="a")]))

        assert (values(store, "a"), values(store, "b")) == ([], [0, 1, 2])

    @promise("S3")
    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (Fork("b", "missing"), NotFound),
            (Fork("b", "a", 9), Invalid),
            (Fork("a2", "a"), Conflict),
            (Drop("missing"), NotFound),
            (Prune(before=9, log="a"), Invalid),
            (Prune(before=1, log="missing"), NotFound),
            (Delete("missing"), NotFound),
        ],
    )
    def test_what_cannot_be_done_is_refused_and_changes_nothing(
        self, store: Store, operation: Any, error: type[Exception]
    ) -> None:
        append(store, "a", 1)
        append(store, "a2", 1)
        before = store.head()
        with pytest.raises(error):
            store.commit(Batch([Append("a", 2), operation]))

        assert (store.head(), values(store, "a")) == (before, [1])


class ErasureContract(ContractFixtures):
    """S9, S10: erasing and verifying."""

    @promise("S9")
    def test_erasing_a_user_takes_their_records_everywhere_and_nobody_elses(
        self, store: Store
    ) -> None:
        append(store, "shared", "from alice", user="alice")
        append(store, "shared", "from bob", user="bob")
        append(store, "hers", "only alice", user="alice")
        put(store, "profile", "alice's", user="alice")
        put(store, "profile", "alice's again", user="alice")
        rehearsal = store.erase(Selector(user="alice"), dry_run=True)
        receipt = store.erase(Selector(user="alice"))

        assert receipt.removed == rehearsal.removed
        assert (receipt.records, receipt.level) == (4, "bytes")
        assert [(e.index, e.erased) for e in store.read("shared")] == [(0, True), (1, False)]
        assert (store.names("log"), store.names("document")) == (["shared"], [])
        assert store.get("profile") is None
        with pytest.raises(NotFound):
            _ = store.read("shared")[0].value

    @promise("S9", "S10")
    def test_the_chain_verifies_after_an_erasure(self, store: Store) -> None:
        append(store, "a", 1, 2, 3, user="u")
        kept = store.head()
        store.erase(Selector(log="a", first=1, last=1))
        report = store.verify(head=kept)

        assert report.problems == ()
        assert [e.erased for e in store.read("a")] == [False, True, False]

    @promise("S9")
    def test_an_erasure_reaches_what_forks_share(self, store: Store) -> None:
        append(store, "a", "secret", user="u")
        store.commit(Batch([Fork("b", "a")]))
        store.erase(Selector(user="u"))

        assert [e.erased for e in store.read("b")] == [True]

    @promise("S9")
    def test_erased_keys_find_nothing_now_or_then(self, store: Store) -> None:
        store.commit(Batch([Put("d", 1, user="u", keys={"k": "v"}, tenant_keys={"t": "v"})]))
        store.commit(Batch([Put("d", 2, user="u", keys={"k": "w"})]))
        store.erase(Selector(user="u"))
        found = [
            store.find(query, at=at).items
            for query in (
                Query("k", "v", user="u"),
                Query("k", "w", user="u"),
                Query("t", "v", everyone=True),
            )
            for at in (None, 1, 2)
        ]

        assert found == [()] * 9

    @promise("S9", "S7")
    def test_replaying_an_erased_batch_does_not_resurrect_it(self, store: Store) -> None:
        batch = Batch([Append("a", "secret", user="u")], key="k")
        store.commit(batch)
        store.erase(Selector(user="u"))
        again = store.commit(batch)

        assert (again.repeated, values(store, "a")) == (True, [])

    @promise("S9")
    def test_erasing_nothing_commits_nothing(self, store: Store) -> None:
        append(store, "a", 1)
        receipt = store.erase(Selector(user="nobody"))

        assert (receipt.position, receipt.records, store.head().position) == (None, 0, 1)

    @promise("S9")
    def test_a_user_can_come_back_after_being_erased(self, store: Store) -> None:
        put(store, "profile", 1, user="u")
        store.erase(Selector(user="u"))

        assert put(store, "profile", 2, user="u") == 1
        assert value_of(store, "profile") == 2

    @promise("S9")
    def test_an_erasure_before_a_time_keeps_what_is_newer(self, store: Store) -> None:
        append(store, "a", "old", user="u")
        cut = store.commit(Batch([Append("a", "new", user="u")])).time_us
        store.erase(Selector(user="u", before_us=cut))
        kept = [e.value for e in store.read("a") if not e.erased]

        assert kept == ["new"]

    @promise("S10")
    def test_a_head_kept_elsewhere_proves_the_history_is_the_same(self, store: Store) -> None:
        append(store, "a", 1)
        kept = store.head()
        append(store, "a", 2)

        assert store.verify(head=kept).problems == ()

    @promise("S10")
    def test_a_wrong_or_later_head_is_reported_at_its_position(self, store: Store) -> None:
        append(store, "a", 1)
        wrong = store.verify(head=Head(1, bytes(32)))
        beyond = store.verify(head=Head(5, bytes(32)))

        assert [p.position for p in wrong.problems] == [1]
        assert [p.position for p in beyond.problems] == [2]

    @promise("S10")
    def test_the_same_story_gives_the_same_digest(self, backend: Backend) -> None:
        def tell(tenant: str) -> bytes:
            ticks = iter(range(1_000, 9_000))
            random = iter(range(10_000))
            options = Options(
                clock=lambda: next(ticks),
                entropy=lambda n: b"".join(
                    next(random).to_bytes(16, "big") for _ in range(n // 16)
                ),
            )
            store = backend.open(tenant, options).store
            append(store, "a", {"n": 1}, 2)
            put(store, "d", [1, 2])
            store.commit(Batch([Fork("b", "a", 1), Append("b", "x", user="u")]))
            store.erase(Selector(user="u"))
            return store.head().digest

        assert tell("one") == tell("two")


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


class StoreContract(
    AtomicContract,
    ConditionContract,
    KeyContract,
    ForkContract,
    ErasureContract,
    DurabilityContract,
):
    """All of it: what an engine's test class derives from."""


def promised_numbers() -> list[str]:
    """The promises as the store's own docstring lists them."""
    lines = (pagefile.Store.__doc__ or "").splitlines()
    return [
        word
        for line in lines
        if (word := line.strip().split(" ")[0])[:1] == "S" and word[1:].isdigit()
    ]

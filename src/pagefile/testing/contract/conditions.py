"""Conditions, repeats, limits."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pagefile.errors import Conflict, Invalid, LimitExceeded
from pagefile.handle import Options
from pagefile.store.batch import (
    Absent,
    Append,
    Batch,
    CountBelow,
    CreatedAt,
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
from pagefile.store.engine import Limits
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.fixtures import (
    ContractFixtures,
    append,
    append_each,
    put,
    value_of,
    values,
)

_YEAR_US = 365 * 86_400 * 1_000_000


class ConditionContract(ContractFixtures):
    """S3, S7, S8: conditions, repeats, limits."""

    @promise("S6")
    def test_many_documents_are_read_as_each_by_itself(self, store: Store) -> None:
        put(store, "one", 1)
        put(store, "one", 11, user="u")
        put(store, "two", 2)
        put(store, "gone", 3)
        store.commit(Batch([Delete("gone")]))
        put(store, "erased", 4, user="x")
        put(store, "erased", 5, user="y")
        store.erase(Selector(user="y"))
        names = ["two", "one", "never", "gone", "erased", "one"]

        assert store.get_many(names) == [store.get(name) for name in names]
        assert [d if d is None else d.version for d in store.get_many(names[:5])] == [
            1,
            2,
            None,
            None,
            2,
        ]
        assert store.get_many([]) == []
        with pytest.raises(Invalid):
            store.get_many({"one"})  # type: ignore[arg-type]

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
    @pytest.mark.parametrize("was_deleted", [False, True])
    def test_update_sees_who_created_the_document_meanwhile(
        self, store: Store, was_deleted: bool
    ) -> None:
        if was_deleted:
            put(store, "n", 1)
            store.commit(Batch([Delete("n")]))
        seen: list[Any] = []

        def change(value: Any) -> int:
            seen.append(value)
            if len(seen) == 1:
                put(store, "n", 100)
            return (value or 0) + 1

        store.update("n", change)

        assert (seen, value_of(store, "n")) == ([None, 100], 101)

    @promise("S3")
    def test_update_keeps_everything_but_the_value(self, store: Store) -> None:
        kept: dict[str, Any] = {
            "user": "alice",
            "kind": "count",
            "actor": "robot",
            "sources": ("log:0",),
            "keys": {"k": "x"},
            "tenant_keys": {"t": "y"},
            "notes": {"why": ["asked", 1]},
        }
        store.commit(Batch([Put("n", 1, **kept)]))
        store.update("n", lambda n: n + 1)

        found = store.get("n")
        assert found is not None
        assert (found.version, found.value) == (2, 2)
        assert {field: getattr(found, field) for field in kept} == kept

    @promise("S3")
    def test_a_conflict_names_the_target_and_both_numbers(self, store: Store) -> None:
        put(store, "d", 1)
        put(store, "d", 2)
        with pytest.raises(Conflict) as caught:
            store.commit(Batch([Append("a", 1), Put("d", 3)], [VersionIs("d", 1)]))

        conflict = caught.value
        assert (conflict.target, conflict.expected, conflict.current) == ("d", 1, 2)
        assert values(store, "a") == []

    @promise("S3", "S9")
    def test_an_erasure_counts_as_a_change_of_every_key(self, store: Store) -> None:
        """What it took left no trace of its keys, and may have stood under this one."""
        store.commit(Batch([Put("d", 1, user="u", keys={"state": "new"})]))
        position = store.commit(Batch([Append("a", 1, user="u")])).position
        store.erase(Selector(document="d"))
        since = Unchanged("state", "new", since=position, user="u")
        with pytest.raises(Conflict) as caught:
            store.commit(Batch([Append("proof", 1)], [since]))

        assert (caught.value.expected, caught.value.current) == (position, position + 1)
        assert store.length("proof") == 0

    @promise("S8")
    def test_a_deleted_document_comes_back_within_the_limit_only(self, backend: Backend) -> None:
        store = backend.open(options=Options(limits=Limits(documents=1))).store
        put(store, "d", 1)
        store.commit(Batch([Delete("d")]))
        put(store, "other", 1)
        with pytest.raises(LimitExceeded) as caught:
            put(store, "d", 2)

        assert (caught.value.limit, caught.value.wanted) == (1, 2)
        store.commit(Batch([Delete("other")]))
        assert put(store, "d", 2) == 3

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
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (Prune(before=1, log="a"), Prune(before=2, log="a")),
            (Fork("b", "a", 1), Fork("b", "a", 2)),
        ],
    )
    def test_a_key_used_for_another_number_is_refused(
        self, store: Store, first: Any, second: Any
    ) -> None:
        append(store, "a", 1, 2, 3)
        store.commit(Batch([first], key="k"))
        with pytest.raises(Invalid):
            store.commit(Batch([second], key="k"))

    @promise("S7")
    def test_a_key_that_claims_a_position_not_reached_is_refused(self, store: Store) -> None:
        """Its repeat would be looked for after that position, and not found."""
        append(store, "a", 1)
        with pytest.raises(Invalid):
            store.commit(Batch([Append("a", 2)], key=f"~9-{'0' * 32}"))

        assert store.length("a") == 1

    @promise("S7")
    def test_a_key_is_forgotten_after_its_lifetime(self, backend: Backend) -> None:
        now = [1_000_000]
        options = Options(clock=lambda: now[0], key_lifetime_seconds=10)
        store = backend.open(options=options).store
        store.commit(Batch([Append("a", 1)], key="k"))
        for i in range(600):
            now[0] += 25_000
            store.commit(Batch([Append("b", i)]))

        assert not store.commit(Batch([Append("a", 2)], key="k")).repeated
        assert store.check()

    @promise("S7")
    def test_a_key_is_kept_for_its_lifetime(self, backend: Backend) -> None:
        now = [1_000_000]
        options = Options(clock=lambda: now[0], key_lifetime_seconds=10)
        store = backend.open(options=options).store
        store.commit(Batch([Append("a", 1)], key="k"))
        for i in range(600):
            now[0] += 16_000
            store.commit(Batch([Append("b", i)]))

        assert store.commit(Batch([Append("a", 1)], key="k")).repeated

    @promise("S7")
    def test_one_clock_that_runs_ahead_expires_nobodys_keys(self, backend: Backend) -> None:
        """A year ahead on one machine; the others are right, and repeat what they sent."""
        now = [1_000_000]
        right = Options(clock=lambda: now[0], key_lifetime_seconds=10)
        ahead = Options(clock=lambda: now[0] + _YEAR_US, key_lifetime_seconds=10)
        store, wrong = backend.open(options=right).store, backend.open(options=ahead).store
        store.commit(Batch([Append("a", "pay")], key="payment-1"))
        for i in range(300):
            now[0] += 16_000
            wrong.commit(Batch([Append("b", i)]))
            store.commit(Batch([Append("b", i)]))

        assert store.commit(Batch([Append("a", "pay")], key="payment-1")).repeated
        assert store.length("a") == 1

    @promise("S7")
    def test_keys_expire_again_after_a_clock_ran_ahead(self, backend: Backend) -> None:
        now = [1_000_000]
        options = Options(clock=lambda: now[0], key_lifetime_seconds=10)
        store = backend.open(options=options).store
        store.commit(Batch([Append("a", 1)], key="k"))
        now[0] += _YEAR_US
        for i in range(600):
            now[0] += 25_000
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

    @promise("S3")
    def test_a_log_that_was_begun_again_is_another(self, store: Store) -> None:
        """One of the same name and length is not the one that was looked at."""
        assert store.created("a") == 0
        store.commit(Batch([Append("a", 1)], [CreatedAt("a", 0)]))
        first = store.created("a")
        store.commit(Batch([Append("a", 2)], [CreatedAt("a", first)]))
        store.commit(Batch([Drop("a")]))
        append(store, "a", 3, 4)
        for number in (first, 0):
            with pytest.raises(Conflict) as caught:
                store.commit(Batch([Append("a", 5)], [CreatedAt("a", number)]))
            assert (caught.value.target, caught.value.expected) == ("a", number)
        again = store.created("a")
        with pytest.raises(Conflict):
            store.commit(Batch([Put("d", 1)], [CreatedAt("b", again)]))
        store.commit(Batch([Fork("b", "a", 1), Append("a", 6)], [CreatedAt("a", again)]))

        assert first < again < store.created("b")
        assert values(store, "a") == [3, 4, 6]
        assert store.get("d") is None

    @promise("S8")
    def test_a_length_below_condition_refuses_a_full_log(self, store: Store) -> None:
        append(store, "a", 1, 2)
        with pytest.raises(LimitExceeded) as caught:
            store.commit(Batch([Put("d", 1)], [LengthBelow("a", 2)]))

        assert isinstance(caught.value, MemoryError)
        assert store.get("d") is None

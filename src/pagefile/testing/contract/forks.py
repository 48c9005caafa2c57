"""Forks, drops and prunings."""

from __future__ import annotations

from typing import Any

import pytest

from pagefile.errors import Conflict, Invalid, NotFound
from pagefile.store.batch import (
    Append,
    Batch,
    Delete,
    Drop,
    Fork,
    Prune,
    Query,
    Selector,
)
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.fixtures import (
    ContractFixtures,
    append,
    put,
    values,
)


class ForkContract(ContractFixtures):
    """S2, S6, S9: forks, drops and prunings."""

    @promise("S10", "S2")
    def test_a_log_is_pruned_and_its_fork_dropped_in_one_batch(self, store: Store) -> None:
        append(store, "a", 1, 2, 3)
        store.commit(Batch([Fork("b", "a")]))
        store.commit(Batch([Fork("c", "a", 1)]))
        store.commit(Batch([Prune(2, log="a"), Drop("b")]))

        assert [entry.index for entry in store.read("a")] == [2]
        assert values(store, "c") == [1]
        assert store.verify().problems == ()
        assert store.check().problems == ()

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

    @promise("S2")
    def test_a_log_pruned_to_its_end_beside_a_fork_goes_on_counting(self, backend: Backend) -> None:
        store = backend.open().store
        append(store, "a", *range(5))
        store.commit(Batch([Fork("b", "a", 2)]))
        store.commit(Batch([Prune(before=5, log="a")]))
        store = backend.open().store
        append(store, "a", "next")

        assert [(e.index, e.value) for e in store.read("a")] == [(5, "next")]
        assert values(store, "b") == [0, 1]

    @promise("S6")
    def test_pruning_keeps_what_is_shared_through_a_dropped_fork(self, store: Store) -> None:
        append(store, "a", *range(6))
        store.commit(Batch([Fork("b", "a")]))
        append(store, "b", "b6", "b7")
        store.commit(Batch([Fork("c", "b", 7)]))
        store.commit(Batch([Drop("b")]))
        store.commit(Batch([Prune(before=6, log="a")]))

        assert values(store, "c") == [0, 1, 2, 3, 4, 5, "b6"]

    @promise("S6")
    def test_a_fork_does_not_show_what_its_base_has_let_go(self, store: Store) -> None:
        append(store, "a", *range(4))
        store.commit(Batch([Fork("b", "a")]))
        store.commit(Batch([Prune(before=2, log="b")]))
        store.commit(Batch([Fork("c", "b", 3)]))
        append(store, "c", "own")

        assert [(e.index, e.value) for e in store.read("c")] == [(2, 2), (3, "own")]
        assert values(store, "a") == [0, 1, 2, 3]

    @promise("S9", "S10")
    def test_what_was_kept_for_a_fork_alone_goes_with_it(self, store: Store) -> None:
        append(store, "a", "one", "two", "three")
        store.commit(Batch([Fork("b", "a", 2)]))
        store.commit(Batch([Fork("c", "b", 1)]))
        store.commit(Batch([Prune(None, log="a"), Drop("a")]))
        shared = values(store, "b"), values(store, "c")
        store.commit(Batch([Prune(None, log="b"), Drop("b")]))
        left = values(store, "c")
        ending = Batch([Prune(None, log="c"), Drop("c")])
        store.commit(ending)
        repeated = store.commit(ending)
        gone = store.erase(Selector(anonymous=True), dry_run=True)

        assert shared == (["one", "two"], ["one"])
        assert left == ["one"]
        assert repeated.repeated
        assert gone.records == 0

    @promise("S9", "S10")
    def test_what_was_kept_for_a_fork_alone_goes_when_the_fork_is_erased(
        self, store: Store
    ) -> None:
        append(store, "a", "one", "two")
        store.commit(Batch([Fork("b", "a", 1)]))
        append(store, "b", "own")
        store.commit(Batch([Fork("c", "b")]))
        store.commit(Batch([Prune(None, log="a"), Drop("a")]))
        store.erase(Selector(log="b"))
        left = [entry.value for entry in store.read("c") if not entry.erased]
        store.erase(Selector(log="c"))
        gone = store.erase(Selector(anonymous=True), dry_run=True)

        assert left == ["one"]
        assert gone.records == 0

    @promise("S6")
    def test_pruning_a_fork_below_its_own_entries_keeps_their_keys(self, store: Store) -> None:
        append(store, "a", *range(3))
        store.commit(Batch([Fork("b", "a")]))
        store.commit(Batch([Append("b", "own", keys={"k": 1}), Append("b", "x", keys={"k": 1})]))
        store.commit(Batch([Prune(before=2, log="b")]))
        found = store.find(Query("k", 1, log="b")).items

        assert [e.value for e in found] == ["own", "x"]

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

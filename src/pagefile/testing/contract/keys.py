"""Secondary keys, users, tenants."""

from __future__ import annotations

from typing import Any

from pagefile.store.batch import (
    Append,
    Batch,
    Delete,
    Fork,
    Put,
    Query,
)
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.fixtures import (
    ContractFixtures,
    append,
    values,
)


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
    def test_a_cursor_never_leads_outside_the_range_that_is_asked(self, store: Store) -> None:
        store.commit(Batch([Put(f"d{i}", i, keys={"k": i}) for i in range(10)]))
        start = store.find(Query("k", low=0), limit=1).cursor
        end = store.find(Query("k", reverse=True), limit=1).cursor
        found = [
            [d.value for d in store.find(query).items]
            for query in (
                Query("k", low=5, high=7, cursor=start),
                Query("k", low=5, high=7, cursor=end, reverse=True),
            )
        ]

        assert found == [[5, 6], [6, 5]]

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
            return [
                store.head(),
                store.names("log"),
                store.names("document"),
                values(store, "a"),
                store.length("secret"),
                store.get("secret-doc"),
                store.find(Query("k", 1, everyone=True)).items,
                store.changes(),
                store.stats(),
            ]

        mine = backend.open("mine").store
        append(mine, "a", 1)
        alone = observe(mine)
        other = backend.open("other").store
        append(other, "secret", 1, 2, 3)
        other.commit(Batch([Put("secret-doc", 1, tenant_keys={"k": 1})], key="same-key"))
        beside = observe(mine)
        repeated = mine.commit(Batch([Append("x", 1)], key="same-key"))

        assert beside == alone
        assert beside[1:7] == [["a"], [], [1], 0, None, ()]
        assert (mine.stats().logs, mine.stats().documents) == (2, 0)
        assert (repeated.position, repeated.repeated) == (2, False)

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

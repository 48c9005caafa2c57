"""Erasing and verifying."""

from __future__ import annotations

import pytest

from pagefile.errors import Conflict, Invalid, NotFound
from pagefile.handle import Options
from pagefile.handle import open as open_store
from pagefile.store.batch import (
    Append,
    Batch,
    Drop,
    Fork,
    Operation,
    Prune,
    Put,
    Query,
    Selector,
    VersionIs,
)
from pagefile.store.records import Head
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.fixtures import (
    ContractFixtures,
    append,
    put,
    value_of,
    values,
)


class ErasureContract(ContractFixtures):
    """S9, S10: erasing and verifying."""

    @promise("S9")
    def test_erasing_a_user_takes_their_records_everywhere_and_nobody_elses(
        self, backend: Backend, store: Store
    ) -> None:
        append(store, "shared", "from alice", user="alice")
        append(store, "shared", "from bob", user="bob")
        append(store, "hers", "only alice", user="alice")
        put(store, "profile", "alice's", user="alice")
        put(store, "profile", "alice's again", user="alice")
        rehearsal = store.erase(Selector(user="alice"), dry_run=True)
        receipt = store.erase(Selector(user="alice"))

        assert receipt.removed == rehearsal.removed
        assert (receipt.records, receipt.level) == (4, backend.erasure)
        assert [(e.index, e.erased) for e in store.read("shared")] == [(0, True), (1, False)]
        assert (store.names("log"), store.names("document")) == (["shared"], [])
        assert store.get("profile") is None
        with pytest.raises(NotFound):
            _ = store.read("shared")[0].value

    @promise("S10")
    def test_what_is_appended_beside_a_pruning_keeps_its_user(self, store: Store) -> None:
        append(store, "a", "old", user="alice")
        store.commit(Batch([Prune(log="a", before=1), Append("a", "new", user="alice")]))

        assert store.read("a")[0].value == "new"
        assert store.verify().problems == ()
        assert store.erase(Selector(user="alice")).records == 1

    @promise("S9")
    def test_nothing_of_what_was_erased_is_left_at_the_level_the_engine_states(
        self, backend: Backend, store: Store
    ) -> None:
        word = "zyqsecret"
        keys, of_all = {"k": f"{word}-key"}, {"t": f"{word}-for-all"}
        for n in range(2):
            entry = Append(f"{word}-log", [word, n], user=word, keys=keys, actor=f"{word}-by")
            version = Put(f"{word}-document", n, user=word, tenant_keys=of_all)
            store.commit(Batch([entry, version], key=f"{word}-{n}"))
        append(store, "kept", 1)
        before = [name for name, stored in backend.remains() if word.encode() in stored]
        receipt = store.erase(Selector(user=word))
        after = [name for name, stored in backend.remains() if word.encode() in stored]

        assert (after, receipt.level) == ([], backend.erasure)
        assert bool(before) == bool(list(backend.remains()))
        # Of a lower level it is said what finishes it; nothing is left to be done of a high one.
        assert bool(receipt.remaining) == (backend.erasure == "logical")
        assert not store.erase(Selector(user=word), dry_run=True).records

    @promise("S9")
    @pytest.mark.parametrize("removal", ["erase", "prune", "name"])
    def test_what_an_erasure_left_is_remembered_and_gone_after_one_that_finds_nothing(
        self, backend: Backend, store: Store, removal: str
    ) -> None:
        word, nobody = "zyqsecret", Selector(user="nobody")

        def found() -> bool:
            return any(word.encode() in stored for _, stored in backend.remains())

        append(store, "a", word, user=word)
        put(store, "d", word, user="ann")
        append(store, "b", "kept")
        store.commit(Batch([Fork(f"{word}-fork", "b", 0), Put("d", 2, user="ann")]))
        store.erase(Selector(user=word))
        if removal != "name":
            store.erase(Selector(log=f"{word}-fork"), scrub=False)
        if removal == "erase":
            left = store.erase(Selector(user="ann"), scrub=False)
        elif removal == "prune":
            store.commit(Batch([Prune(None, document="d")]))
            left = store.erase(nobody, scrub=False)
        else:
            store.commit(Batch([Prune(None, document="d")]))
            store.erase(nobody)
            left = store.erase(Selector(log=f"{word}-fork"), scrub=False)
        was_left = found()
        asked = store.erase(nobody, scrub=False)
        backend.crash()
        # As another process, later.
        store = backend.open().store
        paid = store.erase(nobody)

        assert not (was_left and "bytes" in (left.level, asked.level))
        assert (left.level, bool(left.remaining)) == (asked.level, bool(asked.remaining))
        assert (paid.level, paid.position, found()) == (backend.erasure, None, False)
        assert store.erase(nobody, scrub=False).level == backend.erasure

    @promise("S9", "S10")
    def test_the_chain_verifies_after_an_erasure(self, store: Store) -> None:
        append(store, "a", 1, 2, 3, user="u")
        kept = store.head()
        store.erase(Selector(log="a", first=1, last=1))
        report = store.verify(head=kept)

        assert report.problems == ()
        assert [e.erased for e in store.read("a")] == [False, True, False]

    @promise("S9", "S1")
    def test_several_selections_and_what_stands_beside_them_are_one_commit(
        self, store: Store
    ) -> None:
        append(store, "index", "a", "b", "c", "d", user="u")
        for name in ("one", "two", "three"):
            put(store, name, name, user="u")
        wanted = [
            Selector(document="one"),
            Selector(document="two"),
            Selector(log="index", numbers=frozenset({0, 2})),
        ]
        beside: list[Operation] = [Append("index", "gone", user="u"), Put("receipt", 1, user="u")]
        rehearsal = store.erase(wanted, dry_run=True)
        before = store.head()
        receipt = store.erase(wanted, beside=Batch(beside, [VersionIs("three", 1)]))

        assert receipt.removed == rehearsal.removed
        assert (receipt.records, receipt.position) == (4, before.position + 1)
        assert store.head().position == before.position + 1
        assert [e.erased for e in store.read("index")] == [True, False, True, False, False]
        assert store.names("document") == ["receipt", "three"]
        assert store.verify(head=before)
        assert store.check()

    @promise("S9", "S3")
    def test_an_erasure_whose_condition_fails_takes_nothing(self, store: Store) -> None:
        put(store, "one", 1, user="u")
        put(store, "two", 2, user="u")
        with pytest.raises(Conflict):
            store.erase(Selector(user="u"), beside=Batch([Put("three", 3)], [VersionIs("two", 7)]))
        with pytest.raises(Invalid):
            store.erase(Selector(user="u"), beside=Batch([Put("three", 3), Put("one", 4)]))

        assert (value_of(store, "one"), store.names("document")) == (1, ["one", "two"])
        assert store.verify()

    @promise("S9", "S3")
    def test_an_erasure_may_depend_on_something_and_store_nothing(self, store: Store) -> None:
        store.commit(Batch([Put("one", 1, user="u")]))
        store.commit(Batch([Put("two", 2)]))
        with pytest.raises(Conflict):
            store.erase(Selector(user="u"), beside=Batch([], [VersionIs("two", 7)]))
        kept = store.get("one")
        receipt = store.erase(Selector(user="u"), beside=Batch([], [VersionIs("two", 1)]))

        assert kept is not None
        assert kept.value == 1
        assert receipt.records == 1
        assert store.verify()

    @promise("S9")
    def test_a_user_is_erased_while_a_log_of_theirs_goes_on(self, store: Store) -> None:
        append(store, "index", "secret", user="u")
        store.erase(Selector(user="u"), beside=Batch([Append("index", "next", user="u")]))
        again = store.erase(Selector(user="u"))

        assert again.records == 1
        assert store.names("log") == []
        assert store.verify()
        assert store.check()

    @promise("S9")
    def test_what_stands_beside_an_erasure_is_stored_though_nothing_matched(
        self, store: Store
    ) -> None:
        receipt = store.erase(Selector(user="nobody"), beside=Batch([Put("note", 1)]))

        assert (receipt.records, value_of(store, "note")) == (0, 1)
        assert store.verify()

    @promise("S9")
    def test_an_erasure_reaches_what_forks_share(self, store: Store) -> None:
        append(store, "a", "secret", user="u")
        store.commit(Batch([Fork("b", "a"), Append("b", "kept")]))
        store.erase(Selector(user="u"))

        assert [e.erased for e in store.read("b")] == [True, False]

    @promise("S9", "S2")
    def test_a_fork_lives_on_while_it_shows_somebody_elses_entry(self, store: Store) -> None:
        append(store, "a", "from ann", user="ann")
        append(store, "a", "from bob", user="bob")
        store.commit(Batch([Fork("b", "a"), Append("b", "from ann again", user="ann")]))
        store.erase(Selector(user="ann"))
        shown = [(e.index, e.erased) for e in store.read("b")]
        index = store.commit(Batch([Append("b", "next")])).indexes[0]

        assert shown == [(0, True), (1, False), (2, True)]
        assert index == 3

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
    def test_a_stream_without_content_can_still_be_made_to_forget_its_name(
        self, store: Store
    ) -> None:
        append(store, "a", 1)
        store.commit(Batch([Fork("alice's fork", "a")]))
        append(store, "alice's log", 1)
        store.commit(Batch([Prune(before=1, log="alice's log")]))
        for name in ("alice's fork", "alice's log"):
            store.erase(Selector(log=name))
        told = [t.name for change in store.changes() for t in change.touched]

        assert store.names("log") == ["a"]
        assert [name for name in told if name and "alice" in name] == []

    @promise("S9")
    def test_a_log_that_is_pruned_and_dropped_takes_its_name_along(
        self, backend: Backend, store: Store
    ) -> None:
        word = "zyqsecret"

        def end(log: str) -> None:
            store.commit(Batch([Prune(None, log=log), Drop(log)]))

        for turn in range(2):
            append(store, f"{word}-twice", turn, user="ann")
            end(f"{word}-twice")
        append(store, f"{word}-base", 1, 2, user="ann")
        store.commit(Batch([Fork("fork", f"{word}-base"), Append("fork", 3)]))
        end(f"{word}-base")
        kept = values(store, "fork")
        end("fork")
        append(store, f"{word}-both", 1, user="ann")
        store.commit(Batch([Fork(f"{word}-own", f"{word}-both")]))
        both = [f"{word}-both", f"{word}-own"]
        store.commit(Batch([*(Prune(None, log=log) for log in both), *(Drop(log) for log in both)]))
        store.erase([])
        told = [t.name for change in store.changes() for t in change.touched]

        assert kept == [1, 2, 3]
        assert [name for name in told if name and word in name] == []
        assert [name for name, stored in backend.remains() if word.encode() in stored] == []
        append(store, f"{word}-twice", "again")
        assert values(store, f"{word}-twice") == ["again"]
        assert store.verify()
        assert store.check()

    @promise("S9")
    def test_what_was_pruned_leaves_with_the_next_erasure(
        self, backend: Backend, store: Store
    ) -> None:
        word = "zyqsecret"
        append(store, "a", word, "kept")
        store.commit(Batch([Put("d", word)]))
        store.commit(Batch([Put("d", "kept")]))
        append(store, "other", word, user="ann")
        store.erase(Selector(user="ann"))
        store.commit(Batch([Prune(1, log="a"), Prune(2, document="d")]))
        receipt = store.erase([])
        left = [name for name, stored in backend.remains() if word.encode() in stored]

        assert values(store, "a") == ["kept"]
        assert (receipt.level, left) == (backend.erasure, [])

    @promise("S9")
    def test_a_fork_ends_with_the_last_of_what_it_showed(
        self, backend: Backend, store: Store
    ) -> None:
        word = "zyqsecret"
        append(store, "a", "from ann", user="ann")
        append(store, "b", "from bob", user="bob")
        append(store, "b", "from ann", user="ann")
        store.commit(
            Batch(
                [
                    *(Fork(f"{word}-{n}", "a") for n in range(3)),
                    Fork(f"{word}-early", "a", 0),
                    Append(f"{word}-1", "from ann", user="ann"),
                    Fork("of bob too", "b"),
                    Fork("before both", "b", 0),
                    Append(f"{word}-2", "from bob", user="bob"),
                ]
            )
        )
        store.commit(Batch([Fork(f"{word}-of-fork", f"{word}-1"), Drop(f"{word}-0")]))
        store.erase(Selector(user="ann"))
        left = store.names("log")
        store.erase(Selector(user="bob", log=f"{word}-2"))
        told = [t.name for change in store.changes() for t in change.touched]

        assert left == ["b", "before both", "of bob too", f"{word}-2"]
        assert store.names("log") == left[:3]
        assert [name for name in told if name and word in name] == []
        assert [name for name, stored in backend.remains() if word.encode() in stored] == []
        assert store.verify()
        assert store.check()

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

    @promise("S9")
    def test_an_erasure_leaves_the_streams_alone_that_it_spares(self, store: Store) -> None:
        append(store, "a", "gone", user="u")
        put(store, "kept", "v1", user="u")
        put(store, "kept", "v2", user="u")
        all_but_one = Selector(user="u", sparing=frozenset({"kept"}))
        receipt = store.erase([all_but_one, Selector(document="kept", last=1)])

        assert receipt.records == 2
        assert store.names("log") == []
        assert [one.erased for one in store.history("kept")] == [True, False]

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
        def options() -> Options:
            ticks = iter(range(1_000, 9_000))
            random = iter(range(10_000))
            return Options(
                clock=lambda: next(ticks),
                entropy=lambda n: b"".join(
                    next(random).to_bytes(16, "big") for _ in range(n // 16)
                ),
            )

        def tell(store: Store) -> bytes:
            append(store, "a", {"n": 1}, 2)
            put(store, "d", [1, 2])
            store.commit(Batch([Fork("b", "a", 1), Append("b", "x", user="u")]))
            store.erase(Selector(user="u"))
            return store.head().digest

        with open_store("memory:", tenant="one", options=options()) as elsewhere:
            assert tell(backend.open("one", options()).store) == tell(elsewhere.store)
        with open_store("memory:", tenant="two", options=options()) as other_tenant:
            assert tell(other_tenant.store) != backend.open("one").store.head().digest

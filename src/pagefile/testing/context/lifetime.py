"""Atomic changes, lifetimes, roots and tables, and the registry as a whole."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pagefile.context.names import log_of
from pagefile.context.registry import ThreadRegistry
from pagefile.context.registry_documents import chain_document
from pagefile.errors import Conflict, Invalid, NotFound
from pagefile.handle import Options
from pagefile.store.batch import Append, Batch, Selector
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.context.registry_ground import Interrupted, RegistryFixtures, at_once, rooted
from pagefile.testing.contract.ground import append

_YEAR_US = 365 * 86_400 * 1_000_000


class LifetimeContract(RegistryFixtures):
    """One truth for all processes, for as long as it is wanted."""

    # Atomic

    def test_threads_R06_a_path_has_one_id_whoever_asks_first(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(8)]
        ids = at_once(8, lambda n: ThreadRegistry(stores[n]).get_or_create("console.agent"))
        roots = at_once(8, lambda n: ThreadRegistry(stores[n]).initialize_root("org"))

        assert len(set(ids)) == len(set(roots)) == 1
        assert len(ThreadRegistry(stores[0]).debug_dump()) == 2

    def test_of_many_answers_exactly_one_is_told(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(8)]
        rooted(stores[0]).register_thread("t", "user", "agent")
        for _ in range(5):
            callee = ThreadRegistry(stores[0]).extend_chain("t", "worker")
            registries = [ThreadRegistry(store) for store in stores]
            told = at_once(8, partial(_answer, registries, callee))

            assert sorted(told, key=str) == [("agent", "t")] + [(None, None)] * 7

    def test_of_many_who_register_one_id_one_conversation_comes(self, backend: Backend) -> None:
        stores = [backend.open().store for _ in range(8)]

        def register(n: int) -> Any:
            registry = ThreadRegistry(stores[n])
            return registry.register_thread("t", "user", "agent"), registry.path("t")

        assert len(set(at_once(8, register))) == 1

    def test_ids_that_are_taken_are_not_given_again(self, store: Store) -> None:
        made = iter(["talk 1", "b", "talk 2", "c", "talk 3"])
        registry = ThreadRegistry(store, new_id=lambda: next(made))
        registry.register_thread("b", "user", "agent")

        assert registry.start_chain("user", "agent") == "c"
        stuck = ThreadRegistry(store, new_id=lambda: "b")
        with pytest.raises(Conflict, match="exists at version 1"):
            stuck.start_chain("user", "agent")

    # Lifetimes

    def test_threads_B13_nothing_expires_while_a_conversation_lasts(self, backend: Backend) -> None:
        now_us = [0]
        store = backend.open(options=Options(clock=lambda: now_us[0])).store
        registry = rooted(store)
        callee = registry.extend_chain(registry.register_thread("t", "user", "agent"), "worker")
        before = registry.debug_dump()
        now_us[0] = 10 * _YEAR_US
        append(store, "elsewhere", 1)

        assert registry.debug_dump() == before
        assert registry.prune_for_response(callee) == ("agent", "t")
        assert registry.root_chain == "system.org"

    def test_threads_B15_releasing_a_stale_id_spares_the_new_owner(self, store: Store) -> None:
        registry = ThreadRegistry(store)
        stale = registry.get_or_create("console.agent")
        owners: list[str] = []

        def take_over() -> None:
            registry.cleanup(stale)
            owners.append(registry.get_or_create("console.agent"))

        ThreadRegistry(Interrupted(store, take_over)).cleanup(stale)
        registry.cleanup(stale)

        assert registry.get_or_create("console.agent") == owners[0] != stale
        assert registry.debug_dump() == {owners[0]: "console.agent"}

    def test_threads_B15_an_id_that_is_used_again_meanwhile_keeps_its_new_conversation(
        self, store: Store
    ) -> None:
        registry = rooted(store)

        def used_again() -> ThreadRegistry:
            """A registry whose next change finds that `t` was answered and registered anew."""
            registry.register_thread("t", "user", "agent")
            return ThreadRegistry(Interrupted(store, take_over))

        def take_over() -> None:
            registry.prune_for_response("t")
            registry.register_thread("t", "user", "agent")

        assert used_again().prune_for_response("t") == (None, None)
        used_again().cleanup("t")
        with pytest.raises(NotFound):
            used_again().extend_chain("t", "worker")
        assert registry.prune_for_response("t") == ("user", None)

    def test_threads_B15_a_pointer_is_let_go_only_by_its_own_thread(self, store: Store) -> None:
        registry = ThreadRegistry(store)
        stale = registry.get_or_create("console.agent")
        store.erase(Selector(document=chain_document(("console", "agent"))))
        owner = registry.get_or_create("console.agent")
        registry.cleanup(stale)

        assert registry.get_or_create("console.agent") == owner != stale

    def test_an_answer_finds_out_that_its_caller_is_released_meanwhile(self, store: Store) -> None:
        registry = rooted(store)
        callee = registry.extend_chain(registry.register_thread("t", "user", "agent"), "worker")
        late = ThreadRegistry(Interrupted(store, lambda: registry.cleanup("t")))

        assert late.prune_for_response(callee) == (None, None)

    def test_a_root_that_comes_meanwhile_is_seen(self, store: Store) -> None:
        registry = ThreadRegistry(store)

        def late() -> ThreadRegistry:
            registry.clear()
            return ThreadRegistry(Interrupted(store, lambda: registry.initialize_root("org")))

        late().register_thread("t", "user", "agent")
        assert registry.lookup("t") == "system.org.user.agent"
        given = late().get_or_create("system.org.user")
        assert registry.get_table_for_thread(given) is None
        with pytest.raises(Invalid, match=r"system\.org already"):
            late().initialize_root("other")

    def test_a_root_takes_over_a_path_that_is_made_meanwhile(self, store: Store) -> None:
        registry = ThreadRegistry(store)
        early: list[str] = []
        make = Interrupted(store, lambda: early.append(registry.get_or_create("system.org")))

        assert ThreadRegistry(make).initialize_root("org") == early[0] == registry.root_uuid

    def test_a_user_that_is_erased_is_forgotten_here_too(
        self, registry: ThreadRegistry, store: Store
    ) -> None:
        registry.register_thread("hers", "ann", "agent", user_id="ann")
        started = registry.start_chain("ann", "agent", user_id="ann")
        callees = [registry.extend_chain(thread, "worker") for thread in ("hers", started)]
        registry.register_thread("his", "bob", "agent", user_id="bob")
        store.erase(Selector(user="ann"))

        assert [registry.path(t) for t in ("hers", started, *callees)] == [None] * 4
        assert registry.lookup("his") == "system.org.bob.agent"
        assert registry.register_thread("hers", "ann", "agent") == "hers"

    def test_what_was_erased_by_its_name_can_be_made_anew(self, store: Store) -> None:
        registry = rooted(store)
        thread = registry.get_or_create("console.agent")
        store.erase(Selector(document=f"path/{thread}"))

        assert registry.lookup(thread) is None
        anew = registry.get_or_create("console.agent")
        assert (anew != thread, registry.lookup(anew)) == (True, "console.agent")

    # Roots and tables

    def test_threads_R08_the_root_has_one_name(self, backend: Backend) -> None:
        registry, other = (ThreadRegistry(backend.open().store) for _ in range(2))
        assert (registry.root_uuid, registry.root_chain) == (None, "system")
        root = registry.initialize_root("my.org")

        assert other.initialize_root("my.org") == root == other.root_uuid
        assert other.root_chain == r"system.my\.org"
        with pytest.raises(Invalid, match=r"root is system.my\\.org already: use that name") as no:
            other.initialize_root("other")
        assert no.value.field == "organism_name"
        assert registry.root_uuid == root

    def test_a_path_made_by_the_names_of_the_root_is_the_root(self, store: Store) -> None:
        registry = ThreadRegistry(store)
        early = registry.get_or_create("system.org")

        assert registry.initialize_root("org") == early == registry.get_or_create("system.org")

    def test_threads_R09_tables_are_seen_by_all_and_fail_closed(self, backend: Backend) -> None:
        registry, other = (ThreadRegistry(backend.open().store) for _ in range(2))
        registry.initialize_root("org")
        root = registry.initialize_table_root("guests", "org")
        tabled = registry.extend_chain(registry.extend_chain(root, "agent"), "worker")
        registered = registry.register_thread("g", "eve", "agent", table="guests")
        registry.register_thread("t", "user", "agent")
        rootless = registry.start_chain("guests", "org")

        assert other.get_table_root("guests") == root != other.root_uuid
        assert [other.get_table_for_thread(t) for t in (root, tabled, registered)] == ["guests"] * 3
        assert other.get_table_for_thread("t") is None
        for unsure in ("nobody", rootless, other.get_or_create("guests")):
            with pytest.raises(NotFound):
                other.get_table_for_thread(unsure)

    def test_a_table_has_one_root(self, registry: ThreadRegistry) -> None:
        root = registry.initialize_table_root("guests", "org")

        assert registry.initialize_table_root("guests", "org") == root
        assert registry.get_table_root("members") is None
        for refused in (("guests", "other"), ("system", "org")):
            with pytest.raises(Invalid):
                registry.initialize_table_root(*refused)
        with pytest.raises(NotFound, match="table 'members' has no root: initialize_table_root"):
            registry.register_thread("t", "user", "agent", table="members")
        assert registry.lookup("t") is None

    def test_a_root_is_not_released_alone(self, registry: ThreadRegistry) -> None:
        root = registry.initialize_root("org")
        with pytest.raises(Invalid, match=r"is the root system\.org"):
            registry.cleanup(root)

        assert registry.lookup(root) == "system.org"

    # Whole

    @pytest.mark.parametrize("ends_logs", [True, False])
    def test_clear_leaves_nothing_of_it_and_all_of_the_rest(
        self, store: Store, ends_logs: bool
    ) -> None:
        registry = rooted(store, on_release="delete" if ends_logs else "keep")
        registry.initialize_table_root("guests", "org")
        registry.get_or_create("console.agent")
        store.commit(Batch([Append(log_of("t7"), 1), Append("else", 1)]))
        for n in range(120):
            registry.register_thread(f"t{n}", "user", "agent", user_id="ann")
        registry.clear()
        registry.clear()

        assert (registry.debug_dump(), store.stats().documents) == ({}, 0)
        assert (registry.root_uuid, registry.root_chain) == (None, "system")
        assert registry.get_table_root("guests") is None
        assert store.names("log") == ["else", *([] if ends_logs else [log_of("t7")])]
        assert registry.initialize_root("another")

    def test_the_dump_shows_every_id(self, registry: ThreadRegistry) -> None:
        ids = {registry.start_chain("user", "agent") for _ in range(250)}

        assert set(registry.debug_dump()) == {*ids, registry.root_uuid}

    def test_a_reopened_store_goes_on(self, registry: ThreadRegistry, backend: Backend) -> None:
        callee = registry.extend_chain(registry.register_thread("t", "user", "agent"), "worker")
        later = ThreadRegistry(backend.open())

        assert later.path(callee) == registry.path(callee)
        assert later.prune_for_response(callee) == ("agent", "t")


def _answer(registries: list[ThreadRegistry], callee: str, n: int) -> Any:
    return registries[n].prune_for_response(callee)

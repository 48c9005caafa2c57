"""The contract of a thread registry, for any engine's store.

class TestMyEngine(RegistryContract):
    @pytest.fixture
    def place(self, tmp_path):
        return FileBackend(f"myengine://{tmp_path}/data")
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pagefile.context.names import log_of
from pagefile.context.path import MOST_NAMES
from pagefile.context.registry import ThreadRegistry
from pagefile.context.registry_documents import chain_document
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound
from pagefile.handle import Options
from pagefile.store.batch import Append, Batch, Selector
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.contract.fixtures import ContractFixtures, append


class RegistryFixtures(ContractFixtures):
    """A registry on the engine's store, with a root."""

    @pytest.fixture
    def registry(self, store: Store) -> ThreadRegistry:
        return rooted(store)


def rooted(store: Store, **options: Any) -> ThreadRegistry:
    """A registry whose root is `system.org`."""
    registry = ThreadRegistry(store, **options)
    registry.initialize_root("org")
    return registry


class Interrupted(Store):
    """A store in which somebody else acts just before the first commit that comes."""

    def __init__(self, store: Store, action: Callable[[], Any]) -> None:
        vars(self).update(vars(store))
        self._action: Callable[[], Any] | None = action

    def commit(self, batch: Any) -> Any:
        action, self._action = self._action, None
        if action is not None:
            action()
        return super().commit(batch)


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What `act` returned for 0 … count-1, each in a thread of its own, all let go together."""
    results: list[Any] = [None] * count
    gate = threading.Barrier(count)

    def run(n: int) -> None:
        gate.wait()
        try:
            results[n] = act(n)
        except Exception as error:  # noqa: BLE001 - shown by the assertion that follows
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class ActivationContract(RegistryFixtures):
    """Conversations never share a thread, and end."""

    # Names and ids

    def test_threads_R01_names_with_dots_come_back_whole(self, registry: ThreadRegistry) -> None:
        thread = registry.register_thread("t", "john.doe", "calculator.add")
        callee = registry.extend_chain(thread, "system.todo")

        assert registry.lookup(callee) == r"system.org.john\.doe.calculator\.add.system\.todo"
        assert registry.prune_for_response(callee) == ("calculator.add", "t")
        assert registry.prune_for_response(thread) == ("john.doe", None)

    def test_text_and_names_give_the_same_id(self, registry: ThreadRegistry) -> None:
        thread = registry.get_or_create(r"console.calculator\.add")

        assert registry.get_or_create(("console", "calculator.add")) == thread
        assert registry.get_or_create("console.calculator.add") != thread

    @pytest.mark.parametrize(
        "given",
        [str(uuid.uuid1(0, 0)), "018f-v7", "telegram:4711", "Sitzung Nr. 5 ünï", "x" * 505, "a/b"],
        ids=["v1", "v7", "foreign", "words", "longest", "slash"],
    )
    def test_threads_R10_any_id_is_taken_as_it_is(
        self, registry: ThreadRegistry, given: str
    ) -> None:
        assert registry.register_thread(given, "user", "agent") == given
        assert registry.lookup(given) == "system.org.user.agent"

    # Conversations and activations

    def test_threads_R02_a_second_conversation_between_the_same_two_is_its_own(
        self, registry: ThreadRegistry
    ) -> None:
        threads = [registry.register_thread(f"t{n}", "user", "agent") for n in range(3)]
        callees = [registry.extend_chain(thread, "worker") for thread in threads]
        paths = [registry.path(callee) for callee in callees]

        assert threads == ["t0", "t1", "t2"]
        assert len(set(callees)) == len({path and path.conversation for path in paths}) == 3
        assert [registry.prune_for_response(c) for c in callees] == [("agent", t) for t in threads]
        assert [registry.prune_for_response(t) for t in threads] == [("user", None)] * 3

    def test_threads_R03_each_injection_gets_a_fresh_thread(self, registry: ThreadRegistry) -> None:
        root = registry.root_uuid
        assert root is not None
        injected = [registry.extend_chain(root, "agent") for _ in range(3)]
        injected += [registry.start_chain("user", "agent") for _ in range(3)]
        conversations = {path.conversation for t in injected if (path := registry.path(t))}

        assert len(set(injected)) == len(conversations) == 6
        assert None not in conversations

    def test_threads_R04_an_answer_frees_what_was_called(
        self, registry: ThreadRegistry, store: Store
    ) -> None:
        before = registry.debug_dump(), store.stats().documents
        for n in range(5):
            thread = registry.register_thread(f"t{n}", "user", "agent")
            callee = registry.extend_chain(thread, "worker")
            registry.prune_for_response(callee)
            registry.prune_for_response(thread)

        assert (registry.debug_dump(), store.stats().documents) == before

    def test_threads_R04_a_released_thread_ends_with_its_log_in_one_commit(
        self, store: Store
    ) -> None:
        registry = rooted(store, on_release="delete")
        thread = registry.register_thread("t", "user", "agent")
        callee = registry.extend_chain(thread, "worker")
        append(store, log_of(thread), "asked")
        append(store, log_of(callee), "worked")
        before = store.head().position
        registry.prune_for_response(callee)

        assert store.head().position == before + 1
        assert store.names("log") == [log_of(thread)]

    @pytest.mark.parametrize("has_log", [True, False])
    def test_a_log_that_changes_during_the_release_is_ended_all_the_same(
        self, store: Store, has_log: bool
    ) -> None:
        thread = rooted(store).register_thread("t", "user", "agent")
        if has_log:
            append(store, log_of(thread), 1)
        late = Interrupted(store, lambda: append(store, log_of(thread), 2))
        ThreadRegistry(late, on_release="delete").cleanup(thread)

        assert store.names("log") == []

    def test_a_log_that_somebody_else_dropped_is_no_obstacle(self, store: Store) -> None:
        thread = rooted(store).register_thread("t", "user", "agent")
        append(store, log_of(thread), 1)
        others = ThreadRegistry(store, on_release="delete")
        late = Interrupted(store, lambda: others.cleanup(thread))

        assert ThreadRegistry(late, on_release="delete").prune_for_response(thread) == (None, None)

    def test_logs_stay_unless_asked_otherwise(self, registry: ThreadRegistry, store: Store) -> None:
        thread = registry.register_thread("t", "user", "agent")
        append(store, log_of(thread), "asked")
        registry.cleanup(thread)

        assert store.names("log") == [log_of(thread)]

    def test_threads_R05_answers_never_climb_into_the_root(self, registry: ThreadRegistry) -> None:
        root = registry.root_uuid
        assert root is not None
        given = registry.get_or_create("system.org.user.agent")
        target, shorter = registry.prune_for_response(given)
        assert (target, shorter and registry.lookup(shorter)) == ("user", "system.org.user")
        tops = [str(shorter), registry.extend_chain(root, "agent"), root]

        assert [registry.prune_for_response(top) for top in tops] == [(None, None)] * 3
        assert registry.debug_dump() == {root: "system.org"}

    def test_a_path_made_by_names_is_answered_name_by_name(self, store: Store) -> None:
        registry = ThreadRegistry(store)
        above = registry.get_or_create("console.router")
        thread = registry.get_or_create("console.router.greeter")

        assert registry.prune_for_response(thread) == ("router", above)
        target, console = registry.prune_for_response(above)
        assert (target, registry.debug_dump()) == ("console", {console: "console"})
        assert registry.prune_for_response(str(console)) == (None, None)
        assert registry.debug_dump() == {}

    def test_threads_R07_calling_from_an_unknown_thread_is_an_error(
        self, registry: ThreadRegistry
    ) -> None:
        before = registry.debug_dump()
        with pytest.raises(NotFound, match="'nobody' is not registered: register_thread it first"):
            registry.extend_chain("nobody", "worker")

        assert registry.debug_dump() == before

    def test_threads_R11_each_call_has_an_activation_of_its_own(
        self, registry: ThreadRegistry
    ) -> None:
        thread = registry.register_thread("t", "user", "agent")
        one, two = (registry.extend_chain(thread, "worker") for _ in range(2))
        inner = registry.extend_chain(two, "worker")

        assert len({one, two, inner}) == 3
        assert registry.prune_for_response(inner) == ("worker", two)
        assert registry.prune_for_response(one) == ("agent", "t")
        assert registry.prune_for_response(two) == ("agent", "t")

    def test_a_known_id_stays_where_it_is(self, registry: ThreadRegistry) -> None:
        registry.register_thread("t", "user", "agent")
        before = registry.path("t")

        assert registry.register_thread("t", "someone", "else") == "t"
        assert registry.path("t") == before

    def test_who_answers_late_is_told_nothing(self, registry: ThreadRegistry) -> None:
        thread = registry.register_thread("t", "user", "agent")
        callee = registry.extend_chain(thread, "worker")

        assert registry.prune_for_response(callee) == ("agent", "t")
        assert registry.prune_for_response(callee) == (None, None)
        assert registry.prune_for_response("unheard of") == (None, None)

    def test_an_answer_to_a_released_caller_goes_to_nobody(self, registry: ThreadRegistry) -> None:
        thread = registry.register_thread("t", "user", "agent")
        callee = registry.extend_chain(thread, "worker")
        registry.cleanup(thread)

        assert registry.lookup(callee) == "system.org.user.agent.worker"
        assert registry.prune_for_response(callee) == (None, None)
        assert registry.lookup(callee) is None

    def test_an_id_that_is_used_again_gets_no_answer_meant_for_its_past(
        self, registry: ThreadRegistry
    ) -> None:
        callee = registry.extend_chain(registry.register_thread("t", "user", "agent"), "worker")
        registry.prune_for_response("t")
        registry.register_thread("t", "user", "agent")

        assert registry.prune_for_response(callee) == (None, None)

    def test_no_call_is_made_from_a_thread_that_is_released_meanwhile(self, store: Store) -> None:
        registry = rooted(store)
        thread = registry.register_thread("t", "user", "agent")
        late = ThreadRegistry(Interrupted(store, lambda: registry.cleanup(thread)))
        before = store.head().position
        with pytest.raises(NotFound):
            late.extend_chain(thread, "worker")

        assert store.head().position == before + 1

    def test_a_caller_that_calls_itself_for_ever_is_stopped(self, store: Store) -> None:
        registry = ThreadRegistry(store)
        deep = registry.get_or_create(["loop"] * MOST_NAMES)
        with pytest.raises(LimitExceeded) as caught:
            registry.extend_chain(deep, "loop")

        assert (caught.value.limit, caught.value.wanted) == (1_000, 1_001)


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


class RegistryContract(ActivationContract, LifetimeContract):
    """All of it: what an engine's test class derives from."""

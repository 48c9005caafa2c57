"""Names, conversations, one activation per call, and who is answered."""

from __future__ import annotations

import uuid

import pytest

from pagefile.context.names import log_of
from pagefile.context.path import MOST_NAMES
from pagefile.context.registry import ThreadRegistry
from pagefile.errors import LimitExceeded, NotFound
from pagefile.store.store import Store
from pagefile.testing.context.registry_ground import Interrupted, RegistryFixtures, rooted
from pagefile.testing.contract.ground import append


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

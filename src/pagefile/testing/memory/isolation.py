"""Isolation: nobody sees, counts, ranks or touches what is another's."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from pagefile.aio.memory import AsyncMemory
from pagefile.errors import NotFound, PagefileError
from pagefile.handle import Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.facts.graph import StoredGraph
from pagefile.memory.facts.proposal import ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.isolation import IsolationWarning
from pagefile.store.batch import Append, Batch, Put
from pagefile.testing.backend import Backend
from pagefile.testing.memory.fixtures import (
    HashedWords,
    MemoryFixtures,
    Scripted,
    episode,
    export_lines,
    fact,
    inputs,
    likes,
    objects,
    outcome,
    say,
)

#: Every call that takes a `user_id`, without one.
_ANONYMOUS: dict[str, Callable[[Memory], Any]] = {
    "working": lambda m: m.working(),
    "block": lambda m: m.block("b"),
    "update_block": lambda m: m.update_block("b", "x"),
    "append_block": lambda m: m.append_block("b", "x"),
    "delete_block": lambda m: m.delete_block("b"),
    "block_history": lambda m: m.block_history("b"),
    "episode": lambda m: m.episode("e"),
    "session_messages": lambda m: m.session_messages("s"),
    "recall": lambda m: m.recall("x"),
    "recall_scored": lambda m: m.recall_scored("x"),
    "recall_facts": lambda m: m.recall_facts("x"),
    "recall_facts_scored": lambda m: m.recall_facts_scored("x"),
    "search": lambda m: m.search("x"),
    "duplicates": lambda m: m.duplicates(),
    "why": lambda m: m.why("e"),
    "profile": lambda m: m.profile(),
    "vector_status": lambda m: m.vector_status(),
    "export": lambda m: m.export(),
    "snapshot": lambda m: m.snapshot(),
    "forget": lambda m: m.forget(),
    "proposals.waiting": lambda m: m.proposals.waiting(),
    "proposals.commit": lambda m: m.proposals.commit("f", reviewer="r"),
    "proposals.reject": lambda m: m.proposals.reject("f", reviewer="r"),
    "facts.alias": lambda m: m.facts.alias("Bob", "Robert"),
    "facts.aliases": lambda m: m.facts.aliases(),
    "facts.append": lambda m: m.facts.append(fact("tea", None)),
    "facts.append_many": lambda m: m.facts.append_many([fact("tea", None)]),
    "facts.assertion": lambda m: m.facts.assertion("f"),
    "facts.assertions": lambda m: m.facts.assertions(),
    "facts.count": lambda m: m.facts.count(),
    "facts.count_holding": lambda m: m.facts.count_holding(),
    "facts.delete": lambda m: m.facts.delete(),
    "facts.derived_from": lambda m: m.facts.derived_from(["e"]),
    "facts.documents_of": lambda m: m.facts.documents_of(["f"]),
    "facts.export": lambda m: list(m.facts.export()),
    "facts.history": lambda m: m.facts.history("a", "likes"),
    "facts.holding": lambda m: m.facts.holding(["f"]),
    "facts.overview": lambda m: m.facts.overview(),
    "facts.plan_retraction": lambda m: m.facts.plan_retraction("f"),
    "facts.query": lambda m: m.facts.query(),
    "facts.recall_text": lambda m: m.facts.recall_text("tea"),
    "facts.restore": lambda m: m.facts.restore([]),
    "facts.retract": lambda m: m.facts.retract("f"),
    "facts.unalias": lambda m: m.facts.unalias("Bob"),
    "facts.why": lambda m: m.facts.why("f"),
    "graph.neighbors": lambda m: m.graph.neighbors("Bob"),
    "graph.paths": lambda m: m.graph.paths("Bob"),
    "graph.recall": lambda m: m.graph.recall("Bob"),
}

#: Names that a pattern, a separator, a case or a normal form could confuse.
_ALIKE = ["ann", "Ann", "ANN", "ann ", " ann", "a,b", "a", "b", "*", "a*", "te[am", "?", "%", "_"]
_ALIKE += ["a/b", "a:b", "anon", "None", "null", "__anon__", "é", "e\u0301", "ß", "ss", "x" * 500]


def everything(memory: Memory, user: str | None) -> list[Any]:
    """All that can be seen of a user."""
    return [
        memory.working(user_id=user),
        memory.recall("", limit=100, user_id=user),
        [(m.episode, m.score) for m in memory.recall_scored("tea town plans", user_id=user)],
        [(m.fact, m.score) for m in memory.recall_facts_scored("town tea", user_id=user)],
        memory.session_messages("s", user_id=user),
        [(m.kind, m.id, m.score) for m in memory.search("tea town plans", user_id=user)],
        memory.duplicates(user_id=user),
        memory.profile(user_id=user),
        memory.snapshot(user_id=user),
        memory.proposals.waiting(user_id=user),
        export_lines(memory, user),
    ]


def fill(memory: Memory, user: str | None, word: str) -> None:
    """A little of everything."""
    say(memory, f"{word} likes tea", f"plans of {word} for the town", user=user)
    memory.update_block("persona", word, user_id=user)
    memory.facts.append(fact(f"{word} town", user))
    unsure = Scripted(lambda one: likes(one, 0.3))
    memory._extractor = unsure
    memory.consolidate()


class IsolationContract(MemoryFixtures):
    """Partitions by user, and tenants above them."""

    def test_what_a_user_sees_does_not_depend_on_others(
        self, backend: Backend, memory: Memory
    ) -> None:
        """Not what is found, and not how it is scored: other users' words do not count."""
        fill(memory, "ann", "ann")
        before = everything(memory, "ann")
        for n in range(5):
            fill(memory, f"u{n}", f"tea town plans {n}")
        memory.forget(user_id="u1")
        memory.delete_block("persona", user_id="u2")

        assert everything(memory, "ann") == before
        assert everything(Memory(backend.open(), embedder=None), "ann") == before

    @pytest.mark.filterwarnings("ignore::pagefile.memory.privacy.isolation.IsolationWarning")
    def test_nobody_is_a_bucket_of_its_own_and_never_all(self, memory: Memory) -> None:
        fill(memory, "ann", "ann")
        fill(memory, None, "nobody")

        assert inputs(memory.recall("tea", limit=1)) == ["nobody likes tea"]
        assert objects(memory.recall_facts("town")) == ["nobody town"]
        assert memory.profile().episode_count == 2
        assert {one.user_id for one in memory.export().episodes} == {None}
        before = everything(memory, "ann")
        memory.forget()
        assert (memory.profile().episode_count, everything(memory, "ann")) == (0, before)
        assert memory.users() == ["ann"]

    def test_memory_I2_a_tenant_shares_nothing_with_another(self, backend: Backend) -> None:
        one, other = (Memory(backend.open(name), embedder=None) for name in ("one", "two"))
        fill(one, "ann", "first")
        fill(other, "ann", "second")
        before = everything(one, "ann")
        told = objects(other.recall_facts("town", user_id="ann"))
        other.forget(user_id="ann")

        assert told == ["second town"]
        assert everything(one, "ann") == before
        assert other.users() == []

    def test_memory_I3_a_tenant_that_looks_like_a_pattern_matches_only_itself(
        self, backend: Backend
    ) -> None:
        names = ["*", "te[am", "te", "%", "default/", "a:b"]
        memories = [Memory(backend.open(name), embedder=None) for name in names]
        for name, memory in zip(names, memories, strict=True):
            say(memory, f"secret of {name!r}")

        assert [inputs(memory.recall("secret", user_id="ann")) for memory in memories] == [
            [f"secret of {name!r}"] for name in names
        ]

    def test_memory_I4_the_empty_name_is_nobodys_and_refused_everywhere(
        self, memory: Memory
    ) -> None:
        told = [
            outcome(memory.recall, "x", user_id=""),
            outcome(memory.update_block, "b", "x", user_id=""),
            outcome(episode, "x", ""),
            outcome(memory.forget, user_id=""),
        ]

        assert told == ["Invalid"] * 4

    def test_memory_I5_a_block_belongs_to_who_it_was_written_for(self, memory: Memory) -> None:
        memory.append_block("lessons", "of ann", user_id="ann")
        memory.append_block("lessons", "of bob", user_id="bob")
        with pytest.warns(IsolationWarning):
            nobodys = memory.working()

        assert [memory.block("lessons", user_id=user).content for user in ("ann", "bob")] == [
            "of ann",
            "of bob",
        ]
        assert nobodys == []

    def test_memory_I7_every_call_that_reads_or_writes_can_say_for_whom(self) -> None:
        """All but those that go over the whole tenant, or take records that say it themselves."""
        of_all = {"remember", "remember_many", "consolidate", "import_", "reindex", "users"}
        of_all |= {"sync_vectors", "vectors_followed"}
        calls = {
            name
            for name, call in inspect.getmembers(Memory, inspect.isfunction)
            if not name.startswith("_") and not name.endswith("_async") and name != "close"
        }
        saying = {
            name
            for name in calls
            if "user_id" in inspect.signature(getattr(Memory, name)).parameters
        }

        assert calls - saying == of_all
        assert saying <= set(_ANONYMOUS)

    @pytest.mark.parametrize("call", _ANONYMOUS)
    def test_memory_I8_a_call_for_nobody_warns_where_somebody_is(
        self, memory: Memory, call: str
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quiet = outcome(_ANONYMOUS[call], memory)
        say(memory, "hello", user="ann")
        told = []
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                outcome(_ANONYMOUS[call], memory)
            told.append([(each.category, each.filename) for each in caught])

        assert not quiet.startswith("raw")
        assert told == [[(IsolationWarning, __file__)]] * 2

    def test_memory_I8_an_awaited_call_for_nobody_warns_the_line_that_awaits_it(
        self, memory: Memory
    ) -> None:
        say(memory, "hello", user="ann")
        awaited = AsyncMemory(memory)
        calls: dict[str, Callable[[Any], Any]] = {
            **_ANONYMOUS,
            "facts.export": lambda m: m.facts.export(),
            "remember": lambda m: m.remember(episode("x", None)),
            "remember_many": lambda m: m.remember_many([episode("x", None)]),
        }

        async def told(call: Callable[[Any], Any]) -> list[tuple[type, str, bool]]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                line = inspect.getlineno(inspect.currentframe()) + 2  # type: ignore[arg-type]
                with suppress(PagefileError):
                    await call(awaited)
            return [(each.category, each.filename, each.lineno == line) for each in caught]

        async def all_told() -> dict[str, list[tuple[type, str, bool]]]:
            return {name: await told(call) for name, call in calls.items()}

        assert asyncio.run(all_told()) == {
            name: [(IsolationWarning, __file__, True)] for name in calls
        }

    def test_the_warning_ends_when_the_last_named_user_is_forgotten(self, memory: Memory) -> None:
        memory.update_block("b", "x", user_id="ann")
        with pytest.warns(IsolationWarning):
            memory.working()
        memory.forget(user_id="ann")

        assert memory.working() == []

    def test_the_warning_can_be_made_an_error_and_then_nothing_happens(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "hello", user="ann")
        head = handle.store.head()
        with warnings.catch_warnings():
            warnings.simplefilter("error", IsolationWarning)
            for call in ("update_block", "append_block", "forget", "recall"):
                with pytest.raises(IsolationWarning):
                    _ANONYMOUS[call](memory)

        assert handle.store.head() == head

    @pytest.mark.parametrize(
        ("part", "cls"),
        [("proposals", ProposedFacts), ("facts", FactStore), ("graph", StoredGraph)],
    )
    def test_every_call_on_a_part_for_a_user_is_among_those_that_warn(
        self, part: str, cls: type
    ) -> None:
        parameters = {
            f"{part}.{name}": inspect.signature(call).parameters.get("user_id")
            for name, call in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }
        saying = {name for name, one in parameters.items() if one and one.kind is one.KEYWORD_ONLY}

        assert saying <= set(_ANONYMOUS)

    def test_memory_I9_users_with_names_like_each_other_are_apart(self, memory: Memory) -> None:
        for n, user in enumerate(_ALIKE):
            say(memory, f"secret number {n}", user=user)
            memory.update_block("b", f"block {n}", user_id=user)
            memory.facts.append(fact(f"place {n}", user))

        assert [inputs(memory.recall("secret", limit=50, user_id=user)) for user in _ALIKE] == [
            [f"secret number {n}"] for n in range(len(_ALIKE))
        ]
        assert [objects(memory.recall_facts("place", limit=50, user_id=u)) for u in _ALIKE] == [
            [f"place {n}"] for n in range(len(_ALIKE))
        ]
        assert memory.users() == sorted(_ALIKE)

    def test_memory_I9_forgetting_one_of_them_leaves_the_others(self, memory: Memory) -> None:
        for user in _ALIKE:
            say(memory, "secret", user=user)
        for gone in ("ann", "*", "a", "anon", "é"):
            memory.forget(user_id=gone)
        left = [user for user in _ALIKE if user not in ("ann", "*", "a", "anon", "é")]

        assert memory.users() == sorted(left)
        assert [len(memory.recall("secret", user_id=user)) for user in left] == [1] * len(left)

    @pytest.mark.filterwarnings("ignore::pagefile.memory.privacy.isolation.IsolationWarning")
    def test_memory_I10_runs_and_threads_are_known_by_their_user_and_nobodys_too(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        for user in ("ann", None):
            handle.context.append("t", f"slot of {user}", "a", "b", user_id=user)
            handle.runs.boot(f"goal of {user}", ["done"], [], user_id=user)
            say(memory, f"episode of {user}", user=user)
        anns = b"".join(export_lines(memory, "ann"))
        nobodys = b"".join(export_lines(memory, None))

        assert [word in anns for word in (b"slot of ann", b"goal of ann", b"episode of ann")] == (
            [True] * 3
        )
        assert (b"None" in anns, b"ann" in nobodys.replace(b"/anon/", b"")) == (False, False)
        assert b"episode of None" in nobodys

    def test_an_entry_in_ones_own_index_cannot_show_what_is_anothers(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        """A name is not a right: what a search names is given only to whose it is."""
        (name,) = say(memory, "secret of bob", user="bob")
        say(memory, "nothing much", user="ann")
        target = f"memory/episode/{owner_key('bob')}/{name}"
        log = f"recall/1/{owner_key('ann')}"
        entry = {"key": target, "kind": "episode", "text": "secret bob", "heard": 3}
        handle.store.commit(Batch([Append(log, entry, user="ann", kind="recall")]))

        assert inputs(memory.recall("secret bob", user_id="ann")) == []
        assert inputs(memory.recall("secret", user_id="bob")) == ["secret of bob"]

    def test_what_others_wrote_under_a_name_of_memorys_is_not_taken_for_an_episode(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        name = f"memory/episode/{owner_key('ann')}/e"
        handle.store.commit(Batch([Put(name, {"no": "episode"}, user="ann")]))

        assert outcome(memory.episode, "e", user_id="ann") == "Corrupt"

    def test_vectors_of_others_do_not_count_either(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=HashedWords())
        say(memory, "ann walks the dog", "ann feeds the cat", user="ann")
        before = [(m.episode.id, m.score) for m in memory.recall_scored("dog", user_id="ann")]
        for n in range(5):
            say(memory, "dog dog dog", user=f"u{n}")

        assert [(m.episode.id, m.score) for m in memory.recall_scored("dog", user_id="ann")] == (
            before
        )

    def test_what_is_not_there_and_what_is_anothers_look_the_same(self, memory: Memory) -> None:
        memory.remember(episode("bob's", "bob", id="e"))
        told = []
        for name in ("e", "f"):
            with pytest.raises(NotFound) as caught:
                memory.episode(name, user_id="ann")
            told.append(str(caught.value).replace(repr(name), "…"))

        assert told[0] == told[1]

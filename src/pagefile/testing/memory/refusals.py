"""Bad input: a typed error, and everything as before."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from pagefile.errors import PagefileError
from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy
from pagefile.memory.consolidation.worker import ConsolidationWorker
from pagefile.memory.episodes.episode import Episode, Message, Role, ToolCall
from pagefile.memory.memory import Memory
from pagefile.testing.memory.fixtures import START, MemoryFixtures, episode, fact, outcome, say


class _NoOffset(tzinfo):
    """A time zone that does not know its own offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None


_EARLY = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
_LATE = datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))
NO_USERS: list[Any] = [
    "",
    5,
    b"u",
    [],
    True,
    1.5,
    "\ud800",
    "u" * 513,
    "é" * 300,
    "a\x00b",
    "a\nb",
]
_NO_IDS: list[Any] = [None, "", 5, b"i", [], "x" * 129, "a/b", "a b", "\ud800", "a\x00", "é"]
_NO_TEXTS: list[Any] = [None, 5, b"t", ["t"], True, "\ud800", "x\udfff"]
_NO_NAMES: list[Any] = [None, 5, b"n", "", "x" * 129, "\ud800", "a\x00b", "a\nb"]
_NO_COUNTS: list[Any] = [None, -1, -(10**30), 10**30, 1.0, "1", True, math.nan]
_NO_MOMENTS: list[Any] = [5, "now", math.nan, datetime(2026, 1, 1), START.date()]
_NO_MOMENTS += [_EARLY, _LATE, datetime(2026, 1, 1, tzinfo=_NoOffset())]
_NO_FLAGS: list[Any] = [None, 1, 0, "yes", []]
_NO_CALLS: list[Any] = [5, "call", []]

#: Where a value goes, by the name of the method and of the parameter, and what it must not be.
CALLS: dict[str, tuple[Callable[[Memory, Any], Any], list[Any]]] = {
    "block.name": (lambda m, v: m.block(v, user_id="ann"), _NO_NAMES),
    "update_block.name": (lambda m, v: m.update_block(v, "x", user_id="ann"), _NO_NAMES),
    "update_block.content": (lambda m, v: m.update_block("b", v, user_id="ann"), _NO_TEXTS),
    "update_block.expected_version": (
        lambda m, v: m.update_block("b", "x", user_id="ann", expected_version=v),
        _NO_COUNTS[1:],
    ),
    "append_block.name": (lambda m, v: m.append_block(v, "x", user_id="ann"), _NO_NAMES),
    "append_block.content": (lambda m, v: m.append_block("b", v, user_id="ann"), _NO_TEXTS),
    "append_block.expected_version": (
        lambda m, v: m.append_block("b", "x", user_id="ann", expected_version=v),
        _NO_COUNTS[1:],
    ),
    "delete_block.name": (lambda m, v: m.delete_block(v, user_id="ann"), _NO_NAMES),
    "delete_block.expected_version": (
        lambda m, v: m.delete_block("b", user_id="ann", expected_version=v),
        _NO_COUNTS[1:],
    ),
    "block_history.name": (lambda m, v: m.block_history(v, user_id="ann"), _NO_NAMES),
    "block_history.after": (
        lambda m, v: m.block_history("b", user_id="ann", after=v),
        _NO_COUNTS,
    ),
    "block_history.limit": (
        lambda m, v: m.block_history("b", user_id="ann", limit=v),
        _NO_COUNTS,
    ),
    "remember": (lambda m, v: m.remember(v), [None, 5, "text", {}, [], {"input": "x"}, object()]),
    "remember_many": (
        lambda m, v: m.remember_many(v),
        [None, 5, "ab", [5], [None], {}, iter(()), [episode("x", id="i")] * 2],
    ),
    "episode.id": (lambda m, v: m.episode(v, user_id="ann"), _NO_IDS),
    "session_messages.session_id": (
        lambda m, v: m.session_messages(v, user_id="ann"),
        [*_NO_TEXTS, "s" * 513],
    ),
    "session_messages.limit": (
        lambda m, v: m.session_messages("s", user_id="ann", limit=v),
        _NO_COUNTS,
    ),
    "recall.query": (lambda m, v: m.recall(v, user_id="ann"), [*_NO_TEXTS, "x" * 100_001]),
    "recall.kind": (lambda m, v: m.recall("x", kind=v, user_id="ann"), ["semantic", "", None, 5]),
    "recall.limit": (lambda m, v: m.recall("x", limit=v, user_id="ann"), _NO_COUNTS),
    "recall.limit of a blank": (lambda m, v: m.recall("", limit=v, user_id="ann"), _NO_COUNTS),
    "recall.session_id": (
        lambda m, v: m.recall("x", session_id=v, user_id="ann"),
        [*_NO_TEXTS[1:], "s" * 513],
    ),
    "recall.session_id of a blank": (
        lambda m, v: m.recall("", session_id=v, user_id="ann"),
        [*_NO_TEXTS[1:], "s" * 513],
    ),
    "recall.time_range": (
        lambda m, v: m.recall("x", time_range=v, user_id="ann"),
        [5, "ab", (), (START,), [START, START], (START, START - timedelta(1)), (1, 2)],
    ),
    "recall.time_range.from": (
        lambda m, v: m.recall("x", time_range=(v, None), user_id="ann"),
        _NO_MOMENTS,
    ),
    "recall.time_range.until": (
        lambda m, v: m.recall("", time_range=(None, v), user_id="ann"),
        _NO_MOMENTS,
    ),
    "recall_scored.query": (lambda m, v: m.recall_scored(v, user_id="ann"), _NO_TEXTS),
    "recall_scored.limit": (lambda m, v: m.recall_scored("x", limit=v, user_id="ann"), _NO_COUNTS),
    "recall_scored.alpha": (
        lambda m, v: m.recall_scored("x", alpha=v, user_id="ann"),
        [-0.1, 1.1, math.nan, math.inf, "0", True, [], 10**400],
    ),
    "recall_facts.query": (lambda m, v: m.recall_facts(v, user_id="ann"), _NO_TEXTS),
    "recall_facts.limit": (lambda m, v: m.recall_facts("x", limit=v, user_id="ann"), _NO_COUNTS),
    "recall_facts.valid_at": (
        lambda m, v: m.recall_facts("user", valid_at=v, user_id="ann"),
        _NO_MOMENTS,
    ),
    "recall_facts.known_at": (
        lambda m, v: m.recall_facts("user", known_at=v, user_id="ann"),
        _NO_MOMENTS,
    ),
    "recall_facts_scored.query": (lambda m, v: m.recall_facts_scored(v, user_id="ann"), _NO_TEXTS),
    "recall_facts_scored.limit": (
        lambda m, v: m.recall_facts_scored("x", limit=v, user_id="ann"),
        _NO_COUNTS,
    ),
    "search.query": (lambda m, v: m.search(v, user_id="ann"), [*_NO_TEXTS, "x" * 100_001]),
    "search.query of items": (
        lambda m, v: m.search(v, kinds=("item",), user_id="ann"),
        [*_NO_TEXTS, "x" * 100_001],
    ),
    "search.limit": (lambda m, v: m.search("x", limit=v, user_id="ann"), _NO_COUNTS),
    "search.kinds": (
        lambda m, v: m.search("x", kinds=v, user_id="ann"),
        [None, (), 5, "episode", ["slot"], [None], [[]], ("episode", 5)],
    ),
    "search.session_id": (
        lambda m, v: m.search("x", session_id=v, user_id="ann"),
        [*_NO_TEXTS[1:], "s" * 513],
    ),
    "search.session_id of facts": (
        lambda m, v: m.search("x", session_id=v, kinds=("fact",), user_id="ann"),
        [*_NO_TEXTS[1:], "s" * 513],
    ),
    "search.time_range": (
        lambda m, v: m.search("x", time_range=(v, None), user_id="ann"),
        _NO_MOMENTS,
    ),
    "search.status": (lambda m, v: m.search("x", status=v, user_id="ann"), ["", "open", 5, []]),
    "search.scope": (lambda m, v: m.search("x", scope=v, user_id="ann"), ["", "world", 5, []]),
    "search.project_id": (
        lambda m, v: m.search("x", project_id=v, user_id="ann"),
        ["", 5, "\ud800"],
    ),
    "search.valid_at": (lambda m, v: m.search("user", valid_at=v, user_id="ann"), _NO_MOMENTS),
    "search.known_at": (lambda m, v: m.search("user", known_at=v, user_id="ann"), _NO_MOMENTS),
    "duplicates.threshold": (
        lambda m, v: m.duplicates(user_id="ann", threshold=v),
        [None, -1, 0.4, 1.1, math.nan, "1", True, 10**400, []],
    ),
    "duplicates.limit": (lambda m, v: m.duplicates(user_id="ann", limit=v), _NO_COUNTS),
    "why.memory_id": (
        lambda m, v: m.why(v, user_id="ann"),
        [None, "", 5, b"i", [], "x" * 257, "\ud800", "a\x00"],
    ),
    "why.project_id": (lambda m, v: m.why("x", user_id="ann", project_id=v), ["", 5, "\ud800"]),
    "consolidate.limit": (lambda m, v: m.consolidate(limit=v), _NO_COUNTS),
    "consolidate.cancel": (lambda m, v: m.consolidate(cancel=v), _NO_CALLS),
    "consolidate.progress": (lambda m, v: m.consolidate(progress=v), _NO_CALLS),
    "import_": (
        lambda m, v: m.import_(v),
        [None, 5, b"bytes", [], [b""], ["text"], [5], {}, "/no/such/file", [b"{}\n"], [b"\xff"]],
    ),
    "forget.session_id": (
        lambda m, v: m.forget(user_id="ann", session_id=v),
        [*_NO_TEXTS[1:], "s" * 513],
    ),
    "forget.before": (lambda m, v: m.forget(user_id="ann", before=v), _NO_MOMENTS),
    "forget.dry_run": (lambda m, v: m.forget(user_id="ann", dry_run=v), _NO_FLAGS),
    "forget.scrub": (lambda m, v: m.forget(user_id="ann", scrub=v), _NO_FLAGS),
    "reindex.progress": (lambda m, v: m.reindex(v), _NO_CALLS),
    "sync_vectors.progress": (lambda m, v: m.sync_vectors(v), _NO_CALLS),
    "users.after": (lambda m, v: m.users(after=v), _NO_TEXTS),
    "users.limit": (lambda m, v: m.users(limit=v), _NO_COUNTS),
    "proposals.waiting.status": (
        lambda m, v: m.proposals.waiting(v, user_id="ann"),
        [None, "", "open", 5, []],
    ),
    "proposals.waiting.limit": (
        lambda m, v: m.proposals.waiting(user_id="ann", limit=v),
        _NO_COUNTS,
    ),
    "proposals.waiting_everywhere.status": (
        lambda m, v: m.proposals.waiting_everywhere(v),
        [None, "", "open", 5, []],
    ),
    "proposals.waiting_everywhere.limit": (
        lambda m, v: m.proposals.waiting_everywhere(limit=v),
        _NO_COUNTS,
    ),
    "proposals.commit.fact_id": (
        lambda m, v: m.proposals.commit(v, reviewer="r", user_id="ann"),
        [None, 5, "", "\ud800", "a\x00"],
    ),
    "proposals.commit.reviewer": (
        lambda m, v: m.proposals.commit("f", reviewer=v, user_id="ann"),
        [None, 5, "", "\ud800", "a\x00"],
    ),
    "proposals.reject.reason": (
        lambda m, v: m.proposals.reject("f", reviewer="r", user_id="ann", reason=v),
        [None, 5, "\ud800", "x" * 5_000],
    ),
}

CALLS_OF_A_USER: dict[str, Callable[[Memory, Any], Any]] = {
    "working": lambda m, u: m.working(user_id=u),
    "block": lambda m, u: m.block("b", user_id=u),
    "update_block": lambda m, u: m.update_block("b", "x", user_id=u),
    "append_block": lambda m, u: m.append_block("b", "x", user_id=u),
    "delete_block": lambda m, u: m.delete_block("b", user_id=u),
    "block_history": lambda m, u: m.block_history("b", user_id=u),
    "episode": lambda m, u: m.episode("e", user_id=u),
    "session_messages": lambda m, u: m.session_messages("s", user_id=u),
    "recall": lambda m, u: m.recall("x", user_id=u),
    "recall_scored": lambda m, u: m.recall_scored("x", user_id=u),
    "recall_facts": lambda m, u: m.recall_facts("x", user_id=u),
    "recall_facts_scored": lambda m, u: m.recall_facts_scored("x", user_id=u),
    "search": lambda m, u: m.search("x", user_id=u),
    "duplicates": lambda m, u: m.duplicates(user_id=u),
    "why": lambda m, u: m.why("e", user_id=u),
    "profile": lambda m, u: m.profile(user_id=u),
    "vector_status": lambda m, u: m.vector_status(user_id=u),
    "export": lambda m, u: m.export(user_id=u),
    "snapshot": lambda m, u: m.snapshot(user_id=u),
    "forget": lambda m, u: m.forget(user_id=u),
    "proposals.waiting": lambda m, u: m.proposals.waiting(user_id=u),
    "proposals.commit": lambda m, u: m.proposals.commit("f", reviewer="r", user_id=u),
    "proposals.reject": lambda m, u: m.proposals.reject("f", reviewer="r", user_id=u),
}

NO_FIELDS: dict[str, list[Any]] = {
    "id": _NO_IDS,
    "session_id": [None, 5, b"s", "s" * 513, "\ud800"],
    "user_id": NO_USERS,
    "occurred_at": [None, *_NO_MOMENTS],
    "input": [*_NO_TEXTS, "x" * 1_000_001],
    "output": [*_NO_TEXTS, "x" * 1_000_001],
    "speaker": ["", 5, b"s", "x" * 129, "\ud800", "a\x00b", "a\nb"],
    "tool_calls": [5, "calls", [5], [None], [{}], 1.5],
    "tool_transcript": [5, "said", [5], [None], [{"role": "user", "content": "x"}]],
    "embedding": [5, "vec", [], ["a"], [math.nan], [math.inf], [1.0] * 8_193, [None], [10**400]],
    "said_again": [5, "now", [5], [datetime(2026, 1, 1)], [_LATE]],
}

NO_CONSTRUCTIONS: dict[str, list[Any]] = {
    "embedder": [5, "unknown", "", b"auto", object()],
    "max_users": [0, -1, "1", 1.5, True, 10**30],
    "user_idle_ttl_seconds": [0, -1, "1", True, 10**30],
    "max_blocks": [None, 0, -1, "1", True, 10**30],
    "max_block_chars": [None, 0, -1, "1", True, 10**30],
    "extractor": [5, "unknown", object()],
    "policy": [5, "all", {}, ConsolidationPolicy(auto_commit=2.0)],
    "reranker": [5, "best", object()],
    "duplicates": [None, "drop", 5, []],
    "on_duplicate": _NO_CALLS,
    "record_use": _NO_FLAGS,
    "clock": [None, *_NO_CALLS],
}

NO_POLICIES: dict[str, list[Any]] = {
    "auto_commit": [-0.1, 1.1, math.nan, "1", True],
    "lease_seconds": [0, -1, 1.5, None, True, 10**30],
    "attempts": [0, -1, 1.5, None, True, 10**30],
    "concurrency": [0, -1, 1.5, None, True, 10**30],
    "max_facts_per_episode": [0, -1, 1.5, None, True, 10**30],
}

NO_MESSAGES: list[tuple[Any, ...]] = [
    ("nobody", "x"),
    ("user", 5),
    ("user", None),
    ("user", "\ud800"),
    ("user", "x", 5),
    ("user", "x", None, 5),
    ("user", "x", None, None, 5),
    ("user", "x", None, None, [5]),
    ("user", "x", None, None, (), [5]),
]

NO_TOOL_CALLS: list[dict[str, Any]] = [
    {"tool": 5},
    {"tool": "t", "args": 5},
    {"tool": "t", "args": {"x": object()}},
    {"tool": "t", "args": {"x": math.nan}},
    {"tool": "t", "args": {1: 2}},
    {"tool": "t", "args": {"x": "\ud800"}},
    {"tool": "t", "id": 5},
    {"tool": "t", "destructive": "yes"},
    {"tool": "t", "tool_def": 5},
]


def names_of_calls() -> set[str]:
    """The methods that the tables above go through."""
    return {name.split(" ")[0].split(".")[0] for name in (*CALLS, *CALLS_OF_A_USER)}


class RefusalsContract(MemoryFixtures):
    """Every public call with what it cannot take."""

    @pytest.mark.parametrize("call", CALLS)
    def test_what_a_call_cannot_take_is_refused_in_our_words(
        self, handle: Pagefile, memory: Memory, call: str
    ) -> None:
        work, wrong = CALLS[call]
        say(memory, "something", user="ann")
        memory.facts.append(fact("Kyoto"))
        memory.update_block("b", "text", user_id="ann")
        head = handle.store.head()
        told = {_named(n, value): outcome(work, memory, value) for n, value in enumerate(wrong)}

        assert _not_refused(told) == {}
        assert handle.store.head() == head

    @pytest.mark.parametrize("call", CALLS_OF_A_USER)
    def test_who_cannot_be_a_user_is_refused(
        self, handle: Pagefile, memory: Memory, call: str
    ) -> None:
        head = handle.store.head()
        told = [outcome(CALLS_OF_A_USER[call], memory, user) for user in NO_USERS]

        assert told == ["Invalid"] * len(NO_USERS)
        assert handle.store.head() == head

    @pytest.mark.parametrize("field", NO_FIELDS)
    def test_an_episode_that_could_not_be_read_again_is_never_stored(
        self, handle: Pagefile, memory: Memory, field: str
    ) -> None:
        head = handle.store.head()

        def remember(value: Any) -> None:
            fields: dict[str, Any] = {"session_id": "s", "input": "x", field: value}
            memory.remember(Episode(**fields))

        told = {
            _named(n, value): outcome(remember, value) for n, value in enumerate(NO_FIELDS[field])
        }

        assert _not_refused(told) == {}
        assert handle.store.head() == head

    def test_messages_and_calls_that_could_not_be_read_again_are_never_stored(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        head = handle.store.head()

        def said(parts: tuple[Any, ...]) -> None:
            memory.remember(episode("x", tool_transcript=[Message(*parts)]))

        def called(parts: dict[str, Any]) -> None:
            memory.remember(episode("x", tool_calls=[ToolCall(**parts)]))

        def within(parts: dict[str, Any]) -> None:
            call = Message(Role.ASSISTANT, "", tool_calls=(ToolCall(**parts),))
            memory.remember(episode("x", tool_transcript=[call]))

        told = [outcome(said, parts) for parts in NO_MESSAGES]
        told += [outcome(work, parts) for work in (called, within) for parts in NO_TOOL_CALLS]

        assert [each for each in told if each != "Invalid"] == []
        assert handle.store.head() == head

    @pytest.mark.parametrize("option", NO_CONSTRUCTIONS)
    def test_a_memory_is_not_made_with_what_it_could_not_use(
        self, handle: Pagefile, option: str
    ) -> None:
        wrong = NO_CONSTRUCTIONS[option]
        told = [outcome(Memory, handle, **{option: value}) for value in wrong]

        assert told == ["Invalid"] * len(wrong)

    @pytest.mark.parametrize("field", NO_POLICIES)
    def test_a_policy_that_bounds_nothing_is_refused(self, handle: Pagefile, field: str) -> None:
        wrong = NO_POLICIES[field]
        policies = [ConsolidationPolicy(**{field: value}) for value in wrong]
        told = [outcome(Memory, handle, embedder=None, policy=policy) for policy in policies]

        assert told == ["Invalid"] * len(wrong)

    @pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "1", None, True])
    def test_a_worker_needs_a_time_between_its_rounds(self, memory: Memory, wrong: Any) -> None:
        assert outcome(ConsolidationWorker, memory, interval_seconds=wrong) == "Invalid"

    def test_moments_at_the_ends_of_time_can_be_remembered_and_found(self, memory: Memory) -> None:
        moments = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
        for n, moment in enumerate(moments):
            memory.remember(episode("far away", at=moment, id=f"e{n}"))
        found = memory.recall("", time_range=(moments[0], moments[1]), user_id="ann")
        receipt = memory.forget(user_id="ann", session_id="s", before=moments[1], dry_run=True)

        assert [one.occurred_at for one in found] == moments[::-1]
        assert receipt.counts["episodes"] == 1

    def test_odd_text_is_kept_as_it_is(self, memory: Memory) -> None:
        odd = ["\x00 \x07", "🦊" * 50, "a\u202eb", "\ufeff", "ﬁ ½ ①", "' OR 1=1 --", "%_*?["]
        ids = say(memory, *odd)
        for text in odd:
            memory.append_block("b", text, user_id="ann")
            memory.recall(text, user_id="ann")

        assert [memory.episode(one, user_id="ann").input for one in ids] == odd
        assert memory.block("b", user_id="ann").content == "".join(odd)

    def test_no_error_shows_a_long_text_in_full(self, memory: Memory) -> None:
        secret = "secret " * 1_000
        told: list[str] = []
        for work in (
            lambda: memory.recall(secret * 20, user_id="ann"),
            lambda: memory.block(secret, user_id="ann"),
            lambda: memory.episode(secret, user_id="ann"),
            lambda: memory.working(user_id=secret),
        ):
            with pytest.raises(PagefileError) as caught:
                work()
            told.append(str(caught.value))

        assert max(map(len, told)) < 500


def _named(number: int, value: Any) -> str:
    return f"{number}: {value!r}"[:80]


def _not_refused(told: dict[str, str]) -> dict[str, str]:
    return {name: told for name, told in told.items() if told == "done" or told.startswith("raw")}

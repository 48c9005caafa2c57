"""Bad input: a typed error with field, fact and next step, and everything as before."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.thread import ThreadContext
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError
from pagefile.handle import Pagefile
from pagefile.testing.context.fixtures import ContextFixtures, say

_NO_NAMES: list[Any] = [5, b"t", [], {}, 1.5, True, "", "x" * 513, "é" * 300]
_NO_NAMES += ["a\x00b", "line\nbreak", "\x7f", "\ud800"]
_NO_TEXTS: list[Any] = [5, b"t", [], None, False, "\ud800", "x\udfff"]
_NO_COUNTS: list[Any] = ["1", 1.0, True, -1, [], 2**70]
_NO_LIMITS: list[Any] = [0, -1, 2**32, 10**30, True, 1.5, "10", None]


def _ring() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def _deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


_NO_PAYLOADS: dict[str, Callable[[], Any]] = {
    "not-a-number": lambda: {"score": math.nan},
    "infinity": lambda: [math.inf],
    "a-ring": _ring,
    "too-deep": _deep,
    "a-naive-datetime": lambda: {"when": datetime.datetime(2026, 1, 1)},
    "an-object": object,
    "a-function": lambda: print,
    "a-class": lambda: Pagefile,
    "a-lone-surrogate": lambda: {"text": "\ud800"},
    "a-number-as-key": lambda: {1: 2},
    "a-bytearray": lambda: bytearray(b"x"),
}

_OF_A_THREAD: dict[str, Callable[[ContextBuffer, Any], Any]] = {
    "append": lambda b, t: b.append(t, 1, "a", "b"),
    "append_many": lambda b, t: b.append_many(t, [NewSlot(1, "a", "b")]),
    "fork": lambda b, t: b.fork(t),
    "fork.new_id": lambda b, t: b.fork("t", new_id=t),
    "get_thread": lambda b, t: b.get_thread(t),
    "get_or_create_thread": lambda b, t: b.get_or_create_thread(t),
    "get_thread_slots": lambda b, t: b.get_thread_slots(t),
    "thread_exists": lambda b, t: b.thread_exists(t),
    "handle": lambda b, t: b.handle(t, write=True),
    "pin": lambda b, t: b.pin(t),
    "unpin": lambda b, t: b.unpin(t),
    "delete_thread": lambda b, t: b.delete_thread(t),
    "erase_thread": lambda b, t: b.erase_thread(t),
    "ThreadContext": lambda b, t: ThreadContext(t),
}


class RefusalContract(ContextFixtures):
    """Each test ends with the store's head, the threads and the residents it began with."""

    @pytest.fixture
    def kept(self, handle: Pagefile) -> Iterator[ContextBuffer]:
        buffer = handle.context
        say(buffer, "t", 1, 2, 3)
        before = (handle.store.head(), buffer.get_stats())
        yield buffer
        assert (handle.store.head(), buffer.get_stats()) == before

    @pytest.mark.parametrize("call", _OF_A_THREAD)
    def test_what_is_no_thread_id_is_refused(self, kept: ContextBuffer, call: str) -> None:
        for thread_id in _NO_NAMES:
            _refused("thread_id", partial(_OF_A_THREAD[call], kept, thread_id))

    @pytest.mark.parametrize("field", ["from_id", "to_id", "own_name", "user_id"])
    def test_what_is_nobodys_name_is_refused(self, kept: ContextBuffer, field: str) -> None:
        for name in _NO_NAMES:
            given = {"from_id": "a", "to_id": "b", field: name}
            _refused(field, partial(kept.append, "t", 1, **given))
            _refused(field, partial(kept.append_many, "t", [NewSlot(1, **given)]))

    @pytest.mark.parametrize("field", ["usage_instructions", "todo_nudge"])
    def test_what_is_no_text_is_refused(self, kept: ContextBuffer, field: str) -> None:
        for text in _NO_TEXTS:
            _refused(field, partial(kept.append, "t", 1, "a", "b", **{field: text}))

    def test_a_nudge_of_no_reasonable_length_is_refused(self, kept: ContextBuffer) -> None:
        with pytest.raises(LimitExceeded, match="notes"):
            kept.append("t", 1, "a", "b", todo_nudge="x" * 100_000)

    @pytest.mark.parametrize("flag", [None, 0, 1, "no", []], ids=repr)
    def test_what_only_looks_true_or_false_is_refused(self, kept: ContextBuffer, flag: Any) -> None:
        _refused("is_self_call", lambda: kept.append("t", 1, "a", "b", None, flag))

    @pytest.mark.parametrize("flag", [None, 0, 1, "no", []], ids=repr)
    def test_a_handle_writes_for_true_alone(self, kept: ContextBuffer, flag: Any) -> None:
        _refused("write", lambda: kept.handle("t", write=flag))

    def test_what_is_no_key_is_refused(self, kept: ContextBuffer) -> None:
        for key in [name for name in _NO_NAMES if name != ""]:
            _refused("key", partial(kept.append, "t", 1, "a", "b", key=key))

    def test_what_is_no_length_is_refused(self, kept: ContextBuffer) -> None:
        for length in _NO_COUNTS:
            _refused("expected_len", partial(kept.append, "t", 1, "a", "b", expected_len=length))

    @pytest.mark.parametrize("kind", _NO_PAYLOADS)
    def test_a_payload_that_cannot_be_stored_is_refused(
        self, kept: ContextBuffer, kind: str
    ) -> None:
        payload = _NO_PAYLOADS[kind]()
        good = NewSlot(1, "a", "b")
        calls: list[Callable[[], Any]] = [
            lambda: kept.append("t", payload, "a", "b"),
            lambda: kept.append("new", payload, "a", "b"),
            lambda: kept.append("t", payload, "a", "b", usage_instructions="new text"),
            lambda: kept.append("t", payload, "a", "b", key="k"),
            lambda: kept.append_many("t", [good, NewSlot(payload, "a", "b"), good]),
            lambda: kept.handle("t", write=True).append(payload, "a", "b"),
        ]
        for call in calls:
            _refused("$", call)

    @pytest.mark.parametrize("slots", [[], (), iter(())], ids=["list", "tuple", "iterator"])
    def test_appending_nothing_is_refused(self, kept: ContextBuffer, slots: Any) -> None:
        _refused("slots", lambda: kept.append_many("t", slots))

    @pytest.mark.parametrize("slots", [5, None, "ab", [{"payload": 1}], [None], [(1, "a", "b")]])
    def test_what_is_no_message_is_refused(self, kept: ContextBuffer, slots: Any) -> None:
        _refused("slots", lambda: kept.append_many("t", slots))

    @pytest.mark.parametrize("at", [4, *_NO_COUNTS], ids=repr)
    def test_a_fork_at_no_place_of_the_thread_is_refused(
        self, kept: ContextBuffer, at: Any
    ) -> None:
        _refused("at", lambda: kept.fork("t", at))

    def test_a_fork_of_no_thread_is_not_found(self, kept: ContextBuffer) -> None:
        with pytest.raises(NotFound, match="there is no thread 'gone' to fork: append"):
            kept.fork("gone")

    def test_a_fork_under_an_id_that_is_taken_is_a_conflict(self, kept: ContextBuffer) -> None:
        with pytest.raises(Conflict, match="thread 't' exists with 3 slots: choose") as caught:
            kept.fork("t", new_id="t")

        assert caught.value.target == "t"

    @pytest.mark.parametrize("name", ["max_slots_per_thread", "max_threads"])
    def test_what_is_no_limit_is_refused_and_the_old_one_stays(
        self, kept: ContextBuffer, name: str
    ) -> None:
        before = getattr(kept, name)
        for limit in _NO_LIMITS:
            _refused(name, partial(setattr, kept, name, limit))
            _refused(name, partial(ContextBuffer, **{name: limit}))

        assert getattr(kept, name) == before

    @pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "1", True, []], ids=repr)
    def test_what_is_no_idle_time_is_refused(self, kept: ContextBuffer, seconds: Any) -> None:
        _refused("idle_seconds", lambda: setattr(kept, "idle_seconds", seconds))

    @pytest.mark.parametrize("backend_given", [5, b"memory:", [], object(), {}], ids=type)
    def test_what_is_no_store_is_refused(self, kept: ContextBuffer, backend_given: Any) -> None:
        _refused("backend", lambda: ContextBuffer(backend_given))

    def test_a_slice_of_no_numbers_is_refused(self, kept: ContextBuffer) -> None:
        view: Any = kept.get_thread("t")
        for part in (slice("a"), slice(0, "b"), slice(None, None, 0), slice(1.5)):
            _refused("slice", partial(view.__getitem__, part))
        _refused("slice", lambda: view.get_slice("1"))

    @pytest.mark.parametrize("index", ["1", 1.0, True, None, (0,)], ids=repr)
    def test_what_is_no_index_is_refused(self, kept: ContextBuffer, index: Any) -> None:
        view: Any = kept.get_thread("t")

        _refused("index", lambda: view[index])

    def test_questions_of_the_wrong_type_are_refused(self, kept: ContextBuffer) -> None:
        view: Any = kept.get_thread("t")
        naive = datetime.datetime(2026, 1, 1)
        for field, call in {
            "count": lambda: view.tail(-1),
            "payload_type": lambda: view.get_by_type(5),
            "from_id": lambda: view.get_from(None),
            "to_id": lambda: view.get_to([]),
            "since": lambda: view.between(naive),
            "until": lambda: view.between(until="now"),
        }.items():
            _refused(field, call)


def _refused(field: str, call: Callable[[], Any]) -> None:
    """It raises `Invalid` that names the field, or a place inside it, and says what to do."""
    with pytest.raises(PagefileError) as caught:
        call()
    error = caught.value
    assert isinstance(error, Invalid), repr(error)
    assert error.field.startswith(field), error
    assert error.fact
    assert error.next_step

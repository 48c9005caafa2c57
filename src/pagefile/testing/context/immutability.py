"""Nothing that a reader or a sender does afterwards changes what was said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.slot import BufferSlot
from pagefile.context.thread import ThreadContext
from pagefile.errors import Forbidden
from pagefile.handle import Pagefile
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.fixtures import ContextFixtures, Note, payloads, say

_SAID: list[Any] = [Note("first", ["a"]), {"list": [1, {"deep": 2}]}, "third"]
#: What a view answers to, besides what it was given for.
_REACHES = ("threads", "stats", "store", "buffer", "delete", "clear", "fork", "erase", "pin")
#: How a reader comes to hold the first slot of thread "t".
_READ: dict[str, Callable[[ContextBuffer], BufferSlot]] = {
    "index": lambda b: b.get_or_create_thread("t")[0],
    "walk": lambda b: next(iter(b.get_or_create_thread("t"))),
    "sender": lambda b: b.get_or_create_thread("t").get_from("ann")[0],
    "handle": lambda b: b.handle("t")[0],
    "fork": lambda b: b.get_or_create_thread(b.fork("t"))[0],
    "follower": lambda b: next(b.follow("t", -1, timeout=5)),
}


class ImmutabilityContract(ContextFixtures):
    """One test for each way to try; the past as read afterwards is the same."""

    @pytest.fixture
    def said(self) -> list[Any]:
        return [Note("first", ["a"]), {"list": [1, {"deep": 2}]}, "third"]

    @pytest.fixture
    def view(
        self, backend: Backend, handle: Pagefile, buffer: ContextBuffer, said: list[Any]
    ) -> Iterator[ThreadContext]:
        """What was said; the test's end finds it unchanged, here and from another handle."""
        say(buffer, "t", *said)
        before = handle.store.head()
        view = buffer.get_thread("t")
        assert view is not None
        yield view
        for reader in (buffer, backend.open().context):
            assert payloads(reader.get_thread_slots("t")) == _SAID
        assert handle.verify(head=before).problems == ()

    @promise("S10")
    def test_threads_M06_changing_the_payload_after_the_append_changes_nothing(
        self, view: ThreadContext, said: list[Any]
    ) -> None:
        said[0].text = "REWRITTEN"
        said[1]["list"] = []

    @promise("S10")
    def test_threads_M06_changing_a_list_inside_the_payload_changes_nothing(
        self, view: ThreadContext, said: list[Any]
    ) -> None:
        said[0].tags.append("b")
        said[1]["list"][1]["deep"] = 3

    @promise("S10")
    def test_threads_M06_changing_what_a_slot_showed_changes_nothing(
        self, view: ThreadContext
    ) -> None:
        view[0].payload.text = "REWRITTEN"
        view[1].payload["list"][1].clear()

    @promise("S10")
    def test_threads_M06_two_readers_of_one_slot_never_share_an_object(
        self, view: ThreadContext
    ) -> None:
        slot = view[0]
        slot.payload.text = "tampered"
        slot.payload.tags.clear()

        assert slot.payload == _SAID[0]

    @promise("S10")
    @pytest.mark.parametrize("field", ["payload", "metadata", "entry", "thread_id", "index", "new"])
    def test_threads_M06_a_slot_refuses_every_assignment(
        self, view: ThreadContext, field: str
    ) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(view[0], field, "x")

    @promise("S10")
    @pytest.mark.parametrize("field", ["from_id", "slot_index", "timestamp"])
    def test_threads_M06_metadata_refuses_every_assignment(
        self, view: ThreadContext, field: str
    ) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(view[0].metadata, field, "x")

    @promise("S10")
    def test_threads_M06_metadata_changed_by_force_is_one_readers_own(
        self, view: ThreadContext
    ) -> None:
        known = view[0].metadata
        object.__setattr__(known, "from_id", "system")

        assert view[0].metadata.from_id == "ann"

    @promise("S10")
    @pytest.mark.parametrize("field", ["thread_id", "_reader", "_writer", "slots"])
    def test_threads_M07_a_view_refuses_every_assignment(
        self, view: ThreadContext, field: str
    ) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(view, field, "x")

    @promise("S10")
    @pytest.mark.parametrize("field", ["thread_id", "_reader", "_writer"])
    def test_threads_M07_a_view_refuses_every_deletion(
        self, view: ThreadContext, field: str
    ) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(view, field)

    @promise("S10")
    def test_threads_M07_a_view_whose_reader_was_replaced_by_force_deceives_only_itself(
        self, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        forged = ThreadContext("t")
        forged.append("forged", "system", "bob")
        mine = buffer.get_or_create_thread("t")
        object.__setattr__(mine, "_reader", forged._reader)

        assert (payloads(mine), payloads(view)) == (["forged"], _SAID)

    @promise("S10")
    @pytest.mark.parametrize("field", ["position", "index", "content", "log"])
    def test_threads_M06_the_entry_behind_a_slot_refuses_every_assignment(
        self, view: ThreadContext, field: str
    ) -> None:
        entry = view[0].entry
        with pytest.raises(AttributeError):
            setattr(entry, field, "x")
        with pytest.raises(TypeError):
            object.__setattr__(entry, field, "x")

    @promise("S10")
    @pytest.mark.parametrize("field", ["body", "actor", "salt"])
    def test_threads_M06_the_content_behind_an_entry_refuses_every_assignment(
        self, view: ThreadContext, field: str
    ) -> None:
        content = view[0].entry.content
        with pytest.raises(AttributeError):
            setattr(content, field, b"x")
        with pytest.raises(TypeError):
            object.__setattr__(content, field, b"x")

    @promise("S10")
    def test_threads_M06_a_slot_changed_by_force_deceives_only_its_holder(
        self, view: ThreadContext
    ) -> None:
        slot, other = view[0], view[1]
        with pytest.raises(TypeError):
            object.__setattr__(slot, "thread_id", "other")
        msgspec.structs.force_setattr(slot, "entry", other.entry)
        msgspec.structs.force_setattr(slot, "thread_id", "other")

        assert slot.thread_id == "other"
        assert (view[0].thread_id, view[0].payload) == ("t", _SAID[0])

    @promise("S10")
    @pytest.mark.parametrize("way", _READ)
    def test_threads_M06_what_is_behind_a_slot_changed_by_force_is_its_holders_own(
        self, buffer: ContextBuffer, view: ThreadContext, way: str
    ) -> None:
        slot = _READ[way](buffer)
        _forge(slot)

        assert slot.payload == "forged"
        assert (_READ[way](buffer).payload, view[0].metadata.from_id) == (_SAID[0], "ann")

    @promise("S10")
    @pytest.mark.parametrize("way", ["append", "append_many", "handle", "key", "repeat"])
    def test_threads_M06_what_append_returned_changed_by_force_is_its_holders_own(
        self, buffer: ContextBuffer, view: ThreadContext, way: str
    ) -> None:
        say(buffer, "other", "first")
        ways: dict[str, Callable[[], BufferSlot]] = {
            "append": lambda: buffer.append("other", "said", "ann", "bob"),
            "append_many": lambda: buffer.append_many("other", [NewSlot("said", "ann", "bob")])[0],
            "handle": lambda: buffer.handle("other", write=True).append("said", "ann", "bob"),
            "key": lambda: buffer.append("other", "said", "ann", "bob", key="k"),
            "repeat": lambda: [ways["key"]() for _ in range(2)][-1],
        }
        _forge(ways[way]())

        assert payloads(buffer.get_thread_slots("other")) == ["first", "said"]

    @promise("S10")
    def test_threads_M06_what_a_thread_of_a_broadcast_does_to_it_no_other_sees(
        self, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        told = Note("to all", ["a"])
        one, two = (buffer.append(name, told, "ann", "bob") for name in ("one", "two"))
        told.text = "REWRITTEN"
        told.tags.clear()
        one.payload.tags.append("b")
        _forge(one)

        assert two.payload == Note("to all", ["a"])
        for name in ("one", "two"):
            assert payloads(buffer.get_thread_slots(name)) == [Note("to all", ["a"])]

    @promise("S10")
    def test_threads_M06_what_append_returned_is_as_frozen_as_what_is_read(
        self, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        slot = buffer.append("other", {"list": [1]}, "a", "b")
        slot.payload["list"].append(2)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(slot, "thread_id", "t")  # noqa: B010

        assert payloads(buffer.get_thread_slots("other")) == [{"list": [1]}]

    @promise("S10")
    def test_threads_M06_the_lists_a_view_returns_are_its_readers_own(
        self, view: ThreadContext
    ) -> None:
        view[:].clear()
        view.get_slice().reverse()
        view.get_from("ann").pop()

    def test_threads_M07_a_view_cannot_append(
        self, handle: Pagefile, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        views = [view, buffer.get_or_create_thread("t"), buffer.handle("t")]
        head = handle.store.head()
        for each in views:
            with pytest.raises(Forbidden, match=r"ask the buffer for handle\(thread_id, write"):
                each.append("forged", "system", "bob")

        assert ([each.can_write for each in views], handle.store.head()) == ([False] * 3, head)

    def test_threads_M07_a_handle_writes_to_its_own_thread_within_the_limit(
        self, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        buffer.max_slots_per_thread = 2
        mine = buffer.handle("mine", write=True)
        mine.append(1, "a", "b")
        mine.append(2, "a", "b")
        with pytest.raises(MemoryError):
            mine.append(3, "a", "b")

        assert (mine.thread_id, payloads(mine)) == ("mine", [1, 2])

    def test_threads_M08_a_handle_offers_nothing_beyond_its_thread(
        self, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        public = [name for name in dir(buffer.handle("t", write=True)) if name[0] != "_"]

        assert [name for name in public for word in _REACHES if word in name] == []

    def test_threads_M08_what_a_handle_shows_has_no_position(
        self, buffer: ContextBuffer, view: ThreadContext
    ) -> None:
        mine = buffer.handle("t", write=True)
        other = buffer.handle("other", write=True)
        slots = [mine[0], *mine.get_from("ann"), other.append(1, "a", "b")]

        assert {(slot.position, slot.entry.position) for slot in slots} == {(None, 0)}


def _forge(slot: BufferSlot) -> None:
    """Change everything that hangs on a slot, past every refusal."""
    force = msgspec.structs.force_setattr
    entry, known = slot.entry, slot.metadata
    object.__setattr__(known, "from_id", "system")
    assert entry.content is not None
    for field, value in {"body": b'"forged"', "type_name": "", "actor": "system"}.items():
        force(entry.content, field, value)
    for name, number in {"position": 99, "index": 99, "time_us": 0}.items():
        force(entry, name, number)
    force(entry, "log", "thread/forged")
    force(slot, "thread_id", "forged")

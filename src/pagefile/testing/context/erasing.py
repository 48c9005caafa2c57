"""Erasing and deleting: what must go is gone, what others share stays."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pagefile.context.buffer import ContextBuffer
from pagefile.context.names import log_of
from pagefile.errors import NotFound
from pagefile.handle import Pagefile
from pagefile.store.batch import Batch, Prune, Selector
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.ground import ContextFixtures, payloads, say


class ErasureOfThreadsContract(ContextFixtures):
    """Users, threads, forks."""

    @promise("S9")
    def test_erasing_a_user_reaches_the_slots_that_forks_share(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", "secret", "ann", "bob", user_id="u")
        say(buffer, "t", "kept")
        children = [buffer.fork("t"), buffer.fork(buffer.fork("t"))]
        handle.store.erase(Selector(user="u"))
        shown = [buffer.get_thread_slots(name) for name in ("t", *children)]

        assert [[slot.erased for slot in slots] for slots in shown] == [[True, False]] * 3

    @promise("S9")
    def test_an_erased_slot_keeps_its_place_and_says_that_it_is_empty(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", "secret", "ann", "bob", "me", todo_nudge="secret", user_id="u")
        say(buffer, "t", "kept")
        handle.store.erase(Selector(user="u"))
        view = buffer.handle("t")
        known = view[0].metadata
        with pytest.raises(NotFound, match="slot 0 of thread 't' was erased: look at `erased`"):
            _ = view[0].payload

        assert (len(view), view[1].payload, view[1].index) == (2, "kept", 1)
        assert (known.from_id, known.own_name, known.todo_nudge, known.user_id) == (
            "",
            None,
            "",
            None,
        )

    @promise("S9")
    def test_an_erased_slot_is_found_under_no_sender_and_no_type(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", "secret", "ann", "bob", user_id="u")
        buffer.append("t", 1, "bob", "ann")
        handle.store.erase(Selector(user="u"))
        view = buffer.handle("t")

        assert (view.get_from("ann"), view.get_to("bob"), view.get_by_type(str)) == ([], [], [])

    @promise("S9")
    def test_erasing_a_thread_takes_its_content_from_forks_too(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", "one", "two")
        child = buffer.fork("t")
        say(buffer, child, "own")
        receipt = buffer.erase_thread("t")
        slots = buffer.get_thread_slots(child)

        assert (buffer.thread_exists("t"), receipt.records) == (False, 2)
        assert [slot.erased for slot in slots] == [True, True, False]

    @promise("S9")
    def test_an_erased_thread_is_gone_for_every_reader(
        self, backend: Backend, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", "one")
        other = backend.open().context.get_or_create_thread("t")
        receipt = buffer.erase_thread("t")

        assert (list(other), receipt.level) == ([], backend.erasure)

    @promise("S9")
    def test_erasing_what_has_no_user_leaves_usage_texts_storable_again(
        self, handle: Pagefile, backend: Backend, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", 1, "a", "b", usage_instructions="How.")
        handle.store.erase(Selector(anonymous=True))
        backend.open().context.append("t", 2, "a", "b", usage_instructions="How.")
        shown = backend.open().context.get_thread_slots("t")

        assert [slot.metadata.usage_instructions for slot in shown] == ["How."]

    def test_deleting_a_parent_keeps_what_its_children_share(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", 1, 2, 3)
        child = buffer.fork("t", 2)
        grandchild = buffer.fork(child, 1)
        deleted = [buffer.delete_thread("t"), buffer.delete_thread(child)]

        assert (deleted, buffer.thread_exists("t")) == ([True, True], False)
        assert payloads(buffer.get_thread_slots(grandchild)) == [1]

    def test_a_time_range_gives_what_is_there_of_slots_that_were_let_go(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", *range(10))
        view = buffer.handle("t")
        moment = datetime.fromisoformat(view[5].metadata.timestamp)
        handle.store.commit(Batch([Prune(4, log=log_of("t"))]))
        after = payloads(view.between(moment))
        since_ever = payloads(view.between(datetime(1970, 1, 1, tzinfo=UTC)))
        handle.store.commit(Batch([Prune(None, log=log_of("t"))]))

        assert after[-5:] == list(range(5, 10))
        assert since_ever == list(range(4, 10))
        assert view.between(moment) == []

    def test_a_time_range_of_a_thread_that_is_deleted_meanwhile_is_a_list(
        self, buffer: ContextBuffer
    ) -> None:
        """The view has asked for the length when the thread goes."""
        say(buffer, "t", 1, 2, 3)
        view = buffer.handle("t")
        object.__setattr__(view, "_reader", view._reader._replace(length=lambda: 3))
        buffer.delete_thread("t")

        assert view.between(datetime(1970, 1, 1, tzinfo=UTC)) == []

    def test_deleting_no_thread_says_so(self, handle: Pagefile, buffer: ContextBuffer) -> None:
        head = handle.store.head()

        assert (buffer.delete_thread("t"), handle.store.head()) == (False, head)

    def test_a_deleted_thread_starts_anew_under_its_id(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", "old")
        buffer.delete_thread("t")
        say(buffer, "t", "new")

        assert [(s.index, s.payload) for s in buffer.get_thread_slots("t")] == [(0, "new")]

    def test_clear_ends_forks_and_all(self, handle: Pagefile, buffer: ContextBuffer) -> None:
        say(buffer, "t", 1, 2)
        buffer.fork(buffer.fork("t"))
        buffer.clear()

        assert buffer.get_stats()["thread_count"] == 0
        assert handle.stats().logs == 0

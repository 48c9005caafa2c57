"""The library's own suites, run through a handle on a server.

A test that cannot hold there is named with its reason; it is run all the same, and has
to fail, so that the lists stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.testing.context.slots import SlotContract
from pagefile.testing.memory.episodes import BlocksContract, EpisodesContract
from tests.surfaces.remote_ground import RemoteBackend, Running, running_in

pytestmark = pytest.mark.xdist_group("remote")

_CLASSES = "payloads of classes cannot be sent"
_LARGE = "a server takes 1,000 slots or episodes at once"
_STORE = "the store is written to, or counted in, directly"
_LIMITS = "limits and options are the server's"
_ANSWERS = "a server keeps its answers in the store, for repeats"
_UNOFFERED = "no route offers it"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from running_in(tmp_path_factory.mktemp("remote"))


class Remote:
    """A suite's place on a server."""

    #: Tests that cannot hold, each with its reason.
    beside: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def place(self, running: Running, request: pytest.FixtureRequest) -> RemoteBackend:
        reason = self.beside.get(request.function.__name__)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
        return running.place()


class RemoteMemory(Remote):
    """A suite of memory: that of the server, not one with options of the test's own."""

    @pytest.fixture
    def memory(self, handle: Pagefile) -> Memory:
        return handle.memory


class TestSlots(Remote, SlotContract):
    beside: ClassVar[Mapping[str, str]] = {
        "test_threads_B06_append_returns_what_a_reader_gets": _CLASSES,
        "test_threads_M13_two_classes_of_one_name_are_told_apart": _CLASSES,
        "test_a_bare_name_will_do_while_one_class_has_it": _CLASSES,
        "test_threads_M14_the_last_slots_cost_the_same_in_a_long_thread": _LARGE,
        "test_threads_M14_a_rare_sender_is_found_without_reading_the_rest": _LARGE,
        "test_threads_M14_a_walk_fetches_what_is_asked_for": _LARGE,
        "test_threads_M16_what_was_acknowledged_is_there_after_a_crash": _CLASSES,
        "test_threads_B22_threads_are_apart_from_whatever_else_is_stored": _STORE,
        "test_threads_B10_stats_count_every_slot_of_every_thread": _UNOFFERED,
        "test_threads_B11_clear_ends_the_threads_of_this_tenant_only": _UNOFFERED,
        "test_threads_B11_the_name_of_a_tenant_is_no_pattern_for_others": _UNOFFERED,
        "test_a_key_makes_a_repeat_harmless": _LIMITS,
        "test_a_key_whose_slot_is_gone_leads_to_no_other": "the server says its key, not ours",
        "test_several_messages_are_appended_together_or_not_at_all": _LIMITS,
        "test_a_fork_costs_the_same_whatever_the_length": _LARGE,
        "test_entries_that_no_buffer_made_are_shown_with_what_the_store_knows": _STORE,
    }


class TestBlocks(RemoteMemory, BlocksContract):
    beside: ClassVar[Mapping[str, str]] = {
        "test_memory_D10_blocks_keep_their_order_in_every_handle": _LIMITS,
        "test_a_block_is_changed_only_at_the_version_that_was_read": _ANSWERS,
        "test_no_block_is_longer_and_no_user_has_more_than_they_may": _LIMITS,
        "test_a_handle_with_a_smaller_limit_still_shows_every_block": _LIMITS,
        "test_memory_D13_blocks_neither_expire_nor_make_room_for_others": _LIMITS,
    }


class TestEpisodes(RemoteMemory, EpisodesContract):
    beside: ClassVar[Mapping[str, str]] = {
        "test_memory_D14_remembering_the_same_again_stores_nothing": _LIMITS,
        "test_many_are_stored_together_or_not_at_all": _ANSWERS,
        "test_a_thousand_are_stored_in_one_commit_and_one_more_is_refused": _LARGE,
        "test_a_snapshot_shows_blocks_and_episodes_as_plain_values": _UNOFFERED,
    }

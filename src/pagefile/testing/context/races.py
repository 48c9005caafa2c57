"""Eight threads at once: no gap, no loss, no limit passed, one winner."""

from __future__ import annotations

from typing import Any

from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.residency import Eviction
from pagefile.errors import Conflict, LimitExceeded
from pagefile.handle import Pagefile
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.fixtures import ContextFixtures, at_once, payloads, say


class RaceContract(ContextFixtures):
    """Threads of one process, on one buffer and on eight."""

    @promise("S2")
    def test_threads_B01_every_slot_has_the_index_its_writer_was_told(
        self, backend: Backend
    ) -> None:
        buffers = [backend.open().context for _ in range(8)]
        told = at_once(
            lambda n: [(s.index, s.payload) for s in say(buffers[n], "t", *_named(n, 40))]
        )
        acknowledged = sorted(pair for pairs in told for pair in pairs)
        readers = [[(s.index, s.payload) for s in b.get_thread_slots("t")] for b in buffers]

        assert [index for index, _ in acknowledged] == list(range(320))
        assert readers == [acknowledged] * 8

    @promise("S2")
    def test_messages_appended_together_stand_next_to_each_other(
        self, buffer: ContextBuffer
    ) -> None:
        def write(n: int) -> None:
            for k in range(10):
                buffer.append_many("t", [NewSlot(f"{n}.{k}", "a", "b")] * 3)

        at_once(write)
        said = payloads(buffer.get_thread_slots("t"))

        assert len(said) == 240
        assert [len(set(said[at : at + 3])) for at in range(0, 240, 3)] == [1] * 80

    @promise("S8")
    def test_threads_M01_eight_threads_never_pass_the_slot_limit(
        self, buffer: ContextBuffer
    ) -> None:
        buffer.max_slots_per_thread = 100
        told = at_once(lambda n: _until_full(buffer, "t", n, 30))

        assert sum(told) == len(buffer.get_thread_slots("t")) == 100

    @promise("S8")
    def test_threads_B02_eight_handles_never_pass_the_slot_limit(self, backend: Backend) -> None:
        buffers = [backend.open().context for _ in range(8)]
        for buffer in buffers:
            buffer.max_slots_per_thread = 100
        told = at_once(lambda n: _until_full(buffers[n], "t", n, 20))

        assert sum(told) == len(buffers[0].get_thread_slots("t")) == 100

    @promise("S8")
    def test_threads_B03_eight_threads_never_pass_the_limit_of_threads(
        self, handle: Pagefile
    ) -> None:
        buffer = ContextBuffer(handle, max_threads=4)
        seen: list[int] = []

        def write(n: int) -> None:
            for k in range(25):
                say(buffer, f"t{n}-{k}", k)
                seen.append(len(buffer._residents))

        at_once(write)

        assert max(seen) <= 4

    @promise("S2")
    def test_threads_M02_what_was_acknowledged_is_there_or_its_eviction_is(
        self, handle: Pagefile
    ) -> None:
        """Eight threads use twelve ids where three fit, so that somebody leaves all the time."""
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=3, on_evict=told.append)

        def write(n: int) -> list[Any]:
            return [
                (slot.thread_id, slot.position, slot.payload)
                for k in range(50)
                for slot in say(buffer, f"t{(n * 7 + k * 5) % 12}", f"{n}-{k}")
            ]

        acknowledged = [item for items in at_once(write) for item in items]
        log = handle.store.read("context/evictions")
        deleted = [(e.value["thread_id"], e.position) for e in log if e.value["deleted"]]
        there = {
            (name, slot.position, slot.payload)
            for name in buffer.get_stats()["threads"]
            for slot in buffer.get_thread_slots(name)
        }
        lost = [
            (thread_id, position)
            for thread_id, position, payload in acknowledged
            if (thread_id, position, payload) not in there
            and not any(name == thread_id and position < at for name, at in deleted)
        ]

        assert (len(acknowledged), lost) == (400, [])
        assert len(told) == len(log)

    @promise("S3")
    def test_one_writer_wins_each_length(self, backend: Backend) -> None:
        buffers = [backend.open().context for _ in range(8)]

        def claim(n: int) -> list[int]:
            won = []
            for _ in range(60):
                length = len(buffers[n].get_or_create_thread("t"))
                try:
                    buffers[n].append("t", n, "a", "b", expected_len=length)
                    won.append(length)
                except Conflict:
                    continue
            return won

        won = sorted(length for lengths in at_once(claim) for length in lengths)

        assert won == list(range(len(buffers[0].get_thread_slots("t"))))
        # Each win turns away at most the seven others.
        assert len(won) >= 60

    @promise("S7")
    def test_eight_threads_with_one_key_make_one_slot(self, backend: Backend) -> None:
        buffers = [backend.open().context for _ in range(8)]
        told = at_once(lambda n: buffers[n].append("t", "once", "a", "b", key="k"))

        assert set(told) == set(buffers[0].get_thread_slots("t"))
        assert len(buffers[0].get_thread_slots("t")) == 1

    @promise("S2")
    def test_forks_made_while_others_write_share_a_prefix_and_go_their_own_way(
        self, backend: Backend
    ) -> None:
        buffers = [backend.open().context for _ in range(8)]
        say(buffers[0], "t", "start")

        def work(n: int) -> list[str]:
            made = []
            for k in range(10):
                say(buffers[n], "t", f"{n}-{k}")
                made.append(buffers[n].fork("t"))
                say(buffers[n], made[-1], f"own {made[-1]}")
            return made

        children = [child for made in at_once(work) for child in made]
        trunk = payloads(buffers[0].get_thread_slots("t"))
        grown = [payloads(buffers[0].get_thread_slots(child)) for child in children]

        assert [slots[-1] for slots in grown] == [f"own {child}" for child in children]
        assert [slots[:-1] for slots in grown] == [trunk[: len(slots) - 1] for slots in grown]

    @promise("S3")
    def test_of_eight_forks_under_one_id_one_is_made(self, backend: Backend) -> None:
        buffers = [backend.open().context for _ in range(8)]
        say(buffers[0], "t", 1)

        def claim(n: int) -> bool:
            try:
                buffers[n].fork("t", new_id="child")
            except Conflict:
                return False
            return True

        assert sum(at_once(claim)) == 1

    def test_threads_M15_a_new_usage_text_is_stored_once_by_eight_writers(
        self, backend: Backend
    ) -> None:
        handles = [backend.open() for _ in range(8)]
        at_once(lambda n: handles[n].context.append("t", n, "a", "b", usage_instructions="How."))
        slots = handles[0].context.get_thread_slots("t")

        assert [slot.metadata.usage_instructions for slot in slots] == ["How."] * 8
        assert handles[0].stats().documents == 1


def _named(n: int, count: int) -> list[str]:
    return [f"{n}-{k}" for k in range(count)]


def _until_full(buffer: ContextBuffer, thread_id: str, n: int, count: int) -> int:
    """How many appends were acknowledged; every other one said that the thread is full."""
    done = 0
    for k in range(count):
        try:
            say(buffer, thread_id, k)
            done += 1
        except LimitExceeded:
            continue
    return done

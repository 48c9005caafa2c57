"""What a prompt costs: from the end of a short thread, and of a very long one.

    python benchmarks/assembly.py [--json] [--quick] [--only NAME] [--folder PATH]

The peer does what most code does: load the whole thread, count every message,
drop the oldest until the rest fits. Both count with `chars/4` and have a budget of
4,000 tokens. The long thread has a million slots, with `--quick` 100,000.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pagefile
from _measure import Subject, cpu_ratio, measure, rate_ratio
from _row import Row, Target
from _run import Suite, run
from _workplace import Workplace
from pagefile import Assembly, Episode, Memory, NewSlot, Pagefile
from pagefile.runs.tokens import CharsPerFour

_SHORT = 1_000
_BUDGET = 4_000
_AT_ONCE = 10_000
_PROMPTS = 20
_MEMORIES = 2_000
_QUERY = "Which step looked at the harbour?"
_SHORT_OURS = f"assemble, {_SHORT:,} slots"
_SHORT_PEER = f"load all and trim, {_SHORT:,} slots"


def _long(place: Workplace) -> int:
    return 100_000 if place.quick else 1_000_000


def _message(number: int) -> NewSlot:
    role = "assistant" if number % 2 else "user"
    content = f"step {number:07}: looked at the log of the shop, and all of it was well"
    return NewSlot({"role": role, "content": content}, role, "x")


def _filled(pf: Pagefile, thread_id: str, slots: int) -> None:
    pf.context.max_slots_per_thread = slots
    for first in range(0, slots, _AT_ONCE):
        last = min(first + _AT_ONCE, slots)
        pf.context.append_many(thread_id, [_message(number) for number in range(first, last)])


def _ours(assembly: Assembly, thread_id: str, *, record: bool = False) -> Callable[[], int]:
    def work() -> int:
        for _ in range(_PROMPTS):
            prompt = assembly.assemble(thread_id, None, _BUDGET, record=record)
            assert len(prompt.messages) > 50
        return _PROMPTS

    return work


def _naive(pf: Pagefile, thread_id: str) -> Callable[[], int]:
    def work() -> int:
        count = CharsPerFour().count
        messages = [slot.payload for slot in pf.context.get_thread_slots(thread_id)]
        costs = [4 + count(message["role"]) + count(message["content"]) for message in messages]
        total, first = sum(costs), 0
        while total > _BUDGET:
            total -= costs[first]
            first += 1
        assert len(messages[first:]) > 50
        return 1

    return work


def _growth(place: Workplace, name: str, url: str | Path) -> list[Row]:
    long = _long(place)
    pf = place.closing(pagefile.open(url))
    place.announce(f"{name}: filling {long:,} slots", 1)
    _filled(pf, "short", _SHORT)
    _filled(pf, "long", long)
    assembly = Assembly(pf.store, memory=Memory(pf.store, embedder=None))
    ours, peer = f"assemble, {long:,} slots", f"load all and trim, {long:,} slots"
    rounds = place.rounds(8)
    place.announce(name, rounds)
    timings = measure(
        [
            Subject(_SHORT_PEER, _naive(pf, "short")),
            Subject(_SHORT_OURS, _ours(assembly, "short")),
            Subject(ours, _ours(assembly, "long")),
            Subject(peer, _naive(pf, "long")),
        ],
        rounds,
        place.advance,
    )
    grown = cpu_ratio(timings[ours], timings[_SHORT_OURS])
    return [
        Row(name, _SHORT_PEER, timings[_SHORT_PEER]),
        Row(
            name,
            _SHORT_OURS,
            timings[_SHORT_OURS],
            "× the rate of load all and trim",
            rate_ratio(timings[_SHORT_OURS], timings[_SHORT_PEER]),
        ),
        Row(name, ours, timings[ours], f"× the CPU of {_SHORT:,} slots", grown, Target(high=1.5)),
        Row(name, peer, timings[peer]),
        Row(
            name,
            f"{ours}, held against the peer",
            timings[ours],
            "× the rate of load all and trim",
            rate_ratio(timings[ours], timings[peer]),
            Target(low=20),
        ),
    ]


def in_memory(place: Workplace) -> list[Row]:
    return _growth(place, "memory:", "memory:")


def file(place: Workplace) -> list[Row]:
    return _growth(place, "file", place.new_path())


def recall(place: Workplace) -> list[Row]:
    """A thread, and memories that answer a question; with and without a recorded receipt."""
    pf = place.closing(pagefile.open(place.new_path()))
    memory = Memory(pf.store, embedder=None)
    places = ("harbour", "station", "market", "tower")
    for first in range(0, _MEMORIES, _SHORT):
        numbers = range(first, first + _SHORT)
        memory.remember_many(
            [
                Episode(session_id=f"s{n // 20}", input=f"Step {n} looked at the {places[n % 4]}")
                for n in numbers
            ]
        )
    _filled(pf, "short", _SHORT)
    assembly = Assembly(pf.store, memory=memory)

    def asked(*, record: bool) -> Callable[[], int]:
        def work() -> int:
            for _ in range(_PROMPTS):
                assembly.assemble("short", _QUERY, _BUDGET, record=record)
            return _PROMPTS

        return work

    rounds = place.rounds(8)
    name = f"{_MEMORIES:,} memories"
    place.announce(name, rounds)
    plain, recalled, recorded = "thread alone", "with recall", "with recall, recorded"
    timings = measure(
        [
            Subject(plain, _ours(assembly, "short")),
            Subject(recalled, asked(record=False)),
            Subject(recorded, asked(record=True)),
        ],
        rounds,
        place.advance,
    )
    return [
        Row(name, plain, timings[plain], alone=True),
        *(
            Row(name, each, timings[each], "× CPU", cpu_ratio(timings[each], timings[plain]))
            for each in (recalled, recorded)
        ),
    ]


SUITE = Suite(
    title="Pagefile assembly benchmarks",
    about="What a prompt costs, from short threads and from long ones.",
    cases={"memory": in_memory, "file": file, "recall": recall},
    notes=["Budget 4,000 tokens, counted as chars/4; prompts of the first cases record nothing."],
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))

"""A process that races with others in the threads of one store.

    python tests/context/racer.py URL TASK COUNT NAME

Prints one line of JSON: what it was acknowledged, and every error it met. Asked to
"read" then, it prints another: every slot that it finds, thread by thread.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pagefile
from pagefile.context.buffer import ContextBuffer
from pagefile.errors import Conflict, LimitExceeded, PagefileError


def append_to_shared_threads(buffer: ContextBuffer, count: int, name: str) -> list[Any]:
    """Thread, index and payload of appends to three threads that everybody appends to."""
    slots = [
        buffer.append(f"t{n % 3}", f"{name}-{n}", name, "all", usage_instructions="Shared text.")
        for n in range(count)
    ]
    return [[slot.thread_id, slot.index, slot.payload] for slot in slots]


def fill_to_a_limit(buffer: ContextBuffer, count: int, name: str) -> list[Any]:
    """Indexes acknowledged in a thread that takes 60 slots, however many try."""
    buffer.max_slots_per_thread = 60
    indexes = []
    for n in range(count):
        try:
            indexes.append(buffer.append("limited", n, name, "all").index)
        except LimitExceeded:
            continue
    return indexes


def claim_lengths(buffer: ContextBuffer, count: int, name: str) -> list[Any]:
    """Lengths that this process won, of as many as it tried for; so does everybody."""
    won = []
    view = buffer.get_or_create_thread("claimed")
    for _ in range(count):
        length = len(view)
        try:
            buffer.append("claimed", name, name, "all", expected_len=length)
            won.append(length)
        except Conflict:
            continue
    return won


def fork_and_go_on(buffer: ContextBuffer, count: int, name: str) -> list[Any]:
    """Forks of a thread that others write to, each with one slot of its own."""
    made = []
    for n in range(count):
        buffer.append("trunk", f"{name}-{n}", name, "all")
        made.append(buffer.fork("trunk"))
        buffer.append(made[-1], made[-1], name, "all")
    return made


def all_slots(buffer: ContextBuffer) -> dict[str, Any]:
    """Index, sender and payload of every slot, by thread."""
    return {
        name: [[slot.index, slot.from_id, slot.payload] for slot in buffer.get_thread_slots(name)]
        for name in buffer.get_stats()["threads"]
    }


TASKS = {
    task.__name__: task
    for task in (append_to_shared_threads, fill_to_a_limit, claim_lengths, fork_and_go_on)
}


def main(url: str, task: str, count: str, name: str) -> None:
    told: dict[str, Any] = {"acknowledged": [], "errors": []}
    with pagefile.open(url, durability="process") as pf:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            told["acknowledged"] = TASKS[task](pf.context, int(count), name)
        except PagefileError as error:
            told["errors"].append(f"{type(error).__name__}: {error}")
        print(json.dumps(told), flush=True)
        # By now the others are through too: whoever reads must find the same.
        if sys.stdin.readline() == "read\n":
            print(json.dumps(all_slots(pf.context)))


if __name__ == "__main__":
    main(*sys.argv[1:])

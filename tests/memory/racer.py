"""A process that races with others in the memory of one store.

    python tests/memory/racer.py URL TASK COUNT NAME

Says "ready", waits for a line, and prints one line of JSON: what it was
acknowledged, and every error it met.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import pagefile
from pagefile.errors import PagefileError
from pagefile.memory.memory import Memory
from pagefile.store.records import Durability
from pagefile.testing.memory.fixtures import START, Scripted, episode, fact


def append_to_one_block(memory: Memory, count: int, name: str) -> list[Any]:
    """Versions acknowledged for appends to a block that everybody appends to."""
    return [
        memory.append_block("shared", f"{name}.{n};", user_id="ann").version for n in range(count)
    ]


def talk_in_one_session(memory: Memory, count: int, name: str) -> list[Any]:
    """Ids acknowledged in a session that everybody talks in, all at one moment."""
    return [
        memory.remember(episode(f"word{name}x{n}", id=f"{name}-{n}", at=START))
        for n in range(count)
    ]


def assert_one_fact(memory: Memory, count: int, name: str) -> list[Any]:
    """What was acknowledged of assertions where the user lives: id, city, first and last day.

    From days of its own, which lie between those of the others; a third of
    them for five days, the rest until further notice.
    """
    told: list[Any] = []
    for n in range(count):
        city = ("Kyoto", "Oslo", "Rome")[(n + int(name[1:])) % 3]
        # Later days before earlier ones, now and then.
        first = 4 * (n ^ 1) + int(name[1:])
        last = first + 5 if n % 3 == 2 else None
        known = fact(
            city,
            sources=[f"{name}-{n}"],
            valid_from=START + timedelta(days=first),
            valid_until=None if last is None else START + timedelta(days=last),
        )
        told.append([memory.facts.append(known), city, first, last])
    return told


def read_what_nobody_read(memory: Memory, count: int, name: str) -> list[Any]:
    """What this process read of the episodes that all of them try to read."""
    extractor = Scripted()
    memory._extractor = extractor
    memory.consolidate()
    return list(extractor.read)


def recall_twice(memory: Memory, count: int, name: str) -> list[Any]:
    """What is found before and after a line comes in; the index is resident meanwhile."""
    before = [one.input for one in memory.recall("marker", user_id="ann")]
    print(json.dumps(before), flush=True)
    sys.stdin.readline()
    found = [one.input for one in memory.recall("marker", user_id="ann")]
    return [found, memory.profile(user_id="ann").episode_count]


TASKS = {
    task.__name__: task
    for task in (
        append_to_one_block,
        talk_in_one_session,
        assert_one_fact,
        read_what_nobody_read,
        recall_twice,
    )
}


def main(url: str, task: str, count: str, name: str) -> None:
    told: dict[str, Any] = {"acknowledged": [], "errors": []}
    # A manager's store is as durable as its process, and takes no other word for it.
    durability: Durability | None = None if url.startswith("manager:") else "process"
    with pagefile.open(url, durability=durability) as pf:
        memory = Memory(pf, embedder=None)
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            told["acknowledged"] = TASKS[task](memory, int(count), name)
        except PagefileError as error:
            told["errors"].append(f"{type(error).__name__}: {error}")
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])

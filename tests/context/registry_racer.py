"""A process that shares a registry with others.

    python tests/context/registry_racer.py URL TASK COUNT

Says "ready" when it has opened the store, waits for a line, and prints what it was
told as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pagefile
from pagefile.context.registry import ThreadRegistry


def make_paths(registry: ThreadRegistry, count: int) -> list[Any]:
    """Ids of the root and of paths that everybody asks for."""
    return [
        registry.initialize_root("org"),
        *(registry.get_or_create(f"console.agent{n}") for n in range(count)),
    ]


def hold_conversations(registry: ThreadRegistry, count: int) -> list[Any]:
    """What each of many nested calls, all from one shared thread, was answered."""
    told: list[Any] = []
    registry.register_thread("shared", "user", "agent")
    for _ in range(count):
        callee = registry.extend_chain("shared", "worker")
        inner = registry.extend_chain(callee, "tool")
        told.append([callee, registry.prune_for_response(inner), registry.lookup(inner)])
        told.append([inner, registry.prune_for_response(callee), registry.lookup(callee)])
    return told


def answer_for_all(registry: ThreadRegistry, count: int) -> list[Any]:
    """What was told to this process of threads that everybody answers for."""
    return [registry.prune_for_response(f"t{n}") for n in range(count)]


TASKS = {task.__name__: task for task in (make_paths, hold_conversations, answer_for_all)}


def main(url: str, task: str, count: str) -> None:
    with pagefile.open(url, durability="process") as pf:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(TASKS[task](ThreadRegistry(pf), int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""An organism as all its processes see it: who works, what waits, what died."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.dispatch.claims import OpenConversation, open_conversations
from pagefile.dispatch.dead_letter import DeadLetter, dead_letters
from pagefile.dispatch.names import WORKERS
from pagefile.store.store import Store

_MOST = 1_000


class WorkerView(msgspec.Struct, frozen=True):
    """One process, as it said at its last heartbeat. `stats` are those of `Organism.stats`."""

    worker: str
    pid: int
    seen_us: int
    lease_seconds: float
    stats: dict[str, Any]


class Overview(msgspec.Struct, frozen=True):
    """The processes of an organism, its open conversations and its dead letters."""

    organism: str
    workers: tuple[WorkerView, ...]
    conversations: tuple[OpenConversation, ...]
    dead_letters: tuple[DeadLetter, ...]


def organisms_of(store: Store) -> list[str]:
    """The names of the organisms that processes work on, or did when they died."""
    names = store.names("document", prefix=WORKERS, limit=_MOST)
    found = (document for document in store.get_many(names) if document is not None)
    return sorted({str(each.value.get("organism")) for each in found if not each.erased})


def overview_of(store: Store, organism: str, limit: int = 100) -> Overview:
    """What the store knows of an organism now; of each list at most `limit`."""
    names = store.names("document", prefix=WORKERS, limit=_MOST)
    workers: list[WorkerView] = []
    for name, document in zip(names, store.get_many(names), strict=True):
        if document is None or document.erased or document.value.get("organism") != organism:
            continue
        value = document.value
        workers.append(
            WorkerView(
                name.removeprefix(WORKERS),
                int(value.get("pid", 0)),
                document.time_us,
                float(value.get("lease_seconds", 0)),
                dict(value.get("stats", {})),
            )
        )
    return Overview(
        organism,
        tuple(workers[:limit]),
        tuple(open_conversations(store, organism, limit)),
        tuple(dead_letters(store, organism, limit)),
    )

"""Which processes work on an organism, and which of them have died.

A process renews its document before its lease is over. Whoever sees the same
version for a whole lease, by its own clock, takes the process for dead; on the
same machine a process that is gone is seen at once. Being wrong is harmless:
what the process still tries to commit is refused, because its version is old.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from pagefile.dispatch.listener import BELL, OPEN, WORKERS
from pagefile.errors import Conflict, NotFound, PagefileError
from pagefile.store.batch import Batch, Delete, Prune, Put, Query, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

_MOST_WORKERS = 1_000
#: Old versions of a heartbeat are of no use to anybody.
_PRUNE_EVERY = 100


class Presence:
    """This process among those that share an organism."""

    def __init__(self, store: Store, organism: str, worker: str, lease_seconds: float) -> None:
        self._store = store
        self._organism = organism
        self.worker = worker
        self._lease = lease_seconds
        self._machine = machine()
        self._born = birth_of(os.getpid())
        self._renewed = 0
        #: Version of each process's document, and when it was first seen.
        self._seen: dict[str, tuple[int, float]] = {}

    def renew(self, doing: dict[str, Any]) -> None:
        """Say that this process lives, and how it is doing."""
        value = {
            "organism": self._organism,
            "pid": os.getpid(),
            "machine": self._machine,
            "born": self._born,
            "lease_seconds": self._lease,
            **doing,
        }
        name = WORKERS + self.worker
        self._store.commit(Batch([Put(name, value, kind="worker")]))
        self._renewed += 1
        if not self._renewed % _PRUNE_EVERY:
            self._store.commit(Batch([Prune(None, document=name)]))

    def leave(self) -> None:
        """This process does not work any more."""
        try:
            self._store.commit(Batch([Delete(WORKERS + self.worker)]))
        except NotFound:
            return  # Somebody took it for dead.

    def dead(self) -> list[str]:
        """The processes that have died, and may still own conversations."""
        now = time.monotonic()
        names = self._store.names("document", prefix=WORKERS, limit=_MOST_WORKERS)
        found: dict[str, Document | None] = {}
        for name, document in zip(names, self._store.get_many(names), strict=True):
            if document is None or document.erased:
                continue
            if document.value.get("organism") == self._organism:
                found[name.removeprefix(WORKERS)] = document
        for owner in self.owners():
            found.setdefault(owner, None)
        found.pop(self.worker, None)
        gone = [
            worker for worker, document in found.items() if self._is_dead(worker, document, now)
        ]
        for worker in set(self._seen) - set(found):
            del self._seen[worker]
        return gone

    def _is_dead(self, worker: str, document: Document | None, now: float) -> bool:
        version = 0 if document is None else document.version
        if document is not None and self._is_gone(document.value):
            return True
        lease = self._lease if document is None else float(document.value["lease_seconds"])
        seen = self._seen.get(worker)
        if seen is None or seen[0] != version:
            self._seen[worker] = version, now
            return False
        return now - seen[1] > lease

    def _is_gone(self, value: dict[str, Any]) -> bool:
        """Whether a process of this machine has ended."""
        if not self._machine or value.get("machine") != self._machine:
            return False
        return birth_of(int(value["pid"])) != str(value["born"])

    def owners(self) -> list[str]:
        """Who owns conversations, one lookup for each."""
        owners: list[str] = []
        after = "\x00"
        while len(owners) < _MOST_WORKERS:
            page = self._store.find(
                Query(
                    OPEN,
                    low=(self._organism, after),
                    high=(self._organism + "\x00",),
                    everyone=True,
                ),
                limit=1,
            )
            if not page.items:
                return owners
            key = page.items[0].tenant_keys[OPEN]
            assert isinstance(key, tuple)
            owner = str(key[1])
            owners.append(owner)
            after = owner + "\x00"
        return owners

    def bury(self, worker: str) -> None:
        """Nothing is left of a dead process."""
        document = self._store.get(WORKERS + worker)
        if document is None:
            return
        try:
            self._store.commit(
                Batch([Delete(document.name)], [VersionIs(document.name, document.version)])
            )
        except (Conflict, NotFound):
            return  # It lives after all, or another was faster.


def machine() -> str:
    """What tells this machine's process numbers from others'; empty when nothing does."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def birth_of(pid: int) -> str:
    """When a process began, as its system counts; empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    # A process that was killed and not waited for yet is as good as gone.
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


# Hearing that other processes left work: one thread that waits for the store, and no polling.


_WAIT_SECONDS = 1.0
#: Commits may come by the thousand; looking at each of them would cost more than they do.
_REST_SECONDS = 0.005
_MOST_HEARD = 1_000

#: Organisms on one store that no other process can open hear each other at once.
_NEIGHBOURS: weakref.WeakKeyDictionary[Store, list[weakref.WeakMethod[Callable[[str], None]]]] = (
    weakref.WeakKeyDictionary()
)


class Bell:
    """Calls `heard` in the loop with the threads of conversations that others rang for."""

    def __init__(self, store: Store, heard: Callable[[str], None]) -> None:
        self._store = store
        self._heard = heard
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Listen from now on."""
        self._loop = asyncio.get_running_loop()
        if self._store.is_shared:
            self._stop = threading.Event()
            at = self._store.length(BELL)
            self._thread = threading.Thread(
                target=self._listen, args=(at,), name="pagefile-bell", daemon=True
            )
            self._thread.start()
        else:
            _NEIGHBOURS.setdefault(self._store, []).append(weakref.WeakMethod(self._ringing))

    def stop(self) -> None:
        """Listen no more."""
        self._stop.set()
        self._loop = None
        neighbours = _NEIGHBOURS.get(self._store, [])
        neighbours[:] = [one for one in neighbours if one() not in (None, self._ringing)]

    def rung(self, thread: str) -> None:
        """This process rang; others on a store that nobody else can open have to be told."""
        for neighbour in list(_NEIGHBOURS.get(self._store, ())):
            ringing = neighbour()
            if ringing is not None:
                ringing(thread)

    def _ringing(self, thread: str) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._heard, thread)

    def _listen(self, at: int) -> None:
        store = self._store
        position = -1
        while not self._stop.is_set():
            try:
                if position >= 0:
                    store.wait(position + 1, _WAIT_SECONDS)
                position = store.head().position
                length = store.length(BELL)
                while at < length and not self._stop.is_set():
                    entries = store.read(BELL, at, limit=_MOST_HEARD)
                    for thread in {str(e.value) for e in entries if not e.erased}:
                        self._ringing(thread)
                    at = entries[-1].index + 1 if entries else length
            except (PagefileError, RuntimeError):
                # Whoever sweeps finds what was not heard.
                if self._stop.wait(_WAIT_SECONDS):
                    return
            if self._stop.wait(_REST_SECONDS):
                return

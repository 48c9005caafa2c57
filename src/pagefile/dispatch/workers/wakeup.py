"""Hearing that other processes left work: one thread that waits for the store, and no polling."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable

from pagefile.dispatch.names import BELL
from pagefile.errors import PagefileError
from pagefile.store.store import Store

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

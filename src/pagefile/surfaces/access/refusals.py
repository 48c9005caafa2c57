"""The record of refusals: who was turned away, where, and why. No payloads, no secrets.

One entry for each refusal, in the log `refusals` of the access tenant, up to so
many in a second; those beyond are counted in the next entry, so that nobody can
fill the disk by being refused. The oldest entries go when the log is long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from pagefile.handle import Admin
from pagefile.store.batch import Append, Batch, Prune
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Entry
from pagefile.store.store import Store
from pagefile.surfaces.access.identity import ACCESS_TENANT
from pagefile.surfaces.kinds import REFUSALS

_MOST_KEPT = 100_000
_SWEEP_EVERY = 1_000


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request that was turned away."""

    status: int
    reason: str
    method: str
    route: str
    request_id: str
    who: str = ""
    tenant: str = ""
    client: str = ""
    #: How many more there were since the entry before this one.
    unlisted: int = 0


class RefusalLog:
    """Appends refusals, and lists them."""

    def __init__(
        self,
        admin: Admin,
        *,
        per_second: int = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store: Store = admin.open(ACCESS_TENANT).store
        self._per_second = per_second
        self._clock = clock
        self._lock = threading.Lock()
        self._second = 0
        self._written = 0
        self._unlisted = 0

    def admitted(self, refusal: Refusal) -> Refusal | None:
        """The refusal to be written; None when this second has had its share."""
        with self._lock:
            second = int(self._clock())
            if second != self._second:
                self._second, self._written = second, 0
            if self._written >= self._per_second:
                self._unlisted += 1
                return None
            self._written += 1
            unlisted, self._unlisted = self._unlisted, 0
        return msgspec.structs.replace(refusal, unlisted=unlisted)

    async def record(self, refusal: Refusal) -> None:
        """Write it down, without blocking the loop."""
        admitted = self.admitted(refusal)
        if admitted is None:
            return
        entry = await self._store.append_async(
            Append(REFUSALS, msgspec.to_builtins(admitted), kind="refusal", actor=refusal.who)
        )
        if entry.index % _SWEEP_EVERY == _SWEEP_EVERY - 1 and entry.index >= _MOST_KEPT:
            await self._store.commit_async(
                Batch([Prune(entry.index - _MOST_KEPT + 1, log=REFUSALS)])
            )

    def list(self, *, after: int = -1, limit: int = 100) -> list[tuple[Entry, Refusal]]:
        """Refusals behind an index, oldest first."""
        found = self._store.read(REFUSALS, after + 1, limit=limit)
        return [(entry, convert(entry.value, Refusal)) for entry in found]

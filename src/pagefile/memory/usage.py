"""Which recalls used a memory: noted in batches, without what was asked.

memory/use/<digest of the user>        a log in that user's partition
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from pagefile.errors import Conflict
from pagefile.memory.ids import new_id
from pagefile.memory.owner import owner_key
from pagefile.memory.privacy.tombstones import Guard
from pagefile.store.batch import Append, Batch
from pagefile.store.codec.decoder import convert
from pagefile.store.query import Query
from pagefile.store.store import Store

#: Logs, one per user.
USES = "memory/use/"
#: The key under which the uses of a memory stand in its user's log.
OF_MEMORY = "used"
#: How many uses wait in memory before they are stored together.
_AT_ONCE = 500
_MOST_SHOWN = 1_000


class Use(msgspec.Struct, frozen=True):
    """One recall that gave a memory back: when, at which place of its answer, and its id."""

    recall_id: str
    at: datetime
    rank: int


class Uses(msgspec.Struct, frozen=True):
    """The newest uses of a memory; `is_cut` when there were more."""

    told: tuple[Use, ...]
    is_cut: bool


class UseRecorder:
    """Notes which recalls gave which memories back, once it is switched on.

    Uses wait in memory and are stored some hundreds at a time, so a crash can
    lose the last of them: they are statistics, and the only thing here that is
    acknowledged before it is stored.
    """

    def __init__(
        self, store: Store, guard: Guard, clock: Callable[[], datetime], *, on: bool
    ) -> None:
        self._store = store
        self._guard = guard
        self._clock = clock
        self.is_on = on
        self._lock = threading.Lock()
        self._waiting: list[Append] = []

    def note(
        self, user_id: str | None, documents: Sequence[str], recall_id: str | None = None
    ) -> None:
        """One recall, by its id if it has one, gave these back, best first."""
        if not self.is_on or not documents:
            return
        recall_id = new_id("recall") if recall_id is None else recall_id
        at = self._clock().isoformat()
        log = use_log(user_id)
        uses = [
            Append(
                log,
                {"recall_id": recall_id, "at": at, "rank": rank},
                user=user_id,
                kind="use",
                keys={OF_MEMORY: document},
            )
            for rank, document in enumerate(documents)
        ]
        with self._lock:
            self._waiting += uses
            full = len(self._waiting) >= _AT_ONCE
        if full:
            self.flush()

    def flush(self) -> None:
        """Store what waits, but for what was forgotten meanwhile."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for user in {use.user: None for use in waiting}:
            own = [use for use in waiting if use.user == user]
            for at in range(0, len(own), _AT_ONCE):
                self._store_some(user, own[at : at + _AT_ONCE])

    def _store_some(self, user: str | None, uses: list[Append]) -> None:
        while uses:
            try:
                self._store.commit(Batch(uses, [self._guard.condition(user)]))
                return
            except Conflict as conflict:
                if not self._guard.learns(conflict, user):
                    raise
                gone = self._guard.forgotten(user, [_used(use) for use in uses])
                uses = [use for use in uses if _used(use) not in gone]

    def of(self, documents: Sequence[str], user_id: str | None) -> Uses:
        """The recalls that gave these back, newest first, of each at most 1,000."""
        self.flush()
        told: list[Use] = []
        is_cut = False
        for document in documents:
            query = Query(OF_MEMORY, document, log=use_log(user_id), reverse=True)
            page = self._store.find(query, limit=_MOST_SHOWN)
            told += [convert(one.value, Use) for one in page.items if not one.erased]
            is_cut = is_cut or page.cursor is not None
        return Uses(tuple(told), is_cut)


def use_log(user_id: str | None) -> str:
    """The log of a user's uses."""
    return USES + owner_key(user_id)


def _used(use: Append) -> str:
    return str(use.keys[OF_MEMORY])

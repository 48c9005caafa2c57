"""How far the reading of an episode is: claimed for a while, tried again later, done, given up.

memory/extraction/<digest of the user>/<episode id>        in that user's partition
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pagefile.memory.extraction.candidate import Candidate
from pagefile.memory.owner import owner_key
from pagefile.memory.serializer import plain, shaped
from pagefile.store.batch import Put, VersionIs
from pagefile.store.store import Store

#: What the names of all of them begin with.
STATES = "memory/extraction/"
_MOST_ERROR = 500


class ExtractionState(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an episode's reading. `until_us` ends a claim, or a pause after a failure.

    `found` is what was read in version `found_in` of the episode and could not
    be stored then: reading costs money, and is not done again for it.
    """

    status: Literal["claimed", "waiting", "done", "failed"]
    extractor: str
    worker: str = ""
    until_us: int = 0
    attempts: int = 0
    error: str = ""
    facts: int = 0
    proposed: int = 0
    found: tuple[Candidate, ...] = ()
    found_in: int = 0

    def is_open(self, now_us: int) -> bool:
        """Whether somebody may read the episode now, given that it is unread."""
        return self.is_over or self.until_us <= now_us

    @property
    def is_over(self) -> bool:
        """Whether it was read to the end, or given up."""
        return self.status in ("done", "failed")


class HeldState(msgspec.Struct, frozen=True):
    """A state as it is stored; version 0 and no state when nobody has tried yet."""

    document: str
    version: int
    state: ExtractionState | None

    @property
    def unchanged(self) -> VersionIs:
        """The condition that nobody else has come to it."""
        return VersionIs(self.document, self.version)


def state_name(episode_id: str, user_id: str | None) -> str:
    """The document of an episode's state."""
    return f"{STATES}{owner_key(user_id)}/{episode_id}"


def read_state(store: Store, episode_id: str, user_id: str | None) -> HeldState:
    """What became of an episode's reading so far."""
    name = state_name(episode_id, user_id)
    found = store.get(name)
    if found is None or found.erased:
        return HeldState(name, 0, None)
    return HeldState(name, found.version, shaped(found, ExtractionState))


def put_state(name: str, user_id: str | None, state: ExtractionState) -> Put:
    """Write a state."""
    return Put(name, plain(state), user=user_id, kind="extraction", actor=state.worker)


def told(error: BaseException) -> str:
    """An error in a line that is worth keeping, and not too long."""
    text = f"{type(error).__name__}: {error}"[:_MOST_ERROR]
    # Somebody else's words may hold what no codec can write.
    return text.encode(errors="replace").decode()

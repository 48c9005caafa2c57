"""The idempotency keys that the store made, as far as a write transaction knows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pagefile.store.engine import Prepared

_MOST_RECENT = 4_096


class MadeKeys:
    """Where the commits of one tenant with made keys are: the last ones, and the group's."""

    def __init__(self, position: int) -> None:
        #: All commits after a position.
        self._recent: dict[str, int] = {}
        self._from = position
        #: Older ones that the group under way asked for, 0 for one that is not there.
        self._looked_for: dict[str, int] = {}

    def note(self, key: str, position: int) -> None:
        """A commit with this key is there now."""
        self._recent[key] = position
        if len(self._recent) > _MOST_RECENT:
            self._recent.clear()
            self._from = position
            self.forget_group()  # They may be among what is not known any more.

    def knows_of(self, key: str, after: int) -> bool:
        """Whether `place` tells what there is to tell of a key that was made after a position."""
        return after >= self._from or key in self._looked_for

    def place(self, key: str) -> int:
        """The position of the commit with this key; 0 when there is none."""
        return self._recent.get(key) or self._looked_for.get(key, 0)

    def old_ones(self, batches: Sequence[Prepared]) -> list[Prepared]:
        """Those whose keys have to be looked for."""
        return [batch for batch in batches if 0 <= batch.after < self._from]

    def were_looked_for(self, keys: Iterable[str], found: Iterable[tuple[str, int]]) -> None:
        """What was found of the group's keys."""
        self._looked_for = dict.fromkeys(keys, 0) | dict(found)

    def forget_group(self) -> None:
        """It is over: what was looked for is known no longer."""
        if self._looked_for:
            self._looked_for.clear()

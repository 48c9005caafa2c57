"""What is too much for one commit, and how it is parted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pagefile.errors import LimitExceeded
from pagefile.memory.privacy import dry_run
from pagefile.memory.privacy.erasure_plan import Gone


class Part(msgspec.Struct, frozen=True):
    """Documents that go in a commit of their own, and all that goes in the end."""

    names: Sequence[str]
    going: Gone


class TooMany(Exception):
    """One commit cannot name it all; these documents can go before the rest."""

    def __init__(self, ahead: Part, wanted: int) -> None:
        super().__init__(wanted)
        self._ahead = ahead
        self._wanted = wanted

    def parted(self, part: Part | None) -> list[Part | None]:
        """The parts to be done one after the other, the last one first; it is `part`'s rest."""
        names, going = self._ahead.names, self._ahead.going
        size = min(len(names) // 2, dry_run.MOST_NAMED // 2)
        if not size:
            raise LimitExceeded(
                "the number of things that one call forgets by name",
                limit=dry_run.MOST_NAMED,
                wanted=self._wanted,
                next_step="forget in steps, with `before`",
            )
        rest, others = names[-size:], names[:-size]
        parts = [Part(others[at : at + size], going) for at in range(0, len(others), size)]
        return [None if part is None else Part(rest, going), *parts]

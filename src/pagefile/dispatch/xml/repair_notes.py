"""What was repaired, told once for each kind."""

from __future__ import annotations

_MOST_NOTES = 100


class Notes:
    """Collects what a repair did, in bounded memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, what: str, count: int = 1) -> None:
        """Note that something was done; more of the same is counted."""
        if what in self._counts or len(self._counts) < _MOST_NOTES:
            self._counts[what[:200]] = self._counts.get(what[:200], 0) + count

    def all(self) -> tuple[str, ...]:
        """What was done, in the order of the first time."""
        return tuple(
            what if count == 1 else f"{what} ({count} times)"
            for what, count in self._counts.items()
        )

"""How often a message is tried, and how long it rests in between."""

from __future__ import annotations

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import require_count, require_seconds

_MOST_ATTEMPTS = 1_000


class Retry(msgspec.Struct, frozen=True):
    """Up to `attempts` tries; the pause starts with `pause` seconds and grows by `factor`."""

    attempts: int = 3
    pause: float = 0.1
    factor: float = 4.0
    most: float = 60.0

    def seconds_after(self, failures: int) -> float:
        """The pause after so many failures."""
        grown = float(self.pause)
        for _ in range(min(max(failures - 1, 0), 64)):
            if grown >= self.most:
                break  # Further, and a large factor would leave the numbers there are.
            grown *= self.factor
        return float(min(self.most, grown))


class Refused(Exception):
    """Raise it in a handler for what no further try can mend: the caller is told at once."""


def require_retry(retry: Retry) -> Retry:
    """Refuse a policy that never ends or never waits."""
    if not isinstance(retry, Retry):
        raise Invalid("retry", f"{shown(retry)} is no Retry", "give Retry(…)")
    require_count(retry.attempts, "retry.attempts", least=1, most=_MOST_ATTEMPTS)
    require_seconds(retry.pause, "retry.pause")
    require_seconds(retry.most, "retry.most")
    require_seconds(retry.factor, "retry.factor")
    return retry

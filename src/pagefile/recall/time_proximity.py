"""How near a moment is to the time that a question means."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.embed.embedder import Floats
from pagefile.recall.text.dates import TimeWords

_DAY = 86_400 * 1_000_000
#: A longer interval fades later, by a share of its length; of so many days at most.
_SHARE, _MOST_LENGTH = 0.25, 60 * _DAY
#: Something is told after it happened more often than before.
_BEFORE = 2.0
#: What is less near than this has nothing to do with the time asked about.
_LEAST = 1e-3


def timeliness(times: NDArray[np.int64], when: Iterable[TimeWords], days: float) -> Floats:
    """1 inside of an interval, fading after it and faster before it; the best of all counts."""
    best = np.zeros(len(times))
    for words in when:
        for start, end in words.spans:
            slack = max(1.0, days * _DAY + _SHARE * min(end - start, _MOST_LENGTH))
            early = _BEFORE * np.maximum(start - times, 0) / slack
            late = np.maximum(times - end, 0) / slack
            np.maximum(best, np.exp(-np.minimum(early + late, 700.0)), out=best)
    best[best < _LEAST] = 0
    return best.astype(np.float32)

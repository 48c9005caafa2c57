"""Which rows of a partition pass a filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.candidates import Looked

#: How many filters are kept with what they let through.
MOST_KEPT = 2


class Passing:
    """The rows that may be found. Those that may not still lend to their neighbours."""

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.count = int(np.count_nonzero(allowed))
        self.is_all = self.count == len(allowed)
        #: What is looked at where that is the same for every question; made by the first.
        self.whole: Looked | None = None


def filter_name(filters: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells one filter from another."""
    return tuple(tuple(v) if isinstance(v, list) else v for v in filters.values())

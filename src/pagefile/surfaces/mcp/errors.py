"""A refusal as a client sees it: the code that it has everywhere, the fact, the next step."""

from __future__ import annotations

import logging
from typing import Any

from pagefile.errors import NotFound, PagefileError, as_fields

_log = logging.getLogger(__name__)


def told(error: Exception) -> dict[str, Any]:
    """An error as plain values. What is no refusal of ours is logged, and told without details."""
    if not isinstance(error, PagefileError):
        _log.error("a call failed", exc_info=error)
        return {
            "code": "internal",
            "fact": "the server failed at this call",
            "next_step": "look at its log",
        }
    return as_fields(error)


def is_missing(error: Exception) -> bool:
    """Whether it says that what was asked for is not there."""
    return isinstance(error, NotFound)

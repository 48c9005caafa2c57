"""A refusal as a client sees it: the code that it has everywhere, the fact, the next step."""

from __future__ import annotations

import logging
from typing import Any

from pagefile.errors import NotFound, PagefileError

_log = logging.getLogger(__name__)
#: What of an error is told besides its words.
_FIELDS = ("field", "target", "expected", "current", "what", "limit", "wanted", "outcome", "key")


def told(error: Exception) -> dict[str, Any]:
    """An error as plain values. What is no refusal of ours is logged, and told without details."""
    if not isinstance(error, PagefileError):
        _log.error("a call failed", exc_info=error)
        return {
            "code": "internal",
            "fact": "the server failed at this call",
            "next_step": "look at its log",
        }
    fields = {name: getattr(error, name, None) for name in _FIELDS}
    return {
        "code": error.code,
        "fact": error.fact,
        "next_step": error.next_step,
        **{name: value for name, value in fields.items() if value not in (None, "")},
    }


def is_missing(error: Exception) -> bool:
    """Whether it says that what was asked for is not there."""
    return isinstance(error, NotFound)

"""Read, change, write; again when somebody was faster. The course of it, once for both clients."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

import msgspec

from pagefile.errors import Conflict, Invalid, PagefileError, shown
from pagefile.store import clock
from pagefile.store.arguments import require_count

Change: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
ATTEMPTS = 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5


class Read(msgspec.Struct, frozen=True):
    """Next: read the working set."""


class Write(msgspec.Struct, frozen=True):
    """Next: send this patch."""

    seq: int
    set: dict[str, Any]
    ops: list[dict[str, Any]]


class Rest(msgspec.Struct, frozen=True):
    """Next: let so many seconds pass."""

    seconds: float


Step: TypeAlias = Read | Write | Rest
Updating: TypeAlias = Generator[Step, Any, Any]


def updating(change: Change, attempts: int) -> Updating:
    """Until nobody was faster.

    Raises:
        Conflict: somebody was, every time. Nothing was stored.
    """
    require_count(attempts, "attempts", 1, 1_000)
    for left in range(attempts - 1, -1, -1):
        ws = yield Read()
        made = change(ws)
        if not isinstance(made, Mapping):
            raise Invalid("change", f"returned {shown(made)}", "return a dict of fields")
        fields: Mapping[str, Any] = made if made.keys() <= {"set", "ops"} else {"set": made}
        outcome = yield Write(
            ws["_update_seq"], dict(fields.get("set") or {}), list(fields.get("ops") or ())
        )
        if not isinstance(outcome, PagefileError):
            return outcome
        if not isinstance(outcome, Conflict) or not left:
            raise outcome
        share = int.from_bytes(clock.random_bytes(2)) / 65_535
        pause = min(_FIRST_PAUSE * 2 ** (attempts - left), _LONGEST_PAUSE)
        yield Rest(share * pause)
    raise AssertionError("the last attempt returns or raises")

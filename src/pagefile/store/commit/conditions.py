"""What a batch depends on, tested inside the commit."""

from __future__ import annotations

from pagefile.errors import Conflict, Forbidden, LimitExceeded
from pagefile.store.engine import DOCUMENT, LOG, Requirement, Transaction


def require(tx: Transaction, need: Requirement) -> None:
    """Raise unless the condition holds.

    Raises:
        Conflict: a version, a length or a key is not as expected.
        LimitExceeded: a count or a length is not below its limit.
    """
    what = need.what
    if what == "absent" or what == "version":
        _require_version(tx, need)
    elif what == "length" or what == "below":
        _require_length(tx, need)
    elif what == "created":
        _require_created(tx, need)
    else:
        _require_key(tx, need)


def _require_version(tx: Transaction, need: Requirement) -> None:
    stream = tx.stream(DOCUMENT, need.name)
    current = stream.length if stream is not None else 0
    if need.what == "absent":
        if stream is not None and not stream.deleted:
            raise Conflict(
                f"document {need.name!r} exists at version {current}",
                "read it, or choose another name",
                target=need.name,
                expected=0,
                current=current,
            )
    elif current != need.number:
        raise Conflict(
            f"document {need.name!r} is at version {current}, not {need.number}",
            "read it again, then retry",
            target=need.name,
            expected=need.number,
            current=current,
        )


def _require_length(tx: Transaction, need: Requirement) -> None:
    stream = tx.stream(LOG, need.name)
    current = stream.length if stream is not None else 0
    if need.what == "below":
        if current >= need.number:
            raise log_is_full(need.name, need.number, current + 1)
    elif current != need.number:
        raise Conflict(
            f"log {need.name!r} has {current} entries, not {need.number}",
            f"read from {min(need.number, current)} to see what was added, then append again",
            target=need.name,
            expected=need.number,
            current=current,
        )


def _require_created(tx: Transaction, need: Requirement) -> None:
    stream = tx.stream(LOG, need.name)
    current = stream.created if stream is not None else 0
    if current != need.number:
        raise Conflict(
            f"log {need.name!r} came into being at position {current}, not {need.number}",
            "look at it again, then retry",
            target=need.name,
            expected=need.number,
            current=current,
        )


def _require_key(tx: Transaction, need: Requirement) -> None:
    key = need.key
    assert key is not None
    if need.what == "count":
        found = tx.count(key, need.user, need.number)
        if found >= need.number:
            raise LimitExceeded(
                f"the number of records under {key.field!r}",
                limit=need.number,
                wanted=found + 1,
                next_step="remove one, or raise the limit",
            )
        return
    # What an erasure took away left no trace of its keys, so it counts as a
    # change of every key: the caller re-reads and comes again.
    last = max(tx.last_change(key, need.user), tx.head.last_erase)
    if last > need.number:
        raise Conflict(
            f"records under {key.field!r} changed at position {last}, after {need.number}",
            "read them again, then retry with the newer position",
            target=key.field,
            expected=need.number,
            current=last,
        )


def log_is_full(name: str, limit: int, wanted: int) -> LimitExceeded:
    """The refusal of an entry too many."""
    return LimitExceeded(
        f"the number of entries in log {name!r}",
        limit=limit,
        wanted=wanted,
        next_step="start another log, fork it at an earlier entry, or raise the limit",
    )


def unfinished_copy(position: int, reached: int) -> Forbidden:
    """A copy that was cut off: what is written there would part it from its source."""
    return Forbidden(
        f"this is an unfinished copy, at position {position} of at least {reached}",
        "copy again to go on",
    )

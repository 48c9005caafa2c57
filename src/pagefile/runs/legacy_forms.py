"""What the earlier system took and a run does not, brought into form.

It never looked at times, nor at ids that were there twice, and a crash could
leave half a line at the end of its ledger, to which the next one was glued.
None of that is a reason to lose a run. Nothing is changed in silence, though:
each change is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pagefile.errors import shown
from pagefile.runs.fields import ITEM_LISTS
from pagefile.runs.schema.timestamps import is_moment

#: For what has no time: it ranks as the oldest.
_NO_TIME: Final = "1970-01-01T00:00:00Z"
_MOST_TOLD: Final = 100


class Changes:
    """What was brought into form, each change once however often it is read."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def add(self, change: str) -> None:
        self._told[change] = None

    def told(self) -> tuple[str, ...]:
        """The first of them, and how many more there are."""
        told = tuple(self._told)
        if len(told) <= _MOST_TOLD:
            return told
        return (*told[:_MOST_TOLD], f"and {len(told) - _MOST_TOLD} more")


def is_torn(line: bytes) -> bool:
    """Whether a line of a ledger begins as an event does, and is none for want of its end."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return False


def in_form_time(value: dict[str, Any], field: str, at: str, changes: Changes) -> dict[str, Any]:
    """The object with a time in that field; what is no text there is left to the schema."""
    was = value.get(field)
    if not isinstance(was, str) or is_moment(was):
        return value
    time = _moment_in(was)
    changes.add(f"{at}: {field} {shown(was)} became {time}")
    return value | {field: time}


def in_form_working_set(ws: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """The working set with times that are some, and ids of their own."""
    result = dict(ws)
    for field in sorted(ITEM_LISTS):
        items = ws.get(field)
        if isinstance(items, list):
            result[field] = _own_ids(field, _timed(field, items, changes), changes)
    return result


def _timed(field: str, items: list[Any], changes: Changes) -> list[Any]:
    return [
        in_form_time(item, "timestamp", f"{field}.{number}", changes)
        if isinstance(item, dict)
        else item
        for number, item in enumerate(items)
    ]


def _own_ids(field: str, items: list[Any], changes: Changes) -> list[Any]:
    """An item that is there already goes; another one of the same id gets an id of its own."""
    kept: list[Any] = []
    by_id: dict[str, Any] = {}
    taken = {_id_of(item) for item in items}
    for number, item in enumerate(items):
        item_id = _id_of(item)
        if item_id is None or item_id not in by_id:
            kept.append(item)
            if item_id is not None:
                by_id[item_id] = item
            continue
        if item == by_id[item_id]:
            changes.add(f"{field}.{number}: {shown(item_id)} was there already, and is left out")
            continue
        made = next(
            name for n in range(2, len(items) + 2) if (name := f"{item_id}-{n}") not in taken
        )
        taken.add(made)
        changes.add(
            f"{field}.{number}: {shown(item_id)} was there already, and became {shown(made)}"
        )
        kept.append(item | {"id": made})
    return kept


def _id_of(item: Any) -> str | None:
    found = item.get("id") if isinstance(item, Mapping) else None
    return found if isinstance(found, str) else None


def _moment_in(text: str) -> str:
    """The time that somebody meant; one without an offset is taken for UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        made = aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return _NO_TIME
    return made if is_moment(made) else _NO_TIME

"""The `$` tags: how values that JSON lacks are spelt inside it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pagefile.store.codec.canonical_json import corrupt

TUPLE: Final = "$tuple"
SET: Final = "$set"
FROZENSET: Final = "$frozenset"
ENUM: Final = "$enum"
ENUM_VALUE: Final = "value"
TYPE: Final = "$type"


def escaped(key: str) -> str:
    """A user's key, so that it cannot be taken for a tag."""
    return "$" + key if key.startswith("$") else key


def unescaped(key: str) -> str:
    """The user's key again."""
    return key[1:] if key.startswith("$$") else key


def is_tag(key: str) -> bool:
    """True for a key that only the codec writes."""
    return key.startswith("$") and not key.startswith("$$")


def bytes_text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def datetime_text(value: datetime) -> str:
    moment = value.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def _bytes_from(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _datetime_from(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a stored datetime has a time zone")
    return moment


# Per scalar tag: the text's reader, and the writer that proves the text canonical.
_SCALARS: Final[dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]]] = {
    "$bytes": (_bytes_from, bytes_text),
    "$datetime": (_datetime_from, datetime_text),
    "$date": (date.fromisoformat, date.isoformat),
    "$decimal": (Decimal, str),
    "$uuid": (UUID, str),
}


def is_scalar(tag: str) -> bool:
    """True for the tags whose content is one text."""
    return tag in _SCALARS


def scalar_from(tag: str, text: object) -> Any:
    """The value that a scalar tag's text spells."""
    read, write = _SCALARS[tag]
    if isinstance(text, str):
        # Decimal reports bad text as an ArithmeticError.
        try:
            value = read(text)
            canonical = write(value) == text
        except (ValueError, ArithmeticError):
            canonical = False
        if canonical and (tag != "$decimal" or value.is_finite()):
            return value
    raise corrupt(f"the content of a stored {tag} is damaged")

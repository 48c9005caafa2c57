"""Secrets kept out of what is stored, logged and shown."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final, NoReturn
from uuid import UUID

from pagefile.store.codec.canonical_json import MAX_DEPTH
from pagefile.store.codec.shapes import shape_for

REDACTED: Final = "[redacted]"

_NAMES: Final = frozenset(
    {
        *("key", "keys", "token", "tokens", "secret", "secrets", "password", "passwords"),
        *("authorization", "credential", "credentials", "passwd", "passphrase", "pwd", "cookie"),
    }
)
# Names written as one word, such as apikey; "key" alone would take monkey for one.
_ENDINGS: Final = (
    *("apikey", "apikeys", "accesskey", "secretkey", "privatekey", "signingkey"),
    *("token", "secret", "password", "passwd", "authorization", "credential", "credentials"),
)
# A number under such a name counts tokens, as in max_tokens.
_COUNTS: Final = frozenset({"tokens", "count", "limit", "budget", "max", "min", "total", "used"})
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
_PLAIN: Final = (NoneType, str, int, float, bytes, date, Decimal, UUID, Enum)


class Secret:
    """A value that is used but never shown, stored or copied to another process.

    Its text, repr and format are "[redacted]"; JSON encoders, the codec and
    pickle refuse it. Only `reveal` gives the value.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value. Do not put it where it is stored or logged."""
        return self._value

    def __str__(self) -> str:
        return REDACTED

    def __repr__(self) -> str:
        return f"Secret({REDACTED!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # In a time that says nothing about where they differ.
        mine, theirs = (str(s._value).encode(errors="surrogatepass") for s in (self, other))
        return hmac.compare_digest(mine, theirs)

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: give the other process the secret another way")


def redact(value: Any) -> Any:
    """A deep copy in which "[redacted]" stands for every secret.

    Secrets are `Secret` instances, and whatever stands under a name like key,
    token, password, secret or authorization (`api_key`, `x-api-key` and
    `accessToken` too); numbers that count tokens stay. Objects with fields
    become dicts, sets become lists. What lies too deep, contains itself, or is of an unknown type
    is taken for a secret. Secrets inside longer texts are not looked for.
    """
    return _copy(value, 1, {})


def _copy(value: Any, depth: int, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, Secret):
        return REDACTED
    if isinstance(value, _PLAIN):
        return value
    if depth > MAX_DEPTH:
        return REDACTED
    if id(value) not in copies:
        # What it finds of itself inside itself. The value is held, so that its id stays its own.
        copies[id(value)] = (value, REDACTED)
        copies[id(value)] = (value, _copy_container(value, depth + 1, copies))
    return copies[id(value)][1]


def _copy_container(value: Any, depth: int, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, (list, set, frozenset)):
        items = [_copy(item, depth, copies) for item in value]
        return items if isinstance(value, list) else sorted(items, key=repr)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_copy(item, depth, copies) for item in value)
    fields = _fields_of(value)
    if fields is None:
        return REDACTED
    copy = {}
    for key, item in fields.items():
        shown = key if isinstance(key, _PLAIN) else REDACTED
        copy[shown] = REDACTED if _is_secret(key, item) else _copy(item, depth, copies)
    return copy


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    shape = shape_for(type(value))
    return None if shape is None else shape.read(value)


def _is_secret(key: Any, item: Any) -> bool:
    if isinstance(key, bytes):
        key = key.decode(errors="replace")
    if not isinstance(key, str) or item is None:
        return False
    words = {word.lower() for word in _WORD.findall(key)}
    if words & _COUNTS and isinstance(item, (int, float)):
        return False
    return not words.isdisjoint(_NAMES) or "".join(_WORD.findall(key)).lower().endswith(_ENDINGS)

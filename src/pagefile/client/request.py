"""One call of a route, before anything is sent: what is asked, and how often it may be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.store import clock
from pagefile.store.arguments import require_count

JSON = "application/json"
_encode = msgspec.json.Encoder(decimal_format="string").encode


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `is_safe` changes nothing; `is_exact` is known by its key in the store itself."""

    method: str
    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes | None = None
    is_safe: bool = False
    is_exact: bool = False

    @property
    def has_key(self) -> bool:
        """Whether a repeat is answered as the first one was."""
        return "idempotency-key" in self.headers


def asked(
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    body: Mapping[str, Any] | None = None,
    media: str = "",
    key: str | None = None,
    if_match: int | None = None,
    is_safe: bool = False,
    is_exact: bool = False,
) -> Ask:
    """A request; one that changes something gets a key, so that a repeat is stored once."""
    headers: dict[str, str] = {}
    if body is not None or media:
        headers["content-type"] = media or JSON
    if not is_safe:
        headers["idempotency-key"] = clock.token_hex(16) if key is None else _key(key)
    if if_match is not None:
        number = require_count(if_match, "expected_version")
        headers["if-match"] = f'"{number}"'
    return Ask(
        method=method,
        path=path,
        query=_texts(query or {}),
        headers=headers,
        body=None if body is None else encoded(body),
        is_safe=is_safe,
        is_exact=is_exact,
    )


def encoded(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        Invalid: JSON has no word for something in it.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid("body", f"cannot be written as JSON ({error})", "send plain values") from None


def given(**values: Any) -> dict[str, Any]:
    """What was given: None is left out, so that the server's default holds."""
    return {name: value for name, value in values.items() if value is not None}


def place(template: str, **values: Any) -> str:
    """A path with its names filled in.

    Raises:
        Invalid: a name cannot stand in a path.
    """
    return template.format(**{name: _segment(name, value) for name, value in values.items()})


def _segment(name: str, value: Any) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not text or "/" in text or text in (".", ".."):
        raise Invalid(name, f"{shown(value)} cannot stand in a path", "give a name without a slash")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise Invalid(name, f"{shown(value)} is no text", "give whole characters") from None


def _key(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 200 or not _is_visible(key):
        rule = "give 1 to 200 visible ASCII characters"
        raise Invalid("idempotency_key", shown(key), rule)
    return key


def _is_visible(text: str) -> bool:
    return all("\x21" <= sign <= "\x7e" for sign in text)


def require_header(name: str, text: object) -> str:
    """A text that can be sent in a header; it is not shown when it cannot, it may be a secret."""
    if not isinstance(text, str) or not _is_visible(text):
        raise Invalid(name, "has signs that no header can have", "give visible ASCII characters")
    return text


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: _text(value) for name, value in query.items() if value is not None}
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Invalid(name, f"{shown(text)} is no text", "give whole characters") from None
    return texts


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)

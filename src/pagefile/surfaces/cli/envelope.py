"""An answer or an error as one JSON object, the same fields for every command."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

#: The password in a URL, which no output may show.
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")


def plain(value: Any) -> Any:
    """Structs, moments and bytes as what JSON has; what has no form of its own as text."""
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def encoded(value: Any) -> str:
    """One line of JSON."""
    told = plain(value)
    try:
        return msgspec.json.encode(told).decode()
    except UnicodeEncodeError:  # A name with bytes that are no UTF-8; escapes can hold them.
        return json.dumps(told)


def masked(url: str) -> str:
    """A URL without its password."""
    return _PASSWORD.sub(r"\1:***@", url)


def envelope(
    command: str,
    seconds: float,
    scope: dict[str, Any],
    *,
    data: Any = None,
    count: int = 0,
    status: str = "ok",
    error: dict[str, Any] | None = None,
) -> str:
    """What `--json` prints."""
    told: dict[str, Any] = {
        "status": status,
        "command": command,
        "duration_ms": round(seconds * 1_000, 1),
        "scope": scope,
        "count": count,
        "data": data,
    }
    if error is not None:
        told["error"] = error
    return encoded(told)

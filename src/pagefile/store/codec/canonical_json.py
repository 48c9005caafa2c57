"""The JSON bytes themselves: sorted keys, no white space, UTF-8."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from pagefile.errors import Corrupt
from pagefile.store.codec.decoder import json_decoder

MAX_DEPTH: Final = 100
"""How many containers may stand inside one another."""

# A tuple, the deepest tagged form, takes two JSON levels.
_MAX_JSON_DEPTH: Final = 2 * MAX_DEPTH + 2

_DOLLAR: Final = ord("$")
_BRACKET: Final = ord("[")

encode_json = msgspec.json.Encoder(order="sorted").encode
decode_json = json_decoder(Any).decode

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def corrupt(fact: str) -> Corrupt:
    """The error for a body that `encode` cannot have written."""
    return Corrupt(fact, "stop writing and restore a copy of the store")


def parse(body: bytes) -> Any:
    """The JSON value of a stored body."""
    try:
        return decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise corrupt(f"the stored body is not readable JSON ({error})") from None
    except RecursionError:
        # A caller with little stack left must not be told that its store is damaged.
        if _nesting(body) <= _MAX_JSON_DEPTH:
            raise
        raise too_deep() from None


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a stored body."""
    node = parse(body)
    if type(node) is not dict:
        raise corrupt("the stored body of a typed value is not a JSON object")
    return node


def too_deep() -> Corrupt:
    """The error for a body nested deeper than `encode` writes."""
    return corrupt(f"the stored body is nested deeper than {MAX_DEPTH} levels")


def may_be_too_deep(body: bytes) -> bool:
    """False when the body has too few brackets to pass `MAX_DEPTH`; brackets in text count."""
    # Counting reads every byte in turn; most bodies are short or flat, which is seen faster.
    if len(body) <= 2 * MAX_DEPTH or (_BRACKET not in body and body.rfind(b"{") <= 0):
        return False
    return body.count(b"[") + body.count(b"{") > MAX_DEPTH


def may_have_tags(body: bytes) -> bool:
    """False when no text in the body begins with `$`."""
    # Looking for one byte, given as an int, is many times faster than for two.
    return _DOLLAR in body and b'"$' in body


def depth_of(node: Any) -> int:
    """How many lists and dicts of a JSON value stand inside one another."""
    depth = 0
    level = [node]
    while containers := [item for item in level if type(item) is dict or type(item) is list]:
        depth += 1
        level = [child for item in containers for child in _children(item)]
    return depth


def _children(container: Any) -> Any:
    return container.values() if type(container) is dict else container


def _nesting(body: bytes) -> int:
    deepest = depth = 0
    for match in _STRING_OR_BRACKET.finditer(body):
        first = match.group()[:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest

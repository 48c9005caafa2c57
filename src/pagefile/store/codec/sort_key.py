"""Key values as bytes that sort the way the values do.

A secondary key is a string, a whole number, a truth value, an aware moment,
bytes, or a tuple of these. Its bytes compare like the value: within one type
by value, between types by the tag below, tuples element by element. Engines
compare bytes only; they never learn what a key means.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

from pagefile.errors import Corrupt, Invalid, shown

KeyPart = str | int | bool | datetime | bytes
KeyValue = KeyPart | tuple[KeyPart, ...]

# One byte before each part. The gaps leave room for types still to come.
_FALSE, _TRUE, _INT, _MOMENT, _TEXT, _BYTES = 0x10, 0x11, 0x20, 0x30, 0x40, 0x50
_END = b"\x00"
_ESCAPED_NUL = b"\x00\xff"
# Sorts after every continuation of a prefix: no part starts with it.
AFTER_EVERYTHING = b"\xff"

_OFFSET = 1 << 63
_BIG_ENDIAN = struct.Struct(">Q")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    """The moment as whole microseconds since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(time_us: int) -> datetime:
    """The inverse of `microseconds`."""
    return _EPOCH + timedelta(microseconds=time_us)


def encode(value: KeyValue, field: str = "key") -> bytes:
    """The bytes of a key value; a tuple's bytes start with those of its own prefixes."""
    if type(value) is str:
        return _text(value, field)
    if isinstance(value, tuple):
        if not value:
            raise Invalid(field, "an empty tuple has no order", "give at least one part")
        try:
            return b"".join(
                [
                    # What most parts are; a call for each takes longer than encoding it.
                    b"\x40%b\x00" % part.encode()
                    if type(part) is str and part.isascii() and "\x00" not in part
                    else b"\x20" + _BIG_ENDIAN.pack(part + _OFFSET)
                    if type(part) is int
                    else _part(part, field)
                    for part in value
                ]
            )
        except (Invalid, struct.error):
            # Again, saying which part: naming each beforehand would take longer than encoding it.
            return b"".join(_part(part, f"{field}[{i}]") for i, part in enumerate(value))
    return _part(value, field)


def _text(value: str, field: str) -> bytes:
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise Invalid(field, "holds a lone surrogate", "send valid Unicode text") from None
    return b"\x40" + raw.replace(b"\x00", _ESCAPED_NUL) + _END


def _part(value: object, field: str) -> bytes:
    if type(value) is str:
        return _text(value, field)
    if type(value) is int:
        return b"\x20" + _number(value, field)
    match value:
        case bool():
            return bytes((_TRUE if value else _FALSE,))
        case int():
            return bytes((_INT,)) + _number(value, field)
        case str():
            return _text(value, field)
        case datetime():
            if value.tzinfo is None:
                raise Invalid(field, "is a datetime without a time zone", "attach one, e.g. UTC")
            return bytes((_MOMENT,)) + _number(microseconds(value), field)
        case bytes():
            return bytes((_BYTES,)) + value.replace(b"\x00", _ESCAPED_NUL) + _END
    raise Invalid(
        field,
        f"is of type {type(value).__name__}, which has no defined order",
        "use str, int, bool, an aware datetime, bytes, or a tuple of these",
    )


def _number(value: int, field: str) -> bytes:
    try:
        return _BIG_ENDIAN.pack(value + _OFFSET)
    except struct.error:
        raise Invalid(
            field, f"{shown(value)} does not fit 64 bits", "keep key numbers within 64 bits"
        ) from None


def decode(raw: bytes) -> KeyValue:
    """The value of `encode`'s bytes; one part comes back bare, several as a tuple."""
    parts: list[KeyPart] = []
    at = 0
    while at < len(raw):
        try:
            part, at = _read_part(raw, at)
        except (UnicodeDecodeError, OverflowError):
            raise _damaged(at) from None
        parts.append(part)
    if not parts:
        raise _damaged(0)
    return parts[0] if len(parts) == 1 else tuple(parts)


def _read_part(raw: bytes, at: int) -> tuple[KeyPart, int]:
    tag = raw[at]
    if tag in (_FALSE, _TRUE):
        return tag == _TRUE, at + 1
    if tag in (_INT, _MOMENT) and len(raw) >= at + 9:
        number = _BIG_ENDIAN.unpack_from(raw, at + 1)[0] - _OFFSET
        return (number if tag == _INT else moment(number)), at + 9
    if tag in (_TEXT, _BYTES):
        end = at + 1
        while (end := raw.find(_END, end)) != -1 and raw[end + 1 : end + 2] == b"\xff":
            end += 2
        if end != -1:
            content = raw[at + 1 : end].replace(_ESCAPED_NUL, _END)
            return (content.decode() if tag == _TEXT else content), end + 1
    raise _damaged(at)


def _damaged(at: int) -> Corrupt:
    return Corrupt(f"a stored key is damaged at byte {at}", "stop writing and restore a copy")

"""Structs as the plain JSON values that the store keeps, and back."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from pagefile.errors import Corrupt
from pagefile.records import Document

Shape = TypeVar("Shape", bound=msgspec.Struct)


def plain(value: msgspec.Struct) -> Any:
    """The value with nothing in it but what JSON has."""
    return msgspec.json.decode(msgspec.json.encode(value))


def shaped(document: Document, shape: type[Shape]) -> Shape:
    """What the document holds, a copy of its own.

    Raises:
        Corrupt: it has not this shape.
    """
    try:
        return msgspec.convert(document.value, shape)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"document {document.name!r} is no {shape.__name__} ({error})",
            "something else wrote it: restore it, or delete it",
        ) from error

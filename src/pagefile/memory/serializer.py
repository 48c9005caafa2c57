"""Structs as the plain JSON values that the store keeps, and back; texts fit to be kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from pagefile.errors import Corrupt, Invalid, shown
from pagefile.store.codec.decoder import convert, from_json
from pagefile.store.records import Action, Document, Entry
from pagefile.store.store import Store

Shape = TypeVar("Shape", bound=msgspec.Struct)


def plain(value: msgspec.Struct) -> Any:
    """The value with nothing in it but what JSON has."""
    return msgspec.json.decode(msgspec.json.encode(value))


def living(records: Iterable[Entry | Document]) -> list[Document]:
    """The documents among what was found whose content is still there."""
    return [
        record
        for record in records
        if isinstance(record, Document) and not record.erased and not record.deleted
    ]


def is_kept(store: Store, name: str) -> bool:
    """Whether a document of this name was ever stored and has not been erased."""
    found = store.get(name)
    return found is not None and not found.erased


def shaped(document: Document, shape: type[Shape]) -> Shape:
    """What the document holds, a copy of its own.

    Raises:
        Corrupt: it has not this shape.
    """
    content = document.content
    try:
        # Most bodies have no tags in them, and can be read in one go.
        if (
            content is not None
            and not content.type_name
            and content.action != Action.DELETE
            and b'"$' not in content.body
        ):
            return from_json(content.body, shape)
        return convert(document.value, shape)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"document {document.name!r} is no {shape.__name__} ({error})",
            "something else wrote it: restore it, or delete it",
        ) from error


# Text that can be stored and read again: of the right type, bounded, and valid Unicode.


MOST_SESSION_BYTES = 512


def require_text(field: str, text: object, most: int | None = None) -> str:
    """The text, if every codec can write it; a lone surrogate stands for nothing.

    Raises:
        Invalid: it is none, or longer than `most` characters.
    """
    if type(text) is not str:
        raise Invalid(field, shown(text), "give text")
    if most is not None and len(text) > most:
        raise Invalid(field, f"is {len(text)} characters long", f"give at most {most}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Invalid(field, "is no valid Unicode text", "remove lone surrogates") from None
    return text


def require_session(session_id: object) -> str:
    """The name of a session; it may be empty."""
    text = require_text("session_id", session_id)
    # No character takes more than four bytes.
    if 4 * len(text) > MOST_SESSION_BYTES and len(text.encode()) > MOST_SESSION_BYTES:
        rule = f"give text of at most {MOST_SESSION_BYTES} bytes"
        raise Invalid("session_id", f"is {len(text.encode())} bytes long", rule)
    return text

"""Text that can be stored and read again: of the right type, bounded, and valid Unicode."""

from __future__ import annotations

from pagefile.errors import Invalid, shown

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

"""How memory names and stores its documents: owners, ids, structs as JSON, texts."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from pagefile.errors import Corrupt, Invalid, shown
from pagefile.store import clock
from pagefile.store.arguments import OF_TENANT, Naming
from pagefile.store.batch import Unchanged
from pagefile.store.codec.decoder import convert, from_json
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.records import Action, Document, Entry
from pagefile.store.store import Store

_NAMING = Naming(512)
#: Under these keys, of the whole tenant, stands everything that memory keeps for somebody,
#: and for nobody.
USERS = "memory.user"
NOBODY = "memory.nobody"


@lru_cache(maxsize=8_192)
def owner_key(user_id: str | None) -> str:
    """What stands for a user in the name of a stream; nobody has a bucket of their own."""
    return "anon" if user_id is None else hashlib.sha256(user_id.encode()).hexdigest()[:32]


def users_key(user_id: str | None) -> dict[str, KeyValue]:
    """The tenant's key under which all that memory keeps for this user stands."""
    return {NOBODY: True} if user_id is None else {USERS: user_id}


def unchanged_since(user_id: str | None, position: int) -> Unchanged:
    """The condition that nothing was remembered or forgotten for this user since."""
    ((field, value),) = users_key(user_id).items()
    return Unchanged(field, value, position, everyone=True)


def require_user(user_id: object) -> None:
    """None is the bucket of nobody; the empty string would look like it and is refused.

    So is the name of what belongs to the tenant and to no user.
    """
    if user_id == OF_TENANT:
        raise Invalid("user_id", f"{OF_TENANT!r} is reserved", "give another name")
    if user_id is not None and (type(user_id) is not str or user_id not in _NAMING.known_good):
        _NAMING.check_text("user_id", user_id)


# Ids that sort by the time they were made: a prefix and a ULID.


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_RANDOM_BYTES = _RANDOM_BITS // 8
#: For how many ids bytes are drawn at once: asking the system for each takes longer than the rest.
_DRAWN_AT_ONCE = 128
#: Two characters at a time, from the first of 26 on.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)


class _Last:
    """The last number handed out, and what its source gave and is still to be used."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """As if nothing had been handed out."""
        self.number = 0
        self.drawn = b""
        #: Which source; ids of another do not go on from its last.
        self.era = -1
        #: One that a signal handler which makes an id can take too.
        self.lock = threading.RLock()


_last = _Last()


@functools.cache
def _watch_forks() -> None:
    # Once, and not on import. A child starts anew: counting on from its parent's last would meet
    # it, and its lock may have been taken when it was forked.
    os.register_at_fork(after_in_child=_last.begin_anew)


def new_id(prefix: str = "") -> str:
    """`prefix_` and 26 characters: 48 bits of milliseconds, 80 of chance.

    Each sorts after those that this process made before, within a millisecond
    and when the clock runs backwards too.
    """
    if type(prefix) is not str or (not prefix.isidentifier() and prefix):
        raise Invalid("prefix", shown(prefix), "give letters, digits and _, or nothing")
    number = _next()
    text = "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
    return f"{prefix}_{text}" if prefix else text


def _next() -> int:
    milliseconds = clock.now_us() // 1_000
    _watch_forks()
    with _last.lock:
        era = clock.era()
        if _last.era != era:
            _last.number, _last.drawn, _last.era = 0, b"", era
        if not _last.drawn:
            _last.drawn = clock.random_bytes(_RANDOM_BYTES * _DRAWN_AT_ONCE)
        drawn, _last.drawn = _last.drawn[:_RANDOM_BYTES], _last.drawn[_RANDOM_BYTES:]
        fresh = (milliseconds << _RANDOM_BITS) | int.from_bytes(drawn, "big")
        if fresh <= _last.number:
            fresh = _last.number + 1
        _last.number = fresh
    return fresh


# Structs as the plain JSON values that the store keeps, and back; texts fit to be kept.


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

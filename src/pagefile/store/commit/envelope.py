"""What stands around a body: user, kind, actor, sources, keys, notes; checked and packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile.errors import Invalid, LimitExceeded
from pagefile.store.arguments import Naming
from pagefile.store.batch import NO_KEYS, Append
from pagefile.store.codec import sort_key
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.engine import IndexKey, Limits, Scope
from pagefile.store.records import Action, keys_to_bytes, mapping_to_bytes, pack

#: How many envelopes are remembered; they repeat from commit to commit.
_MOST_KEPT = 16_384
_APPEND = Action.APPEND
_NO_NAME = pack("")
#: How the packed envelope of an append begins; the packed name of its log is next.
HEAD = pack((_APPEND, *[""] * 9))[:2]


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What stands around a body, checked; the same for every log that it may go into."""

    user: str | None
    kind: str
    actor: str
    sources: tuple[str, ...]
    keys: tuple[IndexKey, ...]
    raw_keys: bytes
    notes: bytes
    #: What the digest covers after the name of the log, which has `HEAD` before it.
    tail: bytes


class Envelopes:
    """Makes envelopes under one set of limits, and remembers those it made."""

    def __init__(self, limits: Limits, naming: Naming) -> None:
        self._limits = limits
        self.naming = naming
        self._known: dict[tuple[Any, ...], Envelope] = {}

    def of(self, op: Append, type_name: str) -> Envelope:
        """What goes around the body; most are like one before, which was checked."""
        op_keys = op.keys
        words = None if op.sources else _words_of(op, type_name)
        if words is not None:
            try:
                known = self._known.get(words)
            except TypeError:  # Something that is no text; the checks below say what.
                words = known = None
            if known is not None:
                return known
        sources = self.check(op.user, op.kind, op.actor, op.sources)
        keys: tuple[IndexKey, ...] = ()
        raw_keys = b""
        if op_keys:
            keys, raw_keys = self.index("log", op_keys, NO_KEYS), keys_to_bytes(op_keys)
        notes = self.notes(op.notes) if op.notes else b""
        packed = pack(
            (_APPEND, "", op.user, op.kind, op.actor, sources, raw_keys, b"", notes, type_name)
        )
        tail = packed[len(HEAD) + len(_NO_NAME) :]
        made = Envelope(op.user, op.kind, op.actor, sources, keys, raw_keys, notes, tail)
        if words is not None and _may_be_kept(op):
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            self._known[words] = made
        return made

    def notes(self, notes: object) -> bytes:
        """Notes as they are stored."""
        if not isinstance(notes, Mapping):
            raise Invalid("notes", "is no mapping", "give a dict of JSON values")
        raw = mapping_to_bytes(notes)
        if len(raw) > self._limits.notes_bytes:
            raise LimitExceeded(
                "the bytes of one record's notes",
                limit=self._limits.notes_bytes,
                wanted=len(raw),
                next_step="put long text into the value, or into a document",
            )
        return raw

    def index_key(self, scope: Scope, field: str, value: KeyValue) -> IndexKey:
        """One secondary key as bytes."""
        if type(field) is not str or field not in self.naming.known_good:
            self.naming.check_text("keys", field)
        raw = sort_key.encode(value, f"keys.{field}")
        if len(raw) > self._limits.key_bytes:
            raise Invalid(
                f"keys.{field}",
                f"is {len(raw)} bytes long",
                f"keep key values within {self._limits.key_bytes} bytes",
            )
        return IndexKey(scope, field, raw)

    def check(
        self, user: str | None, kind: str, actor: str, sources: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Refuse what cannot be an envelope; return the sources as a tuple."""
        known = self.naming.known_good
        # The types first: what is no plain str may not even be looked up.
        if user is not None and (type(user) is not str or user not in known):
            self.naming.check_text("user", user)
        if type(kind) is not str or (kind and kind not in known):
            self.naming.check_text("kind", kind, may_be_empty=True)
        if type(actor) is not str or (actor and actor not in known):
            self.naming.check_text("actor", actor, may_be_empty=True)
        return self._sources(sources) if sources else ()

    def _sources(self, sources: tuple[str, ...]) -> tuple[str, ...]:
        if not isinstance(sources, (tuple, list)):
            raise Invalid("sources", f"is of type {type(sources).__name__}", "give a tuple of str")
        if len(sources) > self._limits.sources:
            raise LimitExceeded(
                "the number of sources",
                limit=self._limits.sources,
                wanted=len(sources),
                next_step="point to fewer, or to a record that lists them",
            )
        for i, source in enumerate(sources):
            if type(source) is not str or source not in self.naming.known_good:
                self.naming.check_text(f"sources[{i}]", source)
        return tuple(sources)

    def index(
        self, scope: Scope, keys: Mapping[str, KeyValue], tenant_keys: Mapping[str, KeyValue]
    ) -> tuple[IndexKey, ...]:
        """The secondary keys of one record, as bytes."""
        if not type(keys) is type(tenant_keys) is dict and not (
            isinstance(keys, Mapping) and isinstance(tenant_keys, Mapping)
        ):
            raise Invalid("keys", "is no mapping", "give a dict of field to value")
        if len(keys) + len(tenant_keys) > self._limits.keys:
            raise LimitExceeded(
                "the number of keys of one record",
                limit=self._limits.keys,
                wanted=len(keys) + len(tenant_keys),
                next_step="declare fewer keys",
            )
        known, most, encode = self.naming.known_good, self._limits.key_bytes, sort_key.encode
        found: list[IndexKey] = []
        for where, mapping in ((scope, keys), ("tenant", tenant_keys)):
            for field, value in mapping.items():
                try:
                    raw = encode(value)
                except Invalid:
                    raw = b""
                if not 0 < len(raw) <= most or type(field) is not str or field not in known:
                    # In the words of what is wrong with it, if anything is.
                    found.append(self.index_key(where, field, value))
                else:
                    found.append(IndexKey(where, field, raw))
        return tuple(found)


def _words_of(op: Append, type_name: str) -> tuple[Any, ...] | None:
    """What tells an envelope from others; None for one that is too long to look for."""
    keys, notes = op.keys, op.notes
    if type(keys) is not dict or type(notes) is not dict or len(keys) > 1 or len(notes) > 1:
        return None
    words = (op.user, op.kind, op.actor, type_name, *keys, *keys.values())
    if notes:
        # With its type: 1, 1.0 and True would pass for one another.
        for note, value in notes.items():
            words = (*words, note, type(value), value)
    return words


def _may_be_kept(op: Append) -> bool:
    """Whether nothing that is not the same looks up as the same."""
    return all(map(_is_text, op.keys.values())) and all(
        type(value) is bool or type(value) is str for value in op.notes.values()
    )


def _is_text(value: object) -> bool:
    """Text, or a tuple of it: in a lookup, 1, 1.0 and True would pass for one another."""
    if type(value) is tuple:
        return all(type(part) is str for part in value)
    return type(value) is str

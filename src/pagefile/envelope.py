"""What stands around a body: user, kind, actor, sources, keys, notes; checked and packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile import ordering
from pagefile.batch import NO_KEYS, Append
from pagefile.content import Action, keys_to_bytes, mapping_to_bytes, pack
from pagefile.engine import IndexKey, Limits, Scope
from pagefile.errors import Invalid, LimitExceeded
from pagefile.naming import Naming
from pagefile.ordering import KeyValue

#: How many envelopes are remembered; they repeat from commit to commit.
_MOST_KEPT = 16_384
_APPEND = Action.APPEND


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What stands around a body, checked and packed for its digest."""

    user: str | None
    kind: str
    actor: str
    sources: tuple[str, ...]
    keys: tuple[IndexKey, ...]
    raw_keys: bytes
    notes: bytes
    packed: bytes


class Envelopes:
    """Makes envelopes under one set of limits, and remembers those it made."""

    def __init__(self, limits: Limits, naming: Naming) -> None:
        self._limits = limits
        self.naming = naming
        self._known: dict[tuple[Any, ...], Envelope] = {}
        #: The same without the log's name: logs come and go, what goes into them repeats.
        self._alike: dict[tuple[Any, ...], Envelope] = {}

    def of(self, op: Append, type_name: str) -> Envelope:
        """What goes around the body; most are like one before, which was checked."""
        words: tuple[Any, ...] | None = None
        if not op.sources and not op.notes and type(op.keys) is dict and len(op.keys) < 2:
            words = (op.log, op.user, op.kind, op.actor, type_name, *op.keys, *op.keys.values())
            try:
                known = self._known.get(words)
            except TypeError:  # Something that is no text; the checks below say what.
                words = known = None
            if known is not None:
                return known
            alike = None if words is None else self._alike.get(words[1:])
            if alike is not None and words is not None:
                made = self._for_log(op.log, alike, type_name)
                self._keep(words, made)
                return made
        sources = self.check(op.user, op.kind, op.actor, op.sources)
        keys: tuple[IndexKey, ...] = ()
        raw_keys = b""
        if op.keys:
            keys, raw_keys = self.index("log", op.keys, NO_KEYS), keys_to_bytes(op.keys)
        notes = self.notes(op.notes) if op.notes else b""
        packed = pack(
            (_APPEND, op.log, op.user, op.kind, op.actor, sources, raw_keys, b"", notes, type_name)
        )
        made = Envelope(op.user, op.kind, op.actor, sources, keys, raw_keys, notes, packed)
        if words is not None and all(map(_is_text, op.keys.values())):
            if len(self._alike) >= _MOST_KEPT:
                self._alike.clear()
            self._alike[words[1:]] = made
            self._keep(words, made)
        return made

    def _for_log(self, log: str, alike: Envelope, type_name: str) -> Envelope:
        """What was checked for another log, packed for this one."""
        user, kind, actor, raw_keys = alike.user, alike.kind, alike.actor, alike.raw_keys
        packed = pack((_APPEND, log, user, kind, actor, (), raw_keys, b"", b"", type_name))
        return Envelope(user, kind, actor, (), alike.keys, raw_keys, b"", packed)

    def _keep(self, words: tuple[Any, ...], made: Envelope) -> None:
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[words] = made

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
        raw = ordering.encode(value, f"keys.{field}")
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
        if not isinstance(keys, Mapping) or not isinstance(tenant_keys, Mapping):
            raise Invalid("keys", "is no mapping", "give a dict of field to value")
        if len(keys) + len(tenant_keys) > self._limits.keys:
            raise LimitExceeded(
                "the number of keys of one record",
                limit=self._limits.keys,
                wanted=len(keys) + len(tenant_keys),
                next_step="declare fewer keys",
            )
        found = [self.index_key(scope, field, value) for field, value in keys.items()]
        found += [self.index_key("tenant", field, value) for field, value in tenant_keys.items()]
        return tuple(found)


def _is_text(value: object) -> bool:
    """Text, or a tuple of it: in a lookup, 1, 1.0 and True would pass for one another."""
    if type(value) is tuple:
        return all(type(part) is str for part in value)
    return type(value) is str

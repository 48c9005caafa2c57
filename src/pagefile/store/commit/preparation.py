"""From what a caller asks to what an engine stores: checked, encoded, salted, digested."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from pagefile.errors import Invalid, LimitExceeded, shown
from pagefile.store import codec
from pagefile.store.arguments import Naming, require_count, require_flag, require_type
from pagefile.store.batch import (
    NO_KEYS,
    Absent,
    Append,
    Batch,
    Condition,
    CountBelow,
    CreatedAt,
    Delete,
    Drop,
    Fork,
    LengthBelow,
    LengthIs,
    Prune,
    Put,
    Selector,
    Unchanged,
    Vector,
    VersionIs,
)
from pagefile.store.codec import sort_key
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.codec.vector import no_vectors, require_vector
from pagefile.store.commit.erasure import require_selectors
from pagefile.store.commit.idempotency import made_key, position_before, stored_key
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    IndexKey,
    Limits,
    Lone,
    Prepared,
    Requirement,
    Scope,
    Write,
)
from pagefile.store.records import (
    SALT_BYTES,
    Action,
    Content,
    digest_of,
    keys_to_bytes,
    mapping_to_bytes,
    pack,
)

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


#: Numbers below this one need no closer look.
_COMMON = 2**32


class Requirements:
    """Makes requirements under one set of limits."""

    def __init__(self, naming: Naming, envelopes: Envelopes) -> None:
        self._naming = naming
        self._envelopes = envelopes

    def of(self, condition: object, at: int) -> Requirement:
        """What the condition at this place of `Batch.when` requires."""
        if type(condition) is VersionIs:  # Most are.
            return self._numbered("version", "document", condition.document, condition.version)
        if type(condition) is Absent:  # Of what is remembered, one each.
            return self._numbered("absent", "document", condition.document, 0)
        match condition:
            case VersionIs(document, version):
                return self._numbered("version", "document", document, version)
            case Absent(document):
                return self._numbered("absent", "document", document, 0)
            case LengthIs(log, length):
                return self._numbered("length", "log", log, length)
            case LengthBelow(log, limit):
                return self._numbered("below", "log", log, limit)
            case CreatedAt(log, position):
                return self._numbered("created", "log", log, position)
            case CountBelow(field, value, limit, user, everyone):
                require_flag("when.everyone", everyone)
                return self._keyed("count", field, value, limit, user if not everyone else ...)
            case Unchanged(field, value, since, user, everyone):
                require_flag("when.everyone", everyone)
                return self._keyed("unchanged", field, value, since, user if not everyone else ...)
        raise Invalid(
            f"when[{at}]",
            f"is of type {type(condition).__name__}, which is no condition",
            "use VersionIs, Absent, LengthIs, LengthBelow, CreatedAt, CountBelow or Unchanged",
        )

    def _numbered(self, what: Any, field: str, name: object, number: object) -> Requirement:
        if type(name) is not str or name not in self._naming.known_good:
            self._naming.check_text(field, name)
        if type(number) is not int or not 0 <= number < _COMMON:
            require_count(number, f"when.{what}")
        return Requirement(what, name, number)  # type: ignore[arg-type]  # Checked above.

    def _keyed(
        self, what: Any, field: str, value: KeyValue, number: object, user: Any
    ) -> Requirement:
        everyone = user is ...
        if not everyone:
            self._naming.check_user(user)
        key = self._envelopes.index_key("tenant" if everyone else "user", field, value)
        wanted = require_count(number, f"when.{what}")
        return Requirement(what, "", wanted, key, None if everyone else user)


_SALTS_AT_ONCE = 256

_NOTHING: Any = object()


class _Giving:
    """One batch may be committed by several threads at once, and must get one key."""

    #: One that a signal handler which commits can take too.
    lock = threading.RLock()


@functools.cache
def _watch_forks() -> None:
    # Once, and not on import. A child that is forked while a thread of its parent gives a key
    # would find the lock taken for ever.
    os.register_at_fork(after_in_child=lambda: setattr(_Giving, "lock", threading.RLock()))


#: Microseconds since 1970 UTC; the machine's, or a script's.
Clock = Callable[[], int]
#: That many unguessable bytes; the machine's, or a script's.
Entropy = Callable[[int], bytes]


class Preparer:
    """Prepares batches under one set of limits."""

    def __init__(self, limits: Limits, entropy: Entropy) -> None:
        _watch_forks()
        self._limits = limits
        self._entropy = entropy
        self._salts: list[bytes] = []
        self.naming = Naming(limits.name_bytes)
        #: Whether entries may bring vectors: what the engine behind the store says.
        self.takes_vectors: Callable[[], bool] = _never
        self.envelopes = Envelopes(limits, self.naming)
        self._requirements = Requirements(self.naming, self.envelopes)
        self._steps: dict[type, Callable[[Any, bytes], Write]] = {
            Put: self._put,
            Delete: self._delete,
            Fork: self._fork,
            Drop: self._drop,
            Prune: self._prune,
        }

    def prepare(self, batch: Batch, reached: int) -> Prepared:
        """The batch as an engine takes it; fills in `batch.key` when it has none.

        `reached` is a position the tenant is known to have reached.

        Raises:
            Invalid, LimitExceeded: nothing was stored, nothing was sent.
        """
        if type(batch) is not Batch:
            require_type("batch", batch, Batch)
        operations = batch.operations
        if type(operations) is not list and not isinstance(operations, tuple):
            raise Invalid("operations", f"is of type {type(operations).__name__}", "give a list")
        count = len(operations)
        if not 0 < count <= self._limits.batch_operations:
            raise self._wrong_count(count)
        writes: list[Write] = []
        #: What the last append encoded: one message often goes into two logs.
        last: list[Any] = [_NOTHING, "", b""]
        at = 0
        while at < count:
            operation = operations[at]
            if type(operation) is Append:
                write = self._append_run(operations, at, last)
                at += len(write.contents)
            else:
                write = self._single(operation, at)
                at += 1
            writes.append(write)
        if count > 1:
            self._check_size(writes)
        when = self._required(batch.when) if batch.when != () else ()
        key = batch.key
        if not key:
            made = made_key(reached, self._salt())
            key = _give_key(batch, made)
            if key is made:
                return Prepared(key, writes, when, self._limits, reached)
        elif type(key) is not str or key not in self.naming.known_good:
            self.naming.check_text("key", key)
        if key[:1] != "~":
            return Prepared(stored_key(key), writes, when, self._limits)
        return Prepared(key, writes, when, self._limits, position_before(key))

    def prepare_lone(self, batch: Batch, reached: int) -> Lone | None:
        """The batch, when it is one append and nothing else, with its key filled in.

        Raises:
            Invalid, LimitExceeded: nothing was stored, nothing was sent.
        """
        if type(batch) is not Batch or batch.key or batch.when != ():
            return None
        operations = batch.operations
        if type(operations) is not list or len(operations) != 1:
            return None
        operation = operations[0]
        if type(operation) is not Append or operation.vector is not None:
            return None
        one = self.prepare_one(operation, reached)
        # Another thread may be committing the same batch, and have given it its key.
        return one if _give_key(batch, one.key) is one.key else None

    def prepare_one(self, op: Append, reached: int) -> Lone:
        """A single append without conditions, under a key that nobody else has.

        Raises:
            Invalid, LimitExceeded: nothing was stored, nothing was sent.
        """
        if type(op) is not Append:
            require_type("operation", op, Append)
        log, limits, most = op.log, self._limits, op.limit
        if op.vector is not None:
            raise no_vectors()  # Engines that take a single append so keep none.
        name = self.naming.packed("log", log)
        if most is None:
            most = limits.log_entries
        elif type(most) is not int or not 0 <= most <= limits.log_entries:
            most = min(require_count(most, "limit"), limits.log_entries)
        type_name, body = codec.encode(op.value)
        if len(body) > limits.entry_bytes:
            raise self._entry_too_large(body)
        envelope = self.envelopes.of(op, type_name)
        salt = self._salt()
        content = Content(
            _APPEND,
            envelope.user,
            envelope.kind,
            envelope.actor,
            envelope.sources,
            envelope.raw_keys,
            b"",
            envelope.notes,
            type_name,
            body,
            salt,
        )
        digest = sha256(salt + HEAD + name + envelope.tail + body).digest()
        key = made_key(reached, self._salt())
        return Lone(log, content, digest, envelope.keys, most, limits, key, reached)

    def _append_run(self, operations: Sequence[Any], start: int, last: list[Any]) -> Write:
        """The appends from `start` on that go to the same log, prepared together."""
        first: Append = operations[start]
        log, limit, limits = first.log, first.limit, self._limits
        head = HEAD + self.naming.packed("log", log)
        if limit is not None and not (type(limit) is int and 0 <= limit <= limits.log_entries):
            require_count(limit, "limit")
        contents: list[Content] = []
        digests: list[bytes] = []
        keys: list[Sequence[IndexKey]] = []
        vectors: list[Vector | None] = []
        count, salts = len(operations), self._salts
        at, op = start, first
        while True:
            value = op.value
            if value is last[0]:
                type_name, body = last[1], last[2]
            else:
                type_name, body = codec.encode(value)
                if len(body) > limits.entry_bytes:
                    raise self._entry_too_large(body)
                last[:] = value, type_name, body
            envelope = self.envelopes.of(op, type_name)
            if envelope.keys:
                keys += [()] * (len(contents) - len(keys))
                keys.append(envelope.keys)
            if op.vector is not None:
                vectors += [None] * (len(contents) - len(vectors))
                vectors.append(self._vector(op.vector))
            try:
                salt = salts.pop()
            except IndexError:
                salt = self._salt()
            contents.append(
                Content(
                    _APPEND,
                    envelope.user,
                    envelope.kind,
                    envelope.actor,
                    envelope.sources,
                    envelope.raw_keys,
                    b"",
                    envelope.notes,
                    type_name,
                    body,
                    salt,
                )
            )
            digests.append(sha256(salt + head + envelope.tail + body).digest())
            at += 1
            if at == count:
                break
            op = operations[at]
            if type(op) is not Append or op.log != log or op.limit != limit:
                break
        if keys:
            keys += [()] * (len(contents) - len(keys))
        return Write(_APPEND, LOG, log, contents, digests, keys, limit, vectors=vectors)

    def _vector(self, vector: Vector) -> Vector:
        if type(vector) is not Vector:
            require_type("vector", vector, Vector)
        if not self.takes_vectors():
            raise no_vectors()
        return require_vector(vector)

    def _single(self, operation: object, at: int) -> Write:
        step = self._steps.get(type(operation))
        if step is None:
            raise Invalid(
                f"operations[{at}]",
                f"is of type {type(operation).__name__}, which is no operation",
                "use Append, Put, Delete, Fork, Drop or Prune",
            )
        return step(operation, self._salt())

    def _check_size(self, writes: Sequence[Write]) -> None:
        size_bytes = sum(len(content.body) for write in writes for content in write.contents)
        if size_bytes > self._limits.batch_bytes:
            raise LimitExceeded(
                "the bytes of one batch",
                limit=self._limits.batch_bytes,
                wanted=size_bytes,
                next_step="split it into several commits",
            )

    def _entry_too_large(self, body: bytes) -> LimitExceeded:
        return LimitExceeded(
            "the bytes of one entry",
            limit=self._limits.entry_bytes,
            wanted=len(body),
            next_step="store a reference to the content, or raise the limit",
        )

    def prepare_erasure(
        self, selectors: Sequence[Selector], beside: Batch | None, reached: int, *, rehearse: bool
    ) -> Prepared:
        """The batch that erases what the selectors name, after the operations beside it."""
        require_selectors(selectors, self.naming)
        erasure = Write(Action.ERASE, LOG, "", selectors=tuple(selectors), rehearse=rehearse)
        if beside is None or rehearse:
            key = made_key(reached, self._salt())
            return Prepared(key, (erasure,), (), self._limits, reached)
        if beside.operations in ([], ()):
            # Something happens all the same: what it depends on counts.
            key = made_key(reached, self._salt())
            when = self._required(beside.when)
            return Prepared(key, (erasure,), when, self._limits, reached)
        prepared = self.prepare(beside, reached)
        return msgspec.structs.replace(prepared, writes=(*prepared.writes, erasure))

    def _required(self, when: Sequence[Condition]) -> Sequence[Requirement]:
        if not isinstance(when, (list, tuple)):
            raise Invalid("when", f"is of type {type(when).__name__}", "give a list")
        return [self._requirements.of(condition, i) for i, condition in enumerate(when)]

    def _salt(self) -> bytes:
        try:
            return self._salts.pop()
        except IndexError:
            # A system call for each salt would cost more than the digest it goes into.
            wanted = _SALTS_AT_ONCE * SALT_BYTES
            drawn = self._entropy(wanted)
            if type(drawn) is not bytes or len(drawn) != wanted:
                given = f"{len(drawn)} bytes" if type(drawn) is bytes else shown(drawn)
                raise Invalid(
                    "entropy", f"gave {given}", f"give {wanted} bytes, as asked"
                ) from None
            blocks = range(0, len(drawn), SALT_BYTES)
            self._salts.extend(drawn[at : at + SALT_BYTES] for at in blocks)
            return self._salts.pop()

    def _wrong_count(self, count: int) -> Exception:
        if count == 0:
            return Invalid("operations", "the batch is empty", "give at least one operation")
        return LimitExceeded(
            "the number of operations in one batch",
            limit=self._limits.batch_operations,
            wanted=count,
            next_step="split it into several commits",
        )

    def _put(self, op: Put, salt: bytes) -> Write:
        if type(op.document) is not str or op.document not in self.naming.known_good:
            self.naming.check_text("document", op.document)
        sources = self.envelopes.check(op.user, op.kind, op.actor, op.sources)
        type_name, body = codec.encode(op.value)
        if len(body) > self._limits.entry_bytes:
            raise self._entry_too_large(body)
        keys = self.envelopes.index("user", op.keys, op.tenant_keys)
        content = Content(
            Action.PUT,
            op.user,
            op.kind,
            op.actor,
            sources,
            keys_to_bytes(op.keys),
            keys_to_bytes(op.tenant_keys),
            self.envelopes.notes(op.notes) if op.notes else b"",
            type_name,
            body,
            salt,
        )
        digest = digest_of(op.document, content)
        return Write(
            Action.PUT, DOCUMENT, op.document, (content,), (digest,), (keys,) if keys else ()
        )

    def _delete(self, op: Delete, salt: bytes) -> Write:
        self.naming.check_text("document", op.document)
        self.naming.check_text("actor", op.actor, may_be_empty=True)
        content = Content(Action.DELETE, None, "", op.actor, (), b"", b"", b"", "", b"", salt)
        return Write(
            Action.DELETE, DOCUMENT, op.document, (content,), (digest_of(op.document, content),)
        )

    def _fork(self, op: Fork, salt: bytes) -> Write:
        self.naming.check_text("log", op.log)
        self.naming.check_text("base", op.base)
        if op.at is not None:
            require_count(op.at, "fork.at")
        return Write(Action.FORK, LOG, op.log, base=op.base, number=op.at, salt=salt)

    def _drop(self, op: Drop, salt: bytes) -> Write:
        self.naming.check_text("log", op.log)
        return Write(Action.DROP, LOG, op.log)

    def _prune(self, op: Prune, salt: bytes) -> Write:
        if (op.log is None) == (op.document is None):
            raise Invalid("prune", "names no stream, or two", "give either log or document")
        if op.before is not None:
            require_count(op.before, "prune.before")
        kind, name = (LOG, op.log) if op.log is not None else (DOCUMENT, op.document)
        self.naming.check_text(kind, name)
        assert name is not None
        return Write(Action.PRUNE, kind, name, number=op.before)


def _never() -> bool:
    return False


def _give_key(batch: Batch, made: str) -> str:
    """The batch's own key from now on, also for other threads that commit it."""
    with _Giving.lock:
        batch.key = batch.key or made
        return batch.key

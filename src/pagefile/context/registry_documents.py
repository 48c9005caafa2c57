"""The documents behind a registry, each read together with the condition that it stays so.

    path/<thread id>         where the thread stands; in its user's partition
    chain/<digest of names>  which thread a path made by names alone belongs to
    registry/root            the system's root, and its thread
    registry/table/<digest>  the root of the table of that name, and its thread

The last three are pointers: they count only while their thread stands where they say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from pagefile.context.names import PATHS, log_of
from pagefile.context.path import SYSTEM, Path
from pagefile.errors import Corrupt, NotFound, shown
from pagefile.store.batch import (
    Absent,
    Condition,
    Delete,
    Drop,
    LengthIs,
    Operation,
    Prune,
    Put,
    VersionIs,
)
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store

Shape = TypeVar("Shape", bound=msgspec.Struct)
#: Operations, and the conditions they depend on.
Changes = tuple[list[Operation], list[Condition]]

CHAINS = "chain/"
ROOT = "registry/root"
TABLES = "registry/table/"
#: The key under which the threads of one conversation are found together.
CONVERSATION = "conversation"


class Activation(msgspec.Struct, frozen=True):
    """A thread as it was read. `path` is None when it is not registered."""

    thread: str
    path: Path | None
    user: str | None
    unchanged: Condition


class Pointer(msgspec.Struct, frozen=True):
    """Which thread stands at these names."""

    names: tuple[str, ...]
    thread: str


class Mark(msgspec.Struct, frozen=True):
    """A pointer as it was read. `pointer` is None when there is none that counts."""

    document: str
    pointer: Pointer | None
    unchanged: Condition


class Meant:
    """The activation that a call is about, whatever else its id stands for by the next attempt."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def another(self, path: Path) -> bool:
        """True when this is not the one that was met first."""
        if self._path is None:
            self._path = path
        return self._path != path


def unknown(thread_id: str) -> NotFound:
    """The refusal of a thread that is not registered."""
    return NotFound(
        f"thread {shown(thread_id)} is not registered",
        "register_thread it first; it may have been released",
    )


def chain_document(names: Sequence[str]) -> str:
    """Where the owner of a path made by names alone is written."""
    return CHAINS + hashlib.sha256(msgspec.json.encode(names)).hexdigest()


def root_document(name: str) -> str:
    """Where the owner of a root is written, whose first name is given."""
    # A digest, because a table's name may be as long as a document's.
    return ROOT if name == SYSTEM else TABLES + hashlib.sha256(name.encode()).hexdigest()


def activation(store: Store, thread_id: str) -> Activation:
    """Where the thread stands now."""
    value, user, unchanged = _look(store, PATHS + thread_id)
    path = None if value is None else _shaped(PATHS + thread_id, value, Path)
    return Activation(thread_id, path, user, unchanged)


def mark(store: Store, document: str) -> Mark:
    """What the pointer says now, if its thread stands there."""
    value, _, unchanged = _look(store, document)
    if value is None:
        return Mark(document, None, unchanged)
    pointer = _shaped(document, value, Pointer)
    path = activation(store, pointer.thread).path
    holds = path is not None and path.names == pointer.names and path.conversation is None
    return Mark(document, pointer if holds else None, unchanged)


def root(store: Store, name: str) -> Mark:
    """The root whose first name is given: "system", or a table's."""
    return mark(store, root_document(name))


def put_path(thread_id: str, path: Path, user: str | None = None) -> Put:
    """Write where a thread stands."""
    told = {CONVERSATION: path.conversation} if path.conversation is not None else {}
    return Put(PATHS + thread_id, _plain(path), user=user, kind="path", tenant_keys=told)


def put_pointer(document: str, path: Path, thread_id: str) -> Put:
    """Write which thread stands there."""
    return Put(document, _plain(Pointer(path.names, thread_id)), kind="pointer")


def release(store: Store, seen: Activation, *, with_log: bool) -> Changes:
    """What frees a thread: its path, the pointers that are its own, and its log if asked."""
    assert seen.path is not None
    operations: list[Operation] = [Delete(PATHS + seen.thread)]
    when: list[Condition] = [seen.unchanged]
    for document in _pointers_to(seen.path):
        found = mark(store, document)
        # A pointer that names another thread is its new owner's.
        if found.pointer is not None and found.pointer.thread == seen.thread:
            operations.append(Delete(document))
            when.append(found.unchanged)
    if with_log:
        log = log_of(seen.thread)
        if store.names("log", prefix=log, limit=1) == [log]:
            operations += [Prune(None, log=log), Drop(log)]
        else:
            when.append(LengthIs(log, 0))
    return operations, when


def _plain(value: Path | Pointer) -> dict[str, Any]:
    return {**msgspec.structs.asdict(value), "names": list(value.names)}


def _pointers_to(path: Path) -> list[str]:
    if path.conversation is not None:
        return []
    documents = [chain_document(path.names)]
    if path.is_root:
        documents.append(root_document(path.names[0]))
    return documents


def _look(store: Store, document: str) -> tuple[Any, str | None, Condition]:
    found = store.get(document)
    if found is None:
        return None, None, Absent(document)
    unchanged = VersionIs(document, found.version)
    return (None, None, unchanged) if found.erased else (found.value, found.user, unchanged)


def _shaped(document: str, value: Any, shape: type[Shape]) -> Shape:
    try:
        return convert(value, shape)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"document {document!r} is no {shape.__name__.lower()} ({error})",
            "something else wrote it: restore it, or delete it",
        ) from error

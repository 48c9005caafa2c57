"""Paths that are known by their names: whose they are, and what makes them somebody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from pagefile.context import registry_documents
from pagefile.context.names import PATHS
from pagefile.context.path import ROOT_NAMES, SYSTEM, Path, text_of
from pagefile.errors import Invalid
from pagefile.store.batch import Absent, Condition, Operation
from pagefile.store.store import Store


class Claim(msgspec.Struct, frozen=True):
    """Whose the path is once `operations` are committed; it is already when there are none."""

    thread: str
    operations: list[Operation]
    when: list[Condition]


def claim(store: Store, names: tuple[str, ...], new_id: Callable[[], str]) -> Claim:
    """The thread of a path made by names alone."""
    chain = registry_documents.mark(store, registry_documents.chain_document(names))
    if chain.pointer is not None:
        return Claim(chain.pointer.thread, [], [chain.unchanged])
    made = new_id()
    root = registry_documents.root(store, names[0])
    is_below = root.pointer is not None and root.pointer.names == names[:ROOT_NAMES]
    path = Path(names, root=root_kind(names) if is_below else "")
    return Claim(
        made,
        [
            registry_documents.put_path(made, path),
            registry_documents.put_pointer(chain.document, path, made),
        ],
        [chain.unchanged, root.unchanged, Absent(PATHS + made)],
    )


def claim_root(
    store: Store, names: tuple[str, ...], field: str, new_id: Callable[[], str]
) -> Claim:
    """The thread of a root; a path made earlier by the same names becomes it.

    Raises:
        Invalid: the root has another name.
    """
    root = registry_documents.root(store, names[0])
    if root.pointer is not None:
        if root.pointer.names != names:
            raise Invalid(
                field,
                f"the root is {text_of(root.pointer.names)} already",
                "use that name, or clear() the registry to start over",
            )
        return Claim(root.pointer.thread, [], [root.unchanged])
    chain = registry_documents.mark(store, registry_documents.chain_document(names))
    if chain.pointer is None:
        thread_id = new_id()
        seen: Condition = Absent(PATHS + thread_id)
    else:
        thread_id = chain.pointer.thread
        seen = registry_documents.activation(store, thread_id).unchanged
    path = Path(names, root=root_kind(names))
    return Claim(
        thread_id,
        [
            registry_documents.put_path(thread_id, path),
            registry_documents.put_pointer(chain.document, path, thread_id),
            registry_documents.put_pointer(root.document, path, thread_id),
        ],
        [root.unchanged, chain.unchanged, seen],
    )


def root_kind(names: tuple[str, ...]) -> Literal["system", "table", ""]:
    """What the names of a root say it is; no names are no root."""
    if not names:
        return ""
    return "system" if names[0] == SYSTEM else "table"

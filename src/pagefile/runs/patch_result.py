"""What became of a patch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pagefile.errors import Corrupt
from pagefile.store.records import Document

WorkingSet = dict[str, Any]


class PatchResult:
    """`ok`, or why not; true when it is. `code` is the error's, the same on every surface."""

    __slots__ = ("_made", "_ws", "code", "error", "evicted", "ok")

    def __init__(
        self,
        ok: bool,
        ws: WorkingSet | None = None,
        evicted: Sequence[dict[str, Any]] = (),
        error: str | None = None,
        code: str | None = None,
    ) -> None:
        self.ok = ok
        self.evicted = tuple(copy_of(item) for item in evicted)
        self.error = error
        self.code = code
        self._made = ws
        self._ws: WorkingSet | None = None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def new_ws(self) -> WorkingSet | None:
        """The working set that resulted: a copy of your own, made when you ask for it."""
        if self._ws is None and self._made is not None:
            self._ws = copy_of(self._made)
        return self._ws

    def __repr__(self) -> str:
        if self.ok:
            return f"<PatchResult ok, {len(self.evicted)} evicted>"
        return f"<PatchResult refused, {self.code}: {self.error}>"


_TEXTS = ("task_id", "thread_id", "run_id", "status", "objective")
_LISTS = ("acceptance_criteria", "constraints", "blockers", "pinned_context", "sliding_context")


def working_set_in(document: Document) -> WorkingSet:
    """The working set that a document holds, as it is stored.

    Raises:
        Corrupt: it holds none.
    """
    try:
        value: WorkingSet = document.value
    except Corrupt as error:
        raise _unreadable(document, error.fact) from error
    if (
        type(value) is not dict
        or type(value.get("_update_seq")) is not int
        or any(type(value.get(name)) is not str for name in _TEXTS)
        or any(type(value.get(name)) is not list for name in _LISTS)
    ):
        raise _unreadable(document, "fields of one are missing")
    return value


def _unreadable(document: Document, why: str) -> Corrupt:
    return Corrupt(
        f"document {document.name!r}, version {document.version}, is no working set ({why})",
        "if it is the newest, repair() the run: the ledger tells it; or restore a copy",
    )


def copy_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain JSON values; much faster than copying object by object."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copied

"""Writes of rooms under names that no room declares, seen while tests run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from pagefile.store.arguments import OF_TENANT
from pagefile.store.batch import Append, Batch, Put
from pagefile.store.commit.preparation import Preparer
from pagefile.store.kinds import ROOMS, registry

_PREPARING = ("prepare", "prepare_lone", "prepare_one")
#: What stands between a room and the preparation of its commit.
_BETWEEN: tuple[str, ...] = (
    "pagefile.store",
    "pagefile.engines",
    "pagefile.handle",
    "pagefile.tracing",
)
_BETWEEN += (__name__, "pagefile.aio")
#: It stores what others exported, under names of their own too.
_IMPORTER = "pagefile.memory.privacy.importer"


@contextmanager
def undeclared_refused() -> Iterator[list[str]]:
    """While it is entered, a room fails that writes what `pagefile.store.kinds` does not know.

    Gives the faults so far: a room may handle its own failures.
    """
    faults: list[str] = []
    kept: dict[str, Callable[..., Any]] = {name: getattr(Preparer, name) for name in _PREPARING}

    def watching(prepare: Callable[..., Any]) -> Callable[..., Any]:
        def watched(self: Preparer, what: Any, reached: int) -> Any:
            operations = what.operations if type(what) is Batch else [what]
            # What is not a list is refused by the preparation itself.
            if isinstance(operations, list | tuple) and (found := _faults(operations)):
                faults.extend(found)
                raise AssertionError(f"declare it in the room's kinds.py: {found}")
            return prepare(self, what, reached)

        return watched

    for name, prepare in kept.items():
        setattr(Preparer, name, watching(prepare))
    try:
        yield faults
    finally:
        for name, prepare in kept.items():
            setattr(Preparer, name, prepare)


def _faults(operations: Sequence[object]) -> list[str]:
    kinds = registry()
    found = []
    for one in operations:
        if not isinstance(one, Append | Put):
            continue
        name = one.log if isinstance(one, Append) else one.document
        kind = kinds.of(name) if type(name) is str else None
        if kind is not None and (kind.owner == "user" or one.user in (None, OF_TENANT)):
            continue
        if (room := _room()) is not None:
            what = "is of no kind" if kind is None else f"is the tenant's, and names {one.user!r}"
            found.append(f"{name!r}, written by {room}, {what}")
    return found


def _room() -> str | None:
    """The module of a room that writes; None for callers outside."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_BETWEEN):
            break
        frame = frame.f_back
    if frame is None or module == _IMPORTER:
        return None
    parts = module.split(".")
    return module if parts[0] == "pagefile" and len(parts) > 1 and parts[1] in ROOMS else None

"""What became of a patch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

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


def copy_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain JSON values; much faster than copying object by object."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copied

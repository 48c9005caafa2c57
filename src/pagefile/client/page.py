"""Part of a listing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

Item = TypeVar("Item")
Shown = TypeVar("Shown", covariant=True)


class Listing(Protocol[Shown]):
    """Whatever has items, and a cursor to go on with."""

    @property
    def items(self) -> Iterable[Shown]: ...

    @property
    def cursor(self) -> str | None: ...


class Page(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """Some of a listing's items; `cursor` continues it, None means that was all."""

    items: list[Item]
    cursor: str | None = None

"""What was read, kept for as long as nothing in the store has changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pagefile.store.store import Store

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: How many are kept; beyond, all are let go.
_MOST = 256


class WhileUnchanged(Generic[Key, Value]):
    """Reads what is asked for, and not again before the next commit by anybody.

    Where a store cannot say whether something has changed, it is read each time.
    """

    def __init__(self, store: Store, read: Callable[[Key], Value]) -> None:
        self._store = store
        self._read = read
        self._kept: tuple[int | None, dict[Key, Value]] = (None, {})

    def __call__(self, key: Key) -> Value:
        # Before anything is read: whatever comes after it is found out by the next call.
        stamp = self._store._stamp()
        if stamp is None:
            return self._read(key)
        kept = self._kept
        if kept[0] != stamp:
            kept = self._kept = (stamp, {})
        value = kept[1].get(key)
        if value is None:
            value = self._read(key)
            if len(kept[1]) >= _MOST:
                kept[1].clear()
            kept[1][key] = value
        return value

"""Receipts of prompts that name what is forgotten: they go with it.

Assembly stands above memory, so their form is known here by its fields alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from pagefile.errors import Corrupt
from pagefile.memory.names import RECEIPTS, owner_key
from pagefile.memory.serializer import living, shaped
from pagefile.store.records import Touched
from pagefile.store.store import Store

_PAGE = 1_000


class _Named(msgspec.Struct, frozen=True):
    """A record that went into a prompt, or of a log all from `number` to `last` that did not."""

    stream: str = ""
    number: int = 0
    last: int = 0


class _Receipt(msgspec.Struct, frozen=True):
    pieces: list[tuple[int, _Named]]
    left_out: list[tuple[int, _Named]]


def receipts_naming(
    store: Store, user_id: str | None, documents: Collection[str], touched: Sequence[Touched]
) -> set[str]:
    """The user's receipts, and parts of others' with them, that name one of what goes."""
    runs: dict[str, list[tuple[int, int]]] = {}
    for one in touched:
        if one.name is not None:
            runs.setdefault(one.name, []).append((one.first, one.last))

    def goes(named: _Named) -> bool:
        end = max(named.number, named.last)
        return named.stream in documents or any(
            named.number <= last and first <= end for first, last in runs.get(named.stream, ())
        )

    prefix, after = f"{RECEIPTS}{owner_key(user_id)}/", ""
    found: set[str] = set()
    while names := store.names("document", prefix=prefix, after=after, limit=_PAGE):
        for document in living(one for one in store.get_many(names) if one is not None):
            try:
                receipt = shaped(document, _Receipt)
            except Corrupt:
                found.add(document.name)  # What it names cannot be told.
                continue
            if any(goes(named) for _, named in (*receipt.pieces, *receipt.left_out)):
                found.add(document.name)
        after = names[-1]
    return found

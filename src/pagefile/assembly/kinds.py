"""What assembly stores under which name."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pagefile.assembly.receipt import RECEIPTS
from pagefile.errors import Corrupt
from pagefile.memory.documents import shaped
from pagefile.store.kinds import Kind, Spans
from pagefile.store.records import Document


class _Named(msgspec.Struct, frozen=True):
    """A record that went into a prompt, or of a log all from `number` to `last` that did not."""

    stream: str = ""
    number: int = 0
    last: int = 0


class _Receipt(msgspec.Struct, frozen=True):
    pieces: list[tuple[int, _Named]]
    left_out: list[tuple[int, _Named]]


def _mentions(document: Document, documents: Collection[str], spans: Spans) -> bool:
    try:
        receipt = shaped(document, _Receipt)
    except Corrupt:
        return True  # What it names cannot be read.
    return any(
        named.stream in documents
        or any(
            named.number <= last and first <= max(named.number, named.last)
            for first, last in spans.get(named.stream, ())
        )
        for _, named in (*receipt.pieces, *receipt.left_out)
    )


KINDS = (
    Kind(
        RECEIPTS,
        "what went into a prompt: positions of this store, of no use in another",
        bucket=True,
        counted_as="receipts",
        derived=True,
        exported=False,
        mentions=_mentions,
    ),
)

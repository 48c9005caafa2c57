"""A group of batches in parts that each fit into one request to a server."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.store.engine import Prepared


def parts_of(
    items: Sequence[tuple[str, Prepared]], most_bytes: int
) -> Sequence[Sequence[tuple[str, Prepared]]]:
    """The same batches in the same order; only a single one may be larger than a part."""
    if len(items) == 1:
        return (items,)
    parts: list[Sequence[tuple[str, Prepared]]] = []
    start = size = 0
    for at, (_, batch) in enumerate(items):
        own = sum(len(content.body) for write in batch.writes for content in write.contents)
        if size and size + own > most_bytes:
            parts.append(items[start:at])
            start, size = at, 0
        size += own
    return [*parts, items[start:]]

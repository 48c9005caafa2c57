"""What an erasure would take, however many streams it names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pagefile.store.batch import Selector
from pagefile.store.records import Receipt
from pagefile.store.store import Store

#: How many selectors a store unites in one erasure.
MOST_NAMED = 100_000


def rehearsed(store: Store, selectors: Sequence[Selector]) -> Receipt:
    """What these take together; nothing is touched."""
    if not selectors:
        return Receipt(None, (), 0, 0, "bytes")
    if len(selectors) <= MOST_NAMED:
        return store.erase(selectors, dry_run=True)
    named = [one for one in selectors if _names_a_document(one)]
    others = [one for one in selectors if not _names_a_document(one)]
    wide = rehearsed(store, others)
    parts = [store.erase(some, dry_run=True) for some in _parts(named)]
    # What the others take of a document that is named, too, must not count twice.
    names = {one.document for one in named}
    twice = [one for one in wide.removed if one.stream == "document" and one.name in names]
    once = [one for one in wide.removed if one.stream != "document" or one.name not in names]
    again = [Selector(document=one.name, first=one.first, last=one.last) for one in twice]
    doubled = [store.erase(some, dry_run=True) for some in _parts(again)]
    return Receipt(
        None,
        (*once, *(one for part in parts for one in part.removed)),
        wide.records + sum(part.records for part in parts) - sum(part.records for part in doubled),
        wide.size_bytes
        + sum(part.size_bytes for part in parts)
        - sum(part.size_bytes for part in doubled),
        "logical",
        (parts or [wide])[-1].remaining,
    )


def _names_a_document(selector: Selector) -> bool:
    return selector.document is not None and selector.user is None and not selector.anonymous


def _parts(named: Sequence[Selector]) -> Iterator[list[Selector]]:
    """As many at a time as a store takes; what names the same document stays together."""
    part: list[Selector] = []
    ordered = sorted(named, key=lambda one: one.document or "")
    for _, same in groupby(ordered, key=lambda one: one.document):
        group = list(same)
        if part and len(part) + len(group) > MOST_NAMED:
            yield part
            part = []
        part += group
    if part:
        yield part

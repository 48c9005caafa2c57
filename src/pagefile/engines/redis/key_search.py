"""Records by secondary key: ranges of members, now or as they were at a position."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from pagefile.engines.redis import layout as layout
from pagefile.engines.redis.connection import Command, Link
from pagefile.engines.redis.layout import Found, Keys
from pagefile.engines.redis.rows import row_from
from pagefile.store.engine import Hit, KeyRange, Row

_AT_ONCE = 256


def find(link: Link, keys: Keys, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
    """See `Engine.find`."""
    if limit < 1:
        return []
    search = _Search(link, keys, span, min(limit, _AT_ONCE))
    found = search.live() if at is None else search.then(at)
    within = (
        place
        for place in found
        if span.above <= place.number and (span.below is None or place.number < span.below)
    )
    return _hits(link, keys, list(itertools.islice(within, limit)))


def _hits(link: Link, keys: Keys, chosen: list[Found]) -> list[Hit]:
    """The records at these places, with one question for each stream.

    Those that were let go since their keys were read come without content: whoever asked
    for them asks again.
    """
    numbers: dict[int, list[int]] = {}
    for place in chosen:
        numbers.setdefault(place.oid, []).append(place.number)
    asked: list[Command] = [("HMGET", keys.rows(oid), *some) for oid, some in numbers.items()]
    answers = link.ask(*asked) if asked else []
    rows: dict[tuple[int, int], Row] = {
        (place.oid, place.number): Row(place.number, place.position, place.ordinal, 0, 0, None)
        for place in chosen
    }
    for (oid, some), answer in zip(numbers.items(), answers, strict=True):
        for number, raw in zip(some, answer, strict=True):
            if raw is not None:
                rows[oid, number] = row_from(number, raw)
    return [Hit(place.value, place.oid, rows[place.oid, place.number]) for place in chosen]


class _Search:
    """One range of one field's keys."""

    def __init__(self, link: Link, keys: Keys, span: KeyRange, at_once: int) -> None:
        self._link = link
        self._keys = keys
        self._span = span
        self._at_once = at_once
        self._space = layout.space(span.scope, span.owner, span.field)

    def live(self) -> Iterator[Found]:
        """What the keys lead to now, from the cursor on."""
        span, space = self._span, self._space
        low = b"[" + space + layout.ordered(span.low)
        high = b"(" + space + layout.ordered(span.high)
        if span.after is not None:
            value, position, ordinal = span.after
            mark = space + layout.ordered(value) + layout.order(position, ordinal)
            if span.reverse:
                high = b"(" + min(mark, high[1:])
            elif mark >= low[1:]:
                # All that begins like the mark is the record that the cursor stands on.
                low = b"(" + mark + layout.BEHIND * layout.PLACE_BYTES
        return self._scan(self._keys.live, low, high, past=False)

    def then(self, at: int) -> Iterator[Found]:
        """What the keys led to at a position: what is left of it, and what has gone since."""
        reverse = self._span.reverse
        live = (place for place in self.live() if place.position <= at)
        yield from heapq.merge(live, self._past(at), reverse=reverse)

    def _past(self, at: int) -> Iterator[Found]:
        span, space = self._span, self._space
        low, high = span.low, span.high
        if span.after is not None:
            if span.reverse:
                # The value of the cursor itself belongs to it.
                high = min(high, span.after[0] + b"\x00")
            else:
                low = max(low, span.after[0])
        bounds = b"[" + space + layout.ordered(low), b"(" + space + layout.ordered(high)
        group: list[Found] = []
        for place in self._scan(self._keys.past, *bounds, past=True):
            # Within a value they come in the order in which they went.
            if group and group[0].value != place.value:
                yield from self._sorted(group)
                group = []
            if place.position <= at < place.until:
                group.append(place)
        yield from self._sorted(group)

    def _sorted(self, group: list[Found]) -> list[Found]:
        after, reverse = self._span.after, self._span.reverse
        return sorted(
            (
                place
                for place in group
                if after is None or (place[:3] < after if reverse else place[:3] > after)
            ),
            reverse=reverse,
        )

    def _scan(self, key: bytes, low: bytes, high: bytes, *, past: bool) -> Iterator[Found]:
        reverse = self._span.reverse
        while low[1:] < high[1:]:
            bounds = (high, low) if reverse else (low, high)
            order = ("REV",) if reverse else ()
            members = self._link.ask_one(
                "ZRANGE", key, *bounds, "BYLEX", *order, "LIMIT", 0, self._at_once
            )
            for member in members:
                yield layout.found_in(member, len(self._space), past=past)
            if len(members) < self._at_once:
                return
            if reverse:
                high = b"(" + members[-1]
            else:
                low = b"(" + members[-1]

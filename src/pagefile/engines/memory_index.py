"""Secondary keys in memory: sorted values, each with the records under it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import msgspec
from sortedcontainers import SortedDict

from pagefile.store.engine import Hit, IndexKey, KeyRange, Row, Scope, Stream, index_keys

Owner = str | int | None

#: From so many values on, keeping them in order pays.
_MANY = 32


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a key's record is."""

    position: int
    ordinal: int
    stream: Stream
    number: int


def _order(place: Place) -> tuple[int, int]:
    """The order of commits."""
    return place.position, place.ordinal


class Bucket:
    """The records under one key value: those it finds now, and those it found once."""

    __slots__ = ("last_change", "live", "past")

    def __init__(self) -> None:
        self.live: list[Place] = []
        #: None as long as nothing left; most keys keep what comes under them.
        self.past: dict[tuple[int, int], tuple[Place, int]] | None = None
        self.last_change = 0

    def take_out(self, place: tuple[int, int]) -> Place | None:
        at = bisect_left(self.live, place, key=_order)
        if at < len(self.live) and _order(self.live[at]) == place:
            return self.live.pop(at)
        return None

    def keep_past(self, place: Place, until: int) -> None:
        """The key led to it, for reads before `until`."""
        if self.past is None:
            self.past = {}
        self.past[_order(place)] = place, until

    def forget(self, place: tuple[int, int]) -> bool:
        """It leads there no more, now or in the past; whether it leads nowhere at all."""
        self.take_out(place)
        if self.past is not None:
            self.past.pop(place, None)
        return not self.live and not self.past

    def seen_at(self, at: int | None) -> list[Place]:
        if at is None:
            return self.live
        kept = () if self.past is None else self.past.values()
        then = [place for place, until in kept if place.position <= at < until]
        then += self.live[: bisect_right(self.live, (at, 1 << 62), key=_order)]
        then.sort(key=_order)
        return then


class FewValues(dict[bytes, Bucket]):
    """Values of a log that has only a few: they are put in order when somebody asks.

    Most logs have a handful of values, and are never searched by range; making
    a sorted container for each would cost more than the append.
    """

    def irange(
        self, low: bytes, high: bytes, inclusive: tuple[bool, bool], reverse: bool
    ) -> Iterator[bytes]:
        """The values in a range, as `SortedDict.irange` gives them; `low` is always included."""
        found = [one for one in self if low <= one < high or (inclusive[1] and one == high)]
        yield from sorted(found, reverse=reverse)


class KeyIndex:
    """All secondary keys of one tenant."""

    def __init__(self) -> None:
        self._values: dict[tuple[Scope, Owner, str], FewValues | SortedDict[bytes, Bucket]] = {}
        #: The buckets of logs once more, found in one step.
        self._logs: dict[tuple[int, str, bytes], Bucket] = {}

    def add(self, stream: Stream, row: Row, keys: Sequence[IndexKey]) -> None:
        """The record stands under these keys from now on."""
        assert row.content is not None
        for key in keys:
            if key.scope == "log":
                # Most appends come under a key that others came under before.
                bucket = self._logs.get((stream.oid, key.field, key.value))
                if bucket is None:
                    bucket = self._bucket(key, stream, None)
                    self._logs[stream.oid, key.field, key.value] = bucket
            else:
                bucket = self._bucket(key, stream, row.content.user)
            bucket.live.append(Place(row.position, row.ordinal, stream, row.number))
            bucket.last_change = row.position

    def retire(self, stream: Stream, row: Row, until: int) -> None:
        """The record's keys lead to it only for reads before `until`."""
        content = row.content
        if content is None or not (content.keys or content.tenant_keys):
            return
        for key in index_keys(stream.kind, content):
            bucket = self._bucket(key, stream, content.user)
            place = bucket.take_out((row.position, row.ordinal))
            if place is not None:
                bucket.keep_past(place, until)
            bucket.last_change = until

    def remove(self, stream: Stream, row: Row) -> None:
        """The record's keys lead nowhere, now or in the past."""
        if row.content is None:
            return
        place = (row.position, row.ordinal)
        for key in index_keys(stream.kind, row.content):
            bucket = self._bucket(key, stream, row.content.user)
            if bucket.forget(place):
                place_of_values = (key.scope, _owner(key, stream, row.content.user), key.field)
                values = self._values[place_of_values]
                del values[key.value]
                self._logs.pop((stream.oid, key.field, key.value), None)
                if not values:
                    del self._values[place_of_values]

    def under(self, key: IndexKey, user: str | None) -> Bucket | None:
        """The records under one key of a user, or of the tenant."""
        owner = user if key.scope == "user" else None
        bucket: Bucket | None = self._values.get((key.scope, owner, key.field), {}).get(key.value)
        return bucket

    def dead_ends(self) -> Iterator[Place]:
        """Keys whose record is gone; there should be none."""
        for values in self._values.values():
            for bucket in values.values():
                for place in bucket.live:
                    row = place.stream.rows[place.number - place.stream.first]
                    if row.content is None or row.position != place.position:
                        yield place

    def _bucket(self, key: IndexKey, stream: Stream, user: str | None) -> Bucket:
        owner = _owner(key, stream, user)
        values = self._values.get((key.scope, owner, key.field))
        if values is None:
            values = FewValues() if key.scope == "log" else SortedDict()
            self._values[key.scope, owner, key.field] = values
        elif len(values) >= _MANY and type(values) is FewValues:
            values = self._values[key.scope, owner, key.field] = SortedDict(values)
        bucket: Bucket | None = values.get(key.value)
        if bucket is None:
            bucket = values[key.value] = Bucket()
        return bucket

    def hits(self, span: KeyRange, at: int | None) -> Iterator[Hit]:
        """Records in the order of value, position, ordinal."""
        values = self._values.get((span.scope, span.owner, span.field))
        if values is None:
            return
        low, high, includes_high = span.low, span.high, False
        if span.after is not None:
            if span.reverse:
                high, includes_high = min((high, False), (span.after[0], True))
            else:
                low = max(low, span.after[0])
        for value in values.irange(
            low, high, inclusive=(True, includes_high), reverse=span.reverse
        ):
            places = values[value].seen_at(at)
            for place in reversed(places) if span.reverse else places:
                order = (value, place.position, place.ordinal)
                if span.after is not None and (
                    order >= span.after if span.reverse else order <= span.after
                ):
                    continue
                if span.above <= place.number and (span.below is None or place.number < span.below):
                    row = place.stream.rows[place.number - place.stream.first]
                    yield Hit(value, place.stream.oid, row)


def _owner(key: IndexKey, stream: Stream, user: str | None) -> Owner:
    if key.scope == "log":
        return stream.oid
    return user if key.scope == "user" else None

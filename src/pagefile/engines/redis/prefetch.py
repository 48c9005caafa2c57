"""Many rows and streams of one tenant in Redis, read in as few journeys as there are kinds."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.engines.redis.connection import Command, Link
from pagefile.engines.redis.layout import Keys, name_field
from pagefile.engines.redis.rows import row_from, stream_from
from pagefile.errors import Corrupt
from pagefile.store.engine import DOCUMENT, Row, Stream

_ATTEMPTS = 100


def current(link: Link, keys: Keys, names: Sequence[str]) -> list[Row | None]:
    """The last row of each living document, None where there is none."""
    rows: dict[str, Row] = {}
    left = list(dict.fromkeys(names))
    for _ in range(_ATTEMPTS):
        if not left:
            return [rows.get(name) for name in names]
        living = _living(link, keys, left)
        asked: list[Command] = [
            ("HGET", keys.rows(stream.oid), stream.length) for stream in living.values()
        ]
        answers = link.ask(*asked) if asked else []
        left = []
        for (name, stream), raw in zip(living.items(), answers, strict=True):
            if raw is None:
                # Put anew and pruned between the two questions: once more.
                left.append(name)
            else:
                rows[name] = row_from(stream.length, raw)
    raise Corrupt(
        f"the last version of document {left[0]!r} is gone from Redis",
        "run `verify` to see how far it goes, then restore a copy",
    )


def _living(link: Link, keys: Keys, names: Sequence[str]) -> dict[str, Stream]:
    fields = [name_field(DOCUMENT, name) for name in names]
    places = (keys.head, keys.commits, keys.names, keys.streams)
    found = link.run("look", places, (b"", 0, 0, *fields))[2]
    read = [(name, stream_from(raw)) for name, raw in zip(names, found, strict=False) if raw]
    return {name: stream for name, stream in read if not stream.dropped}


def gather(link: Link, keys: Keys, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
    """The rows at these pairs of a stream's number and a row's, where there are any."""
    numbers: dict[int, list[int]] = {}
    for oid, number in places:
        numbers.setdefault(oid, []).append(number)
    asked: list[Command] = [("HMGET", keys.rows(oid), *of) for oid, of in numbers.items()]
    found: dict[tuple[int, int], Row] = {}
    answers = link.ask(*asked) if asked else []
    for (oid, of), stored in zip(numbers.items(), answers, strict=True):
        for number, raw in zip(of, stored, strict=True):
            if raw is not None:
                found[oid, number] = row_from(number, raw)
    return found


def streams(link: Link, keys: Keys, oids: Sequence[int]) -> dict[int, Stream]:
    """The streams with these numbers, where there are any."""
    if not oids:
        return {}
    stored = link.ask_one("HMGET", keys.streams, *oids)
    read = zip(oids, stored, strict=True)
    return {oid: stream_from(raw) for oid, raw in read if raw is not None}

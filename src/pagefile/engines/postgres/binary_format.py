"""Values on their way to PostgreSQL in the binary form it receives: vectors, and many numbers.

The driver has a form for arrays, too, and takes 20 microseconds for each item of one.
"""

from __future__ import annotations

import struct
import sys

from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from pagefile.store.codec.vector import floats_of

#: How many numbers, and a word that is not used; the numbers follow, all big endian.
_HEAD = struct.Struct(">HH")
#: One dimension, no NULL, items of bigint; then how many, counted from 1.
_ARRAY = struct.Struct(">iiIii")
_BIGINT, _BIGINTS = 20, 1016


class Embedding:
    """The numbers of a vector on their way to the server, in the form pgvector receives."""

    __slots__ = ("raw",)

    def __init__(self, numbers: bytes) -> None:
        values = floats_of(numbers)
        if sys.byteorder == "little":
            values.byteswap()
        self.raw = _HEAD.pack(len(values), 0) + values.tobytes()


class EmbeddingDumper(Dumper):
    """Binary, and of no type of its own: the statement says which."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: Embedding) -> Buffer | None:
        return obj.raw


class Bigints:
    """Whole numbers as one array of bigint."""

    __slots__ = ("raw",)

    def __init__(self, numbers: tuple[int, ...]) -> None:
        count = len(numbers)
        items = struct.pack(">" + "iq" * count, *(part for n in numbers for part in (8, n)))
        # An empty array has no dimension.
        head = (1, 0, _BIGINT, count, 1)
        self.raw = _ARRAY.pack(*head) + items if count else struct.pack(">iiI", 0, 0, _BIGINT)


class BigintsDumper(Dumper):
    """bigint[], whatever the statement says."""

    format = Format.BINARY
    oid = _BIGINTS

    def dump(self, obj: Bigints) -> Buffer | None:
        return obj.raw

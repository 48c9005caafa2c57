"""Values that a room of the package has encoded itself; for nobody else."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.store.codec.canonical_json import encode_json


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A plain value in canonical JSON already; made by `encoded`, and stored as it is."""

    body: bytes


def encoded(fields: Any) -> Encoded:
    """A struct or dict of text, whole numbers, truth values and bytes, under names of ours.

    Nothing in it may be a number that is not finite, a dict whose keys others
    chose, or deep: `codec.encode` looks for these, which takes longer than encoding.
    """
    return Encoded(encode_json(fields))

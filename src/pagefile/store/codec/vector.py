"""The bytes of a vector: float32, little endian, of unit length; checked before they are sent."""

from __future__ import annotations

import sys
from array import array

from pagefile.errors import Invalid, LimitExceeded, Unsupported, shown
from pagefile.store.batch import Vector

SLOT_BYTES = 16
_NUMBER_BYTES = 4
#: As many as an engine is known to take.
MOST_DIMENSIONS = 16_000
#: Bytes of half precision, rounded and made unit again, are this near to it.
_NEAR_UNIT = 1e-3


def require_vector(vector: Vector) -> Vector:
    """Refuse what is no vector of unit length; empty numbers take one out."""
    slot, numbers = vector.slot, vector.numbers
    if type(slot) is not bytes or len(slot) != SLOT_BYTES:
        raise Invalid("vector.slot", shown(slot), f"give {SLOT_BYTES} bytes")
    if type(numbers) is not bytes:
        raise Invalid("vector.numbers", shown(numbers), "give bytes of float32, little endian")
    if numbers:
        require_numbers(numbers)
    return vector


def require_numbers(numbers: bytes) -> None:
    """Refuse bytes that are no vector of unit length."""
    count, rest = divmod(len(numbers), _NUMBER_BYTES)
    if rest or not count:
        raise Invalid("vector.numbers", f"is {len(numbers)} bytes long", "give four for each")
    if count > MOST_DIMENSIONS:
        raise LimitExceeded(
            "the numbers of one vector",
            limit=MOST_DIMENSIONS,
            wanted=count,
            next_step="embed with a model of fewer dimensions",
        )
    length = sum(number * number for number in floats_of(numbers))
    # What is no number is near to nothing.
    if not abs(length - 1) <= _NEAR_UNIT:
        raise Invalid("vector.numbers", f"is {length:g} long, squared", "give it unit length")


def floats_of(numbers: bytes) -> array[float]:
    """The numbers themselves."""
    found = array("f", numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def no_vectors() -> Unsupported:
    """The refusal of a store that keeps no vectors."""
    return Unsupported(
        "this store keeps no vectors with its entries",
        "leave `vector` out, or look at Store.vectors first",
    )

"""What callers give, checked: names, numbers within bounds, flags, functions."""

from __future__ import annotations

import re

import msgspec

from pagefile.errors import Invalid, shown

_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: In the place of a user, what is the tenant's: neither erasing a user nor erasing nobody's
#: data takes it.
OF_TENANT = "~pagefile"
#: How many texts that passed are remembered; names repeat from commit to commit.
_REMEMBERED = 32_768
_pack = msgspec.msgpack.Encoder().encode


def require_type(field: str, value: object, wanted: type) -> None:
    """Refuse an argument of another type with our words instead of an AttributeError."""
    if not isinstance(value, wanted):
        raise Invalid(
            field, f"{shown(value)} is no {wanted.__name__}", f"give pagefile.{wanted.__name__}(…)"
        )


def require_flag(field: str, value: object) -> None:
    """Refuse what only looks true or false: the text "no" would count as true."""
    if type(value) is not bool:
        raise Invalid(field, f"{shown(value)} is no truth value", "give True or False")


def require_callable(field: str, value: object) -> None:
    """Refuse what cannot be called before anything depends on it."""
    if not callable(value):
        raise Invalid(field, f"{shown(value)} cannot be called", "give a function")


class Naming:
    """Checks names, and remembers those that passed."""

    def __init__(self, name_bytes: int) -> None:
        self._name_bytes = name_bytes
        #: A name in here needs no check, and is packed; looking it up is much cheaper.
        self.known_good: dict[str, bytes] = {}

    def check_text(self, field: str, text: object, *, may_be_empty: bool = False) -> None:
        """Refuse what would be unreadable, unbounded or ambiguous as a name."""
        if type(text) is not str:  # A subclass could change under our hands.
            raise Invalid(field, f"is of type {type(text).__name__}", "give a plain str")
        if not text and not may_be_empty:
            raise Invalid(field, "is empty", "give at least one character")
        # What is plain is seen without looking at each character.
        if not (text.isascii() and text.isprintable()) and (found := _FORBIDDEN.search(text)):
            raise Invalid(
                field,
                f"holds the control character or surrogate U+{ord(found.group()):04X}",
                "remove it",
            )
        if len(text.encode()) > self._name_bytes:
            raise Invalid(
                field,
                f"is {len(text.encode())} bytes long",
                f"keep names within {self._name_bytes} bytes",
            )
        if len(self.known_good) >= _REMEMBERED:
            self.known_good.clear()
        if text:  # The empty string is good in some places only.
            self.known_good[text] = _pack(text)

    def packed(self, field: str, text: str) -> bytes:
        """A name, checked, as it stands in an envelope."""
        known = self.known_good.get(text) if type(text) is str else None
        if known is not None:
            return known
        self.check_text(field, text)
        return _pack(text)

    def check_user(self, user: object) -> None:
        """None is the bucket of no user; the empty string would look like it and is refused."""
        if user is not None and (type(user) is not str or user not in self.known_good):
            self.check_text("user", user)


#: The most that one call returns; page on for more.
MOST_PER_READ = 10_000
MOST_SECONDS = 86_400
#: Positions take 40 bits in the file; beyond half of that nobody asks by accident.
_MOST_POSITIONS = 2**39
_MOST_COUNT = 2**63 - 1


def require_seconds(timeout: float, field: str = "timeout") -> None:
    """Refuse what is no bounded time; NaN, which compares with nothing, too."""
    if type(timeout) not in (int, float) or not 0 <= timeout <= MOST_SECONDS:
        raise Invalid(field, f"{shown(timeout)} seconds", f"give 0 to {MOST_SECONDS}")


def require_position(at: int | None, field: str = "at") -> int | None:
    """The position, or None for now."""
    if at is not None and (type(at) is not int or not 0 <= at < _MOST_POSITIONS):
        raise Invalid(field, f"{shown(at)} is no position", "give a whole number from 0 up")
    return at


def require_index(index: int | None, field: str) -> None:
    """Refuse what is no place in a log; negative ones count from its end, None is the end."""
    if index is not None and type(index) is not int:
        raise Invalid(field, f"{shown(index)} is no index", "give a whole number")


def require_count(number: object, field: str, least: int = 0, most: int = _MOST_COUNT) -> int:
    """The number, if it is a whole one within bounds; a truth value is none."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        bounds = f"from {least} up" if most == _MOST_COUNT else f"from {least} to {most}"
        raise Invalid(field, f"{shown(number)} is not a count", f"give a whole number {bounds}")
    return number


def bounded(limit: int) -> int:
    """How many to return at most."""
    if type(limit) is not int or not 0 <= limit <= MOST_PER_READ:
        raise Invalid("limit", shown(limit), f"give 0 to {MOST_PER_READ}, and page on for more")
    return limit

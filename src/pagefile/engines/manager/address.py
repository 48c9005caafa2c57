"""Where a manager listens, and the key to it: `manager://:key@host:port/space`."""

from __future__ import annotations

import ipaddress
from urllib.parse import quote, unquote, urlsplit

import msgspec

from pagefile.errors import Invalid, shown

#: Where a manager listens when nobody says otherwise.
DEFAULT_PORT = 7425
LOOPBACK = "127.0.0.1"
MOST_SPACE_BYTES = 200
MOST_KEY_BYTES = 1_024


class Address(msgspec.Struct, frozen=True):
    """What a URL says. It is never shown: it may hold the key."""

    host: str
    port: int
    authkey: bytes = b""
    #: One of several stores in the same manager.
    space: str = ""

    @property
    def where(self) -> str:
        """The manager without its key, for messages."""
        return f"manager://{_bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """What another process opens to join; it holds the key."""
        key = f":{quote(self.authkey, safe='')}@" if self.authkey else ""
        space = f"/{quote(self.space, safe='')}" if self.space else ""
        return f"manager://{key}{_bracketed(self.host)}:{self.port}{space}"

    def __repr__(self) -> str:
        return f"<Address of {self.where}>"


def address_of(url: str) -> Address:
    """The parts of a `manager://` URL.

    Raises:
        Invalid: a part is not usable. The message never repeats the key.
    """
    try:
        parts = urlsplit(url)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        raise _unfit("host or port cannot be read", "write manager://:key@host:port") from None
    if not parts.hostname:
        raise _unfit("it names no host", "write manager://host:port, or manager: to start one")
    if parts.username:
        raise _unfit("a manager knows no users", "write the key after a colon: manager://:key@host")
    if parts.query or parts.fragment:
        raise _unfit("it has options, and a manager takes none", "leave out what follows ? or #")
    if not port:
        raise _unfit("port 0 is nowhere", "give the port that the manager printed")
    authkey = unquote(parts.password or "", errors="surrogateescape").encode(
        errors="surrogateescape"
    )
    if len(authkey) > MOST_KEY_BYTES:
        raise _unfit("the key is too long", f"give at most {MOST_KEY_BYTES} bytes")
    space = unquote(parts.path).removeprefix("/")
    require_space(space)
    return Address(parts.hostname, port, authkey, space)


def require_space(space: str) -> None:
    """Refuse a name that no store in a manager can have; the empty one is the usual store."""
    try:
        fits = len(space.encode()) <= MOST_SPACE_BYTES and "/" not in space
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise _unfit(
            f"{shown(space)} names no store",
            f"give one name of at most {MOST_SPACE_BYTES} bytes behind the port",
        )


def is_loopback(number: str) -> bool:
    """Whether only this machine can reach the address, given in numbers."""
    return ipaddress.ip_address(number.partition("%")[0]).is_loopback


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _unfit(fact: str, rule: str) -> Invalid:
    return Invalid("url", fact, rule)

"""What a manager and its clients say to each other: MessagePack in frames, never pickle."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from pagefile.errors import (
    Forbidden,
    Invalid,
    PagefileError,
    Unavailable,
    as_fields,
    from_fields,
    shown,
)
from pagefile.store.codec.decoder import convert, msgpack_decoder
from pagefile.store.commit.erasure import Rehearsed
from pagefile.store.engine import (
    LOG,
    Hit,
    KeyRange,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
    Wiped,
)
from pagefile.store.records import Problem, StreamKind

VERSION = 1
MAGIC = "pagefile manager"
#: Before the key is proved, nobody needs more.
MOST_GREETING_BYTES = 1_024
#: How many bytes of records go into one answer, unless a single record has more.
ANSWER_BYTES = 8 * 1024 * 1024
#: How long the manager keeps one wait, so that a dead connection is noticed.
MOST_WAIT_SECONDS = 20.0

HEADER = struct.Struct(">I")
HEADER_BYTES = HEADER.size
GOOD, REFUSED = b"\x00", b"\x01"

encode = msgspec.msgpack.Encoder().encode


def framed(payload: bytes) -> bytes:
    """The payload with its length before it."""
    return HEADER.pack(len(payload)) + payload


# The greeting


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The manager's first words; `instance` is another after every start."""

    magic: str
    version: int
    nonce: bytes
    instance: bytes
    most_bytes: int


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The client's answer: who it is, which store it wants, and that it knows the key."""

    nonce: bytes
    client: bytes
    space: str
    digest: bytes


# Requests


class Apply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Commit these; `number` grows with every call of a client, and stays when it is repeated."""

    number: int
    now_us: int
    key_lifetime_us: int
    items: Sequence[tuple[str, Prepared]]


class HeadOf(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    tenant: str


class StreamOf(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    tenant: str
    kind: StreamKind
    name: str
    at: int | None = None


class StreamNumber(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    tenant: str
    oid: int


class Current(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    tenant: str
    names: Sequence[str]


class Rows(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    tenant: str
    oid: int
    first: int
    last: int
    limit: int


class Find(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    tenant: str
    span: KeyRange
    limit: int
    at: int | None


class Names(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    tenant: str
    kind: StreamKind
    prefix: str
    after: str
    limit: int


class Commits(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    tenant: str
    since: int
    limit: int


class Wait(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    tenant: str
    position: int
    seconds: float


class Tenants(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11):
    pass


class Check(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12):
    tenant: str


class SizeBytes(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=13):
    pass


class Gather(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    tenant: str
    places: Sequence[tuple[int, int]]


class Streams(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15):
    tenant: str
    oids: Sequence[int]


Request = (
    Apply
    | HeadOf
    | StreamOf
    | StreamNumber
    | Current
    | Rows
    | Find
    | Names
    | Commits
    | Wait
    | Tenants
    | Check
    | SizeBytes
    | Gather
    | Streams
)


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """An error: its code, its message, and the fields that its class has."""

    code: str
    message: str
    fields: Mapping[str, str | int | list[dict[str, str | int]]]


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one batch came to."""

    sealed: Sealed | None
    refusal: Refusal | None = None


#: How each shape is read. Built once: making a decoder takes longer than using it.
decode_hello = msgpack_decoder(Hello).decode
decode_proof = msgpack_decoder(Proof).decode
decode_request = msgpack_decoder(Request).decode
decode_refusal = msgpack_decoder(Refusal).decode
decode_outcomes = msgpack_decoder(list[Outcome]).decode
decode_fields = msgpack_decoder(tuple[Any, ...] | None).decode
decode_list_of_fields = msgpack_decoder(list[tuple[Any, ...] | None]).decode
decode_current = msgpack_decoder(list[Row | None]).decode
decode_rows = msgpack_decoder(tuple[list[Row], bool]).decode
decode_hits = msgpack_decoder(tuple[list[Hit], bool]).decode
decode_names = msgpack_decoder(tuple[list[str], bool]).decode
decode_commits = msgpack_decoder(tuple[list[RawCommit], bool]).decode
decode_bytes = msgpack_decoder(bytes).decode
decode_flag = msgpack_decoder(bool).decode
decode_texts = msgpack_decoder(list[str]).decode
decode_problems = msgpack_decoder(list[Problem]).decode
decode_number = msgpack_decoder(int).decode


# What an engine hands out that is no struct

_HEAD_FIELDS = TenantHead.__slots__
#: `rows` stays with the manager.
_STREAM_FIELDS = tuple(name for name in Stream.__struct_fields__ if name not in ("rows", "id"))


def head_to_fields(head: TenantHead) -> list[Any]:
    return [getattr(head, name) for name in _HEAD_FIELDS]


def head_from_fields(tenant: str, fields: Sequence[Any]) -> TenantHead:
    head = TenantHead(tenant)
    for name, value in zip(_HEAD_FIELDS, fields, strict=True):
        setattr(head, name, value)
    return head


def stream_to_fields(stream: Stream | None) -> list[Any] | None:
    return None if stream is None else [getattr(stream, name) for name in _STREAM_FIELDS]


def stream_from_fields(fields: Sequence[Any] | None) -> Stream | None:
    if fields is None:
        return None
    stream = Stream(0, LOG, "", 0)
    for name, value in zip(_STREAM_FIELDS, fields, strict=True):
        setattr(stream, name, value)
    return stream


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


NONCE_BYTES = 32
CLIENT_BYTES = 16


def new_key() -> bytes:
    """A key that nobody guesses, of letters that need no quoting in a URL."""
    return secrets.token_urlsafe(32).encode()


def client_digest(key: bytes, hello: Hello, nonce: bytes, client: bytes, space: str) -> bytes:
    """What only a client with the key can say after this hello."""
    return _digest(key, b"client", hello.nonce, hello.instance, nonce, client, space.encode())


def server_digest(key: bytes, hello: Hello, nonce: bytes) -> bytes:
    """What only a manager with the key can say to this client."""
    return _digest(key, b"server", hello.nonce, hello.instance, nonce)


def is_proved(key: bytes, hello: Hello, proof: Proof) -> bool:
    """Whether the client knows the key; takes the same time whatever it said."""
    right = client_digest(key, hello, proof.nonce, proof.client, proof.space)
    sizes = (len(proof.nonce), len(proof.client))
    return hmac.compare_digest(right, proof.digest) and sizes == (NONCE_BYTES, CLIENT_BYTES)


def _digest(key: bytes, *parts: bytes) -> bytes:
    # Each part's length goes with it: what is moved from one to the next is another text.
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(key, text, "sha256")


#: The code of what is no failure: an erasure that was only tried.
_REHEARSED = "rehearsed"
_SAME_KEY = "commit again with the same key: it is stored once"


def refusal_of(error: PagefileError) -> Refusal:
    """The error as it goes over the wire; its cause stays behind."""
    if isinstance(error, Rehearsed):
        wiped = [msgspec.to_builtins(one) for one in error.wiped]
        return Refusal(_REHEARSED, "", {"wiped": wiped})
    return Refusal(error.code, str(error), as_fields(error))


def error_of(refusal: Refusal) -> PagefileError:
    """The error that a refusal stands for: one of ours, with plain fields and nothing else."""
    if refusal.code == _REHEARSED:
        return Rehearsed(convert(refusal.fields.get("wiped", []), tuple[Wiped, ...]))
    return from_fields(refusal.fields)


def no_key(where: str) -> Forbidden:
    """A URL without a key, and none in the environment."""
    return Forbidden(
        f"{where} asks for a key, and there is none",
        "write manager://:key@host:port, or set PAGEFILE_MANAGER_AUTHKEY",
    )


def not_reached(where: str, cause: Exception) -> Unavailable:
    """No connection could be made, and nothing was sent."""
    return Unavailable(
        f"{where} cannot be reached ({said(cause)})", "start a manager there, or check the URL"
    )


def lost(where: str, cause: Exception, *, committing: bool) -> Unavailable:
    """The connection broke before the answer."""
    if not committing:
        return Unavailable(f"{where} was lost ({said(cause)})", "retry")
    return Unavailable(
        f"{where} was lost in mid-commit ({said(cause)})", _SAME_KEY, outcome="unknown"
    )


def started_anew(where: str) -> Unavailable:
    """Another manager listens there now, and what this handle knew is gone with the old one."""
    return Unavailable(
        f"the manager at {where} was started anew, and what it held is gone",
        "open it again to begin with an empty store",
    )


def said(cause: Exception) -> str:
    """The system's word for a failure, in one short line."""
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return " ".join(text.split())[:100] or type(cause).__name__

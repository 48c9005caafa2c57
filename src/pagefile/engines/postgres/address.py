"""Where a PostgreSQL store is: the URL taken apart, and shown without its password."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict

from pagefile.errors import Invalid, shown

DEFAULT_SCHEMA = "pagefile"
_SHAPE = "write postgresql://user@host:5432/database?schema=pagefile"
_MOST_SCHEMA_BYTES = 63
#: A peer that is gone without a word is noticed within about this many seconds.
_SILENCE_SECONDS = 20


class Address(msgspec.Struct, frozen=True):
    """What to connect to, which schema holds the store, and how to speak of it."""

    parameters: dict[str, Any]
    schema: str
    #: Whether the store is to keep vectors with its entries.
    vectors: bool = False

    def __repr__(self) -> str:
        # The parameters hold the password.
        return f"<Address {self}>"

    def __str__(self) -> str:
        host = self.parameters.get("host", "")
        port = self.parameters.get("port")
        place = f"{host}:{port}" if port else f"{host}"
        return f"postgresql://{place}/{self.parameters.get('dbname', '')}"

    def number_for(self, what: str) -> int:
        """The advisory lock that stands for something of this store: 64 bits of a digest."""
        named = f"pagefile\x00{self.schema}\x00{what}"
        digest = hashlib.sha256(named.encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    @property
    def channel(self) -> str:
        """Where commits of this store are announced; an identifier of at most 63 bytes."""
        digest = hashlib.sha256(self.schema.encode()).hexdigest()
        return f"pagefile_{digest[:24]}"


def address_of(url: str) -> Address:
    """Take a URL apart. Everything but `schema` and `vectors` is libpq's own.

    Raises:
        Invalid: it is no URL that libpq understands; the message repeats nothing of it.
    """
    head, _, query = url.partition("?")
    schema, vectors, rest = DEFAULT_SCHEMA, "", []
    try:
        urlsplit(url)
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name == "schema":
                schema = value
            elif name == "vectors":
                vectors = value
            else:
                rest.append(f"{quote(name)}={quote(value, safe='')}")
        parameters = conninfo_to_dict(f"{head}?{'&'.join(rest)}" if rest else head)
    except (psycopg.Error, ValueError):
        # Without its cause: libpq and Python repeat parts of what they cannot read.
        raise Invalid("url", "libpq cannot read it", _SHAPE) from None
    if not 0 < len(schema.encode()) <= _MOST_SCHEMA_BYTES or schema.startswith("pg_"):
        raise Invalid("url", f"{shown(schema)} cannot name a schema", "use 1 to 63 bytes, not pg_…")
    if vectors not in ("", "pgvector"):
        raise Invalid("url", f"there are no vectors of {shown(vectors)}", "write vectors=pgvector")
    defaults = {
        "application_name": "pagefile",
        "connect_timeout": "10",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "2",
        "tcp_user_timeout": str(_SILENCE_SECONDS * 1_000),
    }
    return Address({**defaults, **parameters}, schema, vectors != "")

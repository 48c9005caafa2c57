"""What a Redis URL says: where the servers are, and how commits are waited for."""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from pagefile.errors import Invalid, shown

_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_PORT = 6379
_MOST_NODES = 100
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


class Address(msgspec.Struct, frozen=True):
    """What a URL says. It is never shown: it may hold a password."""

    #: As it was given.
    given: str
    #: For the client library.
    url: str
    #: The server without credentials, for messages.
    where: str
    host: str
    port: int
    prefix: str
    #: Wait after each commit until the server's own append-only file has it on disk.
    waitaof: bool
    #: Wait after each commit for this many replicas.
    replicas: int
    #: Whether it is a cluster; None asks the server.
    cluster: bool | None
    #: Further nodes to ask where the first does not answer.
    nodes: tuple[tuple[str, int], ...]

    def __repr__(self) -> str:
        return f"<Address of {self.where}>"

    def at(self, host: str, port: int) -> Address:
        """The same of another server: its credentials and options."""
        parts = urlsplit(self.url)
        who, mark, _ = parts.netloc.rpartition("@")
        there = parts._replace(netloc=f"{who}{mark}{_joined(host, port)}")
        before = f"://{_joined(self.host, self.port)}/"
        where = self.where.replace(before, f"://{_joined(host, port)}/", 1)
        return msgspec.structs.replace(
            self, url=urlunsplit(there), where=where, host=host, port=port
        )


def address_of(url: str) -> Address:
    """The parts of a `redis://`, `rediss://`, `valkey://` or `valkeys://` URL.

    Raises:
        Invalid: a part is not usable.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or _PORT
    except ValueError:
        raise unfit("the port is no number", "write redis://host:port/0") from None
    host = parts.hostname or "localhost"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", "pagefile")
    if not prefix:
        raise unfit("the prefix is empty", "leave it out, or give at least one character")
    waitaof, replicas = options.pop("waitaof", "0"), options.pop("replicas", "0")
    if waitaof not in ("0", "1"):
        raise unfit(f"waitaof is {shown(waitaof)}", "give waitaof=0 or waitaof=1")
    if not replicas.isdecimal() or len(replicas) > 4:
        raise unfit(f"replicas is {shown(replicas)}", "give a whole number")
    cluster = options.pop("cluster", "")
    if cluster not in ("", "0", "1"):
        raise unfit(f"cluster is {shown(cluster)}", "give cluster=0 or cluster=1, or leave it out")
    nodes = _nodes(options.pop("nodes", ""))
    database = unquote(parts.path).removeprefix("/") or "0"
    if not database.isdecimal():
        raise unfit(f"the database is {shown(database)}", "give its number, as in /0")
    if _SCHEMES[parts.scheme] == "rediss":
        if options.get("ssl_cert_reqs") != "none":
            # Older clients compare no names unless told to.
            options.setdefault("ssl_check_hostname", "true")
        for name in _FILES:
            if name in options and not os.access(options[name], os.R_OK):
                raise unfit(f"{name} names nothing that can be read", "give the path of a PEM file")
    elif any(name.startswith("ssl_") for name in options):
        raise unfit("it has options for TLS, and asks for none", f"write {parts.scheme}s://…")
    plain = urlunsplit(
        (_SCHEMES[parts.scheme], parts.netloc, f"/{database}", urlencode(options), "")
    )
    return Address(
        given=url,
        url=plain,
        where=f"{parts.scheme}://{_joined(host, port)}/{database}",
        host=host,
        port=port,
        prefix=prefix,
        waitaof=waitaof == "1",
        replicas=int(replicas),
        cluster=None if not cluster else cluster == "1",
        nodes=nodes,
    )


def _nodes(text: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`."""
    found: list[tuple[str, int]] = []
    for one in filter(None, text.split(",")):
        try:
            parts = urlsplit(f"//{one}")
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            host, port = None, 0
        if not host or "@" in one or "/" in one or len(found) == _MOST_NODES:
            raise unfit("nodes are no addresses", "write nodes=host:port,host:port")
        found.append((host, port))
    return tuple(found)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unfit(fact: str, rule: str) -> Invalid:
    """The error for a URL that cannot be used; never with its words, which may hold a password."""
    return Invalid("url", fact, rule)

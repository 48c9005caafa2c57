"""Who asks over HTTP, as operations see them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import Scope

from pagefile import operations
from pagefile.aio import AsyncPagefile
from pagefile.operations.caller import Host
from pagefile.store.records import Document
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.http.bodies import LARGE_BYTES
from pagefile.surfaces.http.call import Call, call_of
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.problems import Refused

if TYPE_CHECKING:
    from pagefile.surfaces.http.app import Server

_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class Caller(operations.Caller):
    """An authenticated request, as operations see it that are served over HTTP alone."""

    __slots__ = ("request",)

    identity: Identity

    def __init__(self, request: Request, call: Call, identity: Identity, pf: AsyncPagefile) -> None:
        super().__init__(identity, pf, call)
        self.request = request

    async def document(self, name: str) -> Document | None:
        reads = call_of(self.request).reads
        assert reads is not None
        return await reads.get(name)

    @property
    def key(self) -> str:
        return store_key(self.identity, key_in(self.request.scope))

    @property
    def is_large(self) -> bool:
        length = call_of(self.request).heads.get(b"content-length", b"")
        return not length.isdigit() or int(length) > LARGE_BYTES

    @property
    def host(self) -> Host:
        return self.server

    @property
    def server(self) -> Server:
        """The process that answers."""
        server: Server = self.request.app.state.server
        return server

    @property
    def request_id(self) -> str:
        return call_of(self.request).request_id

    @property
    def config(self) -> ServerConfig:
        return call_of(self.request).config


def caller_of(request: Request) -> Caller:
    """Who asks. The front lets nobody through without an identity and a handle."""
    call = call_of(request)
    assert call.identity is not None
    assert call.pf is not None
    return Caller(request, call, call.identity, call.pf)


def key_in(scope: Scope) -> str | None:
    """The request's `Idempotency-Key`, if it has one.

    Raises:
        Refused: it is none.
    """
    given = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if not given:
        return None
    text = str(given[0].decode("latin-1"))
    if len(given) > 1 or _KEY.fullmatch(text) is None:
        raise Refused(400, "Idempotency-Key: give 1 to 200 visible ASCII characters, once")
    return text


def store_key(identity: Identity, key: str | None) -> str:
    """A caller's key as the store's: two callers who choose the same never meet."""
    return "" if key is None else f"http:{identity.principal}:{key}"

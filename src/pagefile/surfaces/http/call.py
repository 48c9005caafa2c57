"""One request on its way: who asks, which handle answers, and what became of it."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from pagefile.aio import AsyncPagefile
from pagefile.surfaces.access.identity import Identity, Right
from pagefile.surfaces.http.config import ServerConfig

if TYPE_CHECKING:
    from pagefile.aio.memory import AsyncMemory
    from pagefile.surfaces.http.tenants import GroupReads, Lease


class Call:
    """What is known of a request beyond its bytes. A route reads it; the front fills it in."""

    __slots__ = (
        "client",
        "config",
        "error_kind",
        "heads",
        "identity",
        "is_untraceable",
        "kept_answer",
        "lease",
        "partition",
        "pf",
        "reads",
        "reason",
        "request_id",
        "route",
        "status",
    )

    def __init__(
        self, request_id: str, client: str, config: ServerConfig, heads: dict[bytes, bytes]
    ) -> None:
        self.request_id = request_id
        #: The headers by name; of one that came twice the last.
        self.heads = heads
        self.client = client
        self.config = config
        self.route = ""
        self.status = 0
        #: Why it was refused: the code of the problem.
        self.reason = ""
        #: The class and place of an error that nobody expected.
        self.error_kind = ""
        self.identity: Identity | None = None
        #: The user whose data is touched, as far as a route said so.
        self.partition: str | None = None
        #: Whether nothing may be kept that what was asked for could be guessed from.
        self.is_untraceable = False
        #: What a repeat is answered with, where the answer itself must not be kept.
        self.kept_answer: bytes | None = None
        self.lease: Lease | None = None
        self.pf: AsyncPagefile | None = None
        self.reads: GroupReads | None = None

    def take(self, lease: Lease) -> None:
        """The handle that answers."""
        self.lease = lease
        self.pf, self.reads = lease.pf, lease.reads


#: Handles whose memory is loaded.
_with_memory: weakref.WeakSet[AsyncPagefile] = weakref.WeakSet()


class Caller:
    """An authenticated request, as routes see it."""

    __slots__ = ("_call", "identity", "pf")

    def __init__(self, call: Call, identity: Identity, pf: AsyncPagefile) -> None:
        self._call = call
        self.identity = identity
        self.pf = pf

    async def memory(self) -> AsyncMemory:
        """The tenant's memory; what the first call loads is loaded without blocking the loop."""
        held = self.pf
        if held not in _with_memory:
            await asyncio.to_thread(lambda: held.sync.memory)
            _with_memory.add(held)
        return held.memory

    @property
    def request_id(self) -> str:
        return self._call.request_id

    @property
    def config(self) -> ServerConfig:
        return self._call.config

    @property
    def writer_id(self) -> str:
        """What ledgers call this caller."""
        return self.identity.name

    def user(self, user_id: str | None) -> str | None:
        """See `Identity.of_user`; what is kept of this request is kept with that user.

        Of one about several it is kept with the first, and tells nothing of the others.
        """
        call, user_id = self._call, self.identity.of_user(user_id)
        if call.partition is None:
            call.partition = user_id
        elif user_id != call.partition:
            call.is_untraceable = True
        return user_id

    def touches(self, user_id: str | None) -> None:
        """Say whose data is answered with, where that is known only now."""
        self._call.partition = user_id

    def leaves_nothing(self, answer: bytes | None = None) -> None:
        """Say that what is kept of this request must not tell whom it was about.

        A repeat gets `answer` if there is one, which names nobody and nothing of theirs.
        """
        self._call.partition = None
        self._call.is_untraceable = True
        self._call.kept_answer = answer

    def require(self, right: Right) -> None:
        """See `Identity.require`."""
        self.identity.require(right)

    def require_whole_tenant(self) -> None:
        """See `Identity.require_whole_tenant`."""
        self.identity.require_whole_tenant()


def call_of(request: Request) -> Call:
    """The call that a request belongs to."""
    return cast(Call, request.scope["pagefile"])


def caller_of(request: Request) -> Caller:
    """Who asks. The front lets nobody through without an identity and a handle."""
    call = call_of(request)
    assert call.identity is not None
    assert call.pf is not None
    return Caller(call, call.identity, call.pf)

"""One request on its way: who asks, which handle answers, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from pagefile.aio import AsyncPagefile
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.http.config import ServerConfig

if TYPE_CHECKING:
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


def call_of(request: Request) -> Call:
    """The call that a request belongs to."""
    return cast(Call, request.scope["pagefile"])

"""One request on its way: who asks, which handle answers, and what became of it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType
from typing import cast

from starlette.requests import Request

from pagefile.aio import AsyncPagefile
from pagefile.errors import Unavailable
from pagefile.handle import Admin
from pagefile.store.records import Document
from pagefile.store.store import Store
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.http.config import ServerConfig


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


_MOST_READ_AT_ONCE = 256


class Lease:
    """A handle in use; it is not closed while anybody has it."""

    __slots__ = ("_held", "pf", "reads")

    def __init__(self, held: _Held) -> None:
        self._held = held
        self.pf = held.pf
        self.reads = held.reads
        held.users += 1

    def __enter__(self) -> AsyncPagefile:
        return self.pf

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def again(self) -> Lease:
        """Another one of the same handle, for what goes on when this one is released."""
        return Lease(self._held)

    def release(self) -> None:
        self._held.users -= 1


class _Held:
    __slots__ = ("pf", "reads", "users")

    def __init__(self, pf: AsyncPagefile) -> None:
        self.pf = pf
        self.reads = GroupReads(pf.sync.store)
        self.users = 0


class Tenants:
    """All handles of one process, on one `Admin`. Used from one event loop."""

    def __init__(self, admin: Admin, most: int) -> None:
        self._admin = admin
        self._most = most
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._opening = asyncio.Lock()

    def at_hand(self, tenant: str) -> Lease | None:
        """The tenant's handle, if it is open already."""
        held = self._held.get(tenant)
        if held is None:
            return None
        self._held.move_to_end(tenant)
        return Lease(held)

    async def lease(self, tenant: str) -> Lease:
        """The tenant's handle; opening one writes nothing.

        Raises:
            Unavailable: more tenants are at work than this process may serve.
        """
        at_hand = self.at_hand(tenant)
        if at_hand is not None:
            return at_hand
        async with self._opening:
            if tenant not in self._held:
                await self._make_room()
                self._held[tenant] = _Held(await asyncio.to_thread(self._open, tenant))
            return Lease(self._held[tenant])

    def _open(self, tenant: str) -> AsyncPagefile:
        return AsyncPagefile(self._admin.open(tenant))

    async def _make_room(self) -> None:
        while len(self._held) >= self._most:
            idle = next((name for name, held in self._held.items() if not held.users), None)
            if idle is None:
                raise Unavailable("too many tenants are at work here", "try again later")
            await self._held.pop(idle).pf.close()

    async def close(self) -> None:
        """Let go of all handles."""
        while self._held:
            _, held = self._held.popitem()
            await held.pf.close()


class GroupReads:
    """Reads documents of one tenant for many callers; those asked for at once in one go.

    A worker thread costs more than the read it makes. Documents that are asked for
    while one read is under way share the next, as commits share a sync; the event
    loop is never blocked. Used from one event loop.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[str, asyncio.Future[Document | None]]] = []
        self._reader: asyncio.Task[None] | None = None

    async def get(self, name: str) -> Document | None:
        """The document as it is now; see `Store.get`."""
        waiter: asyncio.Future[Document | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, waiter))
        if self._reader is None:
            self._reader = asyncio.ensure_future(self._read())
        return await waiter

    async def _read(self) -> None:
        try:
            while self._waiting:
                group = self._waiting[:_MOST_READ_AT_ONCE]
                del self._waiting[:_MOST_READ_AT_ONCE]
                await self._answer(group)
        finally:
            self._reader = None

    async def _answer(self, group: list[tuple[str, asyncio.Future[Document | None]]]) -> None:
        names = [*{name: None for name, _ in group}]
        try:
            found = dict(zip(names, await asyncio.to_thread(self._all, names), strict=True))
        except Exception as error:  # noqa: BLE001 - it is handed to everybody who waits
            for _, waiter in group:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        for name, waiter in group:
            if not waiter.done():
                waiter.set_result(found[name])

    def _all(self, names: list[str]) -> list[Document | None]:
        if len(names) == 1:
            return [self._store.get(names[0])]
        return self._store.get_many(names)

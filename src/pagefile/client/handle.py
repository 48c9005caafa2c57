"""The handle on a server: what `pagefile.open("http://…")` gives."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import Any, Self

import msgspec

from pagefile.assembly.options import AssemblyOptions
from pagefile.client.calls import Room, faced, not_offered, operations, row
from pagefile.client.memory import RemoteAssembly, RemoteItems, RemoteMemory, RemoteStore
from pagefile.client.request import asked
from pagefile.client.runs import RemoteRuns
from pagefile.client.threads import RemoteContext, RemoteRegistry
from pagefile.client.transport import Address, AsyncLink, Link, Remote, Talk, answered
from pagefile.errors import Forbidden, PagefileError
from pagefile.handle import Pagefile
from pagefile.store.arguments import require_type
from pagefile.store.records import Head, Report, Stats


class RemoteHandle(Room):
    """One tenant of a store behind a server, with the names of `Pagefile`."""

    library = Pagefile
    place = ""

    def __init__(self, link: Link | AsyncLink, tenant: str) -> None:
        super().__init__(link)
        self.tenant = tenant
        self.url = link.address.url

    @cached_property
    def context(self) -> Any:
        """The threads of this tenant."""
        return self._new(RemoteContext)

    @cached_property
    def registry(self) -> Any:
        """Which call paths the threads of this tenant stand for."""
        return self._new(RemoteRegistry)

    @cached_property
    def runs(self) -> Any:
        """The runs of this tenant."""
        return self._new(RemoteRuns)

    @cached_property
    def items(self) -> Any:
        """What this tenant's agents know for the long term."""
        return self._new(RemoteItems)

    @cached_property
    def memory(self) -> Any:
        """What this tenant's agents remember, for each user apart."""
        return self._new(RemoteMemory)

    @cached_property
    def assembly(self) -> Any:
        """Prompts for this tenant's agents."""
        return self._new(RemoteAssembly)

    @cached_property
    def store(self) -> Any:
        """The store, as far as a server shows it."""
        return self._new(RemoteStore)

    @cached_property
    def server(self) -> Any:
        """What a server has that the library has not."""
        return RemoteServer(self._link)

    @property
    def feed(self) -> Any:
        raise not_offered(RemoteHandle, "feed")

    def assemble(
        self,
        source: Any = None,
        query: str | None = None,
        budget: int = 8_000,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        system: str = "",
        agent: str = "",
        counter: Any = None,
        at: int | None = None,
        record: bool = True,
        options: AssemblyOptions | None = None,
    ) -> Talk[Any]:
        """See `Assembly.assemble`."""
        return (
            yield from RemoteAssembly.assemble(
                RemoteAssembly(self._link),
                source,
                query,
                budget,
                user_id=user_id,
                project_id=project_id,
                system=system,
                agent=agent,
                counter=counter,
                at=at,
                record=record,
                options=options,
            )
        )

    def verify(self, *, head: Head | None = None) -> Talk[Report]:
        """See `Store.verify`."""
        return (yield from RemoteStore.verify(RemoteStore(self._link), head=head))

    def check(self) -> Talk[Report]:
        """See `Store.check`."""
        return (yield from RemoteStore.check(RemoteStore(self._link)))

    def stats(self) -> Talk[Stats]:
        """See `Store.stats`."""
        return (yield from RemoteStore.stats(RemoteStore(self._link)))

    def close(self) -> Any:
        """Give back the connections."""
        return self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class RemoteServer:
    """What a server has that the library has not: `whoami`, and rows without a method.

    Each is a function of that name with keywords; it gives the answer as it is, a page
    with `items` and `cursor` for a listing.
    """

    def __init__(self, link: Link | AsyncLink) -> None:
        self._link: Any = link

    def __dir__(self) -> list[str]:
        return ["whoami", *(name for name in operations() if "." not in name)]

    def whoami(self) -> Any:
        """Whom the key belongs to, and what it may do."""
        return self._link.run(whoami())

    def __getattr__(self, name: str) -> Any:
        operation = operations().get(name)
        if operation is None or operation.method is not None or operation.gives_file:
            raise AttributeError(f"a server has no {name!r}")

        def talk(**given: Any) -> Talk[Any]:
            ask = row(name).ask(given, user_id=self._link.address.user_id)
            return (yield from answered(ask, operation.bound.answer))

        return lambda **given: self._link.run(talk(**given))


class Identity(msgspec.Struct, frozen=True):
    """Who asks, as the server knows them."""

    tenant: str
    user_id: str | None
    name: str
    rights: tuple[str, ...]


def whoami() -> Talk[Identity]:
    """Ask the server whom the key belongs to."""
    return (yield from answered(asked("GET", "/v1/whoami", is_safe=True), Identity))


def open_remote(
    url: str,
    *,
    key: str | None = None,
    tenant: str | None = None,
    user: str | None = None,
    options: Remote | None = None,
) -> RemoteHandle:
    """A handle on a server; see `pagefile.open`.

    Raises:
        Invalid: the address or the key is not usable.
        Forbidden: the key is not known there, or belongs to another tenant.
        Unavailable: the server did not answer.
    """
    link = Link(_address(url, key, user, options))
    try:
        found = link.run(whoami())
        _require(found, tenant)
    except PagefileError:
        link.close()
        raise
    made: RemoteHandle = faced(RemoteHandle, is_awaited=False)(link, found.tenant)
    return made


async def open_remote_async(
    url: str,
    *,
    key: str | None = None,
    tenant: str | None = None,
    user: str | None = None,
    options: Remote | None = None,
) -> RemoteHandle:
    """`open_remote` for an event loop."""
    link = AsyncLink(_address(url, key, user, options))
    try:
        found = await link.run(whoami())
        _require(found, tenant)
    except PagefileError:
        await link.close()
        raise
    made: RemoteHandle = faced(RemoteHandle, is_awaited=True)(link, found.tenant)
    return made


def _address(url: str, key: str | None, user: str | None, options: Remote | None) -> Address:
    chosen = Remote() if options is None else options
    require_type("remote", chosen, Remote)
    return Address.of(url, key, user, chosen)


def _require(found: Identity, tenant: str | None) -> None:
    if tenant is not None and tenant != found.tenant:
        raise Forbidden(
            f"the key belongs to tenant {found.tenant!r}, not to {tenant!r}",
            "leave `tenant` out, or bring a key of that tenant",
        )

"""The clients: everything that the server offers, over connections that are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from pagefile.client.async_connection import AsyncLink
from pagefile.client.awaited.nouns import AsyncNouns
from pagefile.client.calls.nouns import Nouns
from pagefile.client.config import MOST_ANSWER_BYTES, MOST_DOWNLOAD_BYTES, configured
from pagefile.client.connection import Link
from pagefile.client.page import Listing

Item = TypeVar("Item")
Given = ParamSpec("Given")
_TIMEOUT = 60.0
_RETRIES = 4
_CONNECTIONS = 64


class Client(Nouns):
    """A server's memory, threads and runs, from a program that blocks.

    `base_url` and `api_key` are PAGEFILE_BASE_URL and PAGEFILE_API_KEY where they
    are not given. `user_id` is whom calls are for that name nobody. `timeout` is
    the seconds that one attempt may take. A request that the server did not get,
    or was too busy for, is sent again up to `retries` times; one that may have
    arrived only if a repeat is stored once, for which every write has a key.
    `transport` is an httpx one, for proxies and certificates of your own.

    Threads may share a client. Errors are those of the library.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        user_id: str | None = None,
        timeout: float = _TIMEOUT,
        retries: int = _RETRIES,
        connections: int = _CONNECTIONS,
        max_answer_bytes: int = MOST_ANSWER_BYTES,
        max_download_bytes: int = MOST_DOWNLOAD_BYTES,
        transport: Any = None,
    ) -> None:
        self._config = configured(
            base_url,
            api_key,
            user_id,
            timeout,
            retries,
            connections,
            max_answer_bytes,
            max_download_bytes,
        )
        self._link = Link(self._config, transport)
        super().__init__(self._link)

    def __repr__(self) -> str:  # without the key
        return f"Client({self._config.base_url!r})"

    def every(
        self, call: Callable[Given, Listing[Item]], *args: Given.args, **options: Given.kwargs
    ) -> Iterator[Item]:
        """All items of a listing, page after page: `client.every(client.threads.list)`."""
        cursor: str | None = None
        while True:
            asked: Any = options if cursor is None else {**options, "cursor": cursor}
            page = call(*args, **asked)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def close(self) -> None:
        """Give back the connections."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient(AsyncNouns):
    """`Client`, awaited. One event loop at a time."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        user_id: str | None = None,
        timeout: float = _TIMEOUT,
        retries: int = _RETRIES,
        connections: int = _CONNECTIONS,
        max_answer_bytes: int = MOST_ANSWER_BYTES,
        max_download_bytes: int = MOST_DOWNLOAD_BYTES,
        transport: Any = None,
    ) -> None:
        self._config = configured(
            base_url,
            api_key,
            user_id,
            timeout,
            retries,
            connections,
            max_answer_bytes,
            max_download_bytes,
        )
        self._link = AsyncLink(self._config, transport)
        super().__init__(self._link)

    def __repr__(self) -> str:  # without the key
        return f"AsyncClient({self._config.base_url!r})"

    async def every(
        self,
        call: Callable[Given, Awaitable[Listing[Item]]],
        *args: Given.args,
        **options: Given.kwargs,
    ) -> AsyncIterator[Item]:
        """All items of a listing, page after page."""
        cursor: str | None = None
        while True:
            asked: Any = options if cursor is None else {**options, "cursor": cursor}
            page = await call(*args, **asked)
            for item in page.items:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def close(self) -> None:
        """Give back the connections."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

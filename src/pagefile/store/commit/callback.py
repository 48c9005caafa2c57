"""A place that calls somebody: what came of one append, without a task that waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pagefile.errors import Unavailable
from pagefile.store.engine import Sealed
from pagefile.store.records import Entry

if TYPE_CHECKING:
    import asyncio

#: Called with the entry, with the error, or with None when the key had committed before.
Then = Callable[[Entry | Exception | None], None]


class Callback:
    """To a committer what a future is; used in the thread of its loop alone."""

    __slots__ = ("_entry_of", "_key", "_loop", "_then")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        key: str,
        entry_of: Callable[[Sealed], Entry],
        then: Then,
    ) -> None:
        self._loop = loop
        self._key = key
        self._entry_of = entry_of
        self._then = then

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return False

    def set_result(self, sealed: Sealed, /) -> None:
        self._call(None if sealed.repeated else self._entry_of(sealed))

    def set_exception(self, error: Exception, /) -> None:
        if isinstance(error, Unavailable):
            error.key = self._key
        self._call(error)

    def _call(self, told: Entry | Exception | None) -> None:
        try:
            self._then(told)
        except Exception as error:  # noqa: BLE001 - others of the same group are yet to be told
            context = {"message": "whoever was told of an append failed", "exception": error}
            self._loop.call_exception_handler(context)

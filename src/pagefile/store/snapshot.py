"""A store as it was at one position: whoever reads through it reads that moment and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from pagefile.errors import Forbidden, Invalid, Unsupported
from pagefile.store.arguments import MOST_PER_READ, require_count, require_position
from pagefile.store.batch import Append, Batch, Query, Selector
from pagefile.store.engine import DOCUMENT, LOG, Lone, Prepared, RawCommit, Sealed
from pagefile.store.records import Change, Document, Entry, Head, Page, Receipt, StreamKind
from pagefile.store.store import Store

_T = TypeVar("_T")


class Snapshot(Store):
    """The store of one tenant at a position; None is the newest there is.

    Rooms that are built on a store can be built on this and see one consistent
    past, whatever others commit meanwhile. What was erased since is gone here
    too. It refuses to write.
    """

    def __init__(self, store: Store, position: int | None = None) -> None:
        super().__init__(store._engine, store._committer, store._preparer, store._tenant)
        newest = store.head().position
        require_position(position)
        if position is not None and position > newest:
            raise Invalid(
                "at", f"{position} is not reached", f"give a position up to {newest}, or None"
            )
        #: The store itself, for what is about now.
        self.live = store
        self.position = newest if position is None else position

    @property
    def time_us(self) -> int:
        """When the last commit up to here was made; 0 before the first."""
        last = self._last()
        return 0 if last is None else last.time_us

    def _last(self) -> RawCommit | None:
        if not self.position:
            return None
        return self._engine.commits(self._tenant, self.position - 1, 1)[0]

    # Reading

    def head(self) -> Head:
        last = self._last()
        if last is None:
            return Head(0, self._engine.head(self._tenant).digest)
        return Head(self.position, last.digest)

    def _bounded(self, at: int | None) -> int:
        return self.position if at is None else min(at, self.position)

    def length(self, log: str, *, at: int | None = None) -> int:
        return super().length(log, at=self._bounded(at))

    def has_log(self, log: str) -> bool:
        self._naming.check_text("log", log)
        return self._engine.stream(self._tenant, LOG, log, self.position) is not None

    def read(
        self,
        log: str,
        start: int = 0,
        stop: int | None = None,
        *,
        limit: int = MOST_PER_READ,
        at: int | None = None,
    ) -> list[Entry]:
        return super().read(log, start, stop, limit=limit, at=self._bounded(at))

    def get(
        self, document: str, *, version: int | None = None, at: int | None = None
    ) -> Document | None:
        return super().get(document, version=version, at=self._bounded(at))

    def get_many(self, documents: Sequence[str]) -> list[Document | None]:
        return [self.get(name) for name in documents]

    def history(self, document: str, *, after: int = 0, limit: int = 100) -> list[Document]:
        found = super().history(document, after=after, limit=limit)
        return [one for one in found if one.position <= self.position]

    def find(self, query: Query, *, limit: int = 100, at: int | None = None) -> Page:
        return super().find(query, limit=limit, at=self._bounded(at))

    def names(
        self, kind: StreamKind, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[str]:
        raise Unsupported("names of the past are not listed", "ask the store itself")

    def changes(self, since: int = 0, *, limit: int = 1_000) -> list[Change]:
        require_count(since, "since")
        found = super().changes(since, limit=limit)
        return [one for one in found if one.position <= self.position]

    def wait(self, position: int, timeout: float) -> bool:
        return position <= self.position

    def _stamp(self) -> int | None:
        return None  # What is past does not change, but for what is erased.

    def _version(self, document: str) -> int:
        def ask() -> tuple[int, bool]:
            stream = self._engine.stream(self._tenant, DOCUMENT, document, self.position)
            return (0 if stream is None else self._length_at(stream, self.position)), True

        return self._settled(ask)

    def _kept(self) -> NoReturn:
        raise Unsupported("vectors are kept of now alone", "ask the store itself")

    # Writing is refused

    def keep_vectors(self) -> None:
        _refuse()

    def append(self, operation: Append) -> Entry:
        _refuse()

    def erase(
        self,
        selector: Selector | Sequence[Selector],
        *,
        beside: Batch | None = None,
        dry_run: bool = False,
        scrub: bool = True,
        timeout: float = 5.0,
    ) -> Receipt:
        _refuse()

    def _committed(self, batch: Batch, tell: Callable[[Batch, Prepared | Lone, Sealed], _T]) -> Any:
        _refuse()

    async def _committed_async(
        self, batch: Batch, tell: Callable[[Batch, Prepared | Lone, Sealed], _T]
    ) -> Any:
        _refuse()


def _refuse() -> NoReturn:
    raise Forbidden("the past cannot be written", "commit to the store itself")

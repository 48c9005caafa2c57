"""The search index as it was at a position: the same question finds the same again."""

from __future__ import annotations

from collections.abc import Callable

from pagefile.recall.catalogue import read_catalogue
from pagefile.recall.embed.embedder import Embedder
from pagefile.recall.hit import Hit
from pagefile.recall.index import SearchIndex
from pagefile.recall.partition import PartitionIndex
from pagefile.recall.partition_cache import Shelf
from pagefile.store.snapshot import Snapshot


class PastIndex(SearchIndex):
    """Answers from what was indexed up to a position, and from nothing later.

    At the newest position that is the index in memory. For an older one the
    user's log is folded anew, which takes time in proportion to what is kept of
    the user. An index that was rebuilt since is gone, and finds nothing.
    """

    def __init__(self, past: Snapshot, embedder: Embedder | None, shelf: Shelf) -> None:
        super().__init__(past, embedder, shelf)
        self._past = past

    @property
    def is_kept(self) -> bool:
        """Whether the index of that time can be asked here: with this model, not made anew."""
        then, now = self._any(), read_catalogue(self._past.live)
        if then is None:
            return True
        return now is not None and now.generation == then.generation and then.model == self.model

    def _answer(
        self, whose: str, ask: Callable[[PartitionIndex], list[Hit]], stamp: int | None
    ) -> list[Hit]:
        catalogue = self._known()
        if catalogue is None:
            return []
        while True:
            partition, is_same = self._shelf.partition_at(catalogue, whose, self._past)
            found = ask(partition)
            # Something was indexed while we asked: then it is no longer the newest, and read anew.
            if is_same():
                return found

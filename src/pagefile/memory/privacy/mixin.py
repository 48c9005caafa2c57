"""A user's memories as a whole: taken out, brought in, forgotten, indexed anew."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pagefile.memory.facts.store import FactStore
from pagefile.memory.index_source import Findables
from pagefile.memory.names import owner_key
from pagefile.memory.privacy.erasure_plan import Extent
from pagefile.memory.privacy.export import MemoryExport
from pagefile.memory.privacy.forget import Forgetting
from pagefile.memory.privacy.forget_receipt import ForgetReceipt
from pagefile.memory.privacy.importer import Bringing, ImportReceipt, Lines
from pagefile.memory.provenance import UseRecorder
from pagefile.memory.user_check import WatchedCalls
from pagefile.recall.arms.synchronizer import VectorFollower, VectorsFollowed, VectorStatus
from pagefile.recall.index import SearchIndex
from pagefile.recall.partition_cache import Shelf
from pagefile.recall.rebuild import Rebuilding
from pagefile.store.arguments import require_callable, require_flag


class Keeping(WatchedCalls):
    """The part of `Memory` that exports, imports, forgets and reindexes."""

    _facts: FactStore
    _index: SearchIndex
    _shelf: Shelf
    _uses: UseRecorder
    _forgetting: Forgetting
    _findables: Findables
    _follower: VectorFollower | None
    _clock: Callable[[], datetime]

    def export(self, *, user_id: str | None = None) -> MemoryExport:
        """Everything that is kept of a user: blocks, episodes, facts, items, runs, slots.

        Nothing is read before the lines are gone through.
        """
        self._watch(user_id)
        self._uses.flush()
        return MemoryExport(self._store, self._facts, user_id, self._clock())

    def import_(self, source: Lines, *, own_only: bool = False) -> ImportReceipt:
        """Take in what `export` gave: a path, or the lines. Doing it again does nothing.

        With `own_only`, for lines that somebody else made: what users other than
        the export's would meet is refused, and so are streams that hold records of others.

        Raises:
            Invalid: a line is not what its name says, or another's; nothing was stored.
            Corrupt: a line was changed or is missing; nothing was stored.
            Conflict: something else stands here under the same name.
        """
        findables = self._findables
        require_flag("own_only", own_only)
        return Bringing(
            self._store,
            findables.indexing,
            self._index.refresh,
            findables.check,
            own_only=own_only,
        ).bring(source)

    def forget(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        episode_id: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        scrub: bool = True,
    ) -> ForgetReceipt:
        """Erase what is kept of a user, everywhere, in one commit; say what went.

        With a session, its episodes, what was derived from them alone, and what
        the user said in the thread of that name. With an episode, that one and
        what was derived from it alone. With `before`, what happened or
        was stored before that moment. What is sent again later stays forgotten.
        `scrub=False` leaves the rewriting of the file to the next erasure.
        """
        self._watch(user_id)
        require_flag("dry_run", dry_run)
        require_flag("scrub", scrub)
        self._uses.flush()
        extent = Extent(user_id, session_id, episode_id, before)
        return self._forgetting.forget(extent, dry_run=dry_run, scrub=scrub)

    def reindex(self, progress: Callable[[int], None] | None = None) -> int:
        """Make the search index of the whole tenant anew, with this handle's embedder.

        Returns how many memories were indexed; `progress` is called with how many
        so far. Until it is done the index that was there serves the handles of its
        embedder, and others are refused; then it is the other way round. Cut off, it
        has changed nothing, and is to be done again.

        Raises:
            Unavailable: the embedder fails; it says whether the index is as it was.
            Conflict: somebody else began the same meanwhile, and goes on.
        """
        if progress is not None:
            require_callable("progress", progress)
        return Rebuilding(self._store, self._index, self._shelf, self._findables).run(progress)

    def sync_vectors(self, progress: Callable[[int], None] | None = None) -> int:
        """Bring the vector arm of the whole tenant up to date; return how many it was given.

        Until then what it lacks is compared in this process. Doing it again does
        nothing, whoever was cut off in between; an arm that was wiped is filled
        anew, and what was forgotten leaves it. Without an arm there is nothing to do.

        Raises:
            Unavailable: the arm does not answer.
            Unsupported: it holds another model's vectors.
        """
        if progress is not None:
            require_callable("progress", progress)
        keeper = self._index.keeper
        return 0 if keeper is None else keeper.sync_all(progress)

    def vector_status(self, *, user_id: str | None = None) -> VectorStatus:
        """Where a user's vectors are, and how far the vector arm lags behind."""
        self._watch(user_id)
        return self._index.vector_status(owner_key(user_id))

    def vectors_followed(self) -> VectorsFollowed | None:
        """How far the thread of `vectors_every` has come; None when there is none."""
        return None if self._follower is None else self._follower.status()

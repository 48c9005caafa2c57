"""A thread that keeps the vector arm up to date, and ends when it is told to."""

from __future__ import annotations

import threading

import msgspec

from pagefile.errors import Forbidden, PagefileError
from pagefile.recall.arms.synchronizer import Keeper
from pagefile.settings import Settings
from pagefile.store.arguments import require_seconds
from pagefile.store.store import Store
from pagefile.store.threads import Rounds

#: How long closing waits for the request under way; an arm's own requests end sooner.
CLOSE_SECONDS = 15.0


class VectorsFollowed(msgspec.Struct, frozen=True, kw_only=True):
    """How far the thread of `vectors_every` has come.

    `behind` commits were made since the ones it has looked at; 0 is up to date.
    `failure` is the error of the last round, "" when that went well; the next
    round tries again, and `is_running` says whether there will be one.
    """

    every_seconds: float
    rounds: int
    given: int
    behind: int
    failure: str
    is_running: bool


class VectorFollower(Rounds):
    """Does what `sync_vectors` does, every few seconds, when something was committed since.

    What the arm or the store refuses is kept and shown, and tried again. Any other
    error ends the thread, is shown, and is raised by `end`.
    """

    def __init__(self, store: Store, keeper: Keeper, every_seconds: float) -> None:
        super().__init__("pagefile-vectors", every_seconds, daemon=True)
        self._store = store
        self._keeper = keeper
        self._state = threading.Lock()
        self._rounds = self._given = 0
        #: The position that the arm has followed to; before the first round none.
        self._position = -1
        self._trouble: Exception | None = None

    def _round(self) -> bool:
        position = self._head()
        if position != self._position or self._trouble is not None:
            given = self._keeper.sync_all(cancelled=self._stop.is_set)
            with self._state:
                self._given += given
                if not self._stop.is_set():
                    # What was committed while it went on is looked at in the next round.
                    self._position, self._trouble = position, None
        with self._state:
            self._rounds += 1
        return False

    def _head(self) -> int:
        try:
            return self._store.head().position
        except Forbidden:
            # The handle below was closed: nothing will ever come again.
            self._stop.set()
            raise

    def _goes_on_after(self, failure: Exception) -> bool:
        with self._state:
            self._rounds += 1
            self._trouble = failure
        return isinstance(failure, PagefileError)

    def status(self) -> VectorsFollowed:
        """How far it has come. Asks the store where it is, and never the arm."""
        head = self._store.head().position
        thread = self._thread
        with self._state:
            trouble = self._trouble
            return VectorsFollowed(
                every_seconds=self._interval,
                rounds=self._rounds,
                given=self._given,
                behind=max(0, head - max(0, self._position)),
                failure="" if trouble is None else f"{type(trouble).__name__}: {trouble}",
                is_running=thread is not None and thread.is_alive() and not self._stop.is_set(),
            )

    def end(self) -> None:
        """Stop: a round under way ends at its next request to the arm, and nothing is lost.

        An arm that does not answer is not waited for longer than `CLOSE_SECONDS`: then the
        thread ends by itself, later.

        Raises:
            Exception: what ended the thread before, when that was no refusal.
        """
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def follower_of(store: Store, keeper: Keeper | None, every: float | None) -> VectorFollower | None:
    """The thread that `vectors_every` asks for, not started yet; None where there is none.

    None is what PAGEFILE_VECTORS_EVERY says, and 0 never. Without an arm,
    or where vectors come with their entries, there is nothing to follow.

    Raises:
        Invalid: it is no number of seconds.
    """
    if every is None:
        every = Settings.from_environment().vectors_every
    require_seconds(every, "vectors_every")
    if keeper is None or not keeper.lags or not every:
        return None
    return VectorFollower(store, keeper, every)

"""Claims on unread episodes: one worker reads each, and only for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from pagefile.errors import Conflict, LimitExceeded
from pagefile.memory.documents import new_id, owner_key, plain, shaped
from pagefile.memory.episodes.episode import Episode, document_of, episode_of, merging, put_episode
from pagefile.memory.extraction.candidate import Candidate, Extractor, signature_of
from pagefile.store.batch import Batch, Condition, Operation, Put, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.records import Document
from pagefile.store.store import Store

# How far the reading of an episode is: claimed for a while, tried again later, done, given up.
#
# memory/extraction/<digest of the user>/<episode id>        in that user's partition


#: What the names of all of them begin with.
STATES = "memory/extraction/"
_MOST_ERROR = 500


class ExtractionState(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an episode's reading. `until_us` ends a claim, or a pause after a failure.

    `found` is what was read in version `found_in` of the episode and could not
    be stored then: reading costs money, and is not done again for it.
    """

    status: Literal["claimed", "waiting", "done", "failed"]
    extractor: str
    worker: str = ""
    until_us: int = 0
    attempts: int = 0
    error: str = ""
    facts: int = 0
    proposed: int = 0
    found: tuple[Candidate, ...] = ()
    found_in: int = 0

    def is_open(self, now_us: int) -> bool:
        """Whether somebody may read the episode now, given that it is unread."""
        return self.is_over or self.until_us <= now_us

    @property
    def is_over(self) -> bool:
        """Whether it was read to the end, or given up."""
        return self.status in ("done", "failed")


class HeldState(msgspec.Struct, frozen=True):
    """A state as it is stored; version 0 and no state when nobody has tried yet."""

    document: str
    version: int
    state: ExtractionState | None

    @property
    def unchanged(self) -> VersionIs:
        """The condition that nobody else has come to it."""
        return VersionIs(self.document, self.version)


def state_name(episode_id: str, user_id: str | None) -> str:
    """The document of an episode's state."""
    return f"{STATES}{owner_key(user_id)}/{episode_id}"


def read_state(store: Store, episode_id: str, user_id: str | None) -> HeldState:
    """What became of an episode's reading so far."""
    name = state_name(episode_id, user_id)
    found = store.get(name)
    if found is None or found.erased:
        return HeldState(name, 0, None)
    return HeldState(name, found.version, shaped(found, ExtractionState))


def put_state(name: str, user_id: str | None, state: ExtractionState) -> Put:
    """Write a state."""
    return Put(name, plain(state), user=user_id, kind="extraction", actor=state.worker)


def told(error: BaseException) -> str:
    """An error in a line that is worth keeping, and not too long."""
    text = f"{type(error).__name__}: {error}"[:_MOST_ERROR]
    # Somebody else's words may hold what no codec can write.
    return text.encode(errors="replace").decode()


_SECOND = 1_000_000


class ClaimedEpisode(msgspec.Struct):
    """An unread episode, and the claim on it as it is stored."""

    document: Document
    episode: Episode
    held: HeldState
    claim: ExtractionState
    #: Held while the claim is written: it is renewed while another thread reads the episode.
    lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    is_over: bool = False

    @property
    def found(self) -> list[Candidate] | None:
        """What was read in it before and could not be stored; None when it is to be read."""
        if self.claim.found_in != self.document.version:
            return None
        return list(self.claim.found)

    @property
    def untouched(self) -> list[Condition]:
        """The conditions that nobody has changed the episode, or come to its claim."""
        return [VersionIs(self.document.name, self.document.version), self.held.unchanged]


class EpisodeClaims:
    """The claims of one worker, for an extractor to read."""

    def __init__(
        self,
        store: Store,
        extractor: Extractor,
        lease_seconds: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._extractor = extractor
        self._lease_us = lease_seconds * _SECOND
        self._clock = clock
        self._worker = new_id("worker")

    def claim(self, documents: Sequence[Document]) -> list[ClaimedEpisode]:
        """Claim those of them that are open, as far as nobody else comes first."""
        now_us = microseconds(self._clock())
        until_us = now_us + self._lease_us
        open_ones: list[ClaimedEpisode] = []
        for document in documents:
            episode = episode_of(document)
            held = read_state(self._store, episode.id, episode.user_id)
            if held.state is not None and not held.state.is_open(now_us):
                continue
            # Over, and changed since: else it would not be among those that are unread.
            tried = held.state is not None and not held.state.is_over
            claim = ExtractionState(
                found=held.state.found if held.state is not None else (),
                found_in=held.state.found_in if held.state is not None else 0,
                status="claimed",
                extractor=signature_of(self._extractor),
                worker=self._worker,
                until_us=until_us,
                attempts=held.state.attempts + 1 if tried and held.state is not None else 1,
            )
            open_ones.append(ClaimedEpisode(document, episode, held, claim))
        try:
            return self._claimed(open_ones)
        except Conflict:
            # Another worker has some of them; each by itself shows which.
            return [one for each in open_ones for one in self._claimed_alone(each)]

    def renewed(self, one: ClaimedEpisode) -> bool:
        """Whether the claim still holds; where half of its time is over, it is made anew.

        Many are claimed at once, and the last of them is read when the others
        have been; and one may be read for longer than a claim lasts.
        """
        with one.lock:
            now_us = microseconds(self._clock())
            if one.is_over or one.claim.until_us - now_us > self._lease_us // 2:
                return True
            before = one.claim
            one.claim = msgspec.structs.replace(before, until_us=now_us + self._lease_us)
            try:
                self._claimed([one])
            except Conflict:
                one.claim = before
                return False
            return True

    def _claimed_alone(self, one: ClaimedEpisode) -> list[ClaimedEpisode]:
        try:
            return self._claimed([one])
        except Conflict:
            return []

    def _claimed(self, ones: list[ClaimedEpisode]) -> list[ClaimedEpisode]:
        if not ones:
            return []
        commit = self._store.commit(
            Batch(
                [put_state(one.held.document, one.episode.user_id, one.claim) for one in ones],
                [condition for one in ones for condition in one.untouched],
            )
        )
        for one, version in zip(ones, commit.versions, strict=True):
            one.held = HeldState(one.held.document, version, one.claim)
        return ones


# Episodes that were given up, or wait after a failure, are opened to be read at once.
#
# States are found by their names: only who has mended something asks for this.


_PAGE = 500
_AT_ONCE = 20


def reopen_failed(store: Store) -> int:
    """Open every episode of the tenant whose last reading failed; how many they were."""
    opened, after = 0, ""
    while names := store.names("document", prefix=STATES, after=after, limit=_PAGE):
        failed = [one for one in store.get_many(names) if one is not None and _has_failed(one)]
        for at in range(0, len(failed), _AT_ONCE):
            opened += _reopened(store, failed[at : at + _AT_ONCE])
        after = names[-1]
    return opened


def _has_failed(document: Document) -> bool:
    if document.erased:
        return False
    state = shaped(document, ExtractionState)
    return state.status == "failed" or (state.status == "waiting" and bool(state.error))


def _reopened(store: Store, states: Sequence[Document]) -> int:
    operations: list[Operation] = []
    conditions: list[Condition] = []
    opened = 0
    for document in states:
        name = document_of(document.name.rsplit("/", 1)[1], document.user)
        held = store.get(name)
        if held is None or held.erased:
            continue
        state = shaped(document, ExtractionState)
        if state.status == "failed":
            operations.append(merging(put_episode(episode_of(held)), held.sources))
            if state.found_in == held.version:  # What was read is so in the next version too.
                state = msgspec.structs.replace(state, found_in=held.version + 1)
        reset = msgspec.structs.replace(state, status="waiting", attempts=0, until_us=0, error="")
        operations.append(put_state(document.name, document.user, reset))
        conditions.append(VersionIs(name, held.version))
        conditions.append(VersionIs(document.name, document.version))
        opened += 1
    if not opened:
        return 0
    try:
        store.commit(Batch(operations, conditions))
    except (Conflict, LimitExceeded) as error:
        # Somebody reads, changes or forgets one of them, or they are large: each by itself.
        if len(states) > 1:
            return sum(_reopened(store, [one]) for one in states)
        if isinstance(error, LimitExceeded):
            raise
        return 0
    return opened

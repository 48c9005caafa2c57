"""Claims on unread episodes: one worker reads each, and only for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from pagefile.errors import Conflict
from pagefile.memory.consolidation.extraction_state import (
    ExtractionState,
    HeldState,
    put_state,
    read_state,
)
from pagefile.memory.episodes.episode import Episode, episode_of
from pagefile.memory.extraction.candidate import Candidate, Extractor, signature_of
from pagefile.memory.ids import new_id
from pagefile.store.batch import Batch, Condition, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.records import Document
from pagefile.store.store import Store

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

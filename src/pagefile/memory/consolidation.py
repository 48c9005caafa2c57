"""Consolidation: from episodes that nobody has read yet to facts, or to candidates for review.

Each episode is claimed for a while, read outside any lock, and settled in one
commit: its facts, its candidates, and that it was read. So one that cannot be
read loses nothing of the others, nothing is read twice, two workers never read
the same, and what is forgotten meanwhile is not settled at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import datetime

import msgspec

from pagefile.batch import Batch, Condition, Operation
from pagefile.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LimitExceeded,
    PagefileError,
    Unavailable,
    Unsupported,
    shown,
)
from pagefile.memory.candidate_sorting import CandidateSorting
from pagefile.memory.consolidation_policy import ConsolidationPolicy, require_policy
from pagefile.memory.consolidation_report import ConsolidationReport, summed
from pagefile.memory.document import is_kept, living
from pagefile.memory.episode import UNREAD, Episode, merging, put_episode
from pagefile.memory.episode_claims import ClaimedEpisode, EpisodeClaims
from pagefile.memory.extraction.budget import TokenBudget
from pagefile.memory.extraction.candidate import Candidate, Extractor
from pagefile.memory.extraction.faults import BudgetSpent, Cancelled, Silent
from pagefile.memory.extraction_state import put_state, told
from pagefile.memory.fact_documents import document_of
from pagefile.memory.fact_index import FactIndexing
from pagefile.memory.facts import FactStore
from pagefile.memory.proposed_fact import put_candidate
from pagefile.naming import require_type
from pagefile.ordering import microseconds
from pagefile.query import Query
from pagefile.recall.entry import speaker_in
from pagefile.store import Store

__all__ = ["Consolidation", "ConsolidationPolicy", "ConsolidationReport"]

#: Names that stand for the two who always take part.
_THE_USER = ("user", "human", "me")
_THE_AGENT = ("assistant", "ai", "agent", "bot", "system")
_PAGE = 50
#: The pause after the first failure; each further one doubles it.
_PAUSE_SECONDS = 30
_MOST_PAUSE_SECONDS = 86_400.0
#: So many in a row that a server left unanswered end the round.
_MOST_SILENCES = 3
#: How often in the time of a claim those under way are looked at; at half of it one is renewed.
_RENEWALS = 4
_SECOND = 1_000_000


class Consolidation:
    """Reads episodes that are unread, of every user of the tenant."""

    def __init__(
        self,
        store: Store,
        facts: FactStore,
        indexing: FactIndexing,
        extractor: Extractor,
        policy: ConsolidationPolicy,
        clock: Callable[[], datetime],
    ) -> None:
        require_policy(policy)
        self._store = store
        self._indexing = indexing
        budget = policy.token_budget
        within = getattr(extractor, "within", None)
        if budget is not None and within is not None:
            extractor = within(TokenBudget(budget))
        self._extractor = extractor
        self._policy = policy
        self._clock = clock
        self._claims = EpisodeClaims(store, extractor, policy.lease_seconds, clock)
        self._sorting = CandidateSorting(store, facts, extractor, policy.auto_commit, clock)
        self._fault: PagefileError | None = None
        self._over = False
        self._silences = 0

    def run(
        self,
        limit: int,
        cancel: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> ConsolidationReport:
        """Read up to `limit` episodes, oldest first, until none is open or it is cancelled."""
        stop = cancel if cancel is not None else threading.Event()
        self._fault = None
        report = ConsolidationReport()
        is_ready = False
        with ThreadPoolExecutor(self._policy.concurrency) as pool:
            for claimed in self._claimed(limit, stop):
                if not is_ready:
                    self._require_ready(claimed)
                    is_ready = True
                reading = {pool.submit(self._read, one, stop): one for one in claimed}
                self._hold(reading)
                for future in reading:
                    report = summed(report, future.result())
                if progress is not None:
                    progress(report.episodes)
        if self._fault is not None:
            # The settings are wrong, not an episode: the next would fail in the same way.
            raise self._fault
        return msgspec.structs.replace(report, cancelled=stop.is_set())

    def _require_ready(self, claimed: Sequence[ClaimedEpisode]) -> None:
        """Nothing is read, and paid for, that could not be stored."""
        try:
            self._indexing.require_ready()
        except PagefileError:
            for one in claimed:
                self._let_go(one, counted=False)
            raise

    def _hold(self, reading: Mapping[Future[ConsolidationReport], ClaimedEpisode]) -> None:
        """Renew the claims of what is being read, until all of it has been."""
        waiting = set(reading)
        while waiting:
            _, waiting = wait(waiting, timeout=self._policy.lease_seconds / _RENEWALS)
            for future in waiting:
                # Who settles it meets the same, and says so.
                with suppress(Unavailable):
                    self._claims.renewed(reading[future])

    def _claimed(self, limit: int, stop: threading.Event) -> Iterator[list[ClaimedEpisode]]:
        cursor: str | None = None
        while limit > 0 and not stop.is_set() and not self._over:
            page = self._store.find(
                Query(UNREAD, everyone=True, cursor=cursor), limit=min(limit, _PAGE)
            )
            claimed = self._claims.claim(living(page.items))
            limit -= len(claimed)
            if claimed:
                yield claimed
            cursor = page.cursor
            if cursor is None:
                return

    def _read(self, one: ClaimedEpisode, stop: threading.Event) -> ConsolidationReport:
        if stop.is_set() or self._over:
            return self._let_go(one, counted=False)
        if not self._claims.renewed(one):
            return ConsolidationReport()
        try:
            found = one.found
            if found is None:
                found = _candidates(self._extractor.extract(as_spoken(one.episode), cancel=stop))
        except (Cancelled, BudgetSpent):
            self._over = True
            return self._let_go(one, counted=False)
        except (Forbidden, Unsupported) as fault:
            # No key, no library: the next episode would fail in the same way.
            self._fault, self._over = fault, True
            return self._let_go(one, counted=False)
        except Exception as error:  # noqa: BLE001  An extractor is somebody else's code.
            if stop.is_set():
                return self._let_go(one, counted=False)
            self._silences = self._silences + 1 if isinstance(error, Silent) else 0
            # The others would wait for it as long, one after the other.
            self._over = self._over or self._silences >= _MOST_SILENCES
            return self._let_go(one, error)
        found = found[: self._policy.max_facts_per_episode]
        try:
            report = self._settle(one, found)
        except (Invalid, LimitExceeded) as error:
            return self._let_go(one, error)
        except (Unavailable, Unsupported) as error:
            return self._kept(one, found, error)
        self._silences = 0
        return report

    def _kept(
        self, one: ClaimedEpisode, found: Sequence[Candidate], error: PagefileError
    ) -> ConsolidationReport:
        """What was read waits with its episode until it can be stored."""
        with one.lock:
            one.claim = msgspec.structs.replace(
                one.claim, found=tuple(found), found_in=one.document.version
            )
        if isinstance(error, Unsupported):
            self._fault, self._over = error, True
            return self._let_go(one, counted=False)
        self._silences += 1
        self._over = self._over or self._silences >= _MOST_SILENCES
        return self._let_go(one, error)

    def _settle(self, one: ClaimedEpisode, found: Sequence[Candidate]) -> ConsolidationReport:
        known = self._sorting.sorted(one.episode, found)
        facts, closing, waiting, dropped = known.facts, known.closing, known.waiting, known.dropped
        for _ in range(self._policy.attempts):
            try:
                more, when = self._indexing.asserting(facts) if facts else ([], [])
            except Forbidden as error:
                gone = self._indexing.forgotten(facts)
                facts = [fact for fact in facts if fact not in gone]
                dropped += [error] * len(gone)
                continue
            done = msgspec.structs.replace(
                one.claim,
                status="done",
                until_us=0,
                facts=len(facts) + len(closing),
                proposed=len(waiting),
                found=(),
                found_in=0,
            )
            operations: list[Operation] = [
                merging(put_episode(one.episode, unread=False), one.document.sources),
                put_state(one.held.document, one.episode.user_id, done),
                *(put_candidate(candidate) for candidate in waiting),
                *closing,
                *more,
            ]
            try:
                self._write(one, operations, when)
            except Conflict as conflict:
                if conflict.target in (one.document.name, one.held.document):
                    # Changed, forgotten, or claimed by another after the lease ran out.
                    return ConsolidationReport()
                if not self._indexing.settles(conflict, facts):
                    # A fact of this id is there: it was read before, and its claim was lost.
                    facts = [
                        fact
                        for fact in facts
                        if not is_kept(self._store, document_of(fact.user_id, fact.id))
                    ]
                continue
            return ConsolidationReport(
                episodes=1,
                facts=len(facts) + len(closing),
                proposed=len(waiting),
                dropped=len(dropped),
                errors=tuple((one.episode.id, told(error)) for error in dropped),
            )
        return self._let_go(one)

    def _write(
        self, one: ClaimedEpisode, operations: Sequence[Operation], when: Sequence[Condition] = ()
    ) -> None:
        """Commit what ends a claim, while nobody renews it."""
        with one.lock:
            self._store.commit(Batch(operations, [*one.untouched, *when]))
            one.is_over = True

    def _let_go(
        self, one: ClaimedEpisode, error: BaseException | None = None, *, counted: bool = True
    ) -> ConsolidationReport:
        """Give the claim back; after a failure not before a pause, or never again."""
        attempts = one.claim.attempts if counted else one.claim.attempts - 1
        # A server that is away is no fault of the episode: it waits until the server is back.
        is_away = isinstance(error, Silent) or one.found is not None
        gave_up = error is not None and not is_away and attempts >= self._policy.attempts
        pause = 0.0
        if error is not None:
            pause = max(_PAUSE_SECONDS * 2 ** min(attempts, 7), _asked_to_wait(error))
        state = msgspec.structs.replace(
            one.claim,
            status="failed" if gave_up else "waiting",
            attempts=attempts,
            until_us=0 if gave_up else microseconds(self._clock()) + int(pause * _SECOND),
            error="" if error is None else told(error),
        )
        operations: list[Operation] = [put_state(one.held.document, one.episode.user_id, state)]
        if gave_up:
            put = put_episode(one.episode, unread=False)
            operations.append(merging(put, one.document.sources))
        try:
            self._write(one, operations)
        except Conflict:
            return ConsolidationReport()
        if error is None:
            return ConsolidationReport()
        return ConsolidationReport(failed=1, errors=((one.episode.id, told(error)),))


def _asked_to_wait(error: BaseException) -> float:
    """The seconds that a server asked for; 0 when it did not."""
    asked = error.retry_after if isinstance(error, Silent) else None
    return min(float(asked), _MOST_PAUSE_SECONDS) if asked is not None else 0.0


def as_spoken(episode: Episode) -> Episode:
    """The episode with its speaker named, where the text itself says who it was."""
    if episode.speaker is not None:
        return episode
    name, rest = speaker_in(episode.input)
    if not name:
        return episode
    who = None if name.casefold() in _THE_USER else name
    said = "" if name.casefold() in _THE_AGENT else rest
    return msgspec.structs.replace(episode, speaker=who, input=said)


def _candidates(found: object) -> list[Candidate]:
    """What an extractor gave back, if that is what it was asked for."""
    if not isinstance(found, (list, tuple)):
        raise Invalid("extract", f"gave {shown(found)}", "return a list of Candidates")
    for each in found:
        require_type("candidate", each, Candidate)
    return list(found)

"""Consolidation: from episodes that nobody has read yet to facts, or to candidates for review.

Each episode is claimed for a while, read outside any lock, and settled in one
commit: its facts, its candidates, and that it was read. So one that cannot be
read loses nothing of the others, nothing is read twice, two workers never read
the same, and what is forgotten meanwhile is not settled at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import datetime

import msgspec

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
from pagefile.memory.consolidation.claims import ClaimedEpisode, EpisodeClaims, put_state, told
from pagefile.memory.consolidation.triage import CandidateSorting
from pagefile.memory.documents import is_kept, living
from pagefile.memory.episodes.episode import UNREAD, as_spoken, merging, put_episode
from pagefile.memory.extraction.candidate import Candidate, Extractor, TokenBudget
from pagefile.memory.extraction.errors import (
    BudgetSpent,
    Cancelled,
    Misdirected,
    NoApi,
    Oversized,
    Refused,
    Silent,
)
from pagefile.memory.facts.documents import document_of
from pagefile.memory.facts.index import FactIndexing
from pagefile.memory.facts.proposal import put_candidate
from pagefile.memory.facts.store import FactStore
from pagefile.store.arguments import require_count, require_type
from pagefile.store.batch import Batch, Condition, Operation, Query
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.store import Store

# What one consolidation did.


_MOST_ERRORS = 100


class ConsolidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one consolidation did.

    `errors` names the episodes that could not be read, or of which a statement
    was `dropped` because it can be no fact, and why. `budget_spent` says that
    the token budget ended it before all was read.
    """

    episodes: int = 0
    facts: int = 0
    proposed: int = 0
    dropped: int = 0
    failed: int = 0
    cancelled: bool = False
    budget_spent: bool = False
    errors: tuple[tuple[str, str], ...] = ()


def summed(report: ConsolidationReport, one: ConsolidationReport) -> ConsolidationReport:
    """Both together, with the first hundred errors."""
    return ConsolidationReport(
        episodes=report.episodes + one.episodes,
        facts=report.facts + one.facts,
        proposed=report.proposed + one.proposed,
        dropped=report.dropped + one.dropped,
        failed=report.failed + one.failed,
        errors=(report.errors + one.errors)[:_MOST_ERRORS],
    )


# What becomes of what an extractor reads, and within which bounds.


class ConsolidationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of what an extractor reads.

    What it is at least `auto_commit` sure of becomes a fact, the rest waits for
    review; None lets everything wait. A claim lasts `lease_seconds`: who does
    not come back in that time has lost it. After `attempts` failures an episode
    is given up. `token_budget` is what a model may spend in one consolidation.
    """

    auto_commit: float | None = 0.8
    lease_seconds: int = 300
    attempts: int = 5
    concurrency: int = 1
    max_facts_per_episode: int = 20
    token_budget: int | None = None


def require_policy(policy: object) -> None:
    """Refuse a policy that says nothing, or bounds nothing."""
    if not isinstance(policy, ConsolidationPolicy):
        raise Invalid("policy", shown(policy), "give a ConsolidationPolicy")
    sure = policy.auto_commit
    if sure is not None and (type(sure) not in (int, float) or not 0 <= sure <= 1):
        raise Invalid("auto_commit", shown(sure), "give 0 to 1, or None")
    for field in ("lease_seconds", "attempts", "concurrency", "max_facts_per_episode"):
        number = getattr(policy, field)
        if type(number) is not int or not 1 <= number <= 86_400:
            raise Invalid(field, shown(number), "give a whole number from 1 to 86,400")
    if policy.token_budget is not None:
        require_count(policy.token_budget, "token_budget", least=1)


def require_bounded(extractor: Extractor, policy: ConsolidationPolicy) -> Extractor:
    """The extractor as far as the policy lets it go: under its budget, if there is one.

    Raises:
        Invalid: it knows of no budgets, or could not ask anything within this one.
    """
    if policy.token_budget is None:
        return extractor
    within: Callable[[TokenBudget], Extractor] | None = getattr(extractor, "within", None)
    if not callable(within):
        raise Invalid(
            "token_budget",
            f"{shown(extractor)} keeps to none",
            "leave it out, or give an extractor that has within(budget)",
        )
    return within(TokenBudget(policy.token_budget))


_PAGE = 50
#: The pause after the first failure; each further one doubles it.
_PAUSE_SECONDS = 30
_MOST_PAUSE_SECONDS = 86_400.0
#: How often what was found is committed anew because something changed meanwhile.
_MOST_COMMITS = 100
#: So many in a row that a server left unanswered end the round.
_MOST_SILENCES = 3
#: So many that were refused, and none that was answered, say that the settings are wrong.
_MOST_REFUSALS = 5
#: How often in the time of a claim those under way are looked at; at half of it one is renewed.
_RENEWALS = 4
#: How soon an interrupt is noticed at the latest.
_GLANCE_SECONDS = 1.0
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
        extractor = require_bounded(extractor, policy)
        self._extractor = extractor
        self._policy = policy
        self._clock = clock
        self._claims = EpisodeClaims(store, extractor, policy.lease_seconds, clock)
        self._sorting = CandidateSorting(store, facts, extractor, policy.auto_commit, clock)
        self._fault: PagefileError | None = None
        self._over = False
        self._is_ready = False
        self._is_spent = False
        self._silences = 0
        #: Refused, by the text or the settings; the others of the round show which.
        self._refused: list[tuple[ClaimedEpisode, Exception]] = []
        self._refusals = 0
        self._is_answered = False

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
        with ThreadPoolExecutor(self._policy.concurrency) as pool:
            for claimed in self._claimed(limit, stop):
                report = summed(report, self._read_all(pool, claimed, stop))
                if progress is not None:
                    progress(report.episodes)
        if self._fault is not None:
            # The settings are wrong, not an episode: the next would fail in the same way.
            raise self._fault
        return msgspec.structs.replace(report, cancelled=stop.is_set(), budget_spent=self._is_spent)

    def _read_all(
        self, pool: ThreadPoolExecutor, claimed: Sequence[ClaimedEpisode], stop: threading.Event
    ) -> ConsolidationReport:
        report = ConsolidationReport()
        try:
            # Nothing is read, and paid for, that could not be stored.
            self._require_ready()
            reading = {pool.submit(self._read, one, stop): one for one in claimed}
            self._hold(reading)
            for future in reading:
                report = summed(report, future.result())
            return summed(report, self._settle_refused())
        except BaseException as error:
            # A store that fails, or Ctrl-C: what is being read ends, nothing stays claimed.
            self._over = True
            if not isinstance(error, Exception):
                stop.set()
            pool.shutdown()
            with suppress(PagefileError):
                for one in claimed:
                    if not one.is_over:
                        self._let_go(one, counted=False)
            raise

    def _require_ready(self) -> None:
        if not self._is_ready:
            self._indexing.require_ready()
        self._is_ready = True

    def _hold(self, reading: Mapping[Future[ConsolidationReport], ClaimedEpisode]) -> None:
        """Renew the claims of what is being read, until all of it has been."""
        waiting = set(reading)
        every = self._policy.lease_seconds / _RENEWALS
        due = time.monotonic() + every
        while waiting:
            # Not until then at once: Ctrl-C that another thread was given, or that came just
            # before the wait, does not end it.
            _, waiting = wait(waiting, timeout=min(_GLANCE_SECONDS, every))
            if time.monotonic() < due:
                continue
            due += every
            held = [reading[future] for future in waiting]
            for one in (*held, *(one for one, _ in self._refused)):
                # Who settles it meets the same, and says so.
                with suppress(Unavailable):
                    self._claims.renewed(one)

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
                said = as_spoken(one.episode)
                found = _candidates(self._extractor.extract(said, cancel=stop))
                # Nobody is asked about an exchange without words.
                self._is_answered = self._is_answered or bool(f"{said.input}{said.output}".strip())
        except (Refused, NoApi, Oversized) as error:
            return self._doubted(one, error)
        except (Cancelled, BudgetSpent) as end:
            self._over = True
            self._is_spent = self._is_spent or isinstance(end, BudgetSpent)
            return self._let_go(one, counted=False)
        except (Forbidden, Unsupported, Misdirected) as fault:
            # No key, no library, no such model: the next episode would fail in the same way.
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
        except (Conflict, Invalid, LimitExceeded, Unavailable, Unsupported) as error:
            return self._kept(one, found, error)
        self._silences = 0
        return report

    def _doubted(self, one: ClaimedEpisode, error: PagefileError) -> ConsolidationReport:
        """It was refused, which costs nothing: what becomes of it waits for the others."""
        self._refused.append((one, error))
        self._refusals += 1
        if not self._is_answered and self._refusals >= _MOST_REFUSALS:
            self._fault, self._over = error, True
        return ConsolidationReport()

    def _settle_refused(self) -> ConsolidationReport:
        """Where others are answered it is the text, and given up in the end; else it waits."""
        refused, self._refused = self._refused, []
        report = ConsolidationReport()
        for one, error in refused:
            report = summed(report, self._let_go(one, error, final=self._is_answered))
        return report

    def _kept(
        self, one: ClaimedEpisode, found: Sequence[Candidate], error: PagefileError
    ) -> ConsolidationReport:
        """What was read waits with its episode until it can be stored."""
        is_fault = isinstance(error, Unsupported)
        if is_fault:
            self._fault, self._over = error, True
        elif isinstance(error, Unavailable):
            self._silences += 1
            self._over = self._over or self._silences >= _MOST_SILENCES
        told_of = None if is_fault else error
        # What the store refuses it may refuse for ever; what it could not do, it will.
        final = isinstance(error, Invalid | LimitExceeded)
        try:
            return self._let_go(one, told_of, counted=not is_fault, final=final, found=found)
        except (Invalid, LimitExceeded):  # It cannot even be kept.
            return self._let_go(one, told_of, counted=not is_fault, final=final)

    def _settle(self, one: ClaimedEpisode, found: Sequence[Candidate]) -> ConsolidationReport:
        known = self._sorting.sorted(one.episode, found)
        facts, closing, waiting, dropped = known.facts, known.closing, known.waiting, known.dropped
        for _ in range(_MOST_COMMITS):
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
                *known.corrections,
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
        name, version = one.document.name, one.document.version
        raise Conflict(
            f"others were faster in all of {_MOST_COMMITS} commits",
            "it is tried again; what was read is kept",
            target=name,
            expected=version,
            current=version,
        )

    def _write(
        self, one: ClaimedEpisode, operations: Sequence[Operation], when: Sequence[Condition] = ()
    ) -> None:
        """Commit what ends a claim, while nobody renews it."""
        with one.lock:
            self._store.commit(Batch(operations, [*one.untouched, *when]))
            one.is_over = True

    def _let_go(
        self,
        one: ClaimedEpisode,
        error: BaseException | None = None,
        *,
        counted: bool = True,
        final: bool = True,
        found: Sequence[Candidate] | None = None,
    ) -> ConsolidationReport:
        """Give the claim back; after a failure not before a pause, or where `final` never again."""
        attempts = one.claim.attempts if counted else one.claim.attempts - 1
        # A server that is away is no fault of the episode: it waits until the server is back.
        final = final and not isinstance(error, Silent)
        gave_up = error is not None and final and attempts >= self._policy.attempts
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
        if found is not None:
            # To give an episode up is a version of it.
            version = one.document.version + gave_up
            state = msgspec.structs.replace(state, found=tuple(found), found_in=version)
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


def _candidates(found: object) -> list[Candidate]:
    """What an extractor gave back, if that is what it was asked for."""
    if not isinstance(found, (list, tuple)):
        raise Invalid("extract", f"gave {shown(found)}", "return a list of Candidates")
    for each in found:
        require_type("candidate", each, Candidate)
    return list(found)

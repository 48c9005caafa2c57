"""Consolidation: from episodes that nobody has read yet to facts, or to candidates for review.

Each episode is claimed for a while, read outside any lock, and settled in one
commit: its facts, its candidates, and that it was read. So one that cannot be
read loses nothing of the others, nothing is read twice, two workers never read
the same, and what is forgotten meanwhile is not settled at all.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import msgspec

from pagefile.batch import Batch, Condition, Operation, VersionIs
from pagefile.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LimitExceeded,
    PagefileError,
    Unsupported,
    shown,
)
from pagefile.memory.document import living
from pagefile.memory.episode import UNREAD, Episode, episode_of, put_episode
from pagefile.memory.extraction.budget import TokenBudget
from pagefile.memory.extraction.candidate import Candidate, Extractor
from pagefile.memory.extraction.faults import BudgetSpent, Cancelled, Silent
from pagefile.memory.extraction_state import (
    ExtractionState,
    HeldState,
    put_state,
    read_state,
    told,
)
from pagefile.memory.fact import Fact
from pagefile.memory.fact_documents import document_of
from pagefile.memory.fact_index import FactIndexing
from pagefile.memory.facts import FactStore
from pagefile.memory.ids import new_id
from pagefile.memory.proposed_fact import ProposedFact, candidate_name, put_candidate
from pagefile.naming import require_type
from pagefile.ordering import microseconds
from pagefile.query import Query
from pagefile.records import Document
from pagefile.store import Store

_PAGE = 50
#: The pause after the first failure; each further one doubles it.
_PAUSE_SECONDS = 30
_MOST_PAUSE_SECONDS = 86_400.0
_SECOND = 1_000_000


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


class ConsolidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one consolidation did. `errors` names the episodes that could not be read, and why."""

    episodes: int = 0
    facts: int = 0
    proposed: int = 0
    failed: int = 0
    cancelled: bool = False
    errors: tuple[tuple[str, str], ...] = ()


class _Claimed(msgspec.Struct):
    document: Document
    episode: Episode
    held: HeldState
    claim: ExtractionState


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
        self._facts = facts
        self._indexing = indexing
        budget = policy.token_budget
        within = getattr(extractor, "within", None)
        if budget is not None and within is not None:
            extractor = within(TokenBudget(budget))
        self._extractor = extractor
        self._policy = policy
        self._clock = clock
        self._worker = new_id("worker")
        self._fault: PagefileError | None = None
        self._over = False

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
            for claimed in self._claims(limit, stop):
                for outcome in pool.map(lambda one: self._read(one, stop), claimed):
                    report = _sum(report, outcome)
                if progress is not None:
                    progress(report.episodes)
        if self._fault is not None:
            # The settings are wrong, not an episode: the next would fail in the same way.
            raise self._fault
        return msgspec.structs.replace(report, cancelled=stop.is_set())

    # Claiming

    def _claims(self, limit: int, stop: threading.Event) -> Iterator[list[_Claimed]]:
        cursor: str | None = None
        while limit > 0 and not stop.is_set() and not self._over:
            page = self._store.find(
                Query(UNREAD, everyone=True, cursor=cursor), limit=min(limit, _PAGE)
            )
            claimed = self._claim(living(page.items))
            limit -= len(claimed)
            if claimed:
                yield claimed
            cursor = page.cursor
            if cursor is None:
                return

    def _claim(self, documents: Sequence[Document]) -> list[_Claimed]:
        now_us = microseconds(self._clock())
        until_us = now_us + self._policy.lease_seconds * _SECOND
        open_ones: list[_Claimed] = []
        for document in documents:
            episode = episode_of(document)
            held = read_state(self._store, episode.id, episode.user_id)
            if held.state is not None and not held.state.is_open(now_us):
                continue
            # Read, and changed since: else it would not be among those that are unread.
            tried = held.state is not None and not held.state.is_over
            claim = ExtractionState(
                status="claimed",
                extractor=self._signature,
                worker=self._worker,
                until_us=until_us,
                attempts=held.state.attempts + 1 if tried and held.state is not None else 1,
            )
            open_ones.append(_Claimed(document, episode, held, claim))
        try:
            return self._claimed(open_ones)
        except Conflict:
            # Another worker has some of them; each by itself shows which.
            return [one for each in open_ones for one in self._claimed_alone(each)]

    def _claimed_alone(self, one: _Claimed) -> list[_Claimed]:
        try:
            return self._claimed([one])
        except Conflict:
            return []

    def _claimed(self, ones: list[_Claimed]) -> list[_Claimed]:
        if not ones:
            return []
        commit = self._store.commit(
            Batch(
                [put_state(one.held.document, one.episode.user_id, one.claim) for one in ones],
                [condition for one in ones for condition in _untouched(one)],
            )
        )
        for one, version in zip(ones, commit.versions, strict=True):
            one.held = HeldState(one.held.document, version, one.claim)
        return ones

    # Reading and settling

    def _read(self, one: _Claimed, stop: threading.Event) -> ConsolidationReport:
        if stop.is_set() or self._over:
            return self._let_go(one, counted=False)
        if not self._renewed(one):
            return ConsolidationReport()
        try:
            found = _candidates(self._extractor.extract(one.episode, cancel=stop))
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
            return self._let_go(one, error)
        try:
            return self._settle(one, found[: self._policy.max_facts_per_episode])
        except (Invalid, Forbidden, LimitExceeded) as error:
            return self._let_go(one, error)

    def _renewed(self, one: _Claimed) -> bool:
        """Whether the claim still holds; where those before took long, it is made anew.

        Many are claimed at once, and the last of them is read when the others have been.
        """
        now_us = microseconds(self._clock())
        lease_us = self._policy.lease_seconds * _SECOND
        if one.claim.until_us - now_us > lease_us // 2:
            return True
        one.claim = msgspec.structs.replace(one.claim, until_us=now_us + lease_us)
        try:
            self._claimed([one])
        except Conflict:
            return False
        return True

    def _settle(self, one: _Claimed, found: Sequence[Candidate]) -> ConsolidationReport:
        facts, closing, waiting = self._sorted(one.episode, found)
        done = msgspec.structs.replace(
            one.claim,
            status="done",
            until_us=0,
            facts=len(facts) + len(closing),
            proposed=len(waiting),
        )
        for _ in range(self._policy.attempts):
            more, when = self._indexing.asserting(facts) if facts else ([], [])
            operations: list[Operation] = [
                put_episode(one.episode, unread=False),
                put_state(one.held.document, one.episode.user_id, done),
                *(put_candidate(candidate) for candidate in waiting),
                *closing,
                *more,
            ]
            try:
                self._store.commit(Batch(operations, [*_untouched(one), *when]))
            except Conflict as conflict:
                if conflict.target in (one.document.name, one.held.document):
                    # Changed, forgotten, or claimed by another after the lease ran out.
                    return ConsolidationReport()
                if not self._indexing.settles(conflict, facts):
                    # A fact of this id is there: it was read before, and its claim was lost.
                    facts = [
                        fact
                        for fact in facts
                        if not self._is_kept(document_of(fact.user_id, fact.id))
                    ]
                continue
            return ConsolidationReport(
                episodes=1, facts=len(facts) + len(closing), proposed=len(waiting)
            )
        return self._let_go(one)

    def _is_kept(self, document: str) -> bool:
        found = self._store.get(document)
        return found is not None and not found.erased

    def _let_go(
        self, one: _Claimed, error: BaseException | None = None, *, counted: bool = True
    ) -> ConsolidationReport:
        """Give the claim back; after a failure not before a pause, or never again."""
        attempts = one.claim.attempts if counted else one.claim.attempts - 1
        gave_up = error is not None and attempts >= self._policy.attempts
        pause = 0.0
        if error is not None:
            pause = max(_PAUSE_SECONDS * 2 ** min(attempts, 10), _asked_to_wait(error))
        state = msgspec.structs.replace(
            one.claim,
            status="failed" if gave_up else "waiting",
            attempts=attempts,
            until_us=0 if gave_up else microseconds(self._clock()) + int(pause * _SECOND),
            error="" if error is None else told(error),
        )
        operations: list[Operation] = [put_state(one.held.document, one.episode.user_id, state)]
        if gave_up:
            operations.append(put_episode(one.episode, unread=False))
        try:
            self._store.commit(Batch(operations, _untouched(one)))
        except Conflict:
            return ConsolidationReport()
        if error is None:
            return ConsolidationReport()
        return ConsolidationReport(failed=1, errors=((one.episode.id, told(error)),))

    def _sorted(
        self, episode: Episode, found: Sequence[Candidate]
    ) -> tuple[list[Fact], list[Operation], list[ProposedFact]]:
        """What becomes a fact, what ends one, and what waits for review."""
        facts: list[Fact] = []
        closing: list[Operation] = []
        waiting: list[ProposedFact] = []
        for candidate in found:
            sure = self._policy.auto_commit
            if _says_it_ended(candidate):
                assert candidate.valid_until is not None
                if sure is not None and candidate.confidence >= sure:
                    closing += self._ended(episode, candidate, candidate.valid_until)
                continue
            fact = fact_from(candidate, episode, self._signature)
            if sure is not None and candidate.confidence >= sure:
                facts.append(fact)
            elif not self._is_kept(candidate_name(fact.id, fact.user_id)):
                # What was proposed before has been decided, or will be.
                waiting.append(
                    ProposedFact(
                        fact=fact,
                        status="proposed",
                        proposed_by=self._signature,
                        proposed_at=self._clock(),
                        quote=candidate.quote,
                    )
                )
        return facts, closing, waiting

    def _ended(self, episode: Episode, candidate: Candidate, since: datetime) -> list[Operation]:
        """What ends a fact that is no longer so; nothing when it is not known."""
        known = self._facts.query(
            subject=candidate.subject,
            predicate=candidate.predicate,
            object_=candidate.object,
            user_id=episode.user_id,
            limit=1,
        )
        if not known:
            return []
        puts, _ = self._facts.plan_retraction(
            known[0].id,
            reason=f"said in {episode.id}",
            actor=self._signature,
            user_id=episode.user_id,
            since=since,
        )
        # The episode is a source of it too, so that it is forgotten with the episode.
        return [msgspec.structs.replace(put, sources=(*put.sources, episode.id)) for put in puts]

    @property
    def _signature(self) -> str:
        return f"{self._extractor.name}/{self._extractor.version}"


def fact_from(candidate: Candidate, episode: Episode, actor: str) -> Fact:
    """The fact that a candidate is, with an id that is the same whenever it is read again."""
    said = "\x1f".join((episode.document, candidate.subject, candidate.predicate, candidate.object))
    return Fact(
        id=f"fact_{hashlib.sha256(said.encode()).hexdigest()[:26].upper()}",
        user_id=episode.user_id,
        subject=candidate.subject,
        predicate=candidate.predicate,
        object=candidate.object,
        confidence=candidate.confidence,
        valid_from=candidate.valid_from or episode.occurred_at,
        valid_until=_later(candidate.valid_until, candidate.valid_from or episode.occurred_at),
        sources=(episode.id,),
        actor=actor,
        reason="extracted",
    )


def _later(end: datetime | None, start: datetime) -> datetime | None:
    """The end of a window, if it has one after its start."""
    return end if end is not None and end > start else None


def _says_it_ended(candidate: Candidate) -> bool:
    """Whether it says until when something was so; a plan's end is only its date."""
    if candidate.predicate == "plans_to" or candidate.valid_until is None:
        return False
    return candidate.valid_from is None


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


def _untouched(one: _Claimed) -> list[Condition]:
    return [VersionIs(one.document.name, one.document.version), one.held.unchanged]


def _sum(report: ConsolidationReport, one: ConsolidationReport) -> ConsolidationReport:
    return ConsolidationReport(
        episodes=report.episodes + one.episodes,
        facts=report.facts + one.facts,
        proposed=report.proposed + one.proposed,
        failed=report.failed + one.failed,
        errors=(report.errors + one.errors)[:100],
    )


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
            raise Invalid(field, shown(number), "give a whole number from 1 up")

"""Candidates sorted: what becomes a fact, what ends one, and what waits for review."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from pagefile.errors import Invalid, PagefileError
from pagefile.memory.documents import is_kept
from pagefile.memory.episodes.episode import Episode, document_of, episode_of
from pagefile.memory.extraction.candidate import Candidate, Extractor, signature_of
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.proposal import ProposedFact, candidate_name
from pagefile.memory.facts.store import FactStore
from pagefile.store.batch import Operation
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.store import Store

# What a later statement contradicts, because it says since when something else is so.
#
# "I live in Lisbon" does not say since when, so it counts from when it was said. "I moved
# to Berlin last week", said the day after, starts earlier, and would stand back behind it
# for ever: where it is right, the other was not so even when it was said.


#: How many statements one may contradict, the newest of them.
_MOST = 100


def contradicted_by(fact: Fact, episode: Episode, facts: FactStore, store: Store) -> list[str]:
    """The assertions that cannot have been so, if the episode's statement is right.

    They were made earlier, say another object of a predicate that holds one at a
    time, do not say themselves since when, and were made within what the fact says.
    """
    since, said = microseconds(fact.valid_from), microseconds(episode.occurred_at)
    if fact.valid_until is not None or since >= said:
        return []
    user = fact.user_id
    known = facts.query(subject=fact.subject, predicate=fact.predicate, user_id=user, limit=1)
    if not known:
        return []
    view = facts.viewpoint(None, None, user)
    group = facts.group_of(facts.assertion(known[0].id, user_id=user), view)
    if group.kind != "single":
        return []
    own = view.names.of(fact.object)
    found = [
        claim
        for claim in group.standing
        if claim.object != own and claim.is_open and claim.end is None
        # One that somebody asserted says since when, as one does that has several sources.
        and since <= claim.start < said and len(claim.sources) == 1
    ]  # fmt: skip
    newest = sorted(found, key=lambda claim: claim.order)[-_MOST:]
    return [
        claim.id for claim in newest if _was_said_at(store, claim.sources[0], user, claim.start)
    ]


def _was_said_at(store: Store, episode_id: str, user: str | None, moment_us: int) -> bool:
    found = store.get(document_of(episode_id, user))
    if found is None or found.erased:
        return False
    return microseconds(episode_of(found).occurred_at) == moment_us


class CandidateSorting:
    """Sorts by how sure the extractor is: `auto_commit` is enough; with None everything waits."""

    def __init__(
        self,
        store: Store,
        facts: FactStore,
        extractor: Extractor,
        auto_commit: float | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._facts = facts
        self._extractor = extractor
        self._sure = auto_commit
        self._clock = clock

    def sorted(self, episode: Episode, found: Sequence[Candidate]) -> Sorted:
        """What becomes a fact, what ends one, what waits for review, and what can be none of it.

        Each statement once: where it is made twice, the surest counts.
        """
        done = Sorted()
        for candidate in _surest(found):
            try:
                self._sort(episode, candidate, done)
            except Invalid as error:
                # What the others say is as good as without it, and was paid for.
                done.dropped.append(error)
        return done

    def _sort(self, episode: Episode, candidate: Candidate, done: Sorted) -> None:
        is_sure = self._sure is not None and candidate.confidence >= self._sure
        ends = ""
        if says_it_ended(candidate):
            ending = self._ending(episode, candidate)
            if ending is None:
                return
            fact, ends = ending.fact, ending.ends
        else:
            fact = fact_from(candidate, episode, signature_of(self._extractor))
        if ends in done.ended or fact.id in done.seen:
            return
        if not is_sure:
            done.waiting += self._waiting(fact, candidate, ends)
        elif ends:
            done.closing += self._closed(episode, _Ending(fact, ends))
        else:
            done.facts.append(fact)
            if candidate.valid_from is not None:
                done.corrections += self._corrected(episode, fact)
        done.seen.add(fact.id)
        if ends:
            done.ended.add(ends)

    def _waiting(self, fact: Fact, candidate: Candidate, ends: str = "") -> list[ProposedFact]:
        if is_kept(self._store, candidate_name(fact.id, fact.user_id)):
            return []  # What was proposed before has been decided, or will be.
        quote = candidate.quote if isinstance(candidate.quote, str) else ""
        return [
            ProposedFact(
                fact=fact,
                status="proposed",
                proposed_by=signature_of(self._extractor),
                proposed_at=self._clock(),
                # Somebody else's words may hold what no codec can write.
                quote=quote.encode(errors="replace").decode(),
                ends=ends,
            )
        ]

    def _ending(self, episode: Episode, candidate: Candidate) -> _Ending | None:
        """The known fact that the candidate ends, with its end; None when it is not known."""
        since = candidate.valid_until
        assert since is not None
        known = self._facts.query(
            subject=candidate.subject,
            predicate=candidate.predicate,
            object_=candidate.object,
            user_id=episode.user_id,
            limit=1,
        )
        if not known or since <= known[0].valid_from:
            return None
        fact = msgspec.structs.replace(
            fact_from(candidate, episode, signature_of(self._extractor)),
            valid_from=known[0].valid_from,
            valid_until=since,
        )
        return _Ending(fact, known[0].id)

    def _corrected(self, episode: Episode, fact: Fact) -> list[Operation]:
        """What takes away earlier statements that the fact contradicts."""
        contradicted = contradicted_by(fact, episode, self._facts, self._store)
        return [put for name in contradicted for put in self._taken_away(episode, name, only=True)]

    def _closed(self, episode: Episode, ending: _Ending) -> list[Operation]:
        return self._taken_away(episode, ending.ends, since=ending.fact.valid_until)

    def _taken_away(
        self, episode: Episode, fact_id: str, *, since: datetime | None = None, only: bool = False
    ) -> list[Operation]:
        puts, _ = self._facts.plan_retraction(
            fact_id,
            reason=f"said in {episode.id}",
            actor=signature_of(self._extractor),
            user_id=episode.user_id,
            since=since,
            only=only,
        )
        # The episode is a source of it too, so that it is forgotten with the episode.
        return [msgspec.structs.replace(put, sources=(*put.sources, episode.id)) for put in puts]


class Sorted(msgspec.Struct):
    """What becomes of an episode's candidates; `dropped` says why some can be no facts."""

    facts: list[Fact] = []
    closing: list[Operation] = []
    #: What takes away statements that the facts contradict.
    corrections: list[Operation] = []
    waiting: list[ProposedFact] = []
    dropped: list[PagefileError] = []
    #: What is here already: ids of facts, and ids of those that end.
    seen: set[str] = set()
    ended: set[str] = set()


class _Ending(msgspec.Struct):
    fact: Fact
    ends: str


def _surest(found: Sequence[Candidate]) -> list[Candidate]:
    """Each statement once, in the order they were made: what is said last may hold."""
    best: dict[tuple[object, ...], Candidate] = {}
    for one in found:
        key = (one.subject, one.predicate, one.object, one.valid_from, one.valid_until)
        if key not in best or best[key].confidence < one.confidence:
            best[key] = one
    return list(best.values())


def fact_from(candidate: Candidate, episode: Episode, actor: str) -> Fact:
    """The fact that a candidate is, with an id that is the same whenever it is read again."""
    parts = [episode.document, candidate.subject, candidate.predicate, candidate.object]
    if candidate.valid_from is not None:
        # The same may have been so twice: each time is a fact of its own.
        until = candidate.valid_until
        parts += [candidate.valid_from.isoformat(), "" if until is None else until.isoformat()]
    said = "\x1f".join(parts)
    return Fact(
        id=f"fact_{hashlib.sha256(said.encode(errors='replace')).hexdigest()[:26].upper()}",
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


def says_it_ended(candidate: Candidate) -> bool:
    """Whether it says until when something was so; a plan's end is only its date."""
    if candidate.predicate == "plans_to" or candidate.valid_until is None:
        return False
    return candidate.valid_from is None

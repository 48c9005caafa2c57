"""Why something is known, which recalls used it, and a user at a glance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.memory.documents import new_id, owner_key
from pagefile.memory.episodes.episode import document_of as episode_document
from pagefile.memory.episodes.episode import episode_of
from pagefile.memory.episodes.store import Episodes
from pagefile.memory.facts.documents import document_of as fact_document
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.proposal import ProposedFact, candidate_name, proposed_of
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.change import MOST_ID_BYTES, require_name_or_none
from pagefile.memory.items.item import Revision, visible
from pagefile.memory.items.proposal import read_batch
from pagefile.memory.items.reader import ItemReader
from pagefile.memory.privacy.tombstones import Guard
from pagefile.recall.index import SearchIndex
from pagefile.store.arguments import Naming
from pagefile.store.batch import Append, Batch, Query
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store

# Which recalls used a memory: noted in batches, without what was asked.
#
# memory/use/<digest of the user>        a log in that user's partition


#: Logs, one per user.
USES = "memory/use/"
#: The key under which the uses of a memory stand in its user's log.
OF_MEMORY = "used"
#: How many uses wait in memory before they are stored together.
_AT_ONCE = 500
_MOST_SHOWN = 1_000


class Use(msgspec.Struct, frozen=True):
    """One recall that gave a memory back: when, at which place of its answer, and its id."""

    recall_id: str
    at: datetime
    rank: int


class Uses(msgspec.Struct, frozen=True):
    """The newest uses of a memory; `is_cut` when there were more."""

    told: tuple[Use, ...]
    is_cut: bool


class UseRecorder:
    """Notes which recalls gave which memories back, once it is switched on.

    Uses wait in memory and are stored some hundreds at a time, so a crash can
    lose the last of them: they are statistics, and the only thing here that is
    acknowledged before it is stored.
    """

    def __init__(
        self, store: Store, guard: Guard, clock: Callable[[], datetime], *, on: bool
    ) -> None:
        self._store = store
        self._guard = guard
        self._clock = clock
        self.is_on = on
        self._lock = threading.Lock()
        self._waiting: list[Append] = []

    def note(
        self, user_id: str | None, documents: Sequence[str], recall_id: str | None = None
    ) -> None:
        """One recall, by its id if it has one, gave these back, best first."""
        if not self.is_on or not documents:
            return
        recall_id = new_id("recall") if recall_id is None else recall_id
        at = self._clock().isoformat()
        log = use_log(user_id)
        uses = [
            Append(
                log,
                {"recall_id": recall_id, "at": at, "rank": rank},
                user=user_id,
                kind="use",
                keys={OF_MEMORY: document},
            )
            for rank, document in enumerate(documents)
        ]
        with self._lock:
            self._waiting += uses
            full = len(self._waiting) >= _AT_ONCE
        if full:
            self.flush()

    def flush(self) -> None:
        """Store what waits, but for what was forgotten meanwhile."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for user in {use.user: None for use in waiting}:
            own = [use for use in waiting if use.user == user]
            for at in range(0, len(own), _AT_ONCE):
                self._store_some(user, own[at : at + _AT_ONCE])

    def _store_some(self, user: str | None, uses: list[Append]) -> None:
        while uses:
            try:
                self._store.commit(Batch(uses, [self._guard.condition(user)]))
                return
            except Conflict as conflict:
                if not self._guard.learns(conflict, user):
                    raise
                gone = self._guard.forgotten(user, [_used(use) for use in uses])
                uses = [use for use in uses if _used(use) not in gone]

    def of(self, documents: Sequence[str], user_id: str | None) -> Uses:
        """The recalls that gave these back, newest first, of each at most 1,000."""
        self.flush()
        told: list[Use] = []
        is_cut = False
        for document in documents:
            query = Query(OF_MEMORY, document, log=use_log(user_id), reverse=True)
            page = self._store.find(query, limit=_MOST_SHOWN)
            told += [convert(one.value, Use) for one in page.items if not one.erased]
            is_cut = is_cut or page.cursor is not None
        return Uses(tuple(told), is_cut)


def use_log(user_id: str | None) -> str:
    """The log of a user's uses."""
    return USES + owner_key(user_id)


def _used(use: Append) -> str:
    return str(use.keys[OF_MEMORY])


#: Facts and items may have ids that no episode could have.
_IDS = Naming(MOST_ID_BYTES)
_PAGE = 1_000


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where a memory comes from and what became of it.

    `sources` are ids of episodes and slots; those that are gone are not among
    them. `proposed_by` and `committed_by` are extractors, runs, reviewers or
    callers, empty where nobody was named; `proposed_in` is the batch of an item.
    A candidate waits for review, or was rejected: `status` says which, and of
    facts and items whether they hold. `supersedes` and `superseded_by` are ids.
    `uses` are the recalls that gave it back, where their recording is switched
    on, the newest 1,000; `uses_cut` says that there were more.
    """

    id: str
    kind: Literal["episode", "fact", "item", "candidate"]
    text: str
    status: str = ""
    sources: tuple[str, ...] = ()
    proposed_by: str = ""
    proposed_in: str = ""
    committed_by: str = ""
    recorded_at: datetime | None = None
    reason: str = ""
    quote: str = ""
    supersedes: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    uses_cut: bool = False
    details: Any = None


class Provenances:
    """Answers why, for whatever kind of memory an id names."""

    def __init__(self, store: Store, facts: FactStore, uses: UseRecorder) -> None:
        self._store = store
        self._facts = facts
        self._uses = uses
        self._items = ItemReader(store)

    def why(self, memory_id: str, user_id: str | None, project_id: str | None) -> Provenance:
        """Why a memory is here.

        Raises:
            NotFound: nothing of that id is to be seen with this user.
        """
        _IDS.check_text("id", memory_id)
        for look in (self._episode, self._fact, self._candidate):
            found = look(memory_id, user_id)
            if found is not None:
                return found
        return self._item(memory_id, user_id, project_id)

    def _episode(self, memory_id: str, user_id: str | None) -> Provenance | None:
        name = episode_document(memory_id, user_id)
        found = self._store.get(name)
        if found is None or found.erased:
            return None
        episode, uses = episode_of(found), self._uses.of([name], user_id)
        return Provenance(
            id=memory_id,
            kind="episode",
            text=episode.text,
            sources=(episode.session_id,),
            committed_by=episode.speaker or "",
            recorded_at=found.time,
            uses=uses.told,
            uses_cut=uses.is_cut,
        )

    def _fact(self, memory_id: str, user_id: str | None) -> Provenance | None:
        name = fact_document(user_id, memory_id)
        found = self._store.get(name)
        if found is None or found.erased:
            return None
        story = self._facts.why(memory_id, user_id=user_id)
        proposal = self._proposal(memory_id, user_id)
        asserted, uses = story.asserted, self._uses.of([name], user_id)
        return Provenance(
            id=memory_id,
            kind="fact",
            text=asserted.text,
            status=story.status,
            sources=story.sources,
            supersedes=tuple(fact.id for fact in story.supersedes),
            superseded_by=tuple(fact.id for fact in story.closed_by),
            proposed_by=asserted.actor if proposal is None else proposal.proposed_by,
            committed_by=asserted.actor if proposal is None else proposal.decided_by,
            recorded_at=asserted.recorded_at,
            reason=asserted.reason,
            quote="" if proposal is None else proposal.quote,
            uses=uses.told,
            uses_cut=uses.is_cut,
            details=story,
        )

    def _proposal(self, memory_id: str, user_id: str | None) -> ProposedFact | None:
        name = candidate_name(memory_id, user_id)
        found = self._store.get(name)
        return None if found is None or found.erased else proposed_of(found)

    def _candidate(self, memory_id: str, user_id: str | None) -> Provenance | None:
        proposal = self._proposal(memory_id, user_id)
        if proposal is None:
            return None
        fact = proposal.fact
        return Provenance(
            id=memory_id,
            kind="candidate",
            text=fact.text,
            status=proposal.status,
            sources=tuple(fact.sources),
            proposed_by=proposal.proposed_by,
            committed_by=proposal.decided_by,
            recorded_at=proposal.proposed_at,
            reason=proposal.reason or fact.reason,
            quote=proposal.quote,
            details=proposal,
        )

    def _item(self, memory_id: str, user_id: str | None, project_id: str | None) -> Provenance:
        require_name_or_none("project_id", project_id)
        try:
            versions = self._versions(memory_id, user_id, project_id)
        except (NotFound, Invalid):  # Not every id of ours could be an item's.
            versions = []
        if not versions:
            raise NotFound(
                f"there is no memory {shown(memory_id)} to be seen here",
                "give the user_id or project_id it belongs to",
            )
        last, let_in = versions[-1], _let_in(versions)
        replaced = last.item.superseded_by
        places = visible(user_id, project_id)
        uses = self._uses.of([place.document(memory_id) for place in places], user_id)
        return Provenance(
            id=memory_id,
            kind="item",
            text=last.item.content,
            status=last.item.status,
            sources=last.item.source_refs,
            proposed_by=self._run_of(let_in.cause.batch_id, user_id),
            proposed_in=let_in.cause.batch_id,
            committed_by=let_in.cause.by,
            recorded_at=let_in.item.updated_at,
            reason=let_in.cause.rationale,
            supersedes=last.item.supersedes,
            superseded_by=() if replaced is None else (replaced,),
            uses=uses.told,
            uses_cut=uses.is_cut,
            details=tuple(versions),
        )

    def _versions(
        self, memory_id: str, user_id: str | None, project_id: str | None
    ) -> list[Revision]:
        """All versions of an item, oldest first."""
        versions: list[Revision] = []
        after = 0
        while page := self._items.history(
            memory_id, user_id=user_id, project_id=project_id, after=after, limit=_PAGE
        ):
            versions += page
            after = page[-1].version
        return versions

    def _run_of(self, batch_id: str, user_id: str | None) -> str:
        """The run that proposed a batch; empty when none did, or it is another user's."""
        try:
            batch = read_batch(self._store, batch_id, 0).batch
        except NotFound:
            return ""
        return batch.run_id or "" if batch.user_id in (None, user_id) else ""


def _let_in(versions: Sequence[Revision]) -> Revision:
    """The version that made an item hold: what ended it later, or brought it back, is another."""
    made = [one for one in versions if one.item.status == "active" and one.cause.op != "undo"]
    return made[-1] if made else versions[-1]


# What is known of a user at a glance.


_MOST_IN_PROFILE = 10


class MemoryProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept of a user, and the newest of it.

    `fact_count` is of facts that hold now, each once however often it was asserted.
    `recent_sessions` are those with the newest episodes, newest first;
    `sample_facts` hold now and were recorded last. Both at most ten.
    """

    user_id: str | None
    episode_count: int = 0
    fact_count: int = 0
    block_count: int = 0
    last_seen: datetime | None = None
    recent_sessions: tuple[str, ...] = ()
    sample_facts: tuple[Fact, ...] = ()


class Profiles:
    """Counts of episodes from the index, of facts from what holds."""

    def __init__(self, store: Store, index: SearchIndex, facts: FactStore) -> None:
        self._index = index
        self._facts = facts
        self._episodes = Episodes(store)

    def profile(self, user_id: str | None, block_count: int) -> MemoryProfile:
        """The profile of one user."""
        counts = self._index.counts(owner_key(user_id))
        newest = self._episodes.newest(user_id, 1)
        fact_count, sample = self._facts.overview(user_id=user_id, limit=_MOST_IN_PROFILE)
        return MemoryProfile(
            user_id=user_id,
            episode_count=counts.get("episode", 0),
            fact_count=fact_count,
            block_count=block_count,
            last_seen=newest[0].occurred_at if newest else None,
            recent_sessions=tuple(
                self._index.recent_sessions(owner_key(user_id), "episode", _MOST_IN_PROFILE)
            ),
            sample_facts=tuple(sample),
        )

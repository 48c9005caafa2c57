"""What a prompt may use of a user's memory, all of it as it was at one position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from pagefile.memory.blocks import MOST_BLOCKS, Blocks, MemoryBlock, document_of
from pagefile.memory.episodes.episode import Episode, episode_of
from pagefile.memory.facts.documents import document_of as fact_document
from pagefile.memory.facts.documents import fact_id_in
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.item import revision_of
from pagefile.memory.items.reader import ItemReader
from pagefile.memory.privacy.tombstones import Guard
from pagefile.memory.provenance import UseRecorder
from pagefile.memory.recaller import (
    ITEM_QUERY,
    EpisodeMatch,
    FactMatch,
    MemoryKind,
    MemoryMatch,
    Recaller,
    shares,
)
from pagefile.recall.embed.embedder import Embedder
from pagefile.recall.embed.reranker import Reranker
from pagefile.recall.hit import Hit
from pagefile.recall.index import PastIndex
from pagefile.recall.partition_cache import Shelf
from pagefile.store.codec import sort_key
from pagefile.store.records import Document
from pagefile.store.snapshot import Snapshot

_MOST_CHARS = 1_000_000


class Pinned(msgspec.Struct, frozen=True):
    """A block, and the record that holds it."""

    block: MemoryBlock
    record: Document


class Recalled(msgspec.Struct, frozen=True):
    """A memory that answers the question, its score among all kinds, and its record."""

    kind: MemoryKind
    id: str
    text: str
    score: float
    confidence: float
    when: datetime
    record: Document
    #: Why it was found; None for items, and for what is only read again.
    hit: Hit | None = None


class Answer(msgspec.Struct, frozen=True):
    """What was recalled, best first, and the documents of what would answer but holds no longer."""

    found: Sequence[Recalled]
    superseded: Sequence[str] = ()
    #: The documents of what was found and has nothing to do with the question.
    unrelated: frozenset[str] = frozenset()


class MemoryParts(msgspec.Struct, frozen=True):
    """What a memory is asked with: its embedder, its index in memory, its reranker, its notes."""

    embedder: Embedder | None
    shelf: Shelf
    reranker: Reranker | None
    uses: UseRecorder
    clock: Callable[[], datetime]


class Recollection:
    """One user's memory at a position; nothing in it depends on the clock.

    "Now", for what holds now and for time words, is the time of the last commit up to there.
    """

    def __init__(self, parts: MemoryParts, past: Snapshot, user_id: str | None) -> None:
        self._past = past
        self._user_id = user_id
        self._uses = parts.uses
        self._now = sort_key.moment(past.time_us)
        self._index = PastIndex(past, parts.embedder, parts.shelf)
        silent = UseRecorder(past, Guard(past), parts.clock, on=False)
        self._facts = FactStore(past, clock=lambda: past.time_us)
        self._recaller = Recaller(
            past, self._index, self._facts, silent, parts.reranker, lambda: self._now
        )
        self._items = ItemReader(past)
        self._blocks = Blocks(past, parts.clock, max_blocks=MOST_BLOCKS, max_chars=_MOST_CHARS)

    @property
    def is_findable(self) -> bool:
        """Whether a question would be answered now as it was then."""
        return self._index.is_kept

    @property
    def model(self) -> str:
        """The name of the model whose vectors are compared."""
        return self._index.model.name

    def pinned(self) -> list[Pinned]:
        """The user's blocks, in order."""
        found = []
        for block in self._blocks.all(self._user_id):
            record = self._record(document_of(block.name, self._user_id))
            if record is not None:
                found.append(Pinned(block, record))
        return found

    def recall(
        self,
        query: str,
        limit: int,
        *,
        kinds: Sequence[MemoryKind],
        more_episodes: int = 0,
        project_id: str | None = None,
    ) -> Answer:
        """The best of each kind on one scale, best first; equal ones by kind and document.

        `limit` of each, and so many more episodes, some of which are not wanted.
        """
        user_id, now = self._user_id, self._now
        matches: list[MemoryMatch] = []
        gone: list[str] = []
        if "episode" in kinds:
            episodes = self._recaller.episodes(
                query, user_id, limit + more_episodes, None, None, None
            )
            matches += shares(query, [MemoryMatch.of_episode(match) for match in episodes])
        if "fact" in kinds:
            facts, past = self._recaller.facts_and_past(query, user_id, limit, now, now)
            matches += shares(query, [MemoryMatch.of_fact(match) for match in facts])
            gone += [fact_document(user_id, name) for name in past[:limit]]
        if "item" in kinds and query.strip():
            asked = query[:ITEM_QUERY]
            items = self._items.search(asked, user_id=user_id, project_id=project_id, top_k=limit)
            matches += shares(query, [MemoryMatch.of_item(hit.item, hit.score) for hit in items])
            replaced = self._items.search(
                asked, user_id=user_id, project_id=project_id, status="superseded", top_k=limit
            )
            gone += [MemoryMatch.of_item(hit.item, hit.score).document for hit in replaced]
        found = [one for match in matches if (one := self._recalled(match)) is not None]
        return Answer(sorted(found, key=_order), gone)

    def again(self, scores: Mapping[str, float], superseded: Sequence[str]) -> Answer:
        """The answer that had these documents with these scores, without what is gone since."""
        found = []
        for name, score in scores.items():
            match = self._match(name, score)
            recalled = None if match is None else self._recalled(match)
            if recalled is not None:
                found.append(recalled)
        return Answer(sorted(found, key=_order), superseded)

    def _match(self, name: str, score: float) -> MemoryMatch | None:
        record = self._record(name)
        if record is None:
            return None
        if record.kind == "episode":
            return MemoryMatch.of_episode(EpisodeMatch(episode=episode_of(record), score=score))
        if record.kind == "item":
            return MemoryMatch.of_item(revision_of(record).item, score)
        fact_id = fact_id_in(name)
        holding = self._facts.holding(
            [fact_id], valid_at=self._now, known_at=self._now, user_id=self._user_id
        )
        named = [fact for fact in holding if fact.id == fact_id]
        return MemoryMatch.of_fact(FactMatch(fact=named[0], score=score)) if named else None

    def note(self, documents: Sequence[str], recall_id: str) -> None:
        """These went into a prompt, whose receipt has this id."""
        self._uses.note(self._user_id, documents, recall_id)

    def _recalled(self, match: MemoryMatch) -> Recalled | None:
        record = self._record(match.document)
        if record is None:
            return None
        sure = 1.0 if isinstance(match.value, Episode) else match.value.confidence
        return Recalled(
            match.kind, match.id, match.text, match.score, sure, match.at, record, match.hit
        )

    def _record(self, document: str) -> Document | None:
        found = self._past.get(document)
        return None if found is None or found.erased else found


def _order(one: Recalled) -> tuple[float, str, str]:
    return -one.score, one.kind, one.record.name

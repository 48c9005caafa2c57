"""Finding: from a question to episodes, facts and items, best first, each with its reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Literal, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.documents import owner_key, require_session, require_text
from pagefile.memory.episodes.episode import Episode, episode_of
from pagefile.memory.episodes.store import Episodes, TimeRange, bounds_of, require_limit
from pagefile.memory.facts.documents import document_of, fact_id_in
from pagefile.memory.facts.documents import document_of as fact_document
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.fact import Status as FactStatus
from pagefile.memory.facts.reader import MOST_IDS
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.change import Scope
from pagefile.memory.items.item import MemoryItem, place_of
from pagefile.memory.items.item import Status as ItemStatus
from pagefile.memory.items.reader import Hit as ItemHit
from pagefile.memory.items.reader import ItemReader, words
from pagefile.memory.provenance import UseRecorder
from pagefile.recall.embed.reranker import Reranker
from pagefile.recall.hit import Arm, Hit, Weights
from pagefile.recall.index import SearchIndex
from pagefile.recall.text.analysis import terms
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.store import Store

# What a search of memory gives back: the thing, its score, and why it is here.


class EpisodeMatch(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was found. A higher `score` is a better match.

    `hit` explains it: rank and score in each arm, the terms that matched, and
    what lifted it. It is None when there was no query and the newest were asked for.
    """

    episode: Episode
    score: float
    vector_score: float | None = None
    bm25_score: float | None = None
    rerank_score: float | None = None
    hit: Hit | None = None


class FactMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that was found, and why."""

    fact: Fact
    score: float
    hit: Hit | None = None


class MemoryMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that was found; `kind` says what `value` is, scores of all kinds compare."""

    kind: Literal["episode", "fact", "item"]
    id: str
    text: str
    score: float
    at: datetime
    value: Episode | Fact | MemoryItem
    hit: Hit | None = None

    def with_score(self, score: float) -> MemoryMatch:
        """The same with another score."""
        return msgspec.structs.replace(self, score=score)

    @classmethod
    def of_episode(cls, match: EpisodeMatch) -> MemoryMatch:
        episode = match.episode
        return cls(
            kind="episode",
            id=episode.id,
            text=episode.text,
            score=match.score,
            at=episode.occurred_at,
            value=episode,
            hit=match.hit,
        )

    @classmethod
    def of_fact(cls, match: FactMatch) -> MemoryMatch:
        fact = match.fact
        return cls(
            kind="fact",
            id=fact.id,
            text=fact.text,
            score=match.score,
            at=fact.valid_from,
            value=fact,
            hit=match.hit,
        )

    @classmethod
    def of_item(cls, item: MemoryItem, score: float, hit: Hit | None = None) -> MemoryMatch:
        return cls(
            kind="item",
            id=item.memory_id,
            text=item.content,
            score=score,
            at=item.updated_at,
            value=item,
            hit=hit,
        )

    @property
    def document(self) -> str:
        """The name of the document that holds it."""
        value = self.value
        if isinstance(value, Episode):
            return value.document
        if isinstance(value, Fact):
            return fact_document(value.user_id, value.id)
        return place_of(value.scope, value.user_id, value.project_id).document(value.memory_id)


# Episodes as they were last read, for as long as nothing in the store has changed.


#: How many are kept, and how many characters of them; beyond, all are let go.
_MOST = 4_096
_MOST_CHARACTERS = 4_000_000


class KnownEpisodes:
    """Reads episodes; what is asked for again before the next commit is not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = _Kept(None)

    def read(
        self, names: Sequence[str], user_id: str | None, stamp: int | None
    ) -> list[Episode | None]:
        """The episodes of these documents; None where one is gone, or not this user's.

        `stamp` is the store's, from before.
        """
        kept = self._kept
        if stamp is None or kept.stamp != stamp:
            kept = self._kept = _Kept(stamp)
        known = kept.episodes
        missing = [name for name in names if name not in known]
        fresh: dict[str, Episode] = {}
        if missing:
            for document in self._store.get_many(missing):
                if document is None or document.erased or document.user != user_id:
                    continue
                fresh[document.name] = episode = episode_of(document)
                if stamp is not None:
                    kept.add(document.name, episode)
        found = (fresh.get(name) or known.get(name) for name in names)
        return [one if one is not None and one.user_id == user_id else None for one in found]


class _Kept:
    """What was read since a stamp was taken."""

    def __init__(self, stamp: int | None) -> None:
        self.stamp = stamp
        self.episodes: dict[str, Episode] = {}
        self._characters = 0

    def add(self, name: str, episode: Episode) -> None:
        if episode.tool_calls or episode.tool_transcript is not None:
            return  # Arguments of a call are a dict, which its owner may change.
        size = len(episode.input) + len(episode.output)
        if len(self.episodes) >= _MOST or self._characters + size > _MOST_CHARACTERS:
            self.episodes.clear()
            self._characters = 0
        if size <= _MOST_CHARACTERS:
            self.episodes[name] = episode
            self._characters += size


MOST_QUERY = 100_000
_DEFAULT = Weights()
#: A fact is asserted several times, and some assertions hold no longer: so many are looked at.
_FACTS_LOOKED_AT = 4
_FACTS_AT_LEAST = 50
_FACTS_AT_MOST = 10_000
#: How many of the best a reranker reads, for each one that is wanted.
_RERANKED = 3


class Recaller:
    """Asks the index, and reads what it names; what is no longer there is not given.

    `clock` says what "yesterday" is the day before of.
    """

    def __init__(
        self,
        store: Store,
        index: SearchIndex,
        facts: FactStore,
        uses: UseRecorder,
        reranker: Reranker | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._clock = clock
        self._store = store
        self._index = index
        self._facts = facts
        self._uses = uses
        self._reranker = reranker
        self._episodes = Episodes(store)
        self._known = KnownEpisodes(store)

    def episodes(
        self,
        query: str,
        user_id: str | None,
        limit: int,
        time_range: TimeRange | None,
        session_id: str | None,
        alpha: float | None,
        *,
        exclude_session_id: str | None = None,
        explain: bool = True,
        note: bool = True,
    ) -> list[EpisodeMatch]:
        """Episodes that answer the question; the newest when it is blank.

        Without `note`, whoever asks says what of it was used.
        """
        text = _require_query(query)
        weights = _weights(alpha)
        low, high = bounds_of(time_range)
        for session in (session_id, exclude_session_id):
            if session is not None:
                require_session(session)
        if not require_limit(limit):
            return []
        if not text:
            return self._newest(user_id, limit, time_range, session_id, exclude_session_id)
        stamp = self._store._stamp()
        hits = self._index.search(
            owner_key(user_id),
            text,
            limit=limit if self._reranker is None else limit * _RERANKED,
            kinds=("episode",),
            session=session_id,
            exclude_session=exclude_session_id,
            time_range=None if time_range is None else (low, high + 1),
            now_us=microseconds(self._clock()),
            weights=weights,
            explain=explain,
            stamp=stamp,
        )
        found = self._matches(hits, user_id, stamp)
        if self._reranker is not None:
            found = self._reranked(text, found)
        found = found[:limit]
        if note and self._uses.is_on:
            self._uses.note(user_id, [match.episode.document for match in found])
        return found

    def facts(
        self,
        query: str,
        user_id: str | None,
        limit: int,
        valid_at: datetime | None,
        known_at: datetime | None,
        *,
        explain: bool = True,
        status: FactStatus | None = "active",
        note: bool = True,
    ) -> list[FactMatch]:
        """Facts that answer the question and hold at that time; the newest when it is blank.

        With another `status`, those that have it then; None is all that held at any time.
        """
        return self.facts_and_past(
            query, user_id, limit, valid_at, known_at, explain=explain, status=status, note=note
        )[0]

    def facts_by_words(
        self,
        query: str,
        *,
        limit: int,
        valid_at: datetime | None,
        known_at: datetime | None,
        user_id: str | None,
    ) -> list[Fact]:
        """Facts that share words with the question and hold at that time; nothing is noted."""
        plain = Weights.plain(0.0)
        found, _ = self.facts_and_past(
            query, user_id, limit, valid_at, known_at, explain=False, note=False, weights=plain
        )
        return [match.fact for match in found]

    def facts_and_past(
        self,
        query: str,
        user_id: str | None,
        limit: int,
        valid_at: datetime | None,
        known_at: datetime | None,
        *,
        explain: bool = True,
        status: FactStatus | None = "active",
        note: bool = True,
        weights: Weights = _DEFAULT,
    ) -> tuple[list[FactMatch], list[str]]:
        """As `facts`, and the ids of assertions that answer it too and hold no longer."""
        text = _require_query(query)
        if not require_limit(limit):
            return [], []
        if not text:
            newest = self._facts.query(
                valid_at=valid_at,
                known_at=known_at,
                user_id=user_id,
                limit=limit,
                history=status is None,
                status=status,
            )
            return [FactMatch(fact=fact, score=1.0) for fact in newest], []
        # Facts keep the names they were asserted with, whatever those stand for since.
        also = self._facts.viewpoint(valid_at, known_at, user_id).names.others_in(text)
        looked_at = max(_FACTS_LOOKED_AT * limit, _FACTS_AT_LEAST)
        now_us = microseconds(self._clock())
        while True:
            hits = self._index.search(
                owner_key(user_id),
                text,
                limit=looked_at,
                kinds=("fact",),
                now_us=now_us,
                also=also,
                weights=weights,
                explain=explain,
            )
            by_id = {fact_id_in(hit.key): hit for hit in hits}
            holding = self._holding(list(by_id), user_id, valid_at, known_at, status)
            if len(holding) >= limit or len(hits) < looked_at or looked_at >= _FACTS_AT_MOST:
                break
            # What was so often said before must not hide what holds now.
            looked_at = min(_FACTS_LOOKED_AT * looked_at, _FACTS_AT_MOST)
        best: list[FactMatch] = []
        for fact in holding[:limit]:
            # The first that says so: of several assertions of a fact, the one found best.
            hit = next(by_id[name] for name in by_id if name in fact.asserted)
            best.append(FactMatch(fact=fact, score=hit.score, hit=hit))
        if note:
            self._uses.note(
                user_id, [document_of(match.fact.user_id, match.fact.id) for match in best]
            )
        held = {name for fact in holding for name in fact.asserted}
        return best, [name for name in by_id if name not in held]

    def _holding(
        self,
        fact_ids: list[str],
        user_id: str | None,
        valid_at: datetime | None,
        known_at: datetime | None,
        status: FactStatus | None,
    ) -> list[Fact]:
        """The facts that these assertions support, each once, however many they are."""
        found: dict[tuple[str, datetime], Fact] = {}
        for at in range(0, len(fact_ids), MOST_IDS):
            some = fact_ids[at : at + MOST_IDS]
            for fact in self._facts.holding(
                some,
                valid_at=valid_at,
                known_at=known_at,
                user_id=user_id,
                history=status is None,
                status=status,
            ):
                found.setdefault((fact.id, fact.valid_from), fact)
        return list(found.values())

    def _newest(
        self,
        user_id: str | None,
        limit: int,
        time_range: TimeRange | None,
        session_id: str | None,
        exclude_session_id: str | None,
    ) -> list[EpisodeMatch]:
        low, high = bounds_of(time_range)
        if exclude_session_id is not None and exclude_session_id == session_id:
            return []
        if exclude_session_id is not None and session_id is None:
            rest = self._episodes.newest_elsewhere(exclude_session_id, user_id, low, high)
            found = list(islice(rest, limit))
        elif session_id is None:
            found = self._episodes.newest(user_id, limit, time_range)
        else:
            found = self._episodes.newest_of_session(session_id, user_id, limit, low, high)
        return [EpisodeMatch(episode=episode, score=1.0) for episode in found]

    def _matches(
        self, hits: Sequence[Hit], user_id: str | None, stamp: int | None
    ) -> list[EpisodeMatch]:
        """What the hits stand for; what is no longer there, or not this user's, is left out."""
        found: list[EpisodeMatch] = []
        episodes = self._known.read([hit.key for hit in hits], user_id, stamp)
        for hit, episode in zip(hits, episodes, strict=True):
            if episode is None:
                continue
            scores = {arm.name: arm.score for arm in hit.arms}
            found.append(
                EpisodeMatch(
                    episode=episode,
                    score=hit.score,
                    vector_score=scores.get("vector"),
                    bm25_score=scores.get("lexical"),
                    hit=hit,
                )
            )
        return found

    def _reranked(self, query: str, found: list[EpisodeMatch]) -> list[EpisodeMatch]:
        assert self._reranker is not None
        scores = self._reranker.scores(query, [match.episode.text for match in found])
        told = [
            msgspec.structs.replace(match, rerank_score=float(score))
            for match, score in zip(found, scores, strict=True)
        ]
        # Stable: what the reranker holds equal keeps the order it came in.
        return sorted(told, key=lambda match: -(match.rerank_score or 0.0))


def _require_query(query: object) -> str:
    return require_text("query", query, MOST_QUERY).strip()


def _weights(alpha: float | None) -> Weights:
    if alpha is None:
        return _DEFAULT
    if type(alpha) not in (int, float) or not 0 <= alpha <= 1:
        raise Invalid("alpha", shown(alpha), "give 0 for words alone to 1 for vectors alone")
    # At the ends the arm alone speaks, without neighbours, speakers and time.
    return Weights.plain(float(alpha)) if alpha in (0, 1) else Weights(alpha=float(alpha))


# Searching everything at once: episodes, facts and items, in one list.


MemoryKind = Literal["episode", "fact", "item"]
_WIDE = 1_000
_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
#: Which facts an item's status asks for; of the others there are none.
_OF_FACTS: dict[ItemStatus | None, FactStatus | None] = {
    "active": "active",
    "superseded": "superseded",
    None: None,
}
#: How many characters of a question the search for items reads.
ITEM_QUERY = 10_000


class Searching:
    """Asks each kind of memory, and merges what they find.

    Scores of kinds are brought to one scale: half is the share of the kind's own
    best, half the share of the question's terms that the memory holds. So the
    best of each kind stand high, and one that has little to do with the question
    does not stand beside one that answers it.
    """

    def __init__(self, recaller: Recaller, items: ItemReader, uses: UseRecorder) -> None:
        self._recaller = recaller
        self._items = items
        self._uses = uses

    def search(
        self,
        query: str,
        user_id: str | None,
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = _KINDS,
        session_id: str | None = None,
        time_range: TimeRange | None = None,
        status: ItemStatus | None = "active",
        scope: Scope | None = None,
        project_id: str | None = None,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[MemoryMatch]:
        """The best of the kinds that are asked for; filters narrow those that have them."""
        if not isinstance(kinds, (list, tuple)) or not kinds:
            raise Invalid("kinds", shown(kinds), f"give some of {', '.join(_KINDS)}")
        if any(kind not in _KINDS for kind in kinds):
            raise Invalid("kinds", shown(kinds), f"give some of {', '.join(_KINDS)}")
        for field, value, known in (("status", status, ItemStatus), ("scope", scope, Scope)):
            if value is not None and value not in get_args(known):
                step = f"use one of {', '.join(get_args(known))}, or None"
                raise Invalid(field, shown(value), step)
        require_text("query", query, MOST_QUERY)
        if session_id is not None:
            require_session(session_id)
        low, high = bounds_of(time_range)
        if not require_limit(limit):
            return []
        # Facts and items are filtered by their time here, so more than are wanted are asked for.
        wide = limit if time_range is None else max(limit, _WIDE)
        # Episodes and facts are a user's; an episode holds for good, and a fact has no other
        # statuses of an item's than these.
        own = scope in (None, "user")
        found: list[MemoryMatch] = []
        if "episode" in kinds and own and status in (None, "active"):
            episodes = self._recaller.episodes(
                query, user_id, limit, time_range, session_id, None, note=False
            )
            found += shares(query, [MemoryMatch.of_episode(match) for match in episodes])
        # What has no session is not found in one.
        if "fact" in kinds and session_id is None and own and status in _OF_FACTS:
            facts = self._recaller.facts(
                query, user_id, wide, valid_at, known_at, status=_OF_FACTS[status], note=False
            )
            found += shares(query, [MemoryMatch.of_fact(match) for match in facts])
        if "item" in kinds and session_id is None and query.strip():
            items = self._items.search(
                query[:ITEM_QUERY],
                scope=scope,
                user_id=user_id,
                project_id=project_id,
                status=status,
                top_k=wide,
            )
            found += shares(query, _explained(query[:ITEM_QUERY], items))
        within = [one for one in found if low <= microseconds(one.at) <= high]
        # Stable: of equal scores, episodes stand before facts, and facts before items.
        best = sorted(within, key=lambda match: -match.score)[:limit]
        # Only what is given back was used; the newest for a blank question answer nothing.
        if self._uses.is_on and query.strip():
            self._uses.note(user_id, [match.document for match in best])
        return best


def _explained(query: str, items: Sequence[ItemHit]) -> list[MemoryMatch]:
    """Items with their reasons: they are found by the words they share with the question."""
    asked = list(dict.fromkeys(words(query)))
    found: list[MemoryMatch] = []
    for rank, one in enumerate(items, 1):
        match = MemoryMatch.of_item(one.item, one.score)
        held = frozenset(words(one.item.content))
        hit = Hit(
            key=match.document,
            kind="item",
            score=one.score,
            time_us=microseconds(match.at),
            status=one.item.status,
            scope=one.item.scope,
            arms=(Arm("lexical", rank, one.score, one.score),),
            matched=tuple(word for word in asked if word in held),
        )
        found.append(msgspec.structs.replace(match, hit=hit))
    return found


def shares(query: str, matches: list[MemoryMatch]) -> list[MemoryMatch]:
    """Scores on one scale, at most 1, for any kind."""
    asked = frozenset(terms(query))
    best = max((match.score for match in matches), default=0.0)
    return [
        match.with_score(
            0.5 * (match.score / best if best > 0 else 0.0) + 0.5 * _held(asked, match)
        )
        for match in matches
    ]


def _held(asked: frozenset[str], match: MemoryMatch) -> float:
    """The share of the question's terms that the memory holds; all when it has none."""
    return len(asked & frozenset(terms(match.text))) / len(asked) if asked else 1.0

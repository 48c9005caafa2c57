"""Memories that say the same, or nearly: by the words they share, without a model.

Two are near when the sets of their terms overlap by at least the threshold
(Jaccard). What is compared is found through rare terms: two sets that overlap
so much must share one of the rarest few of each, so not every pair is looked at.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.documents import is_kept, owner_key
from pagefile.memory.episodes.episode import Episode, episode_of
from pagefile.memory.episodes.store import Episodes
from pagefile.recall.hit import Weights
from pagefile.recall.index import SearchIndex
from pagefile.recall.text.analysis import folded, terms
from pagefile.store.records import Document
from pagefile.store.store import Store

#: Below this many terms, overlap says little: "yes please" is not a repetition.
LEAST_TERMS = 4
#: What is compared at most with one; more share a rare term only in made-up text.
_MOST_COMPARED = 1_000


class Duplicate(msgspec.Struct, frozen=True):
    """A memory that says what an earlier one says; `similarity` is 1 for the same terms.

    `is_same` when it is the same word for word, but for case and stops: "not"
    is no term, and turns what the others say.
    """

    key: str
    of: str
    similarity: float
    is_same: bool = False


def require_threshold(threshold: object) -> float:
    """A share of terms that makes sense to compare by."""
    if type(threshold) not in (int, float) or not 0.5 <= threshold <= 1:  # type: ignore[operator]
        raise Invalid("threshold", shown(threshold), "give 0.5 to 1")
    return float(str(threshold))


def similarity(one: Iterable[str], other: Iterable[str]) -> float:
    """The share of terms that two have in common, of all they have."""
    mine, theirs = set(one), set(other)
    either = len(mine | theirs)
    return len(mine & theirs) / either if either else 1.0


def duplicates_of(texts: Mapping[str, Sequence[str]], threshold: float) -> list[Duplicate]:
    """Every memory that says what one before it says, in the order they are given.

    Each is told of the most similar one before it; of equals, of the first.
    """
    counts = Counter(term for terms in texts.values() for term in set(terms))
    seen: dict[str, list[str]] = {}
    sets: dict[str, frozenset[str]] = {}
    found: list[Duplicate] = []
    for key, found_terms in texts.items():
        mine = frozenset(found_terms)
        if len(mine) < LEAST_TERMS:
            continue
        rarest = sorted(mine, key=lambda term: (counts[term], term))
        prefix = rarest[: len(mine) - math.ceil(threshold * len(mine)) + 1]
        best = _best(mine, prefix, seen, sets, threshold)
        if best is not None:
            found.append(Duplicate(key, best[1], best[0]))
        sets[key] = mine
        for term in prefix:
            seen.setdefault(term, []).append(key)
    return found


def _best(
    mine: frozenset[str],
    prefix: Sequence[str],
    seen: Mapping[str, Sequence[str]],
    sets: Mapping[str, frozenset[str]],
    threshold: float,
) -> tuple[float, str] | None:
    best: tuple[float, str] | None = None
    looked: set[str] = set()
    for term in prefix:
        for other in seen.get(term, ())[:_MOST_COMPARED]:
            if other in looked:
                continue
            looked.add(other)
            share = similarity(mine, sets[other])
            if share >= threshold and (best is None or share > best[0]):
                best = (share, other)
    return best


# Whether something was said before: word for word, or nearly.


#: "keep" stores everything, "report" too and says so, "merge" adds to what was there.
DuplicatePolicy = Literal["keep", "report", "merge"]
POLICIES = ("keep", "report", "merge")
_COMPARED = 5
#: How many of a session are looked at for a text that no search finds: "no", "I do".
_RECENT = 100
_PAGE = 500
_WORDS_ALONE = Weights.plain(0)
#: What ends or parts sentences; a mark before a word, or a question's, may turn its meaning.
_SOFT = re.compile(r"[.,!;:…。，！；：]+(?=[\s\"'”’)]|$)")


class Recognised(msgspec.Struct, frozen=True):
    """What an episode repeats; `is_same` when it says nothing else, so that nothing is lost."""

    duplicate: Duplicate
    document: Document
    is_same: bool


class Recognition:
    """Finds the episode that one repeats, by the words they share; no model is asked."""

    def __init__(self, store: Store, index: SearchIndex, threshold: float = 0.9) -> None:
        self._store = store
        self._index = index
        self._episodes = Episodes(store)
        self._threshold = threshold

    def earlier(self, episode: Episode) -> Recognised | None:
        """The stored episode that says the same, or nearly; None when there is none.

        One that is stored already is itself, and repeats nothing.
        """
        if is_kept(self._store, episode.document):
            return None
        best: Recognised | None = None
        for document in self._candidates(episode):
            other = episode_of(document)
            share = similar(episode, other)
            if share < self._threshold:
                continue
            told = Duplicate(episode.id, other.id, share, said(episode) == said(other))
            found = Recognised(told, document, is_same(episode, other))
            if best is None or _order(found) > _order(best):
                best = found
        return best

    def within(self, episodes: Sequence[Episode]) -> list[tuple[Episode, Duplicate, Episode, bool]]:
        """Which of these says what one before it says, what that is, and whether it is the same."""
        groups: dict[tuple[str | None, str | None], list[Episode]] = {}
        for episode in episodes:
            groups.setdefault((episode.user_id, episode.speaker), []).append(episode)
        found: list[tuple[Episode, Duplicate, Episode, bool]] = []
        for group in groups.values():
            named = {episode.document: episode for episode in group}
            texts = {name: terms(episode.text) for name, episode in named.items()}
            near = {one.key: one for one in duplicates_of(texts, self._threshold)}
            whole: dict[Hashable, Episode] = {}
            spoken: dict[Hashable, Episode] = {}
            for name, episode in named.items():
                same = whole.setdefault(_sameness(episode), episode)
                first = spoken.setdefault(said(episode), episode)
                if same is not episode or first is not episode:
                    of = first if same is episode else same
                    told = Duplicate(episode.id, of.id, 1.0, is_same=True)
                    found.append((episode, told, of, same is not episode))
                elif name in near:
                    of = named[near[name].of]
                    told = Duplicate(episode.id, of.id, near[name].similarity)
                    found.append((episode, told, of, False))
        return found

    def _candidates(self, episode: Episode) -> Iterator[Document]:
        """Stored episodes that may say the same: those of its session before all others."""
        looked: set[str] = set()
        for session in (episode.session_id, None):
            for name in self._found(episode, session):
                found = None if name in looked else self._store.get(name)
                looked.add(name)
                if found is not None and not found.erased and found.user == episode.user_id:
                    yield found
        if not terms(episode.text):
            recent = self._episodes.documents(
                episode.user_id, session_id=episode.session_id, newest_first=True
            )
            yield from (one for one in islice(recent, _RECENT) if one.name not in looked)

    def _found(self, episode: Episode, session: str | None) -> Iterable[str]:
        hits = self._index.search(
            owner_key(episode.user_id),
            episode.text,
            limit=_COMPARED,
            kinds=("episode",),
            session=session,
            weights=_WORDS_ALONE,
            explain=False,
        )
        return [hit.key for hit in hits]


def repetitions(store: Store, texts: Mapping[str, Sequence[str]]) -> dict[str, Duplicate]:
    """Which of these says one before it word for word, by document.

    Terms alone cannot tell: "I do" and "I do not" have none.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, heard in texts.items():
        alike.setdefault(tuple(heard), []).append(name)
    found: dict[str, Duplicate] = {}
    for names in alike.values():
        first: dict[Hashable, str] = {}
        for at in range(0, len(names) if len(names) > 1 else 0, _PAGE):
            for document in store.get_many(names[at : at + _PAGE]):
                if document is None or document.erased:
                    continue
                episode = episode_of(document)
                of = first.setdefault((episode.speaker, said(episode)), episode.id)
                if of != episode.id:
                    found[document.name] = Duplicate(episode.id, of, 1.0, is_same=True)
    return found


def said(episode: Episode) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was said and answered word for word, negations and all; only case and stops go."""
    return _spoken(episode.input), _spoken(episode.output)


def similar(one: Episode, other: Episode) -> float:
    """How much two say the same: 1 word for word; few words that differ say nothing alike."""
    if one.speaker != other.speaker:
        return 0.0
    if said(one) == said(other):
        return 1.0
    mine, theirs = frozenset(terms(one.text)), frozenset(terms(other.text))
    return similarity(mine, theirs) if min(len(mine), len(theirs)) >= LEAST_TERMS else 0.0


def is_same(one: Episode, other: Episode) -> bool:
    """Whether all of one but its time is in the other: only then may it be merged."""
    return _sameness(one) == _sameness(other)


def _sameness(episode: Episode) -> Hashable:
    tools = (episode.tool_calls, episode.tool_transcript)
    # Arguments of calls are dicts, which are compared by what they say.
    told = msgspec.json.encode(tools, order="deterministic")
    return (episode.user_id, episode.session_id, episode.speaker, said(episode), told)


def _order(found: Recognised) -> tuple[bool, bool, float]:
    return found.is_same, found.duplicate.is_same, found.duplicate.similarity


def _spoken(text: str) -> tuple[str, ...]:
    # Of stops alone each says something else.
    return tuple(_SOFT.sub("", folded(text)).split()) or tuple(text.split())

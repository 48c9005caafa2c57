"""One search through one partition: every arm, every boost, for the rows worth looking at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.columns import Rows
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.hit import Weights, lifted, share_of_best
from pagefile.recall.neighbours import Structure, among
from pagefile.recall.text.inverted_index import LexicalIndex, Match, different
from pagefile.recall.text.question import Question
from pagefile.recall.text.time_words import TimeWords
from pagefile.recall.vectors.vector_index import WHOLE_ROWS, Vectors

# The rows that a search looks at, and what of them is so whatever is asked.
#
# Of a small partition these are the same for every question with the same filter,
# so they are kept until something changes; of a large one each question has its own.


_ONE = np.float32(1)


class Mixture(NamedTuple):
    """What each row gives to each part of its score, under some weights."""

    lexical: Floats
    window: Floats
    vector: Floats
    session: Floats
    #: What is left to a row that asks.
    asks: Floats
    #: How much of what its neighbours lend a row takes.
    shortness: Floats
    #: What the length of a row, read with its neighbours, takes from each further term.
    softened: Floats


class Looked:
    """Some rows of a partition, in their order."""

    def __init__(
        self,
        lexical: LexicalIndex,
        structure: Structure,
        vectors: Vectors,
        rows: Rows,
        allowed: NDArray[np.bool_],
    ) -> None:
        self._lexical, self._structure, self._vectors = lexical, structure, vectors
        self.rows = rows
        self._are_all = len(rows) == len(allowed)
        self.allowed: NDArray[np.bool_] = self.of(allowed)
        #: Whether each of them may be found; those that may not only lend.
        self.all_allowed = bool(self.allowed.all())
        #: Each row, one before, one after, two before, two after; -1 for nobody.
        self.beside = structure.beside(rows)
        #: 1 where the row before asks.
        self.asked_before = structure.asked_before(self.beside[1])
        self.zeros = np.zeros(len(rows), np.float32)
        self.ones = np.ones(len(rows), np.float32)
        self._mixed: tuple[Weights, bool, Mixture] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """What an array of the whole partition says of these rows."""
        return values if self._are_all else values[self.rows]

    def mixture(self, weights: Weights, *, with_vectors: bool) -> Mixture:
        """How the scores of these rows are put together."""
        kept = self._mixed
        if kept is not None and kept[0] is weights and kept[1] is with_vectors:
            return kept[2]
        share = self._vector_share(weights) if with_vectors else self.zeros
        short = self._structure.shortness(self.rows, weights)
        around = np.float32(weights.window) * short
        asks = np.where(self.of(self._structure.asks), np.float32(weights.asks), _ONE)
        mixture = Mixture(
            lexical=(1 - share) * (1 - around),
            window=(1 - share) * around,
            vector=share,
            session=(1 - share) * np.float32(weights.session),
            asks=asks,
            shortness=short,
            softened=self._structure.softened(self._lexical, self.beside, weights),
        )
        self._mixed = weights, with_vectors, mixture
        return mixture

    def _vector_share(self, weights: Weights) -> Floats:
        """The vector arm's share in each row: a row without a vector is judged by its words.

        Except where vectors alone were asked for: then it is not found. A row without
        words has nothing to be judged by, and must not gain by having no vector either.
        """
        if weights.alpha == 1:
            return self.ones
        shared = self._vectors.having(self.rows) | (self.of(self._lexical.lengths) == 0)
        return np.where(shared, np.float32(weights.alpha), np.float32(0))


# Which rows of a partition pass a filter.


#: How many filters are kept with what they let through.
MOST_KEPT = 2


class Passing:
    """The rows that may be found. Those that may not still lend to their neighbours."""

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.count = int(np.count_nonzero(allowed))
        self.is_all = self.count == len(allowed)
        #: What is looked at where that is the same for every question; made by the first.
        self.whole: Looked | None = None


def filter_name(filters: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells one filter from another."""
    return tuple(tuple(v) if isinstance(v, list) else v for v in filters.values())


# How near a moment is to the time that a question means.


_DAY = 86_400 * 1_000_000
#: A longer interval fades later, by a share of its length; of so many days at most.
_SHARE, _MOST_LENGTH = 0.25, 60 * _DAY
#: Something is told after it happened more often than before.
_BEFORE = 2.0
#: What is less near than this has nothing to do with the time asked about.
_LEAST = 1e-3


def timeliness(times: NDArray[np.int64], when: Iterable[TimeWords], days: float) -> Floats:
    """1 inside of an interval, fading after it and faster before it; the best of all counts."""
    best = np.zeros(len(times))
    for words in when:
        for start, end in words.spans:
            slack = max(1.0, days * _DAY + _SHARE * min(end - start, _MOST_LENGTH))
            early = _BEFORE * np.maximum(start - times, 0) / slack
            late = np.maximum(times - end, 0) / slack
            np.maximum(best, np.exp(-np.minimum(early + late, 700.0)), out=best)
    best[best < _LEAST] = 0
    return best.astype(np.float32)


_BEST_OF_ARM = 400
#: What lies in the time asked about is found even if no word matches; last.
_TIME_ALONE = 0.02
#: So is what was said by the one named, where nothing else is asked for.
_SAID, _SAID_ALONE = 2.0, 0.02
UNKNOWN_SPEAKER = 0
#: How many times as long it takes to sort a row as to look whether it is marked.
_SORTING = 8


class Ground(NamedTuple):
    """What is searched."""

    lexical: LexicalIndex
    structure: Structure
    vectors: Vectors
    #: Of each row: the number of its speaker, 0 for nobody known.
    speakers: NDArray[np.unsignedinteger]
    #: Whether that was only read from its text.
    guessed: NDArray[np.bool_]
    times: NDArray[np.int64]
    #: Names by the number of the speaker.
    names: list[str]
    passing: Passing

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Which rows may be found."""
        return self.passing.allowed

    def looked(self, rows: Rows) -> Looked:
        """These rows and those beside them, which lend."""
        wanted = np.zeros(len(self.allowed) + 1, np.bool_)
        wanted[rows] = True
        for beside in self.structure.neighbours(rows):
            wanted[beside] = True  # Nobody's -1 marks the place after the last.
        rows = np.flatnonzero(wanted[:-1])
        return Looked(self.lexical, self.structure, self.vectors, rows, self.allowed)

    def whole(self) -> Looked:
        """All that may be found, and those beside them."""
        kept = self.passing.whole
        if kept is None:
            kept = self.passing.whole = self.looked(np.flatnonzero(self.allowed))
        return kept


class Scored(NamedTuple):
    """The rows looked at, and for each what went into its score, in the order it went in."""

    rows: Rows
    score: Floats
    bm25: Floats
    cosine: Floats
    lexical: Floats
    vector: Floats
    window: Floats
    asks: Floats
    borrowed: Floats
    session: Floats
    speaker: Floats
    spoken: Floats
    time: Floats
    timely: Floats
    #: For every row of the partition.
    all_bm25: Floats
    all_raw: Floats
    matches: list[Match]

    @classmethod
    def part_names(cls) -> tuple[str, ...]:
        return cls._fields[2:14]

    def parts(self) -> tuple[Floats, ...]:
        """The figures of each row looked at, as `part_names` names them."""
        found: tuple[Floats, ...] = self[2:14]
        return found


def scored(
    ground: Ground, question: Question, query: Floats | None, weights: Weights, limit: int
) -> Scored:
    """Score what may answer; `query` is the question's vector, None to do without.

    Of a large partition enough is looked at for `limit` hits.
    """
    structure = ground.structure
    # Vectors alone need no words; what would be matched then explains nothing.
    matches = [] if weights.alpha == 1 else _matches(ground, question)
    all_bm25 = ground.lexical.bm25(matches, weights.k1, weights.b)
    is_timed = bool(question.when) and weights.time > 0
    all_timely = timeliness(ground.times, question.when, weights.time_days) if is_timed else None
    all_spoken = _spoken(ground, question, weights)
    alone = [one for one in (all_timely, all_spoken) if one is not None]
    looked, cosine, lift = _looked_at(ground, query, all_bm25, matches, alone, weights, limit)
    mixture = looked.mixture(weights, with_vectors=query is not None)
    nothing = looked.zeros

    bm25 = looked.of(all_bm25)
    lexical = window = fits = nothing
    if matches:
        best = _best(all_bm25, ground.allowed, every=ground.passing.is_all)
        lexical = share_of_best(bm25, best)
        lexical *= mixture.lexical
        if weights.window:
            near = structure.window(
                len(all_bm25), matches, looked.beside, mixture.softened, weights
            )
            best = _best(near, looked.allowed, every=looked.all_allowed)
            window = share_of_best(near, best)
            window *= mixture.window
        if weights.session:
            sessions = structure.session_scores(ground.lexical, matches, looked.rows)
            fits = sessions
            fits *= mixture.session
    vector = nothing if query is None else mixture.vector * lift
    own = lexical + vector
    own += window
    # A place after the last, which nobody's -1 reads.
    all_raw = np.zeros(len(all_bm25) + 1, np.float32)
    if len(looked) == len(all_bm25):
        all_raw[:-1] = own
    else:
        all_raw[looked.rows] = own

    borrowed = structure.borrowed(all_raw, looked.beside, looked.asked_before, weights)
    borrowed *= mixture.shortness
    score = own * mixture.asks
    score += borrowed
    score += fits
    speaker = time = looked.ones
    spoken = timely = nothing
    if question.named:
        speaker = _speaker_factor(ground, question, weights)[looked.of(ground.speakers)]
        score *= speaker
    if all_spoken is not None:
        spoken = looked.of(all_spoken)
        score += spoken
    if all_timely is not None:
        timely = looked.of(all_timely)
        time = 1 + np.float32(weights.time) * timely
        # Where nothing but a time is asked for, the time decides, and the rest its order.
        timely = np.float32(weights.time + 1 if question.only_when else _TIME_ALONE) * timely
        score *= time
        score += timely
    if not looked.all_allowed:
        score *= looked.allowed
    return Scored(
        looked.rows, score, bm25, cosine, lexical, vector, window, mixture.asks, borrowed, fits,
        speaker, spoken, time, timely, all_bm25, all_raw, matches,
    )  # fmt: skip


def _matches(ground: Ground, question: Question) -> list[Match]:
    """Names count as words where nobody is known to have spoken, and where one may be a label."""
    matches = ground.lexical.match(question.terms)
    for match in ground.lexical.match(question.name_terms):
        spoke = ground.speakers[match.rows]
        counts = spoke == UNKNOWN_SPEAKER
        counts |= ground.guessed[match.rows] & among(spoke, _named(ground, question))
        if counts.any():
            matches.append(match._replace(rows=match.rows[counts], times=match.times[counts]))
    return matches


def _best(scores: Floats, allowed: NDArray[np.bool_], *, every: bool) -> float:
    if every:
        return float(scores.max(initial=0))
    return float(scores.max(initial=0, where=allowed))


def _looked_at(
    ground: Ground,
    query: Floats | None,
    words: Floats,
    matches: list[Match],
    alone: list[Floats],
    weights: Weights,
    limit: int,
) -> tuple[Looked, Floats, Floats]:
    """The rows to score, with their cosines (NaN for none) and these from 0 to 1.

    Of a small partition all that may be found, of a large one the best of each arm, and
    of what counts `alone`, without words; and those beside them, which lend.
    """
    beside: Rows | None = None
    if len(words) > (WHOLE_ROWS if query is None else ground.vectors.whole_rows):
        most = max(_BEST_OF_ARM, 2 * limit)
        beside = _top(words, _matching(matches, len(words)), ground.passing, most)
        for scores in alone:
            some = np.flatnonzero(scores > 0)
            beside = np.concatenate((beside, _top(scores, some, ground.passing, most)))
    if query is None:
        looked = ground.whole() if beside is None else ground.looked(beside)
        return looked, np.full(len(looked), np.nan, np.float32), looked.zeros

    filtered = None if ground.passing.is_all else ground.allowed
    similar = ground.vectors.nearest(query, filtered, weights.floor, 2 * limit, beside)
    all_cosine = similar.scores
    if len(similar.rows) < len(words):  # Otherwise they are of all rows, in their order.
        all_cosine = np.full(len(words), np.nan, np.float32)
        all_cosine[similar.rows] = similar.scores
    if beside is None:
        looked = ground.whole()
    else:
        looked = ground.looked(np.concatenate((beside, similar.rows)))
    # Of a large partition those beside lend their words only; looking up each would take longer.
    looked_up = looked.rows if beside is None else beside
    if len(similar.rows) < len(words):
        unseen = looked_up[np.isnan(all_cosine[looked_up])]
        if len(unseen):
            all_cosine[unseen] = ground.vectors.exact(query, unseen)
    cosine = looked.of(all_cosine)
    if not len(similar.rows):
        return looked, cosine, looked.zeros
    lift = lifted(cosine, similar.floor, similar.lowest, float(similar.scores.max()))
    if len(similar.rows) < len(words):
        lift[np.isnan(cosine)] = 0
    return looked, cosine, lift


def _matching(matches: list[Match], count: int) -> Rows:
    """The rows that hold any term, in order; `count` is of all rows."""
    if not matches:
        return np.zeros(0, np.int64)
    if len(matches) == 1:
        return matches[0].rows
    rows = np.concatenate([match.rows for match in matches])
    if len(rows) * _SORTING < count:
        return different(rows)
    is_matching = np.zeros(count, np.bool_)
    is_matching[rows] = True
    return np.flatnonzero(is_matching)


def _top(scores: Floats, rows: Rows, passing: Passing, most: int) -> Rows:
    """Those of the rows with the highest scores that may be found."""
    if not passing.is_all:
        rows = rows[passing.allowed[rows]]
    if len(rows) <= most:
        return rows
    # Of equals the newest, whatever the sort does: a later row breaks the tie.
    found = scores[rows]
    least = np.partition(found, -most)[-most]
    above, level = rows[found > least], rows[found == least]
    return np.concatenate((above, level[len(above) - most :]))


def _named(ground: Ground, question: Question) -> list[int]:
    """The numbers of the speakers whom the question means, the first first."""
    return [ground.names.index(name) for name in question.speakers]


def _spoken(ground: Ground, question: Question, weights: Weights) -> Floats | None:
    """What each row gains by who said it alone; None unless only that is asked for.

    Whoever asks what somebody said wants that first; who says but a name, last.
    """
    if not question.only_who or weights.other_speaker == 1:
        return None
    gain = np.float32(_SAID if question.name_terms else _SAID_ALONE)
    return among(ground.speakers, _named(ground, question)) * gain


def _speaker_factor(ground: Ground, question: Question, weights: Weights) -> Floats:
    """What is left to the rows of each speaker, by the speaker's number."""
    factor = np.ones(len(ground.names), np.float32)
    if not question.named:
        return factor
    implied = question.named[0].implied
    factor[:] = weights.second_speaker if implied else weights.other_speaker
    for place, number in enumerate(_named(ground, question)):
        factor[number] = 1 if place == 0 else weights.second_speaker
    # Nobody known is nobody else.
    factor[UNKNOWN_SPEAKER] = 1
    return factor

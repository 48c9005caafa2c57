"""One search through one partition: every arm, every boost, for the rows worth looking at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.embedder import Floats
from pagefile.recall.fusion import Weights, lifted, share_of_best
from pagefile.recall.lexical import LexicalIndex, Match, Rows
from pagefile.recall.question import Question
from pagefile.recall.structure import Structure
from pagefile.recall.timeliness import timeliness
from pagefile.recall.vectors import WHOLE_ROWS, Vectors

_BEST_OF_ARM = 400
#: What lies in the time asked about is found even if no word matches; last.
_TIME_ALONE = np.float32(0.02)
UNKNOWN_SPEAKER = 0


class Ground(NamedTuple):
    """What is searched."""

    lexical: LexicalIndex
    structure: Structure
    vectors: Vectors
    #: Of each row: the number of its speaker, 0 for nobody known; and its time.
    speakers: NDArray[np.int32]
    times: NDArray[np.int64]
    #: Names by the number of the speaker.
    names: list[str]
    #: Which rows may be found; those that may not still lend to their neighbours.
    allowed: NDArray[np.bool_]


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
    time: Floats
    timely: Floats
    #: For every row of the partition.
    all_bm25: Floats
    all_raw: Floats
    matches: list[Match]

    @classmethod
    def part_names(cls) -> tuple[str, ...]:
        return cls._fields[2:13]

    def parts(self) -> tuple[Floats, ...]:
        """The figures of each row looked at, as `part_names` names them."""
        found: tuple[Floats, ...] = self[2:13]
        return found


def scored(
    ground: Ground, question: Question, query: Floats | None, weights: Weights, limit: int
) -> Scored:
    """Score what may answer; `query` is the question's vector, None to do without.

    Of a large partition enough is looked at for `limit` hits.
    """
    # Vectors alone need no words; what would be matched then explains nothing.
    matches = [] if weights.alpha == 1 else _matches(ground, question)
    all_bm25 = ground.lexical.bm25(matches, weights.k1, weights.b)
    words = share_of_best(all_bm25, _best(all_bm25, ground.allowed))
    timely = _timeliness(ground, question, weights)
    rows, cosine, lift = _looked_at(ground, query, words, timely, weights, limit)
    allowed = ground.allowed[rows]
    share = _vector_share(ground, rows, query, weights)

    words = words[rows]
    near = np.zeros(len(rows), np.float32)
    if weights.window and matches:
        near = ground.structure.window(ground.lexical, matches, rows, weights)
        near = share_of_best(near, _best(near, allowed))
    around = np.float32(weights.window) * ground.structure.shortness(rows, weights)
    lexical = (1 - share) * (1 - around) * words
    window = (1 - share) * around * near
    vector = share * lift
    own = lexical + vector + window
    all_raw = np.zeros(len(all_bm25), np.float32)
    all_raw[rows] = own

    asks = np.where(ground.structure.asks[rows], np.float32(weights.asks), np.float32(1))
    borrowed = ground.structure.borrowed(all_raw, rows, weights)
    fits = np.zeros(len(rows), np.float32)
    if weights.session and weights.alpha < 1:
        sessions = ground.structure.session_scores(ground.lexical, matches, rows)
        fits = (1 - share) * np.float32(weights.session) * sessions
    speaker = _speaker_factor(ground, question, weights)[ground.speakers[rows]]
    time = 1 + np.float32(weights.time) * timely[rows]
    # Where nothing but a time is asked for, the time decides, and the rest its order.
    by_itself = np.float32(weights.time + 1) if question.only_when else _TIME_ALONE
    alone = by_itself * timely[rows] * np.float32(weights.time > 0)
    score = (own * asks + borrowed + fits) * speaker * time + alone
    score = np.where(allowed, score, np.float32(0))
    return Scored(
        rows, score, all_bm25[rows], cosine, lexical, vector, window, asks, borrowed, fits,
        speaker, time, alone, all_bm25, all_raw, matches,
    )  # fmt: skip


def _matches(ground: Ground, question: Question) -> list[Match]:
    """Names count as words only where nobody is known to have spoken."""
    matches = ground.lexical.match(question.terms)
    for match in ground.lexical.match(question.name_terms):
        unknown = ground.speakers[match.rows] == UNKNOWN_SPEAKER
        if unknown.any():
            matches.append(match._replace(rows=match.rows[unknown], times=match.times[unknown]))
    return matches


def _best(scores: Floats, allowed: NDArray[np.bool_]) -> float:
    return float(scores.max(initial=0, where=allowed))


def _timeliness(ground: Ground, question: Question, weights: Weights) -> Floats:
    if not question.when or not weights.time:
        return np.zeros(len(ground.times), np.float32)
    return timeliness(ground.times, question.when, weights.time_days)


def _looked_at(
    ground: Ground,
    query: Floats | None,
    words: Floats,
    timely: Floats,
    weights: Weights,
    limit: int,
) -> tuple[Rows, Floats, Floats]:
    """The rows to score, with their cosines (NaN for none) and these from 0 to 1.

    Of a small partition all that may be found, of a large one the best of each arm;
    and those beside them, which lend.
    """
    filtered = None if ground.allowed.all() else ground.allowed
    is_whole = len(words) <= (WHOLE_ROWS if query is None else ground.vectors.whole_rows)
    if is_whole:
        chosen: list[Rows] = [np.flatnonzero(ground.allowed)]
    else:
        most = max(_BEST_OF_ARM, 2 * limit)
        chosen = [_top(words, ground.allowed, most), _top(timely, ground.allowed, most)]
    if query is None:
        rows = _with_neighbours(ground, chosen)
        return rows, np.full(len(rows), np.nan, np.float32), np.zeros(len(rows), np.float32)

    beside = None if is_whole else np.concatenate(chosen)
    similar = ground.vectors.nearest(query, filtered, weights.floor, 2 * limit, beside)
    all_cosine = np.full(len(words), np.nan, np.float32)
    all_cosine[similar.rows] = similar.scores
    rows = _with_neighbours(ground, [*chosen, similar.rows])
    # Of a large partition those beside lend their words only; looking up each would take longer.
    looked_up = rows if beside is None else beside
    unseen = looked_up[np.isnan(all_cosine[looked_up])]
    if len(unseen):
        all_cosine[unseen] = ground.vectors.exact(query, unseen)
    cosine = all_cosine[rows]
    if not len(similar.rows):
        return rows, cosine, np.zeros(len(rows), np.float32)
    lift = lifted(cosine, similar.floor, similar.lowest, float(similar.scores.max()))
    return rows, cosine, np.where(np.isnan(cosine), np.float32(0), lift)


def _top(scores: Floats, allowed: NDArray[np.bool_], most: int) -> Rows:
    rows = np.flatnonzero((scores > 0) & allowed)
    if len(rows) <= most:
        return rows
    # Of equals the newest, whatever the sort does: a later row breaks the tie.
    found = scores[rows]
    least = np.partition(found, -most)[-most]
    above, level = rows[found > least], rows[found == least]
    return np.concatenate((above, level[len(above) - most :]))


def _with_neighbours(ground: Ground, chosen: Sequence[Rows]) -> Rows:
    rows = np.concatenate(chosen)
    wanted = np.zeros(len(ground.allowed) + 1, np.bool_)
    wanted[rows] = True
    for beside in ground.structure.neighbours(rows):
        wanted[beside] = True  # Nobody's -1 marks the place after the last.
    return np.flatnonzero(wanted[:-1])


def _vector_share(ground: Ground, rows: Rows, query: Floats | None, weights: Weights) -> Floats:
    """The vector arm's share in each row: a row without a vector is judged by its words.

    Except where vectors alone were asked for: then it is not found. A row without
    words has nothing to be judged by, and must not gain by having no vector either.
    """
    if query is None:
        return np.zeros(len(rows), np.float32)
    if weights.alpha == 1:
        return np.ones(len(rows), np.float32)
    shared = ground.vectors.having(rows) | (ground.lexical.lengths[rows] == 0)
    return np.where(shared, np.float32(weights.alpha), np.float32(0))


def _speaker_factor(ground: Ground, question: Question, weights: Weights) -> Floats:
    """What is left to the rows of each speaker, by the speaker's number."""
    factor = np.ones(len(ground.names), np.float32)
    if not question.named:
        return factor
    implied = question.named[0].implied
    factor[:] = weights.second_speaker if implied else weights.other_speaker
    for place, name in enumerate(question.speakers):
        factor[ground.names.index(name)] = 1 if place == 0 else weights.second_speaker
    # Nobody known is nobody else.
    factor[UNKNOWN_SPEAKER] = 1
    return factor

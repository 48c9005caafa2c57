"""The lexical arm of one partition: an inverted index in arrays, scored by BM25.

Documents are rows, counted from 0 in the order they came. What is frozen lies
sorted by term, four bytes for a row and one for how often, and nowhere else; what
came since lies in a short tail that a search looks through. Nothing is a Python object but the
vocabulary. Document frequencies and the mean length are those of the living
documents of this partition, and of nobody else's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.columns import Column, Rows, room
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.text.analysis import is_lone_sign

#: A tail this long is still looked through faster than it is sorted in.
_LEAST_TAIL = 16_384
#: Longer, it may be one in so many of what is frozen.
_TAIL_SHARE = 8
#: A tail that is looked through again and again is worth sorting in earlier: a term asked for
#: costs about as much as sorting in so many places more. Below the least, nothing is gained.
_PLACES_PER_LOOK = 256
_LEAST_SORTED = 1_024
_MOST_TIMES = 255
_NOBODY = -1


class Match(NamedTuple):
    """A term of the question, and the living rows that hold it."""

    term: str
    rows: Rows
    times: Floats
    #: How much the term tells: the rarer, the more.
    weight: float


class LexicalIndex:
    """The terms of each row, and the rows of each term."""

    def __init__(self) -> None:
        self._vocabulary: dict[str, int] = {}
        # The tail: its documents one after the other, as numbers of terms; where each ends.
        self._flow = Column(np.uint32)
        self._ends = Column(np.int64)
        self._lengths = Column(np.int32)
        self._alive = Column(np.bool_)
        self._dead = 0
        self._total_length = 0
        self._offsets = np.zeros(1, np.int64)
        self._rows = np.zeros(0, np.uint32)
        self._times = np.zeros(0, np.uint8)
        self._frozen_rows = 0
        #: How many terms were frozen, each as often as it came.
        self._frozen_terms = 0
        #: Terms asked for since the tail was sorted in.
        self._looks = 0

    def __len__(self) -> int:
        """The number of rows, living and dead."""
        return len(self._lengths)

    @property
    def living(self) -> int:
        return len(self) - self._dead

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many terms each row has; 0 for a dead one."""
        return self._lengths.values

    @property
    def mean_length(self) -> float:
        return max(1.0, self._total_length / max(1, self.living))

    @property
    def size_bytes(self) -> int:
        """Of the arrays; of the vocabulary an estimate."""
        columns = (self._flow, self._ends, self._lengths, self._alive)
        arrays = self._offsets.nbytes + self._rows.nbytes + self._times.nbytes
        return arrays + sum(c.size_bytes for c in columns) + 140 * len(self._vocabulary)

    def add(self, terms: Sequence[str]) -> None:
        """Give the next row to a document."""
        self.add_many((terms,))

    def add_many(self, documents: Iterable[Sequence[str]]) -> None:
        """Give the next rows to documents, in their order."""
        numbers: list[int] = []
        lengths: list[int] = []
        number_of = self._vocabulary
        for terms in documents:
            numbers.extend([number_of.setdefault(term, len(number_of)) for term in terms])
            lengths.append(len(terms))
        self._add_numbers(numbers, lengths)

    def _add_numbers(self, numbers: Sequence[int] | Rows, lengths: Sequence[int] | Rows) -> None:
        start = len(self._flow)
        self._flow.extend(numbers)
        self._ends.extend(start + np.cumsum(lengths, dtype=np.int64))
        self._lengths.extend(lengths)
        self._alive.extend(np.ones(len(lengths), np.bool_))
        self._total_length += len(numbers)
        if len(self._flow) > max(_LEAST_TAIL, self._frozen_terms // _TAIL_SHARE):
            self._freeze()

    def settle(self) -> None:
        """Sort the tail in, after many were added: who asks next finds nothing to look through."""
        if len(self._flow) > _LEAST_SORTED:
            self._freeze()

    def kill(self, row: int) -> None:
        """Take a row out of every count and score; its place stays until `compacted`."""
        if self._alive.values[row]:
            self._alive.values[row] = False
            self._dead += 1
            self._total_length -= int(self._lengths.values[row])
            self._lengths.values[row] = 0

    def compacted(self, rows: Rows) -> LexicalIndex:
        """An index of these living rows only, numbered anew in their order."""
        self._freeze()
        moved = np.full(len(self), _NOBODY, np.int64)
        moved[rows] = np.arange(len(rows))
        held = moved[self._rows]
        kept = held != _NOBODY
        # How many of the kept stand before each term's first.
        before = np.concatenate(([0], np.cumsum(kept)))[self._offsets]
        used = np.flatnonzero(np.diff(before))
        names = list(self._vocabulary)
        fresh = LexicalIndex()
        fresh._vocabulary = {names[old]: new for new, old in enumerate(used)}
        fresh._offsets = np.append(before[used], before[-1])
        fresh._rows = held[kept].astype(np.uint32)
        fresh._times = self._times[kept]
        fresh._lengths.extend(self._lengths.values[rows])
        fresh._alive.extend(np.ones(len(rows), np.bool_))
        fresh._frozen_rows = len(rows)
        fresh._frozen_terms = fresh._total_length = int(fresh.lengths.sum(dtype=np.int64))
        return fresh

    def match(self, terms: Iterable[str]) -> list[Match]:
        """The rows of each different term that some living row holds, in the order asked."""
        found = []
        different = dict.fromkeys(terms)
        self._looks += len(different)
        if self._looks * _PLACES_PER_LOOK > self._frozen_terms + len(self._flow):
            self.settle()
            self._looks = 0
        signs: dict[str, list[int]] = {term: [] for term in different if is_lone_sign(term)}
        if signs:
            self._look_for(signs)
        for term in different:
            number = self._vocabulary.get(term)
            if term in signs:
                rows, times = self._holding(signs[term])
            elif number is None:
                continue
            else:
                rows, times = self._postings(number)
            if len(rows):
                rarity = (self.living - len(rows) + 0.5) / (len(rows) + 0.5)
                found.append(Match(term, rows, times, math.log(1 + rarity)))
        return found

    def _look_for(self, signs: dict[str, list[int]]) -> None:
        """Note with each sign the terms that hold it: one alone stands in no pair of its own."""
        for term, number in self._vocabulary.items():
            if not term.isascii():
                for sign in signs.keys() & set(term):
                    signs[sign].append(number)

    def _holding(self, numbers: list[int]) -> tuple[Rows, Floats]:
        """The rows of these terms, once each."""
        held = [self._postings(number)[0] for number in numbers]
        rows = different(np.concatenate(held)) if held else np.zeros(0, np.int64)
        return rows, np.ones(len(rows), np.float32)

    def bm25(self, matches: Iterable[Match], k1: float, b: float) -> Floats:
        """A score for every row, 0 where nothing matches."""
        scores = np.zeros(len(self), np.float32)
        # As an array of one, so that the products stay float32.
        slope = np.float32(k1 * b / self.mean_length)
        for match in matches:
            softened = np.float32(k1 * (1 - b)) + slope * self.lengths[match.rows]
            gained = match.times * np.float32(k1 + 1) / (match.times + softened)
            scores[match.rows] += np.float32(match.weight) * gained
        return scores

    def _postings(self, number: int) -> tuple[Rows, Floats]:
        rows, times = np.zeros(0, np.int64), np.zeros(0, np.float32)
        if number < len(self._offsets) - 1:
            start, end = self._offsets[number], self._offsets[number + 1]
            rows = self._rows[start:end].astype(np.int64)
            times = self._times[start:end].astype(np.float32)
        hits: Rows = np.flatnonzero(self._flow.values == number)
        if len(hits):
            late, often = self._late(hits)
            if len(rows):
                late, often = np.concatenate((rows, late)), np.concatenate((times, often))
            rows, times = late, often
        if self._dead:
            alive = self._alive.values[rows]
            rows, times = rows[alive], times[alive]
        return rows, times

    def _late(self, hits: Rows) -> tuple[Rows, Floats]:
        """The rows of places in the tail, which are in order, and how often each comes."""
        where = np.searchsorted(self._ends.values, hits, "right")
        where += self._frozen_rows
        # As `numpy.unique` does, which would sort what is in order.
        ends = np.flatnonzero(where[1:] != where[:-1])
        if len(ends) + 1 == len(where):
            return where, np.ones(len(where), np.float32)
        ends = np.append(ends, len(where) - 1)
        often = ends + 1
        often[1:] -= ends[:-1] + 1
        return where[ends], np.minimum(often, _MOST_TIMES).astype(np.float32)

    def _freeze(self) -> None:
        """Sort the tail into what is frozen; both are in order, so it is one merge."""
        tail = self._flow.values.astype(np.int64)
        lengths = np.diff(self._ends.values, prepend=0)
        rows = np.repeat(np.arange(self._frozen_rows, len(self), dtype=np.int64), lengths)
        both, often = np.unique(tail << 32 | rows, return_counts=True)
        terms = both >> 32
        width = len(self._vocabulary)
        new = np.bincount(terms, minlength=width)
        old = np.zeros(width, np.int64)
        old[: len(self._offsets) - 1] = np.diff(self._offsets)
        offsets = np.zeros(width + 1, np.int64)
        np.cumsum(old + new, out=offsets[1:])
        # Of one term first what was frozen, then what is new: rows stay in order.
        is_new = np.zeros(int(offsets[-1]), np.bool_)
        is_new[_places(offsets[:-1] + old, new)] = True
        self._rows = _merged(self._rows, both & 0xFFFFFFFF, is_new)
        self._times = _merged(self._times, np.minimum(often, _MOST_TIMES), is_new)
        self._offsets = offsets
        self._frozen_rows = len(self)
        self._frozen_terms += len(self._flow)
        self._flow.clear()
        self._ends.clear()
        self._looks = 0


def different(rows: Rows) -> Rows:
    """Each once and in order; `numpy.unique` takes several times as long over few."""
    ordered = np.sort(rows)
    is_first = np.empty(len(ordered), np.bool_)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def _places(begins: Rows, counts: Rows) -> Rows:
    """begins[0], begins[0] + 1, … counts[0] times, then the same of the next."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places: Rows = np.arange(total) + np.repeat(begins - (ends - counts), counts)
    return places


def _merged(old: NDArray[Any], new: NDArray[Any], is_new: NDArray[np.bool_]) -> NDArray[Any]:
    merged = room((len(is_new),), old.dtype)
    merged[is_new] = new
    merged[~is_new] = old
    return merged

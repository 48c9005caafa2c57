"""The index of one partition: everything of one user that can be found, in memory.

It is a fold of entries: a later one with the same key replaces the earlier, one
that is gone removes it. Nothing here knows the store, or any other partition.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.columns import Column, Keys, Rows
from pagefile.recall.hit import Arm, Boost, Hit, Weights
from pagefile.recall.neighbours import Labels, Structure, among
from pagefile.recall.records import IndexEntry
from pagefile.recall.scorer import MOST_KEPT, Ground, Passing, Scored, filter_name, scored
from pagefile.recall.text.inverted_index import LexicalIndex
from pagefile.recall.text.question import Question, Speakers, question_of
from pagefile.recall.vectors.vector_index import (
    AsksVector,
    VectorIndex,
    Vectors,
    asked_with,
    unpacked_rows,
)
from pagefile.store.codec.sort_key import moment

# Why rows were found, in words and figures.


#: A difference that nobody would want explained.
_NOTHING = 1e-6


class Explanation:
    """The arms, the matched terms and the boosts of some rows, whose figures give their scores."""

    def __init__(
        self, places: Sequence[int], result: Scored, ground: Ground, question: Question
    ) -> None:
        self._result, self._ground, self._question = result, ground, question
        self._rows: Rows = result.rows[places]
        # Each row, then its neighbours; looked up in one go for all.
        self._beside = np.stack((self._rows, *ground.structure.neighbours(self._rows)))
        self._holding = [
            (match.term, _held(match.rows, self._beside).tolist()) for match in result.matches
        ]
        self._beside_rows = self._beside.T.tolist()
        figures = [values[places].tolist() for values in result.parts()]
        names = result.part_names()
        self._parts = [dict(zip(names, row, strict=True)) for row in zip(*figures, strict=True)]

    def matched(self, which: int) -> tuple[str, ...]:
        """The terms that the row itself holds."""
        return tuple(term for term, held in self._holding if held[0][which])

    def arms(self, which: int) -> Iterator[Arm]:
        """How each arm that found the row saw it."""
        part = self._parts[which]
        result, allowed = self._result, self._ground.allowed
        if part["lexical"] > 0:
            better = np.count_nonzero((result.all_bm25 > part["bm25"]) & allowed)
            yield Arm("lexical", int(better) + 1, part["bm25"], part["lexical"])
        if part["vector"] > 0:
            # One without a cosine has NaN there, which is not greater.
            better = np.count_nonzero((result.cosine > part["cosine"]) & allowed[result.rows])
            where = self._ground.vectors.where(int(self._rows[which]))
            yield Arm("vector", int(better) + 1, part["cosine"], part["vector"], where)

    def boosts(self, which: int, keys: Keys) -> Iterator[Boost]:
        """What else went into the score, in the order in which it did."""
        part = self._parts[which]
        if part["window"] > 0:
            near = ", ".join(t for t, held in self._holding if any(h[which] for h in held))
            reason = f"read with the turns beside it, it holds {near}"
            yield Boost("window", reason, adds=part["window"])
        if part["asks"] != 1:
            yield Boost("asks", "it asks more than it tells", times=part["asks"])
        if part["borrowed"] > 0:
            yield Boost("neighbours", self._lender(which, keys), adds=part["borrowed"])
        if part["session"] > 0:
            named = self._ground.structure.session_of(int(self._rows[which]))
            yield Boost("session", f"session {named} as a whole fits", adds=part["session"])
        if self._question.named:
            yield self._speaker(part["speaker"], part["spoken"], int(self._rows[which]))
        if part["time"] - 1 > _NOTHING:
            said = ", ".join(words.words for words in self._question.when)
            when = moment(int(self._ground.times[self._rows[which]])).date()
            reason = f"it is of {when}, and “{said}” is asked about"
            yield Boost("time", reason, adds=part["timely"], times=part["time"])

    def _lender(self, which: int, keys: Keys) -> str:
        beside = [row for row in self._beside_rows[which][1:] if row >= 0]
        best = max(beside, key=lambda row: float(self._result.all_raw[row]))
        # The last part of a document's name is the id that people know it by.
        return f"turns beside it match, {keys[best].rsplit('/', 1)[-1]} best"

    def _speaker(self, times: float, adds: float, row: int) -> Boost:
        who, asked = self._ground.names[self._ground.speakers[row]], self._question.named[0].word
        if not who:
            reason = f"“{asked}” is asked about, and who said it is unknown"
        elif who in self._question.speakers:
            reason = f"said by {who}, whom the question names"
        else:
            reason = f"“{asked}” is asked about, and {who} said it"
        return Boost("speaker", reason, adds=adds, times=times)


def _held(rows: Rows, asked: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which of the asked rows are among the rows, which are in order."""
    at = np.searchsorted(rows, asked)
    return np.asarray(rows[np.minimum(at, len(rows) - 1)] == asked)


#: From the first moment to before the last, in microseconds; None is no bound.
TimeRange = tuple[int | None, int | None]

_DEFAULT = Weights()
#: So many are folded at once: what is worked on stays small beside what is kept.
_CHUNK = 256
#: Removed rows are swept out when there are so many, and one in three.
_LEAST_DEAD = 1_024


class PartitionIndex:
    """What one user can find.

    Adding, removing and searching may come from several threads; a search sees
    every entry whole. The order of hits is total: by score, then the newer, then
    by key. The same entries in the same order give the same hits, whether they
    were removed and added one by one or all at once.
    """

    def __init__(self, *, vectors: Vectors | None = None) -> None:
        self._lock = threading.RLock()
        self._keys = Keys()
        self._alive = Column(np.bool_)
        self._times = Column(np.int64)
        self._labels = Labels()
        #: Whether the row's speaker was only read from its text.
        self._guessed = Column(np.bool_)
        self._known_speakers: Speakers | None = None
        #: The oldest and the newest time; None when something has changed since.
        self._ends: tuple[int, int] | None = None
        self._kept_passing: dict[tuple[Any, ...], Passing] = {}
        self._lexical = LexicalIndex()
        self._structure = Structure(self._times)
        self._vectors: Vectors = VectorIndex() if vectors is None else vectors

    def __len__(self) -> int:
        return self._keys.living

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 while there is none."""
        return self._vectors.dimensions

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        with self._lock:
            columns = (self._alive, self._times, self._guessed, *self._labels.columns)
            arrays = sum(column.size_bytes for column in columns)
            held = (self._keys, self._lexical, self._structure, self._vectors)
            return arrays + sum(part.size_bytes for part in held)

    def counts(self) -> dict[str, int]:
        """How many of each kind there are."""
        with self._lock:
            kinds = self._labels.kind.values[self._alive.values]
            numbers, counts = np.unique(kinds, return_counts=True)
            names = self._labels.kind.names
            return {names[n]: int(count) for n, count in zip(numbers, counts, strict=True)}

    def recent_sessions(self, kind: str, limit: int) -> list[str]:
        """The sessions of a kind whose newest entries are the newest, newest first.

        "" is among them where some were told in none.
        """
        with self._lock:
            wanted = self._alive.values & self._labels.kind.is_one_of((kind,))
            rows = np.flatnonzero(wanted)
            newest = rows[np.argsort(-self._times.values[rows], kind="stable")]
            _, firsts = np.unique(self._structure.session_numbers[newest], return_index=True)
            return [self._structure.session_of(int(row)) for row in newest[np.sort(firsts)[:limit]]]

    def add(self, entry: IndexEntry) -> None:
        """Fold in one entry.

        Raises:
            Invalid: its vector is of another length than those before it.
        """
        self.add_many((entry,))

    def add_many(self, entries: Iterable[IndexEntry], ids: Sequence[bytes] | None = None) -> None:
        """Fold in entries in their order; much faster than one by one.

        A chunk with a bad vector is refused whole, and what came before it stays.
        `ids` are what an arm calls their vectors.
        """
        with self._lock:
            rest = iter(entries)
            names = None if ids is None else iter(ids)
            while chunk := list(itertools.islice(rest, _CHUNK)):
                own = None if names is None else list(itertools.islice(names, len(chunk)))
                self._add_chunk(chunk, own)
            self._sweep()

    def settle(self) -> None:
        """Bring what was added in order; worth it after many, before somebody asks."""
        with self._lock:
            self._lexical.settle()

    @contextmanager
    def vectors(self) -> Iterator[Vectors]:
        """The vectors, while nobody else adds, removes or searches."""
        with self._lock:
            yield self._vectors

    def remove(self, key: str) -> bool:
        """Take a key out; False when it was not here."""
        with self._lock:
            there = self._kill([key])
            self._sweep()
            return there

    def question(self, query: str, *, now_us: int | None = None, also: str = "") -> Question:
        """The question as a search reads it. `now_us` is by default the newest entry's time."""
        with self._lock:
            oldest, newest = self._first_and_last()
            speakers = self._speakers()
        now_us = newest if now_us is None else now_us
        return question_of(query, speakers, now_us, oldest, newest, also)

    def search(
        self,
        query: str,
        *,
        vector: AsksVector | None = None,
        limit: int = 10,
        kinds: Sequence[str] | None = None,
        session: str | None = None,
        exclude_session: str | None = None,
        statuses: Sequence[str] | None = None,
        scope: str | None = None,
        time_range: TimeRange | None = None,
        now_us: int | None = None,
        also: str = "",
        weights: Weights = _DEFAULT,
        explain: bool = True,
    ) -> list[Hit]:
        """The best `limit` of what passes every filter, best first.

        `vector` asks the vector arm; without it, or while nothing has a vector, the
        search is lexical. What matches in no way is not found, so there may be fewer.
        `also` are further words to look for, such as other names of those it is about.
        Without `explain`, hits have neither arms nor boosts, and come faster.
        """
        if limit <= 0 or not len(self):
            return []
        question = self.question(query, now_us=now_us, also=also)
        # Outside of the lock: a model may take its time.
        asked = asked_with(question, vector, weights, self._vectors)
        if asked is None and weights.alpha == 1:
            return []
        with self._lock:
            passing = self._passing(
                kind=kinds,
                status=statuses,
                scope=None if scope is None else (scope,),
                session=session,
                exclude_session=exclude_session,
                time_range=time_range,
            )
            if not passing.count:
                return []
            ground = self._ground(passing)
            result = scored(ground, question, asked, weights, limit)
            places = self._best(result, limit)
            why = Explanation(places, result, ground, question) if explain else None
            return self._hits(places, result, why)

    def _first_and_last(self) -> tuple[int, int]:
        if self._ends is None:
            times = self._times.values
            if len(self) < len(times):
                times = times[self._alive.values]
            self._ends = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        return self._ends

    def _speakers(self) -> Speakers:
        """Those of whom something is here; a name that left with its rows is none."""
        if self._known_speakers is None:
            alive, guessed = self._alive.values, self._guessed.values
            said, names = self._labels.speaker.values, self._labels.speaker.names
            numbers = np.flatnonzero(np.bincount(said[alive]))
            given = set(np.flatnonzero(np.bincount(said[alive & ~guessed])).tolist())
            self._known_speakers = Speakers(
                [names[number] for number in numbers],
                guessed=[names[number] for number in numbers.tolist() if number not in given],
            )
        return self._known_speakers

    def _passing(self, **filters: Any) -> Passing:
        """What passes every filter; kept for the next question, until something changes."""
        if filters["time_range"] is not None:  # Which is seldom the same twice.
            return Passing(self._allowed(**filters))
        name = filter_name(filters)
        kept = self._kept_passing.get(name)
        if kept is None:
            kept = Passing(self._allowed(**filters))
            if len(self._kept_passing) >= MOST_KEPT:
                self._kept_passing.clear()
            self._kept_passing[name] = kept
        return kept

    def _allowed(
        self,
        *,
        session: str | None,
        exclude_session: str | None,
        time_range: TimeRange | None,
        **names: Sequence[str] | None,
    ) -> NDArray[np.bool_]:
        allowed = self._alive.values.copy()
        for column, wanted in names.items():
            if wanted is not None:
                allowed &= self._labels[column].is_one_of(wanted)
        if session is not None:
            allowed &= among(self._structure.session_numbers, self._sessions(session))
        if exclude_session is not None:
            allowed &= ~among(self._structure.session_numbers, self._sessions(exclude_session))
        if time_range is not None:
            first, last = time_range
            if first is not None:
                allowed &= self._times.values >= first
            if last is not None:
                allowed &= self._times.values < last
        return allowed

    def _changed(self) -> None:
        """Let go of what was kept for questions."""
        self._known_speakers = None
        self._ends = None
        self._kept_passing.clear()

    def _sessions(self, name: str) -> list[int]:
        return self._structure.sessions_named(name, self._labels.kind.names)

    def _ground(self, passing: Passing) -> Ground:
        return Ground(
            self._lexical,
            self._structure,
            self._vectors,
            self._labels.speaker.values,
            self._guessed.values,
            self._times.values,
            self._labels.speaker.names,
            passing,
        )

    def _best(self, result: Scored, limit: int) -> list[int]:
        """Places in `result` of the best, in the order that is total."""
        score = result.score
        least = 0.0
        if len(score) > limit:
            least = float(np.partition(score, -limit)[-limit])
        places = np.flatnonzero(score >= least if least > 0 else score > 0)
        found = score[places]
        order = np.argsort(-found)
        ranked = found[order]
        if (ranked[1:] == ranked[:-1]).any():
            # Only between equals do time and key decide.
            rows = result.rows[places]
            times, keys = self._times.values[rows].tolist(), self._keys.of(rows.tolist())
            told = zip((-found).tolist(), times, keys, places.tolist(), strict=True)
            return [one[3] for one in sorted(told, key=_total_order)[:limit]]
        best: list[int] = places[order[:limit]].tolist()
        return best

    def _hits(self, places: list[int], result: Scored, why: Explanation | None) -> list[Hit]:
        rows = result.rows[places]
        scores = result.score[places].tolist()
        times = self._times.values[rows].tolist()
        named = self._labels.of(rows)
        numbers: list[int] = rows.tolist()
        keys = self._keys.of(numbers)
        if why is None:
            return [
                Hit(
                    key=key,
                    kind=kind,
                    score=score,
                    time_us=time_us,
                    speaker=speaker,
                    status=status,
                    scope=scope,
                )
                for key, score, time_us, (kind, speaker, status, scope) in zip(
                    keys, scores, times, named, strict=True
                )
            ]
        return [
            Hit(
                key=keys[which],
                kind=kind,
                score=scores[which],
                time_us=times[which],
                speaker=speaker,
                session=self._structure.session_of(numbers[which]),
                status=status,
                scope=scope,
                arms=tuple(why.arms(which)),
                matched=why.matched(which),
                boosts=tuple(why.boosts(which, self._keys)),
            )
            for which, (kind, speaker, status, scope) in enumerate(named)
        ]

    def _add_chunk(self, entries: list[IndexEntry], ids: list[bytes] | None) -> None:
        last: dict[str, IndexEntry] = {}
        for entry in entries:
            last.pop(entry.key, None)  # So that it stands where it was said last.
            last[entry.key] = entry
        new = [entry for entry in last.values() if not entry.gone]
        vectors = unpacked_rows([e.vector for e in new if e.vector], self._vectors)
        self._kill(list(last))
        self._structure.add_many((e.kind, e.session, e.heard, e.asks, e.time_us) for e in new)
        self._keys.extend([entry.key for entry in new])
        self._alive.extend(np.ones(len(new), np.bool_))
        self._times.extend(np.array([entry.time_us for entry in new], np.int64))
        self._labels.extend(new)
        self._guessed.extend([entry.guessed for entry in new])
        self._changed()
        self._lexical.add_many([entry.text.split() for entry in new])
        if ids is not None:
            named = {entry.key: one for entry, one in zip(entries, ids, strict=True)}
            ids = [named[entry.key] for entry in new]
        self._vectors.add_many(vectors, np.array([bool(e.vector) for e in new], np.bool_), ids)

    def _kill(self, keys: Sequence[str]) -> bool:
        """Take keys out; False when none was here."""
        rows = self._keys.take_out(keys)
        for row in rows:
            self._alive.values[row] = False
            for arm in (self._lexical, self._structure, self._vectors):
                arm.kill(row)
        if rows:
            self._changed()
        return bool(rows)

    def _sweep(self) -> None:
        """Number the living rows anew when too many are dead."""
        dead = len(self._keys) - self._keys.living
        if dead < _LEAST_DEAD or 3 * dead < len(self._keys):
            return
        rows: Rows = np.flatnonzero(self._alive.values)
        self._changed()
        self._lexical = self._lexical.compacted(rows)
        self._structure = self._structure.compacted(rows)
        self._vectors = self._vectors.compacted(rows)
        for column in (self._alive, self._times, self._guessed, *self._labels.columns):
            column.keep(rows)
        self._keys = self._keys.compacted(rows)


def _total_order(found: tuple[float, int, str, int]) -> tuple[float, int, str]:
    """By score, negated, then the newer, then by key."""
    return found[0], -found[1], found[2]

"""The index of one partition: everything of one user that can be found, in memory.

It is a fold of entries: a later one with the same key replaces the earlier, one
that is gone removes it. Nothing here knows the store, or any other partition.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from pagefile.errors import Invalid
from pagefile.recall.column import Column
from pagefile.recall.embedder import Embedder, Floats, embed_query, unit_rows, unit_vector
from pagefile.recall.entry import IndexEntry
from pagefile.recall.explanation import Explanation
from pagefile.recall.fusion import Weights
from pagefile.recall.hit import Hit
from pagefile.recall.lexical import LexicalIndex, Rows
from pagefile.recall.question import Question, Speakers, question_of
from pagefile.recall.scoring import Ground, Scored, scored
from pagefile.recall.structure import Structure
from pagefile.recall.vectors import VectorIndex, Vectors

#: Whoever gives the question's vector: an embedder, a function of the text, or the vector.
AsksVector = Embedder | Callable[[str], Sequence[float] | Floats] | Floats
#: From the first moment to before the last, in microseconds; None is no bound.
TimeRange = tuple[int | None, int | None]

_DEFAULT = Weights()
_CHUNK = 4_096
#: Removed rows are swept out when there are so many, and one in three.
_LEAST_DEAD = 1_024


class _Names:
    """Names as small numbers; 0 is the empty one."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}
        self.names = [""]

    def number(self, name: str) -> int:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.names)
            self.names.append(name)
        return number


class PartitionIndex:
    """What one user can find.

    Adding, removing and searching may come from several threads; a search sees
    every entry whole. The order of hits is total: by score, then the newer, then
    by key. The same entries in the same order give the same hits, whether they
    were removed and added one by one or all at once.
    """

    def __init__(self, *, vectors: Vectors | None = None) -> None:
        self._lock = threading.RLock()
        self._keys: list[str] = []
        self._row_of: dict[str, int] = {}
        self._alive = Column(np.bool_)
        self._times = Column(np.int64)
        self._columns = {name: Column(np.int32) for name in ("kind", "speaker", "status", "scope")}
        self._named = {name: _Names() for name in self._columns}
        self._known_speakers: Speakers | None = None
        self._lexical = LexicalIndex()
        self._structure = Structure()
        self._vectors: Vectors = VectorIndex() if vectors is None else vectors

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 while there is none."""
        return self._vectors.dimensions

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        with self._lock:
            columns = (self._alive, self._times, *self._columns.values())
            arrays = sum(column.size_bytes for column in columns)
            arms = (self._lexical, self._structure, self._vectors)
            # A key is a string of its own in a list and in a dictionary.
            return arrays + sum(arm.size_bytes for arm in arms) + 200 * len(self._keys)

    def counts(self) -> dict[str, int]:
        """How many of each kind there are."""
        with self._lock:
            kinds = self._columns["kind"].values[self._alive.values]
            numbers, counts = np.unique(kinds, return_counts=True)
            names = self._named["kind"].names
            return {names[n]: int(count) for n, count in zip(numbers, counts, strict=True)}

    def recent_sessions(self, kind: str, limit: int) -> list[str]:
        """The sessions of a kind whose newest entries are the newest, newest first."""
        with self._lock:
            number = self._named["kind"].numbers.get(kind, -1)
            wanted = self._alive.values & (self._columns["kind"].values == number)
            rows = np.flatnonzero(wanted & (self._structure.session_numbers >= 0))
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

    @contextmanager
    def vectors(self) -> Iterator[Vectors]:
        """The vectors, while nobody else adds, removes or searches."""
        with self._lock:
            yield self._vectors

    def remove(self, key: str) -> bool:
        """Take a key out; False when it was not here."""
        with self._lock:
            there = self._kill(key)
            self._sweep()
            return there

    def question(self, query: str, *, now_us: int | None = None) -> Question:
        """The question as a search reads it. `now_us` is by default the newest entry's time."""
        with self._lock:
            living = self._alive.values
            times = self._times.values
            oldest = int(times.min(initial=2**62, where=living)) if len(self) else 0
            newest = int(times.max(initial=-(2**62), where=living)) if len(self) else 0
            speakers = self._speakers()
        return question_of(query, speakers, newest if now_us is None else now_us, oldest)

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
        weights: Weights = _DEFAULT,
        explain: bool = True,
    ) -> list[Hit]:
        """The best `limit` of what passes every filter, best first.

        `vector` asks the vector arm; without it, or while nothing has a vector, the
        search is lexical. What matches in no way is not found, so there may be fewer.
        Without `explain`, hits have neither arms nor boosts, and come faster.
        """
        if limit <= 0 or not len(self):
            return []
        question = self.question(query, now_us=now_us)
        # Outside of the lock: a model may take its time.
        asked = self._asked(question, vector, weights)
        if asked is None and weights.alpha == 1:
            return []
        with self._lock:
            allowed = self._allowed(kinds, session, statuses, scope, time_range)
            if exclude_session is not None:
                allowed &= ~_among(self._structure.session_numbers, self._sessions(exclude_session))
            if not allowed.any():
                return []
            ground = self._ground(allowed)
            result = scored(ground, question, asked, weights, limit)
            places = self._best(result, limit)
            why = Explanation(places, result, ground, question) if explain else None
            return [self._hit(place, which, result, why) for which, place in enumerate(places)]

    def _speakers(self) -> Speakers:
        """Those of whom something is here; a name that left with its rows is none."""
        if self._known_speakers is None:
            said = self._columns["speaker"].values[self._alive.values]
            numbers = np.flatnonzero(np.bincount(said))
            names = self._named["speaker"].names
            self._known_speakers = Speakers(names[number] for number in numbers)
        return self._known_speakers

    def _asked(
        self, question: Question, vector: AsksVector | None, weights: Weights
    ) -> Floats | None:
        """The vector to ask with; None where the vector arm has no say."""
        if vector is None and weights.alpha == 1:
            raise Invalid("alpha", "1 asks for vectors alone", "give an embedder, or a lower alpha")
        if vector is None or not weights.alpha or not len(self._vectors):
            return None
        if isinstance(vector, np.ndarray):
            return unit_vector(vector, self.dimensions)
        if not question.text.strip():
            return None
        told = weights.first_person if question.first_person else 0
        forms = ((question.text, 1 - told), (question.first_person, told))
        rows = [np.float32(share) * self._embedded(vector, form) for form, share in forms if share]
        mixed: Floats = np.sum(rows, axis=0)
        # Two opposite vectors would leave nothing to ask with.
        return unit_vector(mixed if mixed.any() else rows[0])

    def _embedded(
        self, vector: Embedder | Callable[[str], Sequence[float] | Floats], text: str
    ) -> Floats:
        if callable(vector):
            return unit_vector(vector(text), self.dimensions)
        self._vectors.require_dimensions(vector.dimensions)
        return embed_query(vector, text)

    def _allowed(
        self,
        kinds: Sequence[str] | None,
        session: str | None,
        statuses: Sequence[str] | None,
        scope: str | None,
        time_range: TimeRange | None,
    ) -> NDArray[np.bool_]:
        allowed = self._alive.values.copy()
        scopes = None if scope is None else (scope,)
        for column, wanted in (("kind", kinds), ("status", statuses), ("scope", scopes)):
            if wanted is not None:
                known = self._named[column].numbers
                numbers = [known[name] for name in wanted if name in known]
                allowed &= _among(self._columns[column].values, numbers)
        if session is not None:
            allowed &= _among(self._structure.session_numbers, self._sessions(session))
        if time_range is not None:
            first, last = time_range
            if first is not None:
                allowed &= self._times.values >= first
            if last is not None:
                allowed &= self._times.values < last
        return allowed

    def _sessions(self, name: str) -> list[int]:
        return self._structure.sessions_named(name, self._named["kind"].names)

    def _ground(self, allowed: NDArray[np.bool_]) -> Ground:
        return Ground(
            self._lexical,
            self._structure,
            self._vectors,
            self._columns["speaker"].values,
            self._times.values,
            self._named["speaker"].names,
            allowed,
        )

    def _best(self, result: Scored, limit: int) -> list[int]:
        """Places in `result` of the best, in the order that is total."""
        places = np.flatnonzero(result.score > 0)
        if len(places) > limit:
            least = np.partition(result.score[places], -limit)[-limit]
            places = places[result.score[places] >= least]
        times = self._times.values

        def order(place: int) -> tuple[float, int, str]:
            row = int(result.rows[place])
            return -float(result.score[place]), -int(times[row]), self._keys[row]

        return sorted(places.tolist(), key=order)[:limit]

    def _hit(self, place: int, which: int, result: Scored, why: Explanation | None) -> Hit:
        row = int(result.rows[place])
        told = {n: self._named[n].names[c.values[row]] for n, c in self._columns.items()}
        if why is None:
            return Hit(
                key=self._keys[row],
                score=float(result.score[place]),
                time_us=int(self._times.values[row]),
                **told,
            )
        return Hit(
            key=self._keys[row],
            score=float(result.score[place]),
            time_us=int(self._times.values[row]),
            session=self._structure.session_of(row),
            arms=tuple(why.arms(which)),
            matched=why.matched(which),
            boosts=tuple(why.boosts(which, self._keys)),
            **told,
        )

    def _add_chunk(self, entries: list[IndexEntry], ids: list[bytes] | None) -> None:
        last: dict[str, IndexEntry] = {}
        for entry in entries:
            last.pop(entry.key, None)  # So that it stands where it was said last.
            last[entry.key] = entry
        new = [entry for entry in last.values() if not entry.gone]
        vectors = _unpacked_rows([e.vector for e in new if e.vector], self._vectors)
        for key in last:
            self._kill(key)
        for row, entry in enumerate(new, len(self._keys)):
            self._row_of[entry.key] = row
        self._structure.add_many((e.kind, e.session, e.heard, e.asks) for e in new)
        self._keys.extend(entry.key for entry in new)
        self._alive.extend(np.ones(len(new), np.bool_))
        self._times.extend(np.array([entry.time_us for entry in new], np.int64))
        for name, column in self._columns.items():
            number = self._named[name].number
            column.extend([number(getattr(entry, name)) for entry in new])
        self._known_speakers = None
        self._lexical.add_many([entry.text.split() for entry in new])
        if ids is not None:
            named = {entry.key: one for entry, one in zip(entries, ids, strict=True)}
            ids = [named[entry.key] for entry in new]
        self._vectors.add_many(vectors, np.array([bool(e.vector) for e in new], np.bool_), ids)

    def _kill(self, key: str) -> bool:
        row = self._row_of.pop(key, None)
        if row is None:
            return False
        self._alive.values[row] = False
        self._known_speakers = None
        for arm in (self._lexical, self._structure, self._vectors):
            arm.kill(row)
        return True

    def _sweep(self) -> None:
        """Number the living rows anew when too many are dead."""
        dead = len(self._keys) - len(self._row_of)
        if dead < _LEAST_DEAD or 3 * dead < len(self._keys):
            return
        rows: Rows = np.flatnonzero(self._alive.values)
        self._lexical = self._lexical.compacted(rows)
        self._structure = self._structure.compacted(rows)
        self._vectors = self._vectors.compacted(rows)
        for column in (self._alive, self._times, *self._columns.values()):
            column.keep(rows)
        self._keys = [self._keys[row] for row in rows]
        self._row_of = {key: row for row, key in enumerate(self._keys)}


def _among(values: NDArray[np.int32], numbers: Sequence[int]) -> NDArray[np.bool_]:
    """Where the value is one of the numbers; most often there is one."""
    if len(numbers) == 1:
        found: NDArray[np.bool_] = values == numbers[0]
        return found
    return np.isin(values, numbers)


def _unpacked_rows(raws: list[bytes], index: Vectors) -> Floats:
    if not raws:
        return np.zeros((0, index.dimensions), np.float32)
    length = len(raws[0])
    if length % 2 or any(len(raw) != length for raw in raws):
        raise Invalid("vector", "vectors of two lengths, or half a number", "embed with one model")
    index.require_dimensions(length // 2)
    return unit_rows(np.frombuffer(b"".join(raws), "<f2").reshape(len(raws), -1), len(raws))

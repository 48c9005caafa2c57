"""What surrounds a row (turns, session), and the labels that rows are filtered by.

A short turn says little by itself: "Yes, last Friday!" is found by what was
asked before it. Neighbours are those of the same session and kind, in the order of
their time, then in which they came. A long text speaks for itself, and borrows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.columns import Column, Rows
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.hit import Weights
from pagefile.recall.records import IndexEntry
from pagefile.recall.text.inverted_index import LexicalIndex, Match

# What rows are labelled with: kind, speaker, status, scope, each a small number for a name.


LABELS = ("kind", "speaker", "status", "scope")


class Label:
    """One label of every row; 0 is the empty name."""

    def __init__(self) -> None:
        self.column = Column(np.uint8)
        self.names = [""]
        self._numbers: dict[str, int] = {"": 0}

    @property
    def values(self) -> NDArray[np.unsignedinteger]:
        """The number of each row's name."""
        return self.column.values

    def extend(self, names: Sequence[str]) -> None:
        """Label the next rows."""
        numbers = self._numbers
        for name in names:
            if name not in numbers:
                numbers[name] = len(self.names)
                self.names.append(name)
        self.column.fit(len(self.names))
        self.column.extend([numbers[name] for name in names])

    def of(self, rows: Rows) -> list[str]:
        """The names of some rows."""
        names = self.names
        if len(names) == 1:
            return names * len(rows)
        return [names[number] for number in self.values[rows].tolist()]

    def is_one_of(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Which rows have one of these names."""
        numbers = [self._numbers[name] for name in names if name in self._numbers]
        return among(self.values, numbers)


class Labels:
    """Every label of every row."""

    def __init__(self) -> None:
        self._labels = {name: Label() for name in LABELS}
        self.kind, self.speaker = self._labels["kind"], self._labels["speaker"]

    def __getitem__(self, name: str) -> Label:
        return self._labels[name]

    @property
    def columns(self) -> list[Column]:
        return [label.column for label in self._labels.values()]

    def extend(self, entries: Sequence[IndexEntry]) -> None:
        """Label the next rows as the entries say."""
        for name, label in self._labels.items():
            label.extend([getattr(entry, name) for entry in entries])

    def of(self, rows: Rows) -> Iterator[tuple[str, ...]]:
        """What some rows are labelled with, in the order of `LABELS`."""
        # A label at a time: looking up each row in each would take longer.
        return zip(*(label.of(rows) for label in self._labels.values()), strict=True)


def among(values: NDArray[np.integer], numbers: Sequence[int]) -> NDArray[np.bool_]:
    """Where the value is one of the numbers; most often there is one."""
    if len(numbers) == 1:
        found: NDArray[np.bool_] = values == numbers[0]
        return found
    return np.isin(values, numbers)


_NOBODY = -1
_MOST_WORDS = 2**31 - 1
#: So many rows are looked at at once where all are: what is worked on stays small.
_BLOCK = 8_192
#: The parameters of BM25 for whole sessions, which differ in length as documents do.
_SESSION_K1, _SESSION_B = 1.2, 0.75


class Structure:
    """Neighbours and sessions of the rows of one partition; `times` are those of the rows."""

    def __init__(self, times: Column) -> None:
        self._times = times
        self._before = Column(np.int32)
        self._after = Column(np.int32)
        self._session = Column(np.int32)
        self._heard = Column(np.uint16)
        self._asks = Column(np.bool_)
        self._number_of: dict[tuple[str, str], int] = {}
        self._names: list[tuple[str, str]] = []
        #: The last row of each session.
        self._last: list[int] = []
        #: Sessions with a row that came later than one of a later time: in order when asked for.
        self._unordered: set[int] = set()
        self._kept: dict[str, Any] = {}

    @property
    def size_bytes(self) -> int:
        columns = (self._before, self._after, self._session, self._heard, self._asks)
        return sum(c.size_bytes for c in columns) + 200 * len(self._number_of)

    @property
    def asks(self) -> NDArray[np.bool_]:
        return self._asks.values

    def add_many(self, rows: Iterable[tuple[str, str, int, bool, int]]) -> None:
        """Give the next rows to things: kind, session, number of words, whether they ask, time.

        Without a session a row stands alone.
        """
        first = len(self._before)
        times = self._times.values
        came: list[int] = []
        before: list[int] = []
        after: list[int] = []
        sessions: list[int] = []
        words: list[int] = []
        asking: list[bool] = []
        for row, (kind, session, heard, asks, time_us) in enumerate(rows, first):
            number = last = _NOBODY
            if session:
                number = self._number(kind, session)
                last = self._last[number]
                self._last[number] = row
                if last >= first:
                    after[last - first] = row
                    if came[last - first] > time_us:
                        self._unordered.add(number)
                elif last != _NOBODY:
                    self._after.values[last] = row
                    if times[last] > time_us:
                        self._unordered.add(number)
            came.append(time_us)
            before.append(last)
            after.append(_NOBODY)
            sessions.append(number)
            words.append(min(heard, _MOST_WORDS))
            asking.append(asks)
        self._heard.fit(max(words, default=0))
        for column, values in (
            (self._before, before),
            (self._after, after),
            (self._session, sessions),
            (self._heard, words),
            (self._asks, asking),
        ):
            column.extend(values)
        self._kept.clear()

    def _number(self, kind: str, session: str) -> int:
        number = self._number_of.get((kind, session))
        if number is None:
            number = self._number_of[kind, session] = len(self._names)
            self._names.append((kind, session))
            self._last.append(_NOBODY)
        return number

    def kill(self, row: int) -> None:
        """Take a row out: those beside it become neighbours."""
        before, after = int(self._before.values[row]), int(self._after.values[row])
        if before != _NOBODY:
            self._after.values[before] = after
        if after != _NOBODY:
            self._before.values[after] = before
        elif (number := self._session.values[row]) != _NOBODY:
            self._last[number] = before
        self._before.values[row] = self._after.values[row] = _NOBODY
        self._session.values[row] = _NOBODY
        self._kept.clear()

    def compacted(self, rows: Rows) -> Structure:
        """A structure of these living rows only, numbered anew in their order.

        To be had before the times are cut down to those rows.
        """
        names = [*self._names, ("", "")]  # The last is nobody's, whose number is -1.
        inside = [names[number] for number in self._session.values[rows]]
        heard, asks = self._heard.values[rows].tolist(), self._asks.values[rows].tolist()
        times = self._times.values[rows].tolist()
        fresh = Structure(self._times)
        fresh.add_many(
            (k, s, h, a, t) for (k, s), h, a, t in zip(inside, heard, asks, times, strict=True)
        )
        return fresh

    def _order(self) -> None:
        """Link the rows of each unordered session by their time; sorting keeps equals in place."""
        rows = np.flatnonzero(among(self._session.values, list(self._unordered)))
        self._unordered.clear()
        if not len(rows):
            return
        rows = rows[np.lexsort((self._times.values[rows], self._session.values[rows]))]
        inside = self._session.values[rows]
        is_next = inside[1:] == inside[:-1]
        self._before.values[rows] = np.append(_NOBODY, np.where(is_next, rows[:-1], _NOBODY))
        self._after.values[rows] = np.append(np.where(is_next, rows[1:], _NOBODY), _NOBODY)
        for row in rows[np.append(~is_next, True)].tolist():
            self._last[self._session.values[row]] = row

    def sessions_named(self, session: str, kinds: Iterable[str]) -> list[int]:
        """The numbers of the sessions of that name, one for each kind; "" is that of none."""
        if not session:
            return [_NOBODY]
        found = (self._number_of.get((kind, session)) for kind in kinds)
        return [number for number in found if number is not None]

    def session_of(self, row: int) -> str:
        """The name of a row's session; "" for none."""
        number = self._session.values[row]
        return "" if number == _NOBODY else self._names[number][1]

    @property
    def session_numbers(self) -> NDArray[np.int32]:
        """The session of each row; -1 for none."""
        return self._session.values

    def shortness(self, rows: Rows, weights: Weights) -> Floats:
        """1 for a short row, 0 for a long one, between them in between."""
        width = max(1, weights.long_words - weights.short_words)
        heard = self._heard.values[rows].astype(np.int32)  # It may be less than nothing below.
        short: Floats = np.clip((weights.long_words - heard) / np.float32(width), 0, 1)
        return short.astype(np.float32)

    def neighbours(self, rows: Rows) -> tuple[Rows, Rows, Rows, Rows]:
        """One before, one after, two before, two after; -1 for nobody."""
        if self._unordered:
            self._order()
        before = self._before.values[rows].astype(np.intp)
        after = self._after.values[rows].astype(np.intp)
        return before, after, _beyond(self._before, before), _beyond(self._after, after)

    def asked_before(self, before: Rows) -> Floats:
        """1 where the row before asks, 0 where it does not or is nobody."""
        asked = self._asks.values[before] & (before >= 0)
        return asked.astype(np.float32)

    def beside(self, rows: Rows) -> Rows:
        """The rows themselves, and below them their neighbours, in one array."""
        return np.stack((rows, *self.neighbours(rows)))

    def borrowed(self, raw: Floats, beside: Rows, asked_before: Floats, weights: Weights) -> Floats:
        """What neighbours lend; `raw` has a score for every row, and a 0 for nobody's -1.

        A question lends more to its answer than another turn does.
        """
        _, before, after, before2, after2 = beside
        said = raw[before]
        lent: Floats = np.float32(weights.before) * said
        if weights.answer:
            said *= asked_before
            said *= np.float32(weights.answer)
            lent += said
        for share, lenders in (
            (weights.after, after),
            (weights.before2, before2),
            (weights.after2, after2),
        ):
            if share:
                lender = raw[lenders]
                lender *= np.float32(share)
                lent += lender
        return lent

    def softened(self, lexical: LexicalIndex, beside: Rows, weights: Weights) -> Floats:
        """What the length of each row, read with its neighbours, takes from further terms."""
        mean = self._window_mean(lexical, weights.window_decay)
        lengths = _window_lengths(lexical.lengths, beside, weights.window_decay)
        k1, b = weights.window_k1, weights.window_b
        softened: Floats = np.float32(k1 * (1 - b)) + np.float32(k1 * b / mean) * lengths
        return softened

    def window(
        self, size: int, matches: Sequence[Match], beside: Rows, softened: Floats, weights: Weights
    ) -> Floats:
        """BM25 of rows read together with two turns before and after, which count less.

        Terms of one question are often spread over a question and its answer. `size`
        is how many rows there are.
        """
        near = np.float32(weights.window_decay)
        scores = np.zeros(beside.shape[1], np.float32)
        times = np.zeros(size + 1, np.float32)
        for match in matches:
            times[match.rows] = match.times
            often, before, after, before2, after2 = times[beside]
            before += after
            before2 += after2
            before2 *= near
            before += before2
            before *= near
            often += before
            # What is left over of the gathered arrays is room to count in.
            np.add(often, softened, out=after)
            often /= after
            often *= np.float32(match.weight * (weights.window_k1 + 1))
            scores += often
            times[match.rows] = 0
        return scores

    def session_scores(self, lexical: LexicalIndex, matches: Sequence[Match], rows: Rows) -> Floats:
        """How well the whole session of each row fits, as a share of the best; 0 without one."""
        softened, count = self._session_lengths(lexical)
        if not count or not matches:
            return np.zeros(len(rows), np.float32)
        # All terms at once, each with places of its own; the first of them is of the rows
        # without a session, whose number is -1, and not looked at.
        number = self._session.values
        places = len(softened) + 1
        inside = [number[match.rows] + np.intp(at * places + 1) for at, match in enumerate(matches)]
        often = [match.times for match in matches]
        if len(matches) > 1:
            inside, often = [np.concatenate(inside)], [np.concatenate(often)]
        counted = np.bincount(inside[0], often[0], places * len(matches))
        counts: NDArray[np.float64] = counted.astype(np.float64, copy=False)
        times = counts.reshape(len(matches), places)[:, 1:]
        holding = np.add.reduce(times > 0, axis=1, dtype=np.intp).tolist()
        rarity = [math.log(1 + (count - held + 0.5) / (held + 0.5)) for held in holding]
        gained: NDArray[np.float64] = times / (times + softened)
        gained *= np.array(rarity)[:, None]
        scores = np.add.reduce(gained, axis=0)
        best = scores.max()
        # A place after the last, which nobody's -1 reads.
        shares = np.zeros(places, np.float32)
        shares[:-1] = scores / best if best > 0 else scores
        found: Floats = shares[number[rows]]
        return found

    def _window_mean(self, lexical: LexicalIndex, decay: float) -> float:
        """The mean length of rows read with their neighbours."""
        name = f"window {decay}"
        if name not in self._kept:
            total = 0.0
            for start in range(0, len(self._before), _BLOCK):
                rows = np.arange(start, min(start + _BLOCK, len(self._before)))
                lengths = _window_lengths(lexical.lengths, self.beside(rows), decay)
                total += float(lengths.sum(dtype=np.float64))
            self._kept[name] = max(1.0, total / max(1, lexical.living))
        kept: float = self._kept[name]
        return kept

    def _session_lengths(self, lexical: LexicalIndex) -> tuple[NDArray[np.float64], int]:
        if "session" not in self._kept:
            lengths = np.zeros(len(self._names))
            for start in range(0, len(self._session), _BLOCK):
                number = self._session.values[start : start + _BLOCK] + np.intp(1)
                some = lexical.lengths[start : start + _BLOCK]
                lengths += np.bincount(number, some, len(lengths) + 1)[1:]
            count = int(np.count_nonzero(lengths))
            mean = lengths.sum() / max(1, count)
            softened = _SESSION_K1 * (1 - _SESSION_B + _SESSION_B * lengths / max(mean, 1e-9))
            self._kept["session"] = softened, count
        kept: tuple[NDArray[np.float64], int] = self._kept["session"]
        return kept


def _beyond(column: Column, rows: Rows) -> Rows:
    """Who is next to each of the rows, some of which are nobody and next to nobody."""
    found: Rows = column.values[rows].astype(np.intp)
    found[rows < 0] = _NOBODY
    return found


def _window_lengths(lengths: NDArray[np.int32], beside: Rows, decay: float) -> Floats:
    """How long rows are together with their neighbours, which count less."""
    each = lengths[beside].astype(np.float32)
    each[beside < 0] = 0
    own, before, after, before2, after2 = each
    together: Floats = own + decay * (before + after + decay * (before2 + after2))
    return together.astype(np.float32, copy=False)

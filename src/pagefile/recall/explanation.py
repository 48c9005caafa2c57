"""Why rows were found, in words and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pagefile.recall.hit import Arm, Boost
from pagefile.recall.keys import Keys
from pagefile.recall.scorer import Ground, Scored
from pagefile.recall.text.inverted_index import Rows
from pagefile.recall.text.question import Question
from pagefile.store.codec.sort_key import moment

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

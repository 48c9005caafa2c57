"""What was found and why, and how the scores of the arms are mixed."""

from __future__ import annotations

from typing import Self

import msgspec
import numpy as np

from pagefile.errors import Invalid, shown
from pagefile.recall.embed.embedder import Floats
from pagefile.store.arguments import require_count


class Arm(msgspec.Struct, frozen=True):
    """How one arm saw the thing: its place there, its own score, and what that adds to the sum.

    `where` says who compared the vectors: "" this process, else the name of the
    vector arm, or "tail" for what that arm did not have yet.
    """

    name: str
    rank: int
    score: float
    adds: float
    where: str = ""


class Boost(msgspec.Struct, frozen=True):
    """Why a score is other than the arms' sum.

    `adds` was added to the sum; `times` multiplied what had been summed up until then.
    """

    name: str
    reason: str
    adds: float = 0.0
    times: float = 1.0


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. Scores of one search compare with each other, not with another's."""

    key: str
    kind: str
    score: float
    time_us: int
    speaker: str = ""
    session: str = ""
    status: str = ""
    scope: str = ""
    arms: tuple[Arm, ...] = ()
    #: Terms of the question that the thing itself holds, in the order of the question.
    matched: tuple[str, ...] = ()
    boosts: tuple[Boost, ...] = ()

    def explained(self) -> float:
        """The score again, from the arms and the boosts; they leave nothing out."""
        score = sum(arm.adds for arm in self.arms)
        for boost in self.boosts:
            score = score * boost.times + boost.adds
        return score


# How the arms become one score: each scaled to its best, then mixed.
#
# Mixing by rank would throw away how much better the best is than the next;
# scores of different kinds can be added once each is a share of its own best.


#: What is left for similarities below the floor: enough to keep their order.
_BELOW = 0.02
_ZERO, _ONE = np.float32(0), np.float32(1)


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What counts how much. The defaults are those that measure best (benchmarks/recall.py).

    A share or factor of 0 (1 for `asks`, `other_speaker` and `second_speaker`)
    switches a thing off.
    """

    #: The vector arm's share: 0 is purely lexical, 1 purely vector.
    alpha: float = 0.5
    #: BM25: how soon a term that comes again stops counting, and how much length counts.
    k1: float = 0.6
    b: float = 0.3
    #: The share, in the lexical arm, of the row read together with its neighbours.
    window: float = 0.8
    window_decay: float = 0.7
    window_k1: float = 1.2
    window_b: float = 0.75
    #: How well the whole session fits, as part of the lexical arm.
    session: float = 0.3
    #: The similarity that counts nothing, as a quantile of all.
    floor: float = 0.5
    #: What a short row borrows of its neighbours' scores; `answer` more where one asks.
    before: float = 0.15
    after: float = 0.25
    before2: float = 0.2
    after2: float = 0.0
    answer: float = 0.1
    #: Rows up to so many words borrow whole, from so many on nothing.
    short_words: int = 40
    long_words: int = 120
    #: What is left to a row that ends in a question.
    asks: float = 0.7
    #: What is left to a row of somebody else than the one named; to the second one named.
    other_speaker: float = 0.55
    second_speaker: float = 0.85
    #: What lies in the time asked about gains so much; how many days after it still count.
    time: float = 1.2
    time_days: float = 2.0
    #: How much the vector arm is asked in the first person, as the one named would have said
    #: it, instead of in the words of the question. At 0 and 1 one form is embedded, not two.
    first_person: float = 1.0

    def __post_init__(self) -> None:
        for field in ("alpha", "b", "window", "floor", "asks"):
            _require(field, getattr(self, field), 1)
        for field in (
            "window_decay",
            "window_b",
            "other_speaker",
            "second_speaker",
            "first_person",
        ):
            _require(field, getattr(self, field), 1)
        for field in ("k1", "window_k1", "session", "before", "after", "before2", "after2"):
            _require(field, getattr(self, field), 100)
        for field in ("answer", "time", "time_days"):
            _require(field, getattr(self, field), 1_000)
        require_count(self.short_words, "short_words")
        require_count(self.long_words, "long_words", self.short_words)

    @classmethod
    def plain(cls, alpha: float) -> Self:
        """The arms alone, with nothing of structure, speakers and time."""
        return cls(
            alpha=alpha,
            window=0,
            session=0,
            before=0,
            after=0,
            before2=0,
            after2=0,
            answer=0,
            asks=1,
            other_speaker=1,
            second_speaker=1,
            time=0,
            first_person=0,
        )


def _require(field: str, value: float, most: float) -> None:
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise Invalid(field, f"{shown(value)} is no weight", f"give 0 to {most}")


def share_of_best(scores: Floats, best: float) -> Floats:
    """The scores, with `best` as 1 and whatever is above it too."""
    if best <= 0:
        return np.zeros_like(scores)
    shares: Floats = np.minimum(scores / np.float32(best), np.float32(1))
    return shares


def lifted(similar: Floats, floor: float, lowest: float, best: float) -> Floats:
    """Similarities from 0 to 1: almost all of it above the floor, in order below it too."""
    if best <= lowest:
        return np.ones_like(similar)
    floor = min(max(floor, lowest), best)
    # From the floor on, so that values which lie close together keep their differences.
    lift: Floats = similar - np.float32(floor)
    below = np.minimum(lift, _ZERO)
    below *= np.float32(0.99 * _BELOW / max(floor - lowest, 1e-9))
    if floor >= best:  # More than half are the best.
        above = (lift >= _ZERO) * np.float32(1 - _BELOW)
    else:
        above = np.maximum(lift, _ZERO, out=lift)
        above *= np.float32((1 - _BELOW) / max(best - floor, 1e-9))
    below += above
    below += np.float32(_BELOW)
    # Above 0: the least similar is still found, last. `numpy.clip` takes longer to begin.
    np.maximum(below, np.float32(0.01 * _BELOW), out=below)
    return np.minimum(below, _ONE, out=below)

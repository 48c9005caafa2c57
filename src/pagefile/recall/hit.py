"""One thing that was found, and why."""

from __future__ import annotations

import msgspec


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

"""One line of the result: what was measured, its target, and whether it was met."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from _measure import Spread, Timing


@dataclass(frozen=True)
class Target:
    """The figures that count as met: both bounds included, None for no bound."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{self.low:.3g} … {self.high:.3g}"
        return f">= {self.low:.3g}" if self.low is not None else f"<= {self.high:.3g}"

    def verdict(self, figure: float) -> str:
        above = self.low is None or figure >= self.low
        below = self.high is None or figure <= self.high
        return "met" if above and below else "missed"


@dataclass(frozen=True)
class Row:
    """Figures of one subject. A peer has no target: it is what others are held against."""

    case: str
    subject: str
    timing: Timing
    #: What the figure says, such as "× the rate of bare apsw".
    meaning: str = ""
    figure: Spread | None = None
    target: Target | None = None
    #: What an acknowledged write survives: power, process, none; "" where that is not the point.
    level: str = ""
    #: Ours, in a run that has nothing to hold it against.
    alone: bool = False

    @property
    def verdict(self) -> str:
        if self.figure is None:
            return "noted" if self.alone else "peer"
        return "noted" if self.target is None else self.target.verdict(self.figure.middle)

    def to_json(self) -> dict[str, Any]:
        """Plain values for machines."""
        return {
            "case": self.case,
            "subject": self.subject,
            "level": self.level,
            "per_second": self.timing.per_second,
            "wall_us": self.timing.wall_us,
            "cpu_us": self.timing.cpu_us,
            "rounds": len(self.timing.wall),
            "meaning": self.meaning,
            "figure": None if self.figure is None else asdict(self.figure),
            "target": None if self.target is None else str(self.target),
            "verdict": self.verdict,
        }

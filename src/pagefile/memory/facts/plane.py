"""The plane of valid time × recorded time: which assertion holds where.

Pure functions. Nothing is ever closed in a store: windows follow from the
assertions and retractions that were recorded up to a moment, so a moment of
the past gives the answer it gave then.

For one subject and one predicate, at one valid moment *v*, as known at *k*:

    1  What counts: assertions recorded up to *k* whose window has *v* in it,
       and which no retraction recorded up to *k* takes away at *v*.
    2  A multi-valued predicate holds every object that is left.
    3  A single-valued one holds one object:
       a  An object whose confidence is below half of the strongest one's
          stands back.
       b  An assertion without an end ("until further notice") stands back
          behind one of another object that starts later.
       c  Of those that are left, the one recorded last decides.
       d  What an assertion without an end put back, by b or c, it puts back for
          good: when it goes, because a retraction ends it from a moment on or
          because it was put back so itself, the other goes with it. Who left
          Globex for nothing is not at Acme again, whichever was recorded first.
          One that stood back all the while (a) put back nothing.

Assertions of the same object that are left support each other: neighbouring
windows become one, with all their sources; their confidences are joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Literal

import msgspec

from pagefile.memory.facts.plane_sweep import Sweep, joint_confidence

Kind = Literal["single", "multi"]

#: Recorded time, then what decides between equal ones: position, place in the commit, id.
Order = tuple[int, int, int, str]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """An assertion as the plane sees it; `end` None is until further notice."""

    id: str
    object: str
    start: int
    end: int | None
    confidence: float
    order: Order
    sources: tuple[str, ...] = ()
    #: Whether it was asserted without an end, whatever a retraction says since.
    is_open: bool = True

    def reaches(self, moment: int) -> bool:
        return self.end is None or moment < self.end


class Withdrawal(msgspec.Struct, frozen=True, gc=False):
    """A retraction as the plane sees it: of all of a claim, or from `since` on."""

    target: str
    since: int | None


class Window(msgspec.Struct, frozen=True):
    """Where one object holds, and the claims that say so, in the order they were recorded.

    `next` is the claim of the window that took over at `end`, if one did.
    """

    object: str
    start: int
    end: int | None
    claims: tuple[str, ...]
    sources: tuple[str, ...]
    confidence: float
    next: str | None = None

    @property
    def id(self) -> str:
        """A fact goes by the name under which it was first recorded."""
        return self.claims[0]

    def has(self, moment: int) -> bool:
        return self.start <= moment and (self.end is None or moment < self.end)


def standing(claims: Iterable[Claim], withdrawals: Iterable[Withdrawal] = ()) -> list[Claim]:
    """The claims, less what was withdrawn of them."""
    cuts: dict[str, list[int | None]] = {}
    for one in withdrawals:
        cuts.setdefault(one.target, []).append(one.since)
    found = []
    for claim in claims:
        if claim.id in cuts:
            ends = cuts[claim.id] if claim.end is None else [*cuts[claim.id], claim.end]
            end = min(claim.start if each is None else each for each in ends)
            if end <= claim.start:
                continue
            claim = msgspec.structs.replace(claim, end=end)
        found.append(claim)
    return found


def windows(claims: Sequence[Claim], kind: Kind) -> list[Window]:
    """Every window of standing claims of one subject and predicate, by start, then object."""
    if kind == "multi":
        by_object: dict[str, list[Claim]] = {}
        for claim in claims:
            by_object.setdefault(claim.object, []).append(claim)
        found = [window for each in by_object.values() for window in _joined(each)]
        return sorted(found, key=lambda window: (window.start, window.object))
    sweep = Sweep(claims)
    found = [_window(run.claims, run.start, run.end) for run in sweep.runs()]
    return _linked(found, {claim.id: claim for claim in claims}, sweep.gone)


def _joined(claims: Sequence[Claim]) -> list[Window]:
    """Windows of one object: claims that overlap or touch become one."""
    found: list[Window] = []
    run: list[Claim] = []
    end: int | None = 0
    for claim in sorted(claims, key=_start):
        if run and (end is None or claim.start <= end):
            end = None if end is None or claim.end is None else max(end, claim.end)
            run.append(claim)
            continue
        if run:
            found.append(_window(run, run[0].start, end))
        run, end = [claim], claim.end
    return [*found, _window(run, run[0].start, end)]


def _window(claims: Iterable[Claim], start: int, end: int | None) -> Window:
    ordered = sorted(claims, key=_order)
    return Window(
        ordered[0].object,
        start,
        end,
        tuple(claim.id for claim in ordered),
        tuple(dict.fromkeys(source for claim in ordered for source in claim.sources)),
        joint_confidence(ordered),
    )


def _linked(
    found: list[Window], claims: Mapping[str, Claim], gone: Mapping[str, int]
) -> list[Window]:
    """Each window with the one that cut it short, if one did."""
    linked = []
    for window, after in zip_longest(found, found[1:]):
        end = window.end
        if after is not None and end == after.start:
            assert end is not None
            if any(claims[n].reaches(end) and gone.get(n, end + 1) > end for n in window.claims):
                window = msgspec.structs.replace(window, next=after.id)
        linked.append(window)
    return linked


def _start(claim: Claim) -> int:
    return claim.start


def _order(claim: Claim) -> Order:
    return claim.order

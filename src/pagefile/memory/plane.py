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

from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import merge
from itertools import zip_longest
from typing import Literal

import msgspec

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
    sweep = _Sweep(claims)
    return _linked(sweep.windows(), {claim.id: claim for claim in claims}, sweep.gone)


def joint_confidence(claims: Sequence[Claim]) -> float:
    """How sure all of them together make one.

    Claims that share a source, and all that name none, are one witness, as
    sure as the surest of them. Witnesses add up: two at 0.5 make 0.75.
    """
    if len(claims) == 1:
        return claims[0].confidence
    # Each claim leads to the one it is joined with, and in the end to its witness.
    leads_to = list(range(len(claims)))
    first: dict[str, int] = {}
    for i, claim in enumerate(claims):
        for source in claim.sources or ("",):
            other = _witness(leads_to, first.setdefault(source, i))
            leads_to[other] = _witness(leads_to, i)
    witnesses: dict[int, float] = {}
    for i, claim in enumerate(claims):
        name = _witness(leads_to, i)
        witnesses[name] = max(claim.confidence, witnesses.get(name, 0.0))
    if len(witnesses) == 1:
        return witnesses.popitem()[1]
    doubt = 1.0
    for sure in sorted(witnesses.values()):
        doubt *= 1 - sure
    return round(1 - doubt, 12)


def _witness(leads_to: list[int], i: int) -> int:
    """Where a claim leads to in the end; the way there gets shorter."""
    while leads_to[i] != i:
        leads_to[i] = i = leads_to[leads_to[i]]
    return i


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


class _Sweep:
    """Goes over valid time once, from one start or end of a claim to the next."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._starts: dict[int, list[Claim]] = {}
        self._ends: dict[int, list[Claim]] = {}
        for claim in sorted(claims, key=_order):
            self._starts.setdefault(claim.start, []).append(claim)
            if claim.end is not None:
                self._ends.setdefault(claim.end, []).append(claim)
        # No object can weigh more than 1, so from one half on nobody stands back.
        self._weighs = any(claim.confidence < 0.5 for claim in claims)
        self._active: dict[str, dict[str, Claim]] = {}
        #: Of those, the ones until further notice, by start and order, and the others.
        self._open: list[Claim] = []
        self._closed: dict[str, Claim] = {}
        self._weights: dict[str, float] = {}
        # Only where one until further notice was ended is anything put back for good.
        self._follows = any(claim.is_open and claim.end is not None for claim in claims)
        #: Claims until further notice that have stood back so far, and those that did not once.
        self._waiting: dict[str, list[Claim]] = {}
        self._took_over: set[str] = set()
        #: Claims that went because one that had put them back did, and where.
        self.gone: dict[str, int] = {}

    def windows(self) -> list[Window]:
        found: list[Window] = []
        support: dict[str, Claim] = {}
        held: str | None = None
        start = 0
        for point in sorted({*self._starts, *self._ends}):
            for claim in self._ends.get(point, ()):
                if claim.id not in self.gone:
                    self._leave(claim, point)
            for claim in self._starts.get(point, ()):
                self._enter(claim)
            allowed = self._allowed()
            if self._waiting:
                self._take_over(allowed)
            holder, supporters = self._holder(allowed)
            if holder != held:
                if held is not None:
                    found.append(_window(support.values(), start, point))
                support, held, start = {}, holder, point
            support.update((claim.id, claim) for claim in supporters)
        if held is not None:
            found.append(_window(support.values(), start, None))
        return found

    def _enter(self, claim: Claim) -> None:
        self._active.setdefault(claim.object, {})[claim.id] = claim
        self._weights.pop(claim.object, None)
        if not claim.is_open:
            self._closed[claim.id] = claim
            return
        self._open.append(claim)
        if self._follows:
            self._waiting.setdefault(claim.object, []).append(claim)

    def _leave(self, claim: Claim, point: int) -> None:
        """Take a claim out, and with it all that it put back for good."""
        going = [claim]
        while going:
            one = going.pop()
            of_object = self._active[one.object]
            del of_object[one.id]
            self._weights.pop(one.object, None)
            if not of_object:
                del self._active[one.object]
            if not one.is_open:
                del self._closed[one.id]
                continue
            if one is claim:
                self._open.remove(one)
            if one.id in self._took_over:
                before = [c for c in self._open if c.object != one.object and _precedes(c, one)]
                self.gone.update((c.id, point) for c in before)
                self._open = [c for c in self._open if self.gone.get(c.id) is None]
                going += before

    def _take_over(self, allowed: Set[str]) -> None:
        for name in [name for name in self._waiting if name in allowed]:
            self._took_over.update(claim.id for claim in self._waiting.pop(name))

    def _allowed(self) -> Set[str]:
        """The objects that do not stand back behind a much surer one."""
        if self._weighs and len(self._active) > 1:
            return self._strong()
        return self._active.keys()

    def _holder(self, allowed: Set[str]) -> tuple[str | None, Iterable[Claim]]:
        """The object that holds from this point on, and the claims that say so."""
        if len(allowed) < 2:
            holder = next(iter(allowed), None)
            return holder, () if holder is None else self._active[holder].values()
        closed = [claim for claim in self._closed.values() if claim.object in allowed]
        leader, rival = self._latest(closed, allowed)
        left = closed
        for claim in reversed(self._open):
            if claim.start < rival.start:
                break  # All that are left started before two objects.
            stands_back = claim.object != leader.object and claim.start < leader.start
            if claim.object in allowed and not stands_back:
                left.append(claim)
        holder = max(left, key=_order).object
        return holder, [claim for claim in left if claim.object == holder]

    def _latest(self, closed: Sequence[Claim], allowed: Set[str]) -> tuple[Claim, Claim]:
        """The claim that starts last, and the one that does so of all other objects."""
        found: list[Claim] = []
        for claim in merge(
            reversed(self._open), sorted(closed, key=_start, reverse=True), key=_start, reverse=True
        ):
            if claim.object in allowed and (not found or claim.object != found[0].object):
                found.append(claim)
                if len(found) == 2:
                    break
        return found[0], found[1]

    def _strong(self) -> set[str]:
        for name, claims in self._active.items():
            if name not in self._weights:
                self._weights[name] = joint_confidence(list(claims.values()))
        top = max(self._weights[name] for name in self._active)
        return {name for name in self._active if 2 * self._weights[name] >= top}


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


def _precedes(claim: Claim, other: Claim) -> bool:
    """Whether the other one puts it back, if they are of different objects."""
    return (claim.start, claim.order) < (other.start, other.order)


def _start(claim: Claim) -> int:
    return claim.start


def _order(claim: Claim) -> Order:
    return claim.order

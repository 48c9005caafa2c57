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

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from heapq import heappop, heappush, nlargest
from itertools import zip_longest
from typing import Literal

import msgspec

# Which object of a single-valued predicate holds where: one pass over valid time.
#
# The rules are in `plane.py`. What is looked at from one start or end of a claim
# to the next is what changes there, not all claims that hold.


_EVER = float("-inf")
#: So little doubt is rounded away.
_NO_DOUBT = 1e-13


class Run(msgspec.Struct):
    """Where one object holds, and the claims that say so; `end` None is for good."""

    claims: list[Claim]
    start: int
    end: int | None


class Sweep:
    """Goes over valid time once, from one start or end of a claim to the next."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        #: By the order they were recorded in: a claim's place in it decides between claims.
        self._recorded = sorted(claims, key=_order)
        self._place = {claim.id: place for place, claim in enumerate(self._recorded)}
        self._starts: dict[int, list[Claim]] = {}
        self._ends: dict[int, list[Claim]] = {}
        for claim in self._recorded:
            self._starts.setdefault(claim.start, []).append(claim)
            if claim.end is not None:
                self._ends.setdefault(claim.end, []).append(claim)
        # No object can weigh more than 1, so from one half on nobody stands back.
        self._weighs = any(claim.confidence < 0.5 for claim in claims)
        self._witnesses: dict[str, Witnesses] = {}
        self._weights: dict[str, float] = {}
        #: The claims that have begun and not ended, by object, then by start and order.
        self._active: dict[str, dict[str, Claim]] = {}
        #: Of those, the ones until further notice, and the others.
        self._open: dict[str, list[Claim]] = {}
        self._closed: dict[str, dict[str, Claim]] = {}
        #: Of the open ones, those after which none was recorded later.
        self._newest: dict[str, list[Claim]] = {}
        #: Heaps that may hold what is gone: objects by their latest start, and places of
        #: closed claims, of each object where those are weighed, else of all.
        self._latest: list[tuple[int, str]] = []
        self._best: dict[str | None, list[int]] = {}
        # Only where one until further notice was ended is anything put back for good.
        self._follows = any(claim.is_open and claim.end is not None for claim in claims)
        #: Claims until further notice that have stood back so far, and those that did not once.
        self._waiting: dict[str, list[Claim]] = {}
        self._took_over: set[str] = set()
        #: Claims that went because one that had put them back did, and where.
        self.gone: dict[str, int] = {}

    def runs(self) -> Iterator[Run]:
        """Where which object holds, by start."""
        support: dict[str, Claim] = {}
        held: str | None = None
        start, low = 0, _EVER
        for point in sorted({*self._starts, *self._ends}):
            for claim in self._ends.get(point, ()):
                if claim.id not in self.gone:
                    self._leave(claim, point)
            new = self._starts.get(point, ())
            for claim in new:
                self._enter(claim)
            allowed = self._allowed()
            if self._waiting:
                self._take_over(allowed)
            holder, since = self._holder(allowed)
            if holder != held:
                if held is not None:
                    yield Run(list(support.values()), start, point)
                support, held, start, low = {}, holder, point, since
                if holder is not None:
                    support.update(self._closed.get(holder, {}))
                    support.update(_by_id(self._open_since(holder, since)))
            elif holder is not None:
                support.update(_by_id(claim for claim in new if claim.object == holder))
                if since < low:
                    # Claims that stood back behind one that is gone.
                    support.update(_by_id(self._open_since(holder, since, low)))
                    low = since
        if held is not None:
            yield Run(list(support.values()), start, None)

    # What begins and ends

    def _enter(self, claim: Claim) -> None:
        name = claim.object
        self._active.setdefault(name, {})[claim.id] = claim
        self._weights.pop(name, None)
        if name in self._witnesses:
            self._witnesses[name].add(claim)
        heappush(self._latest, (-claim.start, name))
        if not claim.is_open:
            self._closed.setdefault(name, {})[claim.id] = claim
            bucket = name if self._weighs else None
            heappush(self._best.setdefault(bucket, []), -self._place[claim.id])
            return
        self._open.setdefault(name, []).append(claim)
        self._note_newest(claim)
        if self._follows:
            self._waiting.setdefault(name, []).append(claim)

    def _leave(self, claim: Claim, point: int) -> None:
        """Take a claim out, and with it all that it put back for good."""
        going = [claim]
        while going:
            one = going.pop()
            name = one.object
            of_object = self._active[name]
            del of_object[one.id]
            self._weights.pop(name, None)
            self._witnesses.pop(name, None)
            if not of_object:
                del self._active[name]
            else:
                heappush(self._latest, (-self._latest_start(name), name))
            if not one.is_open:
                del self._closed[name][one.id]
                continue
            # Ended by a retraction, which is rare.
            self._open[name].remove(one)
            self._newest[name] = []
            for other in self._open[name]:
                self._note_newest(other)
            if one.id in self._took_over:
                before = [c for c in self._put_back_by(one) if c.id not in self.gone]
                self.gone.update((c.id, point) for c in before)
                going += before

    def _put_back_by(self, claim: Claim) -> Iterator[Claim]:
        """Claims until further notice that stand back behind this one."""
        for name, claims in self._open.items():
            if name != claim.object:
                for other in claims:
                    if (other.start, other.order) >= (claim.start, claim.order):
                        break
                    yield other

    def _take_over(self, allowed: Set[str]) -> None:
        for name in [name for name in self._waiting if name in allowed]:
            self._took_over.update(claim.id for claim in self._waiting.pop(name))

    def _note_newest(self, claim: Claim) -> None:
        newest = self._newest.setdefault(claim.object, [])
        while newest and newest[-1].order < claim.order:
            newest.pop()
        newest.append(claim)

    # Who holds

    def _allowed(self) -> Set[str]:
        """The objects that do not stand back behind a much surer one."""
        if not self._weighs or len(self._active) < 2:
            return self._active.keys()
        for name, claims in self._active.items():
            if name not in self._weights:
                if name not in self._witnesses:
                    self._witnesses[name] = Witnesses(claims.values())
                self._weights[name] = self._witnesses[name].confidence()
        top = max(self._weights[name] for name in self._active)
        return {name for name in self._active if 2 * self._weights[name] >= top}

    def _holder(self, allowed: Set[str]) -> tuple[str | None, float]:
        """The object that holds from this point on, and where its open claims count from."""
        if len(allowed) < 2:
            return next(iter(allowed), None), _EVER
        (last, leader), (second, _) = self._two_latest(allowed)
        deciding: list[int] = []
        for bucket in self._best:
            if bucket is None or bucket in allowed:
                deciding += self._best_closed(bucket)
        # Of the leader those that start before the second stand back, of others all that start
        # before the leader.
        newest = self._newest.get(leader, ())
        if (at := bisect_left(newest, second, key=_start)) < len(newest):
            deciding.append(self._place[newest[at].id])
        for claim in reversed(self._starts[last]):
            if claim.is_open and claim.object in allowed and self._is_active(claim):
                deciding.append(self._place[claim.id])
                break
        holder = self._recorded[max(deciding)].object
        return holder, second if holder == leader else last

    def _two_latest(self, allowed: Set[str]) -> tuple[tuple[int, str], tuple[int, str]]:
        """The latest start of all, and the latest of other objects, with their objects."""
        if len(allowed) < len(self._active):
            first, second = nlargest(2, ((self._latest_start(name), name) for name in allowed))
            return first, second
        found: list[tuple[int, str]] = []
        while len(found) < 2:
            start, name = heappop(self._latest)
            is_known = any(name == other for _, other in found)
            if not is_known and name in self._active and self._latest_start(name) == -start:
                found.append((-start, name))
        for start, name in found:
            heappush(self._latest, (-start, name))
        return found[0], found[1]

    def _best_closed(self, bucket: str | None) -> list[int]:
        """The place of the closed claim that was recorded last, if there is one."""
        best = self._best[bucket]
        while best and not self._is_active(self._recorded[-best[0]]):
            heappop(best)
        return [-best[0]] if best else []

    def _latest_start(self, name: str) -> int:
        return next(reversed(self._active[name].values())).start

    def _is_active(self, claim: Claim) -> bool:
        return claim.id in self._active.get(claim.object, ())

    def _open_since(self, name: str, low: float, high: float | None = None) -> Sequence[Claim]:
        claims = self._open.get(name, [])
        end = len(claims) if high is None else bisect_left(claims, high, key=_start)
        return claims[bisect_left(claims, low, key=_start) : end]


def joint_confidence(claims: Sequence[Claim]) -> float:
    """How sure all of them together make one."""
    return claims[0].confidence if len(claims) == 1 else Witnesses(claims).confidence()


class Witnesses:
    """Who vouches for an object.

    Claims that share a source, and all that name none, are one witness, as
    sure as the surest of them. Witnesses add up: two at 0.5 make 0.75.
    """

    def __init__(self, claims: Iterable[Claim]) -> None:
        #: Each claim leads to one that it is joined with, and in the end to its witness.
        self._leads_to: list[int] = []
        self._first: dict[str, int] = {}
        self._sure: dict[int, float] = {}
        for claim in claims:
            self.add(claim)

    def add(self, claim: Claim) -> None:
        """One more claim, which may make one witness of several."""
        own = len(self._leads_to)
        self._leads_to.append(own)
        sure = claim.confidence
        for source in claim.sources or ("",):
            other = self._witness(self._first.setdefault(source, own))
            if other != own:
                sure = max(sure, self._sure.pop(other))
                self._leads_to[other] = own
        self._sure[own] = sure

    def confidence(self) -> float:
        """How sure they make it together."""
        if len(self._sure) == 1:
            return next(iter(self._sure.values()))
        doubt = 1.0
        for sure in sorted(self._sure.values()):
            doubt *= 1 - sure
            if doubt < _NO_DOUBT:
                return 1.0
        return round(1 - doubt, 12)

    def _witness(self, i: int) -> int:
        leads_to = self._leads_to
        while leads_to[i] != i:
            # The way gets shorter each time it is gone.
            leads_to[i] = i = leads_to[leads_to[i]]
        return i


def _by_id(claims: Iterable[Claim]) -> Iterator[tuple[str, Claim]]:
    return ((claim.id, claim) for claim in claims)


def _start(claim: Claim) -> int:
    return claim.start


def _order(claim: Claim) -> Order:
    return claim.order


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

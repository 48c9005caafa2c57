"""Facts as a reader sees them: the plane of each subject and predicate, in words again.

Pure: from what was read to what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from pagefile.memory.facts.aliases import Names
from pagefile.memory.facts.documents import Assertion, Ledger, Retraction
from pagefile.memory.facts.fact import MOST_SOURCES, Closing, Fact, Status
from pagefile.memory.facts.kinds import Kinds
from pagefile.memory.facts.plane import Claim, Kind, Window, standing, windows
from pagefile.store.codec import sort_key


class Viewpoint(msgspec.Struct, frozen=True):
    """From when one looks, and when at: recorded time (None: all of it) and valid time."""

    known_us: int | None
    valid_us: int
    names: Names
    kinds: Kinds


class Sight(msgspec.Struct, frozen=True, gc=False):
    """A fact that is yet to be written out: most that are looked at never are."""

    group: Group
    assertion: Assertion
    status: Status
    start: int
    #: None for an assertion that holds at no time.
    window: Window | None

    @property
    def order(self) -> tuple[int, str, int]:
        """Recorded last first, then by id, then by window."""
        return -self.assertion.order[0], self.assertion.id, self.start

    @property
    def object(self) -> str:
        """The canonical name of its object."""
        return self.group.view.names.canonical(self.assertion.object)

    @property
    def claims(self) -> tuple[str, ...]:
        """The ids of the assertions that say it."""
        return (self.assertion.id,) if self.window is None else self.window.claims

    @property
    def text(self) -> str:
        """The three parts as words."""
        stored = self.assertion.stored
        return f"{stored.subject} {stored.predicate} {stored.object}"

    def fact(self) -> Fact:
        """All of it."""
        if self.window is None:
            return self.group.hidden_fact(self.assertion, self.status)
        return self.group.fact(self.assertion, self.window, self.status)


class Group:
    """All that was said about one subject and one predicate, as known at one moment."""

    def __init__(
        self,
        assertions: Sequence[Assertion],
        retractions: Sequence[Retraction],
        view: Viewpoint,
        kind: Kind,
    ) -> None:
        known = view.known_us
        if known is not None:
            assertions = [each for each in assertions if each.order[0] <= known]
            retractions = [each for each in retractions if each.order[0] <= known]
        self.assertions = {each.id: each for each in assertions}
        self.retractions = retractions
        self.view = view
        self.kind = kind
        canonical = view.names.canonical
        claims = [each.claim(canonical(each.object)) for each in assertions]
        self.standing = standing(claims, [each.withdrawal for each in retractions])
        self.windows = windows(self.standing, kind)

    def seen(self) -> list[Sight]:
        """What holds at some time, one for each window, by its start."""
        return [
            Sight(self, self.assertions[window.id], self._status(window), window.start, window)
            for window in self.windows
        ]

    def unseen(self) -> list[Sight]:
        """Assertions that hold at no time."""
        seen = {name for window in self.windows for name in window.claims}
        left = {claim.id: claim for claim in self.standing if claim.id not in seen}
        found = []
        for name, assertion in self.assertions.items():
            if name not in seen:
                status: Status = self._how(left[name]) if name in left else "retracted"
                found.append(Sight(self, assertion, status, assertion.stored.from_us, None))
        return found

    def fact(self, assertion: Assertion, window: Window, status: Status) -> Fact:
        """What holds in a window, under the name of the assertion that was first."""
        return assertion.fact(
            valid_from=sort_key.moment(window.start),
            valid_until=None if window.end is None else sort_key.moment(window.end),
            confidence=window.confidence,
            # Those recorded last: a fact may rest on more than one may be asserted with.
            sources=window.sources[-MOST_SOURCES:],
            status=status,
            superseded_by=window.next,
            closed=self._closing(window),
            asserted=window.claims,
        )

    def hidden_fact(self, assertion: Assertion, status: Status) -> Fact:
        """What was asserted and holds at no time, with the reason."""
        name = assertion.id
        if status == "retracted":
            cut = [each for each in self.retractions if each.target == name]
            return assertion.fact(status=status, closed=_by_retraction(cut), asserted=(name,))
        assert status in ("superseded", "outweighed")
        by = self._at(assertion.stored.from_us).id
        return assertion.fact(
            status=status,
            superseded_by=by,
            closed=self._by_assertion(status, by),
            asserted=(name,),
        )

    def _status(self, window: Window) -> Status:
        if window.has(self.view.valid_us):
            return "active"
        if self.view.valid_us < window.start:
            return "future"
        return "superseded" if window.next is not None else "ended"

    def _how(self, claim: Claim) -> Literal["superseded", "outweighed"]:
        """Why a claim that stands is behind another wherever it would hold."""
        at = self._at(claim.start)
        return "outweighed" if 2 * claim.confidence < at.confidence else "superseded"

    def _at(self, moment: int) -> Window:
        return next(window for window in self.windows if window.has(moment))

    def _closing(self, window: Window) -> Closing | None:
        if window.next is not None:
            return self._by_assertion("superseded", window.next)
        if window.end is None:
            return None
        names = set(window.claims)
        cut = [e for e in self.retractions if e.target in names and e.since_us == window.end]
        return _by_retraction(cut) if cut else None

    def _by_assertion(self, how: Literal["superseded", "outweighed"], name: str) -> Closing:
        by = self.assertions[name]
        return Closing(how, name, by.stored.reason, by.actor, sort_key.moment(by.order[0]))


def groups_of(ledger: Ledger, view: Viewpoint) -> Iterator[Group]:
    """What was read, by subject and predicate."""
    by_group: dict[tuple[str, str], list[Assertion]] = {}
    for assertion in ledger.assertions.values():
        key = view.names.canonical(assertion.subject), assertion.stored.predicate
        by_group.setdefault(key, []).append(assertion)
    by_target: dict[str, list[Retraction]] = {}
    for retraction in ledger.retractions.values():
        by_target.setdefault(retraction.target, []).append(retraction)
    for (_, predicate), assertions in by_group.items():
        retractions = [r for a in assertions for r in by_target.get(a.id, ())]
        yield Group(assertions, retractions, view, view.kinds.of(predicate))


def active(groups: Iterator[Group]) -> list[Sight]:
    """What holds at the moment one looks at."""
    return [sight for group in groups for sight in group.seen() if sight.status == "active"]


def _by_retraction(cut: Sequence[Retraction]) -> Closing:
    last = max(cut, key=lambda each: each.order)
    moment = sort_key.moment(last.order[0])
    return Closing("retracted", last.id, last.reason, last.actor, moment)

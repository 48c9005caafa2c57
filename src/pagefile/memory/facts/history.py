"""The whole plane of one subject and predicate, and the story of one fact on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from pagefile.memory.facts.documents import Alias, Ledger
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.view import Group, Names, Statement, Viewpoint, groups_of, kinds_at
from pagefile.store.codec import sort_key

#: How many changes of belief a history goes through, counted from the newest.
MOST_CHANGES = 500


class Rectangle(msgspec.Struct, frozen=True):
    """What was believed over a span of valid time, during a span of recorded time.

    `fact` has the valid span, `recorded_from` and `recorded_until` are the
    other; None is until now. `made_by` and `ended_by` are the ids of the
    assertions and retractions recorded at these moments.
    """

    fact: Fact
    recorded_from: datetime
    recorded_until: datetime | None
    made_by: tuple[str, ...]
    ended_by: tuple[str, ...] = ()


class History(msgspec.Struct, frozen=True):
    """Rectangles in the order they were recorded, then of valid time.

    `unseen` are the assertions that hold at no time as known now, and why.
    `cut` says what was left out; empty when nothing was.
    """

    rectangles: tuple[Rectangle, ...]
    unseen: tuple[Fact, ...]
    cut: str = ""


class Story(msgspec.Struct, frozen=True):
    """Why a fact is as it is.

    `asserted` is the assertion as it was made; `facts` where it holds, empty
    when nowhere; `status` its best status there, or why nowhere. `support` are
    the assertions that say the same with it, `supersedes` the facts that it
    cut short or keeps from being seen, `closed_by` those that did so to it.
    """

    asserted: Fact
    status: str
    facts: tuple[Fact, ...]
    support: tuple[Fact, ...]
    supersedes: tuple[Fact, ...]
    closed_by: tuple[Fact, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Slots and episodes behind it, its own first."""
        every = (source for fact in (self.asserted, *self.support) for source in fact.sources)
        return tuple(dict.fromkeys(every))


_RANK = ("active", "future", "superseded", "ended", "outweighed", "retracted")


def story_of(group: Group, fact_id: str) -> Story:
    """The story of an assertion of this group."""
    facts = [sight.fact() for sight in group.seen()]
    unseen = [sight.fact() for sight in group.unseen()]
    own = [fact for fact in facts if fact_id in fact.asserted]
    hidden = [fact for fact in unseen if fact.id == fact_id]
    status = min((fact.status for fact in [*own, *hidden]), key=_RANK.index)
    names = {fact.id for fact in own}
    support = dict.fromkeys(name for fact in own for name in fact.asserted if name != fact_id)
    closers = dict.fromkeys(f.superseded_by for f in [*own, *hidden] if f.superseded_by)
    return Story(
        hidden[0] if hidden else group.assertions[fact_id].fact(),
        status,
        tuple(own),
        tuple(group.assertions[name].fact() for name in support),
        tuple(fact for fact in [*facts, *unseen] if fact.superseded_by in names),
        tuple(group.assertions[name].fact() for name in closers),
    )


def history_of(
    ledger: Ledger,
    view: Viewpoint,
    aliases: Sequence[Alias],
    statements: Sequence[Statement],
    limit: int,
) -> History:
    """Every rectangle of the plane that was read, found by looking from each moment in turn."""
    orders = [each.order for each in ledger.assertions.values()]
    orders += [each.order for each in ledger.retractions.values()]
    events: dict[int, list[str]] = {}
    for order in sorted(orders):
        events.setdefault(order[0], []).append(order[3])
    # A name or a kind that was declared changes what is believed, too.
    moments = sorted(
        {
            *events,
            *(alias.order[0] for alias in aliases),
            *(statement[0] for statement in statements),
        }
    )
    moments = [moment for moment in moments if events and moment >= min(events)]
    looked = moments[-MOST_CHANGES:]
    known: dict[bytes, Rectangle] = {}
    done: list[Rectangle] = []
    for moment in looked:
        by, at = tuple(events.get(moment, ())), sort_key.moment(moment)
        then = Viewpoint(moment, moment, Names(aliases, moment), kinds_at(statements, moment))
        now: dict[bytes, Rectangle] = {}
        for group in groups_of(ledger, then):
            for sight in group.seen():
                fact = sight.fact()
                key = _shape(fact)
                now[key] = known.get(key) or Rectangle(fact, at, None, by)
        for key, one in known.items():
            if key not in now:
                done.append(msgspec.structs.replace(one, recorded_until=at, ended_by=by))
        known = now
    found = sorted([*done, *known.values()], key=_place)
    unseen = [sight.fact() for group in groups_of(ledger, view) for sight in group.unseen()]
    cut = []
    if len(looked) < len(moments):
        cut.append(f"only the newest {MOST_CHANGES} of {len(moments)} changes were looked at")
    if len(found) > limit:
        cut.append(f"only the first {limit} of {len(found)} rectangles are shown")
    return History(tuple(found[:limit]), tuple(unseen), "; ".join(cut))


def _shape(fact: Fact) -> bytes:
    """What makes two rectangles one: all of the fact but how it looks from one moment."""
    return msgspec.msgpack.encode(msgspec.structs.replace(fact, status="asserted"))


def _place(one: Rectangle) -> tuple[datetime, datetime, str]:
    return one.recorded_from, one.fact.valid_from, one.fact.id

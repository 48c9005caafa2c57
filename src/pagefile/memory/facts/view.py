"""Facts as a reader sees them: planes with names, aliases and kinds of predicates resolved.

Pure: from what was read to what is shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.extraction.words import MULTI as EXTRACTED
from pagefile.memory.facts.documents import Alias, Assertion, Ledger, Retraction
from pagefile.memory.facts.fact import (
    MOST_SOURCES,
    Closing,
    Fact,
    Status,
    canonical_predicate,
    normalised,
)
from pagefile.memory.facts.plane import Claim, Kind, Window, standing, windows
from pagefile.store.arguments import MOST_PER_READ, OF_TENANT
from pagefile.store.batch import Append
from pagefile.store.codec import sort_key
from pagefile.store.records import Entry
from pagefile.store.store import Store

# Names that stand for others: what a subject or object is called, and what it is.


_WORD = re.compile(r"[^\W_]+")
#: So many other names are asked for with a question, and so many words of one are compared.
_MOST_OTHERS = 100
_MOST_WORDS = 8


class Names:
    """Who is who, as known at one moment."""

    def __init__(self, aliases: Iterable[Alias], known_us: int | None = None) -> None:
        self._stands_for: dict[str, str] = {}
        for alias in aliases:
            if known_us is not None and alias.order[0] > known_us:
                continue
            name = normalised(alias.name)
            if alias.canonical is None:
                self._stands_for.pop(name, None)
            else:
                self._stands_for[name] = normalised(alias.canonical)
        self._canonical: dict[str, str] = {}
        for name in self._stands_for:
            self._resolve(name)
        self._members: dict[str, list[str]] = {}
        for name, canonical in self._canonical.items():
            self._members.setdefault(canonical, []).append(name)

    def __contains__(self, text: str) -> bool:
        """Whether this name, as written, is an alias."""
        return normalised(text) in self._stands_for

    def canonical(self, name: str) -> str:
        """What a normalised name stands for in the end."""
        return self._canonical.get(name, name)

    def _resolve(self, name: str) -> None:
        """Find out what a name stands for, and all that it leads over."""
        met: dict[str, None] = {}
        while name in self._stands_for and name not in self._canonical and name not in met:
            met[name] = None
            name = self._stands_for[name]
        if name in met:
            # Two writers at once made a ring: all in it go by the same one.
            way = list(met)
            name = min(way[way.index(name) :])
        canonical = self._canonical.get(name, name)
        self._canonical.update(dict.fromkeys(met, canonical))

    def of(self, text: str) -> str:
        """What a name as written stands for."""
        return self.canonical(normalised(text))

    def spellings(self, canonical: str) -> list[str]:
        """Every normalised name that stands for this one, itself first."""
        others = (name for name in self._members.get(canonical, ()) if name != canonical)
        return [canonical, *sorted(others)]

    def table(self) -> dict[str, str]:
        """Each alias, and what it stands for in the end."""
        return dict(sorted(self._canonical.items()))

    def widened(self, question: str) -> str:
        """The question, and behind it what those whom it names are called otherwise."""
        return f"{question} {self.others_in(question)}".rstrip()

    def others_in(self, question: str) -> str:
        """What those whom the question names are called otherwise, one after the other."""
        if not self._members:
            return ""
        asked = _words(question)
        others: dict[str, None] = {}
        for size in {len(words) for words in self._by_words}:
            for i in range(len(asked) - size + 1):
                for canonical in self._by_words.get(asked[i : i + size], ()):
                    others.update(dict.fromkeys(self.spellings(canonical)))
        known = set(asked)
        new = [name for name in others if not known.issuperset(_words(name))]
        return " ".join(new[:_MOST_OTHERS])

    @cached_property
    def _by_words(self) -> dict[tuple[str, ...], list[str]]:
        """What the words of names that stand for others, or are stood for, may mean."""
        found: dict[tuple[str, ...], list[str]] = {}
        for canonical in self._members:
            for name in self.spellings(canonical):
                if words := _words(name)[:_MOST_WORDS]:
                    found.setdefault(words, []).append(canonical)
        return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


# What was read, kept for as long as nothing in the store has changed.


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: How many are kept; beyond, all are let go.
_MOST = 256


class WhileUnchanged(Generic[Key, Value]):
    """Reads what is asked for, and not again before the next commit by anybody.

    Where a store cannot say whether something has changed, it is read each time.
    """

    def __init__(self, store: Store, read: Callable[[Key], Value]) -> None:
        self._store = store
        self._read = read
        self._kept: tuple[int | None, dict[Key, Value]] = (None, {})

    def __call__(self, key: Key) -> Value:
        # Before anything is read: whatever comes after it is found out by the next call.
        stamp = self._store._stamp()
        if stamp is None:
            return self._read(key)
        kept = self._kept
        if kept[0] != stamp:
            kept = self._kept = (stamp, {})
        value = kept[1].get(key)
        if value is None:
            value = self._read(key)
            if len(kept[1]) >= _MOST:
                kept[1].clear()
            kept[1][key] = value
        return value


# Which predicates hold one object at a time, and which hold many.


#: Stands for every predicate that nobody declared.
ANY = "*"
LOG = "fact-kinds"

_MULTI = """
    allergic_to also_known_as attended attends authored bought cares_about child_of collects
    colleague_of cooks created discussed dislikes enjoys friend_of friends_with has_access_to
    has_allergy has_brother has_child has_daughter has_friend has_goal has_hobby has_interest
    has_parent has_pet has_sibling has_sister has_skill has_son has_tag has_visited hates
    interested_in is_a knows knows_about likes listens_to loves made member_of mentioned met
    needs owns parent_of participated_in plans_to plays purchased read reads recommended
    related_to sibling_of speaks studied studied_at supports takes tried uses visited
    volunteers_at wants wants_to watched watches worked_at worked_on works_on works_with wrote
"""
#: Predicates that hold many objects at a time without being declared.
MULTI = frozenset(_MULTI.split()) | EXTRACTED

#: When it was declared, of which predicate, and what.
Statement = tuple[int, str, Kind]


class PredicateKinds:
    """What was declared about predicates, for all users of the tenant, and durably.

    Those in `MULTI` hold many objects without being declared. Any other holds
    one, unless `declare("*", "multi")` says otherwise. Declarations have a
    recorded time of their own: as known before one, it does not count.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told = WhileUnchanged[str, list[Statement]](store, self._read)

    def declare(self, predicate: str, kind: Kind, *, actor: str = "") -> None:
        """Say how many objects a predicate holds at a time: "single" or "multi".

        What is declared already is not stored again.
        """
        name = ANY if predicate == ANY else canonical_predicate(predicate)
        if kind not in get_args(Kind):
            raise Invalid("kind", shown(kind), f"use one of {', '.join(get_args(Kind))}")
        if self.declared().declared.get(name) == kind:
            return
        value = {"predicate": name, "kind": kind}
        self._store.append(Append(LOG, value, user=OF_TENANT, kind="fact-kind", actor=actor))

    def declared(self, known_us: int | None = None) -> Kinds:
        """What counts now, or counted then."""
        return kinds_at(self.statements(), known_us)

    def statements(self) -> Sequence[Statement]:
        """All that was ever declared, in order."""
        return self._told(LOG)

    def _read(self, log: str) -> list[Statement]:
        found: list[Statement] = []
        start = 0
        while True:
            entries = self._store.read(log, start, limit=MOST_PER_READ)
            found += [
                (entry.time_us, value["predicate"], value["kind"])
                for entry in entries
                if (value := _declaration(entry)) is not None
            ]
            if len(entries) < MOST_PER_READ:
                return found
            start = entries[-1].index + 1

    def kind(self, predicate: str) -> Kind:
        """How many objects this predicate holds now."""
        return self.declared().of(canonical_predicate(predicate))


def _declaration(entry: Entry) -> Mapping[str, Any] | None:
    """What an entry declares; one that is erased, or says something else, declares nothing."""
    value = None if entry.erased else entry.value
    if not isinstance(value, dict) or entry.user != OF_TENANT:
        return None
    is_one = isinstance(value.get("predicate"), str) and value.get("kind") in get_args(Kind)
    return value if is_one else None


class Kinds(msgspec.Struct, frozen=True):
    """Declarations as they stood at one moment."""

    declared: dict[str, Kind]

    def of(self, predicate: str) -> Kind:
        """The kind of a canonical predicate."""
        if predicate in self.declared:
            return self.declared[predicate]
        return "multi" if predicate in MULTI else self.declared.get(ANY, "single")


def kinds_at(statements: Iterable[Statement], known_us: int | None) -> Kinds:
    """What the statements recorded up to a moment say; all of them when None."""
    told = (each for each in statements if known_us is None or each[0] <= known_us)
    return Kinds({predicate: kind for _, predicate, kind in told})


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


# The whole plane of one subject and predicate, and the story of one fact on it.


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

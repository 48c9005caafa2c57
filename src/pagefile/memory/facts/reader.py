"""Reading facts: by their parts, by words, at a valid time, as known at a recorded time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from heapq import nsmallest
from typing import get_args

from pagefile.errors import Invalid, NotFound, shown
from pagefile.memory.documents import owner_key
from pagefile.memory.facts.documents import (
    ASSERTION,
    BY_OBJECT,
    BY_PREDICATE,
    BY_SUBJECT,
    FACTS,
    Assertion,
    Ledger,
    aliases_of,
    assertion_in,
    document_of,
    key_of,
    ledger_of,
)
from pagefile.memory.facts.fact import (
    Fact,
    How,
    Status,
    canonical_predicate,
    moment_us,
    require_text,
)
from pagefile.memory.facts.view import (
    Group,
    History,
    Names,
    PredicateKinds,
    Sight,
    Story,
    Viewpoint,
    WhileUnchanged,
    active,
    groups_of,
    history_of,
    story_of,
)
from pagefile.memory.items.change import MOST_ID_BYTES, require_name_or_none
from pagefile.memory.items.reader import bm25
from pagefile.store import clock
from pagefile.store.arguments import MOST_PER_READ, Naming, bounded, require_flag
from pagefile.store.batch import Query
from pagefile.store.records import Document
from pagefile.store.store import Store

# What has to be read of a store to see certain facts: no more than they depend on.


#: How often reading goes on after the first predicate that would have to be read in part.
_ROUNDS = 3
#: So many records take about as long to read as one more question to the store.
_FEW = 20


class Ledgers:
    """Reads assertions and retractions; subjects, predicates and objects are canonical."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(
        self,
        view: Viewpoint,
        user_id: str | None,
        subject: str | None = None,
        predicate: str | None = None,
        object_: str | None = None,
    ) -> Ledger:
        """All that is needed to see the facts that have these parts."""
        if subject is None and object_ is not None:
            return self.pointing(view, user_id, object_, predicate=predicate)[0]
        if subject is None:
            return ledger_of(self._store, Query(BY_PREDICATE, predicate, user=user_id))[0]
        ledger = Ledger({}, {})
        for spelling in view.names.spellings(subject):
            key = key_of(spelling)
            if predicate is None:
                query = Query(BY_SUBJECT, (key,), prefix=True, user=user_id)
            else:
                query = Query(BY_SUBJECT, (key, predicate), user=user_id)
            ledger.take(ledger_of(self._store, query)[0])
        return ledger

    def supporting(
        self,
        view: Viewpoint,
        user_id: str | None,
        plane: tuple[str, str],
        objects: Collection[str],
    ) -> Ledger:
        """What is needed to see the facts of a subject and predicate with one of these objects."""
        subject, predicate = plane
        if view.kinds.of(predicate) == "multi":
            few = _FEW * (len(objects) + 1)
            ledger, cut = self._some(view, user_id, plane, few)
            if not cut:
                return ledger
            # Where a predicate holds many, its objects have nothing to do with one another.
            ledger = Ledger({}, {})
            for object_ in sorted(objects):
                some = self.pointing(view, user_id, object_, predicate=predicate)[0]
                some.assertions = {
                    name: each
                    for name, each in some.assertions.items()
                    if view.names.canonical(each.subject) == subject
                }
                ledger.take(some)
            return ledger
        return self.read(view, user_id, subject, predicate)

    def _some(
        self, view: Viewpoint, user_id: str | None, plane: tuple[str, str], most: int
    ) -> tuple[Ledger, bool]:
        """A plane of at most so many records; True when it has more."""
        subject, predicate = plane
        ledger = Ledger({}, {})
        for spelling in view.names.spellings(subject):
            query = Query(BY_SUBJECT, (key_of(spelling), predicate), user=user_id)
            found, more = ledger_of(self._store, query, most)
            if more:
                return found, True
            ledger.take(found)
        return ledger, False

    def leaving(
        self, view: Viewpoint, user_id: str | None, subject: str, most: int
    ) -> tuple[Ledger, list[str]]:
        """What is needed to see the facts of a subject, and in words what was left out.

        Of a predicate with more than `most` records that holds many objects,
        the newest are read.
        """
        ledger, cut = Ledger({}, {}), dict[str, None]()
        for spelling in view.names.spellings(subject):
            key, after = key_of(spelling), ""
            for _ in range(_ROUNDS):
                # Bytes sort after every text.
                query = Query(BY_SUBJECT, low=(key, after), high=(key, b""), user=user_id)
                found, more = ledger_of(self._store, query, most)
                if not more:
                    ledger.take(found)
                    break
                # They come by predicate, and part of the last one could say too much.
                last = max((e.stored.predicate for e in found.assertions.values()), default="")
                found.assertions = {
                    name: each
                    for name, each in found.assertions.items()
                    if each.stored.predicate != last
                }
                ledger.take(found)
                if view.kinds.of(last) == "single":
                    # Which object holds depends on all that was ever said.
                    ledger.take(self.read(view, user_id, subject, last))
                else:
                    # A retraction is newer than what it takes away, so none of theirs is missed.
                    query = Query(BY_SUBJECT, (key, last), user=user_id, reverse=True)
                    newest, more = ledger_of(self._store, query, most)
                    ledger.take(newest)
                    if more:
                        cut[f"only the newest of {last!r} were read"] = None
                # No predicate has a space in it, so this is where the next one may begin.
                after = f"{last} "
            else:
                cut["not all of its predicates were read"] = None
        return ledger, list(cut)

    def pointing(
        self,
        view: Viewpoint,
        user_id: str | None,
        object_: str,
        most: int | None = None,
        predicate: str | None = None,
    ) -> tuple[Ledger, bool]:
        """What is needed to see the facts with an object; True when `most` records were not all.

        The newest are read. Facts of other objects are among them.
        """
        found, cut = Ledger({}, {}), False
        for spelling in view.names.spellings(object_):
            query = Query(BY_OBJECT, key_of(spelling), user=user_id, reverse=True)
            some, more = ledger_of(self._store, query, most)
            found.take(some)
            cut = cut or more
        if predicate is not None:
            found.assertions = {
                name: each
                for name, each in found.assertions.items()
                if each.stored.predicate == predicate
            }
        planes = {
            (view.names.canonical(each.subject), each.stored.predicate)
            for each in found.assertions.values()
            # Where a predicate holds many, its objects have nothing to do with one another.
            if cut or view.kinds.of(each.stored.predicate) == "single"
        }
        for plane in sorted(planes):
            found.take(self.read(view, user_id, *plane))
        return found, cut


# Which facts share words with a query, best first.


_WORD = re.compile(r"[^\W_]+")
#: Words that are in every question and say nothing about its answer.
_EMPTY = """
    a about am an and any are as at be been being but by can could did do does for from had has
    have he her him his how i if in into is it its me my no not of on or our she should so some
    tell than that the their them then there these they this those to us was we were what when
    where which who whom whose why will with would you your
"""
_STOP = frozenset(_EMPTY.split())


def words(text: str) -> list[str]:
    """The words of a text, whatever their case and form, without those that say nothing."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word for word in _WORD.findall(folded) if word not in _STOP]


def ranked(query: str, sights: Sequence[Sight], limit: int) -> list[Sight]:
    """Those that share a word with the query; equal ones newest first, then by id.

    A query without a word that says something finds the newest.
    """
    wanted = words(query)
    newest = sorted(sights, key=lambda sight: sight.order)
    if not wanted:
        return newest[:limit]
    scores: dict[int, float] = {}
    for i, score in enumerate(bm25(wanted, [words(sight.text) for sight in newest])):
        if score:
            # Doubtful facts come after sure ones that match as well.
            window = newest[i].window
            sure = newest[i].assertion.stored.confidence if window is None else window.confidence
            scores[i] = score * (0.5 + 0.5 * sure)
    best = sorted(scores, key=lambda i: (-scores[i], i))
    return [newest[i] for i in best[:limit]]


MOST_QUERY = 10_000
MOST_IDS = 1_000
_IDS = Naming(512)
#: Whose names, and as known when.
_Asked = tuple[str | None, int | None]


def machine_clock() -> int:
    """Microseconds since 1970 UTC."""
    return clock.now_us()


class FactReader:
    """What is known, for one user at a time; None is the bucket of no user.

    Every method that takes `valid_at` and `known_at` means the same by them.
    `known_at` is when one looks from: what was recorded later does not count.
    None is now. `valid_at` is when one looks at; None is the moment one looks
    from, that is `known_at` if it is given, else now.
    """

    def __init__(self, store: Store, clock: Callable[[], int] = machine_clock) -> None:
        self._store = store
        self._clock = clock
        self._ledgers = Ledgers(store)
        self._names_at = WhileUnchanged[_Asked, Names](store, self._read_names)
        self.kinds = PredicateKinds(store)

    def query(
        self,
        *,
        subject: str | None = None,
        predicate: str | None = None,
        object_: str | None = None,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        limit: int = 10,
        user_id: str | None = None,
        history: bool = False,
        status: Status | None = None,
    ) -> list[Fact]:
        """Facts that match all the given parts, recorded last first, then by id.

        Only those that hold at `valid_at`, unless `history=True`, which shows
        every window, or a `status`, which shows those that have it, assertions
        that hold at no time included.
        """
        limit = bounded(limit)
        choice = _Choice(history, status)
        view = self.viewpoint(valid_at, known_at, user_id)
        parts = _parts(view.names, subject, predicate, object_)
        groups = groups_of(self._ledgers.read(view, user_id, *parts), view)
        found = [
            sight
            for group in groups
            for sight in choice.of(group)
            if parts[2] in (None, sight.object)
        ]
        newest = nsmallest(limit, found, key=lambda sight: sight.order)
        return [sight.fact() for sight in newest]

    def recall_text(
        self,
        query: str,
        *,
        limit: int = 5,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        history: bool = False,
    ) -> list[Fact]:
        """Facts that share a word with `query`, best first; equal ones newest first, then by id.

        Whom the query names is looked for under all names. A query without a
        word that says something finds the newest. Reads all facts of the user.
        """
        if type(query) is not str or len(query) > MOST_QUERY:
            raise Invalid("query", shown(query), f"give text of at most {MOST_QUERY} characters")
        require_flag("history", history)
        limit = bounded(limit)
        view = self.viewpoint(valid_at, known_at, user_id)
        ledger = self._ledgers.read(view, user_id)
        groups = groups_of(ledger, view)
        sights = [s for group in groups for s in group.seen()] if history else active(groups)
        return [sight.fact() for sight in ranked(view.names.widened(query), sights, limit)]

    def holding(
        self,
        fact_ids: Sequence[str],
        *,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
        history: bool = False,
        status: Status | None = None,
    ) -> list[Fact]:
        """The facts that these assertions support, each once, in the order of the ids.

        For who finds assertions by other means, such as an index of words. Ids
        that this user does not have, or that hold at no such time, give nothing;
        `history` and `status` choose as in `query`. Reads the planes of these
        assertions only; where a predicate holds many objects and there are many,
        only what is said of the same objects.
        """
        choice = _Choice(history, status)
        if not isinstance(fact_ids, (list, tuple)) or len(fact_ids) > MOST_IDS:
            raise Invalid("fact_ids", shown(fact_ids), f"give a list of at most {MOST_IDS} ids")
        for fact_id in fact_ids:
            if type(fact_id) is not str:
                raise Invalid("fact_ids", f"{shown(fact_id)} is no id", "give ids of facts")
        view = self.viewpoint(valid_at, known_at, user_id)
        planes: dict[tuple[str, str], set[str]] = {}
        for found in self._assertions_of(fact_ids, user_id):
            plane = view.names.canonical(found.subject), found.stored.predicate
            planes.setdefault(plane, set()).add(view.names.canonical(found.object))
        by_id: dict[str, list[Sight]] = {}
        for plane, objects in planes.items():
            ledger = self._ledgers.supporting(view, user_id, plane, objects)
            for group in groups_of(ledger, view):
                for sight in choice.of(group):
                    for name in sight.claims:
                        by_id.setdefault(name, []).append(sight)
        each_once: dict[tuple[str, int], Sight] = {}
        for sight in (sight for fact_id in fact_ids for sight in by_id.get(fact_id, ())):
            each_once.setdefault((sight.assertion.id, sight.start), sight)
        return [sight.fact() for sight in each_once.values()]

    def history(
        self,
        subject: str,
        predicate: str,
        *,
        user_id: str | None = None,
        limit: int = 1_000,
    ) -> History:
        """The whole plane of a subject and predicate: every rectangle, with its links.

        In the order in which they were recorded. Only the newest 500 changes of
        belief are looked at; `cut` says when there were more.
        """
        limit = bounded(limit)
        require_text("subject", subject)
        name = canonical_predicate(predicate)
        view = self.viewpoint(None, None, user_id)
        canonical = view.names.of(subject)
        ledger = self._ledgers.read(view, user_id, canonical, name)
        aliases = aliases_of(self._store, user_id)
        return history_of(ledger, view, aliases, self.kinds.statements(), limit)

    def why(
        self, fact_id: str, *, user_id: str | None = None, known_at: datetime | None = None
    ) -> Story:
        """Where a fact comes from and what became of it.

        Raises:
            NotFound: this user has no assertion of that id, or had none by then.
        """
        view = self.viewpoint(None, known_at, user_id)
        group = self.group_of(self.assertion(fact_id, user_id=user_id), view)
        if fact_id not in group.assertions:
            raise _unknown(fact_id)
        return story_of(group, fact_id)

    def assertion(self, fact_id: str, *, user_id: str | None = None) -> Assertion:
        """An assertion as it was made.

        Raises:
            NotFound: this user has none of that id.
        """
        found = self._assertion(fact_id, user_id)
        if found is None:
            raise _unknown(fact_id)
        return found

    def aliases(
        self, *, user_id: str | None = None, known_at: datetime | None = None
    ) -> dict[str, str]:
        """Every alias, normalised, and what it stands for."""
        return self.viewpoint(None, known_at, user_id).names.table()

    def all_facts(self) -> list[Fact]:
        """Every assertion of every user of the tenant, as it was made; for operators."""
        return [assertion.fact() for assertion in self._everything(FACTS)]

    def count(self, *, user_id: str | None = None) -> int:
        """How many assertions of this user are stored, whether or not they hold."""
        require_name_or_none("user_id", user_id)
        return sum(1 for _ in self._names(f"{FACTS}{owner_key(user_id)}/"))

    def count_holding(self, *, user_id: str | None = None) -> int:
        """How many facts of this user hold now, each once; reads all of the user's."""
        view = self.viewpoint(None, None, user_id)
        return len(active(groups_of(self._ledgers.read(view, user_id), view)))

    def overview(self, *, user_id: str | None = None, limit: int = 10) -> tuple[int, list[Fact]]:
        """How many facts hold now, and those recorded last; reads all of the user's once."""
        view = self.viewpoint(None, None, user_id)
        found = active(groups_of(self._ledgers.read(view, user_id), view))
        newest = nsmallest(bounded(limit), found, key=lambda sight: sight.order)
        return len(found), [sight.fact() for sight in newest]

    # For those who build on facts

    def viewpoint(
        self, valid_at: datetime | None, known_at: datetime | None, user_id: str | None
    ) -> Viewpoint:
        """From when and at when to look, with names and kinds as they were known."""
        require_name_or_none("user_id", user_id)
        known = None if known_at is None else moment_us("known_at", known_at)
        if valid_at is not None:
            valid = moment_us("valid_at", valid_at)
        else:
            valid = self._clock() if known is None else known
        names = self._names_at((user_id, known))
        return Viewpoint(known, valid, names, self.kinds.declared(known))

    def group_of(self, assertion: Assertion, view: Viewpoint) -> Group:
        """The plane in which an assertion stands.

        Raises:
            NotFound: it was erased since it was read.
        """
        subject, predicate = view.names.canonical(assertion.subject), assertion.stored.predicate
        ledger = self._ledgers.read(view, assertion.user_id, subject, predicate)
        if assertion.id not in ledger.assertions:
            raise _unknown(assertion.id)
        return next(iter(groups_of(ledger, view)))

    def facts_from(
        self, name: str, user_id: str | None, view: Viewpoint, most: int
    ) -> tuple[list[Sight], list[str]]:
        """Active facts with this canonical subject, and in words what `most` records left out."""
        ledger, cut = self._ledgers.leaving(view, user_id, name, most)
        return active(groups_of(ledger, view)), cut

    def facts_to(
        self, name: str, user_id: str | None, view: Viewpoint, most: int
    ) -> tuple[list[Sight], bool]:
        """Active facts with this canonical object; True when `most` records were not all."""
        ledger, cut = self._ledgers.pointing(view, user_id, name, most)
        sights = active(groups_of(ledger, view))
        return [sight for sight in sights if sight.object == name], cut

    # Inside

    def _read_names(self, asked: _Asked) -> Names:
        user_id, known = asked
        return Names(aliases_of(self._store, user_id), known)

    def _assertion(self, fact_id: str, user_id: str | None) -> Assertion | None:
        require_name_or_none("user_id", user_id)
        return next(iter(self._assertions_of([fact_id], user_id)), None)

    def _assertions_of(self, fact_ids: Iterable[str], user_id: str | None) -> list[Assertion]:
        """Those that this user has, each once."""
        names = []
        for fact_id in dict.fromkeys(fact_ids):
            _IDS.check_text("fact_id", fact_id)
            if len(fact_id.encode()) <= MOST_ID_BYTES:
                names.append(document_of(user_id, fact_id))
        found = self._store.get_many(names)
        return [assertion_in(each) for each in found if each is not None and not each.erased]

    def _everything(self, prefix: str) -> list[Assertion]:
        found = []
        for name in self._names(prefix):
            document = self._store.get(name)
            if isinstance(document, Document) and not document.erased:
                assert document.kind == ASSERTION
                found.append(assertion_in(document))
        return sorted(found, key=lambda assertion: assertion.order)

    def _names(self, prefix: str) -> Iterator[str]:
        after = ""
        while page := self._store.names(
            "document", prefix=prefix, after=after, limit=MOST_PER_READ
        ):
            yield from page
            after = page[-1]


class _Choice:
    """Which facts of a plane are wanted."""

    def __init__(self, history: bool, status: Status | None) -> None:
        require_flag("history", history)
        if status is not None and status not in get_args(Status)[1:]:
            words = ", ".join(get_args(Status)[1:])
            raise Invalid("status", shown(status), f"use one of {words}, or None")
        self._history = history
        self._status = status

    def of(self, group: Group) -> list[Sight]:
        """Those that hold, all that ever did, or those of one status, seen at any time or not."""
        if self._history and self._status is None:
            return group.seen()
        sights = group.seen()
        if self._status in get_args(How):
            sights += group.unseen()
        wanted = self._status or "active"
        return [sight for sight in sights if sight.status == wanted]


def _parts(
    names: Names, subject: str | None, predicate: str | None, object_: str | None
) -> tuple[str | None, str | None, str | None]:
    return (
        None if subject is None else names.of(require_text("subject", subject)),
        None if predicate is None else canonical_predicate(predicate),
        None if object_ is None else names.of(require_text("object_", object_)),
    )


def _unknown(fact_id: str) -> NotFound:
    return NotFound(
        f"there is no fact {shown(fact_id)} of this user", "give the user_id it was asserted for"
    )

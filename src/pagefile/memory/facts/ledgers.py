"""What has to be read of a store to see certain facts: no more than they depend on."""

from __future__ import annotations

from collections.abc import Collection

from pagefile.memory.facts.documents import (
    BY_OBJECT,
    BY_PREDICATE,
    BY_SUBJECT,
    Ledger,
    key_of,
    ledger_of,
)
from pagefile.memory.facts.view import Viewpoint
from pagefile.store.batch import Query
from pagefile.store.store import Store

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

"""Which predicates hold one object at a time, and which hold many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.extraction.predicates import MULTI as EXTRACTED
from pagefile.memory.facts.fact import canonical_predicate
from pagefile.memory.facts.plane import Kind
from pagefile.memory.owner import OF_TENANT
from pagefile.memory.read_cache import WhileUnchanged
from pagefile.store.batch import Append
from pagefile.store.bounds import MOST_PER_READ
from pagefile.store.records import Entry
from pagefile.store.store import Store

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

"""All facts of a user: listed, erased, exported, restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pagefile.errors import Conflict, Invalid, shown
from pagefile.memory.facts.commits import FactCommits
from pagefile.memory.facts.documents import (
    ALIAS,
    BY_PREDICATE,
    RETRACTION,
    Assertion,
    aliases_of,
    assertion_in,
    document_of,
    ledger_of,
    require_same,
)
from pagefile.memory.facts.export_lines import line_of, lines_of, puts_of
from pagefile.memory.facts.fact import Fact, moment_us
from pagefile.memory.facts.reader import FactReader
from pagefile.memory.items.change import require_name_or_none
from pagefile.memory.owner import owner_key
from pagefile.store.batch import Absent, Put, Query
from pagefile.store.store import Store

_CHUNK = 500


class FactKeeper(FactReader):
    """The part of `FactStore` that keeps a user's facts as a whole."""

    def __init__(self, store: Store, commits: FactCommits, clock: Callable[[], int]) -> None:
        super().__init__(store, clock)
        self._commits = commits

    def derived_from(self, sources: Iterable[str], *, user_id: str | None = None) -> list[Fact]:
        """The user's assertions that name one of these slots or episodes as a source."""
        wanted = _ids("sources", sources)
        return [
            each.fact()
            for each in self._assertions(require_name_or_none("user_id", user_id))
            if wanted.intersection(each.sources)
        ]

    def assertions(self, *, user_id: str | None = None) -> list[Fact]:
        """Every assertion of a user as it was made, in the order they were recorded."""
        return [each.fact() for each in self._assertions(require_name_or_none("user_id", user_id))]

    def documents_of(self, fact_ids: Iterable[str], *, user_id: str | None = None) -> list[str]:
        """The documents that these assertions and their retractions are."""
        wanted = _ids("fact_ids", fact_ids)
        if not wanted:
            return []
        ledger, _ = ledger_of(self._store, Query(BY_PREDICATE, user=user_id))
        documents = [document_of(user_id, name) for name in ledger.assertions if name in wanted]
        for name, each in ledger.retractions.items():
            if each.target in wanted:
                documents.append(f"{RETRACTION}/{owner_key(user_id)}/{name}")
        return documents

    def delete(self, *, user_id: str | None = None, before: datetime | None = None) -> int:
        """Erase the user's assertions for good, recorded before a moment or all; how many.

        Their retractions go with them, and with the last assertion the aliases
        that were recorded before. All in one commit.
        """
        require_name_or_none("user_id", user_id)
        before_us = None if before is None else moment_us("before", before)
        ledger, _ = ledger_of(self._store, Query(BY_PREDICATE, user=user_id))
        gone = {
            name: document_of(user_id, name)
            for name, each in ledger.assertions.items()
            if before_us is None or each.order[0] < before_us
        }
        owner = owner_key(user_id)
        documents = [*gone.values()]
        for name, each in ledger.retractions.items():
            if each.target in gone or each.target not in ledger.assertions:
                documents.append(f"{RETRACTION}/{owner}/{name}")
        if len(gone) == len(ledger.assertions):
            for alias in aliases_of(self._store, user_id):
                if before_us is None or alias.order[0] < before_us:
                    documents.append(f"{ALIAS}/{owner}/{alias.id}")
        self._commits.erase(user_id, documents)
        return len(gone)

    def export(self, *, user_id: str | None = None) -> Iterator[dict[str, Any]]:
        """All that this user's facts are computed from, in the order it was recorded.

        Plain values that JSON has; `restore` takes them.
        """
        require_name_or_none("user_id", user_id)
        ledger, _ = ledger_of(self._store, Query(BY_PREDICATE, user=user_id))
        yield from lines_of(ledger, aliases_of(self._store, user_id))

    def restore(self, lines: Iterable[Mapping[str, Any]], *, user_id: str | None = None) -> int:
        """Bring in what `export` gave, with its ids and recorded times; how much was new.

        What is there already is left as it is. Many commits: after a failure,
        restore again.

        Raises:
            Conflict: an assertion that is there says something else.
        """
        require_name_or_none("user_id", user_id)
        if not isinstance(lines, Iterable):
            raise Invalid("lines", f"{shown(lines)} is no list", "give what `export` gave")
        read = [line_of(line, f"lines[{i}]") for i, line in enumerate(lines)]
        pairs = list(puts_of(read, user_id))
        chunks = (pairs[at : at + _CHUNK] for at in range(0, len(pairs), _CHUNK))
        return sum(self._restored(chunk) for chunk in chunks)

    # Inside

    def _restored(self, pairs: Sequence[tuple[Put, Fact | None]]) -> int:
        """Store what is not there yet; how much that was."""
        facts = [fact for _, fact in pairs if fact is not None]
        conditions = [Absent(put.document) for put, _ in pairs]
        try:
            self._commits.commit([put for put, _ in pairs], conditions, facts)
        except Conflict:
            if len(pairs) > 1:  # Some of them are there: find out which.
                half = len(pairs) // 2
                return self._restored(pairs[:half]) + self._restored(pairs[half:])
            if facts and not self._is_stored(facts[0]):
                raise  # Another condition than ours, or erased meanwhile.
            return 0
        return len(pairs)

    def _is_stored(self, fact: Fact) -> bool:
        found = self._store.get(document_of(fact.user_id, fact.id))
        if found is None or found.erased:
            return False
        require_same(assertion_in(found), fact, found)
        return True

    def _assertions(self, user_id: str | None) -> list[Assertion]:
        ledger, _ = ledger_of(self._store, Query(BY_PREDICATE, user=user_id))
        return sorted(ledger.assertions.values(), key=lambda each: each.order)


def _ids(field: str, given: Iterable[str]) -> set[str]:
    """Ids of any collection; a text is not one."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise Invalid(field, f"{shown(given)} is no list of ids", "give a list")
    found = list(given)
    for each in found:
        if type(each) is not str:
            raise Invalid(field, f"{shown(each)} is no id", "give texts")
    return set(found)

"""All facts of a user: listed, erased, exported, restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pagefile.errors import Conflict, Corrupt, Invalid, shown
from pagefile.memory.documents import owner_key
from pagefile.memory.facts.documents import (
    ALIAS,
    BY_PREDICATE,
    RETRACTION,
    Alias,
    Assertion,
    FactCommits,
    Ledger,
    Retraction,
    alias_put,
    aliases_of,
    assertion_in,
    assertion_put,
    document_of,
    documents_under,
    ledger_of,
    require_same,
    retraction_in,
    retraction_put,
)
from pagefile.memory.facts.fact import Fact, moment_us, require_actor, require_reason, require_text
from pagefile.memory.facts.reader import FactReader
from pagefile.memory.items.change import require_name_or_none
from pagefile.store.batch import Absent, Put, Query
from pagefile.store.codec import sort_key
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document
from pagefile.store.store import Store

# Assertions, retractions and aliases as lines of an export, and back.


class AssertionLine(msgspec.Struct, frozen=True, tag="assertion", tag_field="record"):
    """A fact as it was asserted, and when."""

    id: str
    subject: str
    predicate: str
    object: str
    confidence: float
    valid_from: datetime
    valid_until: datetime | None
    recorded_at: datetime
    sources: list[str]
    reason: str
    actor: str


class RetractionLine(msgspec.Struct, frozen=True, tag="retraction", tag_field="record"):
    """What took an assertion away; it stands after that in an export."""

    id: str
    target: str
    since: datetime | None
    recorded_at: datetime
    reason: str
    actor: str


class AliasLine(msgspec.Struct, frozen=True, tag="alias", tag_field="record"):
    """That a name stood for another from then on, or for itself again."""

    id: str
    name: str
    canonical: str | None
    recorded_at: datetime
    actor: str


Line = AssertionLine | RetractionLine | AliasLine


def lines_of(ledger: Ledger, aliases: Sequence[Alias]) -> Iterator[dict[str, Any]]:
    """Everything that was recorded, in order."""
    found: list[tuple[tuple[int, int, int, str], Line]] = []
    for each in ledger.assertions.values():
        fact = msgspec.structs.asdict(each.fact())
        fields = {name: fact[name] for name in AssertionLine.__struct_fields__}
        fields["sources"] = list(each.sources)
        found.append((each.order, AssertionLine(**fields)))
    for retraction in ledger.retractions.values():
        since = retraction.since_us
        line = RetractionLine(
            retraction.id,
            retraction.target,
            None if since is None else sort_key.moment(since),
            sort_key.moment(retraction.order[0]),
            retraction.reason,
            retraction.actor,
        )
        found.append((retraction.order, line))
    for alias in aliases:
        at = sort_key.moment(alias.order[0])
        said = AliasLine(alias.id, alias.name, alias.canonical, at, alias.actor)
        found.append((alias.order, said))
    for _, one in sorted(found, key=lambda pair: pair[0]):
        yield msgspec.to_builtins(one)


def line_of(line: object, at: str) -> Line:
    """A line that was read, checked.

    Raises:
        Invalid: names the line and what is wrong with it.
    """
    if not isinstance(line, Mapping):
        raise Invalid(at, f"{shown(line)} is no mapping", "give the lines of an export")
    try:
        return convert(dict(line), Line)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise Invalid(at, str(error), "give the lines of an export unchanged") from None


def puts_of(lines: Sequence[Line], user_id: str | None) -> Iterator[tuple[Put, Fact | None]]:
    """What stores each line for this user, and the fact if it is an assertion."""
    facts: dict[str, Fact] = {}
    for place, line in enumerate(lines):
        if isinstance(line, AssertionLine):
            fact = Fact(user_id=user_id, **msgspec.structs.asdict(line))
            facts[fact.id] = fact
            yield assertion_put(fact, place), fact
        elif isinstance(line, RetractionLine):
            yield _retraction(line, facts, place), None
        else:
            require_text("name", line.name)
            if line.canonical is not None:
                require_text("canonical", line.canonical)
            require_actor(line.actor)
            at = moment_us("recorded_at", line.recorded_at)
            said = user_id, line.name, line.canonical, line.actor
            yield alias_put(*said, place=place, alias_id=line.id, recorded_us=at), None


def _retraction(line: RetractionLine, facts: dict[str, Fact], place: int) -> Put:
    require_reason(line.reason)
    require_actor(line.actor)
    fact = facts.get(line.target)
    if fact is None:
        raise Invalid("target", f"{shown(line.target)} is not in the export", "give all of it")
    return retraction_put(
        fact,
        place=place,
        since_us=None if line.since is None else moment_us("since", line.since),
        reason=line.reason,
        actor=line.actor,
        retraction_id=line.id,
        recorded_us=moment_us("recorded_at", line.recorded_at),
    )


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


# Facts as far as they can be read: for who erases, and must not be stopped by what is odd.


class Readable(msgspec.Struct, frozen=True):
    """What a user asserted and retracted, as far as it can be read, and what cannot."""

    facts: tuple[Fact, ...]
    retractions: tuple[Retraction, ...]
    odd: tuple[Document, ...]


def readable(store: Store, user_id: str | None) -> Readable:
    """All of a user's; a document that is no fact keeps nobody from the others."""
    found: list[Assertion] = []
    facts: dict[str, Fact] = {}
    retractions: list[Retraction] = []
    odd: list[Document] = []
    for document in documents_under(store, Query(BY_PREDICATE, user=user_id), None):
        assert document is not None
        try:
            if document.kind == RETRACTION:
                retractions.append(retraction_in(document))
            else:
                assertion = assertion_in(document)
                facts[assertion.id] = assertion.fact()
                found.append(assertion)
        except (Corrupt, Invalid, OverflowError):
            odd.append(document)
    ordered = tuple(facts[each.id] for each in sorted(found, key=lambda each: each.order))
    return Readable(ordered, tuple(retractions), tuple(odd))

"""Facts in a store: asserted, retracted, never edited; windows are computed on reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

from pagefile.batch import Absent, Batch, Condition, CountBelow, Operation, Put, Selector
from pagefile.context.backend import Backend, store_behind
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, shown
from pagefile.memory.change import require_name_or_none
from pagefile.memory.fact import (
    Fact,
    moment_us,
    require_actor,
    require_reason,
    require_text,
)
from pagefile.memory.fact_documents import (
    ALIAS,
    BY_ALIAS,
    BY_PREDICATE,
    RETRACTION,
    Assertion,
    alias_put,
    aliases_of,
    assertion_in,
    assertions_of,
    document_of,
    ledger_of,
    require_same,
    retraction_put,
)
from pagefile.memory.fact_kinds import PredicateKinds
from pagefile.memory.fact_lines import line_of, lines_of, puts_of
from pagefile.memory.fact_names import Names
from pagefile.memory.fact_reader import FactReader, machine_clock
from pagefile.memory.owner import owner_key
from pagefile.memory.plane import Kind
from pagefile.naming import require_callable, require_flag, require_type
from pagefile.query import Query

__all__ = ["Beside", "FactStore", "PredicateKinds", "assertions_of"]

MOST_AT_ONCE = 2_000
MOST_ALIASES = 10_000
#: How often a commit is tried again after what stands beside it has changed.
_ATTEMPTS = 100
_CHUNK = 500


class Beside(Protocol):
    """What else belongs in the commit of facts: a search index, say, that is to be in step."""

    def beside(self, facts: Sequence[Fact]) -> tuple[Sequence[Operation], Sequence[Condition]]:
        """Further operations and conditions for facts that are asserted, or taken away."""
        ...

    def erasure(
        self, user_id: str | None, documents: Sequence[str]
    ) -> tuple[Sequence[Selector], Sequence[Operation], Sequence[Condition]]:
        """What else to erase with these documents, and what goes beside that."""
        ...

    def settles(self, conflict: Conflict, facts: Sequence[Fact]) -> bool:
        """Whether the conflict was about these, and trying again makes sense."""
        ...


class FactStore(FactReader):
    """What is known about whom, when it was true, and when that was learnt.

    Assertions and retractions are documents of their own, in the partition of
    the user they are about, and never change. What holds when is computed on
    reading, by the rules of `plane.py`. So writers never conflict, a late
    arrival closes nothing it should not, a retraction re-opens what the
    retracted had closed, and every past answer can be had again.

    `backend` is a store, a handle or a URL; None is a private `memory:`.
    `beside` is asked with the facts of each commit for further operations
    and conditions of it: facts that are asserted have status "asserted", facts
    that are taken away have "retracted", or "ended" when only from a moment on.
    `clock` says what "now" is in questions. Nothing is kept in this object.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        beside: Beside | None = None,
        clock: Callable[[], int] = machine_clock,
    ) -> None:
        if beside is not None:
            require_callable("beside", getattr(beside, "beside", None))
        require_callable("clock", clock)
        store, self._close = store_behind(backend)
        super().__init__(store, clock)
        self._beside = beside

    def close(self) -> None:
        """Close the store if this opened it; one that was handed in stays open."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Asserting

    def append(self, fact: Fact) -> str:
        """Assert a fact; its id. The same again under the same id changes nothing.

        Raises:
            Conflict: the id is taken by an assertion that says something else.
        """
        return self.append_many([fact])[0]

    def append_many(self, facts: Sequence[Fact]) -> list[str]:
        """Assert facts in one commit, in order: all of them or none; their ids.

        Raises:
            Conflict: an id is taken by an assertion that says something else.
            LimitExceeded: there are more than 2,000.
        """
        if not isinstance(facts, (list, tuple)):
            raise Invalid("facts", f"{shown(facts)} is no list", "give a list of facts")
        _require_at_once(len(facts))
        new = _distinct(facts)
        while new:
            operations, conditions = assertions_of(new)
            try:
                self._commit(operations, conditions, new)
                break
            except Conflict:
                left = [fact for fact in new if not self._is_stored(fact)]
                if len(left) == len(new):
                    raise  # Another condition than ours, or erased meanwhile.
                new = left
        return [fact.id for fact in facts]

    def retract(
        self,
        fact_id: str,
        *,
        reason: str = "",
        actor: str = "",
        user_id: str | None = None,
        since: datetime | None = None,
        only: bool = False,
    ) -> list[str]:
        """Take a fact away, or with `since` say that it is no longer true from then on.

        That is the assertion of this id and all that say the same in one window
        with it; with `only`, nothing but this assertion. What they had closed
        is open again. Returns the ids of the assertions that were taken away;
        those that were already are not among them.

        Raises:
            NotFound: this user has no assertion of that id.
        """
        operations, targets = self.plan_retraction(
            fact_id, reason=reason, actor=actor, user_id=user_id, since=since, only=only
        )
        if operations:
            conditions = [Absent(put.document) for put in operations]
            self._commit(operations, conditions, targets)
        return [fact.id for fact in targets]

    def plan_retraction(
        self,
        fact_id: str,
        *,
        reason: str = "",
        actor: str = "",
        user_id: str | None = None,
        since: datetime | None = None,
        only: bool = False,
    ) -> tuple[list[Put], list[Fact]]:
        """What `retract` would commit, for a `Batch` of one's own, and what it takes away."""
        require_flag("only", only)
        require_reason(reason)
        require_actor(actor)
        since_us = None if since is None else moment_us("since", since)
        view = self.viewpoint(None, None, user_id)
        group = self.group_of(self.assertion(fact_id, user_id=user_id), view)
        names = {fact_id}
        if not only:
            names |= {n for w in group.windows if fact_id in w.claims for n in w.claims}
        standing = {claim.id: claim for claim in group.standing}
        puts: list[Put] = []
        targets: list[Fact] = []
        for name, assertion in group.assertions.items():
            claim = standing.get(name)
            if name not in names or claim is None:
                continue
            if since_us is not None and not claim.reaches(since_us):
                continue
            whole = since_us is None or since_us <= claim.start
            fact = assertion.fact(status="retracted" if whole else "ended")
            puts.append(
                retraction_put(
                    fact,
                    place=len(puts),
                    since_us=None if whole else since_us,
                    reason=reason,
                    actor=actor,
                )
            )
            targets.append(fact)
        return puts, targets

    # Predicates and names

    def declare(self, predicate: str, kind: Kind, *, actor: str = "") -> None:
        """Say whether a predicate holds one object at a time, "single", or many, "multi".

        For all users of the tenant. "*" stands for all that are not declared
        and not in the list of those known to hold many.
        """
        self.kinds.declare(predicate, kind, actor=require_actor(actor))

    def alias(
        self, name: str, canonical: str, *, user_id: str | None = None, actor: str = ""
    ) -> None:
        """Say that a name stands for another, as subject and as object, for this user.

        Nothing is rewritten: `unalias` undoes it.

        Raises:
            Invalid: the other stands for this name already.
        """
        require_text("name", name)
        require_text("canonical", canonical)
        names = Names(aliases_of(self._store, require_name_or_none("user_id", user_id)))
        if names.of(canonical) == names.of(name):
            if name in names:
                return  # It stands for the same already.
            raise Invalid(
                "canonical", f"{shown(canonical)} is the same as the name", "give another name"
            )
        self._say_alias(user_id, name, canonical, actor)

    def unalias(self, name: str, *, user_id: str | None = None, actor: str = "") -> None:
        """Let a name stand for itself again.

        Raises:
            NotFound: it is no alias.
        """
        require_text("name", name)
        names = Names(aliases_of(self._store, require_name_or_none("user_id", user_id)))
        if name not in names:
            raise NotFound(f"{shown(name)} is no alias of this user", "see aliases()")
        self._say_alias(user_id, name, None, actor)

    # Keeping

    def derived_from(self, sources: Iterable[str], *, user_id: str | None = None) -> list[Fact]:
        """The user's assertions that name one of these slots or episodes as a source."""
        wanted = set(sources)
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
        wanted = set(fact_ids)
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
        self._erase(user_id, documents)
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
        read = [line_of(line, f"lines[{i}]") for i, line in enumerate(lines)]
        pairs = list(puts_of(read, user_id))
        chunks = (pairs[at : at + _CHUNK] for at in range(0, len(pairs), _CHUNK))
        return sum(self._restored(chunk) for chunk in chunks)

    # Inside

    def _erase(self, user_id: str | None, documents: Sequence[str]) -> None:
        for attempt in range(_ATTEMPTS):
            selectors = [Selector(document=name) for name in documents]
            beside: Batch | None = None
            if self._beside is not None:
                more, operations, conditions = self._beside.erasure(user_id, documents)
                selectors += more
                beside = Batch(operations, conditions) if operations else None
            if not selectors:
                return
            try:
                self._store.erase(selectors, beside=beside)
                return
            except Conflict as conflict:
                last = attempt == _ATTEMPTS - 1
                if last or self._beside is None or not self._beside.settles(conflict, ()):
                    raise

    def _commit(
        self,
        operations: Sequence[Operation],
        conditions: Sequence[Condition],
        facts: Sequence[Fact],
    ) -> None:
        more: Sequence[Operation] = ()
        when: Sequence[Condition] = ()
        for attempt in range(_ATTEMPTS):
            if self._beside is not None and facts:
                more, when = self._beside.beside(facts)
            try:
                self._store.commit(Batch([*operations, *more], [*conditions, *when]))
                return
            except Conflict as conflict:
                last = attempt == _ATTEMPTS - 1
                if last or self._beside is None or not self._beside.settles(conflict, facts):
                    raise

    def _restored(self, pairs: Sequence[tuple[Put, Fact | None]]) -> int:
        """Store what is not there yet; how much that was."""
        facts = [fact for _, fact in pairs if fact is not None]
        conditions = [Absent(put.document) for put, _ in pairs]
        try:
            self._commit([put for put, _ in pairs], conditions, facts)
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

    def _say_alias(self, user_id: str | None, name: str, canonical: str | None, actor: str) -> None:
        put = alias_put(user_id, name, canonical, require_actor(actor))
        room = CountBelow(BY_ALIAS, "", MOST_ALIASES, user=user_id)
        self._store.commit(Batch([put], [Absent(put.document), room]))

    def _assertions(self, user_id: str | None) -> list[Assertion]:
        ledger, _ = ledger_of(self._store, Query(BY_PREDICATE, user=user_id))
        return sorted(ledger.assertions.values(), key=lambda each: each.order)


def _require_at_once(count: int) -> None:
    if count > MOST_AT_ONCE:
        raise LimitExceeded(
            "the number of facts in one commit",
            limit=MOST_AT_ONCE,
            wanted=count,
            next_step="append them in several calls",
        )


def _distinct(facts: Sequence[Fact]) -> list[Fact]:
    """Each once, where the very same stands there twice."""
    for i, fact in enumerate(facts):
        require_type(f"facts[{i}]", fact, Fact)
    return list(dict.fromkeys(facts))

"""Facts in a store: asserted, retracted, never edited; windows are computed on reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, shown
from pagefile.memory.facts.documents import (
    BY_ALIAS,
    Beside,
    FactCommits,
    alias_put,
    aliases_of,
    assertions_of,
    document_of,
    retraction_put,
)
from pagefile.memory.facts.fact import (
    Fact,
    moment_us,
    normalised,
    require_actor,
    require_reason,
    require_text,
)
from pagefile.memory.facts.plane import Kind
from pagefile.memory.facts.reader import machine_clock
from pagefile.memory.facts.user_facts import FactKeeper
from pagefile.memory.facts.view import Names
from pagefile.memory.items.change import require_name_or_none
from pagefile.store.arguments import require_callable, require_flag, require_type
from pagefile.store.batch import Absent, Batch, Condition, CountBelow, Put, Unchanged, VersionIs

MOST_AT_ONCE = 2_000
MOST_ALIASES = 10_000

#: How often an alias is tried again after another was said meanwhile.
_ATTEMPTS = 100


class FactStore(FactKeeper, ClosesItsStore):
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
    `clock` says what "now" is in questions. Nothing is kept in this object but
    names and kinds as they were last read, until the store changes.
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
        super().__init__(store, FactCommits(store, beside), clock)

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
                self._commits.commit(operations, conditions, new)
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
        for _ in range(_ATTEMPTS):
            operations, targets = self.plan_retraction(
                fact_id, reason=reason, actor=actor, user_id=user_id, since=since, only=only
            )
            if not operations:
                break
            conditions: list[Condition] = [Absent(put.document) for put in operations]
            # What is erased meanwhile must not stay in the words of its retraction.
            found = self._store.get_many([document_of(user_id, fact.id) for fact in targets])
            there = [one for one in found if one is not None and not one.erased]
            if len(there) < len(targets):
                continue  # The next look does not find them.
            conditions += [VersionIs(one.name, one.version) for one in there]
            try:
                self._commits.commit(operations, conditions, targets)
                break
            except Conflict as conflict:
                if all(conflict.target != one.name for one in there):
                    raise
        else:
            raise NotFound(f"{shown(fact_id)} is erased again and again", "see who does that")
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
        and not in the list of those known to hold many. What is declared
        already is not stored again.
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
        require_name_or_none("user_id", user_id)
        for _ in range(_ATTEMPTS):
            position = self._store.head().position
            names = Names(aliases_of(self._store, user_id))
            if names.of(canonical) == names.of(name):
                if name in names:
                    return None  # It stands for the same already.
                raise Invalid(
                    "canonical", f"{shown(canonical)} is the same as the name", "give another name"
                )
            # Two that are right by themselves could make a circle together.
            unchanged = Unchanged(BY_ALIAS, "", position, user=user_id)
            try:
                return self._say_alias(user_id, name, canonical, actor, unchanged)
            except Conflict as conflict:
                last = conflict
        raise last

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

    def _say_alias(
        self,
        user_id: str | None,
        name: str,
        canonical: str | None,
        actor: str,
        *conditions: Condition,
    ) -> None:
        put = alias_put(user_id, name, canonical, require_actor(actor))
        room = CountBelow(BY_ALIAS, "", MOST_ALIASES, user=user_id)
        self._store.commit(Batch([put], [Absent(put.document), room, *conditions]))


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


# A fact that gets a new object: the new one holds, and the old one does no longer.


def give_new_object(
    facts: FactStore,
    fact_id: str,
    object_: str,
    now: datetime,
    *,
    since: datetime | None = None,
    user_id: str | None,
    actor: str,
) -> str:
    """Assert the fact with another object; the id of the new one.

    It holds from `since` on, or from now on if that is None, as long as the old
    one would; one that is yet to begin begins when it would have.

    Raises:
        NotFound: this user has no assertion of that id.
    """
    known = facts.assertion(fact_id, user_id=user_id).fact()
    start = max(now, known.valid_from) if since is None else since
    ends = known.valid_until is not None and known.valid_until > start
    reason = f"update of {fact_id}"
    made = Fact(
        subject=known.subject,
        predicate=known.predicate,
        object=object_,
        user_id=user_id,
        actor=actor,
        reason=reason,
        valid_from=start,
        valid_until=known.valid_until if ends else None,
    )
    new = facts.append(made)
    is_other = normalised(object_) != normalised(known.object)
    if is_other and facts.kinds.kind(known.predicate) == "multi":
        # Where many may hold, the new one does not end the old one by itself.
        facts.retract(fact_id, reason=reason, actor=actor, user_id=user_id, since=start)
    return new

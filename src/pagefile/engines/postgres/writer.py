"""The connection that commits: turns, groups, retries, and answers that got lost."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import psycopg
from psycopg import errors as pg

from pagefile.engines.postgres.connection import MOST_SECONDS, Link, Session, query
from pagefile.engines.postgres.errors import TRANSIENT, UNFIT, is_lost, translate
from pagefile.engines.postgres.transaction import PostgresTransaction, Statement
from pagefile.errors import PagefileError, Unavailable
from pagefile.store.commit.rules import apply
from pagefile.store.engine import Prepared, Sealed

#: How many records one statement takes when there are as many; the rest go one by one.
_SIZES = (64, 32, 16, 8, 4, 2, 1)
#: The largest group that is one statement as it is: each size is prepared by itself.
MOST_IN_TURN = 16
_PARAMETER = re.compile(r"\$(\d+)")


class Inserts:
    """The statements, made when first needed."""

    def __init__(self, one: str) -> None:
        self._head, _, self._values = one.rpartition("VALUES ")
        self._width = self._values.count("$")
        self._made: dict[tuple[int, str], str] = {}

    def chunks(self, rows: list[Any]) -> Iterator[tuple[str, list[Any]]]:
        """Statements and parameters that insert all the rows."""
        at = 0
        for size in _SIZES:
            while len(rows) - at >= size:
                yield self._statement(size), _flat(rows[at : at + size])
                at += size

    def in_turn(self, rows: list[Any], turn: str, number: int) -> tuple[str, list[Any]]:
        """One statement that takes the turn and inserts the rows; `turn` names its `number` {}."""
        return self._statement(len(rows), turn), [*_flat(rows), number]

    def _statement(self, size: int, turn: str = "") -> str:
        made = self._made.get((size, turn))
        if made is None:
            rows = "VALUES " + ", ".join(self._shifted(at * self._width) for at in range(size))
            made = f"{self._head}{rows}"
            if turn:
                taken = turn.format(f"${size * self._width + 1}::bigint")
                # Materialized, and every row is joined to it: no row without the turn.
                made = (
                    f"WITH turn AS MATERIALIZED ({taken}) "
                    f"{self._head}SELECT v.* FROM turn CROSS JOIN ({rows}) v"
                )
            self._made[size, turn] = made
        return made

    def _shifted(self, by: int) -> str:
        return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", self._values)


def _flat(rows: list[Any]) -> list[Any]:
    return [value for row in rows for value in row]


Outcomes = list[Sealed | PagefileError]

_MOST_CACHED_TENANTS = 1_000
#: How often a deadlock or serialization failure is met with another attempt.
_MOST_ATTEMPTS = 10
#: After meeting another writer, so many commits take their turn first.
_WARY_COMMITS = 32
#: The pause before another attempt without turns, at first and at most.
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.002, 0.1
#: Statements of one row that are widened to many.
_MANY = ("add_record", "add_vector")
#: How a commit of one statement takes its turn: by a lock, or by the tenant's row.
_BY_LOCK = "SELECT pg_advisory_xact_lock({})"
_BY_ROW = "SELECT 1 FROM tenants WHERE id = {} FOR UPDATE"


class _Stale(Exception):
    """Another process has committed since this one looked."""


class _Doubtful(Exception):
    """Something was refused, perhaps for a state that never was."""


class Writer:
    """Applies groups of batches, one group at a time."""

    def __init__(
        self,
        link: Link,
        session: Session,
        clock: Callable[[], int],
        key_lifetime_us: int,
        announce: Callable[[str, int, int], None],
    ) -> None:
        self._link = link
        self._sql = link.sql
        self._inserts = Inserts(link.sql["add_record"])
        self._widened: dict[str, Inserts] = {"add_record": self._inserts}
        self._session: Session | None = self._bounded(session)
        self._clock = clock
        self._key_lifetime_us = key_lifetime_us
        self._announce = announce
        self._known: dict[str, PostgresTransaction] = {}
        self._wary: dict[str, int] = {}
        #: The tenants of the group under way, and where they were when it began.
        self._bases: dict[str, int] = {}
        self._locks: dict[str, int] = {}
        self._in_turn = False
        #: Whether all that the group reads in its turn is of one moment.
        self._is_snapshot = False
        #: A pipeline was left in the middle.
        self._torn = False
        self._committing = False
        self._outcomes: Outcomes = []

    # One group

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> Outcomes:
        """Commit the batches together, each isolated from the others' refusal."""
        self._link.require_usable()
        #: What an attempt came to whose end nobody told.
        untold: Outcomes | None = None
        waits: Iterator[float] | None = None
        careful = self._is_snapshot = False
        attempts = 0
        deadline = time.monotonic() + self._link.lock_seconds
        while True:
            self._committing = False
            finished = False
            try:
                if self._session is None:
                    self._session = self._bounded(self._link.connect())
                outcomes = self._attempt(items, careful)
                finished = True
                return outcomes if untold is None else _told(untold, outcomes)
            except _Doubtful:
                careful = self._is_snapshot = True
            except _Stale:
                careful, self._is_snapshot = True, False
                self._be_wary({tenant for tenant, _ in items})
                if not self._link.locks:
                    attempts += 1
                    self._pause(attempts, deadline, known=untold is None)
            except PagefileError as failure:
                # Only connecting raises here: the server is away, or coming back.
                pause = next(waits, None) if waits is not None else None
                if pause is None or not isinstance(failure, Unavailable):
                    if untold is None:
                        raise
                    raise _gone(failure) from failure
                time.sleep(pause)
            except psycopg.Error as error:
                attempts += 1
                session = self._session
                if session is not None and is_lost(error, session.connection):
                    if self._committing:
                        untold = self._outcomes
                    if waits is None:
                        waits = self._link.patience()
                    if next(waits, None) is None:
                        unknown = untold is not None
                        raise translate(error, self._link.place, unknown=unknown) from error
                elif not self._link.locks and isinstance(error, (*TRANSIENT, pg.UniqueViolation)):
                    self._pause(attempts, deadline, known=untold is None)
                elif isinstance(error, TRANSIENT) and attempts < _MOST_ATTEMPTS:
                    pass
                elif untold is not None:
                    # Such as a turn that the lost connection still holds.
                    raise _gone(translate(error, self._link.place)) from error
                elif isinstance(error, UNFIT) and len(items) > 1:
                    self._give_up()
                    return [self.apply([item])[0] for item in items]
                elif isinstance(error, UNFIT):
                    return [translate(error, self._link.place)]
                else:
                    raise translate(error, self._link.place) from error
                careful, self._is_snapshot = True, False
            finally:
                if not finished:
                    self._give_up()

    def _pause(self, attempts: int, deadline: float, *, known: bool) -> None:
        """Others were faster: let them, for a moment that grows.

        Raises:
            Unavailable: they have been for too long.
        """
        if time.monotonic() > deadline:
            late = Unavailable(
                "others were faster to commit to the tenant for too long",
                "retry; nothing was stored",
            )
            raise late if known else _gone(late)
        self._give_up()
        most = min(_LEAST_PAUSE_SECONDS * 2 ** min(attempts, 10), _MOST_PAUSE_SECONDS)
        time.sleep(random.uniform(0, most))

    def _attempt(self, items: Sequence[tuple[str, Prepared]], careful: bool) -> Outcomes:
        known = self._known
        if len(known) > _MOST_CACHED_TENANTS:
            known.clear()
        tenants = {tenant for tenant, _ in items}
        self._in_turn = False
        if careful or not known.keys() >= tenants or not self._wary.keys().isdisjoint(tenants):
            self._take_turns(tenants)
        else:
            self._bases = {tenant: known[tenant].head.position for tenant in tenants}
        now_us = self._clock()
        outcomes: Outcomes = []
        self._outcomes = outcomes
        changed: dict[str, PostgresTransaction] = {}
        doubtful = False
        for tenant, batch in items:
            transaction = known[tenant]
            try:
                transaction.expect(batch)
                outcome = apply(transaction, batch, now_us)
            except PagefileError as refused:
                outcomes.append(refused)
                doubtful = True
                continue
            outcomes.append(outcome)
            if outcome.repeated:
                doubtful = True
            else:
                changed[tenant] = transaction
        if doubtful and not self._in_turn:
            # What was refused may be refused for a state that has passed.
            self._require_unmoved()
        if doubtful and not self._link.locks and not self._is_snapshot:
            raise _Doubtful
        if changed:
            self._store(changed)
            for tenant, transaction in changed.items():
                self._announce(tenant, transaction.number, transaction.head.position)
                if transaction.is_large:
                    del known[tenant]
        elif self._in_turn:
            # Nothing was written; a rollback would also take back which tenant was entered.
            self._run("COMMIT")
            self._in_turn = False
        return outcomes

    def _store(self, changed: dict[str, PostgresTransaction]) -> None:
        """Send everything collected, and commit."""
        statements = {tenant: tx.take_statements() for tenant, tx in changed.items()}
        session = self._own_session()
        self._committing = True
        if not self._in_turn and len(statements) == 1:
            [(tenant, own)] = statements.items()
            rows = [row for name, row in own if name == "add_record"]
            if len(rows) == len(own) <= MOST_IN_TURN:
                # The commonest commit by far: one statement, one round trip.
                session.enter(tenant)
                if self._link.locks:
                    turn, number = _BY_LOCK, self._lock_of(tenant)
                else:
                    turn, number = _BY_ROW, changed[tenant].number
                statement, parameters = self._inserts.in_turn(rows, turn, number)
                try:
                    session.connection.execute(query(statement), parameters)
                except pg.UniqueViolation as taken:
                    raise _Stale from taken
                return
        try:
            with self._pipeline():
                if not self._in_turn:
                    self._send_turns(statements)
                for tenant, own in statements.items():
                    self._send(tenant, own)
                session.connection.execute("COMMIT", prepare=False)
        except pg.UniqueViolation as taken:
            if self._in_turn:
                raise
            raise _Stale from taken
        self._in_turn = False

    # Turns

    def _lock_of(self, tenant: str) -> int:
        number = self._locks.get(tenant)
        if number is None:
            if len(self._locks) > _MOST_CACHED_TENANTS:
                self._locks.clear()
            number = self._locks[tenant] = self._link.address.number_for(tenant)
        return number

    def _send_turns(self, tenants: Iterable[str]) -> None:
        """Begin, and wait for each tenant's turn, always in the same order: no deadlock."""
        session = self._own_session()
        run = session.connection.execute
        if self._is_snapshot:
            run("BEGIN ISOLATION LEVEL REPEATABLE READ", prepare=False)
            return
        run("BEGIN", prepare=False)
        if not self._link.locks:
            for tenant in sorted(tenants):
                session.enter(tenant)
                run(query(self._sql["row_turn"]), (tenant,))
            return
        for lock in sorted(map(self._lock_of, tenants)):
            run(query(self._sql["turn"]), (lock,))

    def _take_turns(self, tenants: Iterable[str]) -> None:
        """Hold the turns of these tenants, and know where they are."""
        for tenant, columns in self._heads_in_turn(tenants).items():
            known = self._known.get(tenant)
            position, digest = columns[6:9:2] if columns is not None else (None, None)
            if known is not None and known.head.position == (position or 0):
                same = position is None or known.head.digest == digest
            else:
                same = False
            if same:
                self._calm(tenant)
                continue
            if known is not None:
                self._be_wary({tenant})
            self._known[tenant] = PostgresTransaction(self, tenant, columns, self._key_lifetime_us)

    def _be_wary(self, tenants: Iterable[str]) -> None:
        """Somebody else writes there, too: for a while, take the turn before reading."""
        if len(self._wary) > _MOST_CACHED_TENANTS:
            self._wary.clear()
        self._wary.update(dict.fromkeys(tenants, _WARY_COMMITS))

    def _calm(self, tenant: str) -> None:
        left = self._wary.get(tenant, 0) - 1
        if left > 0:
            self._wary[tenant] = left
        else:
            self._wary.pop(tenant, None)

    def _require_unmoved(self) -> None:
        """Take the turns late; nobody may have committed since this group was begun."""
        for tenant, columns in self._heads_in_turn(self._bases).items():
            position = columns[6] if columns is not None else None
            if (position or 0) != self._bases[tenant]:
                raise _Stale

    def _heads_in_turn(self, tenants: Iterable[str]) -> dict[str, tuple[Any, ...] | None]:
        """The heads of the tenants, whose turns are held from now on: one round trip."""
        session = self._own_session()
        asked: dict[str, psycopg.Cursor[tuple[Any, ...]]] = {}
        with self._pipeline():
            self._send_turns(tenants)
            for tenant in tenants:
                session.enter(tenant)
                asked[tenant] = session.connection.execute(
                    query(self._sql["head"]), (tenant,), binary=True
                )
        self._in_turn = True
        return {tenant: cursor.fetchone() for tenant, cursor in asked.items()}

    # The door for transactions

    def fetch(self, tenant: str, name: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        session = self._own_session()
        session.enter(tenant)
        return session.fetch(name, *bindings)

    def write(self, tenant: str, statements: list[Statement]) -> None:
        if not self._in_turn:
            self._require_unmoved()
        with self._pipeline():
            self._send(tenant, statements)

    def _send(self, tenant: str, statements: list[Statement]) -> None:
        session = self._own_session()
        session.enter(tenant)
        cursor = session.connection.cursor()
        for name, group in groupby(statements, key=lambda statement: statement[0]):
            rows = [parameters for _, parameters in group]
            if name not in _MANY:
                cursor.executemany(query(self._sql[name]), rows)
                continue
            if name not in self._widened:
                self._widened[name] = Inserts(self._sql[name])
            for statement, parameters in self._widened[name].chunks(rows):
                cursor.execute(query(statement), parameters)

    # The connection

    def _bounded(self, session: Session) -> Session:
        session.connection.most_seconds = self._link.lock_seconds + MOST_SECONDS
        return session

    def _own_session(self) -> Session:
        assert self._session is not None
        return self._session

    @contextmanager
    def _pipeline(self) -> Iterator[None]:
        """Send several statements before reading the first answer."""
        self._torn = True
        failure: psycopg.Error | None = None
        try:
            with self._own_session().connection.pipeline():
                try:
                    yield
                except psycopg.Error as error:
                    # Kept from the driver: it would write the errors that follow to stderr.
                    failure = error
        except psycopg.Error:
            if failure is None:
                raise
        if failure is not None:
            raise failure
        self._torn = False

    def _run(self, statement: str) -> None:
        self._own_session().connection.execute(query(statement), prepare=False)

    def _give_up(self) -> None:
        """Back to where nothing of the group is stored or believed."""
        self._known.clear()
        self._in_turn = False
        session = self._session
        if session is None:
            return
        session.tenant = None  # A rollback takes back which tenant it had entered.
        try:
            if self._torn:
                # The driver takes for prepared what the server never came to: start anew.
                session.connection.close()
            elif session.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._run("ROLLBACK")
        except psycopg.Error:
            session.connection.close()
        if session.connection.closed:
            self._session = None
            self._torn = False

    def close(self) -> None:
        if self._session is not None and self._link.is_own:
            self._session.connection.close()
            self._session = None


def _told(untold: Outcomes, outcomes: Outcomes) -> Outcomes:
    """The first attempt's own answer, where it turns out to have been stored."""
    return [
        first
        if isinstance(first, Sealed)
        and isinstance(found, Sealed)
        and found.repeated
        and found.commit.digest == first.commit.digest
        else found
        for first, found in zip(untold, outcomes, strict=True)
    ]


def _gone(failure: PagefileError) -> Unavailable:
    return Unavailable(
        f"the connection was lost in mid-commit, and {failure.fact}",
        "commit again with the same key to learn the outcome",
        outcome="unknown",
    )

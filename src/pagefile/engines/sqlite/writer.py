"""Who writes to an SQLite file: one process of several, for all tenants of the file.

The writing connection keeps what it knows about tenants and streams in memory
and brings it up to date when another process has written (`data_version` says
so), so that a process writing alone only inserts. Rows are collected and
inserted together just before the transaction commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import apsw

from pagefile.engines.sqlite.errors import MISSHAPEN, misshapen, translate
from pagefile.engines.sqlite.file import SqliteFile
from pagefile.engines.sqlite.poller import Watch
from pagefile.engines.sqlite.transaction import SqliteTransaction
from pagefile.errors import Corrupt, LimitExceeded, PagefileError
from pagefile.store.commit.committer import result_of
from pagefile.store.commit.rules import append_one, apply, batch_of
from pagefile.store.engine import Lone, Prepared, RawCommit, Sealed

_MOST_CACHED_TENANTS = 1_000
#: From so many conditions on, asking for what they are about at once is worth it.
_MANY = 4


class SqliteWriter:
    """The only one in this process that changes the file."""

    def __init__(
        self,
        file: SqliteFile,
        watch: Watch,
        sql: dict[str, str],
        clock: Callable[[], int],
        key_lifetime_us: int,
    ) -> None:
        self._file = file
        self._watch = watch
        self._sql = sql
        self._clock = clock
        self._key_lifetime_us = key_lifetime_us
        #: Handles queue at their committer; a copy into the store comes from beside it.
        self._applying = threading.Lock()
        #: What is known of each tenant. One that a commit changes is taken out, and put back when
        #: it is stored: whatever ends the commit in between, nobody believes what was not.
        self._transactions: dict[str, SqliteTransaction] = {}
        self._data_version = -1
        #: How often others were seen to have committed, and whether none had the last time.
        self._others = 0
        self._undisturbed = False

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        # One function on purpose: after a sync, each further call is a cache miss or two.
        # A forked child is refused before it could wait for what its parent was doing.
        self._file.require_own_process()
        committing = finished = False
        writer: apsw.Connection | None = None
        try:
            with self._applying:
                try:
                    # Known before it begins: what stops us in between must not leave it begun.
                    writer = self._file.writer
                    self._file.begin()
                    known = self._transactions
                    version = writer.data_version()
                    self._undisturbed = version == self._data_version
                    if not self._undisturbed:
                        self._others += 1
                        self._data_version = version
                    if len(known) > _MOST_CACHED_TENANTS:
                        known.clear()
                    now_us = self._clock()
                    outcomes: list[Sealed | PagefileError] = []
                    taken: dict[str, SqliteTransaction] = {}
                    changed: set[SqliteTransaction] = set()
                    try:
                        for tenant, batch in items:
                            transaction = taken.get(tenant)
                            if transaction is None:
                                transaction = taken[tenant] = self._take_out(tenant, writer)
                                if len(items) > 1:
                                    own = [each for name, each in items if name == tenant]
                                    transaction.look_for_keys(own)
                            try:
                                if len(batch.when) > _MANY:
                                    transaction.look_ahead(batch)
                                outcome = apply(transaction, batch, now_us)
                            except Corrupt:
                                raise  # No rule refused it: it may have come half of the way.
                            except PagefileError as refused:
                                outcomes.append(refused)
                                continue
                            outcomes.append(outcome)
                            if not outcome.repeated:
                                changed.add(transaction)
                        for transaction in changed:
                            transaction.flush()
                    except MISSHAPEN as error:
                        raise misshapen(error, str(self._file.path)) from error
                    if changed:
                        committing = True
                        writer.execute("COMMIT")
                        self._file.confirm()
                        # Our own commit moves the number too; only others' may surprise us.
                        self._data_version = writer.data_version()
                    for tenant, transaction in taken.items():
                        # Only now: in the middle of a group it may hold what is not stored yet.
                        if not transaction.is_large:
                            known[tenant] = transaction
                    finished = True
                except apsw.Error as error:
                    raise self._translated(error, committing, writer) from error
                finally:
                    if writer is not None and not (finished and committing):
                        self._file.end()
        except Corrupt:
            if committing or len(items) == 1:
                raise
            return self._one_by_one(items)
        if changed and self._watch.waiting:
            self._watch.notice()
        return outcomes

    def apply_lone(self, tenant: str, one: Lone) -> Sealed:
        # As `apply`, for a tenant that nobody else has written to since and a log that is known.
        file = self._file
        file.require_own_process()
        placed: tuple[RawCommit, int] | None = None
        if self._undisturbed:
            with self._applying:
                placed = self._append_one(tenant, one)
        if placed is None:
            return result_of(self.apply(((tenant, batch_of(one)),))[0])
        if self._watch.waiting:
            self._watch.notice()
        return Sealed(placed[0], (placed[1],), ())

    def _append_one(self, tenant: str, one: Lone) -> tuple[RawCommit, int] | None:
        """The commit and the index; None, with nothing done, where it takes more than this."""
        transaction = self._transactions.get(tenant)
        if transaction is None or transaction.seen != self._others:
            return None
        file, placed = self._file, None
        committing = finished = False
        try:
            writer = file.begin()
            now_us = self._clock()
            # Otherwise somebody wrote meanwhile, or may have used the key.
            undisturbed = writer.data_version() == self._data_version
            if undisturbed and one.after == transaction.head.position:
                del self._transactions[tenant]
                try:
                    placed = append_one(transaction, one, now_us)
                    if placed is not None:
                        transaction.flush()
                except LimitExceeded:
                    self._transactions[tenant] = transaction  # Refused before it was changed.
                    raise
                except MISSHAPEN as error:
                    raise misshapen(error, str(file.path)) from error
                if placed is not None:
                    committing = True
                    writer.execute("COMMIT")
                    file.confirm()
                    self._data_version = writer.data_version()
                if not transaction.is_large:
                    self._transactions[tenant] = transaction
            finished = True
        except apsw.Error as error:
            raise self._translated(error, committing, file.writer) from error
        finally:
            if not (finished and committing):
                file.end()
        return placed

    def _translated(
        self, error: apsw.Error, committing: bool, writer: apsw.Connection | None
    ) -> PagefileError:
        path = str(self._file.path)
        return translate(error, path, doing="commit", committing=committing, connection=writer)

    def _one_by_one(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        """Batches in transactions of their own: who meets no damage does not suffer from it."""
        outcomes: list[Sealed | PagefileError] = []
        for item in items:
            try:
                outcomes += self.apply((item,))
            except PagefileError as failed:
                outcomes.append(failed)
        return outcomes

    def _take_out(self, tenant: str, writer: apsw.Connection) -> SqliteTransaction:
        """The tenant's side of it, up to date, in nobody else's hands."""
        transaction = self._transactions.pop(tenant, None)
        if transaction is None or (transaction.seen != self._others and not transaction.catch_up()):
            transaction = SqliteTransaction(writer, self._sql, tenant, self._key_lifetime_us)
        transaction.seen = self._others
        return transaction

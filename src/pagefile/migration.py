"""Bringing a store to the format this version writes, by somebody who may change tables.

Opening a store does the same when it is allowed to. Where the application is not,
an operator runs this before the application's new version starts.
"""

from __future__ import annotations

import msgspec

from pagefile.engines import open_engine, scheme_of
from pagefile.errors import Invalid
from pagefile.handle import Options


class MigrationReport(msgspec.Struct, frozen=True):
    """What format a store had (None: there was none) and has now; `known` is this version's.

    All three are None for an engine that has no format to bring up to date.
    """

    engine: str
    before: int | None
    after: int | None
    known: int | None

    @property
    def is_current(self) -> bool:
        """Whether nothing is left to do."""
        return self.after == self.known


def migrate(url: str, *, check: bool = False, grant: str | None = None) -> MigrationReport:
    """Make a store's tables, or bring them up to date, in one transaction.

    With `check` nothing is changed. `grant` names a PostgreSQL user who may then
    read and write the store without being able to change its tables.

    Raises:
        Unsupported: the store has a newer format; nothing was changed.
        Forbidden: this user may not change the tables.
        Invalid: the URL names no store, or another program's.
    """
    scheme = scheme_of(url)
    if grant is not None and (check or not scheme.grants):
        raise Invalid("grant", "there is nobody to grant rights to", "leave it out")
    if scheme.migrate is None:
        engine = open_engine(url, Options())
        engine.close()
        return MigrationReport(engine.name, None, None, None)
    return MigrationReport(scheme.name, *scheme.migrate(url, check, grant, Options()))

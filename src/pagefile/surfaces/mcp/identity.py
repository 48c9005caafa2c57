"""Who calls: one tenant, perhaps one user of it, and what they may do."""

from __future__ import annotations

from typing import Final

import msgspec

READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"


class Identity(msgspec.Struct, frozen=True):
    """Who a connection speaks for; settled before the first call, by no argument of one.

    `user` None leaves the user to the calls' arguments. `name` tells callers of one
    tenant apart, and no two have the same: a session over HTTP is used by the one who
    opened it alone, and a caller's keys for repeats are the caller's own.
    """

    tenant: str
    user: str | None = None
    rights: frozenset[str] = frozenset({READ, WRITE})
    name: str = ""

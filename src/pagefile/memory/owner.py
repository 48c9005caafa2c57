"""Whose a thing is, as the names of its streams say it: by a digest, never by the id itself."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from pagefile.errors import Invalid
from pagefile.store.batch import Unchanged
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.names import OF_TENANT, Naming

__all__ = [
    "NOBODY",
    "OF_TENANT",
    "USERS",
    "owner_key",
    "require_user",
    "unchanged_since",
    "users_key",
]

_NAMING = Naming(512)
#: Under these keys, of the whole tenant, stands everything that memory keeps for somebody,
#: and for nobody.
USERS = "memory.user"
NOBODY = "memory.nobody"


@lru_cache(maxsize=8_192)
def owner_key(user_id: str | None) -> str:
    """What stands for a user in the name of a stream; nobody has a bucket of their own."""
    return "anon" if user_id is None else hashlib.sha256(user_id.encode()).hexdigest()[:32]


def users_key(user_id: str | None) -> dict[str, KeyValue]:
    """The tenant's key under which all that memory keeps for this user stands."""
    return {NOBODY: True} if user_id is None else {USERS: user_id}


def unchanged_since(user_id: str | None, position: int) -> Unchanged:
    """The condition that nothing was remembered or forgotten for this user since."""
    ((field, value),) = users_key(user_id).items()
    return Unchanged(field, value, position, everyone=True)


def require_user(user_id: object) -> None:
    """None is the bucket of nobody; the empty string would look like it and is refused.

    So is the name of what belongs to the tenant and to no user.
    """
    if user_id == OF_TENANT:
        raise Invalid("user_id", f"{OF_TENANT!r} is reserved", "give another name")
    if user_id is not None and (type(user_id) is not str or user_id not in _NAMING.known_good):
        _NAMING.check_text("user_id", user_id)

"""Who is asking: one tenant, perhaps one user, and what they may do there."""

from __future__ import annotations

import hashlib
import ipaddress
from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from pagefile.errors import Forbidden, Invalid, shown
from pagefile.store.arguments import Naming

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
#: The tenant that keys and refusals are kept in. Nobody is let into it.
ACCESS_TENANT = "~access"

_NAMES = Naming(512)


class Identity(msgspec.Struct, frozen=True):
    """A caller who proved who they are.

    `user_id` binds them to one user's partition; None is the whole tenant. `name`
    is what ledgers and audit entries call them, for people to read: two callers may
    have the same. `proof` is what was proved, in full, the name if left out.
    """

    name: str
    tenant: str
    rights: frozenset[Right]
    user_id: str | None = None
    proof: str = ""
    #: Tells this caller from every other: what is kept for one is kept under this. Made of
    #: tenant, user and proof.
    principal: str = ""

    def __post_init__(self) -> None:
        parts = (self.tenant, self.user_id, self.proof or self.name)
        force_setattr(self, "principal", digest_of(*parts))

    def require(self, right: Right) -> None:
        """Refuse a caller without that right.

        Raises:
            Forbidden: says which right is missing.
        """
        if right not in self.rights:
            raise Forbidden(f"this key has no right to {right}", "use a key that has it")

    def of_user(self, user_id: str | None) -> str | None:
        """The user a call is for; a caller who is bound to one speaks for no other.

        Raises:
            Forbidden: the call is for somebody else.
        """
        if self.user_id is None:
            return user_id
        if user_id is not None and user_id != self.user_id:
            raise Forbidden("this key is bound to another user", "leave `user_id` out")
        return self.user_id

    def require_whole_tenant(self) -> None:
        """Refuse a caller who is bound to one user what is about everybody.

        Raises:
            Forbidden: the caller is.
        """
        if self.user_id is not None:
            raise Forbidden("this key is bound to one user", "use a key for the whole tenant")


def digest_of(*parts: str | None) -> str:
    """A name for some texts in their order; no other texts have the same."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:40]


def require_tenant(tenant: object) -> str:
    """A tenant that callers can be let into."""
    _NAMES.check_text("tenant", tenant)
    assert isinstance(tenant, str)
    if tenant.startswith("~"):
        raise Invalid("tenant", f"{shown(tenant)} is reserved", "begin with another character")
    return tenant


def require_user(user_id: object) -> str | None:
    """A user to be bound to, or None."""
    if user_id is not None:
        _NAMES.check_text("user_id", user_id)
        assert isinstance(user_id, str)
    return user_id


def require_rights(rights: object) -> frozenset[Right]:
    """Rights by their names, at least one."""
    if isinstance(rights, str):
        rights = rights.replace(",", " ").split()
    if not isinstance(rights, (list, tuple, set, frozenset)) or not rights:
        raise Invalid("rights", shown(rights), f"give some of {', '.join(RIGHTS)}")
    for right in rights:
        if right not in RIGHTS:
            raise Invalid("rights", f"{shown(right)} is none", f"give some of {', '.join(RIGHTS)}")
    return frozenset(rights)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

"""Why a pack is refused: each reason is a class of its own, and `field` names the member.

Every class is one of the general errors too, so that a surface needs to know
only those, and the `code` stays the general one's.
"""

from __future__ import annotations

import os

from pagefile.errors import Corrupt, Invalid, LimitExceeded, Unsupported, shown

_MAKE_AGAIN = "make the pack again"


class NotAPack(Invalid):
    """The file or folder is no pack of any format."""

    def __init__(self, path: object, fact: str) -> None:
        told = shown(str(path) if isinstance(path, os.PathLike) else path)
        super().__init__("path", f"{told} {fact}", "give the path of a resume pack")


class UnsafeName(Invalid):
    """A member's name could leave the pack: absolute, `..`, a backslash, a drive."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(shown(member), f"the name {why}", "do not trust this pack")


class LinkMember(Invalid):
    """A member is a link or a device, not a file."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "is a link or special file", "do not trust this pack")


class DuplicateMember(Invalid):
    """Two members have one name, so nobody can say which is meant."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "is in the pack twice", "do not trust this pack")


class UnknownMember(Invalid):
    """A member that no pack of this format has."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "has no place in a pack", "remove it, or pack again")


class MissingMember(Invalid):
    """A member that the manifest lists, or every pack has, is not there."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "is missing from the pack", _MAKE_AGAIN)


class WrongContent(Invalid):
    """A member is whole, and does not say what it has to say."""

    def __init__(self, member: str, fact: str) -> None:
        super().__init__(member, fact, _MAKE_AGAIN)


class WrongDigest(Corrupt):
    """A member is not the one that the manifest was written for."""

    def __init__(self, member: str) -> None:
        super().__init__(f"{shown(member)} fails its digest", "take another copy of the pack")
        self.field = member


class DamagedPack(Corrupt):
    """The archive cannot be read to its end."""

    def __init__(self, member: str, why: object) -> None:
        super().__init__(f"{shown(member)} cannot be read ({why})", "take another copy of the pack")
        self.field = member


class PackTooLarge(LimitExceeded):
    """More bytes, members or bytes of a line than the limits allow."""

    def __init__(self, member: str, what: str, *, limit: int, wanted: int) -> None:
        super().__init__(
            f"{what} of {shown(member)}",
            limit=limit,
            wanted=wanted,
            next_step="raise it in PackLimits, if you trust the pack",
        )
        self.field = member


class PackTooDense(PackTooLarge):
    """It unpacks to many times its size, as archives do that are made to fill a disk."""


class NewerPack(Unsupported):
    """The pack was made by a later version."""

    def __init__(self, member: str, fact: str) -> None:
        super().__init__(f"{member}: {fact}", "restore it with a newer Pagefile")
        self.field = member

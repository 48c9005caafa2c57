"""A block: named text that stands in every prompt, and how it is stored.

memory/block/<digest of the user>/<digest of the name>        in that user's partition

One that was deleted is a version that says so: what it held before can be read,
and is found by who forgets the user.
"""

from __future__ import annotations

import hashlib
import html
import re
from datetime import datetime

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.owner import owner_key, users_key
from pagefile.memory.serializer import plain, shaped
from pagefile.store import clock
from pagefile.store.batch import Put
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document

#: Documents, one per block.
BLOCKS = "memory/block/"
#: A user's blocks stand under this key in their order.
BY_ORDER = "memory.block.order"
#: All blocks of a user stand under this one key, which therefore changes when one is made.
ALL = "memory.block"

_MOST_NAME = 128
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class MemoryBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Named text pinned to every prompt; `pinned_order` says where among the others."""

    name: str
    content: str
    updated_at: datetime = msgspec.field(default_factory=clock.now)
    pinned_order: int = 0
    version: int = 0

    def format(self) -> str:
        """The block between tags. Its text is data: no tag in it can close the block."""
        body = html.escape(self.content, quote=False)
        if _TAG.fullmatch(self.name):
            return f"<{self.name}>\n{body}\n</{self.name}>"
        return f'<block name="{html.escape(self.name)}">\n{body}\n</block>'


def require_block_name(name: object) -> None:
    """Refuse what could not name a block."""
    if type(name) is not str or not 0 < len(name) <= _MOST_NAME or not name.isprintable():
        raise Invalid(
            "name", shown(name), f"give 1 to {_MOST_NAME} printable characters, such as 'persona'"
        )


def document_of(name: str, user_id: str | None) -> str:
    """The name of the document of the block of that name."""
    return f"{BLOCKS}{owner_key(user_id)}/{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def put_block(block: MemoryBlock, user_id: str | None) -> Put:
    """Write a block's next version, in the partition of its user."""
    stored = _Stored(block.name, block.content, block.updated_at, block.pinned_order)
    return Put(
        document_of(block.name, user_id),
        plain(stored),
        user=user_id,
        kind="block",
        keys={ALL: True, BY_ORDER: (block.pinned_order, block.name)},
        tenant_keys=users_key(user_id),
    )


def put_again(value: object, document: str, user_id: str | None) -> Put:
    """What writes a body that was stored elsewhere, as a version or an end of a block."""
    stored = convert(value, _Stored)
    if stored.gone:
        # Only the digest of its name is left.
        return Put(document, value, user=user_id, kind="block", tenant_keys=users_key(user_id))
    require_block_name(stored.name)
    block = MemoryBlock(
        name=stored.name,
        content=stored.content,
        updated_at=stored.updated_at,
        pinned_order=stored.pinned_order,
    )
    return put_block(block, user_id)


def block_of(document: Document) -> MemoryBlock:
    """The block in a stored version."""
    stored = shaped(document, _Stored)
    return MemoryBlock(
        name=stored.name,
        content=stored.content,
        updated_at=stored.updated_at,
        pinned_order=stored.pinned_order,
        version=document.version,
    )


def is_there(document: Document) -> bool:
    """Whether a stored version is a block, and not the end of one."""
    return not document.erased and not document.deleted and not shaped(document, _Stored).gone


def put_end(name: str, user_id: str | None, now: datetime) -> Put:
    """Write that there is no such block any more; no key finds it among the others."""
    return Put(
        document_of(name, user_id),
        plain(_Stored("", "", now, 0, gone=True)),
        user=user_id,
        kind="block",
        tenant_keys=users_key(user_id),
    )


class _Stored(msgspec.Struct, omit_defaults=True):
    name: str
    content: str
    updated_at: datetime
    pinned_order: int
    gone: bool = False

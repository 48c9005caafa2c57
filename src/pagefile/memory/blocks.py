"""The blocks of each user: read in order, replaced, appended to, deleted."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable
from datetime import datetime

import msgspec

from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, shown
from pagefile.memory.documents import living, owner_key, plain, require_user, shaped, users_key
from pagefile.store import clock
from pagefile.store.arguments import require_count
from pagefile.store.batch import (
    Absent,
    Batch,
    Condition,
    CountBelow,
    Put,
    Query,
    Unchanged,
    VersionIs,
)
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document
from pagefile.store.store import Store

# A block: named text that stands in every prompt, and how it is stored.
#
# memory/block/<digest of the user>/<digest of the name>        in that user's partition
#
# One that was deleted is a version that says so: what it held before can be read,
# and is found by who forgets the user.


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


#: How often a change is tried again after somebody else was faster.
_ATTEMPTS = 1_000
#: No user can have more, whatever a handle's own limit is.
MOST_BLOCKS = 1_000

#: From the text there is to the text there will be.
Change = Callable[[str], str]


class Blocks:
    """Named texts of each user, each with its own history.

    A block takes its place at the end when it is made and keeps it. Two writers
    never lose an append: each starts again from what the other stored.
    """

    def __init__(
        self, store: Store, now: Callable[[], datetime], *, max_blocks: int, max_chars: int
    ) -> None:
        self._store = store
        self._now = now
        self._max_blocks = max_blocks
        self._max_chars = max_chars

    def all(self, user_id: str | None) -> list[MemoryBlock]:
        """Every block of the user, in order."""
        require_user(user_id)
        page = self._store.find(Query(BY_ORDER, user=user_id), limit=MOST_BLOCKS)
        return [block_of(one) for one in living(page.items)]

    def get(self, name: str, user_id: str | None) -> MemoryBlock:
        """One block.

        Raises:
            NotFound: the user has none of that name.
        """
        found = self._found(name, user_id)
        if found is None:
            raise _unknown(name)
        return block_of(found)

    def history(
        self, name: str, user_id: str | None, *, after: int = 0, limit: int = 100
    ) -> list[MemoryBlock]:
        """The block's versions, oldest first."""
        self._require(name, user_id)
        versions = self._store.history(document_of(name, user_id), after=after, limit=limit)
        return [block_of(one) for one in living(versions) if is_there(one)]

    def change(
        self, name: str, user_id: str | None, change: Change, *, expected_version: int | None = None
    ) -> MemoryBlock:
        """Make the block's text what `change` makes of it; "" when there is none yet.

        Raises:
            Conflict: it is not at `expected_version`; 0 is a block that is not there.
            LimitExceeded: the text or the number of blocks would be too large.
        """
        self._require(name, user_id)
        if expected_version is not None:
            require_count(expected_version, "expected_version")
        for _ in range(_ATTEMPTS):
            position = self._store.head().position
            last = self._last(name, user_id)
            found = last if last is not None and is_there(last) else None
            version = 0 if found is None else found.version
            if expected_version is not None and version != expected_version:
                raise _moved(name, expected_version, version)
            block = self._next(name, user_id, found, change)
            when: list[Condition] = [_unchanged(last, name, user_id)]
            if found is None:
                when += self._room(user_id, position)
            try:
                commit = self._store.commit(Batch([put_block(block, user_id)], when))
            except Conflict:
                continue
            return msgspec.structs.replace(block, version=commit.versions[0])
        raise _moved(name, version, version + 1)

    def delete(
        self, name: str, user_id: str | None, *, expected_version: int | None = None
    ) -> None:
        """Take a block out of every prompt; its versions stay readable until it is forgotten.

        Raises:
            NotFound: there is none. Conflict: it is not at `expected_version`.
        """
        found = self._found(name, user_id)
        if expected_version is not None:
            require_count(expected_version, "expected_version")
        if found is None:
            raise _unknown(name)
        if expected_version is not None and found.version != expected_version:
            raise _moved(name, expected_version, found.version)
        end = put_end(name, user_id, self._now())
        try:
            self._store.commit(Batch([end], [VersionIs(found.name, found.version)]))
        except Conflict:
            # Changed meanwhile: who wants it gone whatever it says wants that still.
            self.delete(name, user_id, expected_version=expected_version)

    def _next(
        self, name: str, user_id: str | None, found: Document | None, change: Change
    ) -> MemoryBlock:
        current = None if found is None else block_of(found)
        content = change("" if current is None else current.content)
        if type(content) is not str:
            raise Invalid("content", shown(content), "give text")
        if len(content) > self._max_chars:
            raise LimitExceeded(
                f"the characters of block {name!r}",
                limit=self._max_chars,
                wanted=len(content),
                next_step="shorten it, or raise max_block_chars",
            )
        order = self._place(user_id) if current is None else current.pinned_order
        return MemoryBlock(name=name, content=content, updated_at=self._now(), pinned_order=order)

    def _place(self, user_id: str | None) -> int:
        """The number after the last block's."""
        last = living(self._store.find(Query(BY_ORDER, user=user_id, reverse=True), limit=1).items)
        return block_of(last[0]).pinned_order + 1 if last else 0

    def _room(self, user_id: str | None, position: int) -> list[Condition]:
        """That there is room for one more, and nobody else is taking the same place."""
        return [
            Unchanged(ALL, True, position, user=user_id),
            CountBelow(ALL, True, self._max_blocks, user=user_id),
        ]

    def _found(self, name: str, user_id: str | None) -> Document | None:
        self._require(name, user_id)
        last = self._last(name, user_id)
        return last if last is not None and is_there(last) else None

    def _last(self, name: str, user_id: str | None) -> Document | None:
        """The newest version, also one that was erased: its number stays taken."""
        return self._store.get(document_of(name, user_id))

    def _require(self, name: str, user_id: str | None) -> None:
        require_block_name(name)
        require_user(user_id)


def _unchanged(last: Document | None, name: str, user_id: str | None) -> Condition:
    if last is None:
        return Absent(document_of(name, user_id))
    return VersionIs(last.name, last.version)


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no block {shown(name)} here", "list them with working()")


def _moved(name: str, expected: int, current: int) -> Conflict:
    return Conflict(
        f"block {name!r} is at version {current}, not {expected}",
        "read it again, then retry",
        target=name,
        expected=expected,
        current=current,
    )

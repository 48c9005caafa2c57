"""Blocks as `Memory` offers them: what is pinned into every prompt of a user."""

from __future__ import annotations

from pagefile.memory.blocks import Blocks, MemoryBlock
from pagefile.memory.serializer import require_text
from pagefile.memory.user_check import WatchedCalls


class PinnedBlocks(WatchedCalls):
    """The part of `Memory` that pins text."""

    _blocks: Blocks

    def working(self, *, user_id: str | None = None) -> list[MemoryBlock]:
        """The user's blocks, in order: what belongs in every prompt."""
        self._watch(user_id)
        return self._blocks.all(user_id)

    def block(self, name: str, *, user_id: str | None = None) -> MemoryBlock:
        """One block.

        Raises:
            NotFound: the user has none of that name.
        """
        self._watch(user_id)
        return self._blocks.get(name, user_id)

    def update_block(
        self,
        name: str,
        content: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
    ) -> MemoryBlock:
        """Replace a block's text, or make the block, at the end of the others.

        Raises:
            Conflict: it is not at `expected_version`; 0 is a block that is not there.
            LimitExceeded: the text is too long, or the user has too many blocks.
        """
        self._watch(user_id)
        require_text("content", content)
        return self._blocks.change(
            name, user_id, lambda _: content, expected_version=expected_version
        )

    def append_block(
        self,
        name: str,
        content: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
    ) -> MemoryBlock:
        """Add to the end of a block's text, whoever else writes to it at the same time."""
        self._watch(user_id)
        require_text("content", content)
        return self._blocks.change(
            name, user_id, lambda before: before + content, expected_version=expected_version
        )

    def delete_block(
        self, name: str, *, user_id: str | None = None, expected_version: int | None = None
    ) -> None:
        """Take a block out; its versions stay readable until they are forgotten."""
        self._watch(user_id)
        self._blocks.delete(name, user_id, expected_version=expected_version)

    def block_history(
        self, name: str, *, user_id: str | None = None, after: int = 0, limit: int = 100
    ) -> list[MemoryBlock]:
        """A block's versions after `after`, oldest first."""
        self._watch(user_id)
        return self._blocks.history(name, user_id, after=after, limit=limit)

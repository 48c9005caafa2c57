"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.request import asked, given, place


class Blocks:
    """Routes about blocks; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def get(self, name: str, *, user_id: str | None = None) -> shapes.blocks.MemoryBlock:
        """One block; `ETag` is its version."""
        ask = asked(
            "GET",
            place("/v1/blocks/{name}", name=name),
            query=given(user_id=self._link.user(user_id)),
            is_safe=True,
        )
        return self._link.send(ask, shapes.blocks.MemoryBlock)

    def put(
        self,
        name: str,
        content: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.blocks.MemoryBlock:
        """Replace a block's text; the block is made when there is none."""
        ask = asked(
            "PUT",
            place("/v1/blocks/{name}", name=name),
            body={
                "content": content,
                **given(user_id=self._link.user(user_id), expected_version=expected_version),
            },
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.blocks.MemoryBlock)

    def append(
        self,
        name: str,
        content: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.blocks.MemoryBlock:
        """Add to the end of a block; however many write at once, nothing is lost."""
        ask = asked(
            "POST",
            place("/v1/blocks/{name}/append", name=name),
            body={
                "content": content,
                **given(user_id=self._link.user(user_id), expected_version=expected_version),
            },
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.blocks.MemoryBlock)

    def delete(
        self,
        name: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.blocks.Removed:
        """Delete a block; older versions stay readable until they are forgotten."""
        ask = asked(
            "DELETE",
            place("/v1/blocks/{name}", name=name),
            query=given(user_id=self._link.user(user_id)),
            key=idempotency_key,
            if_match=expected_version,
        )
        return self._link.send(ask, shapes.blocks.Removed)

    def history(
        self, name: str, *, user_id: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> shapes.blocks.BlockList:
        """Versions of a block, oldest first."""
        ask = asked(
            "GET",
            place("/v1/blocks/{name}/history", name=name),
            query=given(user_id=self._link.user(user_id), limit=limit, cursor=cursor),
            is_safe=True,
        )
        return self._link.send(ask, shapes.blocks.BlockList)

    def list(self, *, user_id: str | None = None) -> shapes.blocks.BlockList:
        """All blocks of a user, in order."""
        ask = asked(
            "GET", "/v1/blocks", query=given(user_id=self._link.user(user_id)), is_safe=True
        )
        return self._link.send(ask, shapes.blocks.BlockList)

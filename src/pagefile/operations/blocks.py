"""Blocks: named text that stands in every prompt."""

from __future__ import annotations

import msgspec

from pagefile.memory.block import MemoryBlock
from pagefile.memory.memory import Memory
from pagefile.operations.binder import Id
from pagefile.operations.operation import delete, get, operation, post, put

_TEXT = "Text: The text; `expected_version` refuses when the block is at another, 0 is none yet."


class BlockList(msgspec.Struct, kw_only=True):
    """Blocks, in their order."""

    items: list[MemoryBlock]
    cursor: str | None = None


class Removed(msgspec.Struct, kw_only=True):
    """It is gone."""

    ok: bool


list_blocks = operation(
    Memory.working,
    http=get("/v1/blocks", "blocks"),
    gives=BlockList,
)

get_block = operation(
    Memory.block,
    http=get("/v1/blocks/{name}", "blocks"),
    wire={"name": Id},
    etag="version",
)

put_block = operation(
    Memory.update_block,
    http=put("/v1/blocks/{name}", "blocks"),
    wire={"name": Id},
    takes=_TEXT,
    guard="expected_version",
    etag="version",
    span="upsert_memory",
)

append_block = operation(
    Memory.append_block,
    http=post("/v1/blocks/{name}/append", "blocks"),
    wire={"name": Id},
    takes=_TEXT,
    guard="expected_version",
    etag="version",
    span="update_memory",
)

delete_block = operation(
    Memory.delete_block,
    http=delete("/v1/blocks/{name}", "blocks"),
    wire={"name": Id},
    without=("expected_version",),
    guard="expected_version",
    gives=Removed,
    span="delete_memory",
)

block_history = operation(
    Memory.block_history,
    http=get("/v1/blocks/{name}/history", "blocks"),
    wire={"name": Id},
    gives=BlockList,
    page="version",
)

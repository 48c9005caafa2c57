"""What a call needs: the right that the same request needs over HTTP, in one table.

A key has the same rights on both surfaces; a test sends each request of this
table over HTTP, with and without the right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pagefile.surfaces.mcp.identity import ADMIN, READ, WRITE

#: What `forget` needs to erase; without it, it rehearses and takes facts back.
ERASING = "forget: erase"
#: Reading a pack makes it, which is noted in the run's ledger.
PACKING = "resource: pack"


class Need(NamedTuple):
    """A right, and the request over HTTP that does the same."""

    right: str
    method: str = ""
    path: str = ""


NEEDS: Mapping[str, Need] = {
    "add_memory": Need(WRITE, "POST", "/v1/episodes"),
    "search_memory": Need(READ, "POST", "/v1/search"),
    "get_memory": Need(READ, "GET", "/v1/memories/m/why"),
    "update_memory": Need(WRITE, "POST", "/v1/episodes"),
    "forget": Need(WRITE, "POST", "/v1/facts/f/retract"),
    ERASING: Need(ADMIN, "POST", "/v1/forget"),
    "get_context": Need(READ, "POST", "/v1/context"),
    "append_message": Need(WRITE, "POST", "/v1/threads/t/slots"),
    "get_thread": Need(READ, "GET", "/v1/threads/t/slots"),
    "propose_memory": Need(WRITE, "POST", "/v1/batches"),
    "commit_memory": Need(ADMIN, "POST", "/v1/batches/b/commit"),
    PACKING: Need(WRITE, "POST", "/v1/runs/r/packs"),
    # The reference server's, which there are over MCP alone.
    "create_entities": Need(WRITE),
    "create_relations": Need(WRITE),
    "add_observations": Need(WRITE),
    "delete_entities": Need(WRITE),
    "delete_observations": Need(WRITE),
    "delete_relations": Need(WRITE),
    "read_graph": Need(READ),
    "search_nodes": Need(READ),
    "open_nodes": Need(READ),
}

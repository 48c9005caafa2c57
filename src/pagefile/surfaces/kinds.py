"""What the surfaces store under which name; without importing what serves them."""

from __future__ import annotations

from pagefile.store.kinds import Kind

#: Documents, one per request with an idempotency key.
ONCE = "http/once/"
#: Documents, one per API key.
KEYS = "key/"
#: The log of requests that were refused.
REFUSALS = "refusals"
#: Documents of the graph that clients of the reference memory server keep.
ENTITIES = "graph/entity/"
RELATIONS = "graph/relation/"
GRAPH_FILES = "graph/import/"

KINDS = (
    Kind(
        ONCE,
        "the answer to a request with an idempotency key, kept for a day: a copy",
        exported=False,
    ),
    Kind(KEYS, "an API key: its digest, and what it may do", owner="tenant", exported=False),
    Kind(REFUSALS, "requests that were refused", "log", owner="tenant", form="", exported=False),
    Kind(ENTITIES, "an entity of the reference memory server", bucket=True),
    Kind(RELATIONS, "a relation of the reference memory server", bucket=True),
    Kind(GRAPH_FILES, "that a file of the reference memory server was read", bucket=True),
)

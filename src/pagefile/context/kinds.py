"""What the context stores under which name."""

from __future__ import annotations

import hashlib

from pagefile.context.names import (
    EVICTIONS,
    EXPIRIES,
    PATHS,
    SWEPT,
    THREADS,
    USAGE,
    USES,
    usage_document,
)
from pagefile.context.registry_documents import CHAINS, ROOT, TABLES
from pagefile.context.slot import LANE
from pagefile.store.batch import Append, Put
from pagefile.store.kinds import Kind, require, require_bare


def _slot(given: Append, user: str | None, _: bool) -> None:
    if not given.keys:
        return  # Not put there by a buffer.
    lane = given.keys.get(LANE)
    is_lane = isinstance(lane, tuple) and [type(part) for part in lane] == [str] * 3
    require(is_lane and len(given.keys) == 1, "has other keys than it would get")
    notes = given.notes
    for field in ("own_name", "usage", "todo_nudge"):
        require(isinstance(notes.get(field, ""), str), f"has {field} that is not text")
    require(type(notes.get("is_self_call", False)) is bool, "has odd notes")


def _usage(given: Put, user: str | None, _: bool) -> None:
    require_bare(given)
    require(type(given.value) is str, "is not text")
    digest = hashlib.sha256(given.value.encode()).hexdigest()
    require(user is not None, "is not a user's")
    require(given.document == usage_document(digest, user), "is another text")


def _use(given: Put, user: str | None, _: bool) -> None:
    require_bare(given)
    require(given.value is None, "is not a mark of a use")


def _expiry(given: Append, user: str | None, _: bool) -> None:
    require_bare(given)
    require(given.kind == "expiry", "is of another kind")
    require(isinstance(dict(given.value).get("conversation"), str), "does not name a conversation")


KINDS = (
    Kind(
        THREADS,
        "the slots of a thread",
        "log",
        counted_as="slots",
        loose=True,
        typed=True,
        own=True,
        check=_slot,
    ),
    Kind(
        USAGE,
        "a usage text that slots of a user refer to",
        counted_as="usage_texts",
        own=True,
        check=_usage,
    ),
    Kind(PATHS, "where a thread stands on a call path"),
    Kind(USES, "that a thread was used without being written to", check=_use),
    Kind(EXPIRIES, "conversations that were ended for being idle", "log", form="", check=_expiry),
    Kind(
        SWEPT,
        "up to which position idle conversations were looked for",
        owner="tenant",
        form="",
        exported=False,
    ),
    Kind(
        EVICTIONS,
        "what left residency, and why",
        "log",
        owner="tenant",
        form="",
        exported=False,
    ),
    Kind(CHAINS, "the thread of a call path", owner="tenant", exported=False),
    Kind(ROOT, "the root of the registry of call paths", owner="tenant", form="", exported=False),
    Kind(TABLES, "a table of the registry of call paths", owner="tenant", exported=False),
)

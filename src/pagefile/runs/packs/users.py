"""Whether a pack holds something of a user, for who forgets them."""

from __future__ import annotations

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from pagefile.context.names import THREADS
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.runs.names import RUNS
from pagefile.runs.packs.format import ITEMS, MANIFEST, SLOTS
from pagefile.store.codec.decoder import from_json
from pagefile.store.store import Store


def was_forgotten(path: Path, run_id: str, store: Store) -> bool:
    """Whether its run, or slots in it, were forgotten with their user."""
    try:
        held = _streams_in(str(path), path.stat().st_mtime_ns, run_id)
    except OSError:
        return False  # Somebody else removed it.
    return any(
        forgotten_of(store, user_id).among([name]) is not None for user_id, name in sorted(held)
    )


@lru_cache(maxsize=1_024)
def _streams_in(path: str, _: int, run_id: str) -> frozenset[tuple[str, str]]:
    """Users, and what of theirs a pack holds; a pack is never written again."""
    held: set[tuple[str, str]] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            pointers = from_json(archive.read(MANIFEST), dict[str, Any])["pointers"]
            if pointers["user_id"] is not None:
                held.add((pointers["user_id"], RUNS + run_id))
            if SLOTS in archive.namelist():
                thread = THREADS + pointers["thread_id"]
                with archive.open(SLOTS) as lines:
                    users = {from_json(line, dict[str, Any]).get("user") for line in lines}
                held |= {(user, thread) for user in users if isinstance(user, str)}
    except (OSError, KeyError, TypeError, zipfile.BadZipFile, msgspec.DecodeError):
        return frozenset()  # It holds nothing that anybody could restore.
    return frozenset(held)


def holds_user(path: Path, user_id: str) -> bool:
    """Whether the run of the pack, one of its slots or one of its items is the user's.

    A pack that cannot be read holds nothing that anybody could restore.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if MANIFEST in names:
                told = from_json(archive.read(MANIFEST), dict[str, Any])
                pointers = told.get("pointers")
                if isinstance(pointers, dict) and pointers.get("user_id") == user_id:
                    return True
            return any(_speaks(archive, name, user_id) for name in (SLOTS, ITEMS) if name in names)
    except (OSError, zipfile.BadZipFile, msgspec.DecodeError):
        return False


def _speaks(archive: zipfile.ZipFile, member: str, user_id: str) -> bool:
    with archive.open(member) as lines:
        return any(_user_of(from_json(line, dict[str, Any])) == user_id for line in lines)


def _user_of(line: dict[str, Any]) -> object:
    item = line.get("item")
    return item.get("user_id") if isinstance(item, dict) else line.get("user")

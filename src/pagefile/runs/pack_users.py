"""Whether a pack holds something of a user, for who forgets them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import msgspec

from pagefile.runs.pack_format import ITEMS, MANIFEST, SLOTS
from pagefile.typed import from_json


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

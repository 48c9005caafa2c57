"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Any

import msgspec


class PackInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pack that can be downloaded."""

    pack_id: str
    run_id: str
    size_bytes: int
    download: str


class PackList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Packs that can be downloaded, by id."""

    items: list[PackInfo]
    cursor: str | None


class Removed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It is gone."""

    ok: bool


class Restored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run that was made of a pack."""

    ok: bool
    run_id: str
    ws: dict[str, Any]
    items_left_out: int = 0


class PackReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a pack holds. There is a report only for a pack that is sound."""

    format: str
    pack_id: str
    run_id: str
    seq: int
    events: int
    versions: int
    episodes: int
    items: int
    slots: int
    evicted: int
    size_bytes: int
    proved: bool
    normalised: tuple[str, ...] = ()

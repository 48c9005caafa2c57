"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Any

import msgspec

import pagefile.store.records as library


class NewSlot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to be appended. `expected_len` refuses unless the thread has so many slots."""

    payload: Any
    from_id: str
    to_id: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""
    user_id: str | None = None
    expected_len: int | None = None


class Thread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread and how many slots it has had."""

    thread_id: str
    length: int


class Slot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a thread. `payload` is null when `erased`."""

    thread_id: str
    index: int
    from_id: str
    to_id: str
    payload_type: str
    payload: Any
    timestamp: str
    own_name: str | None
    is_self_call: bool
    usage_instructions: str
    todo_nudge: str
    user_id: str | None
    position: int | None
    erased: bool


class SlotList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The slots as they are stored."""

    items: list[Slot]


class Pinned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a thread is kept from leaving."""

    ok: bool
    pinned: bool


class Deleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of it; `receipt` when its content was erased."""

    ok: bool
    deleted: bool
    receipt: library.Receipt | None = None

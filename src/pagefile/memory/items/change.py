"""One memory change request: its fields, rules and bounds, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pagefile.errors import Invalid, LimitExceeded, shown
from pagefile.store.arguments import Naming
from pagefile.store.codec.decoder import convert

Op = Literal["add", "supersede", "deprecate", "noop"]
ItemType = Literal["fact", "preference", "policy", "decision", "invariant"]
Scope = Literal["user", "project", "global"]

MOST_CHANGES = 128
MOST_SUPERSEDED = 64
MOST_REFS = 64
MOST_CONTENT = 32_768
MOST_RATIONALE = 4_096
LEAST_ID = 3
#: An item's id is part of its document's name, and that has to fit.
MOST_ID_BYTES = 256
MOST_NAME_BYTES = 512

_Id = Annotated[str, Meta(min_length=LEAST_ID, max_length=MOST_ID_BYTES)]
#: An id to be looked up; a short one is well-formed, and names nothing.
_Target = Annotated[str, Meta(min_length=1, max_length=MOST_ID_BYTES)]
_Name = Annotated[str, Meta(min_length=1, max_length=MOST_NAME_BYTES)]
_Moment = Annotated[datetime, Meta(tz=True)]

_IDS = Naming(MOST_ID_BYTES)
_NAMES = Naming(MOST_NAME_BYTES)


class Change(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A memory change request of schema version 2.1. An empty text is one that was not given."""

    schema_version: Literal["2.1"] = msgspec.field(name="_schema_version")
    op: Op
    type: ItemType
    scope: Scope
    content: Annotated[str, Meta(min_length=1, max_length=MOST_CONTENT)]
    confidence: Annotated[float, Meta(ge=0, le=1)]
    rationale: Annotated[str, Meta(min_length=1, max_length=MOST_RATIONALE)]
    source_refs: Annotated[tuple[_Name, ...], Meta(max_length=MOST_REFS)]
    supersedes: Annotated[tuple[_Target, ...], Meta(max_length=MOST_SUPERSEDED)] = ()
    target_memory_id: _Target = ""
    memory_id: _Id = ""
    user_id: _Name = ""
    project_id: _Name = ""
    created_at: _Moment | UnsetType = UNSET
    updated_at: _Moment | UnsetType = UNSET

    @property
    def makes_item(self) -> bool:
        """Whether committing it brings a new item into being."""
        return self.op in ("add", "supersede")


def changes_of(mcrs: object) -> tuple[Change, ...]:
    """All the requests, checked; one that breaks a rule refuses them all.

    Raises:
        Invalid: names the request by its index, the field and the rule.
        LimitExceeded: there are more than one batch may hold.
    """
    if not isinstance(mcrs, Sequence) or isinstance(mcrs, (str, bytes, bytearray)):
        raise Invalid("mcrs", f"{shown(mcrs)} is no list", "give a list of change requests")
    if not mcrs:
        raise Invalid("mcrs", "is empty", "propose at least one change request")
    if len(mcrs) > MOST_CHANGES:
        raise LimitExceeded(
            "the number of change requests in one batch",
            limit=MOST_CHANGES,
            wanted=len(mcrs),
            next_step="propose several batches",
        )
    return tuple(_change(mcr, f"mcrs[{i}]") for i, mcr in enumerate(mcrs))


def require_id(field: str, memory_id: object) -> str:
    """The id of an item, if it can be one."""
    _IDS.check_text(field, memory_id)
    assert isinstance(memory_id, str)
    if len(memory_id) < LEAST_ID:
        raise Invalid(field, f"{memory_id!r} is too short", f"give {LEAST_ID} characters or more")
    return memory_id


def require_name(field: str, name: object) -> str:
    """The name of a user, project, run, reviewer or source, if it can be one."""
    _NAMES.check_text(field, name)
    assert isinstance(name, str)
    return name


def require_name_or_none(field: str, name: object) -> str | None:
    """The name; None stays None."""
    return None if name is None else require_name(field, name)


def _change(mcr: object, at: str) -> Change:
    if not isinstance(mcr, Mapping):
        raise Invalid(at, f"{shown(mcr)} is no mapping", "give a dict with the fields of an MCR")
    try:
        change = convert(dict(mcr), Change)
    except msgspec.ValidationError as error:
        fact, _, path = str(error).partition(" - at `$")
        raise Invalid(
            at + path.removesuffix("`"), shown(fact)[1:-1], "mend it as schema mcr 2.1 says"
        ) from None
    except UnicodeEncodeError:
        raise Invalid(at, "holds a lone surrogate", "send valid Unicode text") from None
    _require_texts(change, at)
    _require_times(change, at)
    _require_whole(change, at)
    return change


def _require_texts(change: Change, at: str) -> None:
    for field in ("content", "rationale"):
        text = getattr(change, field)
        if type(text) is not str:  # A subclass could change under our hands.
            raise Invalid(f"{at}.{field}", f"is of type {type(text).__name__}", "give a plain str")
        try:
            text.encode()
        except UnicodeEncodeError:
            rule = "send valid Unicode text"
            raise Invalid(f"{at}.{field}", "holds a lone surrogate", rule) from None
    for field in ("target_memory_id", "memory_id"):
        if text := getattr(change, field):
            _IDS.check_text(f"{at}.{field}", text)
    for i, memory_id in enumerate(change.supersedes):
        _IDS.check_text(f"{at}.supersedes[{i}]", memory_id)
    for field in ("user_id", "project_id"):
        if text := getattr(change, field):
            require_name(f"{at}.{field}", text)
    for i, source in enumerate(change.source_refs):
        require_name(f"{at}.source_refs[{i}]", source)


def _require_times(change: Change, at: str) -> None:
    for field in ("created_at", "updated_at"):
        time = getattr(change, field)
        try:
            _ = time is UNSET or time.astimezone(UTC)
        except OverflowError:
            rule = "give a time from year 1 to 9999 in UTC"
            raise Invalid(f"{at}.{field}", f"{shown(time)} is out of range", rule) from None


def _require_whole(change: Change, at: str) -> None:
    needed = [
        (change.op == "supersede", "supersedes", "op is supersede"),
        (change.op == "deprecate", "target_memory_id", "op is deprecate"),
        (change.scope == "user", "user_id", "scope is user"),
        (change.scope == "project", "project_id", "scope is project"),
    ]
    for applies, field, why in needed:
        if applies and not getattr(change, field):
            raise Invalid(f"{at}.{field}", f"is missing, and {why}", f"give {field}")

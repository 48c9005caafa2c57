"""The seven artifacts of a run: checked by compiled code, published as JSON Schema.

    working_set  ws_patch  ledger_event  episode  mcr  memory_item  resume_pack_manifest

The files in `schemas/` say the same as `check`, but for what JSON Schema has
no word for: ids that are unique in their list, halves of surrogate pairs, how
deep free values are nested, and Python values that are not in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pagefile.errors import Invalid, shown
from pagefile.runs.schema.compiler import Test, compile_test
from pagefile.runs.schema.definitions import (
    ARTIFACTS,
    PATCH_FIELDS,
    PATCHABLE,
    PROTECTED,
    SCHEMA_VERSION,
    STATUSES,
)
from pagefile.runs.schema.mismatches import first_misfit
from pagefile.runs.schema.shapes import Fields
from pagefile.runs.schema.timestamps import parse_time

__all__ = [
    "PATCHABLE",
    "PROTECTED",
    "SCHEMA_VERSION",
    "STATUSES",
    "check",
    "check_fields",
    "parse_time",
    "schema",
]


def check(name: str, instance: object) -> None:
    """Refuse what is no artifact of this name.

    Raises:
        Invalid: at `field`, the dotted path of the first fault, as in
            `sliding_context.3.priority`; `<root>` is the document itself. A
            missing or unknown field is a fault of the object around it.
    """
    shape = _shape(name)
    if not _test(shape)(instance):
        _refuse(shape, instance)


def check_fields(fields: Mapping[str, object]) -> None:
    """Refuse what a patch may not set: the errors of `check`, with paths that begin at a field."""
    instance = fields if type(fields) is dict or not isinstance(fields, Mapping) else dict(fields)
    if not _test(PATCH_FIELDS)(instance):
        _refuse(PATCH_FIELDS, instance)


def schema(name: str) -> dict[str, Any]:
    """The published JSON Schema of an artifact; the dict is the caller's own."""
    _shape(name)
    file = files(__package__) / "published" / f"{name}.v{SCHEMA_VERSION}.schema.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _shape(name: str) -> Fields:
    found = ARTIFACTS.get(name) if isinstance(name, str) else None
    if found is None:
        raise Invalid("name", f"{shown(name)} is no artifact", f"give {', '.join(ARTIFACTS)}")
    return found


@cache
def _test(shape: Fields) -> Test:
    # On first use, not on import: a process that checks no event compiles none.
    return compile_test(shape)


def _refuse(shape: Fields, instance: object) -> None:
    """The slow check has the last word, and knows the place; see `compiler`."""
    misfit = first_misfit(shape, instance)
    if misfit is not None:
        raise misfit.to_error()

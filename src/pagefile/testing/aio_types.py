"""Writes `_aio_types.pyi`, what type checkers see of the async face.

    python -m pagefile.testing.aio_types

The stub is made from the sync signatures; a test fails when it is out of date.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from pagefile.handle import Pagefile
from pagefile.store import Store

TARGET = Path(__file__).parent.parent / "_aio_types.pyi"
_HEADER = """# Made by `python -m pagefile.testing.aio_types` from the sync classes; do not edit.
from collections.abc import Callable
from typing import Any

from pagefile.batch import Batch, Selector
from pagefile.handle import Pagefile
from pagefile.records import (
    Change,
    Commit,
    Document,
    Entry,
    Head,
    Page,
    Receipt,
    Report,
    Stats,
    StreamKind,
)
from pagefile.query import Query
from pagefile.store import Store
"""


def stub() -> str:
    """The stub's text for the classes as they are now."""
    parts = [_HEADER]
    for sync, name in ((Store, "AsyncStore"), (Pagefile, "AsyncPagefile")):
        lines = [f"class {name}:", f"    def __init__(self, sync: {sync.__name__}) -> None: ..."]
        for method, function in inspect.getmembers(sync, inspect.isfunction):
            if not method.startswith("_") and not method.endswith("_async"):
                lines.append(f"    async def {method}{inspect.signature(function)}: ...")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(stub(), encoding="utf-8")

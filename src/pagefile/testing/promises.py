"""Promise by engine, from what the engines declare: `python -m pagefile.testing.promises`.

After a test session the same table says how many contract tests passed for each.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pagefile.testing.contract import promised_numbers

#: How a column is headed, and the class that declares it.
ENGINES = (
    ("`memory:`", "pagefile.engines.memory", "MemoryEngine"),
    ("SQLite file", "pagefile.engines.sqlite.engine", "SqliteEngine"),
    ("PostgreSQL", "pagefile.engines.postgres.engine", "PostgresEngine"),
    ("Redis, Valkey", "pagefile.engines.redis.engine", "RedisEngine"),
    ("`manager:`", "pagefile.engines.manager.engine", "ManagerEngine"),
)


def declared() -> dict[str, Any]:
    """The engines' classes by the heads of their columns; None where a driver is missing."""
    found: dict[str, Any] = {}
    for title, module, name in ENGINES:
        try:
            found[title] = getattr(importlib.import_module(module), name)
        except ImportError:
            found[title] = None
    return found


def table() -> list[list[str]]:
    """Rows of text, the first of them the heads: what each engine says of itself."""
    engines = declared()
    rows = [["", *engines]]
    for number in promised_numbers():
        rows.append([number, *(_said(each, number) for each in engines.values())])
    rows.append(["durable to", *(_listed(each, "levels") for each in engines.values())])
    rows.append(["erased to", *(_listed(each, "erasure") for each in engines.values())])
    return rows


def _said(engine: Any, number: str) -> str:
    if engine is None:
        return "not installed"
    return "yes" if number in engine.promises else "no"


def _listed(engine: Any, field: str) -> str:
    if engine is None:
        return "not installed"
    said = getattr(engine, field)
    return " ".join(f"`{word}`" for word in ([said] if isinstance(said, str) else said))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """The table as it stands in docs/reference/promises.md."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines[0] = lines[0].replace("|  |", "| |", 1)
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def counted(passed: Iterable[tuple[str, Sequence[str]]]) -> list[list[str]]:
    """The table, with how many tests passed: for each its engine's name and its promises."""
    engines = declared()
    by_promise: Counter[tuple[str, str]] = Counter()
    all_of: Counter[str] = Counter()
    for engine, numbers in passed:
        all_of[engine] += 1
        by_promise.update((engine, number) for number in numbers)
    rows = table()
    for row in rows[1:]:
        for at, engine in enumerate(engines.values(), start=1):
            if engine is not None and row[at] == "yes":
                row[at] = f"yes, {by_promise[engine.name, row[0]]:,} tests"
    whole = [f"{all_of[each.name]:,}" if each is not None else "" for each in engines.values()]
    return [*rows, ["contract tests", *whole]]


def plain(rows: Sequence[Sequence[str]]) -> str:
    """The table in columns of text."""
    bare = [[cell.replace("`", "") for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in bare) for at in range(len(bare[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in bare
    )


if __name__ == "__main__":
    print(plain(table()))

"""What several engines share: named SQL from files, and groups cut to the size of a request."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from pagefile.store.engine import Prepared


def load_queries(dialect: str) -> dict[str, str]:
    """The dialect's queries by name. `-- :name sentence` starts one."""
    text = (_folder(dialect) / "queries.sql").read_text(encoding="utf-8")
    queries: dict[str, str] = {}
    for block in text.split("-- :")[1:]:
        title, _, body = block.partition("\n")
        queries[title.split(" ", 1)[0]] = body.strip()
    return queries


def load_migrations(dialect: str) -> list[str]:
    """The scripts that lead from format 0 to the newest, in order."""
    folder = _folder(dialect)
    names = sorted(f.name for f in folder.iterdir() if f.name[:4].isdigit())
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _folder(dialect: str) -> Traversable:
    engine, *part = dialect.split("/")
    return files("pagefile.engines").joinpath(engine, "sql", *part)


def parts_of(
    items: Sequence[tuple[str, Prepared]], most_bytes: int
) -> Sequence[Sequence[tuple[str, Prepared]]]:
    """The same batches in the same order; only a single one may be larger than a part."""
    if len(items) == 1:
        return (items,)
    parts: list[Sequence[tuple[str, Prepared]]] = []
    start = size = 0
    for at, (_, batch) in enumerate(items):
        own = sum(len(content.body) for write in batch.writes for content in write.contents)
        if size and size + own > most_bytes:
            parts.append(items[start:at])
            start, size = at, 0
        size += own
    return [*parts, items[start:]]

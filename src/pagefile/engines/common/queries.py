"""Named SQL from files: one file of queries and numbered migrations per dialect."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable


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

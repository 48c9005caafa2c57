"""`memory.jsonl`, the file of the reference memory server: taken in, and written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, shown
from pagefile.memory.names import owner_key
from pagefile.store.batch import Batch, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store
from pagefile.surfaces.kinds import GRAPH_FILES
from pagefile.surfaces.mcp.reference.graph import Entity, Graph, Relation

_AT_ONCE = 500
_MOST_BYTES = 256 * 1024 * 1024


class Imported(msgspec.Struct, frozen=True):
    """What of a file was new. `skipped` are lines that are no entity and no relation.

    `repeated` is True when these very bytes were taken in before: what was deleted
    since stays deleted.
    """

    entities: int = 0
    observations: int = 0
    relations: int = 0
    skipped: int = 0
    repeated: bool = False


def take_in(store: Store, user: str | None, path: str | os.PathLike[str]) -> Imported:
    """Add what a file has and the graph has not. The same file again adds nothing.

    Raises:
        NotFound: there is no such file. LimitExceeded: it is too long.
        Invalid: it cannot be read.
    """
    raw = _bytes_of(path)
    mark = f"{GRAPH_FILES}{owner_key(user)}/{hashlib.sha256(raw).hexdigest()}"
    if store.get(mark) is not None:
        return Imported(repeated=True)
    entities, relations, skipped = _parsed(raw)
    graph = Graph(store, user)
    made = observations = links = 0
    for start in range(0, len(entities), _AT_ONCE):
        some = entities[start : start + _AT_ONCE]
        made += len(graph.create_entities(some))
        added = graph.add_observations([(each.name, each.observations) for each in some])
        observations += sum(len(new) for new in added)
    for start in range(0, len(relations), _AT_ONCE):
        # Such files may hold relations whose ends are gone; they are kept as they are.
        some_links = relations[start : start + _AT_ONCE]
        links += len(graph.create_relations(some_links, between_known=False))
    told = Imported(made, observations, links, skipped)
    store.commit(Batch([Put(mark, msgspec.to_builtins(told), user, "graph_import")]))
    return told


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(Path(path).expanduser(), "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no file {shown(str(path))}", "check the path") from None
    except (OSError, ValueError, RuntimeError) as error:
        raise Invalid("path", f"{shown(str(path))} cannot be read ({error})", "check it") from error
    if len(raw) > _MOST_BYTES:
        raise LimitExceeded(
            "a file of a graph in bytes",
            limit=_MOST_BYTES,
            wanted=len(raw),
            next_step="split it",
        )
    return raw


def _parsed(raw: bytes) -> tuple[list[Entity], list[Relation], int]:
    entities: dict[str, Entity] = {}
    relations: dict[Relation, None] = {}
    skipped = 0
    for line in raw.splitlines():
        if not line.strip():
            continue
        try:
            value: Any = msgspec.json.decode(line)
            kind = value.get("type") if isinstance(value, dict) else None
            if kind == "entity":
                entity = convert(value, Entity)
                entities.setdefault(entity.name, entity)
            elif kind == "relation":
                relations[convert(value, Relation)] = None
            else:
                skipped += 1
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            skipped += 1  # As that server does with lines it cannot read.
    return list(entities.values()), list(relations), skipped


def write_out(store: Store, user: str | None, path: str | os.PathLike[str]) -> tuple[int, int]:
    """Write the graph as that server's file; how many entities and relations.

    Raises:
        Conflict: there is a file of that name. Invalid: it cannot be written.
    """
    graph = Graph(store, user)
    entities, relations = graph.entities(), graph.relations()
    lines = [{"type": "entity", **msgspec.to_builtins(entity)} for entity in entities]
    lines += [{"type": "relation", **msgspec.to_builtins(relation)} for relation in relations]
    try:
        with open(Path(path).expanduser(), "xb") as file:
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
    except FileExistsError:
        raise Conflict(
            f"there is a file {shown(str(path))}",
            "choose another name, or remove it",
            target=str(path),
            expected=0,
            current=1,
        ) from None
    except (OSError, ValueError, RuntimeError) as error:
        raise Invalid(
            "path", f"{shown(str(path))} cannot be written ({error})", "check it"
        ) from error
    return len(entities), len(relations)

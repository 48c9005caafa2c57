"""A knowledge graph: entities with observations, and relations between them.

    graph/entity/<digest of the user>/<digest of the name>
    graph/relation/<digest of the user>/<digest of from, to and type>

Each is a document of its own in the user's partition, so that writers who touch
different things never meet. Those who touch the same are told by a condition of
the commit, and try again on what the other wrote: nothing is lost.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, shown
from pagefile.handle import machine_clock
from pagefile.memory.documents import owner_key
from pagefile.store.arguments import MOST_PER_READ
from pagefile.store.batch import (
    Absent,
    Batch,
    Condition,
    Delete,
    Operation,
    Put,
    Query,
    Unchanged,
    VersionIs,
)
from pagefile.store.codec.decoder import convert
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.records import Document
from pagefile.store.store import Store
from pagefile.surfaces import kinds
from pagefile.surfaces.kinds import GRAPH_FILES

ENTITIES: Final = "graph.entity"
RELATIONS: Final = "graph.relation"
_FROM, _TO = "graph.from", "graph.to"
_ATTEMPTS = 1_000
_MOST_READ = 200_000
_MOST_DELETED = 10_000

_T = TypeVar("_T")
#: What a change does, what it depends on, and what it answers.
_Step = tuple[list[Operation], list[Condition], _T]


class Entity(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    entity_type: str
    observations: Sequence[str]


class Relation(
    msgspec.Struct, frozen=True, rename={"from_": "from", "relation_type": "relationType"}
):
    from_: str
    to: str
    relation_type: str


class Graph:
    """The graph of one user; nobody's has a place of its own."""

    def __init__(self, store: Store, user: str | None, clock: Callable[[], int] = machine_clock):
        self._store = store
        self._user = user
        self._clock = clock

    # Reading

    def entities(self) -> list[Entity]:
        """All of them, in the order in which they came."""
        return [_entity(document) for document in self._all(ENTITIES)]

    def relations(self) -> list[Relation]:
        """All of them, in the order in which they came."""
        return [_relation(document) for document in self._all(RELATIONS)]

    def named(self, names: Iterable[str]) -> list[Entity]:
        """Those of these names that there are, in the order in which they came."""
        found = [document for document in self._read(names).values() if document is not None]
        return [_entity(document) for document in sorted(found, key=_age)]

    def around(self, names: Iterable[str]) -> list[Relation]:
        """The relations that begin or end at one of these names."""
        found = {d.name: d for name in dict.fromkeys(names) for d in self._ends_at(name)}
        return [_relation(document) for document in sorted(found.values(), key=_age)]

    # Writing

    def create_entities(self, entities: Sequence[Entity]) -> list[Entity]:
        """Add those whose names are new; return them."""
        first: dict[str, Entity] = {}
        for entity in entities:
            first.setdefault(entity.name, entity)

        places = [self._place(name) for name in first]

        def step() -> _Step[list[Entity]]:
            found = zip(first.values(), self._store.get_many(places), strict=True)
            free = [(entity, seen) for entity, seen in found if not _is_there(seen)]
            now = self._clock()
            puts: list[Operation] = [self._put(e, (now, n)) for n, (e, _) in enumerate(free)]
            unwritten = [_as_read(self._place(entity.name), seen) for entity, seen in free]
            return puts, unwritten, [entity for entity, _ in free]

        return self._settle(step)

    def create_relations(
        self, relations: Sequence[Relation], *, between_known: bool = True
    ) -> list[Relation]:
        """Add those that are new; return them.

        Raises:
            NotFound: an end of one is no entity, unless `between_known` is False.
        """
        wanted = list(dict.fromkeys(relations))
        ends = (
            dict.fromkeys(end for r in wanted for end in (r.from_, r.to)) if between_known else {}
        )

        places = [self._link(relation) for relation in wanted]

        def step() -> _Step[list[Relation]]:
            known = [self._known(name, seen) for name, seen in self._read(ends).items()]
            found = zip(wanted, self._store.get_many(places), strict=True)
            free = [(relation, seen) for relation, seen in found if not _is_there(seen)]
            now = self._clock()
            puts: list[Operation] = [self._put_link(r, (now, n)) for n, (r, _) in enumerate(free)]
            conditions = [_as_read(document.name, document) for document in known]
            conditions += [_as_read(self._link(relation), seen) for relation, seen in free]
            return puts, conditions, [relation for relation, _ in free]

        return self._settle(step)

    def add_observations(self, added: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        """Add what is new to the entities named; return for each what was.

        Raises:
            NotFound: one of them is no entity; nothing was added.
        """

        def step() -> _Step[list[list[str]]]:
            now = {
                name: self._known(name, d) for name, d in self._read(n for n, _ in added).items()
            }
            lists = {name: list(_entity(d).observations) for name, d in now.items()}
            answer: list[list[str]] = []
            for name, contents in added:
                new = [text for text in dict.fromkeys(contents) if text not in set(lists[name])]
                lists[name] += new
                answer.append(new)
            return *self._replaced(now, lists), answer

        return self._settle(step)

    def delete_observations(
        self, deleted: Sequence[tuple[str, Sequence[str]]]
    ) -> tuple[int, list[str]]:
        """Remove observations; return how many went, and the names that are no entities."""

        def step() -> _Step[tuple[int, list[str]]]:
            read = self._read(name for name, _ in deleted)
            now = {name: document for name, document in read.items() if document is not None}
            lists = {name: list(_entity(d).observations) for name, d in now.items()}
            gone = 0
            for name, texts in deleted:
                if name in lists:
                    kept = [text for text in lists[name] if text not in set(texts)]
                    gone += len(lists[name]) - len(kept)
                    lists[name] = kept
            missing = [name for name, document in read.items() if document is None]
            return *self._replaced(now, lists), (gone, missing)

        return self._settle(step)

    def delete_entities(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Remove entities and their relations; return the names that went, and the unknown ones."""
        wanted = list(dict.fromkeys(names))

        def step() -> _Step[tuple[list[str], list[str]]]:
            since = self._store.head().position
            known = self._read(wanted)
            links = {d.name: d for name in wanted for d in self._ends_at(name)}
            there = [document for document in known.values() if document is not None]
            operations: list[Operation] = [Delete(d.name) for d in (*there, *links.values())]
            if len(operations) > _MOST_DELETED:
                raise LimitExceeded(
                    "what one call deletes, with its relations",
                    limit=_MOST_DELETED,
                    wanted=len(operations),
                    next_step="delete relations first, or fewer entities at once",
                )
            conditions: list[Condition] = [_as_read(d.name, d) for d in there]
            for name in wanted if operations else ():
                at = _digest(name)
                conditions += [Unchanged(end, at, since, self._user) for end in (_FROM, _TO)]
            gone = [name for name in wanted if known[name] is not None]
            return operations, conditions, (gone, [name for name in wanted if known[name] is None])

        return self._settle(step)

    def delete_relations(self, relations: Sequence[Relation]) -> int:
        """Remove relations; return how many there were."""
        names = list(dict.fromkeys(self._link(relation) for relation in relations))

        def step() -> _Step[int]:
            there = [document for document in self._living(names) if document is not None]
            return [Delete(d.name) for d in there], [_as_read(d.name, d) for d in there], len(there)

        return self._settle(step)

    # Inside

    def _settle(self, step: Callable[[], _Step[_T]]) -> _T:
        """Read, decide and commit, again and again until nobody was faster."""
        for left in reversed(range(_ATTEMPTS)):
            operations, conditions, answer = step()
            if not operations:
                return answer
            try:
                self._store.commit(Batch(operations, conditions))
            except Conflict:
                if not left:
                    raise
            else:
                return answer
        raise AssertionError("the last attempt returns or raises")

    def _replaced(
        self, now: dict[str, Document], lists: dict[str, list[str]]
    ) -> tuple[list[Operation], list[Condition]]:
        """The entities whose observations are others than before, and that they are as read."""
        operations: list[Operation] = []
        conditions: list[Condition] = []
        for name, document in now.items():
            before = _entity(document)
            if lists[name] != list(before.observations):
                after = Entity(name, before.entity_type, lists[name])
                operations.append(self._put(after, _age(document)))
                conditions.append(_as_read(document.name, document))
        return operations, conditions

    def _read(self, names: Iterable[str]) -> dict[str, Document | None]:
        wanted = list(dict.fromkeys(names))
        found = self._living([self._place(name) for name in wanted])
        return dict(zip(wanted, found, strict=True))

    def _living(self, documents: Sequence[str]) -> list[Document | None]:
        found = self._store.get_many(documents)
        return [each if _is_there(each) else None for each in found]

    def _known(self, name: str, document: Document | None) -> Document:
        if document is None:
            raise NotFound(f"entity {shown(name)} is not there", "create it first")
        return document

    def _all(self, field: str) -> list[Document]:
        return self._under(Query(field, user=self._user))

    def _under(self, query: Query) -> list[Document]:
        found: list[Document] = []
        while True:
            page = self._store.find(query, limit=MOST_PER_READ)
            found += [item for item in page.items if isinstance(item, Document)]
            if page.cursor is None:
                return found
            if len(found) >= _MOST_READ:
                raise LimitExceeded(
                    "reading a graph at once",
                    limit=_MOST_READ,
                    wanted=len(found) + 1,
                    next_step="open nodes by name",
                )
            query = msgspec.structs.replace(query, cursor=page.cursor)

    def _ends_at(self, name: str) -> list[Document]:
        found: list[Document] = []
        for field in (_FROM, _TO):
            found += self._under(Query(field, value=_digest(name), user=self._user))
        return found

    def _place(self, name: str) -> str:
        return f"{kinds.ENTITIES}{owner_key(self._user)}/{_digest(name)}"

    def _link(self, relation: Relation) -> str:
        digest = _digest(relation.from_, relation.to, relation.relation_type)
        return f"{kinds.RELATIONS}{owner_key(self._user)}/{digest}"

    def _put(self, entity: Entity, age: tuple[int, int]) -> Put:
        value: dict[str, Any] = {**msgspec.to_builtins(entity), "age": list(age)}
        return Put(
            self._place(entity.name), value, self._user, "graph_entity", keys={ENTITIES: age}
        )

    def _put_link(self, relation: Relation, age: tuple[int, int]) -> Put:
        value: dict[str, Any] = {**msgspec.to_builtins(relation), "age": list(age)}
        keys: dict[str, KeyValue] = {
            RELATIONS: age,
            _FROM: _digest(relation.from_),
            _TO: _digest(relation.to),
        }
        return Put(self._link(relation), value, self._user, "graph_relation", keys=keys)


def _digest(*texts: str) -> str:
    # What is no Unicode is refused where the value itself is written.
    raw = msgspec.json.encode([text.encode("utf-8", "surrogatepass").hex() for text in texts])
    return hashlib.sha256(raw).hexdigest()


def _is_there(document: Document | None) -> bool:
    """Whether it says something; what was erased leaves its name behind."""
    return document is not None and not document.erased


def _as_read(name: str, document: Document | None) -> Condition:
    """That nobody wrote it since it was read."""
    return Absent(name) if document is None else VersionIs(name, document.version)


def _age(document: Document) -> tuple[int, int]:
    """When it came: what entities and relations are listed by."""
    since, number = document.value["age"]
    return since, number


def _entity(document: Document) -> Entity:
    return convert(document.value, Entity)


def _relation(document: Document) -> Relation:
    return convert(document.value, Relation)


# `memory.jsonl`, the file of the reference memory server: taken in, and written.


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

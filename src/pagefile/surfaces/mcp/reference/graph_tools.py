"""The nine tools of the reference memory server: its names, its arguments, its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pagefile.errors import NotFound, shown
from pagefile.surfaces.mcp.budget import LEAST_TOKENS, MOST_TOKENS, Capped, LeftOut, encoded
from pagefile.surfaces.mcp.caller import READ, Caller
from pagefile.surfaces.mcp.reference.graph import Entity, Graph, Relation
from pagefile.surfaces.mcp.resources import Content, Listed
from pagefile.surfaces.mcp.tool import Tool

GRAPH_URI = "memory://knowledge-graph"
GRAPH_RESOURCE = Listed(GRAPH_URI, "knowledge-graph", "application/json")
_STORED = "they are stored; open_nodes shows them"
_NARROWER = "search for less, or open fewer nodes"
_AT_ONCE = 1_000
_MOST_NAMED = 20

Entities = Annotated[list[Entity], Meta(max_length=_AT_ONCE)]
Relations = Annotated[list[Relation], Meta(max_length=_AT_ONCE)]
Names = Annotated[list[str], Meta(max_length=_AT_ONCE)]


# Fields that are not known are let pass, as that server does.
class _Taken(Capped, frozen=True, kw_only=True, forbid_unknown_fields=False):
    # Its clients know of no cap: they get all that one answer may hold.
    max_tokens: Annotated[int, Meta(ge=LEAST_TOKENS, le=MOST_TOKENS)] = MOST_TOKENS


class CreateEntities(_Taken, frozen=True, kw_only=True):
    entities: Entities


class CreateRelations(_Taken, frozen=True, kw_only=True):
    relations: Relations


class _Added(msgspec.Struct, frozen=True, rename="camel"):
    entity_name: str
    contents: list[str]


class AddObservations(_Taken, frozen=True, kw_only=True):
    observations: Annotated[list[_Added], Meta(max_length=_AT_ONCE)]


class DeleteEntities(_Taken, frozen=True, kw_only=True, rename="camel"):
    entity_names: Names
    max_tokens: Annotated[int, Meta(ge=LEAST_TOKENS, le=MOST_TOKENS)] = msgspec.field(
        default=MOST_TOKENS, name="max_tokens"
    )


class _Deleted(msgspec.Struct, frozen=True, rename="camel"):
    entity_name: str
    observations: list[str]


class DeleteObservations(_Taken, frozen=True, kw_only=True):
    deletions: Annotated[list[_Deleted], Meta(max_length=_AT_ONCE)]


class DeleteRelations(_Taken, frozen=True, kw_only=True):
    relations: Relations


class ReadGraph(_Taken, frozen=True, kw_only=True):
    pass


class SearchNodes(_Taken, frozen=True, kw_only=True):
    query: Annotated[str, Meta(max_length=2_048)]


class OpenNodes(_Taken, frozen=True, kw_only=True):
    names: Names


# An answer that is whole has no field that theirs has not.
class GraphShown(msgspec.Struct, frozen=True, omit_defaults=True):
    entities: Sequence[Entity]
    relations: Sequence[Relation]
    left_out: LeftOut | None = None


class EntitiesMade(msgspec.Struct, frozen=True, omit_defaults=True):
    entities: Sequence[Entity]
    left_out: LeftOut | None = None


class RelationsMade(msgspec.Struct, frozen=True, omit_defaults=True):
    relations: Sequence[Relation]
    left_out: LeftOut | None = None


class ObservationsAdded(msgspec.Struct, frozen=True, rename="camel"):
    entity_name: str
    added_observations: Sequence[str]


class ObservationsMade(msgspec.Struct, frozen=True, omit_defaults=True):
    results: Sequence[ObservationsAdded]
    left_out: LeftOut | None = None


class Done(msgspec.Struct, frozen=True):
    success: bool
    message: str


def _graph(caller: Caller) -> Graph:
    return Graph(caller.pf.store, caller.identity.user)


def create_entities(caller: Caller, given: CreateEntities) -> EntitiesMade:
    made = _graph(caller).create_entities(given.entities)
    return caller.budget.filled(made, EntitiesMade, _STORED)


def create_relations(caller: Caller, given: CreateRelations) -> RelationsMade:
    made = _graph(caller).create_relations(given.relations)
    return caller.budget.filled(made, RelationsMade, _STORED)


def add_observations(caller: Caller, given: AddObservations) -> ObservationsMade:
    pairs = [(each.entity_name, each.contents) for each in given.observations]
    made = _graph(caller).add_observations(pairs)
    told = [ObservationsAdded(name, new) for (name, _), new in zip(pairs, made, strict=True)]
    return caller.budget.filled(told, ObservationsMade, _STORED)


def delete_entities(caller: Caller, given: DeleteEntities) -> Done:
    gone, missing = _graph(caller).delete_entities(given.entity_names)
    if not missing:
        return Done(True, "Entities deleted successfully")
    return _done(f"Deleted {len(gone)} entities. Not found: ", missing)


def delete_observations(caller: Caller, given: DeleteObservations) -> Done:
    pairs = [(each.entity_name, each.observations) for each in given.deletions]
    count, missing = _graph(caller).delete_observations(pairs)
    if not missing and count == sum(len(texts) for _, texts in pairs):
        return Done(True, "Observations deleted successfully")
    words = f"Deleted {count} observations."
    return _done(f"{words} Entities not found: ", missing) if missing else Done(True, words)


def delete_relations(caller: Caller, given: DeleteRelations) -> Done:
    count = _graph(caller).delete_relations(given.relations)
    if count == len(given.relations):
        return Done(True, "Relations deleted successfully")
    return Done(True, f"Deleted {count} relations; the others were not there.")


def _done(words: str, names: Sequence[str]) -> Done:
    # A few, and each cut short: the message has to fit whatever cap was asked for.
    few = ", ".join(shown(name) for name in names[:_MOST_NAMED])
    room = LEAST_TOKENS * 2
    return Done(True, words + (few if len(few) <= room else f"{len(names)} of them"))


def read_graph(caller: Caller, given: ReadGraph) -> GraphShown:
    graph = _graph(caller)
    return _shown(caller, graph.entities(), graph.relations())


def search_nodes(caller: Caller, given: SearchNodes) -> GraphShown:
    graph, wanted = _graph(caller), given.query.lower()
    found = [
        each
        for each in graph.entities()
        if any(wanted in text.lower() for text in (each.name, each.entity_type, *each.observations))
    ]
    names = {entity.name for entity in found}
    near = [each for each in graph.relations() if each.from_ in names or each.to in names]
    return _shown(caller, found, near)


def open_nodes(caller: Caller, given: OpenNodes) -> GraphShown:
    graph = _graph(caller)
    found = graph.named(given.names)
    return _shown(caller, found, graph.around(entity.name for entity in found))


def _shown(caller: Caller, entities: list[Entity], relations: list[Relation]) -> GraphShown:
    def told(items: Sequence[Entity | Relation], left: LeftOut | None) -> GraphShown:
        return GraphShown(
            [each for each in items if isinstance(each, Entity)],
            [each for each in items if isinstance(each, Relation)],
            left,
        )

    both: list[Entity | Relation] = [*entities, *relations]
    return caller.budget.filled(both, told, _NARROWER)


def read_resource(caller: Caller, uri: str) -> Content:
    """The whole graph, for those who ask by address."""
    caller.require(READ)
    if uri != GRAPH_URI:
        raise NotFound(f"there is nothing at {shown(uri)}", f"read {GRAPH_URI}")
    return Content("application/json", encoded(read_graph(caller, ReadGraph())))


def _tool(name: str, about: str, takes: Any, gives: Any, call: Any, **more: Any) -> Tool:
    title = name.replace("_", " ").title()
    return Tool(name=name, title=title, about=about, takes=takes, gives=gives, call=call, **more)


REFERENCE_TOOLS = (
    _tool(
        "create_entities",
        "Add entities to the knowledge graph; those whose names are taken are left as they are.",
        *(CreateEntities, EntitiesMade, create_entities),
        text=lambda answer: encoded(answer.entities),
    ),
    _tool(
        "create_relations",
        "Add relations between entities that are there; say them in the active voice.",
        *(CreateRelations, RelationsMade, create_relations),
        text=lambda answer: encoded(answer.relations),
    ),
    _tool(
        "add_observations",
        "Add observations to entities that are there.",
        *(AddObservations, ObservationsMade, add_observations),
        text=lambda answer: encoded(answer.results),
    ),
    _tool(
        "delete_entities",
        "Remove entities, with all their relations.",
        *(DeleteEntities, Done, delete_entities),
        destroys=True,
        repeatable=True,
        text=lambda answer: answer.message,
    ),
    _tool(
        "delete_observations",
        "Remove single observations from entities.",
        *(DeleteObservations, Done, delete_observations),
        destroys=True,
        repeatable=True,
        text=lambda answer: answer.message,
    ),
    _tool(
        "delete_relations",
        "Remove relations.",
        *(DeleteRelations, Done, delete_relations),
        destroys=True,
        repeatable=True,
        text=lambda answer: answer.message,
    ),
    _tool(
        "read_graph",
        "The whole knowledge graph, as far as it fits.",
        *(ReadGraph, GraphShown, read_graph),
    ),
    _tool(
        "search_nodes",
        "Entities whose name, type or observations contain a text, and their relations.",
        *(SearchNodes, GraphShown, search_nodes),
    ),
    _tool(
        "open_nodes",
        "Entities by name, and their relations.",
        *(OpenNodes, GraphShown, open_nodes),
    ),
)

"""The graph over facts: neighbours and paths."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from pagefile.memory.facts.graph import Neighborhood, Walk
from pagefile.surfaces.http.bodies import reply
from pagefile.surfaces.http.call import caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.query_times import Moment, moment_of
from pagefile.surfaces.http.routes.items import UserId

router = APIRouter(prefix="/v1/graph", tags=["graph"])

Entity = Annotated[str, Query(max_length=4_096)]
Hops = Annotated[int, Query(ge=1, le=8)]
FanOut = Annotated[int, Query(ge=1, le=1_000)]


@router.get("/neighbors", **told(gives=Neighborhood))
async def neighbors(
    request: Request,
    entity: Entity,
    user_id: UserId = None,
    direction: Literal["both", "out", "in"] = "both",
    valid_at: Moment = None,
    known_at: Moment = None,
    fan_out: FanOut = 50,
) -> Response:
    """The facts that lead to and from an entity."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.graph.neighbors(
        entity,
        direction=direction,
        valid_at=moment_of("valid_at", valid_at),
        known_at=moment_of("known_at", known_at),
        user_id=caller.user(user_id),
        fan_out=fan_out,
    )
    return reply(found)


@router.get("/paths", **told(gives=Walk))
async def paths(
    request: Request,
    start: Annotated[str | None, Query(max_length=4_096)] = None,
    q: Annotated[str | None, Query(max_length=10_000)] = None,
    user_id: UserId = None,
    hops: Hops = 2,
    valid_at: Moment = None,
    known_at: Moment = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
    fan_out: FanOut = 50,
) -> Response:
    """Paths from an entity, or from those that a question `q` names."""
    caller = caller_of(request)
    memory = await caller.memory()
    graph = memory.graph
    walk = graph.recall if start is None else graph.paths
    found = await walk(
        (q or "") if start is None else start,
        hops=hops,
        valid_at=moment_of("valid_at", valid_at),
        known_at=moment_of("known_at", known_at),
        user_id=caller.user(user_id),
        limit=limit,
        fan_out=fan_out,
    )
    return reply(found)

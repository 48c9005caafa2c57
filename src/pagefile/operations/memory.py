"""Memory: episodes and sessions, recall, blocks, and how much is kept of whom."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from pagefile.memory.blocks import MemoryBlock
from pagefile.memory.documents import living, require_user
from pagefile.memory.episodes.duplicates import Duplicate
from pagefile.memory.episodes.episode import (
    BY_SESSION,
    BY_TIME,
    Episode,
    Message,
    ToolCall,
    episode_of,
)
from pagefile.memory.episodes.store import bounds_of
from pagefile.memory.memory import Memory
from pagefile.memory.recaller import EpisodeMatch, FactMatch
from pagefile.operations.answer import cut, number_in, room_for
from pagefile.operations.binder import Id
from pagefile.operations.caller import Caller
from pagefile.operations.operation import delete, get, operation, post, put
from pagefile.recall.hit import Hit
from pagefile.store.arguments import MOST_PER_READ
from pagefile.store.batch import Query


class NewEpisode(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finished exchange. The same `id` with the same content stores nothing."""

    session_id: str
    input: str = ""
    output: str = ""
    id: str | None = None
    user_id: str | None = None
    occurred_at: datetime | None = None
    speaker: str | None = None
    tool_calls: list[ToolCall] = []
    tool_transcript: list[Message] | None = None
    embedding: list[float] | None = None


class NewEpisodes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Several exchanges in one commit, all or none."""

    episodes: Annotated[list[NewEpisode], msgspec.Meta(min_length=1, max_length=1_000)]


class Remembered(msgspec.Struct, kw_only=True):
    """Its id."""

    id: str


class RememberedAll(msgspec.Struct, kw_only=True):
    """Their ids, in the order given."""

    ids: list[str]


class Messages(msgspec.Struct, kw_only=True):
    """The last messages of a session, oldest first."""

    items: list[Message]


class Duplicates(msgspec.Struct, kw_only=True):
    """Episodes that say what another says."""

    items: list[Duplicate]
    cursor: str | None


class Episodes(msgspec.Struct, kw_only=True):
    """Exchanges, newest first."""

    items: list[Episode]
    cursor: str | None


@operation(
    Memory.remember,
    http=post("/v1/episodes", "episodes", 201),
    gives=Remembered,
    span="create_memory",
)
async def remember(caller: Caller, body: NewEpisode) -> str:
    """Store one exchange, and make it findable, in one commit."""
    memory = await caller.memory()
    return await memory.remember(_episode(caller, body))


@operation(
    Memory.remember_many,
    http=post("/v1/episodes/batch", "episodes", 201),
    gives=RememberedAll,
    span="create_memory",
)
async def remember_many(caller: Caller, body: NewEpisodes) -> list[str]:
    """Store up to 1,000 exchanges in one commit, all or none."""
    memory = await caller.memory()
    return await memory.remember_many([_episode(caller, each) for each in body.episodes])


@operation(http=get("/v1/episodes", "episodes"))
async def list_episodes(
    caller: Caller,
    *,
    user_id: str | None = None,
    session_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> Episodes:
    """Exchanges of a user, or of one session, newest first."""
    require_user(user_id)
    low, high = bounds_of((since, until))
    prefix = () if session_id is None else (session_id,)
    query = Query(
        BY_TIME if session_id is None else BY_SESSION,
        low=(*prefix, low),
        high=(*prefix, high + 1),
        user=user_id,
        reverse=True,
        cursor=cursor or None,
    )
    page = await caller.pf.store.find(query, limit=limit)
    found = [episode_of(each) for each in living(page.items)]
    return Episodes(items=found, cursor=page.cursor)


get_episode = operation(
    Memory.episode,
    http=get("/v1/episodes/{episode_id}", "episodes"),
    wire={"episode_id": Id},
)

session_messages = operation(
    Memory.session_messages,
    http=get("/v1/sessions/{session_id}/messages", "episodes"),
    wire={"session_id": Id},
    gives=Messages,
)


@operation(Memory.duplicates, http=get("/v1/duplicates", "episodes"))
async def duplicates(
    caller: Caller,
    *,
    user_id: str | None = None,
    threshold: Annotated[float, msgspec.Meta(ge=0.5, le=1)] = 0.9,
    limit: int = 100,
    cursor: str | None = None,
) -> Duplicates:
    """Episodes that say what another says; goes through all of the user's."""
    memory = await caller.memory()
    start = number_in(cursor)
    most = room_for(start, limit, MOST_PER_READ)
    found = await memory.duplicates(user_id=user_id, threshold=threshold, limit=most)
    items, more = cut(found, start, limit)
    return Duplicates(items=items, cursor=more)


consolidate = operation(
    Memory.consolidate,
    http=post("/v1/consolidate", "episodes"),
    whole_tenant=True,
    takes=(
        "Consolidation: How many episodes to read at most, "
        "and whether also those that were given up."
    ),
    may_be_empty=True,
    wire={"limit": Annotated[int, msgspec.Meta(ge=1, le=10_000)]},
    without=("cancel", "progress"),
    span="pagefile.consolidate",
)


def _episode(caller: Caller, given: NewEpisode) -> Episode:
    fields: dict[str, Any] = msgspec.structs.asdict(given)
    fields["user_id"] = caller.user(given.user_id)
    return Episode(**{name: value for name, value in fields.items() if value is not None})


Question = Annotated[str, msgspec.Meta(max_length=100_000)]
Most = Annotated[int, msgspec.Meta(ge=0, le=1_000)]


class EpisodeMatches(msgspec.Struct, kw_only=True):
    """Episodes, best first."""

    items: list[EpisodeMatch]


class FactMatches(msgspec.Struct, kw_only=True):
    """Facts, best first."""

    items: list[FactMatch]


class Match(msgspec.Struct, kw_only=True):
    """Anything that was found; `kind` says whether `value` is an episode, a fact or an item."""

    kind: Literal["episode", "fact", "item"]
    id: str
    text: str
    score: float
    at: datetime
    value: Any
    hit: Hit | None


class Matches(msgspec.Struct, kw_only=True):
    """Whatever was found, best first."""

    items: list[Match]


recall = operation(
    Memory.recall_scored,
    http=post("/v1/recall", "recall"),
    right="read",
    takes="Question: What to find among episodes; a blank query gives the newest.",
    wire={"query": Question, "limit": Most},
    spread={"time_range": ("since", "until")},
    without=("kind",),
    gives=EpisodeMatches,
    span="search_memory",
)

recall_facts = operation(
    Memory.recall_facts_scored,
    http=post("/v1/recall/facts", "recall"),
    right="read",
    takes="FactQuestion: What to find among facts.",
    wire={"query": Question, "limit": Most},
    gives=FactMatches,
    span="search_memory",
)

search = operation(
    Memory.search,
    http=post("/v1/search", "recall"),
    right="read",
    takes="SearchQuestion: What to find among everything.",
    wire={"query": Question, "limit": Most},
    spread={"time_range": ("since", "until")},
    gives=Matches,
    span="search_memory",
)

why = operation(
    Memory.why,
    http=get("/v1/memories/{memory_id}/why", "recall"),
    wire={"memory_id": Id},
)

unscored_recall = operation(Memory.recall, span="search_memory")
unscored_recall_facts = operation(Memory.recall_facts, span="search_memory")


_TEXT = "Text: The text; `expected_version` refuses when the block is at another, 0 is none yet."


class BlockList(msgspec.Struct, kw_only=True):
    """Blocks, in their order."""

    items: list[MemoryBlock]
    cursor: str | None = None


class Removed(msgspec.Struct, kw_only=True):
    """It is gone."""

    ok: bool


list_blocks = operation(
    Memory.working,
    http=get("/v1/blocks", "blocks"),
    gives=BlockList,
)

get_block = operation(
    Memory.block,
    http=get("/v1/blocks/{name}", "blocks"),
    wire={"name": Id},
    etag="version",
    knows=True,
)

put_block = operation(
    Memory.update_block,
    http=put("/v1/blocks/{name}", "blocks"),
    wire={"name": Id},
    takes=_TEXT,
    guard="expected_version",
    etag="version",
    span="upsert_memory",
)

append_block = operation(
    Memory.append_block,
    http=post("/v1/blocks/{name}/append", "blocks"),
    wire={"name": Id},
    takes=_TEXT,
    guard="expected_version",
    etag="version",
    span="update_memory",
)

delete_block = operation(
    Memory.delete_block,
    http=delete("/v1/blocks/{name}", "blocks"),
    wire={"name": Id},
    without=("expected_version",),
    guard="expected_version",
    gives=Removed,
    span="delete_memory",
)

block_history = operation(
    Memory.block_history,
    http=get("/v1/blocks/{name}/history", "blocks"),
    wire={"name": Id},
    gives=BlockList,
    page="version",
)

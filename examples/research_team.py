"""A research team: a lead asks two readers at the same time, and a CPU-bound counter.

The counter runs in a process of its own that opens the same store; the count it
keeps through its handle is committed with the acknowledgement of its message.

    python examples/research_team.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec

import pagefile
from pagefile import HandlerMetadata
from pagefile.dispatch import HandlerResponse, Identity, Organism, OwnThread, ProcessPool

SHELF = {
    "whales": "Whales sing. Songs of whales travel far. Whales sleep upright.",
    "owls": "Owls hear well. Owls turn their heads far. Owls sleep by day.",
}


class Question(msgspec.Struct, frozen=True):
    topics: tuple[str, ...]


class Look(msgspec.Struct, frozen=True):
    topic: str


class Found(msgspec.Struct, frozen=True):
    topic: str
    text: str


class Count(msgspec.Struct, frozen=True):
    text: str


class Counted(msgspec.Struct, frozen=True):
    words: int


class Report(msgspec.Struct, frozen=True):
    text: str


async def lead(
    payload: Question | Found | Counted, metadata: HandlerMetadata, own: OwnThread
) -> list[HandlerResponse] | HandlerResponse | None:
    """Asks all at once; what has come so far is kept in its own thread."""
    if isinstance(payload, Question):
        own.put("topics", len(payload.topics))
        return [HandlerResponse(Look(topic), to="reader") for topic in payload.topics]
    if isinstance(payload, Found):
        found = {**own.get("found", {}), payload.topic: payload.text}
        own.put("found", found)
        if len(found) < own.get("topics"):
            return None
        text = " ".join(found[topic] for topic in sorted(found))
        return HandlerResponse(Count(text), to="counter")
    topics = ", ".join(sorted(own.get("found")))
    return HandlerResponse.respond(Report(f"read about {topics}: {payload.words} words"))


async def reader(payload: Look, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Found(payload.topic, SHELF[payload.topic]))


def counter(payload: Count, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
    """CPU-bound: runs in another process."""
    words = len(payload.text.split())
    own.put("words", words)
    return HandlerResponse.respond(Counted(words))


async def main(folder: Path) -> None:
    with pagefile.open(folder / "team.db") as pf:
        team = Organism(pf, name="team", process_pool=ProcessPool(workers=1))
        team.listener("lead", payload=Question, peers=["reader", "counter"], agent=True)(lead)
        team.listener("reader", payload=Look)(reader)
        team.listener("counter", payload=Count, cpu_bound=True)(counter)
        async with team:
            answer = await team.ask(
                Question(("whales", "owls")), "lead", caller=Identity("ann", user_id="u1")
            )
        print(answer.payload.text)
        print(f"threads: {pf.context.get_stats()['thread_count']}, intact: {bool(pf.verify())}")


if __name__ == "__main__":
    # In a module of its own name, so that the other process finds the same classes.
    import research_team

    if len(sys.argv) > 1:
        asyncio.run(research_team.main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            asyncio.run(research_team.main(Path(temporary)))

"""Payloads and helpers that the tests of dispatch share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import pagefile
from pagefile import Pagefile
from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch import DispatchLimits, HandlerResponse, Identity, Organism, Retry

ANN = Identity("ann", "user-a")
BOB = Identity("bob", "user-b")
ONCE = Retry(attempts=1)
PATIENCE_SECONDS = 60.0


class Ask(msgspec.Struct, frozen=True):
    text: str
    number: int = 0


class Told(msgspec.Struct, frozen=True):
    text: str


class News(msgspec.Struct, frozen=True):
    text: str


class Other(msgspec.Struct, frozen=True):
    text: str


class Loose:
    """Nothing that can be stored."""


class Mutable(msgspec.Struct):
    words: list[str]


def respond(text: str) -> HandlerResponse:
    return HandlerResponse.respond(Told(text))


async def echo(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
    return respond(payload.text)


def run(story: Awaitable[Any]) -> Any:
    """Run a story to its end, which must come."""

    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await story

    return asyncio.run(bounded())


def opened(kind: str, folder: Path) -> Pagefile:
    """A store of this kind."""
    return pagefile.open("memory:" if kind == "memory" else str(folder / "store.db"))


def said_in(pf: Pagefile, thread_id: str) -> list[tuple[str, str, Any]]:
    """Sender, recipient and payload of every slot of a thread."""
    return [
        (slot.from_id, slot.to_id, slot.payload)
        for slot in pf.context.get_or_create_thread(thread_id)
    ]


def other_threads(pf: Pagefile, thread_id: str) -> list[str]:
    return [one for one in pf.context.get_stats()["threads"] if one != thread_id]


def chain(pf: Pagefile, **options: Any) -> Organism:
    """An agent that asks a tool, and passes its answer on."""
    organism = Organism(pf, **options)

    @organism.listener("agent", payload=Ask, peers=["tool"], agent=True)
    async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Ask):
            return HandlerResponse(payload, "tool")
        return HandlerResponse.respond(payload)

    @organism.listener("tool", payload=Ask)
    async def tool(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
        return respond(payload.text.upper())

    return organism


Limits = DispatchLimits
Handler = Callable[..., Any]

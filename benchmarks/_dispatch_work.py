"""The listeners that the dispatch benchmark drives; run by itself, a worker process."""

from __future__ import annotations

import asyncio
import sys

import msgspec

import pagefile
from pagefile import HandlerMetadata, Pagefile
from pagefile.dispatch import HandlerResponse, Identity, Organism

CALLER = Identity("bench", "u1")
LOOPS = 200_000


class Ball(msgspec.Struct, frozen=True):
    number: int
    last: int


class Back(msgspec.Struct, frozen=True):
    number: int
    last: int


class Burn(msgspec.Struct, frozen=True):
    loops: int


def organism(pf: Pagefile) -> Organism:
    """A caller that asks a wall again and again, and a walker that calls itself."""
    made = Organism(pf, name="bench")

    @made.listener("caller", payload=Ball, peers=["wall"])
    async def caller(payload: Ball | Back, metadata: HandlerMetadata) -> HandlerResponse:
        if payload.number >= payload.last:
            return HandlerResponse.respond(payload)
        return HandlerResponse(Ball(payload.number + 1, payload.last), "wall")

    @made.listener("wall", payload=Ball)
    async def wall(payload: Ball, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse.respond(Back(payload.number + 1, payload.last))

    @made.listener("walker", payload=Ball)
    async def walker(payload: Ball, metadata: HandlerMetadata) -> HandlerResponse:
        if payload.number >= payload.last:
            return HandlerResponse.respond(payload)
        return HandlerResponse(Ball(payload.number + 1, payload.last), "walker")

    return made


async def hops(pf: Pagefile, start: str, conversations: int, count: int) -> int:
    """Conversations of so many hops each, at the same time; how many hops in all."""
    async with organism(pf) as made:
        await asyncio.gather(
            *(made.ask(Ball(0, count), start, caller=CALLER) for _ in range(conversations))
        )
        return made.metrics.hops


async def bare(conversations: int, count: int) -> int:
    """The same game over plain queues."""
    there: asyncio.Queue[tuple[Ball, asyncio.Queue[Back]]] = asyncio.Queue()

    async def wall() -> None:
        while True:
            ball, back = await there.get()
            await back.put(Back(ball.number + 1, ball.last))

    async def caller() -> int:
        mine: asyncio.Queue[Back] = asyncio.Queue()
        done = number = 0
        while number < count:
            await there.put((Ball(number + 1, count), mine))
            number = (await mine.get()).number
            done += 2
        return done

    task = asyncio.create_task(wall())
    played = await asyncio.gather(*(caller() for _ in range(conversations)))
    task.cancel()
    return sum(played)


async def requests(pf: Pagefile, count: int, *, one_by_one: bool) -> int:
    """Ask a worker process: everything first and then the answers, or each after the other."""
    door = organism(pf)
    if one_by_one:
        for _ in range(count):
            await door.ask(Ball(1, 1), "walker", caller=CALLER, timeout=120.0)
        return count
    # One caller, as the peer's: it submits one after the other, and then collects.
    asked = [await door.inject(Ball(1, 1), "walker", caller=CALLER) for _ in range(count)]
    for delivery in asked:
        await door.answer(delivery, 120.0)
    return count


def burnt(loops: int) -> int:
    total = 0
    for n in range(loops):
        total += n * n % 7
    return total


def burn(payload: Burn, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Burn(burnt(payload.loops) % 1_000))


async def main(url: str) -> None:
    with pagefile.open(url) as pf:
        async with organism(pf):
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    import _dispatch_work

    asyncio.run(_dispatch_work.main(sys.argv[1]))

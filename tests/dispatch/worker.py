"""An organism in a process of its own, for the tests that kill it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import msgspec

import pagefile
from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch.letter import HandlerResponse
from pagefile.dispatch.listener import DispatchLimits
from pagefile.dispatch.organism import Organism
from pagefile.dispatch.workers.own_thread import OwnThread
from pagefile.dispatch.workers.pool import ProcessPool

LIMITS = DispatchLimits(lease_seconds=2.0, max_conversations=4, max_deaths=100)


class Step(msgspec.Struct, frozen=True):
    """Where a walk stands, where it ends, and how long each step takes."""

    number: int
    last: int
    seconds: float = 0.0


class Mark(msgspec.Struct, frozen=True):
    """An effect: this step was taken."""

    number: int


class Helped(msgspec.Struct, frozen=True):
    number: int
    last: int
    seconds: float = 0.0


class Done(msgspec.Struct, frozen=True):
    steps: int


async def walker(
    payload: Step | Helped, metadata: HandlerMetadata, thread: OwnThread
) -> HandlerResponse:
    """Take a step: through a helper, or by calling itself; each leaves one mark."""
    number = payload.number
    if payload.seconds:
        await asyncio.sleep(payload.seconds)
    thread.append(Mark(number))
    thread.put("steps", thread.get("steps", 0) + 1)
    if number >= payload.last:
        return HandlerResponse.respond(Done(thread.get("steps")))
    following = Step(number + 1, payload.last, payload.seconds)
    return HandlerResponse(following, "walker" if number % 3 else "helper")


async def helper(payload: Step, metadata: HandlerMetadata, thread: OwnThread) -> HandlerResponse:
    thread.append(Mark(payload.number))
    return HandlerResponse.respond(Helped(payload.number, payload.last, payload.seconds))


def square(payload: Step, metadata: HandlerMetadata, thread: OwnThread) -> HandlerResponse:
    """CPU-bound: runs in a worker."""
    thread.append(Mark(payload.number))
    return HandlerResponse.respond(Done(payload.number**2))


async def poison(payload: Step, metadata: HandlerMetadata) -> HandlerResponse:
    """Ends the process that tries it, each time."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def poisoned(backend: pagefile.Pagefile) -> Organism:
    """An organism with a message that no process survives."""
    limits = DispatchLimits(lease_seconds=1.0, max_deaths=1)
    made = Organism(backend, name="poisoned", limits=limits)
    made.listener("poison", payload=Step)(poison)
    return made


def organism(backend: pagefile.Pagefile, pool: ProcessPool | None = None) -> Organism:
    """The organism that all processes of these tests run."""
    made = Organism(backend, name="walk", limits=LIMITS, process_pool=pool)
    made.listener("walker", payload=Step, peers=["helper"], agent=True)(walker)
    made.listener("helper", payload=Step)(helper)
    return made


async def main(url: str, made: Callable[[pagefile.Pagefile], Organism]) -> None:
    with pagefile.open(url) as pf:
        async with made(pf):
            print("ready", flush=True)
            await asyncio.Event().wait()


def run(url: str, name: str) -> None:
    """Work until killed."""
    asyncio.run(main(url, poisoned if name == "poisoned" else organism))

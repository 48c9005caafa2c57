"""Everything that may go wrong, at once: errors, timeouts, lost leases, drains, on one file.

Two organisms share the work of many trees of calls; handlers fail at random, and
organisms are replaced or stop renewing their lease at random. Every node of a tree
must leave one mark, every answer must count each node once. PAGEFILE_SOAK=1 runs
for PAGEFILE_SOAK_SECONDS, 300 if it is not given.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

import msgspec

import pagefile
from pagefile import Pagefile
from pagefile.context.names import THREADS
from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch import DispatchLimits, HandlerResponse, Organism, Retry
from pagefile.dispatch.workers.own_thread import OwnThread
from tests.dispatch.ground import ANN, BOB

SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
SECONDS = float(os.environ.get("PAGEFILE_SOAK_SECONDS", "300")) if SOAK else 6.0
SEED = int(os.environ.get("PAGEFILE_SOAK_SEED", "11"))
TREES = 12
PATIENCE_SECONDS = 180.0
LIMITS = DispatchLimits(lease_seconds=0.6, max_conversations=8, max_deaths=1_000)
#: So many tries that chance alone never uses them up.
AGAIN = Retry(attempts=200, pause=0.001, most=0.02)


class Job(msgspec.Struct, frozen=True):
    name: str
    depth: int


class Done(msgspec.Struct, frozen=True):
    nodes: int


class Mark(msgspec.Struct, frozen=True):
    name: str


def children(job: Job) -> list[Job]:
    return [Job(f"{job.name}.{n}", job.depth - 1) for n in range(2)] if job.depth else []


def names_in(job: Job) -> list[str]:
    return [job.name, *(name for child in children(job) for name in names_in(child))]


class Trouble:
    """What goes wrong, by chance."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.errors = self.delays = 0

    async def maybe(self) -> None:
        drawn = self.rng.random()
        if drawn < 0.04:
            self.errors += 1
            raise ValueError("by chance")
        if drawn < 0.05:
            self.delays += 1
            await asyncio.sleep(5.0)  # Longer than its timeout.
        elif drawn < 0.3:
            await asyncio.sleep(self.rng.random() * 0.003)


def organism_on(pf: Pagefile, trouble: Trouble) -> Organism:
    """Inner nodes in turns, so that calls nest; leaves in threads."""
    made = Organism(pf, name="trees", limits=LIMITS)

    async def node(
        payload: Job | Done, metadata: HandlerMetadata, thread: OwnThread
    ) -> list[HandlerResponse]:
        await trouble.maybe()
        if isinstance(payload, Job):
            thread.append(Mark(payload.name))
            await trouble.maybe()
            below = children(payload)
            to = "leaf" if payload.depth == 1 else "even" if payload.depth % 2 else "odd"
            return [HandlerResponse(child, to) for child in below]
        so_far, heard = thread.get("nodes", 0) + payload.nodes, thread.get("heard", 0) + 1
        thread.put("nodes", so_far)
        thread.put("heard", heard)
        await trouble.maybe()
        return [HandlerResponse.respond(Done(so_far + 1))] if heard == 2 else []

    def leaf(payload: Job, metadata: HandlerMetadata, thread: OwnThread) -> HandlerResponse:
        thread.append(Mark(payload.name))
        if trouble.rng.random() < 0.03:
            trouble.errors += 1
            raise ValueError("by chance")
        if trouble.rng.random() < 0.002:
            time.sleep(1.0)  # Runs on after its timeout, unheard.
        return HandlerResponse.respond(Done(1))

    for name in ("odd", "even"):
        made.listener(
            name,
            payload=Job,
            peers=["odd", "even", "leaf"],
            agent=True,
            timeout=0.5,
            retry=AGAIN,
        )(node)
    made.listener("leaf", payload=Job, timeout=0.5, retry=AGAIN)(leaf)
    return made


class Crowd:
    """Two organisms, replaced again and again."""

    def __init__(self, pfs: list[Pagefile], trouble: Trouble) -> None:
        self._pfs = pfs
        self._trouble = trouble
        self.organisms: list[Organism] = []
        self._silent: list[Organism] = []
        self.replaced = self.silenced = 0

    async def start(self) -> None:
        for pf in self._pfs:
            self.organisms.append(await self._new(pf))

    async def _new(self, pf: Pagefile) -> Organism:
        organism = organism_on(pf, self._trouble)
        await organism.start()
        return organism

    async def disturb(self) -> None:
        """Replace one, with little time to drain or none; or let one miss its lease."""
        rng = self._trouble.rng
        while True:
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            at = rng.randrange(len(self.organisms))
            old = self.organisms[at]
            if rng.random() < 0.4:
                # It works on and renews nothing; others take over what it has.
                for task in old._life.tasks:
                    task.cancel()
                self._silent.append(old)
                self.silenced += 1
            else:
                await asyncio.wait_for(old.shutdown(rng.choice([0.0, 0.05, 0.5])), 60.0)
                self.replaced += 1
            self.organisms[at] = await self._new(self._pfs[at])
            while len(self._silent) > 2:
                await asyncio.wait_for(self._silent.pop(0).shutdown(0.0), 60.0)

    async def end(self) -> None:
        for organism in (*self._silent, *self.organisms):
            await asyncio.wait_for(organism.shutdown(0.0), 60.0)


def threads_in(pf: Pagefile) -> list[str]:
    """The logs of all threads."""
    found: list[str] = []
    while page := pf.store.names("log", prefix=THREADS, after=found[-1] if found else ""):
        found += page
    return found


async def one_round(crowd: Crowd, number: int, rng: random.Random) -> dict[str, list[str]]:
    """Plant trees, and wait for every answer; which thread should hold which marks."""

    async def plant(n: int) -> tuple[Job, Any]:
        job, caller = Job(f"{number}-{n}", rng.randint(1, 3)), (ANN, BOB)[n % 2]
        to = "even" if job.depth % 2 == 0 else "odd"
        doors = [rng.choice(crowd.organisms) for _ in range(2)]
        taken = await asyncio.gather(
            *(one.inject(job, to, caller=caller, message_id=f"m{job.name}") for one in doors)
        )
        assert taken[0].thread_id == taken[1].thread_id
        answer = await rng.choice(doors).answer(rng.choice(taken), PATIENCE_SECONDS)
        return job, answer

    planted = await asyncio.gather(*(plant(n) for n in range(TREES)))
    wrong = [
        (job.name, answer.payload)
        for job, answer in planted
        if answer.payload != Done(len(names_in(job)))
    ]
    assert wrong == []
    return {answer.thread_id: names_in(job) for job, answer in planted}


def test_trees_of_calls_survive_everything_at_once(tmp_path: Path) -> None:
    url = str(tmp_path / "trees.db")

    async def story() -> None:
        rng = random.Random(SEED)
        trouble = Trouble(rng)
        with pagefile.open(url) as a, pagefile.open(url) as b:
            crowd = Crowd([a, b], trouble)
            await crowd.start()
            disturbing = asyncio.ensure_future(crowd.disturb())
            end, rounds = time.monotonic() + SECONDS, 0
            expected: dict[str, list[str]] = {}
            while time.monotonic() < end or rounds == 0:
                working = asyncio.ensure_future(one_round(crowd, rounds, rng))
                await asyncio.wait([working, disturbing], return_when="FIRST_COMPLETED")
                if disturbing.done():
                    working.cancel()
                    await disturbing
                expected |= await working
                rounds += 1
            disturbing.cancel()
            await asyncio.wait([disturbing])
            await crowd.end()

            marks: list[str] = []
            for log in threads_in(a):
                said = [
                    slot.payload.name
                    for slot in a.context.get_or_create_thread(log.removeprefix(THREADS))
                    if isinstance(slot.payload, Mark)
                ]
                assert len(said) == 1
                marks += said
            assert sorted(marks) == sorted(name for names in expected.values() for name in names)
            assert organism_on(a, trouble).conversations() == []
            assert organism_on(a, trouble).dead_letters() == []
            assert a.verify().problems == ()
            assert trouble.errors > 0
            if SOAK:
                print(
                    f"{rounds} rounds, {len(marks)} nodes, {trouble.errors} errors, "
                    f"{trouble.delays} delays, {crowd.replaced} replaced, {crowd.silenced} silenced"
                )

    asyncio.run(story())

"""kill -9 of organisms in the middle of chained messages: every effect once, every caller answered.

PAGEFILE_SOAK=1 runs many more rounds.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import pagefile
from pagefile.context.names import THREADS
from pagefile.dispatch.journal import Delivery, Identity
from tests import ROOT
from tests.dispatch.worker import LIMITS, Done, Helped, Mark, Step, organism, poisoned

SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
SEED = 7
CONVERSATIONS = 10
#: Ten conversations of a hundred messages each.
STEPS = 100
KILLS = 60 if SOAK else 5
PAUSES = 10 if SOAK else 1
PATIENCE_SECONDS = 120.0


class Crew:
    """Processes that run the organism, killed and replaced."""

    def __init__(self, url: str, size: int, name: str = "walk") -> None:
        self._url = url
        self._name = name
        self._rng = random.Random(f"{SEED}.{size}")
        self.living = [self._start() for _ in range(size)]
        self.killed = 0
        self.paused = 0

    def _start(self) -> subprocess.Popen[bytes]:
        # As a module: its payload classes must have the same names here and there.
        program = (
            "import sys; sys.path.insert(0, sys.argv[2]); from tests.dispatch import worker as w; "
        )
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                program + "w.run(sys.argv[1], sys.argv[3])",
                self._url,
                str(ROOT),
                self._name,
            ],
            stdout=subprocess.PIPE,
        )

    def wait_until_ready(self) -> None:
        """Until each of them works."""
        for process in self.living:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"

    def kill_one(self) -> None:
        """Kill one at random, and start another."""
        victim = self._rng.choice(self.living)
        victim.kill()
        victim.wait()
        assert victim.stdout is not None
        victim.stdout.close()
        self.living.remove(victim)
        self.living.append(self._start())
        self.killed += 1

    async def pause_one(self, seconds: float) -> None:
        """Stop one at random for longer than its lease; it does not know, and goes on."""
        victim = self._rng.choice(self.living)
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        victim.send_signal(signal.SIGCONT)

    def replace_the_dead(self) -> int:
        """Start anew what ended by itself; how many did."""
        dead = [process for process in self.living if process.poll() is not None]
        for process in dead:
            assert process.stdout is not None
            process.stdout.close()
            self.living.remove(process)
            self.living.append(self._start())
        self.killed += len(dead)
        return len(dead)

    def some_time(self) -> float:
        return self._rng.uniform(0.05, 0.4)

    def end(self) -> None:
        for process in self.living:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def expected_root(last: int, seconds: float) -> list[object]:
    """What the first thread of a walk holds, slot by slot, when everything happened once."""
    slots: list[object] = [Step(1, last, seconds)]
    for number in range(1, last + 1):
        slots.append(Mark(number))
        if number == last:
            slots.append(Done(last))
        elif number % 3:
            slots.append(Step(number + 1, last, seconds))
        else:
            slots += [Step(number + 1, last, seconds), Helped(number + 1, last, seconds)]
    return slots


def expected_helped(number: int, last: int, seconds: float) -> list[object]:
    return [Step(number, last, seconds), Mark(number), Helped(number, last, seconds)]


async def kill_some(crew: Crew) -> bool:
    # Not to wait for anything: it spreads the kills over the work.
    await asyncio.sleep(crew.some_time())
    crew.kill_one()
    return crew.killed < KILLS


async def pause_some(crew: Crew) -> bool:
    await asyncio.sleep(crew.some_time())
    await crew.pause_one(LIMITS.lease_seconds * 2)
    crew.paused += 1
    return crew.paused < PAUSES


async def walk(
    url: str, crew: Crew, disturb: Callable[[Crew], Awaitable[bool]], seconds: float = 0.0
) -> None:
    with pagefile.open(url) as pf:
        door = organism(pf)
        caller = Identity("tester", "u1")
        deliveries: list[Delivery] = []
        for _ in range(CONVERSATIONS):
            deliveries.append(await door.inject(Step(1, STEPS, seconds), "walker", caller=caller))
        answers = asyncio.gather(*(door.answer(one, PATIENCE_SECONDS) for one in deliveries))
        while not answers.done() and await disturb(crew):
            pass
        found = await answers

        assert [answer.payload for answer in found] == [Done(STEPS)] * CONVERSATIONS
        roots = {one.thread_id for one in deliveries}
        helped: list[list[object]] = []
        for log in pf.store.names("log", prefix=THREADS, limit=10_000):
            slots = [slot.payload for slot in pf.context.get_or_create_thread(log[len(THREADS) :])]
            if log.removeprefix(THREADS) in roots:
                assert slots == expected_root(STEPS, seconds)
            else:
                helped.append(slots)
        numbers = [number + 1 for number in range(1, STEPS) if number % 3 == 0]
        wanted = [expected_helped(number, STEPS, seconds) for number in numbers] * CONVERSATIONS
        assert sorted(map(str, helped)) == sorted(map(str, wanted))
        assert pf.registry.debug_dump() == {}
        assert door.dead_letters() == []
        assert pf.check().problems == ()
        assert pf.verify().problems == ()


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = str(tmp_path / "walk.db")
    with pagefile.open(url):
        return url


@pytest.mark.parametrize("size", [1, 3])
def test_killed_organisms_leave_every_effect_once_and_no_caller_waiting(
    url: str, size: int
) -> None:
    crew = Crew(url, size)
    try:
        crew.wait_until_ready()
        asyncio.run(walk(url, crew, kill_some))
    finally:
        crew.end()

    assert crew.killed > 0


def test_an_organism_that_sleeps_through_its_lease_changes_nothing_afterwards(url: str) -> None:
    crew = Crew(url, 2)
    try:
        crew.wait_until_ready()
        asyncio.run(walk(url, crew, pause_some, seconds=0.02))
    finally:
        crew.end()

    assert crew.paused > 0


def test_a_message_that_kills_every_process_is_given_up(url: str) -> None:
    async def story() -> None:
        with pagefile.open(url) as pf:
            door = poisoned(pf)
            asked = await door.inject(Step(1, 1), "poison", caller=Identity("tester"))
            answering = asyncio.ensure_future(door.answer(asked, PATIENCE_SECONDS))
            while not answering.done():
                await asyncio.wait([answering], timeout=0.05)
                crew.replace_the_dead()
            answer = await answering
            (letter,) = door.dead_letters()

        assert (answer.payload.code, letter.code) == ("worker", "worker")

    crew = Crew(url, 1, "poisoned")
    try:
        asyncio.run(story())
    finally:
        crew.end()

    assert crew.killed == 2

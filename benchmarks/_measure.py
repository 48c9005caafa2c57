"""Rounds, interleaved between subjects, and what they took.

Subjects take turns (A B C A B C …), so that a busy minute of the machine falls
on all of them. Ratios pair the rounds that stood next to each other.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles


def cpu_seconds() -> float:
    """CPU of this process, all its threads, and the children it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@dataclass(frozen=True)
class Subject:
    """One thing to measure. `work` does a round and says how many operations it was."""

    name: str
    work: Callable[[], int]
    #: Runs before each round, outside the clock.
    prepare: Callable[[], None] = lambda: None


@dataclass
class Timing:
    """What each round of one subject took, per operation, in seconds."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return 1 / median(self.wall)

    @property
    def wall_us(self) -> float:
        return median(self.wall) * 1e6

    @property
    def cpu_us(self) -> float:
        return median(self.cpu) * 1e6


def measure(
    subjects: Sequence[Subject], rounds: int, on_round: Callable[[], None]
) -> dict[str, Timing]:
    """Run every subject `rounds` times, in turns, after one round that is not counted."""
    timings = {subject.name: Timing() for subject in subjects}
    for counted in (False, *[True] * rounds):
        for subject in subjects:
            subject.prepare()
            # Garbage of one subject must not be collected on another's time.
            gc.collect()
            wall, cpu = _one_round(subject.work)
            if counted:
                timings[subject.name].wall.append(wall)
                timings[subject.name].cpu.append(cpu)
        if counted:
            on_round()
    return timings


def _one_round(work: Callable[[], int]) -> tuple[float, float]:
    cpu_before, wall_before = cpu_seconds(), time.perf_counter()
    operations = work()
    wall, cpu = time.perf_counter() - wall_before, cpu_seconds() - cpu_before
    return wall / operations, cpu / operations


@dataclass(frozen=True)
class Spread:
    """A figure from many rounds: its median, and the quarters around it."""

    middle: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def rate_ratio(ours: Timing, peer: Timing) -> Spread:
    """How many operations ours does while the peer does one."""
    return spread([theirs / own for own, theirs in zip(ours.wall, peer.wall, strict=True)])


def cpu_ratio(ours: Timing, peer: Timing) -> Spread:
    """How much CPU an operation of ours takes for each CPU second of the peer's."""
    return spread([own / theirs for own, theirs in zip(ours.cpu, peer.cpu, strict=True)])

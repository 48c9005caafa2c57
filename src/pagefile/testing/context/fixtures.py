"""What every suite over the context starts from: a buffer, a few payloads, a few verbs."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Self

import pytest

from pagefile.context.buffer import ContextBuffer
from pagefile.context.slot import BufferSlot
from pagefile.handle import Pagefile
from pagefile.testing.backend import Backend
from pagefile.testing.contract import ContractFixtures


@dataclasses.dataclass
class Note:
    """A payload that can be changed, down to the list inside."""

    text: str
    tags: list[str]


class Inner:
    """A place for another class of the same name."""

    @dataclasses.dataclass
    class Note:
        text: str


class ContextFixtures(ContractFixtures):
    """One place, and the threads of one tenant in it."""

    @pytest.fixture
    def handle(self, backend: Backend) -> Pagefile:
        return backend.open()

    @pytest.fixture
    def buffer(self, handle: Pagefile) -> ContextBuffer:
        return handle.context


def say(buffer: ContextBuffer, thread_id: str, *payloads: Any) -> list[BufferSlot]:
    """One append for each payload."""
    return [buffer.append(thread_id, payload, "ann", "bob") for payload in payloads]


def payloads(slots: Iterable[BufferSlot]) -> list[Any]:
    return [slot.payload for slot in slots]


def indexes(slots: Iterable[BufferSlot]) -> list[int]:
    return [slot.index for slot in slots]


def at_once(work: Callable[[int], Any], count: int = 8) -> list[Any]:
    """What `work(0)`, `work(1)`, … return or raise when they run at the same time.

    Threads take turns a thousand times as often as usual, so that a gap between
    two steps is met.
    """
    results: list[Any] = [None] * count
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        ready.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error
            raise

    workers = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(usual)
    return results


class Steps:
    """Counts the calls that this thread makes meanwhile, into C too: no other process adds any."""

    count = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1


def steps_of(work: Callable[[], Any]) -> int:
    """How many calls the work makes: a cost that no other process can change."""
    with Steps() as steps:
        work()
    return steps.count

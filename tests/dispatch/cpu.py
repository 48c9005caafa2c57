"""CPU-bound handlers for the tests: functions of a module, as another process finds them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch import HandlerResponse, OwnThread
from tests.dispatch.ground import Ask, Told


def compute(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
    """A sum, an effect, and what the worker sees of the thread."""
    total = sum(range(payload.number))
    own.put("total", total)
    own.append(Told(f"{total} from {metadata.from_id}"))
    seen = [slot.payload.text for slot in own.history]
    return HandlerResponse.respond(Told(f"{total} {seen} {os.getpid()}"))


async def compute_async(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Told(payload.text))


def forward(payload: Ask | Told, metadata: HandlerMetadata) -> HandlerResponse:
    if isinstance(payload, Ask):
        return HandlerResponse(payload, "echo")
    return HandlerResponse.respond(payload)


def fail(payload: Ask, metadata: HandlerMetadata) -> None:
    raise ValueError(payload.text)


def hang(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
    """Never ends when it is told to hang."""
    while payload.text == "hang":
        pass
    return HandlerResponse.respond(Told("through"))


def deaf(payload: Ask, metadata: HandlerMetadata) -> None:
    """Does not even end when it is told that its time is over."""
    while True:
        try:
            while True:
                pass
        except TimeoutError:
            continue


def linger(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
    """Goes on until a file is there, whatever the clock says, and leaves one when it is through."""
    own.append(Told("late effect"))
    go_on, through = Path(payload.text + ".go"), Path(payload.text + ".through")
    while not go_on.exists():
        time.sleep(0.01)
    through.touch()
    return HandlerResponse.respond(Told("too late"))


def die_once(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
    """Kills its own process the first time; a file remembers."""
    own.append(Told("effect"))
    mark = Path(payload.text)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return HandlerResponse.respond(Told("alive"))


def die_always(payload: Ask, metadata: HandlerMetadata) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

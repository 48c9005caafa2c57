"""Being told that the process is to end while requests are still under way.

A server program waits for open connections before it ends the application, so
an answer without an end has to hear of the signal itself.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def told_to_stop(*stops: Callable[[], None]) -> Iterator[None]:
    """Call these in the running loop at SIGINT or SIGTERM; who listened before still hears it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals are the main thread's; whoever runs us here ends us in another way.
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {each: signal.getsignal(each) for each in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        for stop in stops:
            loop.call_soon_threadsafe(stop)
        if callable(before[number]):
            before[number](number, frame)

    # Not the loop's own `add_signal_handler`: it knows one handler for each signal, and that
    # one is the server program's, which is reached by way of the loop in any case.
    heard = [each for each in _SIGNALS if callable(before[each])]
    for each in heard:
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each in heard:
            if signal.getsignal(each) is handle:
                signal.signal(each, before[each])

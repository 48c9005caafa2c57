"""Counters of several processes as those of one server: each leaves its own in a folder.

A process that is asked for all reads what the others left, which is at most a
second old. What a process that died had counted still counts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from pagefile.store.codec.decoder import json_decoder
from pagefile.surfaces.http.metrics import Counted, Metrics

_EVERY_SECONDS = 1.0
_decode = json_decoder(Counted).decode


class Counting:
    """The counters of one process, and where those of its server are kept; "" is nowhere."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self.metrics = Metrics(self._others)

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Leave them for the others while this is open, and once more at the end."""
        if self._folder is None:
            yield
            return
        task = asyncio.ensure_future(self._tell())
        try:
            yield
        finally:
            task.cancel()
            self._write(self._folder)

    async def _tell(self) -> None:
        assert self._folder is not None
        while True:
            self._write(self._folder)
            await asyncio.sleep(_EVERY_SECONDS)

    def _write(self, folder: Path) -> None:
        # A few kilobytes once a second, to a file that is in memory: not worth a thread.
        raw = msgspec.json.encode(self.metrics.counted(os.getpid()))
        file = folder / f"{os.getpid()}.json"
        # A folder that is gone, or full, must not end a server.
        with suppress(OSError):
            file.with_suffix(".new").write_bytes(raw)
            file.with_suffix(".new").replace(file)

    def _others(self) -> Iterator[Counted]:
        for file in [] if self._folder is None else sorted(self._folder.glob("*.json")):
            if file.stem == str(os.getpid()):
                continue
            with suppress(OSError, msgspec.MsgspecError):
                found = _decode(file.read_bytes())
                yield found if _is_alive(found.pid) else msgspec.structs.replace(found, in_flight=0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True

"""A disk with slow syncs: an SQLite VFS that sleeps before each real sync."""

from __future__ import annotations

import time
import uuid

import apsw


class _DelayedFile(apsw.VFSFile):
    """The default file, whose sync takes longer. SQLite syncs only what must last."""

    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], delay_seconds: float
    ) -> None:
        super().__init__("", name, flags)
        self._delay_seconds = delay_seconds

    def xSync(self, flags: int) -> None:
        # The sleep lets other threads run; the real sync after it does not,
        # because apsw holds the interpreter lock there. That costs only us.
        time.sleep(self._delay_seconds)
        super().xSync(flags)


class DelayVfs(apsw.VFS):
    """Registered under its own `name` until it is unregistered."""

    def __init__(self, delay_seconds: float) -> None:
        self.delay_seconds = delay_seconds
        self.name = f"delay-{uuid.uuid4().hex}"
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _DelayedFile(name, flags, self.delay_seconds)

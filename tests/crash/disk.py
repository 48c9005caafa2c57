"""Disks that fail on purpose, below SQLite: full, unable to sync, unable to read."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import apsw

if TYPE_CHECKING:
    from typing_extensions import Buffer

_names = itertools.count(1)
#: The system's calls by which SQLite reads, the one it prefers first.
_READS = ("pread64", "pread")
_READ = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int64,
    use_errno=True,
)


class DiskFaults(apsw.VFS):
    """An SQLite VFS whose disk fails on demand.

    Open a store with `Options(vfs=faults.name)`. A failing write leaves half of
    its bytes behind, as a disk that runs full does.

    Only calls on the journal fail unless told otherwise. When a checkpoint
    fails on the file itself, SQLite ignores that, but the driver raises the
    Python exception all the same; the real limit in `tests/crash/test_disk.py` covers it.
    """

    def __init__(self) -> None:
        self.name = f"pagefile-faults-{next(_names)}"
        super().__init__(self.name, "")
        self.raised = 0
        self._call = ""
        self._code = 0
        self._skip = 0
        self._left = 0
        self._suffix = ""

    def fail(
        self,
        call: Literal["write", "sync"],
        error: Literal["full", "io"],
        *,
        skip: int = 0,
        times: int | None = None,
        suffix: str = "-wal",
    ) -> None:
        """Let `skip` calls pass, then fail `times` of them, or all until healed."""
        io = apsw.SQLITE_IOERR_WRITE if call == "write" else apsw.SQLITE_IOERR_FSYNC
        self._code = apsw.SQLITE_FULL if error == "full" else io
        self._call = call
        self._skip = skip
        self._left = -1 if times is None else times
        self._suffix = suffix

    def heal(self) -> None:
        """From now on everything works again."""
        self._call = ""

    def failure(self, call: str, path: str) -> Exception | None:
        """What this call is to raise, if it is its turn."""
        if call != self._call or not path.endswith(self._suffix) or not self._left:
            return None
        if self._skip:
            self._skip -= 1
            return None
        self._left -= 1
        self.raised += 1
        return apsw.exception_for(self._code)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:
            return apsw.VFSFile("", name, flags)
        return _FaultyFile(name, flags, self, Path(path).name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unregister()


class ReadFaults:
    """Lets SQLite's reads fail as a disk makes them: the system answers EIO.

    Below any VFS, for the whole process. Reads of files whose path ends with `suffix` count.
    """

    def __init__(self) -> None:
        self._vfs = apsw.VFS(f"pagefile-reads-{next(_names)}", "unix")
        self._name = next(name for name in _READS if self._vfs.xGetSystemCall(name))
        self._real = _READ(self._vfs.xGetSystemCall(self._name) or 0)
        self._mine = _READ(self._read)
        self._suffix = ""
        self._skip = self._left = 0
        self.raised = 0

    def fail(self, *, skip: int = 0, times: int = 1, suffix: str = "") -> None:
        """Let `skip` reads pass, then fail `times` of them."""
        self._skip, self._left, self._suffix = skip, times, suffix

    def heal(self) -> None:
        """From now on every read works."""
        self._left = 0

    def _read(self, file: int, buffer: int, size: int, offset: int) -> int:
        if self._left and os.readlink(f"/proc/self/fd/{file}").endswith(self._suffix):
            if not self._skip:
                self._left -= 1
                self.raised += 1
                ctypes.set_errno(errno.EIO)
                return -1
            self._skip -= 1
        return int(self._real(file, buffer, size, offset))

    def __enter__(self) -> Self:
        self._vfs.xSetSystemCall(self._name, ctypes.cast(self._mine, ctypes.c_void_p).value or 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._vfs.xSetSystemCall(self._name, 0)
        self._vfs.unregister()


class _FaultyFile(apsw.VFSFile):
    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], faults: DiskFaults, path: str
    ) -> None:
        super().__init__("", name, flags)
        self._faults = faults
        self._path = path

    def xWrite(self, data: Buffer, offset: int) -> None:
        failure = self._faults.failure("write", self._path)
        if failure is None:
            super().xWrite(data, offset)
            return
        whole = bytes(data)
        super().xWrite(whole[: len(whole) // 2], offset)
        raise failure

    def xSync(self, flags: int) -> None:
        failure = self._faults.failure("sync", self._path)
        if failure is not None:
            raise failure
        super().xSync(flags)

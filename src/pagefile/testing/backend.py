"""What a contract suite needs to know about the engine under test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pagefile.handle import Admin, Options, Pagefile
from pagefile.store.records import Erasure, Problem

#: What a contract test is noted under: the engine's name, and the promises it is about.
PROPERTY = "pagefile contract"
Test = TypeVar("Test", bound=Callable[..., Any])


def promise(*numbers: str) -> Callable[[Test], Test]:
    """Say which numbered promises a test is about."""

    def mark(test: Test) -> Test:
        test.promises = numbers  # type: ignore[attr-defined]
        return test

    return mark


class Backend(Protocol):
    """A place that can be opened again and again, and closed for good."""

    #: The engine's name.
    name: str
    #: The promises the engine declares.
    promises: frozenset[str]
    #: How far the engine says that an erasure reaches.
    erasure: Erasure
    #: A URL that other processes can open, or None when there can be none.
    url: str | None

    def open(self, tenant: str = "default", options: Options | None = None) -> Pagefile:
        """A new handle, as another process or a later run would get it."""

    def crash(self) -> None:
        """Lose what the process held: handles are abandoned, not closed."""

    def remains(self) -> Iterable[tuple[str, bytes]]:
        """What must hold no byte of what was erased, at the engine's level: a name, its bytes."""

    def finish(self) -> list[Problem]:
        """Check every tenant that was opened, close everything, say what was wrong."""


class SharedBackend:
    """For engines that live in this process: all handles are on one engine."""

    def __init__(self, url: str) -> None:
        self.url: str | None = None
        self._address = url
        self._admin = Admin(url)
        self._admins = [self._admin]
        self._opened: list[Pagefile] = []
        self.name = self._admin.engine.name
        self.promises = self._admin.engine.promises
        self.erasure = self._admin.engine.erasure

    def open(self, tenant: str = "default", options: Options | None = None) -> Pagefile:
        admin = self._admin
        if options is not None:
            # Options belong to an engine; a test that asks for some starts afresh.
            admin = Admin(self._address, options=options)
            self._admins.append(admin)
            self._admin = admin
        handle = admin.open(tenant)
        self._opened.append(handle)
        return handle

    def crash(self) -> None:
        """Nothing of a memory engine outlives its process, and it promises no more."""

    def remains(self) -> Iterable[tuple[str, bytes]]:
        return ()

    def finish(self) -> list[Problem]:
        problems = _examine(self._opened)
        for admin in self._admins:
            admin.close()
        return problems


class FileBackend:
    """For engines that many processes open by URL: each handle is on its own.

    `remains` gives the bytes behind the URL; those of all files beside it if not given. `like` is
    an earlier place on the same server, which declares the same: so this one is not asked.
    """

    def __init__(
        self,
        url: str,
        remains: Callable[[], Iterable[tuple[str, bytes]]] | None = None,
        like: Backend | None = None,
    ) -> None:
        self.url: str | None = url
        self.remains = remains or (lambda: bytes_of_files(Path(url).parent))
        self._address = url
        self._opened: list[Pagefile] = []
        self._abandoned: list[Pagefile] = []
        with ExitStack() as asked:
            engine = like or asked.enter_context(Admin(url)).engine
            self.name = engine.name
            self.promises = engine.promises
            self.erasure = engine.erasure

    def open(self, tenant: str = "default", options: Options | None = None) -> Pagefile:
        admin = Admin(self._address, options=options)
        handle = admin.open(tenant)
        handle._owned = admin
        self._opened.append(handle)
        return handle

    def crash(self) -> None:
        # A long story has more crashes than a server has connections: the last one's are enough.
        for handle in self._abandoned:
            handle.close()
        self._abandoned, self._opened = self._opened, []

    def finish(self) -> list[Problem]:
        if not self._opened:
            self.open()
        problems = _examine(self._opened)
        for handle in self._opened + self._abandoned:
            handle.close()
        return problems


def bytes_of_files(folder: Path) -> Iterable[tuple[str, bytes]]:
    """Every file of a folder, at any depth."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def _examine(handles: list[Pagefile]) -> list[Problem]:
    problems: list[Problem] = []
    for tenant in {handle.tenant for handle in handles}:
        handle = next(h for h in reversed(handles) if h.tenant == tenant)
        problems += handle.check().problems
        problems += handle.verify().problems
    return problems

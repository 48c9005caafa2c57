"""A server to open handles on, and the contract suites' place on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import pagefile
from pagefile.handle import Admin, Options, Pagefile
from pagefile.store.records import Problem
from pagefile.surfaces.access.keys import KeyStore
from tests.servers.http import HttpServer


class Running:
    """A server, its store, and ways to reach it."""

    def __init__(self, server: HttpServer, url: str) -> None:
        self.server, self.url = server, url
        self.base, self.key = server.base, server.key
        self._counted = itertools.count()

    def open(self, base: str = "", **options: Any) -> Pagefile:
        """A handle on the server, with the key of its first start."""
        return pagefile.open(base or self.base, **{"key": self.key, **options})

    def key_for(self, tenant: str = "default", **options: Any) -> str:
        rights = {"rights": ("read", "write"), **options}
        with Admin(self.url) as admin:
            return KeyStore(admin).create(tenant, **rights).secret

    def place(self) -> RemoteBackend:
        """A place of its own for a contract suite."""
        return RemoteBackend(self, f"place-{next(self._counted)}-")


class RemoteBackend:
    """A `Backend` whose handles are remote; each is a client of its own."""

    name = "remote"
    url: str | None = None

    def __init__(self, running: Running, prefix: str) -> None:
        self._running = running
        self._prefix = prefix
        self._opened: list[Pagefile] = []
        with Admin(running.url) as admin:
            self.promises = admin.engine.promises
            self.erasure = admin.engine.erasure

    def open(self, tenant: str = "default", options: Options | None = None) -> Pagefile:
        if options is not None:
            pytest.skip("a server is opened with its own options")
        rights = ("read", "write", "admin")
        key = self._running.key_for(self._prefix + tenant, rights=rights)
        handle = pagefile.open(self._running.base, key=key)
        self._opened.append(handle)
        return handle

    def crash(self) -> None:
        """A client that is gone leaves nothing behind: its handles are abandoned."""

    def remains(self) -> Iterable[tuple[str, bytes]]:
        return ()

    def finish(self) -> list[Problem]:
        problems = [problem for handle in self._opened for problem in handle.verify().problems]
        for handle in self._opened:
            handle.close()
        return problems


def running_in(folder: Any) -> Iterator[Running]:
    """A server over a store in this folder, without an embedder."""
    url = str(folder / "store.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGEFILE_EMBEDDER", "none")
        with HttpServer(url) as server:
            yield Running(server, url)

"""The REST way: a real server in a process of its own, reached through a remote handle."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import tempfile

from tests.surfaces.ways import LibraryWay


@functools.cache
def _server() -> tuple[str, str]:
    """The address of one server for all tests of this process, and its store."""
    from tests.servers.http import HttpServer

    stack = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pagefile-rest-"))
    server = stack.enter_context(HttpServer(f"{folder}/store.db"))
    atexit.register(stack.close)
    return server.base, f"{folder}/store.db"


@functools.cache
def _key(tenant: str) -> str:
    from pagefile.handle import Admin
    from pagefile.surfaces.access.keys import KeyStore

    with Admin(_server()[1]) as admin:
        return KeyStore(admin).create(tenant, ("read", "write", "admin")).secret


class RestWay(LibraryWay):
    """REST: the library's own calls. A tenant of a store is a tenant of the server's own."""

    def __init__(self, url: str, tenant: str) -> None:
        from pagefile.handle import open as open_pagefile

        own = hashlib.sha256(f"{url}\n{tenant}".encode()).hexdigest()[:16]
        self._pf = open_pagefile(_server()[0], key=_key(own))

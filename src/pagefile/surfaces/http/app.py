"""The application: parts that are opened when it starts, and the routes on top of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile import tracing
from pagefile.errors import PagefileError
from pagefile.handle import Admin, Options
from pagefile.operations.packs import PackShelf
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.refusals import RefusalLog
from pagefile.surfaces.access.tokens import TokenVerifier
from pagefile.surfaces.http import endpoints, problems
from pagefile.surfaces.http.call import Tenants
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.endpoints import Router
from pagefile.surfaces.http.gate import Gate, Rates, Streams
from pagefile.surfaces.http.idempotency import Idempotent
from pagefile.surfaces.http.middleware import Front
from pagefile.surfaces.http.openapi import pages
from pagefile.surfaces.http.server import Counters, stopped_by_signal
from pagefile.surfaces.http.telemetry import Log


class Mounted(NamedTuple):
    """Another application under a path of this one, behind the same front.

    Requests that reach it have `scope["pagefile"]`, a `Call` with identity and
    handle; it checks rights beyond `read` by itself.
    """

    path: str
    app: ASGIApp
    lifespan: Callable[[], AbstractAsyncContextManager[object]] | None = None
    #: Ends answers without an end, when the process is to end.
    stop: Callable[[], None] | None = None


class Server:
    """What one process of a server holds open."""

    admin: Admin
    keys: KeyStore
    gate: Gate
    tenants: Tenants
    refusals: RefusalLog

    def __init__(self, config: ServerConfig, mounted: Sequence[Mounted] = ()) -> None:
        self.config = config.checked()
        self.counters = Counters(config.metrics_dir)
        self.metrics = self.counters.metrics
        self.log = Log(config.log_level)
        self.rates = Rates(config.rate_per_second)
        self.streams = Streams(config.max_streams)
        self.packs = PackShelf(config.packs, config.max_packs)
        self.mounted = tuple(each.path for each in mounted)
        self.routes: Sequence[BaseRoute] = ()
        self.is_ready = False

    @property
    def most_upload_bytes(self) -> int:
        return self.config.max_upload_bytes

    def open(self) -> None:
        """Open the store; blocks."""
        config = self.config
        tokens = None if config.tokens is None else TokenVerifier(config.tokens)
        self.admin = Admin(config.url, options=Options(durability=config.durability))
        self.keys = KeyStore(self.admin)
        self.gate = Gate(config, self.keys, tokens)
        self.tenants = Tenants(self.admin, config.max_tenants)
        self.refusals = RefusalLog(self.admin)
        self.is_ready = True

    async def close(self) -> None:
        """Let go of everything; what was acknowledged is stored."""
        self.is_ready = False
        self.log.flush()
        await self.tenants.close()
        await asyncio.to_thread(self.admin.close)


def make_app(config: ServerConfig, mounted: Sequence[Mounted] = ()) -> ASGIApp:
    """The whole application. Nothing is opened, read or made before it starts.

    Raises:
        Invalid: the configuration is none.
    """
    server = Server(config, mounted)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(config.threads, "pagefile"))
        await asyncio.to_thread(server.open)
        if config.workers > 1:
            server.log.tell("info", "worker started", {"pid": os.getpid()})
        if tracing.is_enabled() and not tracing.is_exported():
            mend = "start it with opentelemetry-instrument, or set a provider"
            server.log.tell("warning", "spans are made and exported by nobody", {"mend": mend})
        async with AsyncExitStack() as stack:
            stack.push_async_callback(server.close)
            await stack.enter_async_context(server.counters.shared())
            stops = (server.streams.stopping.set, *(each.stop for each in mounted if each.stop))
            stack.enter_context(stopped_by_signal(*stops))
            for each in mounted:
                if each.lifespan is not None:
                    await stack.enter_async_context(each.lifespan())
            yield

    app = Starlette(
        routes=[*pages(), *endpoints.routes()],
        lifespan=lifespan,
        exception_handlers={
            PagefileError: problems.handle,
            problems.AsRefused: problems.handle,
            HTTPException: problems.handle,
            Exception: problems.handle,
        },
    )
    app.router.redirect_slashes = False
    app.state.server = server
    for each in mounted:
        # A mount is what lies below a path; the path itself is a route of its own.
        app.router.routes.append(Route(each.path, each.app))
        app.mount(each.path, each.app)
    server.routes = app.router.routes
    whole: ASGIApp = Front(Idempotent(Router(app, app.router.routes)), server)
    if config.allow_origins:
        whole = CORSMiddleware(
            whole,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["authorization", "content-type", "idempotency-key", "if-match"],
            expose_headers=["etag", "location", "x-request-id"],
        )
    return traced(whole)


def traced(app: ASGIApp) -> ASGIApp:
    """The application with spans around its requests, where this process traces; else itself."""
    tracing.enable_if_set()
    return _Traced(app) if tracing.is_enabled() else app


class _Traced:
    """Reads `traceparent`, and makes a span whose name is the route: no id stands in it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not tracing.is_enabled():
            await self._app(scope, receive, send)
            return
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind, Status, StatusCode

        headers = scope["headers"]
        carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        method = scope["method"]
        with tracing.tracer().start_as_current_span(
            method,
            context=propagate.extract(carried),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method},
        ) as span:
            status = 0

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            await self._app(scope, receive, noting)
            call: Any = scope.get("pagefile")
            route = getattr(call, "route", "")
            if route:
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))

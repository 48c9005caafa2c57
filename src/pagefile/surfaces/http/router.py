"""The way from a path to the endpoint that answers: a tree of segments, and a plain call.

Starlette tries one pattern after the other; with a hundred routes that takes longer than
all the rest of a small request. Mounts, and what is not found here, go on to Starlette.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pagefile.surfaces.http import problems
from pagefile.surfaces.http.call import Call


class _Found(NamedTuple):
    route: Route
    answer: Callable[[Request], Awaitable[Response]]
    #: The names in its path, and which segments they are.
    names: tuple[tuple[int, str], ...]


class _Segment:
    """What can stand at one place of a path."""

    __slots__ = ("any", "ends", "named")

    def __init__(self) -> None:
        self.named: dict[str, _Segment] = {}
        self.any: _Segment | None = None
        #: By method, what answers a path that ends here.
        self.ends: dict[str, _Found] = {}

    def find(self, parts: list[str], at: int, method: str) -> _Found | None:
        """The route for these segments; a name that is spelled out comes first."""
        if at == len(parts):
            return self.ends.get(method)
        named = self.named.get(parts[at])
        if named is not None and (found := named.find(parts, at + 1, method)) is not None:
            return found
        if self.any is None or not parts[at]:
            return None
        return self.any.find(parts, at + 1, method)


class Router:
    """Answers what a route's function answers; everything else is the application's."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._root = _Segment()
        for route in routes:
            # What is mounted answers by itself, and is not called with a request.
            if isinstance(route, Route) and inspect.iscoroutinefunction(route.endpoint):
                self._add(route)

    def _add(self, route: Route) -> None:
        segment, names = self._root, []
        for at, part in enumerate(route.path.split("/")):
            if part.startswith("{"):
                names.append((at, part[1:-1]))
                if segment.any is None:
                    segment.any = _Segment()
                segment = segment.any
            else:
                segment = segment.named.setdefault(part, _Segment())
        for method in route.methods or ():
            # As among patterns, the first one that was declared answers.
            segment.ends.setdefault(method, _Found(route, route.endpoint, tuple(names)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http":
            parts = scope["path"].split("/")
            found = self._root.find(parts, 0, scope["method"])
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["endpoint"] = found.route, found.answer
        scope["path_params"] = {name: parts[at] for at, name in found.names}
        scope["app"] = self._app
        request = Request(scope, receive, send)
        try:
            response = await found.answer(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            call: Call = scope["pagefile"]
            response = problems.response_to(call, error)
        await response(scope, receive, send)

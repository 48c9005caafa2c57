"""The way from a path to the function that answers: a tree of segments, and a plain call.

FastAPI declares and documents the routes. For a request it tries one pattern after
the other, and resolves parameters even where there is nothing to resolve; of a small
request that takes longer than all the rest. What needs it (a query to be checked, a path
with a number in it, a file of /docs) still goes through it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, NamedTuple, get_args, get_origin

from fastapi import params
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pagefile.surfaces.http import problems
from pagefile.surfaces.http.call import Call


class _Found(NamedTuple):
    """A route whose function can be called as it is."""

    route: Route
    answer: Callable[..., Awaitable[Response]]
    #: The names in its path, and which segments they are.
    names: tuple[tuple[int, str], ...]
    is_handed_names: bool
    takes_query: bool


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
    """Answers what it can by a plain call; everything else is the application's."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._root = _Segment()
        for route in routes:
            found = _called_plainly(route)
            if found is not None:
                self._add(found)

    def _add(self, found: _Found) -> None:
        segment = self._root
        for part in found.route.path.split("/"):
            if part.startswith("{"):
                if segment.any is None:
                    segment.any = _Segment()
                segment = segment.any
            else:
                segment = segment.named.setdefault(part, _Segment())
        for method in found.route.methods or ():
            # As among patterns, the first one that was declared answers.
            segment.ends.setdefault(method, found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http":
            parts = scope["path"].split("/")
            found = self._root.find(parts, 0, scope["method"])
        if found is None or (scope["query_string"] and not found.takes_query):
            await self._app(scope, receive, send)
            return
        given = {name: parts[at] for at, name in found.names}
        scope["route"], scope["endpoint"] = found.route, found.answer
        scope["path_params"], scope["app"] = given, self._app
        request = Request(scope, receive, send)
        try:
            if found.is_handed_names:
                response = await found.answer(request, **given)
            else:
                response = await found.answer(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            call: Call = scope["pagefile"]
            response = problems.response_to(call, error)
        await response(scope, receive, send)


def _called_plainly(route: BaseRoute) -> _Found | None:
    """The route with its function, if that can be called without FastAPI."""
    if not isinstance(route, Route) or not inspect.iscoroutinefunction(route.endpoint):
        return None
    parts = [(at, part) for at, part in enumerate(route.path.split("/")) if "{" in part]
    if any(part[0] != "{" or part[-1] != "}" or ":" in part for _, part in parts):
        return None
    names = tuple((at, part[1:-1]) for at, part in parts)
    if not isinstance(route, APIRoute):
        return _Found(route, route.endpoint, names, is_handed_names=False, takes_query=True)
    takes_query = True
    taken = inspect.signature(route.endpoint, eval_str=True).parameters
    if "request" not in taken:
        return None
    for name, parameter in taken.items():
        if name == "request":
            continue
        if name in route.param_convertors:
            if parameter.annotation is not str:
                return None
        elif _is_optional_query(parameter):
            takes_query = False
        else:
            return None
    return _Found(route, route.endpoint, names, is_handed_names=True, takes_query=takes_query)


def _is_optional_query(parameter: inspect.Parameter) -> bool:
    """Whether nothing has to be said of it, and the function knows what that means."""
    hint = parameter.annotation
    if parameter.default is inspect.Parameter.empty or isinstance(parameter.default, params.Param):
        return False
    if get_origin(hint) is not Annotated:
        return True
    return all(
        isinstance(each, params.Query)
        for each in get_args(hint)[1:]
        if isinstance(each, (params.Param, params.Depends, params.Body))
    )

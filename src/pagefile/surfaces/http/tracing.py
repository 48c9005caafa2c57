"""A span for each request, in the trace that the client says it belongs to."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile import tracing


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

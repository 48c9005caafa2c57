"""A method with a span around each call of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pagefile.errors import PagefileError
from pagefile.tracing.operations import ERROR_TYPE, Traced, told_after, told_before

#: Inside one memory operation, those that it is made of are no operations of their own.
_inside: ContextVar[bool] = ContextVar("pagefile_tracing_inside", default=False)


def wrapped(function: Callable[..., Any], traced: Traced, tracer: Any, *, content: bool) -> Any:
    """The same function, traced."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(self: Any, *args: Any, **options: Any) -> Any:
            if traced.is_memory and _inside.get():
                return await function(self, *args, **options)
            with _span(traced, tracer, self, args, options, content) as span:
                result = await function(self, *args, **options)
                _tell(span, traced, args, result, content)
                return result

        return awaited

    @functools.wraps(function)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        if traced.is_memory and _inside.get():
            return function(self, *args, **options)
        with _span(traced, tracer, self, args, options, content) as span:
            result = function(self, *args, **options)
            _tell(span, traced, args, result, content)
            return result

    return called


def _tell(span: Any, traced: Traced, args: Any, result: Any, content: bool) -> None:
    if span.is_recording():
        span.set_attributes(told_after(traced, args, result, content=content))


@contextmanager
def _span(
    traced: Traced, tracer: Any, target: Any, args: Any, options: Any, content: bool
) -> Iterator[Any]:
    told = told_before(traced, target, args, options, content=content)
    token = _inside.set(True) if traced.is_memory else None
    try:
        # What went wrong is told by its class: its words may quote somebody.
        with tracer.start_as_current_span(
            traced.operation,
            attributes=told,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                failed(span, error)
                raise
    finally:
        if token is not None:
            _inside.reset(token)


def failed(span: Any, error: BaseException) -> None:
    """Mark a span as one that ended in an error."""
    from opentelemetry.trace import Status, StatusCode

    kind = error.code if isinstance(error, PagefileError) else type(error).__qualname__
    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))

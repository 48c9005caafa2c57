"""A method with a span around each call of it, and what the span tells.

Memory operations have the names of OpenTelemetry's conventions for generative
AI; what those have no word for stands under `pagefile.`. Which methods are
traced, and as what, says the table of `pagefile.operations`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from pagefile.errors import PagefileError

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
STORE_ID = "gen_ai.memory.store.id"
RECORD_ID = "gen_ai.memory.record.id"
RECORD_COUNT = "gen_ai.memory.record.count"
CONVERSATION_ID = "gen_ai.conversation.id"
#: Content; never set unless it was asked for.
QUERY_TEXT = "gen_ai.memory.query.text"
RECORDS = "gen_ai.memory.records"
ERROR_TYPE = "error.type"

_MOST_CONTENT = 64_000
_MOST_RECORDS = 100
#: Inside one memory operation, those that it is made of are no operations of their own.
_inside: ContextVar[bool] = ContextVar("pagefile_tracing_inside", default=False)
#: What the first argument of a method tells of, by its name.
_FIRST = {
    "query": "query",
    "episode": "records",
    "episodes": "records",
    "fact": "records",
    "facts": "records",
    "name": "id",
    "fact_id": "id",
}


class Traced(msgspec.Struct, frozen=True):
    """A method that is traced, and the operation that it is."""

    operation: str
    #: What its first argument is, when it is one that a span tells of: id, query or records.
    first: str = ""

    @property
    def is_memory(self) -> bool:
        """Whether the conventions have a word for it."""
        return not self.operation.startswith("pagefile.")


def traced(method: Callable[..., Any], operation: str) -> Traced:
    """A method as an operation of that name."""
    names = [*inspect.signature(method).parameters]
    return Traced(operation, _FIRST.get(names[1], "") if len(names) > 1 else "")


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


def told_before(
    traced: Traced, target: Any, args: Sequence[Any], options: Mapping[str, Any], *, content: bool
) -> dict[str, Any]:
    """What a span tells when it begins."""
    told: dict[str, Any] = {OPERATION: traced.operation, PROVIDER: "pagefile"}
    if not traced.is_memory:
        told = {}
    tenant = tenant_of(target)
    if tenant:
        told[STORE_ID if traced.is_memory else "pagefile.tenant"] = tenant
    first = args[0] if args else None
    session = options.get("session_id") or getattr(first, "session_id", None)
    if isinstance(session, str):
        told[CONVERSATION_ID] = session
    if traced.first == "id":
        given = first if args else options.get("name", options.get("fact_id"))
        told |= {RECORD_ID: given} if isinstance(given, str) else {}
    query = options.get("query", first)
    if content and traced.first == "query" and isinstance(query, str):
        told[QUERY_TEXT] = query[:_MOST_CONTENT]
    if traced.operation == "pagefile.commit":
        told["pagefile.operations"] = len(getattr(first, "operations", ()))
    return told


def told_after(
    traced: Traced, args: Sequence[Any], result: Any, *, content: bool
) -> dict[str, Any]:
    """What a span tells when it ends well."""
    if traced.operation == "pagefile.commit":
        position = getattr(result, "position", None)
        return {} if position is None else {"pagefile.position": position}
    if traced.operation == "pagefile.assemble":
        receipt = result.receipt
        return {
            "pagefile.budget": receipt.budget,
            "pagefile.tokens": receipt.tokens,
            "pagefile.pieces": len(receipt.pieces),
        }
    if not traced.is_memory:
        return {}
    told: dict[str, Any] = {}
    if traced.operation == "delete_memory" and not traced.first:
        return {RECORD_COUNT: int(result)}
    if isinstance(result, str):
        told = {RECORD_ID: result, RECORD_COUNT: 1}
    elif isinstance(result, (list, tuple)):
        told = {RECORD_COUNT: len(result)}
    if content and traced.first in ("query", "records"):
        shown = result if traced.first == "query" else args[0] if args else ()
        records = shown if isinstance(shown, (list, tuple)) else [shown]
        told[RECORDS] = _records(records)
    return told


def tenant_of(target: Any) -> str:
    """The tenant of whatever was called, as far as it is known."""
    for _ in range(4):
        tenant = getattr(target, "tenant", None) or getattr(target, "_tenant", None)
        if isinstance(tenant, str):
            return tenant
        target = getattr(target, "_sync", None) or getattr(target, "_store", None)
    return ""


def _records(found: Sequence[Any]) -> str:
    shown: list[dict[str, Any]] = []
    size = 0
    for each in found[:_MOST_RECORDS]:
        record = _record(each)
        size += len(record["content"])
        if size > _MOST_CONTENT:
            break
        shown.append(record)
    return msgspec.json.encode(shown).decode()


def _record(each: Any) -> dict[str, Any]:
    value = getattr(each, "episode", None) or getattr(each, "fact", None) or each
    value = getattr(value, "item", value)
    record: dict[str, Any] = {"content": _content(each, value)}
    identity = getattr(value, "id", None) or getattr(value, "memory_id", None)
    if identity is not None:
        record["id"] = identity
    score = getattr(each, "score", None)
    return record if score is None else record | {"score": float(score)}


def _content(each: Any, value: Any) -> str:
    for holder, name in ((each, "text"), (value, "content")):
        text = getattr(holder, name, None)
        if isinstance(text, str):
            return text
    names = ("input", "output") if hasattr(value, "input") else ("subject", "predicate", "object")
    return " ".join(str(getattr(value, name, "")) for name in names).strip()

"""OpenTelemetry spans for what memory does; off until it is switched on.

    import pagefile.tracing

    pagefile.tracing.enable()

Switching it on replaces the traced methods by ones with a span around them,
switching it off puts them back: while it is off, nothing is imported and no
call takes a step more. Texts are left out of spans unless they are asked for.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

from pagefile.errors import Invalid, Unavailable, shown
from pagefile.settings import Settings

__all__ = ["disable", "enable", "enable_if_set", "is_enabled", "is_exported", "tracer"]

_switching = threading.Lock()
#: What was replaced: the class, the name, and what stood there; None for what was inherited.
_replaced: list[tuple[type, str, Any]] = []
_tracers: list[Any] = []
#: The provider that was given; None for the one of OpenTelemetry's API.
_providers: list[Any] = []
_WORDS = {"": None, "off": None, "0": None, "on": False, "1": False, "content": True}


def is_enabled() -> bool:
    """Whether spans are made."""
    return bool(_replaced)


def is_exported() -> bool:
    """Whether spans go anywhere: the API alone, without a provider, makes them for nobody."""
    if not is_enabled():
        return False
    trace = importlib.import_module("opentelemetry.trace")
    given = _providers[0] if _providers[0] is not None else trace.get_tracer_provider()
    return not isinstance(given, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


def tracer() -> Any:
    """What spans are made by, for surfaces that add their own; only while it is enabled."""
    return _tracers[0]


def enable(tracer_provider: Any = None, *, content: bool = False) -> None:
    """Make a span for every memory operation, commit and prompt of this process.

    `tracer_provider` is the one of OpenTelemetry's API when None. `content` puts
    questions and memories into spans. Calling it again replaces what was chosen.

    Raises:
        Unavailable: OpenTelemetry is not installed.
    """
    try:
        trace = importlib.import_module("opentelemetry.trace")
    except ImportError as error:
        raise Unavailable(
            "OpenTelemetry is not installed", "pip install 'pagefile[otel]'"
        ) from error
    from pagefile.tracing.spans import traced, wrapped

    # What is traced is known far above: it is asked for by name, and only now.
    table = importlib.import_module("pagefile.operations").table

    if type(content) is not bool:
        raise Invalid("content", shown(content), "give True or False")
    disable()
    made_by = trace.get_tracer("pagefile", tracer_provider=tracer_provider)
    with _switching:
        _tracers[:] = [made_by]
        _providers[:] = [tracer_provider]
        for row in [row for row in table() if row.span]:
            told = traced(row.method, row.span)
            for cls in row.classes:
                name = row.method.__name__
                own = cls.__dict__.get(name)
                made = wrapped(getattr(cls, name), told, made_by, content=content)
                setattr(cls, name, made)
                _replaced.append((cls, name, own))


def disable() -> None:
    """Make no more spans; every method is what it was."""
    with _switching:
        while _replaced:
            cls, method, own = _replaced.pop()
            if own is None:
                delattr(cls, method)
            else:
                setattr(cls, method, own)


def enable_if_set(settings: Settings | None = None) -> None:
    """Switch it on where PAGEFILE_TRACING says so: `on`, or `content` with texts.

    Raises:
        Invalid: it says something else.
    """
    said = (Settings.from_environment() if settings is None else settings).tracing.lower()
    if said not in _WORDS:
        raise Invalid("PAGEFILE_TRACING", shown(said), "set it to on, content or off")
    content = _WORDS[said]
    if content is not None and not is_enabled():
        enable(content=content)

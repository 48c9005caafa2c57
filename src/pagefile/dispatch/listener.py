"""Listeners: named capabilities, what they take, and whom they may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from pagefile.context.names import require_name, require_text
from pagefile.dispatch.payloads import SYSTEM
from pagefile.dispatch.retry import Retry, require_retry
from pagefile.errors import Invalid, shown
from pagefile.store import codec
from pagefile.store.arguments import require_callable, require_flag, require_seconds

Mode = Literal["async", "thread", "pool"]
_MOST_LISTENERS = 10_000
#: payload, metadata, the handle of its own thread.
_MOST_PARAMETERS = 3


class Listener(msgspec.Struct, frozen=True):
    """One listener as it was declared."""

    name: str
    handler: Callable[..., Any]
    payload: tuple[type, ...] = ()
    description: str = ""
    peers: frozenset[str] = frozenset()
    agent: bool = False
    broadcast: bool = False
    timeout: float = 30.0
    prompt: str = ""
    retry: Retry = Retry()
    mode: Mode = "async"
    #: How many arguments the handler takes.
    takes: int = 2
    #: `module:function`, for another process to find it.
    entry: str = ""

    def accepts(self, payload: object) -> bool:
        """Whether a request with this payload may be sent to it."""
        return not self.payload or type(payload) in self.payload

    def may_call(self, name: str) -> bool:
        """Itself always, its peers, and nobody else."""
        return name == self.name or name in self.peers


class Listeners:
    """The listeners of one organism, by name and by what they take."""

    def __init__(self) -> None:
        self._by_name: dict[str, Listener] = {}
        self._folded: dict[str, str] = {}
        self._by_type: dict[type, list[Listener]] = {}

    def __iter__(self) -> Iterable[Listener]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Listener | None:
        """The listener of this very name; None when there is none."""
        return self._by_name.get(name) if isinstance(name, str) else None

    def all(self) -> list[Listener]:
        """Every listener, in the order of their declaration."""
        return list(self._by_name.values())

    def add(self, listener: Listener) -> None:
        """Declare one more.

        Raises:
            Invalid: the name is taken, in whatever case, or the system's own.
        """
        name = listener.name
        taken = self._folded.get(name.casefold())
        if taken is not None:
            raise Invalid("name", f"there is a listener {taken!r} already", "choose another name")
        if name == SYSTEM or name.startswith(SYSTEM + "."):
            raise Invalid("name", f"{name!r} belongs to the organism", "choose another name")
        if len(self._by_name) >= _MOST_LISTENERS:
            raise Invalid("name", "there are too many listeners", f"keep to {_MOST_LISTENERS}")
        self._by_name[name] = listener
        self._folded[name.casefold()] = name
        for cls in listener.payload:
            self._by_type.setdefault(cls, []).append(listener)

    def taking(self, payload: object) -> list[Listener]:
        """Who takes this type of payload: all that broadcast, or the one that does not."""
        found = self._by_type.get(type(payload), [])
        topic = [listener for listener in found if listener.broadcast]
        if topic:
            return topic
        return found if len(found) == 1 else []


def listener_of(
    handler: Callable[..., Any],
    name: str,
    *,
    payload: type | Sequence[type] | None = None,
    description: str = "",
    peers: Sequence[str] = (),
    agent: bool = False,
    broadcast: bool = False,
    cpu_bound: bool = False,
    timeout: float = 30.0,
    prompt: str = "",
    retry: Retry | None = None,
) -> Listener:
    """A listener, if all of this makes sense.

    Raises:
        Invalid: something does not; says what.
    """
    require_name("name", name)
    require_callable("handler", handler)
    for field, flag in (("agent", agent), ("broadcast", broadcast), ("cpu_bound", cpu_bound)):
        require_flag(field, flag)
    require_text("description", description)
    require_text("prompt", prompt)
    require_seconds(timeout, "timeout")
    if timeout <= 0:
        raise Invalid("timeout", f"{shown(timeout)} seconds", "give more than 0")
    if isinstance(peers, str) or not isinstance(peers, (list, tuple, set, frozenset)):
        raise Invalid("peers", shown(peers), "give a list of names")
    for peer in peers:
        require_name("peers", peer)
    classes = _classes(payload)
    if broadcast and not classes:
        raise Invalid("broadcast", f"{name!r} takes every payload", "say which class it takes")
    entry = _entry_of(handler, name) if cpu_bound else ""
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  The method, not whether there is one.
    )
    return Listener(
        name,
        handler,
        classes,
        description,
        frozenset(peers),
        agent,
        broadcast,
        float(timeout),
        prompt,
        require_retry(retry if retry is not None else Retry()),
        "pool" if cpu_bound else ("async" if is_async else "thread"),
        _parameters(handler),
        entry,
    )


def _classes(payload: type | Sequence[type] | None) -> tuple[type, ...]:
    if payload is None:
        return ()
    if not isinstance(payload, (type, list, tuple, set, frozenset)):
        raise Invalid("payload", f"{shown(payload)} is no class", "give payload classes")
    classes = (payload,) if isinstance(payload, type) else tuple(payload)
    for cls in classes:
        if not isinstance(cls, type):
            raise Invalid("payload", f"{shown(cls)} is no class", "give payload classes")
        if codec.is_typed(cls):
            # So that a process that starts anew reads what is stored as this class.
            codec.register(cls, codec.type_name(cls))
    return classes


def _parameters(handler: Callable[..., Any]) -> int:
    """How many of (payload, metadata, own thread) the handler wants."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return 2
    count = 0
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return _MOST_PARAMETERS
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            count += 1
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            count = _MOST_PARAMETERS + 1
    if not 1 <= count <= _MOST_PARAMETERS:
        raise Invalid(
            "handler",
            f"{shown(handler)} cannot be called with a payload, its metadata and its thread",
            "take (payload), (payload, metadata) or (payload, metadata, thread)",
        )
    return count


def _entry_of(handler: Callable[..., Any], name: str) -> str:
    """Where another process finds the handler."""
    module = getattr(handler, "__module__", "")
    qualname = getattr(handler, "__qualname__", "")
    if not module or not qualname or "<" in qualname or "." in qualname:
        raise Invalid(
            "handler",
            f"{shown(handler)} of {name!r} is no function of a module",
            "a CPU-bound handler runs in another process: define it with `def` in a module",
        )
    return f"{module}:{qualname}"

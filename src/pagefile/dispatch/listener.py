"""Listeners: what they take and whom they may call; limits, retries and names in the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from pagefile.context.names import require_name, require_text
from pagefile.dispatch.letter import SYSTEM
from pagefile.errors import Invalid, shown
from pagefile.store import codec
from pagefile.store.arguments import require_callable, require_count, require_flag, require_seconds

# How often a message is tried, and how long it rests in between.


_MOST_ATTEMPTS = 1_000


class Retry(msgspec.Struct, frozen=True):
    """Up to `attempts` tries; the pause starts with `pause` seconds and grows by `factor`."""

    attempts: int = 3
    pause: float = 0.1
    factor: float = 4.0
    most: float = 60.0

    def seconds_after(self, failures: int) -> float:
        """The pause after so many failures."""
        grown = float(self.pause)
        for _ in range(min(max(failures - 1, 0), 64)):
            if grown >= self.most:
                break  # Further, and a large factor would leave the numbers there are.
            grown *= self.factor
        return float(min(self.most, grown))


class Refused(Exception):
    """Raise it in a handler for what no further try can mend: the caller is told at once."""


def require_retry(retry: Retry) -> Retry:
    """Refuse a policy that never ends or never waits."""
    if not isinstance(retry, Retry):
        raise Invalid("retry", f"{shown(retry)} is no Retry", "give Retry(…)")
    require_count(retry.attempts, "retry.attempts", least=1, most=_MOST_ATTEMPTS)
    require_seconds(retry.pause, "retry.pause")
    require_seconds(retry.most, "retry.most")
    require_seconds(retry.factor, "retry.factor")
    return retry


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


# What bounds an organism; every number here has an effect.


Scheduling = Literal["breadth-first", "depth-first"]
_MOST = 1_000_000


class DispatchLimits(msgspec.Struct, frozen=True):
    """The bounds of one organism.

    `max_depth` bounds how deep calls nest, `max_messages` how many messages one
    request may cause, `max_tokens` what its handlers may spend together.
    `max_conversations` is how many this process works on at a time; what comes
    beyond waits in the store for any process, up to `max_waiting`.
    """

    max_concurrent_handlers: int = 20
    max_concurrent_per_agent: int = 5
    max_conversations: int = 1_000
    max_waiting: int = 10_000
    max_depth: int = 50
    max_messages: int = 10_000
    max_tokens: int = 100_000
    max_slots_per_thread: int = 10_000
    max_deaths: int = 5
    #: How many messages one handler may send at a time, and how many effects it may have.
    max_sent: int = 1_000
    lease_seconds: float = 10.0
    retention_seconds: float = 86_400.0
    thread_scheduling: Scheduling = "breadth-first"


def require_limits(limits: DispatchLimits) -> DispatchLimits:
    """Refuse what would bound nothing, or everything."""
    if not isinstance(limits, DispatchLimits):
        raise Invalid("limits", f"{shown(limits)} is no DispatchLimits", "give DispatchLimits(…)")
    for field in limits.__struct_fields__:
        value = getattr(limits, field)
        if field == "thread_scheduling":
            if value not in ("breadth-first", "depth-first"):
                raise Invalid(field, shown(value), "use 'breadth-first' or 'depth-first'")
        elif field.endswith("_seconds"):
            require_seconds(value, field)
            if value <= 0:
                raise Invalid(field, f"{shown(value)} seconds", "give more than 0")
        else:
            require_count(value, field, least=1, most=_MOST)
    return limits


# Where dispatch keeps its things in a store: one prefix for each kind.
#
# dispatch/conversation/<thread>  who works on it; its version is the fence
# dispatch/journal/<thread>       what was sent, done and answered in it
# dispatch/state/<thread>/<name>  what a handler put through its handle
# dispatch/worker/<id>            a process that is alive, and how it is doing
# dispatch/taken/<message>        that a message id of the caller's was used
# dispatch/dead/<message>         a message that nobody could handle
# dispatch/bell                   that somebody left work for others


CONVERSATIONS = "dispatch/conversation/"
JOURNALS = "dispatch/journal/"
STATES = "dispatch/state/"
WORKERS = "dispatch/worker/"
TAKEN = "dispatch/taken/"
DEAD = "dispatch/dead/"
BELL = "dispatch/bell"

#: Keys: open conversations by (organism, owner), ended things and dead letters by time.
OPEN = "dispatch.open"
ENDED = "dispatch.ended"
DEAD_AT = "dispatch.dead"

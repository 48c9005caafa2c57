"""How an async class is made from a sync one; see `__init__.py` for what is made.

`derive` builds an async class from a sync one: each public method becomes a
coroutine function with the same signature and docstring, each public property
one without arguments. A method that has a non-blocking twin named
`<method>_async` (only the write path has one: a commit joins the group that is
forming) awaits it; any other runs in a worker thread, because reads are short.
There is no second implementation to keep in step.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from pagefile.memory.privacy.isolation import AwaitedFrom

_TWIN = "_async"
#: Methods that give something to iterate over instead of something to await.
STEPPED = frozenset({"follow"})
#: Properties that read nothing from a store; the async classes have them as attributes.
SHOWN_AS_THEY_ARE = frozenset(
    {
        "assembly",
        "can_write",
        "context",
        "embedder",
        "items",
        "memory",
        "registry",
        "run_id",
        "runs",
        "user_id",
    }
)
#: What is handed out awaited too: from a sync class to its async one.
LIFTED: dict[type, type] = {}


def derive(sync: type, name: str) -> type:
    """An async class over `sync`, whose instances are built from a sync instance."""
    members: dict[str, Any] = {
        "__init__": _keep,
        "__doc__": f"`{sync.__name__}`, awaited.",
        "__slots__": ("_sync",),
    }
    for method, function in inspect.getmembers(sync, inspect.isfunction):
        if not method.startswith("_") and not method.endswith(_TWIN):
            if method in STEPPED:
                continue
            twin = getattr(sync, method + _TWIN, None)
            members[method] = _awaited(function) if twin is None else _delegated(method, function)
    for look, value in inspect.getmembers(sync, lambda member: isinstance(member, property)):
        if not look.startswith("_") and look not in SHOWN_AS_THEY_ARE:
            members[look] = _looked_at(look, value.fget)
    return type(name, (), members)


def _keep(self: Any, sync: Any) -> None:
    self._sync = sync


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(self: Any, *args: Any, **options: Any) -> Any:
        # The instance's own: a class below may watch what its base lets pass.
        bound = getattr(self._sync, function.__name__)
        with AwaitedFrom():
            return _lifted(await asyncio.to_thread(bound, *args, **options))

    return method


def _looked_at(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(self: Any) -> Any:
        with AwaitedFrom():
            return _lifted(await asyncio.to_thread(getattr, self._sync, name))

    return method


def _delegated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    twin = name + _TWIN

    @functools.wraps(function)
    async def method(self: Any, *args: Any, **options: Any) -> Any:
        # A twin that warns says itself who awaits it: most have nothing to warn of.
        return await getattr(self._sync, twin)(*args, **options)

    return method


def _lifted(result: Any) -> Any:
    """What reads when it is looked at must not be handed to a loop as it is."""
    awaited = LIFTED.get(type(result))
    return result if awaited is None else awaited(result)

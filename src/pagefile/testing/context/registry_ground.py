"""What every suite over a registry starts from, and how a story is told to one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from pagefile.context.registry import ThreadRegistry
from pagefile.store.store import Store
from pagefile.testing.contract.ground import ContractFixtures


class RegistryFixtures(ContractFixtures):
    """A registry on the engine's store, with a root."""

    @pytest.fixture
    def registry(self, store: Store) -> ThreadRegistry:
        return rooted(store)


def rooted(store: Store, **options: Any) -> ThreadRegistry:
    """A registry whose root is `system.org`."""
    registry = ThreadRegistry(store, **options)
    registry.initialize_root("org")
    return registry


class Interrupted(Store):
    """A store in which somebody else acts just before the first commit that comes."""

    def __init__(self, store: Store, action: Callable[[], Any]) -> None:
        vars(self).update(vars(store))
        self._action: Callable[[], Any] | None = action

    def commit(self, batch: Any) -> Any:
        action, self._action = self._action, None
        if action is not None:
            action()
        return super().commit(batch)


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What `act` returned for 0 … count-1, each in a thread of its own, all let go together."""
    results: list[Any] = [None] * count
    gate = threading.Barrier(count)

    def run(n: int) -> None:
        gate.wait()
        try:
            results[n] = act(n)
        except Exception as error:  # noqa: BLE001 - shown by the assertion that follows
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results

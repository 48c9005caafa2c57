"""What every suite over an engine starts from: a place, a store, a few verbs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pagefile.store.batch import Append, Batch, Put
from pagefile.store.store import Store
from pagefile.testing.backend import PROPERTY, Backend


class ContractFixtures:
    """What every suite over an engine starts from."""

    @pytest.fixture
    def place(self) -> Backend:
        raise NotImplementedError("an engine's test class supplies the fixture `place`")

    @pytest.fixture
    def backend(self, place: Backend, request: pytest.FixtureRequest) -> Iterator[Backend]:
        wanted = getattr(request.function, "promises", ())
        missing = [number for number in wanted if number not in place.promises]
        if missing:
            place.finish()
            pytest.skip(f"this engine does not promise {', '.join(missing)}")
        # What `pagefile.testing.promises` counts when the test has passed.
        request.node.user_properties.append((PROPERTY, [place.name, *wanted]))
        yield place
        problems = place.finish()
        assert problems == []

    @pytest.fixture
    def store(self, backend: Backend) -> Store:
        return backend.open().store


def append(store: Store, log: str, *values: Any, user: str | None = None) -> None:
    """One commit that appends the values."""
    store.commit(Batch([Append(log, value, user=user) for value in values]))


def append_each(store: Store, log: str, numbers: Iterable[int]) -> None:
    """One commit for each number."""
    for number in numbers:
        append(store, log, number)


def put(store: Store, document: str, value: Any, user: str | None = None) -> int:
    """One commit that puts the value; the version."""
    return store.commit(Batch([Put(document, value, user=user)])).versions[0]


def values(store: Store, log: str) -> list[Any]:
    """The values of all entries."""
    return [entry.value for entry in store.read(log)]


def value_of(store: Store, document: str) -> Any:
    """The document's value, or None."""
    found = store.get(document)
    return None if found is None else found.value

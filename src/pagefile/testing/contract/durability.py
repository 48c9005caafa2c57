"""What outlives the process."""

from __future__ import annotations

import pytest

from pagefile.errors import NotFound
from pagefile.handle import Options
from pagefile.store.batch import (
    Append,
    Batch,
    Delete,
)
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.ground import (
    ContractFixtures,
    append,
    values,
)


class DurabilityContract(ContractFixtures):
    """S4, S11: what outlives the process."""

    @promise("S4")
    def test_acknowledged_commits_outlive_an_abandoned_handle(self, backend: Backend) -> None:
        store = backend.open().store
        for i in range(10):
            append(store, "a", i)
        backend.crash()

        assert values(backend.open().store, "a") == list(range(10))

    @promise("S4")
    def test_the_engine_states_its_level(self, backend: Backend) -> None:
        levels = [
            backend.open(f"t-{level}", Options(durability=level)).stats().durability
            for level in ("power", "process")
        ]

        assert levels == ["power", "process"]

    @promise("S11")
    def test_a_store_opens_by_itself_after_a_crash_in_the_middle(self, backend: Backend) -> None:
        store = backend.open().store
        append(store, "a", 1)
        with pytest.raises(NotFound):
            store.commit(Batch([Append("a", 2), Delete("missing")]))
        backend.crash()
        again = backend.open()

        assert (values(again.store, "a"), again.check().problems) == ([1], ())

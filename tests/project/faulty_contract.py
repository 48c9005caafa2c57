"""The contract on engines that lie, for test_seeded_faults.py: most of it fails, as it should."""

from __future__ import annotations

from typing import get_args

import pytest

from pagefile.handle import Admin, Options, Pagefile
from pagefile.store.commit.committer import Committer
from pagefile.testing.backend import Backend, SharedBackend
from pagefile.testing.contract import StoreContract
from pagefile.testing.faults import Fault, FaultyEngine

HONEST = "honest"


class FaultyBackend(SharedBackend):
    """A memory engine with a fault; what it promises is what it would without."""

    def __init__(self, fault: Fault | None) -> None:
        super().__init__("memory:")
        self._fault = fault
        self._spoil(self._admin)

    def open(self, tenant: str = "default", options: Options | None = None) -> Pagefile:
        if options is not None:
            self._admin = Admin(self._address, options=options)
            self._admins.append(self._admin)
            self._spoil(self._admin)
        return super().open(tenant)

    def _spoil(self, admin: Admin) -> None:
        admin.engine = FaultyEngine(admin.engine, self._fault)
        admin._committer = Committer(admin.engine)


class TestFaulty(StoreContract):
    @pytest.fixture(params=[HONEST, *get_args(Fault)])
    def fault(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def place(self, fault: Fault) -> Backend:
        return FaultyBackend(None if fault == HONEST else fault)

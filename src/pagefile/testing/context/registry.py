"""The contract of a thread registry, for any engine's store.

class TestMyEngine(RegistryContract):
    @pytest.fixture
    def place(self, tmp_path):
        return FileBackend(f"myengine://{tmp_path}/data")
"""

from __future__ import annotations

from pagefile.testing.context.activation import ActivationContract
from pagefile.testing.context.lifetime import LifetimeContract

__all__ = ["RegistryContract"]


class RegistryContract(ActivationContract, LifetimeContract):
    """All of it: what an engine's test class derives from."""

"""The contract of vector arms as tests. An arm supplies one fixture and may not override a test.

    class TestMyArm(ArmContract):
        @pytest.fixture
        def place(self):
            return lambda: MyArm("somewhere/" + uuid4().hex)

`place` makes a client of one and the same place, fresh for each test.
"""

from __future__ import annotations

from pagefile.testing.arms.asking import AskingContract
from pagefile.testing.arms.finding import FindingContract
from pagefile.testing.arms.following import FollowingContract
from pagefile.testing.arms.forgetting import ArmForgettingContract

__all__ = ["ArmContract"]


class ArmContract(AskingContract, FollowingContract, ArmForgettingContract, FindingContract):
    """All of it: what an arm's test class derives from."""

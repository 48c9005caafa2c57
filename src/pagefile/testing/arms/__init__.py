"""The contract of vector arms as tests. An arm supplies one fixture and may not override a test.

    class TestMyArm(ArmContract):
        @pytest.fixture
        def place(self):
            return lambda: MyArm("somewhere/" + uuid4().hex)

`place` makes a client of one and the same place, fresh for each test.

To read: `fixtures`, `search`, `follower`, `erasure`. `engine` is the contract of an engine that
keeps vectors in the commit of their entries.
"""

from __future__ import annotations

from pagefile.testing.arms.erasure import ArmForgettingContract
from pagefile.testing.arms.follower import FollowingContract
from pagefile.testing.arms.search import AskingContract, FindingContract

__all__ = ["ArmContract"]


class ArmContract(AskingContract, FollowingContract, ArmForgettingContract, FindingContract):
    """All of it: what an arm's test class derives from."""

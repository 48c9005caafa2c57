"""The manager engine on a real process: the contracts, races, deaths, hostile bytes."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

import pagefile
from pagefile import (
    Batch,
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    Options,
    PagefileError,
    Put,
    Selector,
    Unavailable,
    Unsupported,
)
from pagefile.engines.manager.protocol import decode_refusal, encode, error_of, refusal_of
from pagefile.store.commit.erasure import Rehearsed
from pagefile.store.engine import Wiped
from pagefile.testing.backend import Backend, FileBackend
from pagefile.testing.context import ContextContract
from pagefile.testing.context.registry import RegistryContract
from pagefile.testing.contract import StoreContract
from pagefile.testing.stories import StoreMachine
from tests.servers.manager import ManagerProcess

pytestmark = pytest.mark.xdist_group("manager")

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_NUMBERS = itertools.count()
#: The manager of this module, for what cannot take fixtures.
_SHARED: list[ManagerProcess] = []


@pytest.fixture(scope="module")
def server() -> Iterator[ManagerProcess]:
    with ManagerProcess() as running:
        _SHARED.append(running)
        yield running
        _SHARED.clear()


@pytest.fixture
def url(server: ManagerProcess) -> str:
    return server.space(f"test-{next(_NUMBERS)}")


class TestStore(StoreContract):
    @pytest.fixture
    def place(self, url: str) -> Backend:
        return FileBackend(url, remains=lambda: ())


class TestContext(ContextContract):
    @pytest.fixture
    def place(self, url: str) -> Backend:
        return FileBackend(url, remains=lambda: ())


class TestRegistry(RegistryContract):
    @pytest.fixture
    def place(self, url: str) -> Backend:
        return FileBackend(url, remains=lambda: ())


@pytest.mark.parametrize("suite", [TestStore, TestContext, TestRegistry])
def test_no_engine_overrides_a_contract_test(suite: type) -> None:
    assert [name for name in vars(suite) if name.startswith("test_")] == []


class ManagerMachine(StoreMachine):
    make_backend = staticmethod(lambda: FileBackend(_SHARED[0].space(f"story-{next(_NUMBERS)}")))


TestStories = ManagerMachine.TestCase
TestStories.settings = settings(
    max_examples=400 if _SOAK else 12,
    stateful_step_count=40 if _SOAK else 20,
    deadline=None,
    derandomize=not _SOAK,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
TestStories = pytest.mark.usefixtures("server")(TestStories)


ERRORS: list[PagefileError] = [
    NotFound("a", "b"),
    Conflict("a", "b", target="t", expected=1, current=2),
    Invalid("field", "fact", "rule"),
    LimitExceeded("bytes", limit=1, wanted=2, next_step="b"),
    Unavailable("a", "b", outcome="unknown", key="k"),
    Corrupt("a", "b"),
    Unsupported("a"),
    Forbidden("a", "b"),
    Rehearsed((Wiped("log", "a", 1, 0, 3, 4, 5),)),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_the_wire_and_is_copied_whole(error: PagefileError) -> None:
    sent = error_of(decode_refusal(encode(refusal_of(error))))

    for made in (sent, copy.copy(error)):
        assert (type(made), str(made), vars(made)) == (type(error), str(error), vars(error))


def scripted(url: str) -> list[object]:
    """Threads, a fork, documents and an erasure, by a script's clock and chance."""
    ticks, rolls = itertools.count(1_000_000), itertools.count()

    def entropy(size: int) -> bytes:
        return next(rolls).to_bytes(size, "big")

    options = Options(clock=lambda: next(ticks) * 1_000, entropy=entropy)
    with pagefile.open(url, options=options) as pf:
        for n in range(5):
            pf.context.append("t", {"n": n}, "ann", "bob", user_id=f"u{n % 2}")
        pf.context.fork("t", 3, new_id="child")
        pf.context.append("child", "on", "bob", "ann", usage_instructions="be brief")
        pf.store.commit(Batch([Put("d", 1, keys={"k": ("a", 1)}, tenant_keys={"t": b"x"})]))
        pf.store.update("d", lambda value: value + 1)
        pf.store.erase(Selector(user="u0"))
        return [
            pf.store.head(),
            [(slot.erased, slot.metadata) for slot in pf.context.get_thread_slots("child")],
            pf.store.changes(),
            pf.store.history("d"),
            pf.store.stats().logs,
        ]


def test_the_same_story_gives_the_same_bytes_as_in_memory(url: str) -> None:
    assert scripted(url) == scripted("memory:")

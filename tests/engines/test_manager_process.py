"""The manager as a process: many clients, deaths on either side, keys, hostile bytes."""

from __future__ import annotations

import ast
import itertools
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import pagefile
from pagefile import (
    Admin,
    Append,
    Batch,
    Conflict,
    ContextBuffer,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    Options,
    Pagefile,
    PagefileError,
    Put,
    Query,
    Selector,
    Store,
    Unavailable,
    Unsupported,
    VersionIs,
)
from pagefile.engines.manager import protocol as wire
from pagefile.engines.manager.connection import Link
from pagefile.engines.manager.event_loop import Bounds, Connection, Greeting
from pagefile.engines.manager.protocol import (
    CLIENT_BYTES,
    NONCE_BYTES,
    Address,
    address_of,
    client_digest,
    is_proved,
)
from pagefile.engines.manager.server import ManagerServer
from pagefile.testing.backend import FileBackend
from tests.servers.manager import ManagerProcess
from tests.servers.proxy import Cut, Proxy

pytestmark = pytest.mark.xdist_group("manager")

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_ROUNDS = 1_000 if _SOAK else 60
_NUMBERS = itertools.count()
_ENGINES = Path(pagefile.__file__).parent / "engines"


@pytest.fixture(scope="module")
def server() -> Iterator[ManagerProcess]:
    with ManagerProcess() as running:
        yield running


@pytest.fixture
def url(server: ManagerProcess) -> str:
    return server.space(f"test-{next(_NUMBERS)}")


class Inside:
    """A manager in a thread of this process, for what is asked of it from inside."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.server = ManagerServer(bounds=bounds)
        self.url = self.server.url
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def close(self) -> None:
        self.server.stop()
        self._thread.join()


@pytest.fixture
def inside() -> Iterator[Callable[..., Inside]]:
    made: list[Inside] = []

    def make(**bounds: Any) -> Inside:
        made.append(Inside(Bounds(**bounds)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def knock(address: Address) -> socket.socket:
    """A connection that has not said anything yet."""
    sock = socket.create_connection((address.host, address.port), timeout=30)
    sock.settimeout(30)
    return sock


def proved(url: str) -> socket.socket:
    """A connection on which the key is proved, to say on it whatever one likes."""
    link = Link(address_of(url), 30)
    sock = link._take(fresh=False)
    sock.settimeout(30)
    return sock


def is_cut(sock: socket.socket) -> bool:
    """True once the other side has ended the connection; what it said before is read over."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


def one_append(store: Store, value: Any = 1) -> int:
    return store.commit(Batch([Append("a", value)])).indexes[0]


# Many processes


def race_processes(url: str, task: str, writers: int, count: int) -> list[Any]:
    """What all racers together were acknowledged; fails on any error they met."""
    command = [sys.executable, "-m", "pagefile.testing.racer", url, task, str(count)]
    racers = [
        subprocess.Popen([*command, f"w{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(writers)
    ]
    told = [json.loads(racer.communicate(timeout=300)[0]) for racer in racers]
    assert [t["errors"] for t in told] == [{}] * writers
    return sorted(item for t in told for item in t["acknowledged"])


def test_threads_B01_eight_processes_append_without_loss_repeat_or_gap(url: str) -> None:
    acknowledged = race_processes(url, "append_to_one_log", 8, _ROUNDS)

    assert acknowledged == list(range(8 * _ROUNDS))
    assert FileBackend(url).finish() == []


def test_eight_processes_update_one_document_without_losing_one(url: str) -> None:
    acknowledged = race_processes(url, "update_one_document", 8, _ROUNDS)
    with pagefile.open(url) as pf:
        final = pf.store.get("counter")

    assert acknowledged == list(range(1, 8 * _ROUNDS + 1))
    assert final is not None
    assert final.value == final.version == 8 * _ROUNDS
    assert FileBackend(url).finish() == []


def test_threads_B02_eight_processes_never_pass_a_limit(url: str) -> None:
    assert race_processes(url, "fill_to_a_limit", 8, 30) == list(range(100))


def test_a_follower_in_another_process_is_told_at_once(url: str) -> None:
    code = (
        "import sys, pagefile\n"
        "with pagefile.open(sys.argv[1]) as pf:\n"
        "    with pf.feed.follow('a', -1, timeout=60) as follower:\n"
        "        for entry in follower:\n"
        "            print(entry.value, flush=True)\n"
        "            if entry.value == 'last': break\n"
    )
    with pagefile.open(url) as pf:
        one_append(pf.store, "first")
        follower = subprocess.Popen(
            [sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True
        )
        assert follower.stdout is not None
        seen = [follower.stdout.readline()]
        for value in ("second", "last"):
            one_append(pf.store, value)
            seen.append(follower.stdout.readline())
        follower.communicate(timeout=60)

    assert seen == ["first\n", "second\n", "last\n"]


def test_a_client_killed_in_mid_commit_loses_nothing_acknowledged_and_holds_nothing(
    url: str,
) -> None:
    code = (
        "import sys, pagefile\n"
        "from pagefile import Append, Batch, Put\n"
        "with pagefile.open(sys.argv[1]) as pf:\n"
        "    for n in range(10**9):\n"
        "        pf.store.commit(Batch([Append('a', [n, 'x' * 20_000]), Put('d', n)]))\n"
        "        print(n, flush=True)\n"
    )
    with pagefile.open(url) as pf:
        stored = 0
        for _ in range(4):
            victim = subprocess.Popen(
                [sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True
            )
            assert pf.store.wait(stored + 20, timeout=60)
            victim.kill()
            told = victim.communicate()[0].splitlines()
            length, document = pf.store.length("a"), pf.store.get("d")
            assert document is not None

            assert document.version == length == pf.store.head().position
            assert stored + len(told) <= length <= stored + len(told) + 1
            stored = length
        assert one_append(pf.store) == stored
        assert pf.verify()
        assert pf.check()


def test_half_a_frame_stores_nothing_and_holds_nobody_up(url: str) -> None:
    with pagefile.open(url) as pf:
        one_append(pf.store)
        head = pf.store.head()
        for cut in (1, 3, 4, 5, 400):
            with proved(url) as sock:
                sock.sendall(wire.framed(b"\x95\x01" + b"x" * 1_000)[:cut])

        assert pf.store.head() == head
        assert one_append(pf.store) == 1


# The end of a manager


def test_a_manager_that_was_killed_is_a_clear_error() -> None:
    with ManagerProcess() as server:
        pf = pagefile.open(server.url)
        one_append(pf.store)
        server.kill()
        with pytest.raises(Unavailable, match=r"lost|cannot be reached"):
            one_append(pf.store)
        for ask in (lambda: pf.store.read("a"), lambda: pf.store.wait(9, 1), pf.stats):
            with pytest.raises(Unavailable, match="cannot be reached"):
                ask()
        with pytest.raises(Unavailable, match="start a manager there"):
            pagefile.open(server.url)
        pf.close()


def test_a_manager_killed_while_many_commit_ends_every_commit() -> None:
    failed: list[PagefileError] = []

    def write(store: Store) -> None:
        try:
            while True:
                one_append(store)
        except PagefileError as error:
            failed.append(error)

    with ManagerProcess() as server, pagefile.open(server.url) as pf:
        threads = [threading.Thread(target=write, args=(pf.store,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert pf.store.wait(100, timeout=60)
        server.kill()
        for thread in threads:
            thread.join(timeout=60)

    assert [type(error) for error in failed] == [Unavailable] * 4


def test_a_manager_started_anew_is_not_taken_for_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGEFILE_MANAGER_AUTHKEY", "the same key as before")
    with ManagerProcess() as server:
        with pagefile.open(server.url) as pf:
            one_append(pf.store)
            server.kill()
            server.start()
            asked: list[Callable[[], object]] = [lambda: one_append(pf.store), pf.stats]
            for ask in asked:
                with pytest.raises(Unavailable, match=r"started anew, and what it held is gone"):
                    ask()
        with pagefile.open(server.url) as pf:
            assert pf.store.length("a") == 0


def gone(pidfd: int) -> bool:
    """Whether the process ends soon."""
    return bool(select.select([pidfd], [], [], 30)[0])


def test_a_started_manager_is_joined_by_its_url_and_ends_with_its_handle() -> None:
    with pagefile.open("manager:") as pf:
        one_append(pf.store, "mine")
        code = "import sys, pagefile\nwith pagefile.open(sys.argv[1]) as pf: "
        code += (
            "print(pf.store.append(pagefile.Append('a', 'theirs')).index, pf.url == sys.argv[1])"
        )
        other = subprocess.run(
            [sys.executable, "-c", code, pf.url], capture_output=True, text=True, timeout=60
        )
        values = [entry.value for entry in pf.store.read("a")]
        url = pf.url

    assert (other.stdout, values) == ("1 True\n", ["mine", "theirs"])
    with pytest.raises(Unavailable):
        pagefile.open(url)


@pytest.mark.parametrize("ending", ["killed", "exit", "fork"])
def test_no_orphan_stays_however_its_owner_ends(ending: str) -> None:
    """Also when a fork of the owner lives on, with the owner's files open."""
    code = (
        "import os, signal, sys, pagefile\n"
        "pf = pagefile.open('manager:')\n"
        "print(pf.store._engine._child.pid, flush=True)\n"
        "sys.stdin.readline()\n"
        "if sys.argv[1] == 'fork' and not os.fork(): sys.stdin.readline(); os._exit(0)\n"
        "if sys.argv[1] != 'exit': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, ending], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    watched = os.pidfd_open(int(owner.stdout.readline()))
    owner.stdin.write(b"go\n")
    owner.stdin.flush()

    assert gone(watched)
    os.close(watched)
    owner.stdin.close()
    owner.wait(timeout=60)
    owner.stdout.close()


def test_ctrl_c_for_the_owner_leaves_it_its_manager() -> None:
    code = (
        "import os, signal, pagefile\n"
        "with pagefile.open('manager:') as pf:\n"
        "    try:\n"
        "        os.killpg(0, signal.SIGINT)\n"
        "        signal.pause()\n"
        "    except KeyboardInterrupt:\n"
        "        print(pf.store.append(pagefile.Append('a', 1)).index)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )

    assert (ran.stdout, ran.stderr) == ("0\n", "")


def test_a_manager_by_hand_prints_its_url_and_ends_when_told() -> None:
    with ManagerProcess() as server:
        with pagefile.open(server.url) as pf:
            one_append(pf.store)
        watched = os.pidfd_open(server.pid)
        os.kill(server.pid, signal.SIGTERM)

        assert gone(watched)
        os.close(watched)


# Connections that break


@pytest.fixture
def proxy(server: ManagerProcess) -> Iterator[Proxy]:
    with closing(Proxy(server.port)) as standing:
        yield standing


def through(proxy: Proxy, url: str) -> str:
    address = address_of(url)
    return Address("127.0.0.1", proxy.port, address.authkey, address.space).url


@pytest.mark.parametrize("where", ["request", "answer"])
def test_a_connection_cut_in_mid_commit_is_resolved(url: str, proxy: Proxy, where: Cut) -> None:
    with pagefile.open(through(proxy, url)) as pf:
        one_append(pf.store, 0)
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


def test_a_refusal_whose_answer_was_cut_off_is_the_same_refusal(url: str, proxy: Proxy) -> None:
    with pagefile.open(through(proxy, url)) as pf:
        pf.store.commit(Batch([Put("d", 1)]))
        proxy.cut_at(b"cut-here", "answer")
        with pytest.raises(Conflict) as caught:
            pf.store.commit(Batch([Put("d", "cut-here")], [VersionIs("d", 7)]))

        assert (proxy.cuts, caught.value.expected, caught.value.current) == (1, 7, 1)


def test_an_erasure_whose_answer_was_cut_off_gives_the_whole_receipt(
    url: str, proxy: Proxy
) -> None:
    with pagefile.open(through(proxy, url)) as pf:
        pf.store.commit(Batch([Append("a", 1, user="alice-of-cuts"), Append("a", 2)]))
        proxy.cut_at(b"alice-of-cuts", "answer")
        receipt = pf.store.erase(Selector(user="alice-of-cuts"))

        assert (proxy.cuts, receipt.records, receipt.level) == (1, 1, "bytes")


def test_an_unknown_outcome_is_resolved_by_the_same_batch(url: str, proxy: Proxy) -> None:
    with pagefile.open(through(proxy, url)) as pf:
        one_append(pf.store, 0)
        batch = Batch([Append("a", "cut-here")])
        proxy.cut_at(b"cut-here", "answer", then_refuse=True)
        with pytest.raises(Unavailable) as caught:
            pf.store.commit(batch)
        proxy.refusing = False
        again = pf.store.commit(batch)

        assert (caught.value.outcome, caught.value.key) == ("unknown", batch.key)
        # Which of the two was first, the request or its repeat, nobody knows; it is stored once.
        assert (again.position, again.indexes, pf.store.length("a")) == (2, (1,), 2)


def test_a_commit_sent_twice_is_stored_once_and_answered_alike(url: str) -> None:
    with pagefile.open(url) as pf, proved(url) as sock:
        sent: list[bytes] = []
        engine: Any = pf.store._engine
        ask = engine._link.ask

        def overheard(request: bytes, **how: Any) -> Any:
            sent.append(request)
            return ask(request, **how)

        engine._link.ask = overheard
        one_append(pf.store)
        engine._link.ask = ask
        answers = []
        for _ in range(2):
            # From another client the number means nothing, and the key says it all.
            sock.sendall(wire.framed(sent[0]))
            answers.append(sock.recv(1 << 16))

        assert answers[0] == answers[1]
        assert pf.store.length("a") == 1


# Keys


def test_who_has_another_key_or_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = address_of(url)
    secret = "never-shown-to-anybody"
    wrong = Address(address.host, address.port, secret.encode(), address.space)
    monkeypatch.delenv("PAGEFILE_MANAGER_AUTHKEY", raising=False)
    errors = []
    for attempt, said in ((wrong.url, "refuses the key"), (address.where, "asks for a key")):
        with pytest.raises(Forbidden, match=said) as caught:
            pagefile.open(attempt)
        errors.append(str(caught.value))
    monkeypatch.setenv("PAGEFILE_MANAGER_AUTHKEY", address.authkey.decode())
    with pagefile.open(address.where) as pf:
        one_append(pf.store)
        shown = [repr(pf), repr(pf.store), repr(address), repr(wrong), *errors]

    assert [text for text in shown if secret in text or address.authkey.decode() in text] == []


def test_a_listener_that_does_not_know_the_key_gets_nothing_from_a_client() -> None:
    hello = wire.Hello(wire.MAGIC, wire.VERSION, bytes(32), bytes(16), 1 << 20)
    heard: list[bytes] = []

    def impostor(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(wire.framed(wire.GOOD + wire.encode(hello)))
            heard.append(sock.recv(1 << 16))
            sock.sendall(wire.framed(wire.GOOD + wire.encode(bytes(32))))
            heard.append(sock.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=impostor, args=(listener,))
        thread.start()
        with pytest.raises(Forbidden, match="does not know the key"):
            pagefile.open(f"manager://:secret-key@127.0.0.1:{listener.getsockname()[1]}")
        thread.join()

    assert heard[1] == b""
    assert b"secret-key" not in heard[0]


def test_who_listens_and_is_no_manager_is_a_clear_error() -> None:
    def answer(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with pytest.raises(Unavailable, match="is no manager"):
            pagefile.open(f"manager://:key@127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


@pytest.mark.parametrize(
    "wrong",
    [
        "manager://",
        "manager://:k@host:port",
        "manager://:k@host:0",
        "manager://user:k@host:1",
        "manager://:k@host:1/a/b",
        "manager://:k@host:1/" + "x" * 300,
        "manager://:k@host:1?space=x",
        "manager://:" + "k" * 2_000 + "@host:1",
    ],
)
def test_an_unfit_url_is_refused_before_anything_is_sent(wrong: str) -> None:
    with pytest.raises(Invalid, match="url"):
        pagefile.open(wrong)


def test_a_manager_promises_no_durability() -> None:
    for level in ("process", "power"):
        with pytest.raises(Unsupported, match="cannot be durable"):
            pagefile.open("manager:", durability=level)
    with pytest.raises(Unsupported, match="VFS"):
        pagefile.open("manager:", options=Options(vfs="x"))


def test_it_listens_on_loopback_unless_another_host_is_named(inside: Callable[..., Inside]) -> None:
    assert inside().server.address.host == "127.0.0.1"
    with pytest.raises(Invalid, match="too few where other machines listen"):
        ManagerServer("0.0.0.0", authkey="short")
    with pytest.raises(Invalid, match="no address here"):
        ManagerServer("no such host")
    with pytest.raises(Unavailable, match="cannot be listened on"):
        ManagerServer(port=address_of(inside().url).port)


# Hostile bytes


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.abort, ()


GARBAGE = [
    b"",
    b"\x00",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff\xff\xff\xff" + b"x" * 5_000,
    b"\x00\x00\x00\x00",
    wire.framed(os.urandom(300)),
    wire.framed(b"\x91" * 1_000),
    wire.framed(pickle.dumps(Bomb())),
    wire.framed(wire.encode(wire.Tenants())),
    wire.framed(wire.encode(wire.Proof(b"", b"", "", b""))),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_from_strangers_ends_their_connection_alone(url: str, garbage: bytes) -> None:
    with pagefile.open(url) as pf, knock(address_of(url)) as stranger:
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)

        assert is_cut(stranger)
        assert one_append(pf.store) == 0


UNFIT = [
    b"",
    b"\x00",
    os.urandom(300),
    b"\x91" * 5_000,
    pickle.dumps(Bomb()),
    wire.encode([99, "x"]),
    wire.encode([1, 1, 1, 1, [["t", {"key": "k"}]]]),
    wire.encode([6, "t", -1, -1, -1, 0.5]),
    wire.encode([10, "t", 1, "soon"]),
    wire.encode([2, b"\xff\xfe"]),
]


@pytest.mark.parametrize("unfit", UNFIT, ids=range(len(UNFIT)))
def test_threads_B07_what_cannot_be_read_is_refused_and_nothing_runs(
    url: str, unfit: bytes
) -> None:
    with pagefile.open(url) as pf, proved(url) as client:
        client.sendall(wire.framed(unfit))

        assert is_cut(client)
        assert one_append(pf.store) == 0


def test_threads_B07_no_module_of_the_engine_can_unpickle() -> None:
    modules = [*_ENGINES.glob("manager/*.py")]
    imported = {
        name.name
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }

    assert len(modules) > 5
    assert imported & {"pickle", "marshal", "shelve", "multiprocessing", "ctypes"} == set()


def test_a_batch_that_no_preparer_makes_changes_nothing(url: str) -> None:
    with pagefile.open(url) as pf:
        one_append(pf.store)
        head = pf.store.head()
        engine: Any = pf.store._engine
        prepared = pf.store._preparer.prepare(Batch([Append("a", 2)]), 1)
        write = prepared.writes[0]
        for broken in (
            msgspec.structs.replace(write, action=99),
            msgspec.structs.replace(write, digests=[]),
            msgspec.structs.replace(write, keys=[[], []]),
        ):
            with pytest.raises(Invalid, match="not made by this version"):
                engine.apply([("default", msgspec.structs.replace(prepared, writes=[broken]))])

        assert pf.store.head() == head
        assert pf.check()


def test_an_unforeseen_error_reaches_its_own_client_alone(
    inside: Callable[..., Inside], monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = inside()
    with pagefile.open(standing.url) as pf, pagefile.open(standing.url) as other:

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("pagefile.engines.memory.MemoryEngine.tenants", fail)
        engine: Any = pf.store._engine
        with pytest.raises(Unavailable, match="unexpected error"):
            engine.tenants()

        assert one_append(other.store) == 0
        assert one_append(pf.store) == 1


def test_a_silent_stranger_is_sent_away(inside: Callable[..., Inside]) -> None:
    standing = inside(greeting_seconds=0.05)
    with pagefile.open(standing.url) as pf, knock(address_of(standing.url)) as stranger:
        assert is_cut(stranger)
        assert one_append(pf.store) == 0


def test_a_stranger_who_trickles_is_sent_away_too(inside: Callable[..., Inside]) -> None:
    """The time is for the whole greeting: a byte now and then wins nothing."""
    standing = inside(greeting_seconds=0.3)
    with knock(address_of(standing.url)) as stranger:
        stranger.settimeout(0.02)
        ended, deadline = False, time.monotonic() + 60
        while not ended and time.monotonic() < deadline:
            try:
                stranger.send(b"\x00")
                ended = not stranger.recv(1 << 16)
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True

    assert ended


def test_a_crowd_of_silent_strangers_keeps_nobody_out(inside: Callable[..., Inside]) -> None:
    standing = inside(greetings=4, connections=20, greeting_seconds=600)
    strangers = [knock(address_of(standing.url)) for _ in range(50)]
    with pagefile.open(standing.url) as pf:
        assert one_append(pf.store) == 0
    for stranger in strangers:
        stranger.close()


def test_a_full_manager_says_so(inside: Callable[..., Inside]) -> None:
    standing = inside(connections=2)
    with pagefile.open(standing.url) as one, pagefile.open(standing.url):
        with pytest.raises(Unavailable, match="has its 2 connections"):
            pagefile.open(standing.url)
        assert one_append(one.store) == 0
    with pagefile.open(standing.url) as again:
        assert again.store.length("a") == 1


def test_a_client_that_stops_in_mid_frame_is_sent_away(inside: Callable[..., Inside]) -> None:
    standing = inside(stall_seconds=0.05)
    with pagefile.open(standing.url) as pf, proved(standing.url) as client:
        client.sendall(wire.framed(bytes(1_000))[:500])

        assert is_cut(client)
        # Who is between frames may be silent for as long as it likes.
        assert one_append(pf.store) == 0


def test_a_client_that_reads_no_answers_holds_nobody_up(inside: Callable[..., Inside]) -> None:
    standing = inside(stall_seconds=0.2)
    with pagefile.open(standing.url) as pf, proved(standing.url) as client:
        pf.store.commit(Batch([Append("big", "x" * 15_000_000)]))
        asked = wire.framed(wire.encode(wire.Rows("default", 1, 0, 0, 1)))
        client.sendall(asked * 3)
        for n in range(20):
            assert one_append(pf.store) == n
        # In the end its connection is cut, in the middle of an answer.
        received = 0
        while came := client.recv(1 << 20):
            received += len(came)
            if received < 1 << 21:
                select.select([], [], [], 0.5)

    assert received < 3 * 15_000_000


def test_a_frame_beyond_the_bound_is_refused_on_both_sides(inside: Callable[..., Inside]) -> None:
    standing = inside(frame_bytes=100_000, stall_seconds=600)
    with pagefile.open(standing.url) as pf, proved(standing.url) as client:
        client.sendall(wire.HEADER.pack(100_001) + b"x")
        with pytest.raises(LimitExceeded, match="commit in smaller batches"):
            one_append(pf.store, "x" * 100_000)

        assert is_cut(client)
        assert one_append(pf.store) == 0


def test_stores_in_one_manager_are_kept_apart_and_counted(inside: Callable[..., Inside]) -> None:
    standing = inside(spaces=3)
    for name in ("", "/one", "/t%C3%BC"):
        with pagefile.open(standing.url + name) as pf:
            assert one_append(pf.store, name) == 0
    with pytest.raises(LimitExceeded, match="number of stores"):
        pagefile.open(f"{standing.url}/four")
    with pagefile.open(f"{standing.url}/tü") as pf:
        assert [entry.value for entry in pf.store.read("a")] == ["/t%C3%BC"]


# Answers in parts


def story(pf: Pagefile) -> list[Any]:
    """Reads of every kind, over more records than one answer holds."""
    store = pf.store
    for n in range(12):
        keys = {"k": n % 3}
        store.commit(Batch([Append("a", n, keys=keys), Put(f"d{n}", n, keys=keys, user="u")]))
    found = store.find(Query("k", log="a"), limit=7)
    rest = store.find(Query("k", log="a", cursor=found.cursor), limit=100)
    with pytest.raises(NotFound):
        store.commit(Batch([pagefile.Delete("nowhere")]))
    return [
        [entry.value for entry in store.read("a")],
        [entry.value for entry in store.read("a", -5, limit=3)],
        [slot.payload for slot in _tail(pf)],
        [item.value for item in (*found.items, *rest.items)],
        [item.value for item in store.find(Query("k", user="u", reverse=True)).items],
        [one and one.value for one in store.get_many([f"d{n}" for n in range(14)])],
        store.names("document", limit=9),
        [change.position for change in store.changes(2, limit=8)],
        [entry.value for entry in store.read("a", at=5)],
        bool(pf.verify()),
        bool(pf.check()),
        store.erase(Selector(user="u"), dry_run=True).records,
        store.length("a"),
    ]


def _tail(pf: Pagefile) -> list[Any]:
    for n in range(9):
        pf.context.append("t", n, "ann", "bob")
    thread = pf.context.get_thread("t")
    assert thread is not None
    return list(thread.tail(5))


@pytest.mark.parametrize("answer_bytes", [1, 1_500, 1 << 30])
def test_answers_in_parts_are_the_answers_of_memory(
    inside: Callable[..., Inside], monkeypatch: pytest.MonkeyPatch, answer_bytes: int
) -> None:
    monkeypatch.setattr(wire, "ANSWER_BYTES", answer_bytes)
    with pagefile.open("memory:") as pf:
        expected = story(pf)
    with pagefile.open(inside().url) as pf:
        assert story(pf) == expected
        engine: Any = pf.store._engine
        last = engine.rows("default", engine.stream("default", "log", "a"), 2, 10, -6)

        assert [row.number for row in last] == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("answer_bytes", [1, 1 << 30])
def test_rows_and_streams_of_many_numbers_come_together(
    inside: Callable[..., Inside], monkeypatch: pytest.MonkeyPatch, answer_bytes: int
) -> None:
    monkeypatch.setattr(wire, "ANSWER_BYTES", answer_bytes)
    with pagefile.open(inside().url) as pf:
        pf.store.commit(Batch([Append("a", 1), Append("a", 2), Put("d", 3)]))
        engine: Any = pf.store._engine
        rows = engine.gather("default", [(1, 1), (1, 9), (2, 1), (7, 1), (1, 0)])
        streams = engine.streams("default", [2, 5, 1])

        assert {place: row.content.body for place, row in rows.items()} == {
            (1, 1): b"2",
            (2, 1): b"3",
            (1, 0): b"1",
        }
        assert {oid: stream.name for oid, stream in streams.items()} == {2: "d", 1: "a"}
        assert (engine.gather("default", []), engine.streams("other", [1])) == ({}, {})


@pytest.mark.parametrize("most_bytes", [1, 16 << 20])
def test_a_group_of_several_tenants_and_of_any_size_is_stored(
    url: str, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr("pagefile.engines.manager.engine._MOST_BYTES", most_bytes)
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


# Waiting


def test_waiting_is_woken_and_does_not_ask_again_and_again(inside: Callable[..., Inside]) -> None:
    standing = inside()
    with pagefile.open(standing.url) as pf:
        one_append(pf.store)
        before = standing.server.requests
        assert not pf.store.wait(2, timeout=0.3)
        in_vain = standing.server.requests - before
        writer = threading.Timer(0.1, one_append, [pf.store])
        writer.start()
        arrived = pf.store.wait(2, timeout=60)
        writer.join()
        asked = standing.server.requests - before - in_vain

    assert arrived
    assert in_vain <= 2
    # The wait and the commit; who is not woken asks again when the manager's patience ends.
    assert asked == 2


def test_closing_ends_a_wait(inside: Callable[..., Inside]) -> None:
    standing = inside()
    pf = pagefile.open(standing.url)
    failures: list[PagefileError] = []

    def wait() -> None:
        try:
            pf.store.wait(1, timeout=60)
        except PagefileError as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    before = standing.server.requests
    thread.start()
    while standing.server.requests == before:
        pass
    pf.close()
    thread.join(timeout=60)

    assert not thread.is_alive()
    assert [type(failure) for failure in failures] == [Forbidden]


def test_threads_B18_an_append_is_one_round_trip(inside: Callable[..., Inside]) -> None:
    standing = inside()
    with pagefile.open(standing.url) as pf:
        buffer = ContextBuffer(pf)
        buffer.append("t", 0, "ann", "bob")
        before = standing.server.requests
        for n in range(10):
            buffer.append("t", n, "ann", "bob")

        assert standing.server.requests - before == 10


def test_threads_that_leave_a_shared_store_are_not_deleted(url: str) -> None:
    """Another process may be in the middle of them."""
    with pagefile.open(url) as pf, pagefile.open(url) as other:
        small, busy = ContextBuffer(pf, max_threads=1), ContextBuffer(other)
        busy.append("mine", 1, "ann", "bob")
        for n in range(3):
            small.append(f"t{n}", n, "ann", "bob")

        assert all(busy.thread_exists(name) for name in ("mine", "t0", "t1", "t2"))


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


def test_a_proof_that_is_right_in_part_proves_nothing() -> None:
    hello = wire.Hello("magic", 1, bytes(32), bytes(16), 0)
    nonce, client = b"n" * NONCE_BYTES, b"c" * CLIENT_BYTES
    right = client_digest(b"key", hello, nonce, client, "")
    spoilt = [right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :] for at in range(len(right))]

    def proves(digest: bytes) -> bool:
        return is_proved(b"key", hello, wire.Proof(nonce, client, "", digest))

    assert proves(right)
    assert [at for at, digest in enumerate(spoilt) if proves(digest)] == []
    assert not proves(right[:8])


def test_a_client_that_sends_without_reading_cannot_fill_the_memory() -> None:
    """Whole frames, each small enough, and none is taken while the first is answered."""
    near, far = socket.socketpair()
    with near, far:
        connection = Connection(far, Greeting(wire.Hello("magic", 1, b"", b"", 0)))
        frames = wire.framed(bytes(1_000)) * 60
        came = 0

        def flood() -> None:
            nonlocal came
            while came < 8 * 1024 * 1024:
                near.sendall(frames)
                left = len(frames)
                while left > 0 and connection.receive(10_000):
                    left -= 64 * 1024
                came += len(frames)

        with pytest.raises(LimitExceeded, match="one frame"):
            flood()

    assert came < 2 * 1024 * 1024

"""Bytes on a connection: what is a request, what is refused, and what a client can use up."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("granian", reason="pagefile[server] is not installed")

import pagefile
from pagefile.handle import Admin
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.refusals import RefusalLog
from pagefile.surfaces.http.server import HEAD_SECONDS
from tests.servers.http import HttpServer
from tests.servers.ports import free_port

pytestmark = pytest.mark.xdist_group("http-wire")

SLOT = b'{"payload":{"text":"x"},"from_id":"a","to_id":"b"}'
JSON = "content-type: application/json"
MEGABYTE = 1_048_576
Answer = tuple[int, dict[str, str], bytes]


class Place:
    """A server, and raw connections to it."""

    def __init__(self, server: HttpServer, keys: dict[str, str]) -> None:
        self.server = server
        self.keys = keys

    def head(self, line: str, *more: str, key: str = "all", host: str = "127.0.0.1") -> bytes:
        lines = [f"{line} HTTP/1.1", f"host: {host}", *more]
        if key:
            lines.append(f"authorization: Bearer {self.keys.get(key, key)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def post(self, thread: str, *more: str, body: bytes = SLOT, key: str = "all") -> bytes:
        typed = () if any(each.startswith("content-type") for each in more) else (JSON,)
        sized = (f"content-length: {len(body)}",)
        return self.head(f"POST /v1/threads/{thread}/slots", *typed, *sized, *more, key=key) + body

    def connect(self) -> Connection:
        return Connection(self.server.port)

    def ask(self, request: bytes) -> Answer:
        with self.connect() as ours:
            ours.send(request)
            return ours.answer()

    def length(self, thread: str) -> int:
        with pagefile.open(self.server.url) as pf:
            return pf.store.length(f"thread/{thread}")

    def worker_megabytes(self) -> float:
        """What the workers have in memory."""
        children = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children")
        total = 0.0
        for pid in children.read_text().split():
            status = Path(f"/proc/{pid}/status").read_text()
            total += int(status.partition("VmRSS:")[2].split()[0]) / 1_024
        return total


class Connection:
    """One connection; `with` closes it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, sent: bytes) -> None:
        self.socket.sendall(sent)

    def answer(self) -> Answer:
        """The next answer; status 0 when there is none, because the connection was closed."""
        first = self._file.readline()
        if not first:
            return 0, {}, b""
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        body = self._file.read(int(headers.get("content-length", "0")))
        return int(first.split(b" ")[1]), headers, body

    def statuses(self) -> list[int]:
        """The statuses of all answers until the connection is closed."""
        found = []
        with contextlib.suppress(ConnectionError):
            while status := self.answer()[0]:
                found.append(status)
        return found

    def is_closed_within(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        with contextlib.suppress(ConnectionError):
            try:
                while self.socket.recv(65_536):
                    pass
            except TimeoutError:
                return False
        return True


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    url = f"{tmp_path_factory.mktemp('wire')}/wire.db"
    with Admin(url) as admin:
        keys = KeyStore(admin)
        made = {
            "all": keys.create("default", ("read", "write", "admin")).secret,
            "reads": keys.create("default", ("read",)).secret,
            "bound": keys.create("default", ("read", "write"), user_id="u").secret,
        }
        run = admin.open("default").runs.boot("x", run_id="r")
        run.update(lambda _: {"next_action": "x" * 1_000})
        large = admin.open("default").runs.boot("x", run_id="large")
        large.update(lambda _: {"next_action": "x" * 200_000})
    settings: dict[str, Any] = {
        "durability": "process",
        "rate_per_second": 0,
        "max_body_bytes": 4_096,
        "max_streams": 2,
        "body_seconds": 3.0,
        "allow_origins": ["https://a.example"],
    }
    with HttpServer(url, settings) as server:
        yield Place(server, made)


# Requests


def test_each_request_is_answered_by_what_it_asks_and_who_asks(place: Place) -> None:
    large = b'{"payload":"' + b"x" * 5_000 + b'","from_id":"a","to_id":"b"}'
    asked: dict[str, tuple[bytes, int]] = {
        "stored": (place.post("t"), 201),
        "for a user": (place.post("t", body=SLOT[:-1] + b',"user_id":"v"}'), 201),
        "by a bound key": (place.post("own", key="bound"), 201),
        "for another user": (
            place.post("own", body=SLOT[:-1] + b',"user_id":"v"}', key="bound"),
            403,
        ),
        "in another's thread": (place.post("t", key="bound"), 404),
        "no key": (place.post("t", key=""), 401),
        "a wrong key": (place.post("t", key="pf_0123456789ab_x"), 401),
        "two keys": (place.post("t", "x-api-key: y"), 401),
        "another key that is not ASCII": (place.post("t", "x-api-key: é"), 401),
        "no right": (place.post("t", key="reads"), 403),
        "not JSON": (place.post("t", body=b"{"), 400),
        "another shape": (place.post("t", body=b'{"payload":1}'), 422),
        "an unknown field": (place.post("t", body=SLOT[:-1] + b',"x":1}'), 422),
        "a wrong name": (place.post("t", body=SLOT.replace(b'"a"', b'""')), 422),
        "another type": (place.post("t", "content-type: text/plain"), 415),
        "compressed": (place.post("t", "content-encoding: gzip", body=b"\x1f\x8b"), 415),
        "too large": (place.post("t", body=large), 413),
        "another length": (place.post("t", 'if-match: "77"'), 412),
        "a wrong Idempotency-Key": (place.post("t", "idempotency-key: a b"), 400),
        "two Idempotency-Keys": (
            place.post("t", "idempotency-key: a", "idempotency-key: b"),
            400,
        ),
        "a run": (place.head("GET /v1/runs/r"), 200),
        "the run as it is known": (place.head("GET /v1/runs/r", 'if-none-match: "1"'), 304),
        "no run": (place.head("GET /v1/runs/none"), 404),
        "a run of the old interface": (place.head("GET /runs/r"), 200),
        "no run of the old interface": (place.head("GET /runs/none"), 404),
        "a query that is checked": (place.head("GET /v1/runs/r?at=x"), 422),
        "a method that the path has not": (place.head("PUT /v1/runs/r", "content-length: 0"), 405),
    }
    answered = {what: place.ask(request)[0] for what, (request, _) in asked.items()}

    assert answered == {what: status for what, (_, status) in asked.items()}


def counted(place: Place) -> dict[str, float]:
    """How many appends had which status, when nothing else is under way."""
    text = place.ask(place.head("GET /metrics"))[2].decode()
    assert "pagefile_http_requests_in_flight 1.0" in text
    route = r'_count{method="POST",route="/v1/threads/{thread_id}/slots",status="(\d+)"} (\S+)'
    return {status: float(number) for status, number in re.findall(route, text)}


def test_what_is_answered_and_refused_is_counted_and_recorded(place: Place) -> None:
    before = counted(place)
    for _ in range(3):
        place.ask(place.post("counted"))
        place.ask(place.post("counted", key="reads"))
    after = counted(place)
    with Admin(place.server.url) as admin:
        refused = [each for _, each in RefusalLog(admin).list()]

    assert after["201"] - before.get("201", 0) == 3
    assert after["403"] - before.get("403", 0) == 3
    assert "/v1/threads/{thread_id}/slots" in {each.route for each in refused}


def test_a_body_that_comes_later_is_waited_for(place: Place) -> None:
    request = place.post("later")
    with place.connect() as ours:
        ours.send(request[:-10])
        # That another connection is answered shows that the first piece was read.
        place.ask(place.head("GET /v1/runs/r"))
        ours.send(request[-10:])
        first = ours.answer()[0]
        ours.send(request)
        again = ours.answer()[0]

    assert (first, again) == (201, 201)


def test_a_client_that_asks_first_is_told_to_go_on(place: Place) -> None:
    request = place.post("asks", "expect: 100-continue")
    with place.connect() as ours:
        ours.send(request[: -len(SLOT)])
        went_on = ours.answer()[0]
        ours.send(SLOT)
        answered = ours.answer()[0]

    assert (went_on, answered) == (100, 201)


def test_requests_that_come_together_are_answered_in_their_order(place: Place) -> None:
    whoami = place.head("GET /v1/whoami")
    sent = [place.post("row"), place.head("GET /v1/runs/r"), whoami, place.post("row"), whoami]
    with place.connect() as ours:
        ours.send(b"".join(sent))
        answers = [ours.answer() for _ in sent]

    assert [status for status, _, _ in answers] == [201, 200, 200, 201, 200]
    assert [json.loads(body).get("index") for _, _, body in answers][0::3] == [0, 1]


def test_nothing_is_done_behind_an_answer_that_says_it_is_the_last(place: Place) -> None:
    with place.connect() as ours:
        ours.send(place.post("last", body=b"x" * 5_000) + place.post("last"))
        status, headers, _ = ours.answer()
        more = ours.statuses()

    assert (status, headers["connection"], more) == (413, "close", [])
    assert place.length("last") == 0


def test_an_append_whose_client_goes_is_seen_through_or_not_begun(place: Place) -> None:
    before = counted(place)["201"]
    for number in range(40):
        with place.connect() as ours:
            ours.send(place.post("gone", f"idempotency-key: {number}"))
            if number % 2:
                ours.socket.recv(1)
    stored, until = 0, time.monotonic() + 60
    while stored != place.length("gone") and time.monotonic() < until:
        stored = place.length("gone")
        time.sleep(0.2)

    assert 20 <= stored <= 40
    assert counted(place)["201"] - before == stored


def test_a_header_without_a_value_does_not_run_into_the_next(place: Place) -> None:
    status, headers, _ = place.ask(place.head("GET /v1/runs/r", "x-empty:", "x-request-id: mine"))

    assert (status, headers["x-request-id"]) == (200, "mine")


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_offer_to_speak_another_protocol_is_not_taken_up(place: Place, protocol: str) -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMA")
    with place.connect() as ours:
        ours.send(place.head("GET /v1/runs/r", *offer))
        read = ours.answer()[0]
    stored = place.ask(place.post(protocol, *offer))[0]

    assert (read, stored) == (200, 201)


def test_a_head_is_answered_without_a_body_and_its_connection_kept(place: Place) -> None:
    with place.connect() as ours:
        for _ in range(2):
            ours.send(place.head("HEAD /v1/runs/r"))
            assert ours._file.readline().startswith(b"HTTP/1.1 200")
            while ours._file.readline().strip():
                pass
        ours.send(place.head("GET /health"))
        assert ours.answer()[0] == 200


def test_a_page_of_an_allowed_origin_may_read_an_answer(place: Place) -> None:
    status, headers, _ = place.ask(place.head("GET /v1/runs/r", "origin: https://a.example"))

    assert (status, headers["access-control-allow-origin"]) == (200, "https://a.example")


# What could be read in two ways


def hidden(place: Place, head: bytes, before: bytes = b"") -> bytes:
    """A request with another behind it, which a careless reader would find."""
    return head + before + place.post("hidden")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ((), b"0\r\n\r\n"),
        (("content-length: 0", "content-length: 7"), b""),
        (("content-length: +5",), b"hello"),
        (("content-length: 5, 5",), b"hello"),
        (("transfer-encoding: chunked", "content-length: 5"), b"0\r\n\r\n"),
        (("content-length: 5", "transfer-encoding: chunked"), b"0\r\n\r\n"),
        (("transfer-encoding: chunked, gzip",), b"0\r\n\r\n"),
        (("transfer-encoding: gzip, chunked",), b"0\r\n\r\n"),
        (("transfer-encoding: xchunked",), b"0\r\n\r\n"),
        (("transfer-encoding: chunked", "transfer-encoding: chunked"), b"0\r\n\r\n"),
        (("transfer-encoding: chunked", "transfer-encoding: identity"), b"0\r\n\r\n"),
        (("transfer-encoding : chunked", "content-length: 5"), b"0\r\n\r\n"),
        (("transfer-encoding:\r\n chunked", "content-length: 5"), b"0\r\n\r\n"),
        (("x: a\r\n b", "content-length: 0"), b""),
        (("x: a\rtransfer-encoding: chunked", "content-length: 0"), b""),
        (("x: a\0b", "content-length: 0"), b""),
        (("nonsense", "content-length: 0"), b""),
        (("host: b", "content-length: 0"), b""),
        (("transfer-encoding: chunked",), b"10000000000000000\r\n\r\n"),
        (("transfer-encoding: chunked",), b"0x5\r\nhello\r\n0\r\n\r\n"),
        (("transfer-encoding: chunked",), b"3\r\nhello\r\n0\r\n\r\n"),
        (("transfer-encoding: chunked",), b"5\nhello\r\n0\r\n\r\n"),
        (("transfer-encoding: chunked",), b"5;x\nhello\r\n0\r\n\r\n"),
    ],
)
def test_an_ambiguous_request_hides_no_other(
    place: Place, head: tuple[str, ...], body: bytes
) -> None:
    before = place.length("hidden")
    first = place.head("POST /v1/recall", JSON, *head)
    if not head:
        # A body that was not announced is the beginning of another request, which it is not.
        first = place.head("GET /health")
    with place.connect() as ours:
        ours.send(hidden(place, first, body))
        ours.socket.shutdown(socket.SHUT_WR)
        statuses = ours.statuses()

    assert all(status < 500 or status == 501 for status in statuses)
    assert place.length("hidden") == before
    assert place.ask(place.head("GET /health"))[0] == 200


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", {400}),
        (b"GET /health HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", {400}),
        (b"GET /health HTTP/1.0\r\n\r\n", {200}),
        (b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n", {200}),
        (b"GET /health HTTP/1.9\r\nhost: a\r\n\r\n", {400}),
        (b"GET  /health HTTP/1.1\r\nhost: a\r\n\r\n", {400}),
        (b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", {501}),
        (
            b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
            {401},
        ),
        (b"nonsense\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 15_000, {431}),
        (b"GET /" + b"y" * 1_000_000, {431, 414}),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n", {431}),
    ],
)
def test_a_head_is_of_one_host_one_form_and_bounded(
    place: Place, head: bytes, statuses: set[int]
) -> None:
    with place.connect() as ours:
        # Where we still sent when it closed, our system may have let go of the answer.
        answered = 0
        with contextlib.suppress(ConnectionError):
            ours.send(head)
            answered = ours.answer()[0]

    assert answered in statuses or (answered == 0 and len(head) > 10_000)
    assert place.ask(place.head("GET /health"))[0] == 200


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("content-length: 60", SLOT),
        ("transfer-encoding: chunked", b"%x\r\n%b\r\n" % (len(SLOT), SLOT)),
        ("transfer-encoding: chunked", b"ff\r\n%b" % SLOT),
    ],
)
def test_a_body_that_breaks_off_is_not_taken_for_a_whole_one(
    place: Place, head: str, body: bytes
) -> None:
    request = place.head("POST /v1/threads/broken/slots", JSON, head) + body
    with place.connect() as ours:
        ours.send(request)
        time.sleep(0.1)
    place.ask(place.post("after-broken"))

    assert place.length("broken") == 0
    assert '"status":500' not in place.server.errors


def test_what_stands_behind_a_body_has_no_effect_and_an_end(place: Place) -> None:
    head = place.head("POST /v1/threads/trailers/slots", JSON, "transfer-encoding: chunked")
    chunk = b"%x\r\n%b\r\n0\r\n" % (len(SLOT), SLOT)
    trailing = head + chunk + b"idempotency-key: k\r\n\r\n"
    stored = [json.loads(place.ask(trailing)[2])["index"] for _ in range(2)]
    crumbs = b"".join(b"1\r\n%c\r\n" % byte for byte in SLOT.replace(b"x", b"x" * 1_500))
    small_chunks = place.ask(head + crumbs + b"0\r\n\r\n")[0]

    assert (stored, small_chunks) == ([0, 1], 201)
    with place.connect() as ours, contextlib.suppress(ConnectionError):
        ours.send(head + chunk + b"x: ")
        ours.socket.settimeout(30)
        for _ in range(1_000):
            ours.send(b"y" * 10_000)
        raise AssertionError("ten megabytes behind a body were taken")


# What a client can use up


def test_a_head_that_does_not_end_and_a_connection_that_idles_are_closed(place: Place) -> None:
    with place.connect() as slow, place.connect() as silent, place.connect() as idle:
        slow.send(place.head("GET /health")[:-2])
        idle.send(place.head("GET /v1/runs/r"))
        assert idle.answer()[0] == 200

        for each in (slow, silent, idle):
            assert each.is_closed_within(3 * HEAD_SECONDS)


@pytest.mark.parametrize(
    ("connections", "line"),
    [(1, "GET /health"), (50, "GET /health"), (20, "GET /v1/runs/large")],
)
def test_requests_without_end_that_nobody_reads_the_answers_of_fill_no_memory(
    place: Place, connections: int, line: str
) -> None:
    piece = place.head(line) * 500
    before = place.worker_megabytes()
    with contextlib.ExitStack() as stack:
        ours = [stack.enter_context(place.connect()) for _ in range(connections)]
        for each in ours:
            each.socket.setblocking(False)
        until = time.monotonic() + 4
        sent = 0
        while time.monotonic() < until and sent < 50 * MEGABYTE:
            for each in ours:
                with contextlib.suppress(BlockingIOError):
                    sent += each.socket.send(piece)
            time.sleep(0.001)
        most = place.worker_megabytes()
        meanwhile = place.ask(place.head("GET /health"))[0]

    assert meanwhile == 200
    assert most - before < 40


def test_a_slow_body_ends_and_holds_up_nobody(place: Place) -> None:
    head = place.head("POST /v1/recall", JSON, "content-length: 500")
    with place.connect() as ours:
        ours.send(head + b" ")
        meanwhile = place.ask(place.head("GET /health"))[0]
        status, headers, _ = ours.answer()

    assert (meanwhile, status, headers["connection"]) == (200, 408, "close")


def test_a_stream_whose_client_went_away_frees_its_place(place: Place) -> None:
    assert place.ask(place.post("f"))[0] == 201
    for _ in range(3):
        with place.connect() as ours:
            ours.send(place.head("GET /v1/threads/f/follow"))
            time.sleep(0.1)
    until = time.monotonic() + 60
    first = b""
    while b" 200 " not in first and time.monotonic() < until:
        with place.connect() as ours:
            ours.send(place.head("GET /v1/threads/f/follow"))
            first = ours._file.readline()

    assert b" 200 " in first


_TWO_CONNECTIONS = """
import sys
from pagefile.surfaces.http import server
from pagefile.surfaces.http.config import ServerConfig
server.MOST_CONNECTIONS = 2
server.serve(ServerConfig(url=sys.argv[1], port=int(sys.argv[2]), local=True, log_level="error"))
"""


def test_connections_beyond_the_most_wait_for_their_turn(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", _TWO_CONNECTIONS, f"{tmp_path}/few.db", str(port)]
    request = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 120
            while time.monotonic() < until:
                with contextlib.suppress(OSError), Connection(port) as tried:
                    tried.send(request)
                    if tried.answer()[0] == 200:
                        break
            with Connection(port) as first, Connection(port) as second, Connection(port) as third:
                for each in (first, second, third):
                    each.send(request)
                assert [first.answer()[0], second.answer()[0]] == [200, 200]
                assert not third.is_closed_within(0.5)
                first.socket.shutdown(socket.SHUT_RDWR)
                third.socket.settimeout(60)
                assert third.answer()[0] == 200
        finally:
            process.terminate()

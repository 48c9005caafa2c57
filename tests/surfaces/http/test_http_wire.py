"""Connections: bounds of a head, order of answers, and that the short way is no other way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="pagefile[server] is not installed")
pytest.importorskip("uvloop", reason="there is none for this system")

import uvicorn
import uvloop

import pagefile
from pagefile.context.buffer import ContextBuffer
from pagefile.handle import Admin
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.refusals import RefusalLog
from pagefile.surfaces.http import express, middleware, protocol
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.workers import configured

SLOT = b'{"payload":{"text":"x"},"from_id":"a","to_id":"b"}'


class Place:
    """A server in this process, and raw connections to it."""

    def __init__(self, port: int, url: str, keys: dict[str, str]) -> None:
        self.port = port
        self.url = url
        self.keys = keys

    def head(self, line: str, *more: str, key: str = "all") -> bytes:
        lines = [f"{line} HTTP/1.1", "host: 127.0.0.1", *more]
        if key:
            lines.append(f"authorization: Bearer {self.keys.get(key, key)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def post(self, thread: str, *more: str, body: bytes = SLOT, key: str = "all") -> bytes:
        typed = () if any(each.startswith("content-type") for each in more) else (JSON,)
        sized = (f"content-length: {len(body)}",)
        return self.head(f"POST /v1/threads/{thread}/slots", *typed, *sized, *more, key=key) + body

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, *pieces: bytes) -> Answer:
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        try:
            return await read_answer(reader)
        finally:
            writer.close()


JSON = "content-type: application/json"
Answer = tuple[int, dict[str, str], bytes]


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    async with asyncio.timeout(60):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(first.split(" ")[1]), headers, body


class _Quiet(uvicorn.Server):
    """Signals are the test runner's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Place]:
    url = f"{folder}/wire.db"
    with Admin(url) as admin:
        keys = KeyStore(admin)
        made = {
            "all": keys.create("default", ("read", "write", "admin")).secret,
            "reads": keys.create("default", ("read",)).secret,
            "bound": keys.create("default", ("read", "write"), user_id="u").secret,
        }
        admin.open("default").runs.boot("x", run_id="r")
    config = ServerConfig(url=url, durability="process", log_level="error", **settings)
    server = _Quiet(configured(lambda: make_app(config)))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server.serve([listening]))
        port = listening.getsockname()[1]
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        try:
            yield Place(port, url, made)
        finally:
            server.should_exit = True
            await task


def tell(folder: Path, story: Callable[[Place], Awaitable[None]], **settings: Any) -> None:
    async def told() -> None:
        async with serving(folder, **settings) as place:
            await story(place)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that went the short way."""
    taken: list[str] = []
    before = middleware.Front.at_once

    def noting(self: Any, scope: Any, *rest: Any) -> None:
        taken.append(scope["path"])
        before(self, scope, *rest)

    monkeypatch.setattr(middleware.Front, "at_once", noting)
    return taken


#: What a slot has that no other has, and an answer that no other has.
_OWN = re.compile(rb'"(index|position|timestamp|request_id)":("[^"]*"|\d+)')


def _same(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    status, headers, body = answer
    kept = {
        name: value
        for name, value in headers.items()
        if name not in ("x-request-id", "date", "connection", "etag")
    }
    assert "x-request-id" in headers
    body = _OWN.sub(b"", body)
    kept.pop("content-length", None)
    return status, kept, body


async def _both(place: Place, request: bytes) -> tuple[Answer, Answer]:
    """The same request by the short way, and as one that is not even considered for it."""
    first, rest = request.split(b"\r\n", 1)
    return (
        await place.ask(request),
        await place.ask(first + b"\r\nconnection: close\r\n" + rest),
    )


def test_every_request_is_answered_the_same_by_the_short_way_and_the_long(
    tmp_path: Path, short_ways: list[str]
) -> None:
    large = b'{"payload":"' + b"x" * 5_000 + b'","from_id":"a","to_id":"b"}'

    async def story(place: Place) -> None:
        requests = {
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
            "no right": (place.post("t", key="reads"), 403),
            "no JSON": (place.post("t", body=b"{"), 400),
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
            "the run as it is known": (place.head("GET /v1/runs/r", 'if-none-match: "0"'), 304),
            "no run": (place.head("GET /v1/runs/none"), 404),
            "a run of the old interface": (place.head("GET /runs/r"), 200),
            "no run of the old interface": (place.head("GET /runs/none"), 404),
            "an id of ours": (place.head("GET /v1/runs/r", "x-request-id: mine"), 200),
        }
        for what, (request, status) in requests.items():
            short, long = await _both(place, request)
            assert _same(short) == _same(long), what
            assert short[0] == status, what
        assert len(short_ways) == len(requests)

    tell(tmp_path, story, max_body_bytes=4_096)


def test_either_way_is_counted_and_recorded(tmp_path: Path, short_ways: list[str]) -> None:
    async def story(place: Place) -> None:
        for _ in range(2):
            await _both(place, place.post("t"))
            await _both(place, place.post("t", key="reads"))
        text = (await place.ask(place.head("GET /metrics")))[2].decode()
        counted = re.findall(
            r'_count{method="POST",route="/v1/threads/{thread_id}/slots",status="(\d+)"} (\S+)',
            text,
        )
        assert dict(counted) == {"201": "4.0", "403": "4.0"}
        assert "pagefile_http_requests_in_flight 1.0" in text
        assert len(short_ways) == 4

    tell(tmp_path, story)

    # A refusal is answered before it is recorded; by the end of the server all of them are.
    with Admin(f"{tmp_path}/wire.db") as admin:
        refused = [each for _, each in RefusalLog(admin).list()]
    assert [each.status for each in refused] == [403] * 4
    assert {each.route for each in refused} == {"/v1/threads/{thread_id}/slots"}


def test_a_rate_counts_both_ways(tmp_path: Path, short_ways: list[str]) -> None:
    async def story(place: Place) -> None:
        answers = [each for _ in range(3) for each in await _both(place, place.post("t"))]
        assert [status for status, _, _ in answers].count(429) > 0
        refused = next(each for each in answers if each[0] == 429)
        assert refused[1]["retry-after"] == "1"

    tell(tmp_path, story, rate_per_second=1)


def test_an_idempotency_key_is_the_same_key_on_both_ways(
    tmp_path: Path, short_ways: list[str]
) -> None:
    async def story(place: Place) -> None:
        first, second = await _both(place, place.post("t", "idempotency-key: k"))
        assert (first[0], second[0]) == (201, 201)
        assert first[2] == second[2]
        assert short_ways == ["/v1/threads/t/slots"]

    tell(tmp_path, story)


@pytest.mark.parametrize(
    "line",
    [
        "POST /v1/threads/t%2e/slots",
        "POST /v1/threads/t/slots?x=1",
        "POST /v1/threads/t/slots/batch",
        "GET /v1/runs/r?at=1",
        "GET /v1/whoami",
        "PUT /v1/runs/r",
    ],
)
def test_what_is_not_plainly_one_of_the_two_takes_the_long_way(
    tmp_path: Path, short_ways: list[str], line: str
) -> None:
    async def story(place: Place) -> None:
        status, headers, _ = await place.ask(place.head(line, "content-length: 0"))
        assert status != 500
        assert headers["x-request-id"]
        assert short_ways == []

    tell(tmp_path, story)


def test_a_body_that_comes_later_is_waited_for(tmp_path: Path, short_ways: list[str]) -> None:
    async def story(place: Place) -> None:
        request = place.post("t")
        reader, writer = await place.connect()
        writer.write(request[:-10])
        # That another connection is answered shows that the first piece was read.
        await place.ask(place.head("GET /v1/runs/r"))
        writer.write(request[-10:])
        assert (await read_answer(reader))[0] == 201
        # The connection goes on, and by the short way where it may.
        writer.write(request)
        assert (await read_answer(reader))[0] == 201
        writer.close()
        assert short_ways.count("/v1/threads/t/slots") == 1

    tell(tmp_path, story)


def test_a_client_that_asks_first_is_told_to_go_on(tmp_path: Path, short_ways: list[str]) -> None:
    async def story(place: Place) -> None:
        request = place.post("t", "expect: 100-continue")
        reader, writer = await place.connect()
        writer.write(request[: -len(SLOT)])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(SLOT)
        assert (await read_answer(reader))[0] == 201
        writer.close()
        assert short_ways == []

    tell(tmp_path, story)


def test_requests_that_come_together_are_answered_in_their_order(
    tmp_path: Path, short_ways: list[str]
) -> None:
    async def story(place: Place) -> None:
        reader, writer = await place.connect()
        whoami = place.head("GET /v1/whoami")
        sent = [place.post("t"), place.head("GET /v1/runs/r"), whoami, place.post("t"), whoami]
        writer.write(b"".join(sent))
        answers = [await read_answer(reader) for _ in sent]
        writer.close()
        assert [status for status, _, _ in answers] == [201, 200, 200, 201, 200]
        assert [json.loads(body).get("index") for _, _, body in answers][0::3] == [0, 1]

    tell(tmp_path, story)


def test_nothing_is_read_behind_an_answer_that_says_it_is_the_last(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        large = place.post("t", body=b"x" * 5_000)
        reader, writer = await place.connect()
        writer.write(large + place.post("t"))
        status, headers, _ = await read_answer(reader)
        assert (status, headers["connection"]) == (413, "close")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        with pagefile.open(place.url) as pf:
            assert pf.store.length("thread/t") == 0

    tell(tmp_path, story, max_body_bytes=4_096)


def test_an_append_is_seen_through_when_its_client_goes(
    tmp_path: Path, short_ways: list[str]
) -> None:
    async def story(place: Place) -> None:
        for number in range(20):
            _, writer = await place.connect()
            writer.write(place.post("t", f"idempotency-key: {number}"))
            await writer.drain()
            writer.close()
        while len(short_ways) < 20:
            await asyncio.sleep(0.01)

    tell(tmp_path, story)

    with pagefile.open(f"{tmp_path}/wire.db") as pf:
        assert pf.store.length("thread/t") == 20


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 15_000, 431),
        (b"GET /" + b"y" * 200_000, 431),
        (b"POST /v1/runs HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(
    tmp_path: Path, sent: bytes, status: int
) -> None:
    async def story(place: Place) -> None:
        reader, writer = await place.connect()
        told = b""
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(sent), 10_000):
                writer.write(sent[at : at + 10_000])
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            told = await reader.read()
        writer.close()
        # Where we still sent when it closed, our system may have let go of the answer.
        assert told[:12] in (f"HTTP/1.1 {status}".encode(), b"")
        assert (await place.ask(place.head("GET /health")))[0] == 200

    tell(tmp_path, story)


def test_a_head_has_a_time_and_an_idle_connection_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(protocol, "_LOOK_SECONDS", 0.05)

    async def story(place: Place) -> None:
        slow, slow_writer = await place.connect()
        slow_writer.write(place.head("GET /health")[:-2])
        idle, idle_writer = await place.connect()
        idle_writer.write(place.head("GET /v1/runs/r"))
        assert (await read_answer(idle))[0] == 200
        async with asyncio.timeout(60):
            assert await slow.read() == b""
            assert await idle.read() == b""
        slow_writer.close()
        idle_writer.close()

    tell(tmp_path, story)


def test_connections_beyond_the_most_wait_for_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 2)

    async def story(place: Place) -> None:
        first, second, third = [await place.connect() for _ in range(3)]
        for _, writer in (third, second, first):
            writer.write(place.head("GET /v1/runs/r"))
        assert (await read_answer(first[0]))[0] == 200
        assert (await read_answer(second[0]))[0] == 200
        waiting = asyncio.ensure_future(read_answer(third[0]))
        assert not waiting.done()
        first[1].close()
        assert (await waiting)[0] == 200
        for _, writer in (second, third):
            writer.close()

    tell(tmp_path, story)


def test_what_stands_behind_a_body_has_no_effect_and_an_end(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        head = place.head("POST /v1/threads/t/slots", JSON, "transfer-encoding: chunked")
        chunk = b"%x\r\n%b\r\n0\r\n" % (len(SLOT), SLOT)
        trailing = head + chunk + b"idempotency-key: k\r\n\r\n"
        first, second = await place.ask(trailing), await place.ask(trailing)
        assert [json.loads(body)["index"] for _, _, body in (first, second)] == [0, 1]

        _, writer = await place.connect()
        writer.write(head + chunk + b"x: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):
                writer.write(b"y" * 10_000)
                await writer.drain()
            raise AssertionError("ten megabytes behind a body were taken")
        writer.close()
        # Small chunks have more around them than in them, and are a body all the same.
        crumbs = b"".join(b"1\r\n%c\r\n" % byte for byte in SLOT.replace(b"x", b"x" * 20_000))
        status, _, _ = await place.ask(head + crumbs + b"0\r\n\r\n")
        assert status == 201

    tell(tmp_path, story)


def test_a_header_without_a_value_does_not_run_into_the_next(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        status, headers, _ = await place.ask(
            place.head("GET /v1/runs/r", "x-empty:", "x-request-id: mine")
        )
        assert (status, headers["x-request-id"]) == (200, "mine")

    tell(tmp_path, story)


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_an_offer_to_speak_another_protocol_is_not_taken_up(tmp_path: Path, protocol: str) -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMA")

    async def story(place: Place) -> None:
        reader, writer = await place.connect()
        for request in (place.head("GET /v1/runs/r", *offer), place.post("t", *offer)):
            writer.write(request)
            status, headers, _ = await read_answer(reader)
            assert status in (200, 201)
            assert "connection" not in headers
        writer.close()

    tell(tmp_path, story)
    with pagefile.open(f"{tmp_path}/wire.db") as pf:
        assert pf.store.length("thread/t") == 1


def test_requests_without_end_behind_one_are_neither_parsed_nor_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0

    class Watched(protocol.Wire):
        def on_headers_complete(self) -> None:
            nonlocal most
            super().on_headers_complete()
            most = max(most, len(self.pipeline))

    monkeypatch.setattr(protocol, "Wire", Watched)

    async def story(place: Place) -> None:
        reader, writer = await place.connect()
        number = 3_000
        writer.write(place.head("GET /health", key="") * number)
        answers = [await read_answer(reader) for _ in range(number)]
        writer.close()
        assert {status for status, _, _ in answers} == {200}

    tell(tmp_path, story)
    assert 0 < most < protocol.MOST_PIPELINED + protocol.PIECE_BYTES // 40


def test_connections_without_room_are_not_heard_until_others_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 2)

    async def story(place: Place) -> None:
        first = [await place.connect() for _ in range(2)]
        for reader, writer in first:
            writer.write(place.head("GET /health", key=""))
            assert (await read_answer(reader))[0] == 200
        others = [await place.connect() for _ in range(3)]
        for _, writer in others:
            writer.write(place.head("GET /health", key=""))
        heard = [asyncio.create_task(read_answer(reader)) for reader, _ in others]
        # The first two are answered again meanwhile, more than once.
        for _ in range(20):
            for reader, writer in first:
                writer.write(place.head("GET /health", key=""))
                await read_answer(reader)
        assert not any(task.done() for task in heard)
        for _, writer in first:
            writer.close()
        for task, (_, writer) in zip(heard, others, strict=True):
            assert (await task)[0] == 200
            writer.close()

    tell(tmp_path, story)


def test_what_was_asked_before_garbage_and_by_half_closed_clients_is_answered(
    tmp_path: Path,
) -> None:
    async def story(place: Place) -> None:
        for request in (place.post("t"), place.head("GET /v1/runs/r"), place.head("GET /health")):
            reader, writer = await place.connect()
            writer.write(request + b"BAD\0 x\r\n\r\n")
            assert (await read_answer(reader))[0] in (200, 201)
            assert await reader.read() == b""
            writer.close()
            reader, writer = await place.connect()
            writer.write(request)
            writer.write_eof()
            assert (await read_answer(reader))[0] in (200, 201)
            assert await reader.read() == b""
            writer.close()

    tell(tmp_path, story)
    with pagefile.open(f"{tmp_path}/wire.db") as pf:
        assert pf.store.length("thread/t") == 2


def test_a_head_is_answered_and_its_connection_kept(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        reader, writer = await place.connect()
        for _ in range(2):
            writer.write(place.head("HEAD /v1/runs/r"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
        writer.write(place.head("GET /health"))
        assert (await read_answer(reader))[0] == 200
        writer.close()

    tell(tmp_path, story)


def test_a_stream_whose_client_went_away_with_a_request_behind_it_frees_its_place(
    tmp_path: Path,
) -> None:
    async def story(place: Place) -> None:
        assert (await place.ask(place.post("f")))[0] == 201
        for _ in range(3):
            _, writer = await place.connect()
            writer.write(place.head("GET /v1/threads/f/follow") + place.head("GET /health"))
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.close()
        async with asyncio.timeout(60):
            while True:
                reader, writer = await place.connect()
                writer.write(place.head("GET /v1/threads/f/follow"))
                first = await reader.readline()
                writer.close()
                if b" 200 " in first:
                    break
                await asyncio.sleep(0.1)

    tell(tmp_path, story, max_streams=2)


def test_an_application_around_the_front_sees_every_request(
    tmp_path: Path, short_ways: list[str]
) -> None:
    async def story(place: Place) -> None:
        request = place.head("GET /v1/runs/r", "origin: https://a.example")
        status, headers, _ = await place.ask(request)
        assert (status, headers["access-control-allow-origin"]) == (200, "https://a.example")
        assert short_ways == []

    tell(tmp_path, story, allow_origins=("https://a.example",))


def test_a_client_that_does_not_read_is_not_heard_on(tmp_path: Path, short_ways: list[str]) -> None:
    async def story(place: Place) -> None:
        reader, writer = await place.connect()
        with pagefile.open(place.url) as pf:
            pf.runs.open("r").update(lambda _: {"next_action": "x" * 200_000})
        request = place.head("GET /v1/runs/r")
        number = 200
        writer.write(request * number)
        while not short_ways:
            await asyncio.sleep(0.01)
        for _ in range(50):
            await place.ask(place.head("GET /health"))
        # Forty megabytes would be in memory if it went on.
        assert len(short_ways) < number // 2
        answers = [await read_answer(reader) for _ in range(number)]
        writer.close()
        assert {status for status, _, _ in answers} == {200}

    tell(tmp_path, story)


# Appends without a task


@pytest.fixture
def expressed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each append that went the short way, whether it went without a task."""
    taken: list[bool] = []
    before = express.Express.takes

    def noting(self: Any, *rest: Any) -> bool:
        taken.append(before(self, *rest))
        return taken[-1]

    monkeypatch.setattr(express.Express, "takes", noting)
    return taken


async def _is_settled(place: Place) -> None:
    """The first look at a key, and the first slot of a thread, take more than an append."""
    for _ in range(2):
        assert (await place.ask(place.post("t")))[0] == 201


def test_the_usual_append_needs_no_task_and_is_answered_as_every_other(
    tmp_path: Path, expressed: list[bool]
) -> None:
    async def story(place: Place) -> None:
        await _is_settled(place)
        expressed.clear()
        short, long = await _both(place, place.post("t", "x-request-id: mine"))
        assert _same(short) == _same(long)
        assert short[1].keys() == long[1].keys() - {"connection"}
        assert (short[1]["etag"], long[1]["etag"]) == ('"3"', '"4"')
        assert short[1]["x-request-id"] == "mine"
        assert expressed == [True]

    tell(tmp_path, story)


def test_a_repeat_without_a_task_gets_the_first_answer(
    tmp_path: Path, expressed: list[bool]
) -> None:
    async def story(place: Place) -> None:
        await _is_settled(place)
        expressed.clear()
        request = place.post("t", "idempotency-key: k")
        first, again = await place.ask(request), await place.ask(request)
        assert (first[0], again[0]) == (201, 201)
        assert first[2] == again[2]
        other = place.post("t", "idempotency-key: k", body=SLOT.replace(b'"x"', b'"y"'))
        assert (await place.ask(other))[0] == 422
        assert expressed == [True] * 3

    tell(tmp_path, story)


def test_what_is_refused_in_its_commit_is_told_in_the_words_of_threads(
    tmp_path: Path, expressed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ContextBuffer, "max_slots_per_thread", 2)

    async def story(place: Place) -> None:
        await _is_settled(place)
        expressed.clear()
        status, _, body = await place.ask(place.post("t"))
        assert (status, json.loads(body)["code"]) == (413, "limit_exceeded")
        assert "Thread t exceeded max slots (2)" in json.loads(body)["detail"]
        assert expressed == [True]
        text = (await place.ask(place.head("GET /metrics")))[2].decode()
        assert "pagefile_http_requests_in_flight 1.0" in text

    tell(tmp_path, story)


def test_an_append_that_takes_too_long_is_answered_once_and_not_held_against_the_caller(
    tmp_path: Path, expressed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Callable[[], None]] = []

    def holding(self: Any, log: Any, then: Any, *, key: str = "") -> None:
        held.append(lambda: then(None))

    async def story(place: Place) -> None:
        await _is_settled(place)
        expressed.clear()
        with monkeypatch.context() as patched:
            patched.setattr(pagefile.Store, "append_then_async", holding)
            reader, writer = await place.connect()
            writer.write(place.post("t"))
            status, _, body = await read_answer(reader)
        assert status == 503
        assert "not done within" in json.loads(body)["detail"]
        held[0]()  # Nobody waits for it any more.
        writer.write(place.head("GET /v1/runs/r"))
        assert (await read_answer(reader))[0] == 200
        writer.close()
        assert expressed == [True]
        # Two slots, the one that was held, and this: one more would be too many.
        assert (await place.ask(place.post("t")))[0] == 201

    tell(tmp_path, story, request_seconds=0.2)


def test_a_rate_counts_an_append_without_a_task_once(tmp_path: Path, expressed: list[bool]) -> None:
    async def story(place: Place) -> None:
        answers = [(await place.ask(place.post("t")))[0] for _ in range(12)]
        assert answers[:8] == [201] * 8
        assert 429 in answers[8:]
        assert expressed.count(True) >= 6

    tell(tmp_path, story, rate_per_second=4)


def test_a_client_that_leaves_before_its_append_is_stored_harms_nobody(
    tmp_path: Path, expressed: list[bool]
) -> None:
    async def story(place: Place) -> None:
        await _is_settled(place)
        for _ in range(10):
            _, writer = await place.connect()
            writer.write(place.post("t"))
            writer.transport.abort()
        status, _, body = await place.ask(place.post("t"))
        assert (status, json.loads(body)["thread_id"]) == (201, "t")
        text = (await place.ask(place.head("GET /metrics")))[2].decode()
        assert "pagefile_http_requests_in_flight 1.0" in text

    tell(tmp_path, story)


# What a request says of itself


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.0\r\n\r\n", 200),
        (b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n", 200),
        (b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n", 501),
        (
            b"POST /v1/recall HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
            401,
        ),
    ],
)
def test_a_request_is_for_one_host_and_packed_in_no_way_but_chunks(
    tmp_path: Path, head: bytes, status: int
) -> None:
    async def story(place: Place) -> None:
        assert (await place.ask(head))[0] == status

    tell(tmp_path, story)

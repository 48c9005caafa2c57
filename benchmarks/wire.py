"""What a server program does with requests that mean harm, or break off.

    python benchmarks/wire.py [--programs granian uvicorn-h11 uvicorn-httptools]

Each program runs an application that answers with what reached it. Printed are: how
ambiguous requests are answered, and as how many; what an upload that breaks off looks
like to the application; how much memory floods take; and how long what does not go on
is waited for.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from _servers import free_port

_APP = Path(__file__).parent / "_wire_app.py"
_PROGRAMS = ("granian", "uvicorn-h11", "uvicorn-httptools")
_HOST = b"host: a\r\n"
_LONGEST_WAIT = 15.0
_MEGABYTE = 1_048_576

#: Of each, what is sent; `GET /hidden` must never be answered.
_HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n"
AMBIGUOUS: dict[str, bytes] = {
    "content-length and chunked": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"content-length: %d\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(_HIDDEN))
    + _HIDDEN,
    "two lengths": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"content-length: 0\r\ncontent-length: %d\r\n\r\n" % len(_HIDDEN)
    + _HIDDEN,
    "length with a sign": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"content-length: +%d\r\n\r\n" % len(_HIDDEN)
    + _HIDDEN,
    "list of lengths": b"POST / HTTP/1.1\r\n" + _HOST + b"content-length: 5, 5\r\n\r\nhello",
    "chunked not last": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"
    + _HIDDEN,
    "gzip, chunked": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "xchunked": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"
    + _HIDDEN,
    "chunked twice": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    + _HIDDEN,
    "chunk size too large": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n10000000000000000\r\n\r\n"
    + _HIDDEN,
    "chunk size with 0x": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "chunk longer than said": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n"
    + _HIDDEN,
    "bare LF behind a chunk size": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
    "bare LF in a chunk extension": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n5;x\nhello\r\n0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\n" + _HOST + b"x: a\r\n b\r\n\r\n",
    "folded transfer-encoding": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding:\r\n chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"
    + _HIDDEN,
    "space before colon": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding : chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"
    + _HIDDEN,
    "bare LF": b"GET / HTTP/1.1\nhost: a\n\n",
    "bare CR in a value": b"GET / HTTP/1.1\r\n" + _HOST + b"x: a\rb: c\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\n" + _HOST + b"x: a\0b\r\n\r\n",
    "header without colon": b"GET / HTTP/1.1\r\n" + _HOST + b"nonsense\r\n\r\n",
    "value that is not ASCII": b"GET / HTTP/1.1\r\n" + _HOST + b"x-api-key: \xff\r\n\r\n",
    "HTTP/1.9": b"GET / HTTP/1.9\r\n" + _HOST + b"\r\n",
    "HTTP/0.9": b"GET /\r\n",
    "nonsense": b"nonsense\r\n\r\n",
    "two spaces in the first line": b"GET  / HTTP/1.1\r\n" + _HOST + b"\r\n",
    "GET with a body": b"GET / HTTP/1.1\r\n"
    + _HOST
    + b"content-length: %d\r\n\r\n" % len(_HIDDEN)
    + _HIDDEN,
    "upgrade to h2c": b"GET / HTTP/1.1\r\n"
    + _HOST
    + b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n\r\n",
    "upgrade to websocket": b"GET / HTTP/1.1\r\n" + _HOST + b"connection: upgrade\r\n"
    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "101 headers": b"GET / HTTP/1.1\r\n" + _HOST + b"x: y\r\n" * 101 + b"\r\n",
    "head of 70 KB": b"GET / HTTP/1.1\r\n" + _HOST + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
    "trailers": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n0\r\nhost: b\r\nidempotency-key: k\r\n\r\n",
    "three in one piece": b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n" * 3,
    "garbage behind a request": b"GET / HTTP/1.1\r\n" + _HOST + b"\r\nBAD\0 x\r\n\r\n",
}
BROKEN_OFF: dict[str, bytes] = {
    "of a length": b"POST / HTTP/1.1\r\n" + _HOST + b"content-length: 10\r\n\r\nhello",
    "in a chunk": b"POST / HTTP/1.1\r\n" + _HOST + b"transfer-encoding: chunked\r\n\r\na\r\nhello",
    "between chunks": b"POST / HTTP/1.1\r\n"
    + _HOST
    + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
}


class Program:
    """One server program that is running."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self._port = port
        self._process = process

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=2)

    def seen(self) -> list[dict[str, Any]]:
        """What has reached the application since the last question."""
        with self.connected() as ours:
            ours.sendall(b"GET /seen HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            found: list[dict[str, Any]] = json.loads(_all_of(ours).partition(b"\r\n\r\n")[2])
        return found

    def megabytes(self) -> float:
        """What the program and its workers have in memory."""
        pids, total = [self._process.pid], 0.0
        for pid in pids:
            with suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                total += int(status.partition("VmRSS:")[2].split()[0]) / 1_024
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                pids.extend(map(int, children.split()))
        return total


@contextmanager
def running(name: str) -> Iterator[Program]:
    """That program with the application, once it answers."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(_APP), str(port), name],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    program = Program(port, process)
    try:
        for _ in range(600):
            with suppress(OSError):
                program.connected().close()
                break
            time.sleep(0.05)
        yield program
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


def _all_of(ours: socket.socket) -> bytes:
    """What is answered until the connection is closed, or nothing has come for two seconds."""
    answer = b""
    with suppress(OSError):
        while piece := ours.recv(65_536):
            answer += piece
    return answer


def ambiguous(program: Program, sent: bytes) -> str:
    """How such a request is answered."""
    program.seen()
    with program.connected() as ours, suppress(OSError):
        ours.settimeout(1)
        ours.sendall(sent)
        answer = _all_of(ours)
    seen = program.seen()
    codes = [part[:3].decode() for part in answer.split(b"HTTP/1.1 ")[1:]]
    told = " ".join(codes) or "closed"
    if any(each["path"] == "/hidden" for each in seen):
        told += " HIDDEN"
    if seen:
        named = {name for name, _ in seen[0]["headers"]}
        told += "".join(
            f" {name}" for name in sorted(named & {"x", "x-api-key", "idempotency-key"})
        )
        told += "" if seen[0]["end"] == "whole" else ", which broke off"
    if seen and seen[0]["body"]:
        told += f" body={seen[0]['body'][:12]!r}"
    return told


def broken_off(program: Program, sent: bytes) -> str:
    """What the application takes such an upload for."""
    program.seen()
    with program.connected() as ours:
        ours.sendall(sent)
        time.sleep(0.2)
    time.sleep(0.3)
    seen = program.seen()
    return seen[0]["end"] if seen else "not shown"


def flood(program: Program, piece: bytes, connections: int, most: int, seconds: float = 4) -> str:
    """How much memory it takes when so many connections send on and read nothing."""
    before = program.megabytes()
    sent, closed, peak = 0, 0, before
    with ExitStack() as stack:
        ours = [stack.enter_context(program.connected()) for _ in range(connections)]
        for each in ours:
            each.setblocking(False)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for each in list(ours) if sent < most * _MEGABYTE else ():
                try:
                    sent += each.send(piece)
                except BlockingIOError:
                    continue
                except OSError:
                    ours.remove(each)
                    closed += 1
            # What was sent is worked on for a while after it was.
            peak = max(peak, program.megabytes())
            time.sleep(0.02)
    return f"+{peak - before:.0f} MB for {sent / _MEGABYTE:.1f} MB taken, {closed} closed"


def waits(program: Program, sent: bytes) -> str:
    """After how long a connection that does not go on is closed."""
    with program.connected() as ours:
        ours.settimeout(_LONGEST_WAIT)
        ours.sendall(sent)
        began = time.monotonic()
        try:
            while ours.recv(65_536):
                pass
        except TimeoutError:
            return f"still open after {_LONGEST_WAIT:g} s"
        except OSError:
            pass
        return f"closed after {time.monotonic() - began:.1f} s"


def many(program: Program, number: int) -> str:
    """How many of so many connections are answered at once."""
    answered = 0
    with ExitStack() as stack:
        ours = []
        for _ in range(number):
            with suppress(OSError):
                ours.append(stack.enter_context(program.connected()))
        for each in ours:
            with suppress(OSError):
                each.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        codes: dict[str, int] = {}
        for each in ours:
            each.settimeout(0.05 if answered else 2)
            try:
                code = each.recv(4_096)[9:12].decode()
                answered += 1
            except TimeoutError:
                code = "waits"
            except OSError:
                code = "closed"
            codes[code] = codes.get(code, 0) + 1
    return ", ".join(f"{count} {code}" for code, count in sorted(codes.items()))


def half_closed(program: Program) -> str:
    """Whether one that asks for nothing more still gets its answer."""
    with program.connected() as ours:
        ours.sendall(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        ours.shutdown(socket.SHUT_WR)
        return _all_of(ours)[9:12].decode() or "no answer"


def main() -> None:
    """Print what each program does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", nargs="+", default=_PROGRAMS, choices=_PROGRAMS)
    for name in parser.parse_args().programs:
        print(f"\n{name}")
        with running(name) as program:
            rows: list[tuple[str, Callable[[], str]]] = [
                *((what, lambda s=sent: ambiguous(program, s)) for what, sent in AMBIGUOUS.items()),
                *(
                    (f"broken off {what}", lambda s=sent: broken_off(program, s))
                    for what, sent in BROKEN_OFF.items()
                ),
                ("half closed", lambda: half_closed(program)),
                ("half a head", lambda: waits(program, b"GET / HTTP/1.1\r\nhost: a\r\n")),
                ("nothing sent", lambda: waits(program, b"")),
                (
                    "idle after an answer",
                    lambda: waits(program, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
                ),
                ("1,500 connections", lambda: many(program, 1_500)),
                (
                    "1 connection pipelines",
                    lambda: flood(program, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 2_000, 1, 200),
                ),
                (
                    "100 connections pipeline",
                    lambda: flood(program, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 2_000, 100, 200),
                ),
                (
                    "20 connections ask 200 KB, read nothing",
                    lambda: flood(program, b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n" * 500, 20, 50),
                ),
                (
                    "20 heads without end",
                    lambda: flood(
                        program, b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000, 20, 200
                    ),
                ),
                (
                    "20 chunk extensions without end",
                    lambda: flood(
                        program,
                        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked"
                        b"\r\n\r\n5;x=" + b"y" * 100_000,
                        20,
                        200,
                    ),
                ),
            ]
            for what, ask in rows:
                print(f"  {what:<42} {ask()}", flush=True)


if __name__ == "__main__":
    main()

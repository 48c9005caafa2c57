"""Load for a server on loopback: wrk when it is installed, else a client of our own."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

#: How many requests go to one place before `{n}` in a path becomes the next number.
_PER_PLACE = 5_000
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


class Load(NamedTuple):
    """One round: requests a second, the latency of the slowest hundredth, and what failed."""

    per_second: float
    p99_seconds: float
    failed: int


class Target(NamedTuple):
    """What is asked, by whom, with which body."""

    port: int
    path: str
    key: str = ""
    body: bytes = b""

    @property
    def method(self) -> str:
        return "POST" if self.body else "GET"


def load(target: Target, *, connections: int, seconds: int) -> Load:
    """Ask as fast as so many connections can."""
    if shutil.which("wrk"):
        return _wrk(target, connections, seconds)
    return asyncio.run(_own(target, connections, seconds))


def _wrk(target: Target, connections: int, seconds: int) -> Load:
    script = f"wrk.method = {json.dumps(target.method)}\n"
    if target.body:
        script += f"wrk.body = {json.dumps(target.body.decode())}\n"
        script += 'wrk.headers["content-type"] = "application/json"\n'
    if target.key:
        script += f'wrk.headers["authorization"] = "Bearer {target.key}"\n'
    if "{n}" in target.path:
        first, rest = target.path.split("{n}")
        script += (
            "local asked = 0\nrequest = function()\n  asked = asked + 1\n"
            f"  local place = math.floor(asked / {_PER_PLACE})\n"
            f"  return wrk.format(nil, {json.dumps(first)} .. place .. {json.dumps(rest)})\nend\n"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", file.name]
        command.append(f"http://127.0.0.1:{target.port}{target.path.replace('{n}', '0')}")
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    slowest = re.search(r"99%\s+([\d.]+)(us|ms|s|m)", said)
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    broken = re.findall(r"(?:connect|read|write|timeout) (\d+)", said)
    assert rate is not None
    assert slowest is not None
    return Load(
        float(rate[1]),
        float(slowest[1]) * _UNITS[slowest[2]],
        sum(map(int, broken)) + (int(failed[1]) if failed else 0),
    )


async def _own(target: Target, connections: int, seconds: int) -> Load:
    """A small client: one request after the other on each connection."""
    rest = " HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    if target.key:
        rest += f"authorization: Bearer {target.key}\r\n"
    if target.body:
        rest += f"content-type: application/json\r\ncontent-length: {len(target.body)}\r\n"
    tail = rest.encode() + b"\r\n" + target.body
    took: list[float] = []
    asked = failed = 0
    end = time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal asked, failed
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        while (started := time.perf_counter()) < end:
            path = target.path.replace("{n}", str(asked // _PER_PLACE))
            asked += 1
            writer.write(f"{target.method} {path}".encode() + tail)
            try:
                answer = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", answer)
                await reader.readexactly(int(length[1]) if length else 0)
            except (OSError, asyncio.IncompleteReadError):
                # A refusal may be the last answer of its connection.
                failed += 1
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
                continue
            failed += answer[9:10] != b"2"
            took.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(ask() for _ in range(connections)))
    took.sort()
    return Load(len(took) / seconds, took[int(len(took) * 0.99) - 1], failed)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children that live."""
    total = 0.0
    for each in [pid, *_children(pid)]:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / 100
    return total


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, found) for each in (child, *_children(child))]

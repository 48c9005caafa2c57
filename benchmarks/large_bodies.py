"""How long other callers wait while a server works on large bodies of small values.

    python benchmarks/large_bodies.py [seconds]

One client reads a thread again and again: alone, then beside one that sends the
largest bodies that are taken, then beside one whose bodies have too many values.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from statistics import quantiles
from typing import Any

import httpx

from _servers import HttpServer

SLOTS = "/v1/threads/large/slots"
TAKEN, REFUSED = 199_000, 5_500_000


def body(values: int) -> bytes:
    return b'{"from_id":"a","to_id":"b","payload":[' + b"1, " * (values - 1) + b"1]}"


def waits(client: httpx.Client, seconds: float) -> list[float]:
    """Milliseconds of each answer."""
    found: list[float] = []
    until = time.monotonic() + seconds
    while (begun := time.monotonic()) < until or len(found) < 2:
        client.get("/v1/threads/small").raise_for_status()
        found.append((time.monotonic() - begun) * 1_000)
    return found


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, HttpServer(f"{folder}/s.db") as server:
        options: dict[str, Any] = {
            "base_url": server.base,
            "headers": server.headers,
            "timeout": 300.0,
        }
        with httpx.Client(**options) as other, httpx.Client(**options) as large:
            small = {"payload": 1, "from_id": "a", "to_id": "b"}
            other.post("/v1/threads/small/slots", json=small).raise_for_status()
            print(f"{'beside':<28}{'sent':>6}{'answers':>9}{'p50 ms':>9}{'p99 ms':>9}{'most':>9}")
            for name, values in (("nobody", 0), ("bodies", TAKEN), ("bodies", REFUSED)):
                stop = threading.Event()
                sent: list[int] = []
                raw = body(values) if values else b""

                def send(raw: bytes = raw, stop: threading.Event = stop) -> None:
                    kind = {"content-type": "application/json"}
                    while raw and not stop.is_set():
                        sent.append(large.post(SLOTS, content=raw, headers=kind).status_code)  # noqa: B023

                thread = threading.Thread(target=send)
                thread.start()
                found = waits(other, seconds)
                stop.set()
                thread.join()
                told = f"{name} of {values:,} values" if values else name
                cuts = quantiles(found, n=100)
                row = f"{told:<28}{len(sent):>6}{len(found):>9}"
                print(f"{row}{cuts[49]:>9.2f}{cuts[98]:>9.2f}{max(found):>9.2f} {set(sent) or ''}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)

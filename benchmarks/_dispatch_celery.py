"""Celery on a Redis, driven over stdin: a form and a number of tasks come in, the number goes out.

"all" submits every task and then collects; "one" waits for each before the next.
Run by a Python that has Celery; it starts one worker process with two children.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from celery import Celery

#: The worker has its own arguments, and gets the address this way.
URL = os.environ.get("DISPATCH_CELERY") or sys.argv[1]
app: Any = Celery("peer", broker=URL, backend=URL)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=8, result_expires=600)


def _echo(number: int, last: int) -> list[int]:
    return [number, last]


echo: Any = app.task(name="echo")(_echo)


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "_dispatch_celery",
            "worker",
            "--concurrency=2",
            "--loglevel=ERROR",
            "--without-gossip",
            "--without-mingle",
        ],
        cwd=here,
        env={**os.environ, "DISPATCH_CELERY": URL, "C_FORCE_ROOT": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        echo.delay(0, 0).get(timeout=60)
        print("ready", flush=True)
        for line in sys.stdin:
            form, _, number = line.partition(" ")
            count = int(number)
            if not count:
                return
            if form == "one":
                for _ in range(count):
                    echo.delay(1, 1).get(timeout=120)
            else:
                results = [echo.delay(1, 1) for _ in range(count)]
                for result in results:
                    result.get(timeout=120)
            print(count, flush=True)
    finally:
        worker.terminate()
        worker.wait()


if __name__ == "__main__":
    main()

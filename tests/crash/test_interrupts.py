"""Ctrl-C between any two steps of a commit: nobody hangs, and the handle goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 60 if os.environ.get("PAGEFILE_SOAK") else 4

# In a process of its own: signals go to a main thread, which the test runner needs for itself.
INTERRUPTED = """
import faulthandler, random, signal, sys, threading, time
import pagefile
from pagefile import Append, Batch

class Stop(BaseException): pass

armed = False
left = 0

def stop(*_):
    global left
    if armed:
        if left:
            left -= 1
            signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-6, 6e-5))
        raise Stop

signal.signal(signal.SIGALRM, stop)
path, beside, seconds = sys.argv[1], sys.argv[2] == "beside", float(sys.argv[3])
twice = sys.argv[2] == "twice"
faulthandler.dump_traceback_later(seconds + 100, exit=True)
pf = pagefile.open(path, durability="process")
over = False

def commit_on():
    while not over:
        try:
            pf.store.commit(Batch([Append("beside", 1)]))
        except pagefile.Unavailable as ended:  # Whoever committed for it was interrupted.
            assert ended.outcome == "unknown"

thread = threading.Thread(target=commit_on, daemon=True)
if beside:
    thread.start()
until, interrupts, acknowledged = time.monotonic() + seconds, 0, 0
while time.monotonic() < until or interrupts < 20:
    try:
        try:
            armed, left = True, int(twice)
            signal.setitimer(signal.ITIMER_REAL, random.random() * 0.0006 + 1e-6)
            for _ in range(50):
                pf.store.commit(Batch([Append("log", 1)]))
                acknowledged += 1
                pf.store.commit(Batch([Append("two", 1), Append(f"new{acknowledged}", 1)]))
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop:
        interrupts += 1
    probed = []
    probe = threading.Thread(
        target=lambda: probed.append(pf.store.commit(Batch([Append("probe", 1)]))), daemon=True
    )
    probe.start()
    while not probed:
        probe.join(60)
        assert probed or not probe.is_alive(), f"a commit hangs after {interrupts} interrupts"
        if not probed:
            # Its leader was ended in the middle: it was told so, and asks again.
            pf.store.commit(Batch([Append("probe", 1)]))
            break
over = True
if beside:
    thread.join(60)
    assert not thread.is_alive()
with pagefile.open(path) as other:
    other.store.commit(Batch([Append("log", 1)]))
    assert other.store.length("log") > acknowledged
    assert bool(other.verify()) and bool(other.check())
pf.close()
print("fine", interrupts)
"""


# Ctrl-C while the second of twenty is read; the extractor heeds what it is told.
CONSOLIDATED = """
import os, signal, sys, threading
from pagefile import Episode, Memory
from pagefile.memory.extraction.candidate import Candidate

class Reads:
    name, version, read = "reads", "1", 0
    def extract(self, exchange, *, cancel=None):
        Reads.read += 1
        if Reads.read == 2:
            if sys.argv[1] == "main":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            assert cancel.wait(60)
            raise InterruptedError("told to stop")
        return [Candidate("user", "likes", exchange.input.split()[-1], 0.9)]

memory = Memory("memory:", embedder=None, extractor=Reads())
memory.remember_many(
    [Episode(session_id="s", user_id="ann", input=f"I like tea{n}") for n in range(20)]
)
try:
    memory.consolidate()
except KeyboardInterrupt:
    interrupted = Reads.read
after = memory.consolidate()
print(interrupted, after.facts, after.failed)
"""


@pytest.mark.parametrize("thread", ["main", "another"])
def test_an_interrupted_consolidation_ends_and_gives_back_its_claims(thread: str) -> None:
    """The system may give a signal to any thread: then nothing ends a wait of the main one."""
    ran = subprocess.run(
        [sys.executable, "-c", CONSOLIDATED, thread],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ran.stdout.split(), ran.returncode) == (["2", "19", "0"], 0), ran.stderr


@pytest.mark.parametrize("beside", ["alone", "beside", "twice"])
def test_a_commit_that_is_interrupted_anywhere_stops_nobody(tmp_path: Path, beside: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "a.db"), beside, str(SECONDS)],
        capture_output=True,
        text=True,
        timeout=SECONDS + 240,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("fine")

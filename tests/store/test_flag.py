"""Flags that no interrupt can leave locked."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from pagefile.store.threads import Crowd, Flag


def test_a_raised_flag_is_seen_once() -> None:
    flag = Flag()

    flag.set()
    flag.set()

    assert flag.wait(0)
    assert not flag.wait(0)


def test_a_flag_taken_down_is_not_seen() -> None:
    flag = Flag()
    flag.set()

    flag.clear()
    flag.clear()

    assert not flag.wait(-1)


def test_a_thread_that_waits_is_told() -> None:
    flag, seen = Flag(), []
    waiter = threading.Thread(target=lambda: seen.append(flag.wait(60)))
    waiter.start()

    flag.set()
    waiter.join(60)

    assert seen == [True]


def test_a_crowd_is_woken_whole_and_once() -> None:
    crowd = Crowd()
    left, first, second = crowd.join(), crowd.join(), crowd.join()
    crowd.leave(left)
    assert len(crowd) == 2

    crowd.wake()
    crowd.leave(first)

    assert (first.wait(0), second.wait(0), left.wait(0)) == (True, True, False)
    assert len(crowd) == 0


#: Every step of `set`, `clear`, `join` and `wake` is interrupted at some time.
INTERRUPTED = """
import random, signal, sys, threading, time
from pagefile.store.threads import Crowd, Flag

class Stop(BaseException): pass

armed = False

def stop(*_):
    if armed:
        raise Stop

signal.signal(signal.SIGALRM, stop)
flag, crowd, mutex = Flag(), Crowd(), threading.Lock()
interrupts, until = 0, time.monotonic() + 2
while interrupts < 200 or time.monotonic() < until:
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, random.random() * 1e-4 + 1e-6)
            while True:
                flag.set(); flag.clear(); flag.wait(0)
                with mutex:
                    crowd.join()
                    crowd.wake()
        finally:
            armed = False
    except Stop:
        interrupts += 1
    flag.set()
    assert flag.wait(60), "the flag hangs"
    with mutex:
        told = crowd.join()
        crowd.wake()
    assert told.wait(60), "the crowd hangs"
print("fine", interrupts)
"""


def test_no_interrupt_leaves_one_locked() -> None:
    assert hasattr(signal, "setitimer")

    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("fine")

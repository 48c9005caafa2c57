"""Reading a thread: its end, all of it, some of it; and branching off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import _context_peers as peers
from _context_ours import (
    MESSAGE,
    Buffer,
    build,
    memory_buffer,
    open_buffer,
    read_all,
    read_tail,
    read_type,
)
from _context_plain import PlainBuffer, PlainThread
from _context_rows import Claim, compared
from _measure import Subject
from _row import Row, Target
from _workplace import Workplace

#: Short, so that a million of them are built in half a minute.
_BRIEF = {"role": "user", "content": "An agent saw this."}
_SHORT = 1_000
_TAIL = 50
_FLAT = Target(0.8, 1.2)


def tail(place: Workplace) -> list[Row]:
    """The last 50 messages, decoded, of a short thread and of a long one.

    The list in memory has nothing to decode. LangGraph keeps no message by itself:
    whoever wants the last ones loads the newest checkpoint, which has them all.
    """
    lengths = (_SHORT, _longest(place))
    ours = [f"pagefile tail({_TAIL}), {n:,} slots" for n in lengths]
    plains = [f"lists and locks, last {_TAIL} of {n:,}" for n in lengths]
    theirs = [f"SQLiteSession.get_items({_TAIL}), {n:,} rows" for n in lengths]
    whole = [f"SqliteSaver.get_tuple, {n:,} messages in it" for n in lengths]
    subjects = []
    for at, n in enumerate(lengths):
        read = partial(read_tail, _built(place, n), _TAIL)
        subjects.append(Subject(ours[at], _repeated(read, 50, _TAIL)))
        last = partial(_plain_tail, _plain_thread(n))
        subjects.append(Subject(plains[at], _repeated(last, 1_000, _TAIL)))
        if peers.has("agents"):
            session = place.closing(peers.Session(place.new_path(), "process"))
            place.announce(f"building {n:,} rows of a peer", 1)
            session.fill(_BRIEF, n)
            subjects.append(Subject(theirs[at], partial(_session_tails, session, 50)))
        if peers.has("langgraph"):
            saver = place.closing(peers.Saver(place.new_path(), "process"))
            saver.put_many([_BRIEF] * n, 1)
            subjects.append(Subject(whole[at], _repeated(saver.read, 1 if at else 20, n)))
    claims = [
        Claim(ours[1], ours[0], target=_FLAT),
        *(
            Claim(own, peer)
            for named in (plains, theirs, whole)
            for own, peer in zip(ours, named, strict=True)
        ),
    ]
    level = dict.fromkeys((*ours, *theirs, *whole), "process") | dict.fromkeys(plains, "none")
    return compared(place, "tail", subjects, claims, rounds=20, level=level)


def full(place: Workplace) -> list[Row]:
    """All of a thread of 10,000 messages, decoded; figures are per read.

    LangGraph has them all in its newest checkpoint, which is what it loads.
    """
    count = 10_000
    buffer = open_buffer(place, "process")
    build(place, buffer, [MESSAGE] * count)
    ours, plain = "pagefile, each slot's payload", "lists and locks, nothing to decode"
    get, load = "SQLiteSession.get_items", "SqliteSaver.get_tuple, dicts"
    revive = "SqliteSaver.get_tuple, HumanMessages"
    thread = _plain_thread(count)
    subjects = [
        Subject(ours, _repeated(partial(read_all, buffer), 1, count)),
        Subject(plain, _repeated(lambda: len([slot.payload for slot in thread]), 1, count)),
    ]
    if peers.has("agents"):
        session = place.closing(peers.Session(place.new_path(), "process"))
        session.fill(MESSAGE, count)
        subjects.append(Subject(get, _repeated(partial(session.read, None), 1, count)))
    if peers.has("langgraph"):
        saver = place.closing(peers.Saver(place.new_path(), "process"))
        saver.put_many([MESSAGE] * count, 1, "dicts")
        saver.put_many(saver.message_objects([MESSAGE] * count), 1, "objects")
        subjects.append(Subject(load, _repeated(partial(saver.read, "dicts"), 1, count)))
        subjects.append(Subject(revive, _repeated(partial(saver.read, "objects"), 1, count)))
    claims = [Claim(ours, peer) for peer in (get, load, revive, plain)]
    level = {plain: "none"} | dict.fromkeys((ours, get, load, revive), "process")
    return compared(place, "full", subjects, claims, rounds=16, level=level)


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Alarm:
    text: str


def by_type(place: Workplace) -> list[Row]:
    """The slots of one payload type, 1 in 100 of a long thread; figures are per call."""
    count = 50_000 if place.quick else 200_000
    payloads: list[Note | Alarm] = [Note("nothing")] * count
    payloads[::100] = [Alarm("something")] * (count // 100)
    plain = PlainBuffer(max_slots_per_thread=count)
    for payload in payloads:
        plain.append("t", payload, "user", "agent")
    thread = plain.get_thread("t")
    if thread is None:
        raise RuntimeError("the plain buffer lost its thread")
    scan = f"lists and locks, {count:,} slots"
    names = [f"pagefile {where}, {count:,} slots" for where in ("memory:", "file")]
    scanned = partial(thread.get_by_type, Alarm.__name__)
    subjects = [Subject(scan, _repeated(lambda: len(scanned()), 1, count // 100))]
    for name, buffer in zip(names, (memory_buffer(), open_buffer(place, "process")), strict=True):
        build(place, buffer, payloads)
        found = partial(read_type, buffer, Alarm)
        subjects.append(Subject(name, _repeated(found, 1, count // 100)))
    claims = [Claim(name, scan) for name in names]
    level = {scan: "none"} | dict(zip(names, ("none", "process"), strict=True))
    return compared(place, "by_type", subjects, claims, rounds=16, level=level)


def fork(place: Workplace) -> list[Row]:
    """A fork of a short thread and of a long one; without sharing, a copy of the list.

    The durable peers have no fork to a thread of its own, so what an application does in
    its place is measured, for the short thread: read it and write it again under another id.
    """
    lengths = (_SHORT, _longest(place))
    ours = [f"pagefile fork, {n:,} slots" for n in lengths]
    copies = [f"lists and locks, copy of {n:,} slots" for n in lengths]
    rows = f"SQLiteSession, no fork: copy of {_SHORT:,} rows"
    checkpoint = f"SqliteSaver, no fork: checkpoint of {_SHORT:,} put again"
    subjects = []
    if peers.has("agents"):
        session = place.closing(peers.Session(place.new_path(), "process"))
        session.fill(_BRIEF, _SHORT)
        subjects.append(Subject(rows, partial(session.copy_many, 5)))
    if peers.has("langgraph"):
        saver = place.closing(peers.Saver(place.new_path(), "process"))
        saver.put_many([_BRIEF] * _SHORT, 1)
        subjects.append(Subject(checkpoint, partial(saver.copy_many, 5)))
    for copy, n in zip(copies, lengths, strict=True):
        subjects.append(Subject(copy, partial(_copies, _plain_thread(n), 5)))
    for own, n in zip(ours, lengths, strict=True):
        subjects.append(Subject(own, partial(_forks, _built(place, n), 20)))
    claims = [
        Claim(ours[1], ours[0], target=_FLAT),
        *(Claim(own, copy) for own, copy in zip(ours, copies, strict=True)),
        *(Claim(ours[0], peer) for peer in (rows, checkpoint)),
    ]
    level = dict.fromkeys((*ours, rows, checkpoint), "process") | dict.fromkeys(copies, "none")
    return compared(place, "fork", subjects, claims, rounds=20, level=level)


def _longest(place: Workplace) -> int:
    return 100_000 if place.quick else 1_000_000


def _built(place: Workplace, length: int) -> Buffer:
    """A file with one thread; the same one for all cases that ask for this length."""
    buffer: Buffer | None = place.kept.get(f"{length} slots")
    if buffer is None:
        buffer = place.kept[f"{length} slots"] = open_buffer(place, "process")
        build(place, buffer, [_BRIEF] * length)
    return buffer


def _plain_thread(length: int) -> PlainThread:
    """Up to 10,000 slots, over and over: a million of their own would take 400 MB."""
    thread = PlainThread("t")
    for _ in range(min(length, 10_000)):
        thread.append(_BRIEF, "user", "agent")
    thread.slots *= length // len(thread.slots)
    return thread


def _repeated(read: Callable[[], int], times: int, expected: int) -> Callable[[], int]:
    """A round of reads, each of which must find as many as expected."""

    def work() -> int:
        for _ in range(times):
            if (found := read()) != expected:
                raise RuntimeError(f"a read found {found:,} instead of {expected:,}")
        return times

    return work


def _session_tails(session: peers.Session, times: int) -> int:
    if (found := session.read(_TAIL, times)) != _TAIL:
        raise RuntimeError(f"a peer's read found {found} instead of {_TAIL}")
    return times


def _plain_tail(thread: PlainThread) -> int:
    return len([slot.payload for slot in thread.slots[-_TAIL:]])


def _copies(thread: PlainThread, times: int) -> int:
    for _ in range(times):
        thread.copy("child")
    return times


def _forks(buffer: Buffer, times: int) -> int:
    for _ in range(times):
        buffer.fork("t")
    return times

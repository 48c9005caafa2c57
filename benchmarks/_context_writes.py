"""Writing to a thread: alone, in a crowd, in memory, and to threads that are new."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import _context_peers as peers
from _context_ours import (
    MESSAGE,
    Awaited,
    Buffer,
    append_from_threads,
    append_singly,
    append_together,
    memory_buffer,
    open_handle,
)
from _context_plain import PlainBuffer
from _context_rows import Claim, compared
from _measure import Subject
from _row import Row, Target
from _workplace import Workplace

_SESSION = "SQLiteSession"
_SAVER = "SqliteSaver"
_OURS = "pagefile append"
_AWAITED = "pagefile append, awaited"
_THREADS = (100, 1_000, 10_000)
#: Of the thread, when a message is added; the target is for `_LENGTH`.
_LENGTHS = (10, 50, 100, 200)
_LENGTH = 100
_LEVELS: tuple[peers.Level, ...] = ("power", "process")


def append(place: Workplace) -> list[Row]:
    """A lone writer, one message per commit, at both levels; targets are for `power`."""
    return [row for level in _LEVELS for row in _append(place, level)]


def _append(place: Workplace, level: peers.Level) -> list[Row]:
    count = 50
    # What LangGraph puts at a message of a thread: the whole channel, as message objects. So
    # its cost grows with the thread, and the target is for the hundredth message; the others
    # show where it begins to hold. A constant checkpoint of one plain dict stands beside them.
    whole = {length: f"{_SAVER}.put, message {length} of a thread" for length in _LENGTHS}
    put, add = f"{_SAVER}.put, 1 plain dict in it", f"{_SESSION}.add_items"
    handle = open_handle(place, level)
    buffer, awaited = handle.context, Awaited(place, handle)
    subjects = [
        Subject(_OURS, lambda: append_singly(buffer, MESSAGE, count)),
        Subject(_AWAITED, lambda: awaited.append_from_tasks(MESSAGE, 1, count)),
    ]
    if peers.has("agents"):
        session = place.closing(peers.Session(place.new_path(), level))
        subjects.append(Subject(add, lambda: session.append_many(MESSAGE, count)))
    if peers.has("langgraph"):
        saver = place.closing(peers.Saver(place.new_path(), level))
        subjects.append(Subject(put, lambda: saver.put_many([MESSAGE], count)))
        for length, name in whole.items():
            long = saver.message_objects([MESSAGE] * length)
            subjects.append(Subject(name, partial(saver.put_many, long, count)))
    held = level == "power"
    claims = [
        Claim(_OURS, add, target=Target(high=1) if held else None),
        Claim(_AWAITED, add, target=Target(high=1) if held else None),
        *(
            Claim(_OURS, name, target=Target(high=1 / 3) if held and length == _LENGTH else None)
            for length, name in whole.items()
        ),
        Claim(_OURS, put),
    ]
    return compared(place, "append", subjects, claims, rounds=20, level=level)


def crowd(place: Workplace) -> list[Row]:
    """64 writers at level power, on the disk as it is: the peers take no VFS of ours.

    All of SQLiteSession's tasks use one session: with one for each it would open
    a connection for each session in each worker thread.
    """
    many, each = 64, 4
    tasks, threads = f"pagefile, {many} tasks", f"pagefile, {many} threads"
    added, put = f"{_SESSION}, {many} tasks", f"{_SAVER}, {many} threads, 1 plain dict"
    # The same two cases as for a lone writer: what is put at message 100, and the favourable one.
    whole = f"{_SAVER}, {many} threads, message 100"
    handle = open_handle(place, "power")
    buffer, awaited = handle.context, Awaited(place, handle)
    subjects = [
        Subject(tasks, lambda: awaited.append_from_tasks(MESSAGE, many, each)),
        Subject(threads, lambda: append_from_threads(buffer, MESSAGE, many, each)),
    ]
    if peers.has("agents"):
        session = place.closing(peers.Session(place.new_path(), "power"))
        subjects.append(Subject(added, lambda: session.append_from_tasks(MESSAGE, many, each)))
    if peers.has("langgraph"):
        saver = place.closing(peers.Saver(place.new_path(), "power"))
        subjects.append(Subject(put, lambda: saver.put_from_threads([MESSAGE], many, each)))
        long = saver.message_objects([MESSAGE] * 100)
        subjects.append(Subject(whole, lambda: saver.put_from_threads(long, many, each)))
    claims = [
        Claim(tasks, added, "rate", Target(low=5)),
        Claim(tasks, whole, "rate", Target(low=5)),
        Claim(tasks, put, "rate"),
        Claim(threads, put, "rate"),
    ]
    return compared(place, "crowd", subjects, claims, rounds=12, level="power")


def memory(place: Workplace) -> list[Row]:
    """In memory, against lists and locks; each round begins with empty buffers."""
    count, batch = 5_000, 100
    plain, ours = "lists and locks", "pagefile memory:, append"
    together = f"pagefile memory:, append_many of {batch}"
    empty = _Empty()
    subjects = [
        Subject(plain, lambda: _append_plain(empty.plain, count), empty.renew),
        Subject(ours, lambda: append_singly(empty.ours, MESSAGE, count), empty.renew),
        Subject(together, lambda: _append_batches(empty.ours, count, batch), empty.renew),
    ]
    claims = [Claim(ours, plain, target=Target(high=3)), Claim(together, plain)]
    return compared(place, "memory", subjects, claims, rounds=24, level="none")


class _Empty:
    """Buffers that are new before each round."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.plain = PlainBuffer()
        self.ours = memory_buffer()


def _append_plain(buffer: PlainBuffer, count: int) -> int:
    for _ in range(count):
        buffer.append("t", MESSAGE, "user", "agent")
    return count


def _append_batches(buffer: Buffer, count: int, batch: int) -> int:
    for _ in range(count // batch):
        append_together(buffer, [MESSAGE] * batch)
    return count


_MOST_THREADS = 10_000
_CREATED = 100


def threads(place: Workplace) -> list[Row]:
    """The first append of a thread, beside ever more threads, with room and in full buffers.

    A full buffer in memory lets go of a thread for each new one, so full ones are
    compared with full ones, and those that have room with each other. On a file,
    beside as many threads, a new one is compared with what the durable peers do.
    """
    rows: list[Row] = _durable_threads(place)
    for maker, of, target in (
        (_new_plain, "lists and locks", None),
        (_new_ours, "pagefile memory:", Target(0.8, 1.2)),
    ):
        subjects: list[Subject] = []
        claims: list[Claim] = []
        for room, how in ((2 * _MOST_THREADS, "with room"), (0, "full")):
            names = [f"{of}, {how}, {n:,} threads" for n in _THREADS]
            subjects += [
                _creator(name, n, partial(maker, room or n))
                for name, n in zip(names, _THREADS, strict=True)
            ]
            claims += [Claim(name, names[0], target=target) for name in names[1:]]
        rows += compared(place, "threads", subjects, claims, rounds=12, level="none")
    return rows


def _durable_threads(place: Workplace) -> list[Row]:
    """The first message of a new thread on a file that has many."""
    beside = 1_000 if place.quick else _MOST_THREADS
    ours = f"pagefile file, {beside:,} threads"
    started = f"{_SESSION}, {beside:,} sessions"
    put = f"{_SAVER}, {beside:,} threads, 1 plain dict"
    buffer = open_handle(place, "process").context
    buffer.max_threads = 100 * _MOST_THREADS
    numbers = itertools.count()

    def create(many: int) -> int:
        for _ in range(many):
            append_singly(buffer, MESSAGE, 1, f"thread-{next(numbers)}")
        return many

    place.announce(f"building {beside:,} threads", 1)
    create(beside)
    subjects = [Subject(ours, partial(create, _CREATED))]
    if peers.has("agents"):
        session = place.closing(peers.Session(place.new_path(), "process"))
        session.fill(MESSAGE, 1, sessions=beside)
        subjects.append(Subject(started, partial(session.start_many, MESSAGE, _CREATED)))
    if peers.has("langgraph"):
        saver = place.closing(peers.Saver(place.new_path(), "process"))
        saver.start_many([MESSAGE], beside)
        subjects.append(Subject(put, partial(saver.start_many, [MESSAGE], _CREATED)))
    claims = [Claim(ours, peer) for peer in (started, put)]
    return compared(place, "threads", subjects, claims, rounds=12, level="process")


def _creator(name: str, count: int, maker: Callable[[], PlainBuffer | Buffer]) -> Subject:
    """Each round begins with a new buffer that has `count` threads."""
    buffer = maker()
    numbers = itertools.count()

    def create(many: int) -> int:
        for _ in range(many):
            buffer.append(f"thread-{next(numbers)}", MESSAGE, "user", "agent")
        return many

    def refill() -> None:
        nonlocal buffer
        buffer = maker()
        create(count)

    return Subject(name, lambda: create(_CREATED), refill)


def _new_plain(max_threads: int) -> PlainBuffer:
    return PlainBuffer(max_threads=max_threads)


def _new_ours(max_threads: int) -> Buffer:
    return memory_buffer(max_threads)

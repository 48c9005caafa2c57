"""Writing to a thread: alone, in a crowd, in memory, and to threads that are new."""

from __future__ import annotations

import itertools
from collections.abc import Callable

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
from _context_standin import buffer_of
from _measure import Subject
from _row import Row, Target
from _workplace import Workplace

_SESSION = "SQLiteSession"
_SAVER = "SqliteSaver"
_OURS = "pagefile append"
_AWAITED = "pagefile append, awaited"
_LEVELS: tuple[peers.Level, ...] = ("power", "process")


def append(place: Workplace) -> list[Row]:
    """A lone writer, one message per commit, at both levels; targets are for `power`."""
    return [row for level in _LEVELS for row in _append(place, level)]


def _append(place: Workplace, level: peers.Level) -> list[Row]:
    count, long = 50, [MESSAGE] * 100
    # What LangGraph really puts at the hundredth message; the other case is the favourable one.
    whole = f"{_SAVER}.put, {len(long)} messages in the checkpoint"
    put, add = f"{_SAVER}.put, 1 message in it", f"{_SESSION}.add_items"
    handle = open_handle(place, level)
    buffer, awaited = buffer_of(handle), Awaited(place, handle)
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
        subjects.append(Subject(whole, lambda: saver.put_many(long, count)))
    held = level == "power"
    claims = [
        Claim(_OURS, add, target=Target(high=1) if held else None),
        Claim(_AWAITED, add, target=Target(high=1) if held else None),
        Claim(_OURS, put, target=Target(high=1 / 3) if held else None),
    ]
    return compared(place, "append", subjects, claims, rounds=24, level=level)


def crowd(place: Workplace) -> list[Row]:
    """64 writers at level power, on the disk as it is: the peers take no VFS of ours.

    All of SQLiteSession's tasks use one session: with one for each it would open
    a connection for each session in each worker thread.
    """
    many, each = 64, 4
    tasks, threads = f"pagefile, {many} tasks", f"pagefile, {many} threads"
    added, put = f"{_SESSION}, {many} tasks", f"{_SAVER}, {many} threads"
    handle = open_handle(place, "power")
    buffer, awaited = buffer_of(handle), Awaited(place, handle)
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
    claims = [
        Claim(tasks, added, "rate", Target(low=5)),
        Claim(tasks, put, "rate", Target(low=5)),
        Claim(threads, put, "rate"),
    ]
    return compared(place, "crowd", subjects, claims, rounds=16, level="power")


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
    """The first append of a thread, beside ever more threads; at 10,000 the buffers are full.

    A full buffer in memory lets go of a thread for each new one.
    """
    rows: list[Row] = []
    for maker, name, target in (
        (_new_plain, "lists and locks", None),
        (_new_ours, "pagefile memory:", Target(0.8, 1.2)),
    ):
        counts = (100, 1_000, _MOST_THREADS)
        names = [f"{name}, {n:,} threads" for n in counts]
        subjects = [_creator(n, maker, own) for n, own in zip(counts, names, strict=True)]
        claims = [Claim(own, names[0], target=target) for own in names[1:]]
        rows += compared(place, "threads", subjects, claims, rounds=12, level="none")
    return rows


def _creator(count: int, maker: Callable[[], PlainBuffer | Buffer], name: str) -> Subject:
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


def _new_plain() -> PlainBuffer:
    return PlainBuffer(max_threads=_MOST_THREADS)


def _new_ours() -> Buffer:
    return memory_buffer(max_threads=_MOST_THREADS)

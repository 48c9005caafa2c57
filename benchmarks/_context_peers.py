"""The durable peers: what two agent libraries keep messages in, each on a file of its own.

Neither library chooses `PRAGMA synchronous`: it is whatever the SQLite of the
standard library was built with, FULL for most and NORMAL for some. To compare
equals, the level is set here on every connection they open, next to the WAL
mode they set themselves, and read back, so that a row states a fact:

    power    WAL, synchronous = FULL: a commit is synced before it returns
    process  WAL, synchronous = NORMAL: it survives the process, not a power cut

`SQLiteSession` opens one connection per session and worker thread, and passes
each to `_configure_connection`; a subclass adds the pragma there. `SqliteSaver`
is given the one connection that it uses.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import itertools
import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

Level = Literal["power", "process"]
Message = Mapping[str, str]

INSTALL = "pip install --constraint constraints.txt --editable '.[bench]'"

_SYNCHRONOUS: dict[Level, str] = {"power": "FULL", "process": "NORMAL"}
_DISTRIBUTIONS = {"agents": "openai-agents", "langgraph": "langgraph-checkpoint-sqlite"}
_SESSION = "benchmark"


def has(package: Literal["agents", "langgraph"]) -> bool:
    """Whether a peer can be measured."""
    return importlib.util.find_spec(package) is not None


def notes() -> list[str]:
    """Versions of the peers, and for those that are missing how to get them."""
    there, missing = [], []
    for package, name in _DISTRIBUTIONS.items():
        if importlib.util.find_spec(package):
            there.append(f"{name} {importlib.metadata.version(name)}")
        else:
            missing.append(name)
    lines = []
    if there:
        lines.append(f"Peers: {', '.join(there)}, on SQLite {sqlite3.sqlite_version}.")
    if missing:
        lines.append(f"Rows of {' and '.join(missing)} are skipped. To install: {INSTALL}")
    return lines


def set_level(connection: sqlite3.Connection, level: Level) -> None:
    """Make commits last as long as Pagefile's do at this level, and see that it took."""
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[level]}")
    connection.execute("PRAGMA fullfsync = ON")
    found = [
        connection.execute(f"PRAGMA {of}").fetchone()[0] for of in ("journal_mode", "synchronous")
    ]
    if found != ["wal", 2 if level == "power" else 1]:
        raise RuntimeError(f"a peer's connection is at {found}, not at level {level}")


class Session:
    """OpenAI Agents' `SQLiteSession`: one row per message, an async API over worker threads."""

    def __init__(self, path: Path, level: Level) -> None:
        from agents.memory.sqlite_session import SQLiteSession

        class Levelled(SQLiteSession):  # type: ignore[misc]
            @staticmethod
            def _configure_connection(conn: sqlite3.Connection) -> None:
                SQLiteSession._configure_connection(conn)
                set_level(conn, level)

        self._path = path
        self._made = partial(Levelled, db_path=path)
        self._session = self._made(_SESSION)
        self._runner = asyncio.Runner()
        self._numbers = itertools.count()

    def append_many(self, message: Message, count: int) -> int:
        """One `add_items` after the other."""

        async def all_of_them() -> None:
            for _ in range(count):
                await self._session.add_items([message])

        self._runner.run(all_of_them())
        return count

    def append_from_tasks(self, message: Message, many: int, each: int) -> int:
        """Concurrent tasks on one session: one connection per worker, not per task and worker."""

        async def one() -> None:
            for _ in range(each):
                await self._session.add_items([message])

        async def all_of_them() -> None:
            await asyncio.gather(*(one() for _ in range(many)))

        self._runner.run(all_of_them())
        return many * each

    def start_many(self, message: Message, count: int) -> int:
        """The first message of sessions that are new, each closed again: it has a connection."""

        async def all_of_them() -> None:
            for _ in range(count):
                session = self._made(f"session-{next(self._numbers)}")
                await session.add_items([message])
                session.close()

        self._runner.run(all_of_them())
        return count

    def copy_many(self, count: int) -> int:
        """It has no fork: what is read is added to a session that is new."""

        async def all_of_them() -> None:
            for _ in range(count):
                session = self._made(f"session-{next(self._numbers)}")
                await session.add_items(await self._session.get_items())
                session.close()

        self._runner.run(all_of_them())
        return count

    def read(self, limit: int | None, times: int = 1) -> int:
        """`get_items`, the messages decoded; how many the last call gave."""

        async def all_of_them() -> int:
            for _ in range(times):
                items = await self._session.get_items(limit)
            return len(items)

        return self._runner.run(all_of_them())

    def fill(self, message: Message, count: int, sessions: int = 1) -> None:
        """Rows as `add_items` writes them, but in bulk: building is not what is measured."""
        text = json.dumps(message)
        names = [_SESSION, *(f"{_SESSION}-{number}" for number in range(1, sessions))]
        connection = sqlite3.connect(self._path)
        with connection:
            connection.executemany(
                "INSERT OR IGNORE INTO agent_sessions (session_id) VALUES (?)",
                ((name,) for name in names),
            )
            connection.executemany(
                "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)",
                ((name, text) for name in names for _ in range(count)),
            )
        connection.close()

    def close(self) -> None:
        self._runner.close()
        self._session.close()


class Saver:
    """LangGraph's `SqliteSaver`: one checkpoint per step, one connection behind a lock.

    A checkpoint holds the whole `messages` channel, so what a put costs grows
    with the thread. Where it is not said otherwise, checkpoints here hold one
    message, however many were put: the case that is most favourable to it. So
    are messages that are dicts; `message_objects` has what graphs mostly keep.
    """

    def __init__(self, path: Path, level: Level) -> None:
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.sqlite import SqliteSaver

        self._empty: dict[str, Any] = dict(empty_checkpoint())
        self._ids = itertools.count()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._saver = SqliteSaver(self._connection)
        self._saver.setup()
        set_level(self._connection, level)

    @staticmethod
    def message_objects(messages: Sequence[Message]) -> list[Any]:
        from langchain_core.messages import HumanMessage

        return [HumanMessage(content=message["content"]) for message in messages]

    def put_many(self, messages: Sequence[Any], count: int, thread: str = "t") -> int:
        """One put after the other, each the child of the one before."""
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        checkpoint = self._empty | {"channel_values": {"messages": messages}}
        for step in range(count):
            # Ids grow, as its own do; making them is the graph's cost, not the saver's.
            made = checkpoint | {"id": f"{next(self._ids):032x}"}
            metadata = {"source": "loop", "step": step, "parents": {}}
            config = self._saver.put(config, made, metadata, {})
        return count

    def start_many(self, messages: Sequence[Any], count: int) -> int:
        """The first checkpoint of threads that are new."""
        for _ in range(count):
            self.put_many(messages, 1, f"thread-{next(self._ids)}")
        return count

    def copy_many(self, count: int, thread: str = "t") -> int:
        """It has no fork to a thread of its own: the newest checkpoint is put there again."""
        for _ in range(count):
            config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            found = self._saver.get_tuple(config)
            child = f"thread-{next(self._ids)}"
            config = {"configurable": {"thread_id": child, "checkpoint_ns": ""}}
            self._saver.put(config, found.checkpoint, found.metadata, {})
        return count

    def put_from_threads(self, messages: Sequence[Any], many: int, each: int) -> int:
        """Concurrent threads, each with a thread id of its own."""
        threads = [
            threading.Thread(target=self.put_many, args=(messages, each, f"t{number}"))
            for number in range(many)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return many * each

    def read(self, thread: str = "t") -> int:
        """`get_tuple` of the newest checkpoint; how many messages it holds."""
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        return len(self._saver.get_tuple(config).checkpoint["channel_values"]["messages"])

    def close(self) -> None:
        self._connection.close()

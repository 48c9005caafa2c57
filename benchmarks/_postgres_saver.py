"""LangGraph's PostgresSaver as a peer: 64 writers that put checkpoints of one body each."""

from __future__ import annotations

import importlib.util
import itertools
import threading
from typing import Any

from _raw_peer import BODY
from _servers import OWNER, PostgresServer

_WRITERS = 64
#: A connection for every second writer; a default server takes no more than a hundred.
_CONNECTIONS = 32


def is_there() -> bool:
    """Whether the peer is installed."""
    if importlib.util.find_spec("langgraph") is None:
        return False
    return importlib.util.find_spec("langgraph.checkpoint.postgres") is not None


class Saver:
    """Each writer has a thread of its own, in LangGraph's sense; each put is one commit."""

    def __init__(self, server: PostgresServer) -> None:
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        address = f"host=127.0.0.1 port={server.port} user={OWNER} dbname=stores"
        settings: dict[str, Any] = {"autocommit": True, "row_factory": dict_row}
        self._pool: Any = ConnectionPool(
            address, min_size=_CONNECTIONS, max_size=_CONNECTIONS, kwargs=settings
        )
        self._pool.wait(30)
        self._saver: Any = PostgresSaver(self._pool)
        self._saver.setup()
        self._checkpoint = dict(empty_checkpoint()) | {"channel_values": {"body": BODY.decode()}}
        self._ids = itertools.count()

    def put_from_threads(self, each: int) -> int:
        """As many puts as there are writers, times `each`."""
        writers = [
            threading.Thread(target=self._put_many, args=(f"t{n}", each)) for n in range(_WRITERS)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        return _WRITERS * each

    def _put_many(self, thread: str, count: int) -> None:
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        for step in range(count):
            made = self._checkpoint | {"id": f"{next(self._ids):032x}"}
            metadata = {"source": "loop", "step": step, "parents": {}}
            config = self._saver.put(config, made, metadata, {})

    def close(self) -> None:
        self._pool.close()

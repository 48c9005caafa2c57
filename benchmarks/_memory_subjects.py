"""What stores and finds memories: ours, and peers that are installed.

Each has the same steps: `open`, `fill` many at once as fast as it can, `put` one,
`crowd`: many writers at once in the way that suits it best, `search` for ten, `close`.
A peer is given the vectors that everybody has. What a `put` that returned survives
is said with each: everything on disk here syncs before it answers, unless it says not.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import apsw
import numpy as np

import pagefile
from _memory_data import DIMENSIONS, GivenVectors, Vectors
from pagefile import Episode, Memory
from pagefile.aio.memory import AsyncMemory
from pagefile.memory.documents import owner_key
from pagefile.recall.records import decoded, entries_of, log_of
from pagefile.recall.vectors.vector_index import VectorIndex, unpacked_rows

WANTED = 10
WRITERS = 64


class Subject(Protocol):
    """One of those that are compared."""

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None: ...
    def put(self, user: str, text: str, row: Vectors) -> None: ...
    def crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None: ...
    def search(self, user: str, text: str, row: Vectors) -> list[str]: ...
    def close(self) -> None: ...


class Threaded:
    """A subject whose writers are threads."""

    def put(self, user: str, text: str, row: Vectors) -> None:
        raise NotImplementedError

    def crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(self.put, [user] * len(texts), texts, rows))


class Ours:
    """Pagefile's memory, whole: words, vectors, structure. On a file a put is synced."""

    def __init__(self, folder: Path, url: str) -> None:
        self._table: dict[str, Vectors] = {}
        self._handle = pagefile.open(folder / "ours.db" if url == "file" else url)
        self._memory = Memory(self._handle, embedder=GivenVectors(self._table))
        self._number = 0

    def _episode(self, user: str, text: str, row: Vectors) -> Episode:
        self._number += 1
        session = f"session-{self._number // 20}"
        return Episode(session_id=session, user_id=user, input=text, embedding=row)  # type: ignore[arg-type]  # An array will do.

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        for at in range(0, len(texts), 1_000):
            part = zip(texts[at : at + 1_000], rows[at : at + 1_000], strict=True)
            self._memory.remember_many([self._episode(user, text, row) for text, row in part])

    def put(self, user: str, text: str, row: Vectors) -> None:
        self._memory.remember(self._episode(user, text, row))

    def crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        memory = AsyncMemory(self._memory)

        async def writer(first: int) -> None:
            for at in range(first, len(texts), WRITERS):
                await memory.remember(self._episode(user, texts[at], rows[at]))

        async def all_of_them() -> None:
            await asyncio.gather(*map(writer, range(WRITERS)))

        asyncio.run(all_of_them())

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        self._table.clear()
        self._table[text] = row
        return [e.input for e in self._memory.recall(text, user_id=user, limit=WANTED)]

    def close(self) -> None:
        self._memory.close()
        self._handle.close()


class OursVectorsAlone(Ours):
    """The vector arm of the same, as it is compared with an exact scan."""

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        self._table.clear()
        self._table[text] = row
        found = self._memory.recall_scored(text, user_id=user, limit=WANTED, alpha=1)
        return [match.episode.input for match in found]


class OursReopened(Ours):
    """The same file opened by another process, which only searches: what the index takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "file")


class OurArmReopened:
    """The vector arm of that file and nothing else, folded from its log: what the arm takes."""

    def __init__(self, folder: Path) -> None:
        self._handle = pagefile.open(folder / "ours.db")
        self._store = self._handle.store
        self._log = ""
        self._arm = VectorIndex()

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        self._log = log_of(1, owner_key(user))
        some: list[bytes] = []
        for entry in entries_of(self._store, self._log):
            some.append(decoded(entry).vector)
            if len(some) == 256:
                self._add(some)
                some = []
        self._add(some)

    def _add(self, raws: list[bytes]) -> None:
        self._arm.add_many(unpacked_rows(raws, self._arm), np.ones(len(raws), np.bool_))

    def put(self, user: str, text: str, row: Vectors) -> None:
        self._arm.add(row)

    def crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        for text, row in zip(texts, rows, strict=True):
            self.put(user, text, row)

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        near = self._arm.nearest(row, None, 0.5)
        best = near.rows[np.argsort(-near.scores)[:WANTED]].tolist()
        # Texts as a search finds them: by the entry's key, in the store.
        stored = [self._store.read(self._log, at, at + 1)[0] for at in best]
        found = self._store.get_many([decoded(entry).key for entry in stored])
        return [document.value["input"] for document in found if document is not None]

    def close(self) -> None:
        self._handle.close()


class NumpyExact(Threaded):
    """All vectors of a user in one float32 matrix, multiplied. Nothing is kept on disk."""

    def __init__(self, folder: Path) -> None:
        self._texts: dict[str, list[str]] = {}
        self._rows: dict[str, Vectors] = {}

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        self._texts.setdefault(user, []).extend(texts)
        before = self._rows.get(user)
        self._rows[user] = rows.copy() if before is None else np.concatenate((before, rows))

    def put(self, user: str, text: str, row: Vectors) -> None:
        self.fill(user, [text], row[None, :])

    def crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        for text, row in zip(texts, rows, strict=True):  # It has nothing to wait for.
            self.put(user, text, row)

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        scores = self._rows[user] @ row
        best = np.argpartition(scores, -WANTED)[-WANTED:]
        return [self._texts[user][at] for at in best[np.argsort(-scores[best])]]

    def close(self) -> None:
        """Nothing to let go of."""


class Fts5(Threaded):
    """SQLite's full-text index alone, one for all users, as most build it; WAL, synced."""

    def __init__(self, folder: Path) -> None:
        self._db = apsw.Connection(str(folder / "fts.db"))
        self._lock = threading.Lock()
        self._run("PRAGMA journal_mode=wal")
        self._run("PRAGMA synchronous=full")
        self._run("CREATE VIRTUAL TABLE m USING fts5(text, user UNINDEXED, tokenize='porter')")

    def _run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        with self._db:
            self._db.executemany("INSERT INTO m VALUES (?, ?)", [(text, user) for text in texts])

    def put(self, user: str, text: str, row: Vectors) -> None:
        with self._lock:
            self._run("INSERT INTO m VALUES (?, ?)", (text, user))

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        query = " OR ".join(f'"{word}"' for word in text.split())
        sql = "SELECT text FROM m WHERE m MATCH ? AND user = ? ORDER BY rank LIMIT ?"
        return [found[0] for found in self._run(sql, (query, user, WANTED))]

    def close(self) -> None:
        self._db.close()


class LangGraph(Threaded):
    """LangGraph's store with an index: in memory, or in SQLite with a rollback journal, synced."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._given: dict[str, list[float]] = {}
        self._number = 0
        self._exit: Callable[[], None] = lambda: None
        self._path = str(folder / "graph.db")
        if kind == "memory":
            from langgraph.store.memory import InMemoryStore

            self._store: Any = InMemoryStore(index=self._index())
            return
        import sqlite3

        if not hasattr(sqlite3.Connection, "enable_load_extension"):
            # The standard library's may be built without extensions, which its index is.
            sys.modules["sqlite3"] = __import__("pysqlite3")
        from langgraph.store.sqlite import SqliteStore

        opened = SqliteStore.from_conn_string(self._path, index=self._index())
        self._store = opened.__enter__()
        self._exit = lambda: opened.__exit__(None, None, None)
        self._store.setup()

    def _index(self) -> Any:
        return {"dims": DIMENSIONS, "embed": self._embed, "fields": ["text"]}

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        # Some of its stores embed the whole value as JSON, whatever fields are asked for.
        plain = [json.loads(text)["text"] if text[:1] == "{" else text for text in texts]
        return [self._given[text] for text in plain]

    def _place(self, user: str, text: str, row: Vectors) -> tuple[Any, ...]:
        self._given[text] = row.tolist()
        self._number += 1
        return ("memories", user), f"m{self._number}", {"text": text}

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        from langgraph.store.base import PutOp

        for at in range(0, len(texts), 100):
            part = zip(texts[at : at + 100], rows[at : at + 100], strict=True)
            self._store.batch([PutOp(*self._place(user, text, row)) for text, row in part])
            self._given.clear()

    def put(self, user: str, text: str, row: Vectors) -> None:
        self._store.put(*self._place(user, text, row))

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        self._given[text] = row.tolist()
        found = self._store.search(("memories", user), query=text, limit=WANTED)
        return [item.value["text"] for item in found]

    def close(self) -> None:
        self._exit()


class LangGraphBatching(LangGraph):
    """Its async store, which puts what tasks ask for at the same time into one transaction."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "sqlite")

    def crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        asyncio.run(self._crowd(user, texts, rows))

    async def _crowd(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        from langgraph.store.sqlite.aio import AsyncSqliteStore

        async with AsyncSqliteStore.from_conn_string(self._path, index=self._index()) as store:
            await store.setup()

            async def writer(first: int) -> None:
                for at in range(first, len(texts), WRITERS):
                    await store.aput(*self._place(user, texts[at], rows[at]))

            await asyncio.gather(*map(writer, range(WRITERS)))


class Mem0(Threaded):
    """mem0 with `infer=False`: no model, its local vector store and its history in SQLite.

    Both files have a rollback journal and are synced, each by a commit of its own.
    """

    def __init__(self, folder: Path) -> None:
        os.environ.update(MEM0_TELEMETRY="false", MEM0_DIR=str(folder), OPENAI_API_KEY="none")
        from mem0 import Memory as Peer
        from qdrant_client import QdrantClient

        # Its writers take turns: two threads at once would begin a transaction in another's.
        self._lock = threading.Lock()
        client = QdrantClient(path=str(folder / "q"), force_disable_check_same_thread=True)
        store = {"client": client, "embedding_model_dims": DIMENSIONS, "on_disk": True}
        self._memory: Any = Peer.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": str(folder / "history.db"),
            }
        )
        self._rows: dict[str, list[float]] = {}
        self._memory.embedding_model = self

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._rows[text]

    def embed_batch(
        self, texts: Sequence[str], memory_action: str | None = None
    ) -> list[list[float]]:
        return [self._rows[text] for text in texts]

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        for text, row in zip(texts, rows, strict=True):
            self.put(user, text, row)
            self._rows.clear()

    def put(self, user: str, text: str, row: Vectors) -> None:
        self._rows[text] = row.tolist()
        with self._lock:
            self._memory.add([{"role": "user", "content": text}], user_id=user, infer=False)

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        self._rows[text] = row.tolist()
        found = self._memory.search(text, filters={"user_id": user}, top_k=WANTED)
        return [one["memory"] for one in found["results"]]

    def close(self) -> None:
        self._memory.vector_store.client.close()


class Chroma(Threaded):
    """chromadb on disk, one collection, filtered by user; its SQLite file is synced."""

    def __init__(self, folder: Path) -> None:
        import chromadb

        self._client: Any = chromadb.PersistentClient(
            str(folder / "chroma"), settings=chromadb.Settings(anonymized_telemetry=False)
        )
        self._all = self._client.create_collection("memories", metadata={"hnsw:space": "cosine"})
        self._number = 0

    def fill(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        for at in range(0, len(texts), 1_000):
            self._add(user, texts[at : at + 1_000], rows[at : at + 1_000])

    def _add(self, user: str, texts: Sequence[str], rows: Vectors) -> None:
        ids = [f"m{self._number + i}" for i in range(len(texts))]
        self._number += len(texts)
        self._all.add(
            ids=ids, embeddings=rows, documents=list(texts), metadatas=[{"user": user}] * len(texts)
        )

    def put(self, user: str, text: str, row: Vectors) -> None:
        self._add(user, [text], row[None, :])

    def search(self, user: str, text: str, row: Vectors) -> list[str]:
        found = self._all.query(query_embeddings=[row], n_results=WANTED, where={"user": user})
        return list(found["documents"][0])

    def close(self) -> None:
        """It has no way to be closed."""


#: By name: what must be installed, and how it is made.
SUBJECTS: dict[str, tuple[str, Callable[[Path], Subject]]] = {
    "pagefile, file": ("pagefile", lambda folder: Ours(folder, "file")),
    "pagefile, file reopened": ("pagefile", OursReopened),
    "pagefile, vector arm reopened": ("pagefile", OurArmReopened),
    "pagefile, memory:": ("pagefile", lambda folder: Ours(folder, "memory:")),
    "pagefile, vectors alone": ("pagefile", lambda folder: OursVectorsAlone(folder, "memory:")),
    "numpy float32 exact": ("numpy", NumpyExact),
    "FTS5 alone": ("apsw", Fts5),
    "LangGraph InMemoryStore": ("langgraph", lambda folder: LangGraph(folder, "memory")),
    "LangGraph SqliteStore": ("langgraph.store.sqlite", lambda folder: LangGraph(folder, "sqlite")),
    "LangGraph AsyncSqliteStore": ("langgraph.store.sqlite", LangGraphBatching),
    "mem0, infer=False": ("mem0", Mem0),
    "chromadb": ("chromadb", Chroma),
}


def installed(name: str) -> bool:
    """Whether a subject can be measured here."""
    try:
        return importlib.util.find_spec(SUBJECTS[name][0]) is not None
    except ModuleNotFoundError:
        return False


def size_on_disk(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def told(figures: dict[str, Any]) -> str:
    """Figures as a line for another process."""
    return json.dumps(figures)

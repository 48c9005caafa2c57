"""What a search through a vector arm costs, next to the bare client, and what it finds.

    python benchmarks/arms.py [--json] [--quick] [--only NAME] [--folder PATH]

One user with 100,000 vectors (10,000 with --quick) and one with 5 lie in the
same place. The servers are started by this script. `recall@10` is the share of
the true ten nearest that came back; the small user has to get its five each time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import redis

import pagefile
from _measure import Spread, Subject, Timing, measure, rate_ratio, spread
from _row import Row, Target
from _run import Suite, run
from _servers import PostgresServer, QdrantServer, RedisServer, find_qdrant, find_redis
from _workplace import Workplace
from pagefile import Append, Batch, Episode, Memory, Store, Vector
from pagefile.recall.arms.arm import Part, VectorArm
from pagefile.recall.arms.memory import MemoryArm
from pagefile.recall.arms.pgvector import PgvectorArm
from pagefile.recall.arms.qdrant import QdrantArm, vector_name
from pagefile.recall.arms.redis import RedisArm
from pagefile.recall.embed.embedder import Floats, unit_rows

_DIMENSIONS = 384
_TOPICS = 200
_QUERIES = 20
_LARGE = Part("acme", "large", "topics", _DIMENSIONS)
_SMALL = Part("acme", "small", "topics", _DIMENSIONS)
_COLLECTION = "bench"


class Topics:
    """An embedder that takes no time: near one of some hundred topics, as texts are."""

    name, dimensions = "topics", _DIMENSIONS

    def __init__(self, seed: int = 5) -> None:
        self._draw = np.random.default_rng(seed)
        self._topics = self._draw.standard_normal((_TOPICS, _DIMENSIONS))

    def vectors(self, count: int) -> Floats:
        topics = self._topics[self._draw.integers(_TOPICS, size=count)]
        drawn = topics + 0.8 * self._draw.standard_normal((count, _DIMENSIONS))
        return unit_rows(drawn.astype("<f2"), count)

    def embed(self, text: str) -> list[float]:
        row: list[float] = self.vectors(1)[0].tolist()
        return row

    def embed_batch(self, texts: Sequence[str]) -> Floats:
        return self.vectors(len(texts))


class _Data:
    """Vectors, questions, and the true ten nearest of each."""

    def __init__(self, place: Workplace) -> None:
        topics = Topics()
        self.vectors = topics.vectors(10_000 if place.quick else 100_000)
        self.small = topics.vectors(5)
        self.queries = topics.vectors(_QUERIES)
        self.ids = [_LARGE.point("v", n, n) for n in range(len(self.vectors))]
        self.truth = [
            {self.ids[n] for n in np.argsort(-(self.vectors @ query))[:10]}
            for query in self.queries
        ]

    def fill(self, arm: VectorArm) -> float:
        """Put all of them in; the seconds that took."""
        started = time.perf_counter()
        arm.prepare(_LARGE.model, _LARGE.dimensions)
        for start in range(0, len(self.ids), 500):
            arm.upsert(_LARGE, self.ids[start : start + 500], self.vectors[start : start + 500])
        arm.upsert(_SMALL, [_SMALL.point("v", n, n) for n in range(5)], self.small)
        return time.perf_counter() - started


def _data(place: Workplace) -> _Data:
    if "data" not in place.kept:
        place.kept["data"] = _Data(place)
    data: _Data = place.kept["data"]
    return data


def _rows(
    place: Workplace, case: str, arm: VectorArm, bare_name: str, bare: Callable[[Floats], Any]
) -> list[Row]:
    """The bare client, the arm, how much of the truth it finds, and what the small user gets."""
    data = _data(place)
    ours, rounds = f"{arm.name} arm, 10 nearest", place.rounds(12)
    place.announce(case, rounds)

    def each(ask: Callable[[Floats], Any]) -> Callable[[], int]:
        return lambda: len([ask(query) for query in data.queries])

    timings = measure(
        [
            Subject(bare_name, each(bare)),
            Subject(ours, each(lambda query: arm.nearest(_LARGE, query, 10))),
        ],
        rounds,
        place.advance,
    )
    found, waited = list[float](), list[float]()
    for query, truth in zip(data.queries, data.truth, strict=True):
        started = time.perf_counter()
        nearest = arm.nearest(_LARGE, query, 10).nearest
        waited.append(1e3 * (time.perf_counter() - started))
        found.append(len({one for one, _ in nearest} & truth) / 10)
    small = [len(arm.nearest(_SMALL, query, 10).nearest) for query in data.queries]
    ratio = rate_ratio(timings[ours], timings[bare_name])
    return [
        Row(case, bare_name, timings[bare_name]),
        Row(case, ours, timings[ours], "× rate of the bare client", ratio, Target(low=0.5)),
        Row(case, ours, timings[ours], "ms for a question (quartiles)", spread(waited)),
        Row(case, ours, timings[ours], "recall@10", _figure(found), Target(low=0.9)),
        Row(case, ours, timings[ours], "of 5, small user", _figure(small), Target(low=5)),
    ]


def _filled(place: Workplace, case: str, seconds: float, size_bytes: int) -> Row:
    """What filling took a vector, and what a vector takes on the server."""
    count = len(_data(place).ids)
    each = size_bytes / count
    name = f"filling, {count:,} vectors of {_DIMENSIONS} in {seconds:,.0f} s"
    timing = Timing([seconds / count], [0.0])
    return Row(case, name, timing, "bytes a vector", Spread(each, each, each))


def _figure(values: Sequence[float]) -> Spread:
    return Spread(float(np.mean(values)), float(min(values)), float(max(values)))


def _qdrant(place: Workplace) -> QdrantServer:
    if "qdrant" not in place.kept:
        server = QdrantServer(under=place.folder.parent)
        place.kept["qdrant"] = place.open.enter_context(server)
        arm = place.closing(QdrantArm(server.url, collection=_COLLECTION, timeout_seconds=60))
        _data(place).fill(arm)
    server = place.kept["qdrant"]
    assert isinstance(server, QdrantServer)
    return server


def _over(place: Workplace, case: str, *, by_grpc: bool) -> list[Row]:
    if find_qdrant() is None:
        return []
    from qdrant_client import QdrantClient, models

    server = _qdrant(place)
    settings: dict[str, Any] = {"prefer_grpc": by_grpc, "grpc_port": server.grpc_port}
    client = place.closing(
        QdrantClient(url=server.url, check_compatibility=False, timeout=60, **settings)
    )
    mine = models.Filter(
        must=[models.FieldCondition(key="part", match=models.MatchValue(value=_LARGE.digest))]
    )
    using = vector_name(_LARGE.model, _LARGE.dimensions)

    def bare(query: Floats) -> Any:
        return client.query_points(
            _COLLECTION,
            query=query.tolist(),
            using=using,
            query_filter=mine,
            limit=10,
            with_payload=False,
        )

    arm = QdrantArm(server.url, collection=_COLLECTION, timeout_seconds=60, **settings)
    wire = "gRPC" if by_grpc else "HTTP"
    return _rows(place, case, place.closing(arm), f"qdrant-client, {wire}", bare)


def qdrant_http(place: Workplace) -> list[Row]:
    return _over(place, "qdrant-http", by_grpc=False)


def qdrant_grpc(place: Workplace) -> list[Row]:
    return _over(place, "qdrant-grpc", by_grpc=True)


def pgvector(place: Workplace) -> list[Row]:
    server = PostgresServer(place.folder.parent)
    place.open.callback(server.stop)
    with server.connect(database="stores") as connection:
        connection.execute("CREATE EXTENSION vector")
    schema = "bench"
    arm = place.closing(PgvectorArm(server.url(schema), timeout_seconds=60))
    seconds = _data(place).fill(arm)
    bare_connection = place.closing(server.connect(database="stores"))
    bare_connection.execute(f"SET search_path = {schema}, public")

    def bare(query: Floats) -> Any:
        return bare_connection.execute(
            "SELECT id FROM vector_points WHERE tenant = 'acme' AND owner = 'large' "
            "ORDER BY embedding <=> %s::vector LIMIT 10",
            (str(query.tolist()),),
        ).fetchall()

    size = bare_connection.execute("SELECT pg_total_relation_size('vector_points')").fetchone()
    assert size is not None
    return [
        *_rows(place, "pgvector", arm, "bare psycopg, exact", bare),
        _filled(place, "pgvector", seconds, size[0]),
    ]


def kept(place: Workplace) -> list[Row]:
    """Vectors in the transaction of the data, beside the arm that is filled afterwards."""
    # So that both tables fit: beyond it, what is measured is the copying of pages.
    server = PostgresServer(place.folder.parent, ["shared_buffers=512MB"])
    place.open.callback(server.stop)
    handle = place.open.enter_context(pagefile.open(server.new_url(vectors=True), tenant="acme"))
    arm = place.closing(PgvectorArm(server.url("derived"), timeout_seconds=60))
    arm.prepare(_LARGE.model, _LARGE.dimensions)
    rows = list[Row]()
    for count in (1_000, 10_000) if place.quick else (10_000, 100_000):
        rows += _compared(place, handle.store, arm, count)
    return [*rows, *_remembering(place, server)]


def _compared(place: Workplace, store: Store, arm: PgvectorArm, count: int) -> list[Row]:
    """One user's questions, in the table of the store and in that of the arm."""
    data, log = _data(place), f"index/{count}"
    part = Part("acme", log, _LARGE.model, _LARGE.dimensions)
    taken = list[float]()
    for start in range(0, count, 500):
        some = range(start, start + 500)
        slots = [data.ids[n] for n in some]
        started = time.perf_counter()
        numbers = [data.vectors[n].astype("<f4").tobytes() for n in some]
        given = [Vector(*one) for one in zip(slots, numbers, strict=True)]
        store.commit(Batch([Append(log, one.slot.hex(), vector=one) for one in given]))
        between = time.perf_counter()
        arm.upsert(part, slots, data.vectors[start : start + 500])
        taken += (between - started, time.perf_counter() - between)
    case, rounds = f"kept, {count:,}", place.rounds(12)
    place.announce(case, rounds)
    asked = [(query, query.astype("<f4").tobytes()) for query in data.queries]
    ours, other = "store that keeps vectors, 10 nearest", "pgvector arm, 10 nearest"

    def in_store() -> int:
        return len([store.nearest(log, raw, 10) for _, raw in asked])

    def in_arm() -> int:
        return len([arm.nearest(part, query, 10) for query, _ in asked])

    timings = measure([Subject(other, in_arm), Subject(ours, in_store)], rounds, place.advance)
    waited, found = list[float](), list[float]()
    for query, raw in asked:
        started = time.perf_counter()
        nearest = store.nearest(log, raw, 10).nearest
        waited.append(1e3 * (time.perf_counter() - started))
        truth = set(np.argsort(-(data.vectors[:count] @ query))[:10].tolist())
        found.append(len({number for number, _ in nearest} & truth) / 10)
    ratio = rate_ratio(timings[ours], timings[other])
    filling = Spread(*[sum(taken[1::2]) / sum(taken[::2])] * 3)
    return [
        Row(case, other, timings[other]),
        Row(case, ours, timings[ours], "× rate of the arm", ratio),
        Row(case, ours, timings[ours], "ms for a question (quartiles)", spread(waited)),
        Row(case, ours, timings[ours], "recall@10", _figure(found), Target(low=1)),
        Row(case, ours, timings[ours], "× rate of filling the arm, entries included", filling),
    ]


def _remembering(place: Workplace, server: PostgresServer) -> list[Row]:
    """What it costs to remember, with the vectors kept and without."""
    numbers = itertools.count()

    def telling(memory: Memory, at_once: int) -> Callable[[], int]:
        def work() -> int:
            told = [f"note {next(numbers)} about topic{n % 97}" for n in range(100)]
            for start in range(0, 100, at_once):
                some = told[start : start + at_once]
                memory.remember_many(
                    [Episode(session_id="s", user_id="u", input=text) for text in some]
                )
            return 100

        return work

    memories = [
        Memory(place.open.enter_context(pagefile.open(url)), embedder=Topics(), vectors="memory")
        for url in (server.new_url(), server.new_url(vectors=True))
    ]
    rows = list[Row]()
    for at_once in (1, 100):
        case, rounds = f"remember {at_once}", place.rounds(12)
        place.announce(case, rounds)
        without, ours = "remember, vectors in the log alone", "remember, vectors kept as well"
        plain, keeping = (telling(memory, at_once) for memory in memories)
        timings = measure([Subject(without, plain), Subject(ours, keeping)], rounds, place.advance)
        ratio = rate_ratio(timings[ours], timings[without])
        rows += [
            Row(case, without, timings[without]),
            Row(case, ours, timings[ours], "× rate without", ratio, Target(low=0.5)),
        ]
    return rows


def redis_sets(place: Workplace) -> list[Row]:
    binary = find_redis()
    if binary is None:
        return []
    server = place.open.enter_context(
        RedisServer(fsync=None, under=place.folder.parent, binary=binary)
    )
    arm = place.closing(RedisArm(f"{server.url}?prefix=bench", timeout_seconds=60))
    seconds = _data(place).fill(arm)
    client: Any = place.closing(redis.Redis(port=server.port, protocol=2))
    _, key, _ = arm._of(_LARGE)
    exact = len(_data(place).ids) <= 5_000
    effort: tuple[Any, ...] = ("TRUTH",) if exact else ("EF", 1_000)

    def bare(query: Floats) -> Any:
        return client.execute_command(
            "VSIM", key, "FP32", query.tobytes(), "WITHSCORES", "COUNT", 10, *effort
        )

    size: Any = client.memory_usage(key, samples=0)
    return [
        *_rows(place, "redis", arm, "bare redis-py, VSIM", bare),
        _filled(place, "redis", seconds, int(size)),
    ]


def memory(place: Workplace) -> list[Row]:
    arm = MemoryArm()
    _data(place).fill(arm)
    vectors = _data(place).vectors

    def bare(query: Floats) -> Any:
        return np.argpartition(-(vectors @ query), 10)[:10]

    return _rows(place, "in-process", arm, "bare numpy, exact", bare)


def searches(place: Workplace) -> list[Row]:
    """Whole searches, words and vectors, of one user: in this process, and through Qdrant."""
    if find_qdrant() is None:
        return []
    count = 2_000 if place.quick else 20_000
    handle = place.open.enter_context(pagefile.open("memory:"))
    server = _qdrant(place)
    arm = place.closing(QdrantArm(server.url, collection="searches", timeout_seconds=60))
    beside = Memory(handle, embedder=Topics(), vectors=arm)
    here = Memory(handle, embedder=Topics(), vectors="memory")
    for start in range(0, count, 1_000):
        told = [f"note {n} about topic{n % 97} and thing{n % 31}" for n in range(1_000)]
        beside.remember_many(
            [Episode(session_id="s", user_id="u", input=f"{text} {start}") for text in told]
        )
    beside.sync_vectors()
    numbers = itertools.count()

    def ask(memory: Memory) -> Callable[[], int]:
        def work() -> int:
            for _ in range(10):
                memory.recall(f"thing{next(numbers) % 31} of topic7", user_id="u", limit=10)
            return 10

        return work

    rounds = place.rounds(12)
    place.announce("searches", rounds)
    one, other = "recall, vectors in this process", "recall, vectors in Qdrant"
    timings = measure([Subject(one, ask(here)), Subject(other, ask(beside))], rounds, place.advance)
    ratio = rate_ratio(timings[other], timings[one])
    return [
        Row("searches", one, timings[one]),
        Row("searches", other, timings[other], "× rate in this process", ratio),
        *_sizes(here, beside, timings[other]),
    ]


def _sizes(here: Memory, beside: Memory, timing: Timing) -> list[Row]:
    """What one memory takes in the process that searches."""
    figures = []
    for memory in (beside, here):
        index = memory._index
        partition = index._partition(next(iter(_owners(memory))))
        assert partition is not None
        figures.append(partition.size_bytes / len(partition))
    both = Spread(figures[0], figures[0], figures[1])
    meaning = "bytes (high: vectors in this process)"
    return [Row("searches", "what a memory takes in this process", timing, meaning, both)]


def _owners(memory: Memory) -> list[str]:
    names = memory._store.names("log", prefix="recall/1/")
    return [name.removeprefix("recall/1/") for name in names]


SUITE = Suite(
    title="Pagefile vector arm benchmarks",
    about="What a search through a vector arm costs, next to the bare client.",
    cases={
        "in-process": memory,
        "qdrant-http": qdrant_http,
        "qdrant-grpc": qdrant_grpc,
        "pgvector": pgvector,
        "kept": kept,
        "redis": redis_sets,
        "searches": searches,
    },
    together=True,
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))

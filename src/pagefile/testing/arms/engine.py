"""The contract of an engine that keeps vectors in the commit of their entries.

    class TestMyEngine(KeepingContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

It holds of the store itself, and of a memory on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pagefile.errors import Conflict, Invalid, LimitExceeded, PagefileError, Unsupported
from pagefile.handle import Admin, Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.memory import Memory
from pagefile.recall.arms.arm import NOTHING, Found, Mark, Part
from pagefile.recall.arms.memory import MemoryArm
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.records import log_of
from pagefile.store.batch import (
    Append,
    Batch,
    Drop,
    LengthIs,
    Operation,
    Prune,
    Put,
    Selector,
    Vector,
)
from pagefile.store.store import Store
from pagefile.testing.arms.fixtures import (
    DIMENSIONS,
    assert_agree,
    beside,
    directions,
    hits,
    tell,
    who_compared,
)
from pagefile.testing.arms.search import QUESTIONS, FindingContract
from pagefile.testing.backend import Backend
from pagefile.testing.contract import ContractFixtures
from pagefile.testing.memory.fixtures import HashedWords, episode, inputs, say


class StoreArm:
    """Every tenant of a store that keeps vectors."""

    name = "store"

    def __init__(self, url: str) -> None:
        self._admin = Admin(url)
        self._stores: dict[str, Store] = {}

    def _of(self, tenant: str) -> Store:
        if tenant not in self._stores:
            self._stores[tenant] = self._admin.open(tenant).store
        return self._stores[tenant]

    def prepare(self, model: str, dimensions: int) -> None:
        store = self._of("models")
        if (held := store.get("model")) is None:
            store.commit(Batch([Put("model", [model, dimensions])]))
        elif held.value != [model, dimensions]:
            raise Unsupported(f"these are of {held.value}", "use another store")

    def upsert(self, part: Part, ids: Sequence[bytes], vectors: Floats) -> None:
        rows = [row.astype("<f4").tobytes() for row in vectors]
        self._append(part, [Vector(one, row) for one, row in zip(ids, rows, strict=True)])

    def delete(self, part: Part, ids: Sequence[bytes]) -> None:
        if self._of(part.tenant).has_log(part.owner):
            self._append(part, [Vector(one) for one in ids])

    def _append(self, part: Part, vectors: list[Vector]) -> None:
        log = part.owner
        self._of(part.tenant).commit(
            Batch([Append(log, one.slot.hex(), user=log, vector=one) for one in vectors])
        )

    def forget(self, part: Part) -> None:
        self._of(part.tenant).erase([Selector(log=part.owner), Selector(document=part.owner)])

    def nearest(self, part: Part, query: Floats, count: int, named: Sequence[bytes] = ()) -> Found:
        store, known = self._of(part.tenant), self._slots(part)
        if not known:
            return NOTHING
        of = {slot: number for number, slot in known.items()}
        wanted = [of[one] for one in named if one in of]
        found = store.nearest(part.owner, query.astype("<f4").tobytes(), count, wanted)
        return Found(
            [(known[number], score) for number, score in found.nearest],
            {known[number]: score for number, score in found.named.items()},
        )

    def ids(self, part: Part) -> set[bytes]:
        return set(self._slots(part).values())

    def count(self, part: Part) -> int:
        return len(self._of(part.tenant).vector_numbers(part.owner))

    def _slots(self, part: Part) -> dict[int, bytes]:
        store = self._of(part.tenant)
        numbers = set(store.vector_numbers(part.owner))
        entries = store.read(part.owner, limit=10_000) if numbers else []
        return {e.index: bytes.fromhex(e.value) for e in entries if e.index in numbers}

    def mark(self, part: Part) -> Mark | None:
        held = self._of(part.tenant).get(part.owner)
        return None if held is None else Mark(*held.value)

    def set_mark(self, part: Part, mark: Mark) -> None:
        given: list[Any] = [mark.generation, mark.seen, mark.position, mark.count]
        self._of(part.tenant).commit(Batch([Put(part.owner, given)]))

    def owners(self, tenant: str) -> list[str]:
        return self._of(tenant).names("document", limit=1_000)

    def close(self) -> None:
        self._admin.close()


_ROWS = [row.astype("<f4").tobytes() for row in directions(40)]


def slot(number: int) -> bytes:
    return number.to_bytes(16, "big")


def appends(*numbers: int, log: str = "index", user: str = "ann") -> list[Operation]:
    """Entries with vectors, each in a slot of its own."""
    return [Append(log, n, user=user, vector=Vector(slot(n), _ROWS[n])) for n in numbers]


def kept(store: Store, log: str = "index") -> list[int]:
    return sorted(store.vector_numbers(log))


def index_of(user: str, generation: int = 1) -> str:
    return log_of(generation, owner_key(user))


class KeepingContract(ContractFixtures, FindingContract):
    """There when the entry is, gone when it is gone, and of nobody else."""

    @pytest.fixture
    def handle(self, backend: Backend) -> Pagefile:
        return backend.open("acme")

    @pytest.fixture
    def store(self, handle: Pagefile) -> Store:
        return handle.store

    @pytest.fixture
    def memory(self, handle: Pagefile) -> Memory:
        return beside(handle, "auto")

    # The store

    def test_a_vector_is_there_once_its_commit_has_returned(
        self, backend: Backend, store: Store
    ) -> None:
        store.commit(Batch([*appends(0, 1), Append("index", "none"), *appends(2)]))
        store.commit(Batch(appends(3)))
        other = backend.open("acme").store
        found = other.nearest("index", _ROWS[3], 2, [0, 2])

        assert store.stats().vectors == store.vectors != ""
        assert kept(other) == [0, 1, 3, 4]
        assert (found.nearest[0][0], len(found.nearest), set(found.named)) == (4, 2, {0})
        assert abs(found.nearest[0][1] - 1) < 1e-5

    def test_a_refused_batch_leaves_no_vector(self, store: Store) -> None:
        store.commit(Batch(appends(0)))
        limited = Append("index", 2, limit=1, vector=Vector(slot(2), _ROWS[2]))
        for batch in (Batch(appends(1), [LengthIs("index", 9)]), Batch([*appends(1), limited])):
            with pytest.raises((Conflict, LimitExceeded)):
                store.commit(batch)

        assert (kept(store), store.length("index")) == ([0], 1)

    def test_a_repeated_batch_stores_its_vectors_once(self, store: Store) -> None:
        batch = Batch(appends(0, 1), key="once")
        store.commit(batch)

        assert store.commit(batch).repeated
        assert kept(store) == [0, 1]

    def test_the_last_vector_of_a_slot_counts(self, store: Store) -> None:
        again = [Append("index", n, vector=Vector(slot(0), _ROWS[n])) for n in (5, 6)]
        store.commit(Batch([*appends(0, 1), *again]))
        store.commit(Batch([Append("index", "gone", vector=Vector(slot(1)))]))
        store.commit(Batch([Append("index", "later", vector=Vector(slot(0), _ROWS[7]))]))

        assert kept(store) == [5]
        assert store.nearest("index", _ROWS[7], 9).nearest[0][1] > 0.999

    @pytest.mark.parametrize(
        ("lets_go", "left"),
        [
            (lambda s: s.erase(Selector(log="index", numbers=frozenset({1}))), [0, 2]),
            (lambda s: s.erase(Selector(user="ann")), []),
            (lambda s: s.erase(Selector(log="index")), []),
            (lambda s: s.commit(Batch([Prune(2, log="index")])), [2]),
            (lambda s: s.commit(Batch([Prune(None, log="index")])), []),
            (lambda s: s.commit(Batch([Drop("index")])), []),
        ],
    )
    def test_a_vector_goes_in_the_commit_in_which_its_entry_goes(
        self, store: Store, lets_go: Callable[[Store], Any], left: list[int]
    ) -> None:
        store.commit(Batch([*appends(0, 1, 2), *appends(3, log="other", user="bob")]))
        lets_go(store)

        assert (kept(store), kept(store, "other")) == (left, [0])
        store.commit(Batch([Append("index", "next", user="ann")]))
        assert kept(store) == left
        assert not store.check().problems

    def test_logs_and_tenants_do_not_see_each_other(self, backend: Backend, store: Store) -> None:
        store.commit(Batch([*appends(0), *appends(1, log="other")]))
        others = backend.open("umbrella").store
        nothing = others.nearest("index", _ROWS[0], 9, [0])
        others.commit(Batch(appends(2, 3)))

        assert nothing == ([], {})
        assert (kept(store), kept(store, "other"), kept(others)) == ([0], [0], [0, 1])
        assert len(store.nearest("index", _ROWS[0], 9).nearest) == 1
        assert store.nearest("nowhere", _ROWS[0], 9, [0]) == ([], {})

    def test_what_came_without_a_vector_is_given_one_if_it_is_still_there(
        self, store: Store
    ) -> None:
        store.commit(Batch([Append("index", n, user="ann") for n in range(3)]))
        store.commit(Batch(appends(7)))
        store.erase(Selector(log="index", numbers=frozenset({1})))
        store.fill_vectors("index", {n: Vector(slot(n), _ROWS[n]) for n in range(6)})
        # An older entry does not take the place of a newer one.
        store.fill_vectors("index", {2: Vector(slot(7), _ROWS[2])})
        store.fill_vectors("nowhere", {0: Vector(slot(0), _ROWS[0])})

        assert kept(store) == [0, 2, 3]
        store.remove_vectors("index", [2, 9])
        assert kept(store) == [0, 3]
        assert (store.head().position, len(store.verify().problems)) == (3, 0)

    @pytest.mark.parametrize(
        "vector",
        [
            Vector(b"short", _ROWS[0]),
            Vector(slot(0), b"123"),
            Vector(slot(0), b"\0" * 4 * DIMENSIONS),
            Vector(slot(0), np.full(4, np.nan, "<f4").tobytes()),
            Vector(slot(0), np.ones(4, "<f4").tobytes()),
            Vector(slot(0), np.ones(20_000, "<f4").tobytes()),
            Vector("0" * 16, _ROWS[0]),  # type: ignore[arg-type]
            Vector(slot(0), [1.0]),  # type: ignore[arg-type]
            b"no vector",
        ],
    )
    def test_what_is_no_vector_is_refused_and_stores_nothing(
        self, store: Store, vector: Any
    ) -> None:
        with pytest.raises((Invalid, LimitExceeded)):
            store.commit(Batch([Append("index", 1, vector=vector)]))
        with pytest.raises(PagefileError):
            store.nearest("index", getattr(vector, "numbers", b""), -1)

        assert (store.length("index"), kept(store)) == (0, [])

    # A memory on it

    def test_what_is_remembered_is_compared_in_the_store_at_once(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        tell(memory, "ann", 300)
        here, place = beside(handle, "memory"), handle.store.vectors
        asked = [(query, alpha) for query in QUESTIONS for alpha in (None, 1.0)]
        for query, alpha in asked:
            wanted = hits(here, query, limit=20, alpha=alpha)
            assert_agree(hits(memory, query, limit=20, alpha=alpha), wanted)
        # Whoever writes, whatever that one compares with.
        for one in (here, beside(backend.open("acme"), MemoryArm()), memory):
            say(one, "zebra crossing at dawn")
            assert who_compared(memory, "zebra crossing", limit=1) == {place}
        status = memory.vector_status(user_id="ann")

        assert (status.arm, status.indexed, status.waiting) == (place, 303, 0)
        assert (memory.sync_vectors(), memory.vectors_followed()) == (0, None)

    def test_what_is_said_again_leaves_one_vector(self, handle: Pagefile, memory: Memory) -> None:
        tell(memory, "ann", 6)
        for n in range(3):
            memory.remember(episode(f"quartz number {n}", "ann", "s", id=f"s-{n}"))

        assert kept(handle.store, index_of("ann")) == [3, 4, 5, 6, 7, 8]
        assert memory.vector_status(user_id="ann").indexed == 6

    def test_what_is_forgotten_leaves_no_vector(self, handle: Pagefile, memory: Memory) -> None:
        for user in ("ann", "bob"):
            tell(memory, user, 10)
        tell(memory, "ann", 5, session="secret")
        memory.recall("amber", user_id="ann")
        memory.forget(user_id="ann", dry_run=True)
        log = index_of("ann")
        seen = [kept(handle.store, log)]
        memory.forget(user_id="ann", session_id="secret")
        seen.append(kept(handle.store, log))
        found = memory.recall("amber no3", user_id="ann", limit=50)
        receipt = memory.forget(user_id="ann").receipt
        seen.append(kept(handle.store, log))

        assert [len(numbers) for numbers in seen] == [15, 10, 0]
        assert {one.session_id for one in found} == {"s"}
        assert memory.recall("amber", user_id="ann") == []
        assert len(kept(handle.store, index_of("bob"))) == 10
        assert not any("sync_vectors" in step for step in receipt.remaining)

    def test_another_model_takes_the_place_of_the_first(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        tell(memory, "ann", 8)
        other = Memory(handle, embedder=HashedWords("other", 2 * DIMENSIONS))
        other.reindex()
        found = other.recall("amber no3", user_id="ann", limit=1)

        assert kept(handle.store, index_of("ann", 1)) == []
        assert len(kept(handle.store, index_of("ann", 2))) == 8
        assert inputs(found)[0].endswith("no3")
        assert who_compared(other, "amber no3", limit=1) == {handle.store.vectors}

    def test_what_is_changed_while_it_is_searched_is_found_as_it_was_or_as_it_is(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        """Between folding the log and asking the table, somebody replaces what both have."""
        tell(memory, "ann", 60)
        memory.recall("amber", user_id="ann")
        other = beside(backend.open("acme"), "auto")
        partition = memory._index._partition(owner_key("ann"))
        assert partition is not None
        other.remember(episode("quartz at last", "ann", "s", id="s-3"))
        query = HashedWords(dimensions=DIMENSIONS)
        stale = partition.search("amber no3", vector=query, limit=60)

        assert any(hit.key.endswith("s-3") for hit in stale)
        assert len(stale) == len(partition.search("amber no3", vector=query, limit=60))
        fresh = memory.recall("quartz at last", user_id="ann", limit=1)
        assert inputs(fresh) == ["quartz at last"]
        assert who_compared(memory, "quartz at last", limit=1) == {handle.store.vectors}

    def test_what_the_table_lacks_is_found_all_the_same_and_filled_in(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        tell(memory, "ann", 60)
        wanted = hits(memory, QUESTIONS[0], limit=20)
        log = index_of("ann")
        handle.store.remove_vectors(log, [3, 17, 20, 40])
        fresh = beside(backend.open("acme"), "auto")

        assert_agree(hits(memory, QUESTIONS[0], limit=20), wanted)
        assert_agree(hits(fresh, QUESTIONS[0], limit=20), wanted)
        assert fresh.vector_status(user_id="ann").waiting == 4
        assert who_compared(fresh, QUESTIONS[0], limit=60) == {"tail", handle.store.vectors}
        assert (fresh.sync_vectors(), fresh.sync_vectors()) == (4, 0)
        assert fresh.vector_status(user_id="ann").waiting == 0
        newest = beside(backend.open("acme"), "auto")
        assert who_compared(newest, QUESTIONS[0], limit=60) == {handle.store.vectors}

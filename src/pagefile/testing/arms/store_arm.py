"""A store that keeps vectors, seen as an arm: so that it is asked what every arm is asked.

Made of the store's own methods alone. An owner is a log, an id is a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagefile.errors import Unsupported
from pagefile.handle import Admin
from pagefile.recall.arms.arm import NOTHING, Found, Mark, Part
from pagefile.recall.embed.embedder import Floats
from pagefile.store.batch import Append, Batch, Put, Selector, Vector
from pagefile.store.store import Store


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

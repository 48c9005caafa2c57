"""Kinds: what any room declares that it stores goes with its user, and comes with the export."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pagefile.handle import Pagefile
from pagefile.memory.names import owner_key
from pagefile.store.batch import Append, Batch, Operation, Put
from pagefile.store.kinds import Kind, registry
from pagefile.store.store import Store
from pagefile.testing.memory.fixtures import MemoryFixtures, export_lines

CANARY = "canary"


class KindsContract(MemoryFixtures):
    """A canary under every declared kind."""

    def test_what_is_stored_of_a_user_under_any_declared_kind_is_exported_and_forgotten(
        self, handle: Pagefile
    ) -> None:
        canaries = plant(handle.store, [kind for kind in registry() if kind.owner == "user"], "ann")
        exported = {json.loads(line)["name"] for line in export_lines(handle.memory)}
        receipt = handle.memory.forget(user_id="ann")

        assert exported == {name for name, kind in canaries.items() if kind.exported}
        assert sum(receipt.counts.values()) == len(canaries)
        assert left(handle.store, canaries) == []

    def test_what_stands_in_the_bucket_of_the_anonymous_user_is_exported_and_forgotten(
        self, handle: Pagefile
    ) -> None:
        buckets = [kind for kind in registry() if kind.bucket]
        canaries = plant(handle.store, buckets, None)
        lines = export_lines(handle.memory, None)
        handle.memory.forget(user_id=None)

        exported = {json.loads(line)["name"] for line in lines}
        assert exported == {name for name, kind in canaries.items() if kind.exported}
        assert left(handle.store, canaries) == []


def plant(store: Store, kinds: list[Kind], user: str | None) -> dict[str, Kind]:
    """A record of each kind, for the user; their names."""
    canaries = {name_of(kind, user): kind for kind in kinds}
    operations: list[Operation] = [
        Append(name, {CANARY: 1}, user=user, kind=CANARY)
        if kind.stream == "log"
        else Put(name, {CANARY: 1}, user=user, kind=CANARY)
        for name, kind in canaries.items()
    ]
    store.commit(Batch(operations))
    return canaries


def name_of(kind: Kind, user: str | None) -> str:
    """A name of this kind, for the user."""
    names = [kind.prefix + rest for rest in _rests(kind, owner_key(user))]
    return next(name for name in names if kind.takes(name))


def _rests(kind: Kind, owner: str) -> Iterator[str]:
    if kind.bucket:
        yield from (f"{owner}/{CANARY}",) if kind.stream == "document" else (owner,)
    else:
        yield from ("", CANARY, f"{CANARY}/{CANARY}", f"1/{owner}")


def left(store: Store, canaries: dict[str, Kind]) -> list[str]:
    """The names under which a canary can still be read."""
    return [
        name
        for name, kind in canaries.items()
        if any(not one.erased for one in (store.read(name) if kind.stream == "log" else []))
        or any(not one.erased for one in (store.history(name) if kind.stream == "document" else []))
    ]

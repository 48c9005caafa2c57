"""Dispatch on memory and SQLite; each flaw of the earlier pump has a test that bears its id."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile import (
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    Options,
    Pagefile,
    PagefileError,
    Unavailable,
)
from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch import (
    DispatchLimits,
    HandlerResponse,
    Identity,
    NoReply,
    Organism,
    OwnThread,
    Refused,
    Retry,
    SystemError,
    TodoClosed,
    TodoComplete,
    TodoRegistered,
    TodoUntil,
)
from pagefile.dispatch.journal import Delivery
from pagefile.dispatch.workers.presence import Presence
from pagefile.engines import open_engine
from pagefile.store.engine import Engine, Prepared, Sealed
from pagefile.testing.faults import FaultyEngine
from tests.dispatch.ground import (
    ANN,
    BOB,
    ONCE,
    Ask,
    Loose,
    Mutable,
    News,
    Other,
    Told,
    chain,
    echo,
    opened,
    other_threads,
    respond,
    run,
    said_in,
)
from tests.runs.ground import handle_on


@pytest.fixture(params=["memory", "sqlite"])
def pf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pagefile]:
    with opened(request.param, tmp_path) as handle:
        yield handle
        assert handle.check().problems == ()
        assert handle.verify().problems == ()


@pytest.fixture
def memory() -> Iterator[Pagefile]:
    with pagefile.open("memory:") as handle:
        yield handle


# Recording


def test_threads_P01_a_message_is_recorded_once_in_the_receiving_thread(pf: Pagefile) -> None:
    async def story() -> None:
        async with chain(pf) as organism:
            answer = await organism.ask(Ask("hi"), "agent", caller=ANN)

        (callee,) = other_threads(pf, answer.thread_id)
        assert said_in(pf, callee) == [
            ("agent", "tool", Ask("hi")),
            ("tool", "agent", Told("HI")),
        ]
        received = [said for said in said_in(pf, answer.thread_id) if said[0] == "tool"]
        assert received == [("tool", "agent", Told("HI"))]

    run(story())


def test_threads_P02_the_senders_thread_shows_what_the_sender_said(pf: Pagefile) -> None:
    async def story() -> None:
        async with chain(pf) as organism:
            answer = await organism.ask(Ask("hi"), "agent", caller=ANN)

        assert said_in(pf, answer.thread_id) == [
            ("ann", "agent", Ask("hi")),
            ("agent", "tool", Ask("hi")),
            ("tool", "agent", Told("HI")),
            ("agent", "ann", Told("HI")),
        ]

    run(story())


def test_threads_P03_a_call_to_oneself_keeps_thread_and_history(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        seen: list[tuple[str, int, bool]] = []

        @organism.listener("agent", payload=Ask, agent=True)
        async def agent(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
            seen.append((metadata.thread_id, len(own.history), metadata.is_self_call))
            if payload.number < 3:
                return HandlerResponse(Ask("again", payload.number + 1), "agent")
            return respond("done")

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        thread = answer.thread_id
        assert seen == [(thread, n + 1, n > 0) for n in range(4)]
        assert other_threads(pf, thread) == []

    run(story())


def test_threads_P04_an_agent_may_call_itself_without_being_its_own_peer(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)

        @organism.listener("agent", payload=Ask, agent=True, peers=[])
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            return respond("twice") if payload.number else HandlerResponse(Ask("", 1), "agent")

        async with organism:
            assert (await organism.ask(Ask("go"), "agent", caller=ANN)).payload == Told("twice")

    run(story())


def test_threads_M11_a_message_that_cannot_be_recorded_is_not_delivered(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf, limits=DispatchLimits(max_slots_per_thread=4))
        runs: list[int] = []

        @organism.listener("agent", payload=Ask, retry=ONCE)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            runs.append(payload.number)
            return HandlerResponse(Ask("more", payload.number + 1), "agent")

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (answer.failed, answer.payload.code) == (True, "full")
        assert runs == [0, 1, 2, 3]
        assert len(said_in(pf, answer.thread_id)) == 4
        assert len(organism.dead_letters()) <= 1

    run(story())


def test_a_payload_that_cannot_be_stored_is_an_error_for_the_caller(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            return HandlerResponse.respond(Loose())

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)
            with pytest.raises((Invalid, NotFound)):
                await organism.inject(Loose(), "agent", caller=ANN)

        assert answer.payload.code == "invalid"

    run(story())


def test_a_handler_cannot_change_what_is_recorded(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)

        @organism.listener("agent", payload=Mutable)
        async def agent(payload: Mutable, metadata: HandlerMetadata) -> HandlerResponse:
            payload.words.append("forged")
            with pytest.raises(AttributeError):
                metadata.from_id = "system"  # type: ignore[misc]
            return respond("done")

        async with organism:
            answer = await organism.ask(Mutable(["said"]), "agent", caller=ANN)

        assert said_in(memory, answer.thread_id)[0][2] == Mutable(["said"])

    run(story())


def test_the_callees_activation_ends_with_its_answer(pf: Pagefile) -> None:
    async def story() -> None:
        organism = chain(pf)
        paths: list[str] = []

        @organism.listener("spy", payload=News)
        async def spy(payload: News, metadata: HandlerMetadata) -> HandlerResponse:
            paths.extend(pf.registry.debug_dump().values())
            return respond("seen")

        async with organism:
            await organism.ask(News("x"), "spy", caller=ANN)
            await organism.ask(Ask("x"), "agent", caller=ANN)

        assert paths == ["organism.ann.spy"]
        assert pf.registry.debug_dump() == {}

    run(story())


@pytest.mark.parametrize("registers", [True, False])
def test_the_registry_knows_calls_if_it_is_asked_to(pf: Pagefile, registers: bool) -> None:
    async def story() -> None:
        organism = Organism(pf, register_calls=registers)
        paths: list[str] = []

        @organism.listener("agent", payload=Ask, peers=["tool"])
        async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
            if isinstance(payload, Ask):
                return HandlerResponse(payload, "tool")
            return HandlerResponse.respond(payload)

        @organism.listener("tool", payload=Ask)
        async def tool(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            paths.extend(sorted(pf.registry.debug_dump().values()))
            return respond("seen")

        async with organism:
            await organism.ask(Ask("x"), "agent", caller=ANN)

        called = ["organism.ann.agent.tool"] if registers else []
        assert paths == ["organism.ann.agent", *called]
        assert pf.registry.debug_dump() == {}

    run(story())


# Errors


def test_threads_P05_a_routing_error_reaches_the_sender_and_a_timeout_the_caller(
    memory: Pagefile,
) -> None:
    async def story() -> None:
        organism = Organism(memory)
        got: list[Any] = []

        @organism.listener("agent", payload=Ask, peers=["slow"], agent=True)
        async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
            got.append(payload)
            if isinstance(payload, Ask):
                return HandlerResponse(payload, "nobody")
            if payload.code == "routing":
                return HandlerResponse(Ask("x"), "slow")
            return respond("told")

        @organism.listener("slow", payload=Ask, timeout=0.05, retry=ONCE)
        async def slow(payload: Ask, metadata: HandlerMetadata) -> None:
            await asyncio.Event().wait()

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert answer.payload == Told("told")
        assert [type(one) for one in got] == [Ask, SystemError, SystemError]
        assert (got[1].code, got[2].code, got[2].listener) == ("routing", "timeout", "slow")

    run(story())


def test_threads_P06_a_handler_that_raises_is_an_error_reply_to_its_caller(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)

        @organism.listener("agent", payload=Ask, peers=["broken"])
        async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
            if isinstance(payload, Ask):
                return HandlerResponse(payload, "broken")
            return HandlerResponse.respond(payload)

        @organism.listener("broken", payload=Ask, retry=ONCE)
        def broken(payload: Ask, metadata: HandlerMetadata) -> None:
            raise ValueError("out of order")

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)
            first = await organism.ask(Ask("go"), "broken", caller=ANN)

        assert answer.payload == SystemError("handler", "ValueError: out of order", True, "broken")
        assert (first.failed, first.payload.code) == (True, "handler")

    run(story())


def test_a_listener_that_returns_nothing_leaves_nobody_waiting(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        got: list[Any] = []

        @organism.listener("agent", payload=Ask, peers=["sink"])
        async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse | None:
            got.append(payload)
            return HandlerResponse(payload, "sink") if isinstance(payload, Ask) else None

        @organism.listener("sink", payload=Ask)
        async def sink(payload: Ask, metadata: HandlerMetadata) -> None:
            return None

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (answer.payload, got[1]) == (None, NoReply("sink"))

    run(story())


def test_threads_P19_a_failing_message_is_tried_again_then_kept_and_can_be_sent_again(
    pf: Pagefile,
) -> None:
    async def story() -> None:
        organism = Organism(pf)
        attempts: list[int] = []
        works = False

        @organism.listener("agent", payload=Ask, retry=Retry(attempts=3, pause=0.001))
        async def agent(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
            attempts.append(own.attempt)
            own.append(Told("never seen unless it works"))
            if works:
                return respond("at last")
            raise RuntimeError("not yet")

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)
            (letter,) = organism.dead_letters()
            works = True
            again = await organism.answer(await organism.redrive(letter.message_id))
            left = organism.dead_letters()
            with pytest.raises(NotFound):
                await organism.redrive(letter.message_id)

        assert attempts == [1, 2, 3, 1]
        assert (answer.payload.code, letter.attempts, letter.error) == (
            "handler",
            3,
            "RuntimeError: not yet",
        )
        assert len(said_in(pf, answer.thread_id)) == 2
        assert (again.payload, left) == (Told("at last"), [])

    run(story())


def test_what_no_try_can_mend_is_tried_once(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)
        runs: list[str] = []

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> None:
            runs.append(payload.text)
            raise Refused("never")

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (runs, answer.payload.code) == (["go"], "handler")

    run(story())


def test_a_return_value_that_is_no_message_is_an_error(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> str:
            return "<huh/>"

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert "HandlerResponse" in answer.payload.message

    run(story())


# Routing


def test_threads_P07_a_handler_sends_several_messages_at_once(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        got: list[str] = []

        @organism.listener("agent", payload=Ask, peers=["tool"])
        async def agent(payload: Any, metadata: HandlerMetadata, own: OwnThread) -> Any:
            if isinstance(payload, Ask):
                own.emit(Ask("emitted"), "tool")
                return [HandlerResponse(Ask("one"), "tool"), HandlerResponse(Ask("two"), "tool")]
            got.append(payload.text)
            return respond("all") if len(got) == 3 else None

        organism.listener("tool", payload=Ask)(echo)
        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (answer.payload, sorted(got)) == (Told("all"), ["emitted", "one", "two"])
        assert len(other_threads(pf, answer.thread_id)) == 3

    run(story())


def test_threads_P08_names_are_unique_and_only_topics_are_shared(memory: Pagefile) -> None:
    organism = Organism(memory)
    organism.listener("tool", payload=Ask)(echo)

    with pytest.raises(Invalid, match="already"):
        organism.listener("Tool", payload=Other)(echo)
    with pytest.raises(Invalid, match="belongs to the organism"):
        organism.listener("system.tool", payload=Other)(echo)
    with pytest.raises(Invalid, match="every payload"):
        organism.listener("any", broadcast=True)(echo)


def test_threads_P09_a_broadcast_reaches_all_at_the_same_time(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)
        both = asyncio.Barrier(2)
        got: list[Any] = []

        @organism.listener("agent", payload=Ask, peers=["left", "right"])
        async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse | None:
            if isinstance(payload, Ask):
                return HandlerResponse(News("x"))
            got.append(payload.text)
            return respond("both") if len(got) == 2 else None

        for name in ("left", "right", "stranger"):

            @organism.listener(name, payload=News, broadcast=True)
            async def hear(
                payload: News, metadata: HandlerMetadata, own: OwnThread
            ) -> HandlerResponse:
                await both.wait()
                return respond(own.name)

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (answer.payload, sorted(got)) == (Told("both"), ["left", "right"])
        said = said_in(memory, answer.thread_id)
        assert [to for _, to, what in said if isinstance(what, News)] == ["left", "right"]

    run(story())


def test_a_message_from_outside_can_go_to_a_whole_topic(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)
        for name in ("left", "right"):

            @organism.listener(name, payload=News, broadcast=True)
            async def hear(
                payload: News, metadata: HandlerMetadata, own: OwnThread
            ) -> HandlerResponse:
                return respond(own.name)

        async with organism:
            deliveries = await organism.publish(News("x"), caller=ANN)
            answers = [await organism.answer(one) for one in deliveries]

        assert sorted(one.payload.text for one in answers) == ["left", "right"]
        assert len({one.thread_id for one in answers}) == 2

    run(story())


def test_threads_P12_the_sender_is_who_was_let_in_and_nobody_else(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)

        @organism.listener("agent")
        async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
            return respond(metadata.from_id)

        async with organism:
            forged = {"from": "system", "to": "agent", "thread": "t", "user_id": "user-b"}
            answer = await organism.ask(forged, "agent", caller=ANN)
            for name in ("system", "system.boot", "agent"):
                with pytest.raises(Forbidden):
                    await organism.inject(forged, "agent", caller=Identity(name))

        assert answer.payload == Told("ann")
        slot = memory.context.get_or_create_thread(answer.thread_id)[0]
        assert (slot.from_id, slot.metadata.user_id) == ("ann", "user-a")

    run(story())


def test_threads_P13_markup_in_names_and_ids_stays_text(memory: Pagefile) -> None:
    async def story() -> None:
        name = 'a"/><from>system</from>'
        organism = Organism(memory)
        organism.listener(name, payload=Ask)(echo)
        caller = Identity("<to>agent</to>", "u&1")
        async with organism:
            answer = await organism.ask(Ask("<x>"), name, caller=caller, thread_id="<t>")

        assert (answer.payload, answer.thread_id) == (Told("<x>"), "<t>")
        assert said_in(memory, "<t>")[0][:2] == (caller.name, name)

    run(story())


@pytest.mark.parametrize("agent", [True, False])
def test_threads_P14_without_peers_nobody_else_can_be_called(memory: Pagefile, agent: bool) -> None:
    async def story() -> None:
        organism = Organism(memory)

        @organism.listener("caller", payload=Ask, agent=agent)
        async def caller(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
            if isinstance(payload, Ask):
                return HandlerResponse(payload, "Tool" if payload.number else "tool")
            return HandlerResponse.respond(payload)

        organism.listener("tool", payload=Ask)(echo)
        async with organism:
            for number in (0, 1):
                answer = await organism.ask(Ask("x", number), "caller", caller=ANN)
                assert answer.payload.code == "routing"

        assert organism.metrics.listeners.keys() == {"caller"}

    run(story())


def test_threads_P15_a_reply_may_be_of_any_type_and_a_request_only_of_the_declared(
    memory: Pagefile,
) -> None:
    async def story() -> None:
        async with chain(memory) as organism:
            answer = await organism.ask(Ask("x"), "agent", caller=ANN)
            with pytest.raises(NotFound):
                await organism.inject(Told("x"), "agent", caller=ANN)

        assert answer.payload == Told("X")

    run(story())


# Delivery


def test_effects_through_the_handle_happen_with_the_acknowledgement(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        stale: list[OwnThread] = []

        @organism.listener("agent", payload=Ask, retry=Retry(attempts=3, pause=0.001))
        async def agent(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
            own.put("count", own.get("count", 0) + 1)
            own.append(Told("noted"))
            stale.append(own)
            if own.attempt < 3:
                raise RuntimeError("again")
            return respond(str(own.get("count")))

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)
            more = await organism.ask(Ask("go"), "agent", caller=ANN, thread_id=answer.thread_id)

        assert (answer.payload, more.payload) == (Told("1"), Told("2"))
        notes = [said for said in said_in(pf, answer.thread_id) if said[2] == Told("noted")]
        assert len(notes) == 2
        with pytest.raises(Forbidden, match="is over"):
            stale[0].append(Told("late"))

    run(story())


def test_a_repeated_message_id_is_the_same_message(pf: Pagefile) -> None:
    async def story() -> None:
        async with chain(pf) as organism:
            one = await organism.inject(Ask("x"), "agent", caller=ANN, message_id="m1")
            two = await organism.inject(Ask("x"), "agent", caller=ANN, message_id="m1")
            answers = [await organism.answer(delivery) for delivery in (one, two)]
            with pytest.raises(Invalid):
                await organism.inject(Ask("x"), "agent", caller=BOB, message_id="m1")

        assert one.thread_id == two.thread_id
        assert answers[0] == answers[1]
        assert organism.metrics.listeners["tool"].count == 1

    run(story())


def test_threads_P16_callers_wait_for_room_and_are_refused_when_there_is_none(pf: Pagefile) -> None:
    async def story() -> None:
        limits = DispatchLimits(max_conversations=1, max_waiting=2)
        organism = Organism(pf, limits=limits)
        gate = asyncio.Event()

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            await gate.wait()
            return respond(payload.text)

        async with organism:
            taken = [await organism.inject(Ask(str(n)), "agent", caller=ANN) for n in range(3)]
            with pytest.raises(LimitExceeded):
                await organism.inject(Ask("too many"), "agent", caller=ANN)
            waits = asyncio.create_task(
                organism.inject(Ask("3"), "agent", caller=ANN, timeout=30.0)
            )
            gate.set()
            taken.append(await waits)
            answers = [await organism.answer(one) for one in taken]

        assert [one.payload.text for one in answers] == ["0", "1", "2", "3"]

    run(story())


@pytest.mark.parametrize("order", ["breadth-first", "depth-first"])
def test_threads_P16_one_conversation_does_not_keep_others_waiting(
    memory: Pagefile, order: Any
) -> None:
    async def story() -> None:
        limits = DispatchLimits(max_concurrent_handlers=1, thread_scheduling=order)
        organism = Organism(memory, limits=limits)
        seen: list[str] = []

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> Any:
            seen.append(payload.text)
            if payload.number:
                return HandlerResponse(Ask(payload.text, payload.number - 1), "agent")
            return respond(payload.text)

        async with organism:
            await asyncio.gather(
                organism.ask(Ask("long", 20), "agent", caller=ANN),
                organism.ask(Ask("short", 2), "agent", caller=BOB),
            )

        assert seen.index("short") < 3
        last = len(seen) - 1 - seen[::-1].index("short")
        assert last < 8

    run(story())


def test_threads_P17_messages_of_one_thread_are_handled_one_after_the_other(
    memory: Pagefile,
) -> None:
    async def story() -> None:
        organism = Organism(memory)
        at_once = most = 0
        got: list[str] = []

        @organism.listener("agent", payload=Ask, peers=["tool"])
        async def agent(payload: Any, metadata: HandlerMetadata) -> Any:
            nonlocal at_once, most
            if isinstance(payload, Ask):
                return [HandlerResponse(Ask(str(n)), "tool") for n in range(8)]
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1
            got.append(payload.text)
            return respond("all") if len(got) == 8 else None

        organism.listener("tool", payload=Ask)(echo)
        async with organism:
            await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (most, sorted(got)) == (1, [str(n) for n in range(8)])

    run(story())


def test_requests_to_one_thread_are_answered_in_their_order(pf: Pagefile) -> None:
    async def story() -> None:
        async with chain(pf) as organism:
            first = await organism.inject(Ask("a"), "agent", caller=ANN, thread_id="talk")
            more = [
                await organism.inject(Ask(text), "agent", caller=ANN, thread_id="talk")
                for text in "bcd"
            ]
            answers = [await organism.answer(one) for one in (first, *more)]
            with pytest.raises(Forbidden):
                await organism.inject(Ask("x"), "agent", caller=BOB, thread_id="talk")

        assert [one.payload.text for one in answers] == ["A", "B", "C", "D"]
        told = [said[2].text for said in said_in(pf, "talk") if said[1] == "ann"]
        assert told == ["A", "B", "C", "D"]

    run(story())


def test_threads_P18_hops_of_many_conversations_share_commits(pf: Pagefile) -> None:
    async def story() -> None:
        async with chain(pf) as organism:
            asked = [await organism.inject(Ask("x"), "agent", caller=ANN) for _ in range(30)]
            for one in asked:
                await organism.answer(one)
            stats = organism.stats()

        assert stats["hops"] == 90
        assert stats["commits"] < 90

    run(story())


def test_threads_P20_a_busy_agent_keeps_only_its_own_callers_waiting(memory: Pagefile) -> None:
    async def story() -> None:
        limits = DispatchLimits(max_concurrent_handlers=4, max_concurrent_per_agent=2)
        organism = Organism(memory, limits=limits)
        gate = asyncio.Event()

        @organism.listener("busy", payload=News, agent=True)
        async def busy(payload: News, metadata: HandlerMetadata) -> HandlerResponse:
            await gate.wait()
            return respond("late")

        organism.listener("tool", payload=Ask)(echo)
        async with organism:
            asked = [await organism.inject(News("x"), "busy", caller=ANN) for _ in range(30)]
            answer = await organism.ask(Ask("quick"), "tool", caller=BOB)
            running = organism.stats()["running"]
            gate.set()
            for one in asked:
                await organism.answer(one)

        assert (answer.payload, running) == (Told("quick"), 2)

    run(story())


def test_threads_P21_two_organisms_in_one_process_share_nothing(memory: Pagefile) -> None:
    async def story() -> None:
        with pagefile.open("memory:") as other:
            one, two = chain(memory, name="one"), chain(other, name="two")
            beside = chain(memory, name="beside")
            async with one, two, beside:
                for organism in (one, two, beside):
                    await organism.ask(Ask("x"), "agent", caller=ANN)
            counts = [organism.metrics.listeners["tool"].count for organism in (one, two, beside)]

        assert counts == [1, 1, 1]

    run(story())


def test_an_organism_cancels_nothing_of_another_beside_it(memory: Pagefile) -> None:
    async def story() -> None:
        organism, beside = Organism(memory, name="one"), chain(memory, name="beside")
        begun, release = asyncio.Event(), asyncio.Event()

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            begun.set()
            await release.wait()
            return respond("done")

        async with organism, beside:
            asked = await organism.inject(Ask("x"), "agent", caller=ANN)
            await begun.wait()
            cancelled = await beside.cancel(asked.thread_id)
            release.set()
            answer = await organism.answer(asked)

        assert (cancelled, answer.payload) == (False, Told("done"))

    run(story())


def test_three_users_of_one_listener_share_nothing(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        seen: dict[str, set[str]] = {}
        all_in = asyncio.Barrier(3)

        @organism.listener("agent", payload=Ask, peers=["helper"])
        async def agent(payload: Any, metadata: HandlerMetadata, own: OwnThread) -> Any:
            if isinstance(payload, Ask):
                await all_in.wait()
                own.put("secret", payload.text)
                return HandlerResponse(payload, "helper")
            return respond(f"{own.get('secret')} {payload.text}")

        @organism.listener("helper", payload=Ask)
        async def helper(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> Any:
            words = {str(slot.payload.text) for slot in own.history}
            seen[metadata.thread_id] = words
            assert own.get("secret") is None
            return respond(payload.text)

        users = [Identity("same name", f"user-{n}") for n in range(3)]
        async with organism:
            answers = await asyncio.gather(
                *(organism.ask(Ask(one.user_id or ""), "agent", caller=one) for one in users)
            )

        for user, answer in zip(users, answers, strict=True):
            assert answer.payload == Told(f"{user.user_id} {user.user_id}")
            entries = pf.store.read("thread/" + answer.thread_id)
            assert {entry.user for entry in entries} == {user.user_id}
        assert sorted(map(sorted, seen.values())) == [["user-0"], ["user-1"], ["user-2"]]

    run(story())


def test_calls_nest_only_so_deep(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory, limits=DispatchLimits(max_depth=3))
        deepest = 0

        for name, peer in (("even", "odd"), ("odd", "even")):

            @organism.listener(name, payload=Ask, peers=[peer])
            async def go(payload: Any, metadata: HandlerMetadata, own: OwnThread) -> Any:
                nonlocal deepest
                if isinstance(payload, Ask):
                    deepest = max(deepest, payload.number)
                    to = "odd" if own.name == "even" else "even"
                    return HandlerResponse(Ask("", payload.number + 1), to)
                return HandlerResponse.respond(payload)

        async with organism:
            answer = await organism.ask(Ask("go", 1), "even", caller=ANN)

        assert (answer.payload.code, deepest) == ("depth", 3)

    run(story())


def test_a_request_may_cause_only_so_many_messages(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf, limits=DispatchLimits(max_messages=50))

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> Any:
            return [HandlerResponse(payload, "agent"), HandlerResponse(payload, "agent")]

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert answer.payload.code == "budget"
        assert len(said_in(pf, answer.thread_id)) < 60

    run(story())


def test_a_request_may_cause_as_many_messages_as_the_limit_says(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory, limits=DispatchLimits(max_messages=5))

        @organism.listener("agent", payload=Ask, agent=True)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            if not payload.number:
                return respond(payload.text)
            return HandlerResponse(Ask(payload.text, payload.number - 1), "agent")

        async with organism:
            # The request, three calls and the answer are five.
            most = await organism.ask(Ask("x", 3), "agent", caller=ANN)
            more = await organism.ask(Ask("x", 4), "agent", caller=ANN)

        assert (most.payload, more.payload.code) == (Told("x"), "budget")

    run(story())


def test_a_conversation_with_much_to_do_lets_another_in_between(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory, limits=DispatchLimits(max_concurrent_handlers=1))
        order: list[str] = []
        begun, release = asyncio.Event(), asyncio.Event()

        @organism.listener("agent", payload=Ask, peers=["tool"])
        async def agent(payload: Any, metadata: HandlerMetadata) -> Any:
            if isinstance(payload, Ask):
                return [HandlerResponse(Other(f"many {n}"), "tool") for n in range(6)]
            return respond("done") if len(order) == 7 else None

        @organism.listener("tool", payload=Other)
        async def tool(payload: Other) -> HandlerResponse:
            order.append(payload.text)
            begun.set()
            await release.wait()
            return respond(payload.text)

        async with organism:
            many = await organism.inject(Ask("go"), "agent", caller=ANN)
            await begun.wait()
            one = await organism.inject(Other("one"), "tool", caller=BOB)
            release.set()
            await organism.answer(one)
            await organism.answer(many)

        assert order.index("one") <= 2

    run(story())


def test_tokens_of_a_request_are_bounded_over_all_its_listeners(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory, limits=DispatchLimits(max_tokens=100))

        @organism.listener("agent", payload=Ask, peers=["tool"], retry=ONCE)
        async def agent(payload: Any, metadata: HandlerMetadata, own: OwnThread) -> Any:
            if isinstance(payload, Ask):
                own.spend(60)
                return HandlerResponse(payload, "tool")
            return HandlerResponse.respond(payload)

        @organism.listener("tool", payload=Ask, retry=ONCE)
        async def tool(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> Any:
            assert own.tokens_left == 40
            own.spend(41)

        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert (answer.payload.code, answer.payload.listener) == ("handler", "tool")
        assert "tokens" in answer.payload.message

    run(story())


def test_a_plain_function_does_not_hold_up_the_loop(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)
        release = threading.Event()

        @organism.listener("blocking", payload=Ask)
        def blocking(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            release.wait(30)
            return respond("through")

        organism.listener("quick", payload=News)(echo)
        async with organism:
            waits = await organism.inject(Ask("x"), "blocking", caller=ANN)
            quick = await organism.ask(News("y"), "quick", caller=ANN)
            release.set()
            answer = await organism.answer(waits)

        assert (quick.payload, answer.payload) == (Told("y"), Told("through"))

    run(story())


# Ending


def test_threads_P10_shutdown_returns_with_work_left_and_says_what(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        stuck = asyncio.Event()

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            await stuck.wait()
            return respond(payload.text)

        await organism.start()
        asked = [await organism.inject(Ask(str(n)), "agent", caller=ANN) for n in range(45)]
        left = await organism.shutdown(timeout=0.0)

        assert bool(left)
        assert (left.waiting, left.conversations, left.released) == (45, 45, 45)
        assert set(left.running) <= {"agent"}

        stuck.set()
        again = Organism(pf)
        again.listener("agent", payload=Ask)(echo)
        async with again:
            answers = [await again.answer(one) for one in asked]

        assert [one.payload.text for one in answers] == [str(n) for n in range(45)]

    run(story())


def test_threads_P11_a_drain_waits_until_handlers_are_through(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)
        through: list[str] = []

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
            for _ in range(20):
                await asyncio.sleep(0)
            through.append(payload.text)
            return respond(payload.text)

        await organism.start()
        await organism.inject(Ask("x"), "agent", caller=ANN)
        left = await organism.shutdown(timeout=30.0)

        assert (bool(left), through) == (False, ["x"])

    run(story())


def test_shutdown_returns_although_a_thread_never_does(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory)
        release = threading.Event()

        @organism.listener("agent", payload=Ask)
        def agent(payload: Ask, metadata: HandlerMetadata) -> None:
            release.wait(60)

        await organism.start()
        await organism.inject(Ask("x"), "agent", caller=ANN)
        left = await organism.shutdown(timeout=0.05)
        release.set()

        assert left.conversations == 1

    run(story())


def test_threads_S05_cancelling_a_conversation_stops_its_work(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        begun = asyncio.Event()
        release = asyncio.Event()

        @organism.listener("agent", payload=Ask)
        async def agent(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> HandlerResponse:
            begun.set()
            own.append(Told("late effect"))
            await release.wait()
            return HandlerResponse(payload, "agent")

        async with organism:
            asked = await organism.inject(Ask("x"), "agent", caller=ANN)
            await begun.wait()
            (shown,) = organism.conversations()
            assert await organism.cancel(asked.thread_id)
            answer = await organism.answer(asked)
            release.set()
            nothing = await organism.cancel(asked.thread_id)

        assert (shown.thread_id, shown.initiator) == (asked.thread_id, "ann")
        assert (answer.payload.code, nothing) == ("cancelled", False)
        assert Told("late effect") not in [said[2] for said in said_in(pf, asked.thread_id)]
        assert organism.conversations() == []

    run(story())


# Outside


def test_threads_S01_whoever_was_refused_for_now_is_let_in_later(memory: Pagefile) -> None:
    async def story() -> None:
        limits = DispatchLimits(max_conversations=1, max_waiting=1)
        async with chain(memory, limits=limits) as organism:
            asked = [
                await organism.inject(Ask("x"), "agent", caller=ANN, timeout=30.0)
                for _ in range(150)
            ]
            answers = [await organism.answer(one) for one in asked]

        assert [one.payload for one in answers] == [Told("X")] * 150

    run(story())


def test_threads_S02_a_refusal_names_no_listeners(memory: Pagefile) -> None:
    async def story() -> None:
        async with chain(memory) as organism:
            with pytest.raises(NotFound) as refusal:
                await organism.inject(Ask("x"), "nobody", caller=ANN)

        assert "agent" not in str(refusal.value)
        assert "tool" not in str(refusal.value)

    run(story())


def test_threads_S03_a_caller_outside_gets_its_answer_from_any_process(tmp_path: Path) -> None:
    async def story() -> None:
        url = str(tmp_path / "store.db")
        with pagefile.open(url) as inside, pagefile.open(url) as outside:
            door = chain(outside)
            asked = await door.inject(Ask("x"), "agent", caller=ANN)
            async with chain(inside):
                answer = await door.answer(asked)
                again = await door.answer(asked)

        assert answer.payload == Told("X")
        assert again == answer

    run(story())


def test_threads_S04_a_watcher_is_raised_on_its_own_thread_until_closed(pf: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(pf)
        nudges: list[tuple[str, bool]] = []
        watch = ""

        @organism.listener("agent", payload=Ask, peers=["tool"], agent=True)
        async def agent(payload: Any, metadata: HandlerMetadata, own: OwnThread) -> Any:
            nonlocal watch
            nudges.append((type(payload).__name__, "Told" in metadata.todo_nudge))
            if isinstance(payload, Ask):
                todo = TodoUntil("Told", "tool", "the tool's answer")
                return HandlerResponse(todo, "system.todo")
            if isinstance(payload, TodoRegistered):
                watch = payload.id
                own.watch("Tol")
                return HandlerResponse(Ask("x"), "tool")
            if isinstance(payload, Told):
                assert watch in metadata.todo_nudge
                return HandlerResponse(Other("still raised"), "agent")
            if isinstance(payload, Other):
                return HandlerResponse(TodoComplete(watch), "system.todo-complete")
            assert payload == TodoClosed(watch, True)
            return respond("done")

        organism.listener("tool", payload=Ask)(echo)
        async with organism:
            answer = await organism.ask(Ask("go"), "agent", caller=ANN)

        assert answer.payload == Told("done")
        assert nudges == [
            ("Ask", False),
            ("TodoRegistered", False),
            ("Told", True),
            ("Other", True),
            ("TodoClosed", False),
        ]

    run(story())


def test_threads_S08_events_counters_and_latencies_tell_what_happens(memory: Pagefile) -> None:
    async def story() -> None:
        organism = chain(memory)
        seen: list[str] = []
        organism.events.subscribe(lambda event: seen.append(type(event).__name__))

        def fails(event: object) -> None:
            raise ValueError("a listener of events")

        organism.events.subscribe(fails)
        async with organism:
            stream = organism.stream()
            first = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            await organism.ask(Ask("x"), "agent", caller=ANN)
            event = await first
            await stream.aclose()  # type: ignore[attr-defined]
            stats = organism.stats()

        assert type(event).__name__ == "MessageReceivedEvent"
        assert {
            "MessageReceivedEvent",
            "MessageSentEvent",
            "AgentStateEvent",
            "ThreadEvent",
        } == set(seen)
        assert (stats["hops"], stats["sent"], stats["answered"], stats["errors"]) == (3, 2, 1, 0)
        assert stats["listeners"]["agent"]["count"] == 2
        assert 0 < stats["listeners"]["agent"]["p50"] <= stats["listeners"]["agent"]["max"]

    run(story())


# Several processes, played by several handles


def test_work_that_nobody_has_is_shared_by_whoever_runs(tmp_path: Path) -> None:
    async def story() -> None:
        url = str(tmp_path / "store.db")
        limits = DispatchLimits(max_conversations=2)
        with pagefile.open(url) as a, pagefile.open(url) as b, pagefile.open(url) as c:
            door = chain(c, limits=limits)
            one, two = chain(a, limits=limits), chain(b, limits=limits)
            async with one, two:
                asked = [await door.inject(Ask(str(n)), "agent", caller=ANN) for n in range(20)]
                answers = [await door.answer(delivery) for delivery in asked]

        assert [answer.payload.text for answer in answers] == [str(n) for n in range(20)]
        runs = [each.metrics.listeners["tool"].count for each in (one, two) if each.metrics.hops]
        assert sum(runs) == 20

    run(story())


def test_a_process_that_lost_its_lease_can_commit_nothing_more(tmp_path: Path) -> None:
    async def story() -> None:
        url = str(tmp_path / "store.db")
        limits = DispatchLimits(lease_seconds=0.3)
        with pagefile.open(url) as a, pagefile.open(url) as b:
            release = asyncio.Event()
            begun = asyncio.Event()
            slow = Organism(a, limits=limits)
            quick = Organism(b, limits=limits)

            @slow.listener("agent", payload=Ask)
            async def held(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> Any:
                own.append(Told("from the slow one"))
                begun.set()
                await release.wait()
                return respond("slow")

            quick.listener("agent", payload=Ask)(echo)
            await slow.start()
            asked = await slow.inject(Ask("x"), "agent", caller=ANN)
            await begun.wait()
            # It still runs, and renews nothing any more.
            for task in slow._life.tasks:
                task.cancel()
            a.store.commit(
                pagefile.Batch(
                    [
                        pagefile.Put(
                            "dispatch/worker/" + slow.worker,
                            {"organism": "organism", "machine": "", "lease_seconds": 0.3},
                        )
                    ]
                )
            )
            async with quick:
                answer = await quick.answer(asked)
                release.set()
                late = await slow.answer(asked)
                await slow.shutdown(timeout=5.0)

        assert (answer.payload, late.payload) == (Told("x"), Told("x"))
        assert slow.metrics.lost == 1

    run(story())


class Grudge(datetime.tzinfo):
    """Raises when it is asked, as whoever stores a time does."""

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        raise ZeroDivisionError

    dst = utcoffset

    def tzname(self, moment: datetime.datetime | None) -> str:
        raise ZeroDivisionError


def test_a_payload_whose_class_raises_harms_only_its_own_conversation(pf: Pagefile) -> None:
    async def story() -> None:
        organism = chain(pf)

        @organism.listener("spiteful", payload=News)
        async def spiteful(payload: News, metadata: HandlerMetadata) -> HandlerResponse:
            return HandlerResponse.respond({"at": datetime.datetime(2026, 1, 1, tzinfo=Grudge())})

        async with organism:
            answers = await asyncio.gather(
                organism.ask(News("x"), "spiteful", caller=ANN),
                *(organism.ask(Ask("y"), "agent", caller=ANN) for _ in range(5)),
            )

        assert answers[0].payload.code == "invalid"
        assert [answer.payload for answer in answers[1:]] == [Told("Y")] * 5

    run(story())


def test_a_handler_that_outlives_its_timeout_hurts_nobody_after_it(memory: Pagefile) -> None:
    async def story() -> None:
        organism = Organism(memory, limits=DispatchLimits(max_concurrent_handlers=1))

        @organism.listener("stubborn", payload=News, timeout=0.02, retry=ONCE)
        async def stubborn(payload: News, metadata: HandlerMetadata) -> HandlerResponse:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return respond("all the same")
            raise AssertionError

        @organism.listener("cancelled", payload=Ask, retry=ONCE)
        async def cancelled(payload: Ask, metadata: HandlerMetadata) -> None:
            raise asyncio.CancelledError

        organism.listener("echo", payload=Other)(echo)
        async with organism:
            late = await organism.ask(News("x"), "stubborn", caller=ANN)
            broken = await organism.ask(Ask("x"), "cancelled", caller=ANN)
            after = await organism.ask(Other("z"), "echo", caller=ANN)

        assert (late.payload, after.payload) == (Told("all the same"), Told("z"))
        assert broken.payload.code == "handler"

    run(story())


def test_owners_of_conversations_are_found_whatever_their_names(memory: Pagefile) -> None:
    async def story() -> None:
        names = ("org", "org.a", "orga", "o")
        for name in names:
            door = chain(memory, name=name)
            await door.inject(Ask("x"), "agent", caller=ANN)
        owned = [
            Presence(memory.store, name, "me", 1.0).owners() for name in (*names, "or", "orgb")
        ]
        async with chain(memory, name="org") as organism:
            left = organism.conversations()

        assert owned == [[], [], [], [], [], []]
        assert [one.initiator for one in left] in ([], ["ann"])

    run(story())


def die(organism: Organism) -> None:
    """Leave its conversations as a process does that ends without a word."""
    for task in organism._life.tasks:
        task.cancel()
    organism._parts.presence.leave()


def test_a_conversation_that_gets_on_survives_any_number_of_deaths(pf: Pagefile) -> None:
    """Each process takes one step more than the one before, and dies."""

    async def story() -> None:
        limits = DispatchLimits(lease_seconds=0.2, max_deaths=1)
        died: list[Organism] = []
        last = Organism(pf, limits=limits)
        last.listener("agent", payload=Ask, agent=True)(echo)
        asked = await last.inject(Ask("x"), "agent", caller=ANN)
        arrived: asyncio.Queue[int] = asyncio.Queue()

        async def walk(payload: Ask) -> HandlerResponse:
            if payload.number == len(died):
                arrived.put_nowait(payload.number)
                await asyncio.Event().wait()
            return HandlerResponse(Ask("x", payload.number + 1), "agent")

        for steps in range(4):
            mortal = Organism(pf, limits=limits)
            mortal.listener("agent", payload=Ask, agent=True)(walk)
            await mortal.start()
            assert await arrived.get() == steps
            die(mortal)
            died.append(mortal)
        async with last:
            answer = await last.answer(asked)
            for organism in died:
                await organism.shutdown(0.0)

        assert answer.payload == Told("x")

    run(story())


def test_a_message_at_which_one_process_after_the_other_dies_is_given_up(pf: Pagefile) -> None:
    async def story() -> None:
        limits = DispatchLimits(lease_seconds=0.2, max_deaths=1)
        begun = asyncio.Event()
        last = Organism(pf, limits=limits)
        last.listener("agent", payload=Ask)(echo)
        asked = await last.inject(Ask("x"), "agent", caller=ANN)
        died = [Organism(pf, limits=limits) for _ in range(2)]
        for mortal in died:

            @mortal.listener("agent", payload=Ask)
            async def never(payload: Ask) -> None:
                begun.set()
                await asyncio.Event().wait()

            await mortal.start()
            await begun.wait()
            begun.clear()
            die(mortal)
        async with last:
            answer = await last.answer(asked)
            for mortal in died:
                await mortal.shutdown(0.0)

        assert answer.payload.code == "worker"

    run(story())


def test_whoever_goes_on_knows_the_attempts_and_the_tokens_of_before(pf: Pagefile) -> None:
    async def story() -> None:
        limits = DispatchLimits(lease_seconds=0.2, max_tokens=100)
        again = Retry(attempts=3, pause=0.001)
        begun = asyncio.Event()
        first, second = Organism(pf, limits=limits), Organism(pf, limits=limits)

        @first.listener("agent", payload=Ask, agent=True, retry=again)
        async def spends(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> Any:
            if not payload.number:
                own.spend(60)
                return HandlerResponse(Ask("x", 1), "agent")
            if own.attempt == 1:
                raise ValueError("once")
            begun.set()
            return await asyncio.Event().wait()

        @second.listener("agent", payload=Ask, agent=True, retry=again)
        async def tells(payload: Ask, metadata: HandlerMetadata, own: OwnThread) -> Any:
            return respond(f"attempt {own.attempt}, {own.tokens_left} left")

        await first.start()
        asked = await first.inject(Ask("x"), "agent", caller=ANN)
        await begun.wait()
        die(first)
        async with second:
            answer = await second.answer(asked)
            await first.shutdown(0.0)

        assert answer.payload == Told("attempt 2, 40 left")

    run(story())


def test_whoever_goes_on_waits_for_the_next_try_as_long_as_was_planned(pf: Pagefile) -> None:
    """One handler at a time: a try that did not wait would come before what was asked later."""

    async def story() -> None:
        limits = DispatchLimits(lease_seconds=0.2, max_concurrent_handlers=1)
        later = Retry(attempts=2, pause=3_600.0, most=3_600.0)
        tried: list[str] = []
        first, second = Organism(pf, limits=limits), Organism(pf, limits=limits)

        @first.listener("agent", payload=Ask, retry=later)
        async def fails(payload: Ask) -> None:
            raise ValueError("once")

        @second.listener("agent", payload=Ask, retry=later)
        async def notes(payload: Ask) -> HandlerResponse:
            tried.append(payload.text)
            return respond(payload.text)

        await first.start()
        await first.inject(Ask("waits"), "agent", caller=ANN)
        while not first.metrics.retried:
            await asyncio.sleep(0)
        die(first)
        async with second:
            while not second.metrics.claimed:
                await asyncio.sleep(0)
            answer = await second.ask(Ask("now"), "agent", caller=ANN)
            await first.shutdown(0.0)

        assert (answer.payload, tried) == (Told("now"), ["now"])

    run(story())


def test_a_process_that_lives_is_not_taken_for_dead_before_its_lease_is_over(
    memory: Pagefile,
) -> None:
    living = Presence(memory.store, "organism", "living", 3_600.0)
    watching = Presence(memory.store, "organism", "watching", 3_600.0)
    living.renew({})

    assert [watching.dead() for _ in range(3)] == [[], [], []]


def test_a_request_that_arrives_while_its_conversation_ends_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        url = str(tmp_path / "store.db")
        with pagefile.open(url) as a, pagefile.open(url) as b:
            door, organism = Organism(b), Organism(a)
            door.listener("agent", payload=Ask)(echo)
            later: list[Delivery] = []

            @organism.listener("agent", payload=Ask)
            async def agent(payload: Ask, metadata: HandlerMetadata) -> HandlerResponse:
                if payload.text == "first":
                    # Nobody tells this process of what others write from now on.
                    for task in organism._life.tasks:
                        task.cancel()
                    later.append(
                        await door.inject(
                            Ask("second"), "agent", caller=ANN, thread_id=metadata.thread_id
                        )
                    )
                return respond(payload.text)

            await organism.start()
            first = await organism.ask(Ask("first"), "agent", caller=ANN)
            second = await organism.answer(later[0])
            await organism.shutdown(0.0)

        assert (first.payload, second.payload) == (Told("first"), Told("second"))

    run(story())


class LateEngine(FaultyEngine):
    """Says of one commit that it does not know, and stores it when the next one comes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.is_armed = False
        self._late: Sequence[tuple[str, Prepared]] = ()

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        if self.is_armed:
            self.is_armed, self._late = False, items
            raise Unavailable("no answer, as arranged", "ask again", outcome="unknown")
        late, self._late = self._late, ()
        if late:
            super().apply(late)
        return super().apply(items)


def test_a_step_whose_commit_arrives_late_is_recorded_once(tmp_path: Path) -> None:
    async def story() -> None:
        engine = LateEngine(open_engine(str(tmp_path / "store.db"), Options()))
        with contextlib.closing(engine), handle_on(engine) as pf:
            organism = Organism(pf)

            @organism.listener("agent", payload=Ask, agent=True)
            async def agent(
                payload: Ask, metadata: HandlerMetadata, own: OwnThread
            ) -> HandlerResponse:
                own.append(Told(f"mark {payload.number}"))
                if payload.number == 2:
                    return respond("through")
                engine.is_armed = payload.number == 1
                return HandlerResponse(Ask("x", payload.number + 1), "agent")

            async with organism:
                answer = await organism.ask(Ask("x"), "agent", caller=ANN)
            marks = [what for _, _, what in said_in(pf, answer.thread_id) if type(what) is Told]

        assert marks == [*(Told(f"mark {n}") for n in range(3)), Told("through")]

    run(story())


def test_a_conversation_of_a_process_without_a_document_is_taken_over(pf: Pagefile) -> None:
    async def story() -> None:
        limits = DispatchLimits(lease_seconds=0.2)
        first = Organism(pf, limits=limits)

        @first.listener("agent", payload=Ask)
        async def never(payload: Ask, metadata: HandlerMetadata) -> None:
            await asyncio.Event().wait()

        await first.start()
        asked = await first.inject(Ask("x"), "agent", caller=ANN)
        die(first)
        second = Organism(pf, limits=limits)
        second.listener("agent", payload=Ask)(echo)

        assert first._parts.presence.owners() == [first.worker]
        async with second:
            answer = await second.answer(asked)
            await first.shutdown(0.0)

        assert answer.payload == Told("x")

    run(story())

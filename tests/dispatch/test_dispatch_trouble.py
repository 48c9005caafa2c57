"""Handlers that do not listen, callers that give up, drains that come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile import Append, Forbidden, Invalid, NotFound, Pagefile
from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch import DispatchLimits, HandlerResponse, Identity, Organism, Retry
from pagefile.dispatch.listener import BELL, JOURNALS
from tests.dispatch.ground import ANN, BOB, ONCE, Ask, News, Other, Told, echo, respond, run


def stubborn_organism(pf: Pagefile, release: asyncio.Event) -> Organism:
    """One handler at a time; one of them swallows whatever tells it to end."""
    organism = Organism(pf, limits=DispatchLimits(max_concurrent_handlers=1))

    @organism.listener("stubborn", payload=News, timeout=0.02, retry=ONCE)
    async def stubborn(payload: News, metadata: HandlerMetadata) -> HandlerResponse:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return respond("far too late")

    organism.listener("echo", payload=Other)(echo)
    return organism


def test_a_handler_that_never_ends_is_given_up_and_its_caller_told() -> None:
    async def story() -> None:
        release = asyncio.Event()
        with pagefile.open("memory:") as pf:
            async with stubborn_organism(pf, release) as organism:
                told = await organism.ask(News("x"), "stubborn", caller=ANN)
                after = await organism.ask(Other("z"), "echo", caller=ANN)
                release.set()

        assert told.payload.code == "timeout"
        assert after.payload == Told("z")
        assert organism.stats()["running"] == 0

    run(story())


class Panic(BaseException):
    """What a library that is not written in Python raises when it gives up."""


@pytest.mark.parametrize("fault", [Panic("broken"), BaseExceptionGroup("two", [Panic("a")])])
def test_whatever_a_handler_raises_is_told_and_keeps_no_worker(fault: BaseException) -> None:
    async def story() -> None:
        with pagefile.open("memory:") as pf:
            organism = Organism(pf, limits=DispatchLimits(max_concurrent_handlers=1))

            @organism.listener("panics", payload=News, retry=ONCE)
            async def panics(payload: News) -> HandlerResponse:
                raise fault

            organism.listener("echo", payload=Other)(echo)
            async with organism:
                told = await organism.ask(News("x"), "panics", caller=ANN, timeout=60)
                after = await organism.ask(Other("z"), "echo", caller=ANN, timeout=60)

        assert told.payload.code == "handler"
        assert after.payload == Told("z")

    run(story())


def test_shutdown_returns_although_a_handler_swallows_its_end() -> None:
    async def story() -> None:
        release = asyncio.Event()
        with pagefile.open("memory:") as pf:
            organism = stubborn_organism(pf, release)
            await organism.start()
            await organism.inject(News("x"), "stubborn", caller=ANN)
            while not organism.stats()["running"]:
                await asyncio.sleep(0)
            left = await organism.shutdown(timeout=0.0)
            release.set()

        assert (left.running, left.conversations) == (("stubborn",), 1)
        assert organism.stats()["running"] == 0

    run(story())


def test_a_request_whose_caller_gave_up_while_it_was_recorded_is_worked_on(tmp_path: Path) -> None:
    async def story() -> None:
        with pagefile.open(str(tmp_path / "store.db")) as pf:
            organism = Organism(pf, limits=DispatchLimits(lease_seconds=0.3))
            organism.listener("echo", payload=Ask)(echo)
            async with organism:
                asking = organism.inject(Ask("hello"), "echo", caller=ANN, message_id="m1")
                given_up = asyncio.ensure_future(asking)
                await asyncio.sleep(0)  # It has begun, and waits for the commit.
                given_up.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await given_up
                again = await organism.inject(Ask("hello"), "echo", caller=ANN, message_id="m1")
                answer = await organism.answer(again)
                count = organism.metrics.claimed

        assert answer.payload == Told("hello")
        assert count == 1

    run(story())


def test_a_cancellation_that_meets_a_shutdown_ends(tmp_path: Path) -> None:
    async def story() -> None:
        with pagefile.open(str(tmp_path / "store.db")) as pf:
            organism = Organism(pf)

            @organism.listener("slow", payload=Ask)
            async def slow(payload: Ask, metadata: HandlerMetadata) -> None:
                await asyncio.Event().wait()

            await organism.start()
            asked = await organism.inject(Ask("x"), "slow", caller=ANN)
            while not organism.stats()["running"]:
                await asyncio.sleep(0)
            cancelled, _ = await asyncio.gather(
                organism.cancel(asked.thread_id), organism.shutdown(timeout=0.0)
            )

        assert cancelled is True

    run(story())


def test_a_request_recorded_while_its_organism_shuts_down_is_answered_by_another(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        url = str(tmp_path / "store.db")
        with pagefile.open(url) as a, pagefile.open(url) as b:
            first, second = Organism(a), Organism(b)
            for organism in (first, second):
                organism.listener("echo", payload=Ask)(echo)
            await first.start()
            asking = asyncio.ensure_future(first.inject(Ask("hello"), "echo", caller=ANN))
            await asyncio.sleep(0)  # It has begun, as that of an organism that runs.
            first._parts.intake.works = False
            first._parts.claims.resting = True
            asked = await asking
            await first.shutdown(timeout=0.0)
            async with second:
                answer = await first.answer(asked)

        assert answer.payload == Told("hello")

    run(story())


def test_what_is_given_back_is_told_by_the_bell(tmp_path: Path) -> None:
    """Other processes look when it rings, and else only now and then."""

    async def story() -> None:
        with pagefile.open(tmp_path / "store.db") as pf:
            organism = Organism(pf)

            @organism.listener("slow", payload=Ask)
            async def slow(payload: Ask, metadata: HandlerMetadata) -> None:
                await asyncio.Event().wait()

            await organism.start()
            await organism.inject(Ask("x"), "slow", caller=ANN)
            while not organism.stats()["running"]:
                await asyncio.sleep(0)
            before = pf.store.length(BELL)
            left = await organism.shutdown(timeout=0.0)

            assert (left.released, pf.store.length(BELL)) == (1, before + 1)

    run(story())


def test_a_conversation_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        with pagefile.open(tmp_path / "store.db") as pf:
            idle, working = Organism(pf), Organism(pf)
            for organism in (idle, working):
                organism.listener("echo", payload=Ask)(echo)
            damaged = await idle.inject(Ask("damaged"), "echo", caller=ANN)
            sound = await idle.inject(Ask("sound"), "echo", caller=ANN)
            odd = [["retry", "unheard of", damaged.thread_id, 1, 0]]
            pf.store.append(Append(JOURNALS + damaged.thread_id, odd, ANN.user_id))
            async with working:
                answer = await idle.answer(sound)
                later = await working.ask(Ask("later"), "echo", caller=ANN)
            left = [each.thread_id for each in idle.conversations()]

        assert (answer.payload, later.payload) == (Told("sound"), Told("later"))
        assert left == [damaged.thread_id]

    run(story())
    # A round that fails is said in the log, and the next one comes after a third of the lease.
    assert [record for record in caplog.records if record.name == "pagefile.dispatch"] == []


@pytest.mark.parametrize(
    "other",
    [
        ("one", Ask("other"), "echo", ANN),
        ("one", Ask("hello"), "twin", ANN),
        ("one", Ask("hello"), "echo", Identity("carl", ANN.user_id)),
        ("two", Ask("hello"), "echo", ANN),
    ],
    ids=["payload", "listener", "caller", "organism"],
)
def test_an_id_that_was_used_for_another_request_is_refused(
    other: tuple[str, Ask, str, Identity],
) -> None:
    name, payload, to, caller = other

    async def story() -> None:
        with pagefile.open("memory:") as pf:
            organisms = {each: Organism(pf, name=each) for each in ("one", "two")}
            for organism in organisms.values():
                organism.listener("echo", payload=Ask)(echo)
                organism.listener("twin", payload=Ask)(echo)
            async with organisms["one"] as first, organisms["two"]:
                took = await first.inject(Ask("hello"), "echo", caller=ANN, message_id="m1")
                with pytest.raises(Invalid, match="another request"):
                    await organisms[name].inject(payload, to, caller=caller, message_id="m1")
                again = await first.inject(Ask("hello"), "echo", caller=ANN, message_id="m1")

        assert again.thread_id == took.thread_id

    run(story())


def test_an_id_of_another_user_is_refused_though_all_else_is_the_same() -> None:
    async def story() -> None:
        with pagefile.open("memory:") as pf:
            organism = Organism(pf)
            organism.listener("echo", payload=Ask)(echo)
            async with organism:
                await organism.inject(Ask("hello"), "echo", caller=ANN, message_id="m1")
                namesake = Identity(ANN.name, BOB.user_id)
                with pytest.raises(Invalid, match="another caller's"):
                    await organism.inject(Ask("hello"), "echo", caller=namesake, message_id="m1")

    run(story())


@pytest.mark.parametrize("caller", [BOB, Identity("nobody")], ids=["bob", "nobody"])
def test_a_thread_that_another_user_began_is_no_place_to_go_on(caller: Identity) -> None:
    async def story() -> None:
        with pagefile.open("memory:") as pf:
            pf.context.append("anns", "my secret", "ann", "x", user_id=ANN.user_id)
            organism = Organism(pf)
            organism.listener("echo", payload=Ask)(echo)
            async with organism:
                with pytest.raises(Forbidden, match="another caller's"):
                    await organism.ask(Ask("?"), "echo", caller=caller, thread_id="anns")
                own = await organism.ask(Ask("mine"), "echo", caller=ANN, thread_id="anns")

        assert own.payload == Told("mine")

    run(story())


def test_a_message_is_redriven_as_often_as_one_likes() -> None:
    async def story() -> None:
        with pagefile.open("memory:") as pf:
            organism = Organism(pf)

            @organism.listener("fails", payload=Ask, retry=ONCE)
            async def fails(payload: Ask) -> HandlerResponse:
                raise ValueError("still broken")

            async with organism:
                await organism.ask(Ask("x"), "fails", caller=ANN)
                for _ in range(40):
                    (letter,) = organism.dead_letters()
                    await organism.answer(await organism.redrive(letter.message_id))

                assert [one.code for one in organism.dead_letters()] == ["handler"]

    run(story())


@pytest.mark.parametrize(
    ("field", "declare"),
    [
        ("limits", lambda o: Organism(limits={"max_depth": 3})),  # type: ignore[arg-type]
        ("retry", lambda o: o.listener("a", retry=3)(echo)),
        ("payload", lambda o: o.listener("a", payload=7)(echo)),
        ("payload", lambda o: o.listener("a", payload="Ask")(echo)),
        ("description", lambda o: o.listener("a", description=None)(echo)),
        ("prompt", lambda o: o.listener("a", agent=True, prompt=["be brief"])(echo)),
        ("listener", lambda o: o.register(echo)),
    ],
)
def test_a_declaration_of_a_wrong_type_is_refused_by_its_name(
    field: str, declare: Callable[[Organism], Any]
) -> None:
    organism = Organism()
    with pytest.raises(Invalid) as refused:
        declare(organism)

    assert refused.value.field == field
    assert organism.listeners == []


def test_a_request_of_a_wrong_type_is_refused_in_our_words() -> None:
    async def story() -> None:
        organism = Organism()
        organism.listener("echo", payload=Ask)(echo)
        async with organism:
            with pytest.raises(NotFound):
                await organism.inject(Ask("x"), ["echo"], caller=ANN)  # type: ignore[arg-type]
            with pytest.raises(Invalid, match="Delivery"):
                await organism.answer("m1")  # type: ignore[arg-type]

    run(story())


def test_a_pause_stays_a_number_however_it_grows() -> None:
    retry = Retry(attempts=1_000, pause=0.1, factor=86_400.0, most=60.0)

    assert [retry.seconds_after(failures) for failures in (1, 2, 999)] == [0.1, 60.0, 60.0]

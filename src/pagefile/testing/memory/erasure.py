"""Forgetting: everything, everywhere, in one commit, and for good."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pagefile.errors import Forbidden, Invalid
from pagefile.handle import Options, Pagefile
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.memory import Memory
from pagefile.memory.privacy import erasure_plan
from pagefile.testing.backend import Backend, promise
from pagefile.testing.memory.fixtures import (
    HOUR,
    MARKS,
    OF_EPISODES,
    OF_MEMORY,
    START,
    UNSEEN,
    Clock,
    MemoryFixtures,
    Scripted,
    counted,
    episode,
    export_lines,
    fact,
    forgotten_things,
    inputs,
    item_request,
    likes,
    objects,
    outcome,
    plant,
    plant_beside,
    say,
    spoken,
    traces,
)


class ForgettingContract(MemoryFixtures):
    """By user, by session, by time."""

    def test_the_dry_run_the_receipt_and_the_exports_agree(self, handle: Pagefile) -> None:
        memory = plant(handle, "ann")
        plant_beside(handle, "ann")
        before = export_lines(memory)
        head = handle.store.head()
        rehearsed = memory.forget(user_id="ann", dry_run=True)
        untouched = handle.store.head() == head
        receipt = memory.forget(user_id="ann")

        assert (rehearsed.dry_run, receipt.dry_run, untouched) == (True, False, True)
        assert rehearsed == receipt == sum(forgotten_things(receipt).values())
        assert rehearsed.counts == receipt.counts
        assert forgotten_things(receipt) == counted(before)
        assert export_lines(memory) == []

    @pytest.mark.parametrize("user", ["ann", None])
    def test_memory_G1_blocks_go_with_their_user(self, memory: Memory, user: str | None) -> None:
        memory.update_block("a", "one", user_id=user)
        memory.update_block("b", "two", user_id=user)
        memory.delete_block("b", user_id=user)
        receipt = memory.forget(user_id=user)

        assert (memory.working(user_id=user), receipt.counts["blocks"]) == ([], 2)
        assert memory.block_history("a", user_id=user) == []
        assert memory.block_history("b", user_id=user) == []
        assert memory.update_block("a", "new", user_id=user).pinned_order == 0

    def test_memory_G3_facts_go_with_the_only_episodes_they_rest_on(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        one, two = say(memory, "one", session="s1"), say(memory, "two", session="s2")
        memory.facts.declare("*", "multi")
        memory.facts.append(fact("Oslo", id="f1", sources=one))
        memory.facts.append(fact("Kyoto", id="f2", sources=[*one, *two]))
        memory.facts.append(fact("Rome", id="f3", sources=two))
        memory.facts.append(fact("Lima", id="f4"))
        memory.forget(user_id="ann", session_id="s1")
        left = memory.facts.query(user_id="ann", limit=10)
        told = json.dumps([line.decode() for line in export_lines(memory)])

        assert {known.object: known.sources for known in left} == {
            "Kyoto": tuple(two),
            "Rome": tuple(two),
            "Lima": (),
        }
        assert one[0] not in told
        assert objects(memory.recall_facts("user lives Kyoto", limit=1, user_id="ann")) == ["Kyoto"]
        assert memory.recall_facts("Oslo", user_id="ann") == []

    def test_memory_G3_what_a_forgotten_fact_had_closed_is_open_again(self, memory: Memory) -> None:
        ids = say(memory, "I moved", session="s1")
        memory.facts.append(fact("Oslo", valid_from=START - 9 * HOUR))
        memory.facts.append(fact("Kyoto", valid_from=START - 5 * HOUR, sources=ids))
        moved = objects(memory.facts.query(user_id="ann"))
        memory.forget(user_id="ann", session_id="s1")

        assert (moved, objects(memory.facts.query(user_id="ann"))) == (["Kyoto"], ["Oslo"])

    def test_memory_G3_what_a_forgotten_episode_had_ended_holds_again(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        def reading(exchange: Exchange) -> list[Candidate]:
            if exchange.input == "no more":
                return [Candidate("user", "likes", "tea", 0.9, valid_until=exchange.occurred_at)]
            return likes(exchange)

        memory = Memory(handle, embedder=None, extractor=Scripted(reading))
        say(memory, "I like tea", session="s1", at=START - 9 * HOUR)
        ended = say(memory, "no more", session="s2", at=START)
        memory.consolidate()
        without = memory.facts.query(user_id="ann")
        memory.forget(user_id="ann", session_id="s2")

        assert (without, objects(memory.facts.query(user_id="ann"))) == ([], ["tea"])
        assert traces(backend, handle, ended) == []

    def test_memory_G4_the_number_is_of_what_was_there(self, memory: Memory) -> None:
        say(memory, "one", "two")
        first = memory.forget(user_id="ann")
        again = memory.forget(user_id="ann")
        nobody = memory.forget(user_id="never seen")

        assert (first, again, nobody) == (2, 0, 0)
        assert (first + again, sorted([first, nobody]), bool(nobody)) == (2, [0, 2], False)
        assert repr(first).startswith("ForgetReceipt(2: episodes=2")

    @promise("S9")
    @pytest.mark.parametrize("user", ["zyqannvorbling", None])
    def test_memory_G5_no_byte_is_left_of_a_user_in_any_room(
        self, backend: Backend, handle: Pagefile, user: str | None
    ) -> None:
        memory = plant(handle, user)
        if user is not None:
            plant_beside(handle, user)
            words = [*MARKS.values(), user]
        else:
            words = [MARKS[place] for place in (*OF_EPISODES, *OF_MEMORY)]
        planted = {word for _, word in traces(backend, handle, words)}
        receipt = memory.forget(user_id=user)

        assert set(words) - {MARKS[place] for place in UNSEEN} <= planted
        assert receipt.receipt.level == backend.erasure
        assert traces(backend, handle, spoken(words)) == []
        assert memory.users() == []

    @promise("S9")
    @pytest.mark.parametrize("user", ["ann", None])
    def test_memory_G9_no_byte_is_left_of_a_session(
        self, backend: Backend, handle: Pagefile, user: str | None
    ) -> None:
        memory = plant(handle, user)
        say(memory, "kept apart", user=user, session="other")
        handle.context.append(MARKS["sessionname"], MARKS["slot"], "a", "b", user_id=user)
        words = [MARKS[place] for place in (*OF_EPISODES, "slot")]
        planted = {word for _, word in traces(backend, handle, words)}
        ids = [one.id for one in memory.recall("", session_id=MARKS["sessionname"], user_id=user)]
        memory.forget(user_id=user, session_id=MARKS["sessionname"])

        assert planted == set(words)
        assert traces(backend, handle, [*spoken(words), *ids]) == []
        assert inputs(memory.recall("kept", user_id=user)) == ["kept apart"]
        assert memory.block("b", user_id=user).content == MARKS["block"]

    @promise("S9")
    @pytest.mark.parametrize("scope", [{"session_id": "none"}, {"episode_id": "none"}, {}])
    def test_forgetting_what_is_not_there_makes_good_what_an_earlier_call_left(
        self, backend: Backend, memory: Memory, scope: dict[str, str]
    ) -> None:
        say(memory, "zyqsecret in her flat", user="ann")
        memory.forget(user_id="ann", scrub=False)
        told = memory.forget(user_id="bob", scrub=False, **scope)  # type: ignore[arg-type]
        left = [name for name, raw in backend.remains() if b"zyqsecret" in raw]
        receipt = memory.forget(user_id="bob", **scope)  # type: ignore[arg-type]
        after = [name for name, raw in backend.remains() if b"zyqsecret" in raw]

        assert not left or told.receipt.level == "logical"
        assert (receipt, receipt.receipt.level, after) == (0, backend.erasure, [])

    @promise("S9")
    def test_no_byte_is_left_in_an_index_that_is_half_made_anew(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, *(f"zyqword{n}x" for n in range(3)), session="s1")
        say(memory, "kept", session="s2")

        class PowerCut(Exception):
            pass

        def stop(count: int) -> None:
            raise PowerCut

        for n in range(300):
            say(memory, "filler", user=f"u{n % 3}", session=str(n))
        for _ in range(2):
            with pytest.raises(PowerCut):
                memory.reindex(stop)
        memory.forget(user_id="ann", session_id="s1")

        assert traces(backend, handle, spoken(f"zyqword{n}x" for n in range(3))) == []
        memory.reindex()
        assert inputs(memory.recall("kept", user_id="ann")) == ["kept"]

    def test_memory_G6_nothing_is_capped(self, memory: Memory) -> None:
        for at in (0, 550):
            memory.remember_many([episode(f"w{n}", id=f"e{n}") for n in range(at, at + 550)])
        memory.facts.append_many(
            [fact(f"p{n}", predicate="visited", id=f"f{n}") for n in range(1_200)]
        )
        told = memory.profile(user_id="ann")
        lines = counted(export_lines(memory))
        made, shown = memory.export(user_id="ann"), memory.snapshot(user_id="ann")
        listed = (len(made.episodes), len(made.facts), len(shown["episodes"]))
        receipt = memory.forget(user_id="ann")

        assert listed == (1_100, 1_200, 1_100)
        assert (told.episode_count, told.fact_count) == (1_100, 1_200)
        assert lines == {"episodes": 1_100, "facts": 1_200}
        assert forgotten_things(receipt) == lines
        assert export_lines(memory) == []

    @pytest.mark.parametrize("user", ["ann", None])
    @pytest.mark.parametrize(
        "extent", [{}, {"session_id": "s"}, {"before": START + timedelta(days=9)}]
    )
    def test_however_many_documents_there_are_they_can_be_forgotten(
        self,
        handle: Pagefile,
        monkeypatch: pytest.MonkeyPatch,
        user: str | None,
        extent: dict[str, Any],
    ) -> None:
        """With a bound of eight names a commit, where there are some thirty."""
        monkeypatch.setattr(erasure_plan, "MOST_NAMED", 8)
        memory = Memory(handle, embedder=None, extractor=Scripted(), record_use=True)
        memory.remember_many([episode(f"I like w{n}", user, id=f"e{n}") for n in range(10)])
        kept = memory.remember(
            episode("I like this", user, "other", at=START + timedelta(days=20), id="kept")
        )
        memory.consolidate()
        shared = ("e1", "e9", kept)
        memory.facts.append(fact("Oslo", user, predicate="visited", sources=shared))
        memory.recall("w3", user_id=user)
        before = export_lines(memory, user)
        rehearsed = memory.forget(user_id=user, dry_run=True, **extent)
        receipt = memory.forget(user_id=user, **extent)
        after = export_lines(memory, user)

        # But for entries of the index: that it is to be read again is noted there in each round.
        assert forgotten_things(rehearsed) == forgotten_things(receipt)
        assert (rehearsed, rehearsed.kept) == (receipt, receipt.kept)
        assert forgotten_things(receipt) == counted(before) - counted(after)
        assert (after == [], receipt.counts["episodes"]) == ((False, 10) if extent else (True, 11))
        again = outcome(memory.remember, episode("I like w3", user, id="e3"))
        assert again == "Forbidden"

    @pytest.mark.parametrize("user", ["ann", None])
    def test_a_user_as_a_whole_goes_in_one_commit_however_much_there_is(
        self, handle: Pagefile, memory: Memory, monkeypatch: pytest.MonkeyPatch, user: str | None
    ) -> None:
        memory.remember_many([episode(f"w{n}", user, id=f"e{n}") for n in range(30)])
        head = handle.store.head().position
        monkeypatch.setattr(erasure_plan, "MOST_NAMED", 20)
        memory.forget(user_id=user)
        commits = handle.store.head().position - head

        # Nobody's data are named one by one: others keep theirs under no name, too.
        assert commits == (1 if user else 3)

    def test_a_fact_that_rests_on_more_is_told_as_kept(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        one, two = say(memory, "one", session="s1"), say(memory, "two", session="s2")
        memory.facts.declare("*", "multi")
        memory.facts.append(fact("Oslo", id="f1", sources=one))
        memory.facts.append(fact("Kyoto", id="f2", sources=(*one, *two)))
        memory.facts.append(fact("Lima", id="f3", sources=(*one, *two)))
        memory.facts.retract("f3", reason="moved", user_id="ann")
        lines = export_lines(memory)
        rehearsed = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        receipt = memory.forget(user_id="ann", session_id="s1")

        assert (receipt.counts, receipt.kept) == (rehearsed.counts, rehearsed.kept)
        assert (receipt.counts["facts"], receipt.kept) == (1, {"facts": 2, "retractions": 1})
        assert forgotten_things(receipt) == counted(lines) - counted(export_lines(memory))
        assert objects(memory.facts.query(user_id="ann")) == ["Kyoto"]
        assert sorted(known.sources for known in memory.facts.assertions(user_id="ann")) == [
            tuple(two),
            tuple(two),
        ]

    def test_receipts_of_prompts_are_in_no_export_and_not_in_the_number(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "I like tea")
        handle.context.append("t", "hello", "a", "b", user_id="ann")
        handle.assemble("t", "tea", user_id="ann")
        lines = export_lines(memory)
        rehearsed = memory.forget(user_id="ann", dry_run=True)
        receipt = memory.forget(user_id="ann")

        assert rehearsed == receipt == sum(counted(lines).values())
        assert receipt.counts["receipts"] == 1
        assert forgotten_things(receipt) == counted(lines)

    def test_memory_G11_a_dry_run_counts_without_a_copy_of_what_it_counts(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "x" * 200_000)
        receipt = memory.forget(user_id="ann", dry_run=True)

        assert (receipt, receipt.receipt.position) == (1, None)
        assert receipt.receipt.size_bytes > 200_000

    def test_a_session_takes_only_what_is_its_own(self, handle: Pagefile, memory: Memory) -> None:
        for user in ("ann", "bob"):
            for session in ("s1", "s2"):
                say(memory, f"{user} in {session}", user=user, session=session)
                handle.context.append(session, f"{user}'s slot", "a", "b", user_id=user)
        before = export_lines(memory)
        rehearsed = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        receipt = memory.forget(user_id="ann", session_id="s1")
        after = export_lines(memory)

        assert rehearsed.counts == receipt.counts
        assert forgotten_things(receipt) == counted(before) - counted(after)
        assert inputs(memory.recall("", user_id="ann")) == ["ann in s2"]
        assert len(memory.recall("", user_id="bob")) == 2
        slots = handle.context.get_thread_slots("s1")
        assert [slot.erased for slot in slots] == [True, False]

    @pytest.mark.parametrize("session", ["a\nb", "s" * 512, "é" * 256, "", "a/b", "\x00"])
    def test_a_session_of_any_name_can_be_forgotten(self, memory: Memory, session: str) -> None:
        say(memory, "in it", session=session)
        say(memory, "beside it", session="another")
        receipt = memory.forget(user_id="ann", session_id=session)

        assert (receipt, inputs(memory.recall("", user_id="ann"))) == (1, ["beside it"])

    @promise("S9")
    def test_one_episode_goes_with_what_rests_on_it_alone(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted())
        for user in ("ann", "bob"):
            memory.remember(episode("I like quinces", user, id="e1"))
            memory.remember(episode("I like medlars", user, id="e2"))
        memory.consolidate()
        rehearsed = memory.forget(user_id="ann", episode_id="e1", dry_run=True)
        receipt = memory.forget(user_id="ann", episode_id="e1")
        again = memory.forget(user_id="ann", episode_id="e1")

        assert rehearsed.counts == receipt.counts
        assert (receipt.counts["episodes"], receipt.counts["facts"], again) == (1, 1, 0)
        assert inputs(memory.recall("quinces medlars", user_id="ann")) == ["I like medlars"]
        assert objects(memory.facts.query(user_id="ann")) == ["medlars"]
        assert len(memory.recall("", user_id="bob")) == 2
        with pytest.raises(Forbidden):
            memory.remember(episode("I like quinces", "ann", id="e1"))

    @pytest.mark.parametrize("also", [{"session_id": "s"}, {"before": START}])
    def test_an_episode_is_forgotten_by_itself_or_not_at_all(
        self, memory: Memory, also: dict[str, Any]
    ) -> None:
        say(memory, "kept")
        with pytest.raises(Invalid, match="episode_id"):
            memory.forget(user_id="ann", episode_id="e1", **also)

        assert inputs(memory.recall("", user_id="ann")) == ["kept"]

    def test_before_a_moment_goes_what_happened_or_was_stored_before_it(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        options = Options(clock=clock.microseconds)
        handle = backend.open(options=options)
        memory = Memory(handle, embedder=None, clock=clock)
        say(memory, "old")
        memory.facts.append(fact("Oslo", predicate="visited"))
        memory.update_block("b", "old text", user_id="ann")
        memory.update_block("c", "old only", user_id="ann")
        clock.passes(days=2)
        cut = clock.now
        clock.passes(days=1)
        say(memory, "new", at=clock.now)
        say(memory, "told late of long ago", at=START - timedelta(days=30), session="late")
        memory.facts.append(fact("Kyoto", predicate="visited"))
        memory.update_block("b", "new text", user_id="ann")
        lines = export_lines(memory)
        rehearsed = memory.forget(user_id="ann", before=cut, dry_run=True)
        receipt = memory.forget(user_id="ann", before=cut)

        assert rehearsed.counts == receipt.counts
        assert receipt.receipt.records == rehearsed.receipt.records
        assert inputs(memory.recall("", user_id="ann")) == ["new"]
        assert inputs(memory.recall("new old told", user_id="ann")) == ["new"]
        assert objects(memory.facts.query(user_id="ann")) == ["Kyoto"]
        assert [(b.name, b.content) for b in memory.working(user_id="ann")] == [("b", "new text")]
        left = export_lines(memory)
        assert len(lines) - len(left) == receipt.receipt.records - receipt.counts["index"]
        assert set(left) <= set(lines)

    def test_what_was_stored_before_goes_with_its_later_versions(self, backend: Backend) -> None:
        clock = Clock()
        memory = Memory(
            backend.open(options=Options(clock=clock.microseconds)),
            embedder=None,
            clock=clock,
            extractor=Scripted(),
        )
        say(memory, "I like tea", at=START + timedelta(days=9))
        clock.passes(days=1)
        cut = clock.now
        clock.passes(days=1)
        memory.consolidate()
        memory.forget(user_id="ann", before=cut)

        assert export_lines(memory) == []
        assert memory.profile(user_id="ann").episode_count == 0

    @pytest.mark.parametrize("ended_late", [False, True])
    def test_an_item_that_goes_by_its_time_is_not_made_active_by_what_goes_with_it(
        self, backend: Backend, ended_late: bool
    ) -> None:
        clock = Clock()
        handle = backend.open(options=Options(clock=clock.microseconds))
        memory = Memory(handle, embedder=None, clock=clock)
        (gone,) = say(memory, "no cat")
        cat = item_request("has a cat", "ann") | {"memory_id": "cat"}
        end = item_request("no cat", "ann") | {
            "op": "deprecate",
            "target_memory_id": "cat",
            "source_refs": [gone],
        }
        made, ended = (handle.items.propose([one], user_id="ann").batch_id for one in (cat, end))
        handle.items.commit(made, reviewer="rev")
        cut = clock.now + HOUR
        clock.passes(days=ended_late)
        handle.items.commit(ended, reviewer="rev")
        clock.passes(days=1)
        would = memory.forget(user_id="ann", before=cut, dry_run=True)
        done = memory.forget(user_id="ann", before=cut)

        assert (would, would.counts) == (done, done.counts)
        assert done.counts["items"] == 1
        assert handle.items.search("cat", user_id="ann", status=None) == []
        assert export_lines(memory) == []

    def test_a_fact_that_goes_by_its_time_stays_in_no_other_form(self, backend: Backend) -> None:
        clock = Clock()
        handle = backend.open(options=Options(clock=clock.microseconds))
        unsure = Candidate("user", "lives_in", "Rome", 0.3, valid_until=START + HOUR)
        memory = Memory(
            handle, embedder=None, clock=clock, extractor=Scripted(lambda one: [unsure])
        )
        (gone,) = say(memory, "old")
        say(memory, "told of what is to come", at=START + timedelta(days=9))
        memory.facts.append(fact("Rome", sources=(gone, "a letter")))
        memory.consolidate()
        clock.passes(days=1)
        memory.facts.append(fact("Kyoto", predicate="visited", sources=(gone, "a letter")))
        memory.forget(user_id="ann", before=clock.now)

        assert [(one.object, one.sources) for one in memory.facts.query(user_id="ann")] == [
            ("Kyoto", ("a letter",))
        ]
        assert memory.proposals.waiting(user_id="ann") == []

    @pytest.mark.parametrize("user", ["ann", None])
    def test_the_name_of_a_block_that_went_by_its_time_is_free_again(
        self, memory: Memory, user: str | None
    ) -> None:
        memory.update_block("b", "old", user_id=user)
        memory.update_block("b", "older", user_id=user)
        memory.forget(user_id=user, before=datetime.now(UTC) + HOUR)
        gone = outcome(memory.delete_block, "b", user_id=user)
        memory.update_block("b", "new", user_id=user, expected_version=0)

        assert gone == "NotFound"
        assert [one.content for one in memory.working(user_id=user)] == ["new"]
        assert [one.content for one in memory.block_history("b", user_id=user)] == ["new"]

    def test_a_block_that_outlived_its_older_versions_is_not_taken_for_forgotten(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        memory = Memory(
            backend.open(options=Options(clock=clock.microseconds)), embedder=None, clock=clock
        )
        memory.update_block("b", "old", user_id="ann")
        clock.passes(days=1)
        memory.update_block("b", "new", user_id="ann")
        receipt = memory.forget(user_id="ann", before=clock.now)
        kept = memory.append_block("b", "er", user_id="ann")
        again = memory.import_(list(memory.export(user_id="ann")))

        assert (receipt.receipt.records, kept.content) == (1, "newer")
        assert (again.present, again.forgotten) == (1, 0)

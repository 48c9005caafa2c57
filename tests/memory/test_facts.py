"""Facts: two axes of time, nothing edited, and the same answer for the same question."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pagefile
from pagefile import (
    Append,
    Batch,
    Conflict,
    Corrupt,
    Invalid,
    LimitExceeded,
    Memory,
    NotFound,
    Options,
    Put,
    Store,
)
from pagefile.memory import documents as ids
from pagefile.memory.documents import new_id, owner_key
from pagefile.memory.facts.documents import Alias, assertions_of
from pagefile.memory.facts.fact import Fact, canonical_predicate, normalised
from pagefile.memory.facts.plane import Claim, Withdrawal, standing
from pagefile.memory.facts.plane import windows as windows_of
from pagefile.memory.facts.store import FactStore
from pagefile.memory.facts.view import Names
from pagefile.recall.index import SearchIndex
from pagefile.store.batch import Condition, Operation, Query, Selector

START = datetime(2030, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def year(number: int, month: int = 1) -> datetime:
    return datetime(number, month, 1, tzinfo=UTC)


class Clock:
    """The store's clock and that of its readers: it moves when it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return (self.now - datetime(1970, 1, 1, tzinfo=UTC)) // MICROSECOND

    def passes(self, seconds: int = 1) -> datetime:
        """The moment before, and go on."""
        before = self.now
        self.now += timedelta(seconds=seconds)
        return before


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def store(
    request: pytest.FixtureRequest, url_on: Callable[[str], str], clock: Clock
) -> Iterator[Store]:
    with pagefile.open(url_on(request.param), options=Options(clock=clock)) as pf:
        yield pf.store
        assert (pf.check().problems, pf.verify().problems) == ((), ())


@pytest.fixture
def facts(store: Store, clock: Clock) -> FactStore:
    return FactStore(store, clock=clock)


class Teller:
    """Asserts facts about Ann, each recorded a second after the one before."""

    def __init__(self, facts: FactStore, clock: Clock) -> None:
        self._facts = facts
        self._clock = clock

    def __call__(
        self,
        object_: str,
        since: int,
        until: int | None = None,
        *,
        predicate: str = "lives_in",
        subject: str = "Ann",
        **fields: Any,
    ) -> str:
        self._clock.passes()
        end = None if until is None else year(until)
        fact = Fact(
            subject=subject,
            predicate=predicate,
            object=object_,
            valid_from=year(since),
            valid_until=end,
            **fields,
        )
        return self._facts.append(fact)


@pytest.fixture
def tell(facts: FactStore, clock: Clock) -> Teller:
    return Teller(facts, clock)


def windows(facts: FactStore, **asked: Any) -> list[tuple[str, int, int | None]]:
    """All windows of Ann's by start: object, from, until, in years."""
    found = facts.query(subject="Ann", history=True, limit=1_000, **asked)
    found.sort(key=lambda fact: (fact.valid_from, fact.object))
    return [
        (f.object, f.valid_from.year, f.valid_until.year if f.valid_until else None) for f in found
    ]


def objects(found: list[Fact]) -> list[str]:
    return [fact.object for fact in found]


# T1: late arrivals


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_memory_T1_facts_until_further_notice_line_up_in_whatever_order_they_arrive(
    facts: FactStore, tell: Teller, order: tuple[int, ...]
) -> None:
    told = [("Oslo", 2010), ("Paris", 2015), ("Rome", 2020)]
    for i in order:
        tell(*told[i])

    assert windows(facts) == [("Oslo", 2010, 2015), ("Paris", 2015, 2020), ("Rome", 2020, None)]
    assert objects(facts.query(subject="Ann")) == ["Rome"]


def test_memory_T1_a_fact_that_ended_long_ago_closes_nothing(
    facts: FactStore, tell: Teller
) -> None:
    tell("Tokyo", 2020)
    tell("Paris", 2010, 2015)

    assert windows(facts) == [("Paris", 2010, 2015), ("Tokyo", 2020, None)]
    assert objects(facts.query(subject="Ann")) == ["Tokyo"]


def test_memory_T1_a_late_arrival_in_the_middle_splits_the_window(
    facts: FactStore, tell: Teller
) -> None:
    tokyo = tell("Tokyo", 2010)
    paris = tell("Paris", 2015, 2017)

    assert windows(facts) == [("Tokyo", 2010, 2015), ("Paris", 2015, 2017), ("Tokyo", 2017, None)]
    first, _, last = sorted(
        facts.query(subject="Ann", history=True), key=lambda fact: fact.valid_from
    )
    assert (first.id, first.superseded_by, first.status) == (tokyo, paris, "superseded")
    assert (last.id, last.superseded_by, last.status) == (tokyo, None, "active")


def test_memory_T1_no_window_is_inverted(facts: FactStore, tell: Teller) -> None:
    chance = random.Random(7)
    for _ in range(60):
        since = chance.randrange(1990, 2029)
        until = chance.choice([None, since + chance.randrange(1, 9)])
        tell(chance.choice("ABCDE"), since, until)
    found = windows(facts)

    assert all(until is None or since < until for _, since, until in found)
    assert all(a[2] is not None and a[2] <= b[1] for a, b in itertools.pairwise(found))


def test_an_explicit_correction_replaces_what_was_said_of_the_same_time(
    facts: FactStore, tell: Teller
) -> None:
    paris = tell("Paris", 2015)
    rome = tell("Rome", 2015, reason="she corrected it", actor="carl")

    assert windows(facts) == [("Rome", 2015, None)]
    [hidden] = facts.query(subject="Ann", status="superseded")
    assert (hidden.id, hidden.superseded_by) == (paris, rome)
    assert hidden.closed is not None
    assert (hidden.closed.how, hidden.closed.by) == ("superseded", rome)
    assert (hidden.closed.reason, hidden.closed.actor) == ("she corrected it", "carl")


def test_who_came_back_is_a_new_fact(facts: FactStore, tell: Teller) -> None:
    first, _, again = tell("Tokyo", 2010), tell("Paris", 2015), tell("Tokyo", 2020)
    found = facts.query(subject="Ann", history=True)

    assert windows(facts) == [("Tokyo", 2010, 2015), ("Paris", 2015, 2020), ("Tokyo", 2020, None)]
    assert [fact.asserted for fact in found if fact.object == "Tokyo"] == [(again,), (first,)]


# T2: recorded time


def test_memory_T2_what_was_believed_on_a_day_can_be_asked(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    tell("Tokyo", 2020)
    believed_tokyo = clock.now
    tell("Paris", 2025)
    believed_paris = clock.now
    rome = tell("Rome", 2025, 2027)
    facts.retract(rome, reason="a misreading", actor="carl")

    assert windows(facts, known_at=believed_tokyo) == [("Tokyo", 2020, None)]
    assert windows(facts, known_at=believed_paris) == [
        ("Tokyo", 2020, 2025),
        ("Paris", 2025, None),
    ]
    assert windows(facts, known_at=START - MICROSECOND) == []
    at = {"subject": "Ann", "known_at": believed_tokyo}
    assert objects(facts.query(valid_at=year(2026), **at)) == ["Tokyo"]  # type: ignore[arg-type]


def test_memory_T2_a_retraction_opens_what_the_retracted_had_closed(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    tell("Tokyo", 2020)
    paris = tell("Paris", 2025)
    clock.passes()
    before = clock.passes()
    gone = facts.retract(paris, reason="it was her brother", actor="carl")

    assert gone == [paris]
    assert windows(facts) == [("Tokyo", 2020, None)]
    assert windows(facts, known_at=before) == [("Tokyo", 2020, 2025), ("Paris", 2025, None)]
    [retracted] = facts.query(subject="Ann", status="retracted")
    assert retracted.closed is not None
    assert (retracted.closed.how, retracted.closed.recorded_at) == ("retracted", clock.now)
    assert (retracted.closed.reason, retracted.closed.actor) == ("it was her brother", "carl")
    assert facts.retract(paris) == []


def test_a_fact_can_end_without_another_taking_over(facts: FactStore, tell: Teller) -> None:
    acme = tell("Acme", 2015, predicate="works_at")
    tell("jazz", 2010, predicate="likes")
    facts.retract(acme, since=year(2020), reason="she left", actor="carl")

    assert windows(facts) == [("jazz", 2010, None), ("Acme", 2015, 2020)]
    [ended] = facts.query(subject="Ann", status="ended")
    assert ended.closed is not None
    assert (ended.closed.how, ended.closed.reason, ended.superseded_by) == (
        "retracted",
        "she left",
        None,
    )
    assert facts.retract(acme, since=year(2021)) == []
    assert facts.retract(acme, since=year(2012)) == [acme]
    assert windows(facts) == [("jazz", 2010, None)]


def test_a_fact_that_ended_by_itself_was_closed_by_nobody(facts: FactStore, tell: Teller) -> None:
    tell("Tokyo", 2010, 2020)
    shorter = tell("Tokyo", 2010, 2018)
    tell("Paris", 2020)
    facts.retract(shorter, since=year(2015), only=True)
    [tokyo] = facts.query(subject="Ann", status="ended")

    assert (tokyo.valid_until, tokyo.superseded_by, tokyo.closed) == (year(2020), None, None)


def test_retracting_a_fact_takes_all_that_say_it_unless_only_one_is_meant(
    facts: FactStore, tell: Teller
) -> None:
    first, second = tell("Tokyo", 2010, sources=["a"]), tell("Tokyo", 2012, sources=["b"])
    other = tell("Tokyo", 2000, 2005)

    assert facts.retract(first, only=True) == [first]
    assert windows(facts) == [("Tokyo", 2000, 2005), ("Tokyo", 2012, None)]
    third = tell("Tokyo", 2011)
    assert sorted(facts.retract(second)) == sorted([second, third])
    assert windows(facts) == [("Tokyo", 2000, 2005)]
    assert facts.why(other).status == "ended"


def test_memory_T2_history_shows_every_rectangle_with_what_made_and_ended_it(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    tokyo, told_tokyo = tell("Tokyo", 2010), clock.now
    paris, told_paris = tell("Paris", 2015), clock.now
    clock.passes()
    facts.retract(paris)
    shown = [
        (
            one.fact.object,
            one.fact.valid_from.year,
            one.fact.valid_until.year if one.fact.valid_until else None,
            one.recorded_from,
            one.recorded_until,
        )
        for one in facts.history("Ann", "lives_in").rectangles
    ]

    assert shown == [
        ("Tokyo", 2010, None, told_tokyo, told_paris),
        ("Tokyo", 2010, 2015, told_paris, clock.now),
        ("Paris", 2015, None, told_paris, clock.now),
        ("Tokyo", 2010, None, clock.now, None),
    ]
    history = facts.history("Ann", "livesIn")
    assert history.rectangles[0].made_by == (tokyo,)
    assert history.rectangles[0].ended_by == (paris,)
    assert [fact.id for fact in history.unseen] == [paris]
    assert (history.cut, facts.history("Ann", "lives_in", limit=1).cut != "") == ("", True)
    assert facts.history("nobody", "lives_in").rectangles == ()


def test_why_tells_sources_support_and_what_a_fact_took_over(
    facts: FactStore, tell: Teller
) -> None:
    tokyo = tell("Tokyo", 2010, sources=["ep_1"], actor="extractor", reason="said so")
    paris = tell("Paris", 2015, sources=["ep_2"])
    again = tell("paris", 2016, sources=["ep_3"])
    story = facts.why(paris)

    assert (story.status, story.sources) == ("active", ("ep_2", "ep_3"))
    assert [fact.id for fact in story.support] == [again]
    assert [fact.id for fact in story.supersedes] == [tokyo]
    assert story.closed_by == ()
    assert [fact.id for fact in facts.why(tokyo).closed_by] == [paris]
    assert (facts.why(tokyo).asserted.actor, facts.why(tokyo).asserted.reason) == (
        "extractor",
        "said so",
    )
    with pytest.raises(NotFound):
        facts.why(tokyo, user_id="ann")
    with pytest.raises(NotFound):
        facts.why(again, known_at=START)


# T3: the same said again


def test_memory_T3_saying_it_again_merges_sources_and_confidence(
    facts: FactStore, tell: Teller
) -> None:
    names = [
        tell("Tokyo", 2010, sources=["ep_1"], confidence=0.5),
        tell("  TOKYO ", 2010, sources=["ep_2"], confidence=0.5),
        tell("tokyo", 2012, sources=["ep_2"], confidence=0.4),
        tell("Tokyo", 2010),
        tell("Tokyo", 2010, 2011, sources=["ep_1", "ep_3"], confidence=0.1),
    ]
    facts.retract(names[3], only=True)
    [fact] = facts.query(subject="Ann")

    assert (fact.id, fact.object, fact.asserted) == (
        names[0],
        "Tokyo",
        (names[0], names[1], names[2], names[4]),
    )
    assert fact.sources == ("ep_1", "ep_2", "ep_3")
    assert fact.confidence == 0.75
    assert facts.count() == 5


def test_a_fact_of_more_sources_than_one_may_name_is_read_with_the_newest(
    facts: FactStore,
) -> None:
    facts.append_many(
        [
            Fact(subject="Ann", predicate="lives_in", object="Lisbon", sources=(f"ep_{n}",))
            for n in range(1_030)
        ]
    )
    [fact] = facts.query(subject="ann")

    assert fact.sources == tuple(f"ep_{n}" for n in range(6, 1_030))
    assert len(fact.asserted) == len(facts.why(fact.id).sources) == 1_030


def test_a_claim_that_shares_a_source_with_two_witnesses_makes_them_one(
    facts: FactStore, tell: Teller
) -> None:
    for sources in (["a"], ["b"], ["c"], ["b", "d"], ["d", "a"]):
        tell("Tokyo", 2020, confidence=0.5, sources=sources)

    assert facts.query(subject="Ann")[0].confidence == 0.75


def test_memory_T3_one_source_cannot_vouch_twice(facts: FactStore, tell: Teller) -> None:
    for _ in range(5):
        tell("Tokyo", 2010, sources=["ep_1"], confidence=0.3)
        tell("jazz", 2010, predicate="likes", confidence=0.3)

    assert [fact.confidence for fact in facts.query(subject="Ann")] == [0.3, 0.3]


# T4: predicates, names


def test_memory_T4_a_predicate_of_many_objects_closes_nothing(
    facts: FactStore, tell: Teller
) -> None:
    tell("tea", 2010, predicate="likes")
    jazz = tell("jazz", 2012, predicate="Likes")
    tell("jazz", 2014, predicate="likes")

    assert windows(facts) == [("tea", 2010, None), ("jazz", 2012, None)]
    facts.retract(jazz)
    assert windows(facts) == [("tea", 2010, None)]


def test_memory_T4_kinds_are_declared_durably_and_have_a_recorded_time(
    facts: FactStore, tell: Teller, clock: Clock, store: Store
) -> None:
    tell("red", 2010, predicate="favourite_colour")
    tell("blue", 2012, predicate="favourite_colour")
    before = clock.passes()
    facts.declare("favouriteColour", "multi")

    assert windows(facts, known_at=before) == [("red", 2010, 2012), ("blue", 2012, None)]
    again = FactStore(store, clock=clock)
    assert windows(again) == [("red", 2010, None), ("blue", 2012, None)]
    facts.declare("favourite_colour", "single")
    assert windows(again) == [("red", 2010, 2012), ("blue", 2012, None)]
    facts.declare("*", "multi")
    assert [facts.kinds.kind(name) for name in ("x", "likes", "favourite colour")] == [
        "multi",
        "multi",
        "single",
    ]
    facts.delete()
    store.erase(pagefile.Selector(anonymous=True))
    assert facts.kinds.kind("x") == "multi"


def test_what_is_declared_already_is_not_stored_again(facts: FactStore, store: Store) -> None:
    for _ in range(3):
        facts.declare("lives in", "multi")
    position = store.head().position
    facts.declare("livesIn", "multi")
    FactStore(store).declare("lives_in", "multi")

    assert store.head().position == position
    facts.declare("lives_in", "single")
    facts.declare("lives_in", "multi")
    assert store.head().position == position + 2


def test_names_and_kinds_are_read_again_only_after_a_change(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, other = FactStore(store, clock=clock), FactStore(store, clock=clock)
    facts.append(Fact(subject="Robert", predicate="lives_in", object="Oslo"))
    assert facts.query(subject="Bob") == []
    spy = Spy(store, monkeypatch)
    facts.query(subject="Bob")
    once = spy.calls
    facts.query(subject="Bob")
    other.alias("Bob", "Robert")
    other.declare("lives_in", "multi")
    other.append(Fact(subject="Robert", predicate="lives_in", object="Rome"))

    assert len(facts.query(subject="Bob")) == 2
    assert once == (1 if store._stamp() is not None else 2)


def test_a_long_chain_of_aliases_ends_at_its_last() -> None:
    order = (0, 0, 0, "")
    chain = [Alias(f"a{n}", f"n{n}", f"n{n + 1}", "", order) for n in range(2_000)]
    names = Names([*chain, Alias("r", "x", "y", "", order), Alias("s", "y", "x", "", order)])

    assert (names.of("N0"), names.of("n1999"), names.of("y")) == ("n2000", "n2000", "x")
    assert len(names.spellings("n2000")) == 2_001


def test_memory_T4_spelling_does_not_part_what_is_one(facts: FactStore, tell: Teller) -> None:
    tell("Tokyo", 2010, subject="ＡＮＮ")
    tell("Paris", 2015, subject=" ann ")

    assert windows(facts) == [("Tokyo", 2010, 2015), ("Paris", 2015, None)]
    assert {fact.subject for fact in facts.query(subject="aNN", history=True)} == {
        "ＡＮＮ",
        " ann ",
    }
    assert objects(facts.query(object_="PARIS")) == ["Paris"]
    assert normalised("Straße") == normalised("STRASSE")
    assert normalised(normalised("ϓ\u0301")) == normalised("ϓ\u0301")


def test_memory_T4_aliases_join_subjects_and_objects_and_can_be_undone(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    tell("Acme", 2010, predicate="works_at", subject="Bob")
    tell("Acme Inc.", 2012, predicate="works_at", subject="Robert")
    before = clock.passes()
    facts.alias("bob", "Robert")
    facts.alias("Acme  Inc.", "ACME")
    [fact] = facts.query(subject="BOB")

    assert (fact.valid_from, len(fact.asserted)) == (year(2010), 2)
    assert facts.query(object_="acme inc.") == [fact] == facts.query(subject="robert")
    assert facts.aliases() == {"acme inc.": "acme", "bob": "robert"}
    assert facts.aliases(user_id="ann") == {}
    [then] = facts.query(subject="Bob", known_at=before)
    assert (then.object, len(then.asserted)) == ("Acme", 1)
    facts.alias("Bob", "ROBERT")
    with pytest.raises(Invalid):
        facts.alias("Robert", "Bob")
    with pytest.raises(Invalid):
        facts.alias("Ann", "ann")
    clock.passes()
    facts.unalias("Bob")
    assert objects(facts.query(subject="Bob")) == ["Acme"]
    assert facts.query(subject="Robert")[0].valid_from == year(2012)
    with pytest.raises(NotFound):
        facts.unalias("Bob")


def test_a_ring_of_aliases_made_by_two_at_once_ends_somewhere(facts: FactStore) -> None:
    facts.alias("a", "b")
    facts._say_alias(None, "b", "a", "")
    facts._say_alias(None, "z", "b", "")

    assert facts.aliases() == {"a": "a", "b": "a", "z": "a"}
    assert Names([]).spellings("a") == ["a"]


# T5: confidence


def test_memory_T5_a_doubtful_claim_does_not_override_a_sure_one(
    facts: FactStore, tell: Teller
) -> None:
    tokyo = tell("Tokyo", 2010, confidence=0.99)
    paris = tell("Paris", 2015, confidence=0.1, sources=["ep_1"])

    assert windows(facts) == [("Tokyo", 2010, None)]
    [doubted] = facts.query(subject="Ann", status="outweighed")
    assert (doubted.id, doubted.superseded_by) == (paris, tokyo)
    assert doubted.closed is not None
    assert doubted.closed.how == "outweighed"
    tell("Paris", 2016, confidence=0.45, sources=["ep_2"])
    assert windows(facts) == [("Tokyo", 2010, 2016), ("Paris", 2016, None)]


def test_memory_T5_half_as_sure_is_enough_and_a_doubtful_one_holds_where_nothing_else_does(
    facts: FactStore, tell: Teller
) -> None:
    tell("Tokyo", 2010, 2012, confidence=0.8)
    tell("Paris", 2011, confidence=0.4)
    tell("Rome", 2009, confidence=0.1)

    assert windows(facts) == [("Rome", 2009, 2010), ("Tokyo", 2010, 2011), ("Paris", 2011, None)]


def test_memory_T5_recall_prefers_the_surer_of_two_that_match_as_well(
    facts: FactStore, tell: Teller
) -> None:
    tell("tea", 2010, predicate="likes", confidence=0.9)
    tell("jam", 2010, predicate="likes", confidence=0.2)

    assert objects(facts.recall_text("what does Ann like?")) == ["tea", "jam"]


# T6: the same id again


def test_memory_T6_the_same_fact_again_changes_nothing(
    facts: FactStore, store: Store, clock: Clock
) -> None:
    fact = Fact(subject="Ann", predicate="likes", object="tea", sources=("ep_1",), actor="x")
    timed = msgspec.structs.replace(fact, id=new_id("fact"), recorded_at=START + timedelta(days=9))
    assert facts.append_many([fact, timed, fact]) == [fact.id, timed.id, fact.id]
    clock.passes()
    position = store.head().position
    [stored] = facts.query(subject="Ann")
    other = Fact(subject="Ann", predicate="likes", object="jam")

    assert facts.append(fact) == fact.id
    assert facts.append(msgspec.structs.replace(fact, recorded_at=stored.recorded_at)) == fact.id
    assert facts.append(timed) == timed.id
    assert store.head().position == position
    assert facts.append_many([fact, other]) == [fact.id, other.id]
    assert facts.count() == 3


def test_memory_T6_something_else_under_the_same_id_is_refused_whole(facts: FactStore) -> None:
    fact = Fact(subject="Ann", predicate="likes", object="tea")
    facts.append(fact)
    other = Fact(subject="Ann", predicate="likes", object="jam")
    for change in ({"object": "gin"}, {"confidence": 0.5}, {"sources": ("ep_1",)}):
        with pytest.raises(Conflict) as refused:
            facts.append_many([other, msgspec.structs.replace(fact, **change)])
        assert refused.value.target == fact.id

    assert facts.query() == facts.query(subject="ann", object_="TEA")
    assert facts.count() == 1
    with pytest.raises(Invalid, match="twice"):
        facts.append_many([other, msgspec.structs.replace(other, object="gin")])


def test_memory_T6_an_id_counts_within_its_user(facts: FactStore) -> None:
    fact = Fact(subject="Ann", predicate="likes", object="tea")
    facts.append(fact)
    facts.append(msgspec.structs.replace(fact, user_id="ann", object="gin"))

    assert objects(facts.query()) == ["tea"]
    assert objects(facts.query(user_id="ann")) == ["gin"]


# T7: time zones


@pytest.mark.parametrize("field", ["valid_from", "valid_until", "recorded_at"])
def test_memory_T7_a_time_without_a_zone_is_refused(field: str) -> None:
    with pytest.raises(Invalid) as refused:
        Fact(subject="a", predicate="b", object="c", **{field: datetime(2040, 1, 1)})  # type: ignore[arg-type]

    assert refused.value.field == field


def test_memory_T7_zones_may_differ_and_nothing_is_lost(facts: FactStore) -> None:
    east = datetime(2020, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    facts.append(Fact(subject="Ann", predicate="lives_in", object="Tokyo", valid_from=east))
    [fact] = facts.query(subject="Ann", valid_at=datetime(2020, 1, 1, tzinfo=UTC))

    assert (fact.valid_from, fact.valid_from.tzinfo) == (east, UTC)
    assert facts.query(subject="Ann", valid_at=east - MICROSECOND) == []


# Q1, Q3, Q15, Q16: questions


def test_memory_Q1_equal_matches_are_ordered_not_compared(facts: FactStore) -> None:
    same = [
        Fact(subject="user", predicate="visited", object=o, valid_from=year(2020))
        for o in ("Tokyo", "Paris", "Seoul", "Kyoto")
    ]
    facts.append_many(same)

    assert objects(facts.recall_text("where does the user live?")) == objects(same)
    assert objects(facts.recall_text("what is it")) == objects(same)
    assert objects(facts.recall_text("user tokyo visited", limit=1)) == ["Tokyo"]
    assert facts.recall_text("nothing shared") == []


def test_memory_Q3_recall_shows_what_holds_unless_history_is_asked_for(
    facts: FactStore, tell: Teller
) -> None:
    tell("Tokyo", 2020)
    tell("Paris", 2025)

    assert objects(facts.recall_text("where does Ann live")) == ["Paris"]
    assert objects(facts.recall_text("Ann", valid_at=year(2022))) == ["Tokyo"]
    assert sorted(objects(facts.recall_text("Ann", history=True))) == ["Paris", "Tokyo"]


def test_memory_Q15_no_time_means_the_moment_one_looks_from(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    tell("Tokyo", 2020)
    tell("Paris", 2031)
    early = clock.now
    assert objects(facts.query(subject="Ann")) == ["Tokyo"]
    assert [fact.status for fact in facts.query(subject="Ann", status="future")] == ["future"]
    clock.passes(3 * 366 * 86_400)

    assert objects(facts.query(subject="Ann")) == objects(facts.recall_text("ann")) == ["Paris"]
    assert objects(facts.query(subject="Ann", known_at=early)) == ["Tokyo"]
    assert objects(facts.query(subject="Ann", known_at=early, valid_at=clock.now)) == ["Paris"]


def test_memory_Q16_limits_mean_what_they_say(facts: FactStore, tell: Teller) -> None:
    for n in range(12):
        tell(f"thing {n}", 2010 + n, predicate="owns")

    assert len(facts.query(subject="Ann")) == 10
    assert facts.query(subject="Ann", limit=0) == facts.recall_text("ann", limit=0) == []
    assert objects(facts.query(subject="Ann", limit=2)) == ["thing 11", "thing 10"]
    for limit in (-1, 10_001, True, 1.0, None):
        with pytest.raises(Invalid):
            facts.query(limit=limit)  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            facts.recall_text("x", limit=limit)  # type: ignore[arg-type]


def test_answers_come_newest_first_then_by_id(facts: FactStore, clock: Clock) -> None:
    names = ["fact_c", "fact_a", "fact_b"]
    facts.append_many(
        [Fact(id=name, subject="Ann", predicate="owns", object=name) for name in names]
    )
    clock.passes()
    facts.append(Fact(id="fact_d", subject="Ann", predicate="owns", object="d"))

    assert [fact.id for fact in facts.query()] == ["fact_d", "fact_a", "fact_b", "fact_c"]


def test_every_combination_of_parts_finds_the_same_facts(facts: FactStore, clock: Clock) -> None:
    chance = random.Random(3)
    for _ in range(60):
        clock.passes()
        facts.append(
            Fact(
                subject=chance.choice("abc"),
                predicate=chance.choice(["p", "q", "likes"]),
                object=chance.choice("abcx"),
                valid_from=year(2000 + chance.randrange(20)),
                confidence=chance.choice([0.2, 0.5, 1.0]),
            )
        )
    everything = facts.query(history=True, limit=10_000)
    for subject, predicate, object_ in itertools.product(
        [None, "A", "c"], [None, "p", "Likes"], [None, "x", "a"]
    ):
        expected = [
            fact
            for fact in everything
            if subject in (None, fact.subject.upper(), fact.subject)
            and (predicate is None or canonical_predicate(predicate) == fact.predicate)
            and object_ in (None, fact.object)
        ]

        found = facts.query(
            subject=subject, predicate=predicate, object_=object_, history=True, limit=10_000
        )
        assert found == expected


# Users


def test_nobody_sees_closes_or_retracts_what_is_another_users(
    facts: FactStore, tell: Teller, store: Store
) -> None:
    anns = tell("Tokyo", 2020, user_id="ann")
    tell("Paris", 2025, user_id="bob")
    tell("Rome", 2026)
    facts.alias("Ann", "Me", user_id="bob")

    assert windows(facts, user_id="ann") == [("Tokyo", 2020, None)]
    assert objects(facts.query()) == objects(facts.recall_text("ann")) == ["Rome"]
    assert objects(facts.query(subject="me", user_id="bob")) == ["Paris"]
    assert facts.query(subject="Me", user_id="ann") == []
    for user in ("bob", None):
        with pytest.raises(NotFound):
            facts.retract(anns, user_id=user)
    assert (facts.count(user_id="ann"), facts.count(user_id="carl")) == (1, 0)
    assert objects(facts.all_facts()) == ["Tokyo", "Paris", "Rome"]
    assert facts.delete(user_id="bob") == 1
    assert objects(facts.all_facts()) == ["Tokyo", "Rome"]
    assert store.names("document", prefix=f"fact-alias/{owner_key('bob')}") == []
    assert facts.aliases(user_id="bob") == {}


def test_deleting_takes_what_was_recorded_before_with_its_retractions(
    facts: FactStore, tell: Teller, clock: Clock, store: Store
) -> None:
    old = tell("Tokyo", 2020)
    facts.retract(old)
    clock.passes()
    before = clock.passes()
    new = tell("Paris", 2025)
    facts.retract(new)
    facts.append(Fact(subject="Ann", predicate="likes", object="tea", user_id="ann"))

    assert facts.delete(before=before) == 1
    assert [fact.id for fact in facts.query(status="retracted")] == [new]
    assert len(store.names("document", prefix="fact-retraction/")) == 1
    assert (facts.delete(), facts.delete(), facts.count(user_id="ann")) == (1, 0, 1)
    assert store.names("document", prefix="fact-retraction/") == []


@pytest.mark.parametrize("what", ["all", "one"])
@pytest.mark.parametrize("ask", ["why", "retract", "holding"])
def test_what_is_erased_between_two_reads_is_not_there(
    facts: FactStore,
    store: Store,
    tell: Teller,
    monkeypatch: pytest.MonkeyPatch,
    ask: str,
    what: str,
) -> None:
    tokyo, paris = tell("Tokyo", 2020), tell("Paris", 2022)
    gone = [paris] if what == "one" else [tokyo, paris]
    find = store.find

    def between(query: Query, **how: Any) -> Any:
        if query.field == "fact.subject":
            monkeypatch.undo()
            store.erase([Selector(document=f"fact/anon/{name}") for name in gone])
        return find(query, **how)

    monkeypatch.setattr(store, "find", between)
    if ask == "holding":
        left = ["Tokyo"] if what == "one" else []
        assert objects(facts.holding([paris, tokyo])) == left
    else:
        with pytest.raises(NotFound, match="there is no fact"):
            getattr(facts, ask)(paris)


def test_a_fact_that_is_erased_just_before_its_retraction_leaves_none_of_its_words(
    facts: FactStore, tell: Teller, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paris = tell("Paris", 2022)
    commit = store.commit

    def late(batch: Batch) -> Any:
        monkeypatch.undo()
        facts.delete()
        return commit(batch)

    monkeypatch.setattr(store, "commit", late)
    with pytest.raises(NotFound, match="there is no fact"):
        facts.retract(paris)

    assert store.names("document", prefix="fact") == []


def test_facts_that_are_deleted_while_the_index_is_made_anew_leave_no_words(
    store: Store, facts: FactStore, tell: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(store, embedder=None)
    memory.facts.append(Fact(subject="Bob", predicate="likes", object="tea", user_id="bob"))
    tell("Zanzibar", 2020)
    look = SearchIndex.erasure

    def meanwhile(self: SearchIndex, *of: Any) -> Any:
        found = look(self, *of)
        monkeypatch.undo()
        memory.reindex()
        return found

    monkeypatch.setattr(SearchIndex, "erasure", meanwhile)
    deleted = facts.delete()
    told = [
        entry.value["text"]
        for log in store.names("log", prefix="recall/")
        for entry in store.read(log)
        if not entry.erased and "text" in entry.value
    ]

    assert (deleted, told) == (1, ["bob like tea"])


def test_what_names_a_source_is_found(facts: FactStore, tell: Teller) -> None:
    tell("Tokyo", 2020, sources=["ep_1", "ep_2"])
    tell("Paris", 2025, sources=["ep_3"])

    assert objects(facts.derived_from(["ep_2", "ep_9"])) == ["Tokyo"]
    assert facts.derived_from(["ep_2"], user_id="ann") == []


def test_assertions_found_elsewhere_lead_to_what_holds(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    tokyo, paris, again = tell("Tokyo", 2010), tell("Paris", 2015), tell("paris", 2016)
    early = clock.now - timedelta(seconds=2)
    tea = tell("tea", 2010, predicate="likes")
    asked = [again, tokyo, "unknown", tea, paris, again]

    assert objects(facts.holding(asked)) == ["Paris", "tea"]
    assert objects(facts.holding(asked, history=True)) == ["Paris", "Tokyo", "tea"]
    assert objects(facts.holding(asked, known_at=early)) == ["Tokyo"]
    assert objects(facts.holding(asked, valid_at=year(2012))) == ["Tokyo", "tea"]
    assert facts.holding(asked, user_id="ann") == facts.holding([]) == []


def test_nothing_of_an_erased_user_is_left_in_the_file(url: str) -> None:
    with pagefile.open(url) as pf:
        facts = FactStore(pf)
        fact = Fact(
            subject="Zanzibar",
            predicate="quibbles",
            object="Xylophone",
            user_id="ursula",
            reason="Yesterday",
            actor="walter",
            sources=("ep_vault",),
        )
        facts.append(fact)
        facts.alias("Zorro", "Zanzibar", user_id="ursula")
        facts.retract(fact.id, user_id="ursula", reason="Violin")
        facts.append(Fact(subject="Ann", predicate="likes", object="tea"))
        receipt = pf.store.erase(pagefile.Selector(user="ursula"))
        kept = facts.query()
    raw = b"".join(file.read_bytes() for file in Path(url).parent.iterdir()).lower()
    words = "zanzibar quibbles xylophone ursula yesterday walter vault zorro violin"

    assert (receipt.records, objects(kept)) == (3, ["tea"])
    assert [word for word in [*words.split(), owner_key("ursula")] if word.encode() in raw] == []


# Bringing in from elsewhere


def test_what_is_exported_and_restored_answers_the_same_at_every_time(
    facts: FactStore, tell: Teller, clock: Clock
) -> None:
    moments = []
    for city, *years in [("Tokyo", 2010), ("Paris", 2015, 2017), ("Rome", 2016), ("tokyo", 2012)]:
        said = {"user_id": "ann", "sources": [f"ep_{city}"], "actor": "x", "reason": "y"}
        name = tell(str(city), *years, **said)  # type: ignore[arg-type]
        moments.append(clock.now)
    facts.alias("Roma", "Rome", user_id="ann")
    facts.append(Fact(subject="Ann", predicate="lives_in", object="Roma", user_id="ann"))
    clock.passes()
    facts.retract(name, user_id="ann", reason="no", actor="carl", only=True)
    moments.append(clock.now)
    lines = json.loads(json.dumps(list(facts.export(user_id="ann"))))
    with pagefile.open("memory:", options=Options(clock=clock)) as pf:
        other = FactStore(pf, clock=clock)
        assert other.restore(lines, user_id="ann") == 7
        assert other.restore(lines, user_id="ann") == 0
        assert list(other.export(user_id="ann")) == lines
        for moment in moments:
            asked: dict[str, Any] = {"subject": "Ann", "user_id": "ann", "known_at": moment}
            assert other.query(**asked, history=True) == facts.query(**asked, history=True)
        broken = [{**lines[0], "object": "Oslo"}]
        with pytest.raises(Conflict):
            other.restore(broken, user_id="ann")


@pytest.mark.parametrize(
    "line",
    [3, {}, {"record": "assertion"}, {"record": "what"}],
    ids=["number", "empty", "bare", "odd"],
)
def test_a_line_that_is_none_is_refused(facts: FactStore, line: Any) -> None:
    with pytest.raises(Invalid) as refused:
        facts.restore([line])

    assert refused.value.field == "lines[0]"


def test_a_retraction_of_nothing_is_not_restored(facts: FactStore, tell: Teller) -> None:
    facts.retract(tell("Tokyo", 2010))
    lines = list(facts.export())
    with FactStore() as other, pytest.raises(Invalid, match="not in the export"):
        other.restore(lines[1:])


def test_a_recorded_time_that_is_given_counts_and_the_future_does_not(
    facts: FactStore, clock: Clock
) -> None:
    long_ago, later = START - timedelta(days=9), START + timedelta(days=9)
    facts.append(Fact(subject="a", predicate="p", object="old", recorded_at=long_ago))
    facts.append(Fact(subject="b", predicate="p", object="new", recorded_at=later))

    assert facts.query(subject="a", history=True, known_at=long_ago - MICROSECOND) == []
    assert facts.query(subject="a", history=True, known_at=long_ago)[0].recorded_at == long_ago
    assert facts.query(subject="b", history=True)[0].recorded_at == START


def test_what_was_left_does_not_come_back_when_what_came_after_ends(facts: FactStore) -> None:
    acme = told(facts, "Acme", 2020)
    globex = told(facts, "Globex", 2022)
    facts.retract(globex, since=year(2024))

    assert [f.object for f in facts.query(subject="Ann", valid_at=year(2021))] == ["Acme"]
    assert [f.object for f in facts.query(subject="Ann", valid_at=year(2023))] == ["Globex"]
    assert facts.query(subject="Ann", valid_at=year(2025)) == []
    assert facts.query(subject="Ann", valid_at=year(2021))[0].superseded_by == globex
    facts.retract(globex)  # It was never so: then she stayed.
    assert [f.id for f in facts.query(subject="Ann", valid_at=year(2025))] == [acme]


@pytest.mark.parametrize("order", list(itertools.permutations(["Acme", "Globex", "Initech"])))
@pytest.mark.parametrize("sure", [1.0, 0.4])
def test_what_was_left_does_not_come_back_in_whatever_order_and_however_sure(
    order: tuple[str, ...], sure: float
) -> None:
    facts, since = FactStore(), {"Acme": 2018, "Globex": 2020, "Initech": 2022}
    ids = {name: told(facts, name, since[name], confidence=sure) for name in order}
    facts.retract(ids["Initech"], since=year(2024))

    assert windows(facts) == [
        ("Acme", 2018, 2020),
        ("Globex", 2020, 2022),
        ("Initech", 2022, 2024),
    ]


def test_what_was_corrected_does_not_come_back_when_the_correction_ends(facts: FactStore) -> None:
    acme = told(facts, "Acme", 2020)
    facts.retract(told(facts, "Globex", 2020), since=year(2024))

    assert windows(facts) == [("Globex", 2020, 2024)]
    assert facts.why(acme).status == "superseded"


def test_one_that_was_too_doubtful_to_take_over_ends_and_nothing_changes(facts: FactStore) -> None:
    told(facts, "Acme", 2020)
    facts.retract(told(facts, "Globex", 2022, confidence=0.2), since=year(2024))

    assert windows(facts) == [("Acme", 2020, None)]


def test_a_doubtful_one_takes_over_where_the_surer_one_has_ended(facts: FactStore) -> None:
    told(facts, "Acme", 2020, valid_until=year(2023))
    told(facts, "Initech", 2021, confidence=0.2)
    facts.retract(told(facts, "Globex", 2022, confidence=0.2), since=year(2024))

    assert windows(facts) == [("Acme", 2020, 2023), ("Globex", 2023, 2024)]


def test_what_was_left_twice_does_not_come_back_under_its_own_name(facts: FactStore) -> None:
    told(facts, "Globex", 2018)
    told(facts, "Acme", 2020)
    facts.retract(told(facts, "Globex", 2022), since=year(2024), only=True)

    assert windows(facts) == [("Globex", 2018, 2020), ("Acme", 2020, 2022), ("Globex", 2022, 2024)]


def told(facts: FactStore, employer: str, since: int, **more: Any) -> str:
    return facts.append(
        Fact(subject="Ann", predicate="works_at", object=employer, valid_from=year(since), **more)
    )


# What goes into the same commit


def test_facts_commit_together_with_what_stands_beside_them(store: Store, clock: Clock) -> None:
    seen: list[tuple[str, str]] = []

    class Index:
        def beside(self, given: Any) -> tuple[list[Operation], list[Condition]]:
            seen.extend((fact.object, fact.status) for fact in given)
            return [Append("recall/beside", [fact.id, fact.status]) for fact in given], []

        def erasure(self, user_id: Any, documents: Any) -> Any:
            return [Selector(log="recall/beside")], [], []

        def settles(self, conflict: Conflict, given: Any) -> bool:
            return False

    facts = FactStore(store, beside=Index(), clock=clock)
    tea = Fact(subject="Ann", predicate="likes", object="tea")
    jam = Fact(subject="Ann", predicate="likes", object="jam", valid_from=year(2020))
    facts.append_many([tea, jam])
    position = store.head().position
    facts.append(tea)
    facts.retract(tea.id)
    facts.retract(jam.id, since=year(2022))
    facts.retract(jam.id, since=year(2019))

    assert seen == [
        ("tea", "asserted"),
        ("jam", "asserted"),
        ("tea", "asserted"),  # Tried, found to be there, and not committed.
        ("tea", "retracted"),
        ("jam", "ended"),
        ("jam", "retracted"),
    ]
    assert [entry.value for entry in store.read("recall/beside")] == [
        [tea.id, "asserted"],
        [jam.id, "asserted"],
        [tea.id, "retracted"],
        [jam.id, "ended"],
        [jam.id, "retracted"],
    ]
    assert (position, store.head().position) == (1, 4)
    assert (facts.delete(), store.has_log("recall/beside"), store.head().position) == (2, False, 5)


def test_planned_assertions_go_into_a_batch_of_ones_own(store: Store, facts: FactStore) -> None:
    told = [Fact(subject="Ann", predicate="lives_in", object=o) for o in ("Tokyo", "Paris")]
    same = [msgspec.structs.replace(fact, valid_from=year(2020)) for fact in told]
    operations, conditions = assertions_of(same)
    store.commit(Batch([*operations, Put("done/ep_1", True)], conditions))

    # Of equal times the one that stands later in the commit was said later.
    assert objects(facts.query(subject="Ann")) == ["Paris"]
    with pytest.raises(Conflict):
        store.commit(Batch(*assertions_of(same)))
    puts, targets = facts.plan_retraction(same[1].id)
    store.commit(Batch([*puts, Put("done/ep_2", True)]))
    assert objects(targets) == ["Paris"]
    assert objects(facts.query(subject="Ann")) == ["Tokyo"]
    with pytest.raises(Invalid):
        assertions_of([same[0], same[0]])
    with pytest.raises(Invalid):
        assertions_of(["fact"])  # type: ignore[list-item]


# What it costs


class Spy:
    """Counts what is read, without changing it."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.records = 0
        find: Callable[..., Any] = store.find

        def counted(*args: Any, **kwargs: Any) -> Any:
            page = find(*args, **kwargs)
            self.calls += 1
            self.records += len(page.items)
            return page

        monkeypatch.setattr(store, "find", counted)


def test_a_question_about_a_subject_reads_that_subject_only(
    facts: FactStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [
        Fact(subject=f"s{n % 50}", predicate=f"p{n % 3}", object=f"o{n % 40}") for n in range(600)
    ]
    facts.append_many(told)
    spy = Spy(store, monkeypatch)
    facts.append(Fact(subject="s1", predicate="p1", object="new"))
    assert spy.calls == 0
    facts.query(subject="s1", predicate="p1")
    assert spy.records <= 13 / 3 + 1
    facts.query(subject="s1")

    assert spy.records <= 2 * 14
    spy.records = 0
    facts.query(object_="new")
    assert spy.records <= 1 + 14


def test_an_answer_of_many_pages_is_whole(facts: FactStore) -> None:
    told = [Fact(subject="Ann", predicate="owns", object=f"o{n}") for n in range(2_500)]
    for at in range(0, 2_500, 1_250):
        facts.append_many(told[at : at + 1_250])

    assert len(facts.query(subject="Ann", limit=10_000)) == 2_500
    assert facts.count() == 2_500
    with pytest.raises(LimitExceeded):
        facts.append_many(told)


def test_a_thousand_values_of_one_subject_are_told_apart_in_little_time(facts: FactStore) -> None:
    start = year(2020)
    facts.append_many(
        [
            Fact(
                subject="job",
                predicate="status",
                object=f"s{n % 7}",
                valid_from=start + timedelta(hours=n),
            )
            for n in range(1_000)
        ]
    )
    found = facts.query(subject="job", history=True, limit=10_000)

    assert len(found) == 1_000
    assert all(len(fact.asserted) == 1 for fact in found)


@pytest.mark.parametrize("sure", [1.0, 0.4])
@pytest.mark.parametrize("length", [None, 5_000])
def test_many_claims_at_one_time_are_gone_through_once(length: int | None, sure: float) -> None:
    """With a look at all of them at each start and end, this would take minutes."""
    count = 10_000
    claims = [
        Claim(
            f"c{n}",
            "old" if n == 0 else "new",
            n,
            None if length is None else n + length,
            sure,
            (n, 0, 0, f"c{n}"),
            (f"s{n}",),
            length is None,
        )
        for n in range(count)
    ]
    old, new = windows_of(claims, "single")

    assert (old.object, old.start, old.end, old.claims) == ("old", 0, 1, ("c0",))
    assert (new.start, new.end) == (1, None if length is None else count + length - 1)
    assert new.claims == tuple(f"c{n}" for n in range(1, count))


# Processes

WRITER = """
import sys
from datetime import UTC, datetime, timedelta
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.store import FactStore
url, who = sys.argv[1], int(sys.argv[2])
start = datetime(2020, 1, 1, tzinfo=UTC)
with FactStore(url) as facts:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(25):
        at = start + timedelta(days=4 * n + who)
        facts.append(Fact(subject="job", predicate="status", object=f"{who}.{n}", valid_from=at))
        facts.append(Fact(id=f"same_{n}", subject="job", predicate="uses", object=str(n),
            valid_from=start))
    try:
        facts.append(Fact(id="mine", subject="job", predicate="owner", object=str(who),
            valid_from=start))
        print("won", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.xdist_group("races")
@pytest.mark.parametrize("engine", ["sqlite", "postgres", "redis", "manager"])
def test_four_processes_assert_facts_of_one_subject_and_lose_none(
    url_on: Callable[[str], str], engine: str
) -> None:
    url = url_on(engine)
    with FactStore(url):
        pass
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(n)], **pipes) for n in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    told = sorted(
        out.strip() for out in [writer.communicate("\n", timeout=120)[0] for writer in writers]
    )
    with FactStore(url) as facts:
        found = facts.query(subject="job", predicate="status", history=True, limit=1_000)
        used = facts.query(subject="job", predicate="uses", limit=1_000)
        count = facts.count()
    found.sort(key=lambda fact: fact.valid_from)

    assert told == ["Conflict"] * 3 + ["won"]
    assert objects(found) == [f"{n % 4}.{n // 4}" for n in range(100)]
    assert all(a.valid_until == b.valid_from for a, b in itertools.pairwise(found))
    assert all(a.superseded_by == b.id for a, b in itertools.pairwise(found))
    assert found[-1].valid_until is None
    assert (len(used), count) == (25, 126)


# The plane, against a model of it cell by cell

CELLS = 7
WIDTH = timedelta(days=1)
_users = (f"user {n}" for n in itertools.count())


class Said:
    """One assertion of the model; times are numbers of cells."""

    def __init__(self, what: dict[str, Any], name: str) -> None:
        self.__dict__.update(what)
        self.name = name

    object: str
    since: int
    length: int
    confidence: float
    sources: list[str]
    name: str

    @property
    def until(self) -> int | None:
        return self.since + self.length if self.length else None


class Model:
    """The plane, cell by cell, straight from the rules and with no thought of speed."""

    def __init__(self, single: bool) -> None:
        self.single = single
        self.said: list[Said] = []
        self.withdrawn: list[tuple[str, int | None]] = []

    def covering(self, cell: int) -> list[Said]:
        return [
            one
            for one in self.said
            if one.since <= cell
            and (one.until is None or cell < one.until)
            and not any(
                name == one.name and (since is None or cell >= since)
                for name, since in self.withdrawn
            )
        ]

    def over(self, one: Said, cell: int) -> bool:
        return any(
            name == one.name and since is not None and since <= cell
            for name, since in self.withdrawn
        )

    def cells(self) -> list[dict[str, set[str]]]:
        """What holds in each cell: objects, and the names of the assertions that say so."""
        found = []
        put_back: set[tuple[Said, Said]] = set()
        gone: set[Said] = set()
        for cell in range(CELLS):
            going = {one for one in self.said if self.over(one, cell)}
            while going:
                gone |= going
                going = {back for by, back in put_back if by in gone} - gone
            here = [one for one in self.covering(cell) if one not in gone]
            if self.single:
                here = self.strong(here)
                both = itertools.product(here, self.covering(cell))
                put_back |= {(by, back) for by, back in both if self.puts_back(by, back)}
                here = [
                    one
                    for one in here
                    if one.until is not None
                    or not any(o.object != one.object and o.since > one.since for o in here)
                ]
                here = [one for one in here if one.object == here[-1].object]
            by_object = {one.object: set[str]() for one in here}
            for one in here:
                by_object[one.object].add(one.name)
            found.append(by_object)
        return found

    def strong(self, here: list[Said]) -> list[Said]:
        by_object = {one.object: [o for o in here if o.object == one.object] for one in here}
        weight = {name: self.joint(ones) for name, ones in by_object.items()}
        return [one for one in here if weight[one.object] * 2 >= max(weight.values())]

    def puts_back(self, by: Said, back: Said) -> bool:
        """By where they start and, where that is one, by which was recorded last."""
        order = self.said.index
        return (
            by.until is back.until is None
            and by.object != back.object
            and (back.since, order(back)) < (by.since, order(by))
        )

    def joint(self, ones: list[Said]) -> float:
        """One witness for all that hang together by a source."""
        left, doubt = list(ones), 1.0
        witnesses = []
        while left:
            together = [left.pop()]
            for one in together:
                for other in list(left):
                    shares = set(one.sources) & set(other.sources)
                    if shares or not (one.sources or other.sources):
                        left.remove(other)
                        together.append(other)
            witnesses.append(max(one.confidence for one in together))
        if len(witnesses) == 1:
            return witnesses[0]
        for sure in sorted(witnesses):
            doubt *= 1 - sure
        return round(1 - doubt, 12)

    def facts(self) -> set[tuple[Any, ...]]:
        """Runs of cells with the same object: object, from, until, support, confidence."""
        cells = self.cells()
        found = set()
        for object_ in {name for cell in cells for name in cell}:
            n = 0
            while n < CELLS:
                if object_ not in cells[n]:
                    n += 1
                    continue
                start, names = n, set[str]()
                while n < CELLS and object_ in cells[n]:
                    names |= cells[n][object_]
                    n += 1
                support = [one for one in self.said if one.name in names]
                sources = tuple(dict.fromkeys(s for one in support for s in one.sources))
                end = None if n == CELLS else n
                ids = tuple(one.name for one in support)
                found.add((object_, start, end, ids, sources, self.joint(support)))
        return found


claims = st.fixed_dictionaries(
    {
        "object": st.sampled_from("ABC"),
        "since": st.integers(0, CELLS - 3),
        "length": st.sampled_from([0, 0, 0, 1, 2]),
        "confidence": st.sampled_from([1.0, 1.0, 0.5, 0.3, 0.1]),
        "sources": st.sampled_from([[], ["x"], ["y"], ["x", "z"]]),
    }
)
retractions = st.fixed_dictionaries(
    {
        "retract": st.integers(0, 9),
        "from": st.none() | st.integers(0, CELLS - 2),
        "only": st.booleans(),
    }
)


def cells_of(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - year(2020)) // WIDTH


def shown(facts: list[Fact]) -> set[tuple[Any, ...]]:
    assert len({(fact.id, fact.valid_from) for fact in facts}) == len(facts)
    return {
        (
            fact.object,
            cells_of(fact.valid_from),
            cells_of(fact.valid_until),
            fact.asserted,
            fact.sources,
            fact.confidence,
        )
        for fact in facts
    }


@given(st.lists(claims | retractions, min_size=2, max_size=14), st.booleans(), st.randoms())
@settings(max_examples=800)
def test_windows_are_what_the_rules_say_whatever_order_the_claims_are_read_in(
    story: list[dict[str, Any]], single: bool, chance: random.Random
) -> None:
    model = Model(single)
    read: list[Claim] = []
    for n, event in enumerate(story):
        name = f"{n:02}"
        if "retract" not in event:
            one = Said(event, name)
            model.said.append(one)
            said = (name, one.object, one.since, one.until, one.confidence, (n, 0, 0, name))
            read.append(Claim(*said, tuple(one.sources), one.until is None))
        elif model.said:
            target = model.said[event["retract"] % len(model.said)].name
            model.withdrawn.append((target, event["from"]))
    chance.shuffle(read)
    left = standing(read, [Withdrawal(*each) for each in model.withdrawn])
    found = windows_of(left, "single" if single else "multi")
    parts = {(w.object, w.start, w.end, w.claims, w.sources, w.confidence) for w in found}

    assert parts == model.facts()
    assert len(parts) == len(found)
    assert found == sorted(found, key=lambda window: (window.start, window.object))


@given(st.lists(claims, min_size=1, max_size=9), st.data())
@settings(max_examples=400)
def test_what_ends_from_a_moment_on_changes_nothing_before_it(
    story: list[dict[str, Any]], data: st.DataObject
) -> None:
    model = Model(single=True)
    model.said = [Said(event | {"sources": []}, f"{n:02}") for n, event in enumerate(story)]
    before = model.cells()
    target = data.draw(st.sampled_from(model.said))
    since = data.draw(st.integers(target.since + 1, CELLS - 1))
    read = [
        Claim(o.name, o.object, o.since, o.until, o.confidence, (n, 0, 0, ""), (), o.until is None)
        for n, o in enumerate(model.said)
    ]
    after = windows_of(standing(read, [Withdrawal(target.name, since)]), "single")

    for cell in range(since):
        assert {window.object for window in after if window.has(cell)} == set(before[cell])


@pytest.fixture(scope="module", params=["memory", "file"])
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FactStore, Clock]]:
    """One store for all examples: each has a user of its own."""
    clock = Clock()
    place = "memory:"
    if request.param == "file":
        place = str(tmp_path_factory.mktemp("plane") / "store.db")
    options = Options(clock=clock, durability=None if place == "memory:" else "process")
    with pagefile.open(place, options=options) as pf:
        yield FactStore(pf, clock=clock), clock


@given(st.lists(claims | retractions, min_size=1, max_size=9), st.booleans())
@settings(max_examples=150)
def test_the_plane_is_what_its_rules_say_cell_by_cell_and_the_past_stays_as_it_was(
    plane: tuple[FactStore, Clock], story: list[dict[str, Any]], single: bool
) -> None:
    facts, clock = plane
    user, predicate = next(_users), "status" if single else "likes"
    asked: dict[str, Any] = {"subject": "s", "user_id": user, "limit": 1_000}
    model = Model(single)
    past: list[tuple[datetime, list[Fact], list[set[str]]]] = []
    for event in story:
        clock.passes()
        if "retract" in event:
            retract(facts, model, event, user)
        else:
            one = Said(event, new_id("fact"))
            model.said.append(one)
            facts.append(
                Fact(
                    id=one.name,
                    user_id=user,
                    subject="s",
                    predicate=predicate,
                    object=one.object,
                    confidence=one.confidence,
                    valid_from=year(2020) + WIDTH * one.since,
                    valid_until=None if one.until is None else year(2020) + WIDTH * one.until,
                    sources=tuple(one.sources),
                )
            )
        now = facts.query(**asked, history=True, valid_at=clock.now)

        assert shown(now) == model.facts()
        past.append((clock.now, now, [set(cell) for cell in model.cells()]))
    for moment, then, _ in past:
        assert facts.query(**asked, history=True, known_at=moment) == then
    moment, _, cells = past[len(past) // 2]
    for n, cell in enumerate(cells):
        at = facts.query(**asked, valid_at=year(2020) + WIDTH * n, known_at=moment)
        assert {fact.object for fact in at} == cell
        assert {fact.status for fact in at} <= {"active"}
    assert_links(facts, user, predicate)


def retract(facts: FactStore, model: Model, event: dict[str, Any], user: str) -> None:
    if not model.said:
        return
    one = model.said[event["retract"] % len(model.said)]
    names = {one.name}
    if not event["only"]:
        names |= {n for fact in model.facts() if one.name in fact[3] for n in fact[3]}
    since = event["from"]
    at = None if since is None else year(2020) + WIDTH * since
    facts.retract(one.name, user_id=user, since=at, only=event["only"])
    model.withdrawn += [(name, since) for name in names]


def assert_links(facts: FactStore, user: str, predicate: str) -> None:
    """Every assertion is somewhere: in a window, or unseen with a reason that leads on."""
    every = facts.query(user_id=user, history=True, limit=1_000)
    starts = {(fact.id, fact.valid_from) for fact in every}
    for fact in every:
        if fact.superseded_by is not None:
            assert (fact.superseded_by, fact.valid_until) in starts
    unseen = [
        fact
        for status in ("superseded", "outweighed", "retracted")
        for fact in facts.query(user_id=user, status=status, limit=1_000)
        if fact.id not in {name for one in every for name in one.asserted}
    ]
    told = {name for fact in every for name in fact.asserted} | {fact.id for fact in unseen}
    assert len(told) == facts.count(user_id=user)
    assert all(fact.closed is not None for fact in unseen)
    for one in facts.history("s", predicate, user_id=user).rectangles:
        if one.recorded_until is None:
            assert (one.fact.id, one.fact.valid_from) in starts


# Bad input

GOOD: dict[str, Any] = {"subject": "Ann", "predicate": "likes", "object": "tea"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", 7),
        ("id", "x" * 300),
        ("id", "a\nb"),
        ("user_id", ""),
        ("user_id", 7),
        ("subject", ""),
        ("subject", " \t "),
        ("subject", None),
        ("subject", "x" * 4_097),
        ("subject", "a\x00b"),
        ("object", ""),
        ("object", "\ud800"),
        ("object", b"tea"),
        ("predicate", ""),
        ("predicate", " - "),
        ("predicate", "x" * 257),
        ("predicate", "a\x07"),
        ("predicate", None),
        ("confidence", 9.0),
        ("confidence", -0.1),
        ("confidence", float("nan")),
        ("confidence", True),
        ("confidence", "1"),
        ("valid_from", None),
        ("valid_from", "2020-01-01T00:00:00Z"),
        ("valid_from", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))),
        ("valid_until", year(1990)),
        ("sources", "ep_1"),
        ("sources", [""]),
        ("sources", [7]),
        ("sources", ["s"] * 1_025),
        ("reason", 7),
        ("reason", "x" * 4_097),
        ("actor", 7),
    ],
)
def test_a_fact_that_breaks_a_rule_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        Fact(**{**GOOD, "valid_from": year(2000), field: value})

    assert refused.value.field.split("[")[0] == field


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.append({"subject": "a"}),
        lambda f: f.append_many("facts"),
        lambda f: f.append_many([Fact(**GOOD), None]),
        lambda f: f.retract(""),
        lambda f: f.retract("x", only=1),
        lambda f: f.retract("x", reason=None),
        lambda f: f.retract("x", actor=7),
        lambda f: f.retract("x", since=datetime(2020, 1, 1)),
        lambda f: f.retract("x", user_id=""),
        lambda f: f.query(subject=""),
        lambda f: f.query(subject=7),
        lambda f: f.query(predicate=""),
        lambda f: f.query(object_=7),
        lambda f: f.query(user_id=""),
        lambda f: f.query(user_id=7),
        lambda f: f.query(valid_at=datetime(2020, 1, 1)),
        lambda f: f.query(known_at="now"),
        lambda f: f.query(history="no"),
        lambda f: f.query(status="what"),
        lambda f: f.query(status="asserted"),
        lambda f: f.recall_text(7),
        lambda f: f.recall_text("x" * 10_001),
        lambda f: f.recall_text("x", history=None),
        lambda f: f.history("", "p"),
        lambda f: f.history("a", ""),
        lambda f: f.history("a", "p", limit=-1),
        lambda f: f.declare("p", "many"),
        lambda f: f.declare("", "multi"),
        lambda f: f.declare("p", "multi", actor=7),
        lambda f: f.alias("", "b"),
        lambda f: f.alias("a", 7),
        lambda f: f.alias("a", "b", user_id=""),
        lambda f: f.unalias(None),
        lambda f: f.count(user_id=""),
        lambda f: f.delete(user_id=7),
        lambda f: f.delete(before=datetime(2020, 1, 1)),
        lambda f: list(f.export(user_id="")),
        lambda f: f.derived_from(["x"], user_id=""),
        lambda f: f.why(""),
        lambda f: f.holding("fact_1"),
        lambda f: f.holding(["x"] * 1_001),
        lambda f: f.holding([""]),
        lambda f: f.holding([], history=1),
        lambda f: type(f)(beside=7),
        lambda f: type(f)(clock=7),
        lambda f: new_id("a b"),
        lambda f: new_id(f),
    ],
)
def test_a_call_that_breaks_a_rule_is_refused_before_anything_is_stored(
    call: Callable[[FactStore], Any],
) -> None:
    with FactStore() as facts:
        with pytest.raises(Invalid):
            call(facts)

        assert facts._store.head().position == 0


def test_what_is_not_there_is_said_so(facts: FactStore) -> None:
    for call in (facts.why, facts.retract, facts.assertion):
        with pytest.raises(NotFound):
            call("fact_unknown")
        with pytest.raises(NotFound):
            call("x" * 300)
    with pytest.raises(NotFound):
        facts.unalias("nobody")
    assert (facts.query(subject="x"), facts.count(), facts.delete()) == ([], 0, 0)


def test_what_something_else_wrote_is_no_fact(store: Store, facts: FactStore) -> None:
    store.commit(Batch([Put(f"fact/{owner_key(None)}/x", {"odd": True}, kind="fact")]))

    with pytest.raises(Corrupt):
        facts.assertion("x")


def test_long_names_are_found_and_told_apart(facts: FactStore) -> None:
    long = "ü" * 4_000
    facts.append(Fact(subject=long + "a", predicate="is", object=long + "x"))
    facts.append(Fact(subject=long + "b", predicate="is", object=long + "x"))

    assert [f.subject[-1] for f in facts.query(subject=long.upper() + "A")] == ["a"]
    assert [f.subject[-1] for f in facts.query(object_=long + "X")] == ["a", "b"]


# The record


@pytest.mark.parametrize(
    ("given_", "canonical"),
    [
        ("Name_Is", "name_is"),
        ("name-is", "name_is"),
        ("nameIs", "name_is"),
        ("name is", "name_is"),
        ("HTTPServer", "httpserver"),
        ("name__is", "name__is"),
        ("name.is", "name.is"),
        ("nameIs2Go", "name_is2_go"),
        ("ÉtatCivil", "état_civil"),
        ("_name_", "name"),
    ],
)
def test_predicates_have_one_spelling(given_: str, canonical: str) -> None:
    assert Fact(subject="a", predicate=given_, object="b").predicate == canonical


def test_a_fact_prints_as_one_line() -> None:
    fact = Fact(**GOOD, confidence=0.9, valid_from=year(2020), valid_until=year(2021))

    assert fact.format() == "Ann likes tea [confidence 0.90] (until 2021-01-01T00:00:00+00:00)"
    assert msgspec.structs.replace(fact, valid_until=None).format() == (
        "Ann likes tea [confidence 0.90]"
    )
    assert (fact.status, fact.id[:5], len(fact.id)) == ("asserted", "fact_", 31)
    with pytest.raises(AttributeError):
        fact.object = "jam"  # type: ignore[misc]


def test_ids_sort_as_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [new_id("fact") for _ in range(1_000)]
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    made += [new_id("fact") for _ in range(10)]

    assert made == sorted(set(made))
    assert all(len(name) == 31 and set(name[5:]) <= set(ids._ALPHABET) for name in made)
    assert len(new_id()) == 26


def test_a_forked_child_makes_ids_of_its_own() -> None:
    """Also when it is forked at the moment at which another thread makes one."""
    new_id()
    taken, done = threading.Event(), threading.Event()

    def make_one() -> None:
        with ids._last.lock:
            taken.set()
            done.wait(60)

    maker = threading.Thread(target=make_one)
    maker.start()
    taken.wait(60)
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(30)  # It would wait for ever otherwise, and we for it.
        os.write(sending, " ".join(new_id() for _ in range(100)).encode())
        os._exit(0)
    done.set()
    maker.join()
    _, status = os.waitpid(child, 0)
    os.close(sending)
    with open(receiving) as told:
        theirs = told.read().split()

    assert status == 0
    assert len(theirs) == 100
    assert not {name[10:] for name in theirs} & {new_id()[10:] for _ in range(300)}


def test_facts_outlive_the_handle(url: str) -> None:
    with FactStore(url) as facts:
        name = facts.append(Fact(subject="Ann", predicate="lives_in", object="Tokyo"))
        facts.declare("lives_in", "multi")
    with FactStore(url) as facts:
        assert [fact.id for fact in facts.query()] == [name]
        assert facts.kinds.kind("livesIn") == "multi"

"""One behaviour, whichever way it is reached: each test runs through every surface.

A surface joins with one line in `WAYS`. What it does not offer is skipped by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.surfaces.rest_way import RestWay
from tests.surfaces.ways import EVERYTHING, CommandLineWay, LibraryWay, McpWay, Refused, Way

WAYS: dict[str, Callable[[str, str], Way]] = {
    "library": LibraryWay,
    "cli": CommandLineWay,
    "mcp": McpWay,
    "rest": RestWay,
}

#: Opens the store of a test, or another one, for a tenant.
Connect = Callable[..., Way]


@pytest.fixture(params=sorted(WAYS))
def connect(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Connect]:
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "none")
    make = WAYS[request.param]
    marker = request.node.get_closest_marker("offers")
    with ExitStack() as opened:

        def connected(tenant: str = "default", store: str = "store.db") -> Way:
            way = make(str(tmp_path / store), tenant)
            opened.enter_context(closing(way))
            missing = sorted(set(marker.args if marker else ()) - way.offers)
            if missing:
                pytest.skip(f"{request.param} does not offer {', '.join(missing)}")
            return way

        yield connected


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refusal:
        call()
    return refusal.value.code


ODD_TEXTS = [
    "plain",
    "-x --json --user bob",
    "line one\nline two\n",
    "quotes \" and ' and \\ and $HOME `x`",
    "naïve café 🚆 \u202eright to left",
    "tab\tand \x1b[31mescape\x1b[0m",
    " spaces around ",
]


# Memory


@pytest.mark.offers("memory")
def test_what_is_remembered_is_found_by_its_user_and_by_nobody_else(connect: Connect) -> None:
    way = connect()
    first = way.add("I live in Lisbon.", user="ann")
    way.add("My cat is called Tiger.", user="ann")

    found = way.search("Where does Ann live?", user="ann", limit=1)

    assert found == [{"id": first, "kind": "episode", "memory": "I live in Lisbon."}]
    assert way.search("Where does Ann live?", user="bob") == []
    assert way.get(first, user="ann") == {"kind": "episode", "text": "I live in Lisbon."}


@pytest.mark.offers("memory")
@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_a_text_comes_back_as_it_was_given(connect: Connect, text: str) -> None:
    way = connect()
    identity = way.add(text, user="ann", session="-s")

    assert way.get(identity, user="ann")["text"] == text


@pytest.mark.offers("memory")
def test_an_unknown_id_and_another_users_are_not_found(connect: Connect) -> None:
    way = connect()
    identity = way.add("a secret", user="ann")

    assert code_of(lambda: way.get("ep_unknown", user="ann")) == "not_found"
    assert code_of(lambda: way.get(identity, user="bob")) == "not_found"
    assert code_of(lambda: way.update(identity, "x", user="bob")) == "not_found"


@pytest.mark.offers("memory")
def test_an_update_is_what_is_found_from_then_on(connect: Connect) -> None:
    way = connect()
    identity = way.add("I live in Lisbon.", user="ann")
    way.update(identity, "I live in Oslo.", user="ann")

    assert way.get(identity, user="ann")["text"] == "I live in Oslo."
    assert [each["memory"] for each in way.search("Oslo", user="ann")] == ["I live in Oslo."]


@pytest.mark.offers("memory")
def test_what_breaks_a_rule_is_invalid_and_stores_nothing(connect: Connect) -> None:
    way = connect()
    way.add("Lisbon", user="ann")

    assert code_of(lambda: way.search("x", user="ann", limit=-1)) == "invalid"
    assert code_of(lambda: way.search("x", user="ann", limit=100_000)) == "invalid"
    assert code_of(lambda: way.add("x", user="")) == "invalid"
    assert code_of(lambda: way.add("x", user="ann", identity="no spaces")) == "invalid"
    assert code_of(lambda: way.add("x" * 1_000_001, user="ann")) == "invalid"
    assert [each["memory"] for each in way.search("Lisbon", user="ann")] == ["Lisbon"]


@pytest.mark.offers("memory")
def test_forgetting_is_rehearsed_done_and_final(connect: Connect) -> None:
    way = connect()
    way.add("I live in Lisbon.", user="ann", identity="e1")
    way.add("I like trains.", user="bob")
    rehearsed = way.forget(user="ann", dry_run=True)

    assert way.get("e1", user="ann")["text"] == "I live in Lisbon."
    assert way.forget(user="ann") == rehearsed > 0
    assert way.search("Lisbon", user="ann") == []
    assert code_of(lambda: way.add("I live in Lisbon.", user="ann", identity="e1")) == "forbidden"
    assert len(way.search("trains", user="bob")) == 1


@pytest.mark.offers("memory")
def test_forgetting_a_session_leaves_the_others(connect: Connect) -> None:
    way = connect()
    way.add("monday's news", user="ann", session="monday")
    way.add("tuesday's news", user="ann", session="tuesday")
    way.forget(user="ann", session="monday")

    assert [each["memory"] for each in way.search("news", user="ann")] == ["tuesday's news"]


@pytest.mark.offers("memory")
def test_tenants_see_nothing_of_each_other(connect: Connect) -> None:
    ours, theirs = connect("ours"), connect("theirs")
    identity = ours.add("I live in Lisbon.", user="ann")
    theirs.add("I live in Oslo.", user="bob")  # A tenant of no such name is an error of its own.

    assert theirs.search("Lisbon", user="ann") == []
    assert code_of(lambda: theirs.get(identity, user="ann")) == "not_found"


# Threads


@pytest.mark.offers("threads")
def test_messages_stay_in_order_and_whole(connect: Connect) -> None:
    way = connect()
    payloads = [{"text": text, "n": n, "deep": [None, 1.5, {"x": []}]} for n, text in _numbered()]
    indexes = [way.append("t", payload) for payload in payloads]

    assert indexes == list(range(len(payloads)))
    assert way.thread("t") == payloads


def _numbered() -> list[tuple[int, str]]:
    return list(enumerate(ODD_TEXTS))


@pytest.mark.offers("threads")
def test_an_append_that_expects_another_length_is_a_conflict(connect: Connect) -> None:
    way = connect()
    way.append("t", 1, expected_len=0)

    assert code_of(lambda: way.append("t", 2, expected_len=0)) == "conflict"
    assert way.thread("t") == [1]


@pytest.mark.offers("threads")
def test_an_append_with_the_same_key_is_stored_once(connect: Connect) -> None:
    way = connect()
    first = way.append("t", "once", key="k")

    assert way.append("t", "once", key="k") == first
    assert way.thread("t") == ["once"]
    assert code_of(lambda: way.append("t", "something else", key="k")) == "invalid"


@pytest.mark.offers("threads")
@pytest.mark.parametrize("name", ["", "a\nb", "x" * 600])
def test_a_name_that_breaks_the_rules_is_invalid(connect: Connect, name: str) -> None:
    way = connect()

    assert code_of(lambda: way.append(name, 1)) == "invalid"
    assert code_of(lambda: way.append("t", 1, sender=name)) == "invalid"


@pytest.mark.offers("threads", "forks")
def test_a_fork_shares_the_past_and_goes_its_own_way(connect: Connect) -> None:
    way = connect()
    for n in range(3):
        way.append("t", n)
    way.fork("t", "child", at=2)
    way.append("child", "own")

    assert (way.thread("child"), way.thread("t")) == ([0, 1, "own"], [0, 1, 2])
    assert code_of(lambda: way.fork("t", "child")) == "conflict"
    assert code_of(lambda: way.fork("absent", "other")) == "not_found"
    assert code_of(lambda: way.fork("t", "late", at=9)) == "invalid"


# Runs


@pytest.mark.offers("runs")
def test_of_two_patches_that_expect_the_same_state_one_wins(connect: Connect) -> None:
    way = connect()
    way.boot("r1", "Plan a trip")
    patch = {"_schema_version": "2.1", "expected_seq": 0, "set": {"next_action": "ask"}}

    assert way.patch("r1", patch)["next_action"] == "ask"
    assert code_of(lambda: way.patch("r1", patch)) == "conflict"
    assert way.working_set("r1")["_update_seq"] == 1
    assert way.events("r1") == ["RUN_START", "WS_UPDATE_APPLIED", "WS_UPDATE_REJECTED"]


@pytest.mark.offers("runs")
def test_a_run_is_booted_once_and_an_unknown_one_is_not_found(connect: Connect) -> None:
    way = connect()
    way.boot("r1", "Plan a trip")

    assert code_of(lambda: way.boot("r1", "Another")) == "conflict"
    assert code_of(lambda: way.boot("../r", "x")) == "invalid"
    assert code_of(lambda: way.working_set("r2")) == "not_found"
    assert way.working_set("r1")["objective"] == "Plan a trip"


# Keeping


@pytest.mark.offers("memory", "exports")
def test_an_export_taken_in_elsewhere_answers_the_same(connect: Connect) -> None:
    here, there = connect(), connect(store="there.db")
    identity = here.add("I live in Lisbon.", user="ann")
    exported = here.export(user="ann")

    assert there.take_in(exported) > 0
    assert there.take_in(exported) == 0
    assert there.get(identity, user="ann") == here.get(identity, user="ann")
    assert there.search("Lisbon", user="ann") == here.search("Lisbon", user="ann")


@pytest.mark.offers("memory", "exports")
def test_a_damaged_export_is_refused_whole(connect: Connect) -> None:
    here, there = connect(), connect(store="there.db")
    here.add("I live in Lisbon.", user="ann")
    damaged = here.export(user="ann").replace(b"Lisbon", b"London")

    assert code_of(lambda: there.take_in(damaged)) == "corrupt"
    assert there.search("London", user="ann") == []


@pytest.mark.offers("memory", "threads", "verification")
def test_the_store_verifies_after_all_of_it(connect: Connect) -> None:
    way = connect()
    way.add("I live in Lisbon.", user="ann")
    way.append("t", 1)
    way.forget(user="ann")

    assert way.verified()


def test_every_way_offers_only_what_is_known() -> None:
    offered = [getattr(way, "offers", None) for way in WAYS.values()]

    assert all(offers is not None and offers <= EVERYTHING for offers in offered)

"""Long-term items: two phases, one commit, one gate, and nobody else's memories."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
    Delete,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    Options,
    Prune,
    Put,
    Selector,
    Store,
)
from pagefile.memory.items import change
from pagefile.memory.items import reader as text_search
from pagefile.memory.items.item import MemoryItem, visible
from pagefile.memory.items.proposal import ItemBatch
from pagefile.memory.items.store import LongTermItems
from tests import ROOT

START_US = 1_700_000_000_000_000
DAY = 86_400


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        return self.now_us

    def passes(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


@pytest.fixture(params=["sqlite", "postgres", "redis", "manager"])
def url(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> str:
    """Where several handles and processes meet."""
    return url_on(request.param)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def store(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[Store]:
    with pagefile.open(url_on(request.param)) as pf:
        yield pf.store
        assert (pf.check().problems, pf.verify().problems) == ((), ())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def items(store: Store, clock: Clock) -> LongTermItems:
    return LongTermItems(store, clock=clock)


def mcr(content: str = "prefers metric units", op: str = "add", **fields: Any) -> dict[str, Any]:
    """A request as a model would send it."""
    return {
        "_schema_version": "2.1",
        "op": op,
        "type": "fact",
        "scope": "global",
        "content": content,
        "confidence": 0.8,
        "rationale": "said so",
        "source_refs": ["slot:1"],
        **fields,
    }


def done(items: LongTermItems, *mcrs: dict[str, Any], **bound: Any) -> tuple[str, ...]:
    """Propose and commit; the ids."""
    return items.commit(items.propose(mcrs, **bound).batch_id, reviewer="rev").memory_ids


def committed(items: LongTermItems, *mcrs: dict[str, Any]) -> str:
    """Propose and commit; the batch."""
    batch_id = items.propose(mcrs).batch_id
    items.commit(batch_id, reviewer="rev")
    return batch_id


def contents(items: LongTermItems, query: str, **filters: Any) -> list[str]:
    return [hit.item.content for hit in items.search(query, **filters)]


# M1: durable, shared


def test_runs_M01_what_was_proposed_and_committed_outlives_the_handle(url: str) -> None:
    with LongTermItems(url) as items:
        batch_id = items.propose([mcr(memory_id="units")]).batch_id
    with LongTermItems(url) as items:
        assert items.batch(batch_id).status == "staged"
        items.commit(batch_id, reviewer="rev")
    with LongTermItems(url) as items:
        assert items.get("units").content == "prefers metric units"


COMMITTER = """
import json, sys
from pagefile.memory.items.item import MemoryItem, visible
from pagefile.memory.items.store import LongTermItems
from pagefile.memory.items.proposal import ItemBatch
url, batch_id, token = sys.argv[1:]
with LongTermItems(url) as items:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        done = items.commit(batch_id, token=token or None, reviewer=None if token else "rev")
        print(json.dumps([done.position, done.memory_ids]))
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


def in_processes(url: str, asked: list[tuple[str, str]]) -> list[Any]:
    """What each was told; all are let go together once all have opened the store."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running: list[Any] = [
        subprocess.Popen([sys.executable, "-c", COMMITTER, url, *each], **pipes) for each in asked
    ]
    assert [process.stdout.readline() for process in running] == ["ready\n"] * len(running)
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [json.loads(process.communicate(timeout=120)[0]) for process in running]


@pytest.mark.xdist_group("races")
def test_runs_M01_of_many_processes_that_commit_a_batch_it_is_committed_once(url: str) -> None:
    with LongTermItems(url) as items:
        done(items, mcr("old", memory_id="old"))
        new = mcr("new", "supersede", memory_id="new", supersedes=["old"])
        batch_id = items.propose([new, mcr("more", memory_id="more")]).batch_id
        told = in_processes(url, [(batch_id, "")] * 4)

        assert told == [told[0]] * 4
        assert told[0][1] == ["new", "more"]
        assert [len(items.history(each)) for each in ("old", "new", "more")] == [2, 1, 1]


def test_of_many_threads_that_commit_a_batch_it_is_committed_once(items: LongTermItems) -> None:
    batch_id = items.propose([mcr(memory_id="one"), mcr(memory_id="two")]).batch_id
    barrier = threading.Barrier(8)

    def commit(n: int) -> object:
        barrier.wait()
        return items.commit(batch_id, reviewer=f"rev{n}", key="k" if n % 2 else "")

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(commit, range(8)))

    assert told == [told[0]] * 8
    assert len(items.history("one")) == 1


def test_who_sees_the_items_of_a_commit_but_not_yet_the_commit_is_answered_the_same(
    items: LongTermItems, store: Store
) -> None:
    batch_id = items.propose([mcr(memory_id="one")], run_id="run-1").batch_id
    token = items.issue_token("run-1")
    told: list[object] = []

    def meddling_clock() -> int:
        """The second look at the clock is between reading the batch and reading the items."""
        told.append(None if len(told) != 1 else items.commit(batch_id, token=token))
        return START_US

    late = LongTermItems(store, clock=meddling_clock)

    assert late.commit(batch_id, token=token) == told[1]
    assert len(items.history("one")) == 1


def test_of_two_batches_that_supersede_one_item_exactly_one_is_committed(
    items: LongTermItems,
) -> None:
    for n in range(10):
        done(items, mcr(memory_id=f"old{n}"))
        batches = [
            items.propose(
                [mcr(op="supersede", memory_id=f"new{n}-{i}", supersedes=[f"old{n}"])]
            ).batch_id
            for i in range(4)
        ]
        barrier = threading.Barrier(4)

        def commit(batch_id: str, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                items.commit(batch_id, reviewer="rev")
            except NotFound:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(commit, batches))

        assert won.count(True) == 1
        assert items.get(f"old{n}").superseded_by == f"new{n}-{won.index(True)}"


# M2: the gate


def test_runs_M02_a_token_works_exactly_once(items: LongTermItems) -> None:
    first, second = (items.propose([mcr()], run_id="run-1").batch_id for _ in range(2))
    token = items.issue_token("run-1")
    committed = items.commit(first, token=token)

    assert items.batch(first).gate == "token"
    assert items.commit(first, token=token) == committed
    with pytest.raises(Forbidden, match="was used"):
        items.commit(second, token=token)
    assert items.batch(second).status == "staged"


@pytest.mark.xdist_group("races")
def test_runs_M02_of_many_processes_with_one_token_one_passes(url: str) -> None:
    with LongTermItems(url) as items:
        batches = [items.propose([mcr()], run_id="run-1").batch_id for _ in range(4)]
        token = items.issue_token("run-1")
        told = in_processes(url, [(batch_id, token) for batch_id in batches])

        assert sorted(str(each[0]) for each in told)[1:] == ["Forbidden"] * 3
        assert len(items.list_batches("committed").items) == 1


def test_runs_M02_a_refused_commit_does_not_use_up_its_token(items: LongTermItems) -> None:
    done(items, mcr(memory_id="taken"))
    refused = items.propose([mcr(memory_id="taken")], run_id="run-1").batch_id
    good = items.propose([mcr()], run_id="run-1").batch_id
    token = items.issue_token("run-1")
    with pytest.raises(Conflict):
        items.commit(refused, token=token)

    assert items.commit(good, token=token).memory_ids


def test_a_token_is_refused_when_it_is_old_or_false(items: LongTermItems, clock: Clock) -> None:
    batch_id = items.propose([mcr()], run_id="run-1").batch_id
    token = items.issue_token("run-1", ttl_seconds=60)
    other = "0" if token[-1] != "0" else "1"
    for false in ("", "x", token[:-1] + other, token.replace("mst_", "mst_0", 1)[:-1], token * 2):
        with pytest.raises(Forbidden, match="unknown"):
            items.commit(batch_id, token=false)
    clock.passes(60)

    with pytest.raises(Forbidden, match="expired"):
        items.commit(batch_id, token=token)


def test_a_tokens_secret_is_nowhere_in_the_file(tmp_path: Path) -> None:
    with LongTermItems(tmp_path / "store.db") as items:
        batch_id = items.propose([mcr()], run_id="run-1").batch_id
        token = items.issue_token("run-1")
        items.commit(batch_id, token=token)
        stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert token.rpartition("_")[2].encode() not in stored
    assert bytes.fromhex(token.rpartition("_")[2]) not in stored


# M3: bound to run and scope


def test_runs_M03_without_reviewer_or_token_nothing_is_committed(items: LongTermItems) -> None:
    batch_id = items.propose([mcr(memory_id="units")]).batch_id
    with pytest.raises(Forbidden, match="reviewer or a token"):
        items.commit(batch_id)
    with pytest.raises(NotFound):
        items.get("units")


def test_runs_M03_a_token_of_another_run_does_not_open_the_gate(items: LongTermItems) -> None:
    token = items.issue_token("run-1")
    for run_id in ("run-2", None):
        batch_id = items.propose([mcr()], run_id=run_id).batch_id
        with pytest.raises(Forbidden, match="another run"):
            items.commit(batch_id, token=token)
        with pytest.raises(Forbidden, match="not of run"):
            items.plan_commit(batch_id, run_id="run-1", milestone="ep_1")


def test_the_gate_is_off_only_where_that_was_said(store: Store) -> None:
    open_items = LongTermItems(store, allow_ungated=True)
    batch_id = open_items.propose([mcr(memory_id="units")]).batch_id
    open_items.commit(batch_id)

    assert [each.cause.gate for each in open_items.history("units")] == ["none"]
    with pytest.raises(Invalid):
        LongTermItems(store, allow_ungated="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "field"),
    [
        ({"user_id": "bob"}, "mcrs[0].user_id"),
        ({"scope_filters": {"user_id": "bob"}}, "mcrs[0].user_id"),
        ({"scope_filters": {"scope": "project"}}, "mcrs[0].scope"),
        ({"scope_filters": {"type": "policy"}}, "mcrs[0].type"),
        ({"project_id": "q"}, "mcrs[1].project_id"),
        ({"user_id": "ann", "scope_filters": {"user_id": "bob"}}, "scope_filters.user_id"),
        ({"scope_filters": {"colour": "red"}}, "scope_filters"),
        ({"scope_filters": "user"}, "scope_filters"),
    ],
)
def test_runs_M03_a_batch_keeps_to_what_it_is_bound_to(
    items: LongTermItems, bound: dict[str, Any], field: str
) -> None:
    mine = mcr(scope="user", user_id="ann")
    ours = mcr(scope="project", project_id="p")
    with pytest.raises(Invalid) as refused:
        items.propose([mine, ours], **bound)

    assert refused.value.field == field
    assert items.list_batches().items == ()


def test_a_batch_is_about_one_user(items: LongTermItems) -> None:
    users = [mcr(scope="user", user_id=each) for each in ("ann", "bob")]
    with pytest.raises(Invalid, match="one batch for each user_id"):
        items.propose(users)


# M4: all or nothing


def test_runs_M04_a_short_id_is_refused_before_anything_is_staged(items: LongTermItems) -> None:
    with pytest.raises(Invalid) as refused:
        items.propose([mcr(memory_id="fine"), mcr(memory_id="no")])

    assert refused.value.field == "mcrs[1].memory_id"
    assert items.list_batches().items == ()


def test_runs_M04_one_impossible_change_refuses_the_whole_batch(
    items: LongTermItems, store: Store
) -> None:
    done(items, mcr(memory_id="there"))
    batch_id = items.propose(
        [
            mcr(memory_id="new"),
            mcr(op="deprecate", target_memory_id="there"),
            mcr(op="deprecate", target_memory_id="missing"),
        ]
    ).batch_id
    before = store.head()
    for _ in range(2):
        with pytest.raises(NotFound, match="'missing'"):
            items.commit(batch_id, reviewer="rev")

    assert store.head() == before
    assert items.get("there").status == "active"


def test_runs_M04_a_commit_is_one_position_and_its_repeat_answers_the_same(
    items: LongTermItems, store: Store
) -> None:
    batch_id = items.propose([mcr(), mcr(), mcr(op="noop")]).batch_id
    before = store.head().position
    first = items.commit(batch_id, reviewer="rev", key="k")

    assert store.head().position == before + 1 == first.position
    assert [items.commit(batch_id, reviewer=r) for r in ("rev", "other")] == [first, first]
    assert len(first.memory_ids) == 2
    assert store.head().position == before + 1


def test_a_key_used_for_another_batch_is_refused(items: LongTermItems) -> None:
    one, two = (items.propose([mcr(n)]).batch_id for n in ("one", "two"))
    items.commit(one, reviewer="rev", key="k")
    with pytest.raises(Invalid, match="key"):
        items.commit(two, reviewer="rev", key="k")
    assert items.batch(two).status == "staged"


# M5: tenancy


def test_runs_M05_items_are_seen_only_by_those_they_belong_to(items: LongTermItems) -> None:
    done(items, mcr("tea for ann", scope="user", user_id="ann", memory_id="drink"))
    done(items, mcr("tea for bob", scope="user", user_id="bob", memory_id="drink"))
    done(items, mcr("tea for project", scope="project", project_id="p", memory_id="brew"))
    done(items, mcr("tea for all", memory_id="all"))

    assert contents(items, "tea") == ["tea for all"]
    assert sorted(contents(items, "tea", user_id="ann")) == ["tea for all", "tea for ann"]
    assert sorted(contents(items, "tea", user_id="bob", project_id="p")) == [
        "tea for all",
        "tea for bob",
        "tea for project",
    ]
    assert contents(items, "tea", scope="project", project_id="p") == ["tea for project"]
    assert contents(items, "tea", scope="project", project_id="q") == []
    assert contents(items, "tea", scope="global", user_id="ann") == ["tea for all"]
    assert items.get("drink", user_id="bob").content == "tea for bob"
    nobodies: list[dict[str, Any]] = [{}, {"user_id": "eve"}, {"project_id": "q"}]
    for nobody in nobodies:
        with pytest.raises(NotFound):
            items.get("drink", **nobody)
        with pytest.raises(NotFound):
            items.history("brew", **nobody)
    for scope in ("user", "project"):
        with pytest.raises(Invalid, match=f"{scope}_id"):
            items.search("tea", scope=scope)


def test_runs_M05_a_change_reaches_only_items_of_its_own_place(items: LongTermItems) -> None:
    done(items, mcr(scope="user", user_id="ann", memory_id="hers"))
    bob = {"scope": "user", "user_id": "bob"}
    for reach in (
        mcr(op="deprecate", target_memory_id="hers", **bob),
        mcr(op="supersede", supersedes=["hers"], **bob),
        mcr(op="deprecate", target_memory_id="hers"),
    ):
        batch_id = items.propose([reach]).batch_id
        with pytest.raises(NotFound):
            items.commit(batch_id, reviewer="rev")
        assert len(items.preview(batch_id).problems) == 1


TEXTS = st.lists(
    st.sampled_from(["tea", "milk", "sugar", "cup", "ann", "bob"]), min_size=1, max_size=5
)
STORIES = st.lists(st.tuples(st.sampled_from("AAB"), st.integers(0, 5), TEXTS), max_size=12)


@settings(max_examples=40)
@given(STORIES, TEXTS)
def test_runs_M05_what_one_user_finds_is_the_same_with_and_without_anothers_data(
    story: list[tuple[str, int, list[str]]], query: list[str]
) -> None:
    def found(users: str) -> bytes:
        clock = Clock()
        with pagefile.open("memory:", options=Options(clock=clock)) as pf:
            told: list[object] = []
            ids = {user: itertools.count() for user in "AB"}
            for user, n, text in story:
                if user not in users:
                    continue
                counter = ids[user]
                items = LongTermItems(
                    pf.store, new_id=partial(numbered, user, counter), clock=clock
                )
                place = {"scope": "user"} if n % 2 else {"scope": "project", "project_id": user}
                wanted = mcr(" ".join(text), memory_id=f"item{n}", user_id=user, **place)
                batch_id = items.propose([wanted]).batch_id
                try:
                    outcome: object = items.commit(batch_id, reviewer="rev").memory_ids
                except Conflict as error:
                    outcome = str(error)
                told += [outcome] if user == "A" else []
            hits = LongTermItems(pf.store).search(" ".join(query), user_id="A", project_id="A")
            return msgspec.json.encode([told, hits])

    assert found("AB") == found("A")


def numbered(prefix: str, counter: Iterator[int]) -> str:
    return f"{prefix}{next(counter)}"


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_erasing_a_user_removes_items_batches_and_what_they_gave_to_projects(
    kind: str, tmp_path: Path
) -> None:
    with pagefile.open("memory:" if kind == "memory" else tmp_path / "store.db") as pf:
        items = LongTermItems(pf.store)
        mine = mcr("the secret kumquat", scope="user", user_id="ann", memory_id="mine")
        ours = mcr("kumquat too", scope="project", project_id="p", user_id="ann", memory_id="ours")
        staged = items.propose([mcr("kumquat again", scope="user", user_id="ann")], run_id="run-1")
        batch_id = items.propose([mine, ours]).batch_id
        items.commit(batch_id, reviewer="rev")
        done(items, mcr("kept", memory_id="kept"))
        receipt = pf.store.erase(Selector(user="ann"))
        left = b"".join(file.read_bytes() for file in tmp_path.iterdir())

        assert receipt.records == 5
        assert contents(items, "kumquat kept", user_id="ann", project_id="p") == ["kept"]
        for gone in (staged.batch_id, batch_id):
            with pytest.raises(NotFound):
                items.commit(gone, reviewer="rev")
        assert [b.status for b in items.list_batches().items] == ["committed"]
        assert b"kumquat" not in left
        assert bool(pf.verify())


def test_what_one_user_says_of_anothers_item_stays_in_their_own_partition(
    items: LongTermItems, store: Store
) -> None:
    ours = {"scope": "project", "project_id": "p"}
    done(items, mcr("ann's", user_id="ann", memory_id="shared", **ours))
    says = mcr(
        op="deprecate", target_memory_id="shared", user_id="bob", rationale="bob knows", **ours
    )
    done(items, says)
    store.erase(Selector(user="bob"))
    last = items.history("shared", project_id="p")[-1]

    assert (last.item.status, last.cause.rationale) == ("deprecated", "")


# M6: true semantics


def test_runs_M06_adding_an_id_that_exists_is_a_conflict_and_overwrites_nothing(
    items: LongTermItems,
) -> None:
    done(items, mcr("first", memory_id="units"))
    batch_id = items.propose([mcr("second", memory_id="units")]).batch_id
    with pytest.raises(Conflict, match="'units' exists") as refused:
        items.commit(batch_id, reviewer="rev")

    assert (refused.value.target, refused.value.current) == ("units", 1)
    assert items.get("units").content == "first"


def test_runs_M06_two_adds_of_one_id_in_a_batch_are_refused(items: LongTermItems) -> None:
    batch_id = items.propose([mcr(memory_id="twice"), mcr(memory_id="twice")]).batch_id
    with pytest.raises(Conflict, match="'twice' exists"):
        items.commit(batch_id, reviewer="rev")


def test_runs_M06_supersede_links_both_ways(items: LongTermItems) -> None:
    done(items, mcr("a", memory_id="aaa"), mcr("b", memory_id="bbb"))
    supersedes = ["aaa", "bbb", "aaa"]
    ids = done(items, mcr("c", "supersede", memory_id="ccc", supersedes=supersedes))

    assert ids == ("ccc",)
    assert items.get("ccc").supersedes == ("aaa", "bbb")
    for old in ("aaa", "bbb"):
        item = items.get(old)
        assert (item.status, item.superseded_by) == ("superseded", "ccc")


def test_runs_M06_deprecate_makes_no_item(items: LongTermItems, store: Store) -> None:
    done(items, mcr(memory_id="units"))
    count = store.stats().documents
    assert done(items, mcr(op="deprecate", target_memory_id="units")) == ("units",)

    assert items.get("units").status == "deprecated"
    assert store.stats().documents == count + 1  # The batch.


def test_runs_M06_an_inactive_target_refuses_the_batch(items: LongTermItems) -> None:
    done(items, mcr(memory_id="units"))
    gone = mcr(op="deprecate", target_memory_id="units")
    done(items, gone)
    for late in (gone, mcr(op="supersede", supersedes=["units"])):
        batch_id = items.propose([late]).batch_id
        with pytest.raises(NotFound, match="deprecated, not active"):
            items.commit(batch_id, reviewer="rev")


def test_runs_M06_noop_is_kept_in_the_batch_and_changes_nothing(
    items: LongTermItems, store: Store
) -> None:
    batch_id = items.propose([mcr("nothing new", op="noop")]).batch_id
    names = store.names("document")
    committed = items.commit(batch_id, reviewer="rev")

    assert committed.memory_ids == ()
    assert store.names("document") == names
    assert items.batch(batch_id).changes[0].content == "nothing new"


def test_runs_M06_requests_apply_in_order_and_may_build_on_one_another(
    items: LongTermItems,
) -> None:
    done(
        items,
        mcr("a", memory_id="aaa"),
        mcr("b", "supersede", memory_id="bbb", supersedes=["aaa"]),
        mcr(op="deprecate", target_memory_id="bbb"),
    )

    assert [items.get(each).status for each in ("aaa", "bbb")] == ["superseded", "deprecated"]


def test_runs_M06_the_history_says_why_and_who(items: LongTermItems) -> None:
    done(items, mcr("a", memory_id="aaa", rationale="heard", source_refs=["slot:1", "slot:2"]))
    new = mcr("b", "supersede", memory_id="bbb", supersedes=["aaa"], rationale="corrected")
    batch_id = items.propose([new], run_id="run-1").batch_id
    items.commit(batch_id, token=items.issue_token("run-1"), reviewer="carl")
    first, second = items.history("aaa")

    assert (first.cause.op, first.cause.rationale, first.cause.gate) == ("add", "heard", "reviewer")
    assert first.cause.source_refs == first.item.source_refs == ("slot:1", "slot:2")
    assert (second.cause.op, second.cause.rationale) == ("supersede", "corrected")
    assert (second.cause.gate, second.cause.by) == ("token", "carl")
    assert second.cause.batch_id == second.item.batch_id == batch_id
    assert second.item.rationale == "heard"
    assert items.history("aaa", after=1) == [second]


# Preview and undo


def test_a_preview_shows_what_commit_then_does_and_changes_nothing(
    items: LongTermItems, store: Store
) -> None:
    done(items, mcr("a", memory_id="aaa"), mcr("b", memory_id="bbb"))
    batch_id = items.propose(
        [
            mcr("c", "supersede", memory_id="ccc", supersedes=["aaa"]),
            mcr(op="deprecate", target_memory_id="bbb"),
            mcr("d"),
        ]
    ).batch_id
    head = store.head()
    before = [items.get(each) for each in ("aaa", "bbb")]
    preview = items.preview(batch_id)

    assert store.head() == head
    assert preview.problems == ()
    assert [each.before for each in preview.added] == [None, None]
    assert [each.before for each in (*preview.superseded, *preview.deprecated)] == before
    committed = items.commit(batch_id, reviewer="rev")
    changed = (*preview.added, *preview.superseded, *preview.deprecated)
    assert [items.get(each.memory_id) for each in changed] == [each.after for each in changed]
    assert {each.memory_id for each in preview.added} <= set(committed.memory_ids)


def test_a_preview_lists_every_problem(items: LongTermItems) -> None:
    done(items, mcr(memory_id="taken"))
    batch_id = items.propose(
        [
            mcr(memory_id="taken"),
            mcr(memory_id="fine"),
            mcr(op="deprecate", target_memory_id="missing"),
        ]
    ).batch_id
    preview = items.preview(batch_id)

    assert [text.split(":")[0] for text in preview.problems] == ["mcrs[0]", "mcrs[2]"]
    assert [each.memory_id for each in preview.added] == ["fine"]
    items.abort(batch_id)
    assert "is aborted" in items.preview(batch_id).problems[0]


def test_undo_restores_what_the_batch_changed(items: LongTermItems) -> None:
    done(items, mcr("a", memory_id="aaa"), mcr("b", memory_id="bbb"))
    before = items.search("a b c")
    batch_id = items.propose(
        [
            mcr("c", "supersede", memory_id="ccc", supersedes=["aaa"]),
            mcr(op="deprecate", target_memory_id="bbb"),
        ]
    ).batch_id
    items.commit(batch_id, reviewer="rev")
    undone = items.undo(batch_id, reviewer="rev")

    assert sorted(undone.memory_ids) == ["aaa", "bbb", "ccc"]
    assert items.undo(batch_id) == undone
    after = items.search("a b c")
    assert [(h.item.memory_id, h.score) for h in after] == [
        (h.item.memory_id, h.score) for h in before
    ]
    assert items.get("aaa").superseded_by is None
    with pytest.raises(NotFound):
        items.get("ccc")
    assert [each.item.status for each in items.history("ccc")] == ["active", "rejected"]
    with pytest.raises(Conflict, match="undone"):
        items.commit(batch_id, reviewer="rev")


def test_an_id_that_was_undone_is_free_again(items: LongTermItems) -> None:
    batch_id = items.propose([mcr("first", memory_id="units")]).batch_id
    items.commit(batch_id, reviewer="rev")
    items.undo(batch_id)
    again = items.propose([mcr("second", memory_id="units")]).batch_id
    assert [each.before for each in items.preview(again).added] == [None]
    items.commit(again, reviewer="rev")

    assert items.get("units").content == "second"
    items.undo(again)
    assert [r.item.status for r in items.history("units")] == ["active", "rejected"] * 2


def test_batches_are_undone_one_after_the_other_the_latest_first(items: LongTermItems) -> None:
    first = committed(items, mcr("one", memory_id="aaa"))
    second = committed(items, mcr("two", "supersede", memory_id="bbb", supersedes=["aaa"]))
    items.undo(second)
    third = committed(items, mcr("gone", "deprecate", target_memory_id="aaa"))
    with pytest.raises(Conflict, match=third):
        items.undo(first)
    items.undo(third)
    between = items.get("aaa")
    items.undo(first)

    assert (between.content, between.status) == ("one", "active")
    with pytest.raises(NotFound):
        items.get("aaa")
    assert [one.item.status for one in items.history("aaa")] == [
        "active",
        "superseded",
        "active",
        "deprecated",
        "active",
        "rejected",
    ]


def test_undo_names_what_was_changed_since(items: LongTermItems, store: Store) -> None:
    batch_id = items.propose([mcr(memory_id="a/b")]).batch_id
    items.commit(batch_id, reviewer="rev")
    done(items, mcr(op="deprecate", target_memory_id="a/b"))
    head = store.head()
    with pytest.raises(Conflict, match="'a/b' was changed since") as refused:
        items.undo(batch_id)

    assert refused.value.target == "a/b"
    assert store.head() == head


def test_undo_names_what_is_gone(items: LongTermItems, store: Store) -> None:
    place = {"scope": "project", "project_id": "p", "user_id": "ann"}
    done(items, mcr(memory_id="a/b", **place))
    out = mcr(op="deprecate", target_memory_id="a/b", scope="project", project_id="p")
    batch_id = items.propose([out]).batch_id
    items.commit(batch_id, reviewer="rev")
    store.erase(Selector(user="ann"))

    with pytest.raises(Conflict, match="'a/b' is gone"):
        items.undo(batch_id)


def test_only_what_is_committed_is_undone(items: LongTermItems) -> None:
    batch_id = items.propose([mcr()]).batch_id
    with pytest.raises(Conflict, match="is staged and cannot be undone"):
        items.undo(batch_id)


# M7 to M9: search


def test_runs_M07_items_without_a_word_in_common_are_never_found(items: LongTermItems) -> None:
    done(items, mcr("Prefers METRIC units.", memory_id="units", confidence=0.1))
    done(items, mcr("lives in Oslo", memory_id="city", confidence=1))

    assert [hit.item.memory_id for hit in items.search("metric, please")] == ["units"]
    assert items.search("nothing") == items.search("") == items.search("…") == []


def test_runs_M07_status_and_type_are_real_filters(items: LongTermItems) -> None:
    done(items, mcr("tea one", memory_id="one"), mcr("tea two", memory_id="two", type="policy"))
    done(items, mcr("tea new", "supersede", memory_id="new", supersedes=["one"]))

    def ids(**filters: Any) -> list[str]:
        return sorted(hit.item.memory_id for hit in items.search("tea", **filters))

    assert ids() == ["new", "two"]
    assert ids(status="superseded") == ["one"]
    assert ids(status=None) == ["new", "one", "two"]
    assert ids(type="policy") == ["two"]
    assert ids(type="fact", status=None) == ["new", "one"]
    assert ids(status="deprecated") == []


@pytest.mark.parametrize("top_k", [-1, 0, 1_001, 10**30, True, 1.5, "8", None])
def test_runs_M07_an_odd_top_k_is_refused(items: LongTermItems, top_k: Any) -> None:
    with pytest.raises(Invalid, match="top_k"):
        items.search("tea", top_k=top_k)


@pytest.mark.parametrize(
    "odd",
    [
        {"query": 7},
        {"query": "x" * 10_001},
        {"scope": "all"},
        {"status": "inactive"},
        {"type": "opinion"},
        {"user_id": ""},
        {"user_id": 7},
        {"project_id": "\x00"},
    ],
)
def test_an_odd_search_is_refused(items: LongTermItems, odd: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        items.search(**{"query": "tea", **odd})
    assert refused.value.field == next(iter(odd))


def test_runs_M07_what_is_returned_is_a_copy(items: LongTermItems) -> None:
    done(items, mcr("tea", memory_id="tea"))
    one = items.search("tea")[0].item
    one.to_v21()["source_refs"].append("changed")

    with pytest.raises(AttributeError):
        one.content = "changed"  # type: ignore[misc]
    assert items.search("tea")[0].item == one
    assert items.get("tea").to_v21()["source_refs"] == ["slot:1"]


def test_runs_M07_a_rare_word_counts_more_and_top_k_takes_the_best(items: LongTermItems) -> None:
    done(items, *(mcr(f"tea number {n}", memory_id=f"tea{n}") for n in range(5)))
    done(items, mcr("tea with bergamot", memory_id="grey"))

    assert [h.item.memory_id for h in items.search("bergamot tea", top_k=1)] == ["grey"]
    assert len(items.search("tea", top_k=3)) == 3


def test_runs_M09_search_is_deterministic_and_needs_no_embedder(items: LongTermItems) -> None:
    done(items, mcr("tea", memory_id="bbb"), mcr("tea", memory_id="aaa"))
    done(items, mcr("tea", memory_id="sure", confidence=0.9))
    found = [hit.item.memory_id for hit in items.search("TEA")]

    assert found == ["sure", "aaa", "bbb"]


def test_the_newest_candidates_are_looked_at(
    items: LongTermItems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "MOST_CANDIDATES", 5)
    monkeypatch.setattr(text_search, "_PAGE", 2)
    for n in range(8):
        done(items, mcr("tea", memory_id=f"tea{n}"))

    found = sorted(hit.item.memory_id for hit in items.search("tea", status=None))
    assert found == [f"tea{n}" for n in range(3, 8)]


def test_runs_M08_the_same_story_gives_the_same_answers_on_every_engine(url: str) -> None:
    told = []
    for place in ("memory:", url):
        ids = itertools.count()
        clock = Clock()
        with LongTermItems(place, new_id=partial(numbered, "", ids), clock=clock) as items:
            done(items, mcr("tea", memory_id="tea"), mcr("milk"), run_id="run-1")
            done(items, mcr("green tea", "supersede", supersedes=["tea"]), user_id="ann")
            items.propose([mcr(op="noop")])
            told.append(
                msgspec.json.encode(
                    [
                        items.search("tea milk", status=None),
                        items.history("tea"),
                        items.list_batches(),
                    ]
                )
            )
    assert told[0] == told[1]


# M10: part of a larger commit


def test_runs_M10_a_milestone_and_its_memory_are_one_commit(
    items: LongTermItems, store: Store
) -> None:
    batch_id = items.propose([mcr(memory_id="units")], run_id="run-1").batch_id
    token = items.issue_token("run-1")
    plan = items.plan_commit(batch_id, run_id="run-1", milestone="ep_1", token=token)
    episode = Put("episode/ep_1", {"memory_commits": list(plan.memory_ids)})
    operations = [*plan.operations, episode, Append("ledger", "milestone")]
    position = store.commit(Batch(operations, plan.conditions)).position

    assert plan.memory_ids == ("units",)
    assert items.commit(batch_id, reviewer="rev").position == position
    assert [(r.cause.gate, r.cause.by) for r in items.history("units")] == [("milestone", "ep_1")]
    other = items.propose([mcr()], run_id="run-1").batch_id
    with pytest.raises(Forbidden, match="was used"):
        items.commit(other, token=token)
    again = items.plan_commit(batch_id, run_id="run-1", milestone="ep_1")
    assert (again.operations, again.memory_ids) == ((), ("units",))
    with pytest.raises(Conflict, match="is committed"):
        items.plan_commit(batch_id, run_id="run-1", milestone="ep_2")


def test_runs_M10_a_failed_milestone_leaves_no_memory(items: LongTermItems, store: Store) -> None:
    store.commit(Batch([Put("episode/ep_1", {})]))
    batch_id = items.propose([mcr(memory_id="units")], run_id="run-1").batch_id
    plan = items.plan_commit(batch_id, run_id="run-1", milestone="ep_1")
    with pytest.raises(Conflict):
        store.commit(
            Batch(
                [*plan.operations, Put("episode/ep_1", {})],
                [*plan.conditions, pagefile.Absent("episode/ep_1")],
            )
        )
    with pytest.raises(NotFound):
        items.get("units")
    assert items.batch(batch_id).status == "staged"


def test_a_plan_that_came_too_late_is_refused_by_the_store(
    items: LongTermItems, store: Store
) -> None:
    batch_id = items.propose([mcr()], run_id="run-1").batch_id
    plan = items.plan_commit(batch_id, run_id="run-1", milestone="ep_1")
    items.abort(batch_id)
    with pytest.raises(Conflict):
        store.commit(Batch(plan.operations, plan.conditions))


# M11: batches are listed, withdrawn, and expire


def test_runs_M11_batches_are_listed_by_status_and_run_page_by_page(
    items: LongTermItems, clock: Clock
) -> None:
    made = []
    for n in range(6):
        clock.passes(1)
        made.append(items.propose([mcr()], run_id=f"run-{n % 2}").batch_id)
    short = items.propose([mcr()], ttl_seconds=10).batch_id
    items.commit(made[0], reviewer="rev")
    items.abort(made[1])
    clock.passes(10)

    def ids(*asked: Any, **paging: Any) -> list[str]:
        return [batch.batch_id for batch in items.list_batches(*asked, **paging).items]

    assert ids() == [*made, short]
    assert ids("staged") == made[2:]
    assert ids("expired") == [short]
    assert ids("committed") == made[:1]
    assert ids("aborted", "run-1") == made[1:2]
    assert ids("staged", "run-0") == [made[2], made[4]]
    assert ids(None, "run-1") == made[1::2]
    assert ids("undone") == ids(None, "run-9") == []
    page = items.list_batches("staged", limit=3)
    assert [b.batch_id for b in page.items] == made[2:5]
    assert ids("staged", cursor=page.cursor) == made[5:]
    odd: dict[str, Any] = {"status": "new", "run_id": "", "limit": -1, "cursor": "x"}
    for name, value in odd.items():
        with pytest.raises(Invalid):
            items.list_batches(**{name: value})


def test_runs_M11_an_aborted_batch_stays_aborted(items: LongTermItems) -> None:
    batch_id = items.propose([mcr()]).batch_id
    aborted = items.abort(batch_id)

    assert aborted.status == "aborted"
    assert items.abort(batch_id) == aborted
    with pytest.raises(Conflict, match="is aborted and cannot be committed"):
        items.commit(batch_id, reviewer="rev")


def test_runs_M11_a_committed_batch_cannot_be_aborted(items: LongTermItems) -> None:
    batch_id = items.propose([mcr()]).batch_id
    items.commit(batch_id, reviewer="rev")
    with pytest.raises(Conflict, match="is committed and cannot be aborted"):
        items.abort(batch_id)


def test_runs_M11_a_batch_expires(items: LongTermItems, clock: Clock) -> None:
    proposal = items.propose([mcr()])
    clock.passes(7 * DAY - 1)
    assert items.batch(proposal.batch_id).status == "staged"
    clock.passes(1)

    assert (proposal.expires.timestamp(), proposal.count) == (clock() / 1e6, 1)
    with pytest.raises(Conflict, match=r"is expired at .* and cannot be committed"):
        items.commit(proposal.batch_id, reviewer="rev")
    assert items.abort(proposal.batch_id).status == "aborted"


def test_runs_M11_rationale_and_sources_are_kept(items: LongTermItems) -> None:
    done(items, mcr(memory_id="units", rationale="because", source_refs=["slot:7"]))

    assert (items.get("units").rationale, items.get("units").source_refs) == (
        "because",
        ("slot:7",),
    )


# Bad input


BAD: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda m: m.pop("_schema_version"), "mcrs[0]"),
    (lambda m: m.update(_schema_version="2.0"), "mcrs[0]._schema_version"),
    (lambda m: m.pop("op"), "mcrs[0]"),
    (lambda m: m.update(op="delete"), "mcrs[0].op"),
    (lambda m: m.update(type="opinion"), "mcrs[0].type"),
    (lambda m: m.update(scope="tenant"), "mcrs[0].scope"),
    (lambda m: m.update(content=""), "mcrs[0].content"),
    (lambda m: m.update(content="x" * (change.MOST_CONTENT + 1)), "mcrs[0].content"),
    (lambda m: m.update(content="\ud800"), "mcrs[0].content"),
    (lambda m: m.update(content=7), "mcrs[0].content"),
    (lambda m: m.update(confidence=1.01), "mcrs[0].confidence"),
    (lambda m: m.update(confidence=-1), "mcrs[0].confidence"),
    (lambda m: m.update(confidence=float("nan")), "mcrs[0].confidence"),
    (lambda m: m.update(confidence=True), "mcrs[0].confidence"),
    (lambda m: m.update(confidence="1"), "mcrs[0].confidence"),
    (lambda m: m.update(rationale=""), "mcrs[0].rationale"),
    (lambda m: m.pop("rationale"), "mcrs[0]"),
    (lambda m: m.update(rationale="x" * 4_097), "mcrs[0].rationale"),
    (lambda m: m.pop("source_refs"), "mcrs[0]"),
    (lambda m: m.update(source_refs="slot"), "mcrs[0].source_refs"),
    (lambda m: m.update(source_refs=[""]), "mcrs[0].source_refs[0]"),
    (lambda m: m.update(source_refs=["a\x00b"]), "mcrs[0].source_refs[0]"),
    (lambda m: m.update(source_refs=["x"] * 65), "mcrs[0].source_refs"),
    (lambda m: m.update(supersedes=["abc"] * 65), "mcrs[0].supersedes"),
    (lambda m: m.update(supersedes=None), "mcrs[0].supersedes"),
    (lambda m: m.update(op="supersede"), "mcrs[0].supersedes"),
    (lambda m: m.update(op="supersede", supersedes=[]), "mcrs[0].supersedes"),
    (lambda m: m.update(op="deprecate"), "mcrs[0].target_memory_id"),
    (lambda m: m.update(target_memory_id=""), "mcrs[0].target_memory_id"),
    (lambda m: m.update(target_memory_id="a\x00b"), "mcrs[0].target_memory_id"),
    (lambda m: m.update(supersedes=["abc", ""]), "mcrs[0].supersedes[1]"),
    (lambda m: m.update(supersedes=["abc", "a\x00b"]), "mcrs[0].supersedes[1]"),
    (lambda m: m.update(memory_id="ab"), "mcrs[0].memory_id"),
    (lambda m: m.update(memory_id="é" * 200), "mcrs[0].memory_id"),
    (lambda m: m.update(memory_id=None), "mcrs[0].memory_id"),
    (lambda m: m.update(memory_id="a\nb"), "mcrs[0].memory_id"),
    (lambda m: m.update(scope="user"), "mcrs[0].user_id"),
    (lambda m: m.update(scope="user", user_id=""), "mcrs[0].user_id"),
    (lambda m: m.update(scope="project"), "mcrs[0].project_id"),
    (lambda m: m.update(project_id=3), "mcrs[0].project_id"),
    (lambda m: m.update(created_at="yesterday"), "mcrs[0].created_at"),
    (lambda m: m.update(created_at="2024-13-01T00:00:00Z"), "mcrs[0].created_at"),
    (lambda m: m.update(created_at="2024-01-01T00:00:00"), "mcrs[0].created_at"),
    (lambda m: m.update(updated_at=1), "mcrs[0].updated_at"),
    (lambda m: m.update(colour="red"), "mcrs[0]"),
    (lambda m: m.__setitem__(7, "x"), "mcrs[0]"),  # type: ignore[index]
]


@pytest.mark.parametrize(("spoil", "field"), BAD, ids=[str(n) for n in range(len(BAD))])
def test_a_request_that_breaks_a_rule_is_refused_by_its_field(
    items: LongTermItems, store: Store, spoil: Callable[[dict[str, Any]], object], field: str
) -> None:
    bad = mcr()
    spoil(bad)
    with pytest.raises(Invalid) as refused:
        items.propose([bad])

    assert refused.value.field == field
    assert store.head().position == 0


@pytest.mark.parametrize("mcrs", [[], (), None, "add", b"add", {}, 7, [None], ["add"], [[]]])
def test_what_is_no_list_of_requests_is_refused(items: LongTermItems, mcrs: Any) -> None:
    with pytest.raises(Invalid, match="mcrs"):
        items.propose(mcrs)


def test_too_many_requests_are_refused(items: LongTermItems) -> None:
    with pytest.raises(LimitExceeded, match="128"):
        items.propose([mcr()] * 129)
    items.propose([mcr()] * 128)


def test_the_largest_batch_is_committed(items: LongTermItems) -> None:
    for n in range(2):
        done(items, *(mcr(memory_id=f"old{n * 32 + i}") for i in range(32)))
    names = [f"old{n}" for n in range(64)]
    done(items, mcr(op="supersede", memory_id="x" * 256, supersedes=names))

    assert items.get("old63").superseded_by == "x" * 256


@pytest.mark.parametrize(
    "call",
    [
        lambda items, ok: items.propose([mcr()], ttl_seconds=0),
        lambda items, ok: items.propose([mcr()], ttl_seconds=10**9),
        lambda items, ok: items.propose([mcr()], ttl_seconds=float("inf")),
        lambda items, ok: items.propose([mcr()], run_id=""),
        lambda items, ok: items.propose([mcr()], user_id=7),
        lambda items, ok: items.issue_token(""),
        lambda items, ok: items.issue_token("run", ttl_seconds=-1),
        lambda items, ok: items.issue_token("run", user_id=""),
        lambda items, ok: items.commit(ok, reviewer=""),
        lambda items, ok: items.commit(ok, reviewer=7),
        lambda items, ok: items.commit(7, reviewer="rev"),
        lambda items, ok: items.commit("", reviewer="rev"),
        lambda items, ok: items.undo(ok, reviewer=""),
        lambda items, ok: items.plan_commit(ok, run_id="run", milestone=""),
        lambda items, ok: items.plan_commit(ok, run_id=None, milestone="ep"),
        lambda items, ok: items.get("no"),
        lambda items, ok: items.get("fine", user_id=""),
        lambda items, ok: items.history(None),
    ],
)
def test_an_odd_argument_is_refused(items: LongTermItems, call: Callable[..., object]) -> None:
    batch_id = items.propose([mcr()], run_id="run").batch_id
    with pytest.raises(Invalid):
        call(items, batch_id)
    assert items.batch(batch_id).status == "staged"


@pytest.mark.parametrize("batch_id", ["batch_x", "x" * 512])
def test_an_unknown_batch_is_not_found(items: LongTermItems, batch_id: str) -> None:
    for call in (items.batch, items.preview, items.abort, items.undo):
        with pytest.raises(NotFound, match="there is no batch"):
            call(batch_id)
    with pytest.raises(NotFound):
        items.commit(batch_id, reviewer="rev")


def test_something_else_under_an_items_name_is_said_to_be_corrupt(
    items: LongTermItems, store: Store
) -> None:
    store.commit(Batch([Put("item/global/odd", {"item": 7})]))
    with pytest.raises(Corrupt, match="item/global/odd"):
        items.get("odd")


def test_an_item_whose_document_was_deleted_can_be_added_again(
    items: LongTermItems, store: Store
) -> None:
    done(items, mcr("first", memory_id="units"))
    store.commit(Batch([Delete("item/global/units")]))
    batch_id = items.propose([mcr("second", memory_id="units")]).batch_id
    items.commit(batch_id, reviewer="rev")

    assert [r.item.content for r in items.history("units")] == ["first", "second"]
    items.undo(batch_id)
    with pytest.raises(NotFound):
        items.get("units")


def test_undo_is_refused_when_the_version_before_is_gone(
    items: LongTermItems, store: Store
) -> None:
    done(items, mcr(memory_id="units"))
    batch_id = items.propose([mcr(op="deprecate", target_memory_id="units")]).batch_id
    items.commit(batch_id, reviewer="rev")
    store.commit(Batch([Prune(2, document="item/global/units")]))

    with pytest.raises(Conflict, match="no version before"):
        items.undo(batch_id)


def test_an_item_has_the_form_of_schema_version_2_1(items: LongTermItems) -> None:
    moment = "2024-05-01T10:00:00+02:00"
    done(
        items,
        mcr("tea", memory_id="tea", scope="user", user_id="ann", created_at=moment, confidence=1),
    )
    item = items.get("tea", user_id="ann")

    assert item.to_v21() == {
        "_schema_version": "2.1",
        "memory_id": "tea",
        "type": "fact",
        "scope": "user",
        "content": "tea",
        "confidence": 1.0,
        "status": "active",
        "source_refs": ["slot:1"],
        "created_at": "2024-05-01T08:00:00Z",
        "updated_at": "2024-05-01T08:00:00Z",
        "user_id": "ann",
        "project_id": None,
        "supersedes": [],
    }
    statuses = ("active", "superseded", "deprecated", "rejected", "proposed")
    mapped = [msgspec.structs.replace(item, status=s).to_v21()["status"] for s in statuses]
    assert mapped == ["active", "deprecated", "deprecated", "inactive", "inactive"]


def test_cost_does_not_grow_with_what_belongs_to_others(store: Store) -> None:
    items = LongTermItems(store)
    done(items, mcr("tea", scope="user", user_id="ann"))
    done(items, *(mcr("tea", scope="user", user_id="bob") for _ in range(100)))
    done(items, *(mcr("tea", scope="project", project_id="q") for _ in range(100)))
    looked_at = text_search.candidates(store, visible("ann", "p"), "active", None)

    assert len(looked_at) == 1


# Docs


def test_every_method_has_a_heading_with_its_parameters() -> None:
    reference = (ROOT / "docs/reference/items.md").read_text("utf-8")
    headings = re.findall(r"^### LongTermItems\.(\w+)\((.*?)\)(?: |$)", reference, re.MULTILINE)
    shown = {name: re.findall(r"(?:^|, )(\w+)", parameters) for name, parameters in headings}
    methods = inspect.getmembers(LongTermItems, inspect.isfunction)

    assert shown == {
        name: list(inspect.signature(method).parameters)[1:]
        for name, method in methods
        if not name.startswith("_")
    }


def test_every_field_of_a_request_and_an_item_is_in_the_reference() -> None:
    reference = (ROOT / "docs/reference/items.md").read_text("utf-8")
    fields = {field.encode_name for field in msgspec.structs.fields(change.Change)}
    fields |= set(MemoryItem.__struct_fields__) | set(ItemBatch.__struct_fields__)

    assert [field for field in sorted(fields) if f"`{field}`" not in reference] == []


@pytest.mark.parametrize("field", ["_schema_version", "op", "type", "scope", "confidence"])
def test_a_lone_surrogate_is_invalid_in_every_field(field: str) -> None:
    with LongTermItems() as items, pytest.raises(Invalid, match="surrogate"):
        items.propose([mcr() | {field: "\ud800"}])


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"])
@pytest.mark.parametrize("field", ["created_at", "updated_at"])
def test_a_time_that_has_no_place_in_utc_is_invalid(field: str, time: str) -> None:
    with LongTermItems() as items, pytest.raises(Invalid, match="out of range"):
        items.propose([mcr() | {field: time}])


@pytest.mark.parametrize("field", ["content", "rationale"])
def test_a_text_of_another_class_is_invalid(field: str) -> None:
    class Text(str):
        __slots__ = ()

    with LongTermItems() as items, pytest.raises(Invalid, match="plain str"):
        items.propose([mcr() | {field: Text("c")}])


def test_what_goes_beside_a_batch_has_to_be_a_function() -> None:
    wrong: Any = 7
    with LongTermItems(allow_ungated=True) as items:
        batch_id = items.propose([mcr()]).batch_id
        for call in (items.commit, items.abort, items.undo):
            with pytest.raises(Invalid, match="beside"):
                call(batch_id, beside=wrong)
        with pytest.raises(Invalid, match="beside"):
            items.propose([mcr()], beside=wrong)

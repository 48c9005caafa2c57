"""A handle on an SQLite file takes in what others have committed, without reading all again."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import apsw
import pytest

import pagefile
from pagefile import (
    Append,
    Batch,
    Conflict,
    Delete,
    Drop,
    Fork,
    Options,
    Pagefile,
    Prune,
    Put,
    Selector,
    VersionIs,
)
from pagefile.engines.sqlite.transaction import MOST_COMMITS


def _both(tmp_path: Path) -> tuple[Pagefile, Pagefile]:
    url = str(tmp_path / "a.db")
    return pagefile.open(url), pagefile.open(url)


def test_two_that_add_several_records_in_turn_never_meet(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    with one, two:
        for turn in range(20):
            handle = (one, two)[turn % 2]
            handle.store.commit(Batch([Append("log", turn), Append("log", -turn)]))

        assert [e.value for e in one.store.read("log")] == [
            value for turn in range(20) for value in (turn, -turn)
        ]
        assert two.verify()
        assert two.check()


def test_more_commits_of_others_than_are_worth_reading_are_not_missed(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    with one, two:
        one.store.append(Append("log", "first"))
        for _ in range(MOST_COMMITS + 2):
            two.store.append(Append("log", "between"))

        last = one.store.append(Append("log", "last"))

        assert last.index == MOST_COMMITS + 3
        assert one.verify()


def test_what_another_put_is_what_a_condition_is_held_against(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    with one, two:
        one.store.commit(Batch([Put("doc", 1)]))
        two.store.commit(Batch([Put("doc", 2)]))

        with pytest.raises(Conflict) as refused:
            one.store.commit(Batch([Put("doc", 3)], [VersionIs("doc", 1)]))

        assert (refused.value.expected, refused.value.current) == (1, 2)


def test_a_batch_that_another_stored_is_a_repeat_here(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    batch = Batch([Append("log", 1)])
    with one, two:
        one.store.append(Append("log", 0))
        two.store.append(Append("log", 0))
        two.store.commit(batch)

        assert one.store.commit(batch).repeated


def test_a_user_whom_another_erased_is_written_anew(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    with one, two:
        one.store.append(Append("log", "secret", user="ann"))
        two.store.erase(Selector(user="ann"))
        one.store.append(Append("log", "later", user="ann"))

        assert [e.value for e in two.store.read("log") if not e.erased] == ["later"]
        assert two.store.erase(Selector(user="ann"), dry_run=True).removed
        assert one.check()


def test_a_commit_of_another_costs_no_query_for_each_log_that_is_known(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    logs = [f"log{n}" for n in range(50)]
    asked: list[str] = []
    engine: Any = one.store._engine
    with one, two:
        one.store.commit(Batch([Append(log, 0) for log in logs]))
        two.store.append(Append("log7", 1))
        engine._file.writer.exec_trace = lambda _, sql, __: asked.append(sql) or True  # type: ignore[func-returns-value]

        one.store.commit(Batch([Append(log, 2) for log in logs]))

        looked = [sql for sql in asked if sql.lstrip().startswith("SELECT")]
        assert len(looked) < 10, looked
        assert one.store.length("log7") == 3
        engine._file.writer.exec_trace = None


def test_streams_that_two_make_in_turn_are_numbered_and_counted_together(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    with one, two:
        for turn in range(6):
            handle = (one, two)[turn % 2]
            handle.store.append(Append(f"log{turn}", 0))
        for turn in range(6):
            handle = (one, two)[turn % 2]
            handle.store.commit(Batch([Append(f"log{turn}", 0), Put(f"doc{turn}", 0)]))

        assert one.store.names("log") == [f"log{turn}" for turn in range(6)]
        assert one.check()
        assert two.verify()


def test_a_name_that_was_free_is_asked_for_again_when_another_has_committed(tmp_path: Path) -> None:
    one, two = _both(tmp_path)
    with one, two:
        one.store.append(Append("log", 0))
        one.store.commit(Batch([Append("log", 0)], [VersionIs("doc", 0)]))
        two.store.commit(Batch([Put("doc", 1)]))

        with pytest.raises(Conflict):
            one.store.commit(Batch([Put("doc", 2)], [VersionIs("doc", 0)]))

        assert one.check()


def test_a_repeat_is_found_however_many_commits_came_between(tmp_path: Path) -> None:
    """More than a writer remembers the keys of."""
    batch = Batch([Append("log", "once")])
    with pagefile.open(tmp_path / "a.db", durability="process") as pf:
        first = pf.store.commit(batch)
        for number in range(4_200):
            pf.store.append(Append("other", number))
        again = pf.store.commit(batch)

        assert (again.repeated, again.position) == (True, first.position)
        assert pf.store.length("log") == 1


def test_all_expired_keys_are_let_go_however_many_there_are(tmp_path: Path) -> None:
    """A sweep looks at some hundred commits, so each has to begin where the last one ended."""
    path, now = tmp_path / "a.db", [1_000_000]
    options = Options(clock=lambda: now[0], key_lifetime_seconds=10)
    with pagefile.open(path, durability="process", options=options) as pf:
        for number in range(1_200):
            pf.store.commit(Batch([Append("log", number)], key=f"key {number}"))
        # Time has to pass by commits: one jump of a clock expires nothing.
        for number in range(3_000):
            now[0] += 10_000
            pf.store.append(Append("log", number))
        with contextlib.closing(apsw.Connection(str(path))) as connection:
            left = connection.execute("SELECT count(*) FROM used_keys").get

        assert left == 0
        assert pf.check()


def test_who_writes_to_a_log_and_prunes_it_at_once_still_holds_what_was_written(
    tmp_path: Path,
) -> None:
    with pagefile.open(tmp_path / "a.db") as pf:
        pf.store.append(Append("log", "old", user="ann"))
        pf.store.commit(Batch([Prune(1, log="log"), Append("log", "new", user="ann")]))

        assert pf.check()
        assert pf.store.erase(Selector(user="ann")).records == 1
        assert pf.store.read("log") == []


@pytest.mark.parametrize(
    "done",
    [Drop("log"), Fork("child", "log", 2), Prune(2, log="log"), Delete("doc")],
    ids=["drop", "fork", "prune", "delete"],
)
def test_what_another_removed_forked_or_pruned_is_so_for_the_next_commit(
    tmp_path: Path, done: Drop | Fork | Prune | Delete
) -> None:
    one, two = _both(tmp_path)
    with one, two:
        for number in range(3):
            one.store.commit(Batch([Append("log", number), Put("doc", number)]))
        two.store.commit(Batch([done]))
        if isinstance(done, Prune):
            one.store.commit(Batch([Prune(1, log="log")]))
        one.store.commit(Batch([Append("log", 3), Append("child", 3), Put("new", 3)]))
        deleted = isinstance(done, Delete)
        with contextlib.nullcontext() if not deleted else pytest.raises(Conflict):
            one.store.commit(Batch([Put("doc", 3)], [VersionIs("doc", 3)]))

        gone = isinstance(done, Drop)
        assert one.store.length("log") == (1 if gone else 4)
        assert one.store.length("child") == (3 if isinstance(done, Fork) else 1)
        assert [entry.value for entry in two.store.read("log")] == (
            [3] if gone else [2, 3] if isinstance(done, Prune) else [0, 1, 2, 3]
        )
        assert one.check()
        assert one.verify()

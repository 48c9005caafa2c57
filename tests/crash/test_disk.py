"""Full disks, failing disks and failing engines: what callers are told, and what is kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

import pagefile
from pagefile import (
    Append,
    Batch,
    Commit,
    Fork,
    Options,
    Pagefile,
    Put,
    Query,
    Selector,
    VersionIs,
)
from pagefile.errors import Conflict, Corrupt, NotFound, PagefileError, Unavailable
from pagefile.handle import open_engine
from pagefile.store.commit.committer import Committer
from pagefile.store.engine import Engine, Prepared, Sealed
from pagefile.testing.faults import Fault, FaultyEngine
from tests import ROOT
from tests.crash.disk import DiskFaults, ReadFaults

Call = Literal["write", "sync"]
Error = Literal["full", "io"]

#: How a disk fails: the call, and what it answers.
FAILURES: list[tuple[Call, Error]] = [("write", "full"), ("write", "io"), ("sync", "io")]
THREADS = 8
PATIENCE_SECONDS = 60.0
BODY = "x" * 100_000
#: SQLite moves the journal into the file at 1,000 pages; this much, and it could not.
JOURNAL_BYTES = 6_000_000


@pytest.fixture
def faults() -> Iterator[DiskFaults]:
    with DiskFaults() as disk:
        yield disk


@pytest.fixture
def pf(tmp_path: Path, faults: DiskFaults) -> Iterator[Pagefile]:
    with pagefile.open(tmp_path / "state.db", options=Options(vfs=faults.name)) as handle:
        handle.store.commit(Batch([Append("log", "acknowledged")]))
        yield handle
        faults.heal()


def values(store: pagefile.Store, log: str = "log") -> list[Any]:
    return [entry.value for entry in store.read(log)]


def outcome_of(store: pagefile.Store, batch: Batch) -> str:
    try:
        store.commit(batch)
    except Unavailable as error:
        return error.outcome
    return "committed"


def pair(value: Any) -> Batch:
    return Batch([Append("log", value), Append("other", value), Put("document", value)])


# A disk that fails


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_a_commit_on_a_failing_disk_is_refused_with_a_typed_error(
    pf: Pagefile, faults: DiskFaults, call: Call, error: Error
) -> None:
    faults.fail(call, error)

    with pytest.raises(Unavailable):
        pf.store.commit(pair("refused"))


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_what_was_acknowledged_is_readable_while_the_disk_fails(
    pf: Pagefile, faults: DiskFaults, call: Call, error: Error
) -> None:
    faults.fail(call, error)
    with pytest.raises(Unavailable):
        pf.store.commit(pair("refused"))

    assert values(pf.store) == ["acknowledged"]


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_a_store_writes_again_once_its_disk_is_healed(
    pf: Pagefile, faults: DiskFaults, call: Call, error: Error
) -> None:
    faults.fail(call, error)
    batch = pair("retried")
    for _ in range(3):
        with pytest.raises(Unavailable):
            pf.store.commit(batch)
    faults.heal()
    pf.store.commit(batch)

    assert values(pf.store) == ["acknowledged", "retried"]


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_a_store_is_sound_after_its_disk_failed_at_every_call_of_a_commit(
    pf: Pagefile, faults: DiskFaults, call: Call, error: Error
) -> None:
    fail_at_every_call(pf, faults, call, error)

    assert (pf.check().problems, pf.verify().problems) == ((), ())


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_a_batch_retried_after_a_failure_at_any_call_is_stored_once(
    pf: Pagefile, faults: DiskFaults, call: Call, error: Error
) -> None:
    batches = fail_at_every_call(pf, faults, call, error)
    expected = list(range(batches))

    assert (values(pf.store)[1:], values(pf.store, "other")) == (expected, expected)


def fail_at_every_call(pf: Pagefile, faults: DiskFaults, call: Call, error: Error) -> int:
    """Commit pairs, each failing one call later than the last, until one gets through."""
    for n in itertools.count():
        raised = faults.raised
        faults.fail(call, error, skip=n, times=1)
        batch = pair(n)
        try:
            pf.store.commit(batch)
        except Unavailable:
            faults.heal()
            pf.store.commit(batch)
        if faults.raised == raised:
            assert n > 0
            return n + 1
    raise AssertionError


def test_a_batch_refused_by_a_full_disk_is_not_there_even_if_the_process_dies_at_once(
    tmp_path: Path, pf: Pagefile, faults: DiskFaults
) -> None:
    """`outcome` says nothing was stored; recovery must not find it in the journal after all."""
    found: list[Any] = []
    outcomes: set[str] = set()
    for n in itertools.count():
        faults.fail("write", "full", skip=n, times=1)
        raised = faults.raised
        outcomes.add(outcome_of(pf.store, pair("refused")))
        if faults.raised == raised:
            break
        copy = tmp_path / f"copy-{n}"
        copy.mkdir()
        for name in ("state.db", "state.db-wal"):
            shutil.copy(tmp_path / name, copy)
        with pagefile.open(copy / "state.db") as survivor:
            found.append(values(survivor.store))

    assert outcomes == {"nothing", "committed"}
    assert found == [["acknowledged"]] * len(found) != []


@pytest.mark.parametrize("suffix", [".db", "-wal", "-journal"])
@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_a_store_that_could_not_be_created_is_created_once_the_disk_is_healed(
    tmp_path: Path, faults: DiskFaults, call: Call, error: Error, suffix: str
) -> None:
    options = Options(vfs=faults.name)
    faults.fail(call, error, suffix=suffix)
    with pytest.raises(Unavailable):
        pagefile.open(tmp_path / "new.db", options=options)
    faults.heal()
    with pagefile.open(tmp_path / "new.db", options=options) as pf:
        pf.store.commit(pair("first"))

        assert (values(pf.store), pf.check().problems) == (["first"], ())


@pytest.mark.parametrize(("call", "error"), FAILURES)
def test_an_erasure_whose_cleaning_up_fails_is_not_reported_as_not_done(
    pf: Pagefile, faults: DiskFaults, call: Call, error: Error
) -> None:
    pf.store.commit(Batch([Append("log", "secret", user="bob")]))
    faults.fail(call, error, suffix=".db")
    try:
        outcome: str = pf.store.erase(Selector(user="bob")).level
    except Unavailable as failure:
        outcome = failure.outcome
    faults.heal()
    gone = pf.store.read("log")[-1].erased

    assert (gone, outcome) in ((True, "logical"), (True, "unknown"), (False, "nothing"))


# A read that fails


def outcome_of_reading(call: Callable[[], object]) -> str:
    try:
        call()
    except PagefileError as failure:
        return failure.code
    return "done"


CALLS: dict[str, Callable[[Pagefile], object]] = {
    "read": lambda pf: pf.store.read("log"),
    "find": lambda pf: pf.store.find(Query("step", log="log")),
    "head": lambda pf: pf.store.head(),
    "append": lambda pf: pf.store.append(Append("log", 0)),
    "commit": lambda pf: pf.store.commit(pair(0)),
    "erase": lambda pf: pf.store.erase(Selector(user="bob")),
    "check": lambda pf: pf.check(),
    "verify": lambda pf: pf.verify(),
}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which file is read")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("suffix", [".db", "-wal"])
def test_a_read_that_fails_once_is_no_damage_and_the_handle_goes_on(
    tmp_path: Path, call: str, suffix: str
) -> None:
    """Each read of a call in turn; SQLite takes what it could not read for a malformed page."""
    path = tmp_path / "state.db"
    with pagefile.open(path) as pf:
        for n in range(40):
            pf.store.commit(
                Batch(
                    [Append("log", f"{n} {BODY[:2_000]}", ("ann", "bob")[n % 2], keys={"step": n})]
                )
            )
    outcomes = set()
    again = set()
    with ReadFaults() as faults:
        for n in itertools.count():
            # A handle that has nothing in memory yet, beside one that keeps the journal.
            with pagefile.open(path) as writer, pagefile.open(path) as pf:
                writer.store.commit(pair("in the journal"))
                raised = faults.raised
                faults.fail(skip=n, suffix=suffix)
                outcomes.add(outcome_of_reading(lambda: CALLS[call](pf)))
                faults.heal()
                again.add(outcome_of_reading(lambda: CALLS[call](pf)))
                if faults.raised == raised:
                    assert (pf.check().problems, pf.verify().problems) == ((), ())
                    break

    assert outcomes <= {"unavailable", "done"}
    assert again == {"done"}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which file is read")
def test_opening_on_a_disk_that_fails_to_read_says_to_open_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    pagefile.open(path).close()
    steps = set()
    with ReadFaults() as faults:
        for n in itertools.count():
            raised = faults.raised
            faults.fail(skip=n)
            try:
                handle = pagefile.open(path)
            except Unavailable as failure:
                steps.add(failure.next_step)
            else:
                faults.heal()
                handle.close()
            if faults.raised == raised:
                break

    assert steps == {"look at the disk, then open it again", "look at the disk, then try again"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["state.db", "state.db-gate"]


def test_damage_after_a_read_that_failed_is_still_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with pagefile.open(path) as pf:
        for n in range(300):
            pf.store.append(Append("log", f"{n} {BODY[:2_000]}"))
    with ReadFaults() as faults, pagefile.open(path) as pf:
        faults.fail()
        with pytest.raises(Unavailable):
            pf.store.read("log")
        with path.open("r+b") as file:
            file.seek(8 * 4_096)
            file.write(b"\xa5" * (path.stat().st_size - 8 * 4_096))

        with pytest.raises(Corrupt):
            pf.store.read("log")


@pytest.mark.parametrize(("call", "error"), FAILURES)
@pytest.mark.parametrize("suffix", [".db", "-wal", "-journal"])
def test_a_disk_that_fails_while_a_store_is_created_is_named_at_every_call(
    tmp_path: Path, faults: DiskFaults, call: Call, error: Error, suffix: str
) -> None:
    """What SQLite says when it cannot roll back once more must not hide it."""
    said: set[tuple[str, str]] = set()
    for n in itertools.count():
        raised = faults.raised
        faults.fail(call, error, skip=n, times=1, suffix=suffix)
        try:
            pagefile.open(tmp_path / f"{n}.db", options=Options(vfs=faults.name)).close()
        except PagefileError as failure:
            said.add((failure.code, failure.next_step))
        if faults.raised == raised:
            break

    assert {code for code, _ in said} == {"unavailable"}
    assert {step.partition("then ")[2] for _, step in said} == {"open it again"}


def test_opening_without_a_file_to_spare_blames_the_limit(tmp_path: Path) -> None:
    code = """
import os, resource, sys
import pagefile, pagefile.engines.sqlite.engine
pagefile.open(sys.argv[1]).close()
said = set()
for spare in range(12):
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for file in held[:spare]:
        os.close(file)
    try:
        pagefile.open(sys.argv[1]).close()
        outcome = "opened"
    except pagefile.PagefileError as error:
        outcome = f"{error.code}: {error}"
    for file in held[spare:]:
        os.close(file)
    print(outcome)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "state.db")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = set(ran.stdout.splitlines())

    assert ran.stderr == ""
    assert len(said) > 1
    assert [line for line in said if "Too many open files" not in line] == ["opened"]


# A real limit, set by the kernel


@pytest.mark.parametrize("fill_bytes", [0, 8_000_000], ids=["journal", "file"])
def test_a_store_survives_a_limit_on_file_sizes(tmp_path: Path, fill_bytes: int) -> None:
    """Filled first, the file meets the limit in a checkpoint; otherwise the journal in a commit."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(tmp_path / "state.db"), str(fill_bytes)],
        capture_output=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.stderr.decode() == ""
    told = json.loads(done.stdout)

    assert told == {
        "error": "unavailable",
        "checkpoints_failed": fill_bytes > 0,
        "readable": True,
        "stored_once": True,
        "problems": [],
    }


def live_under_a_limit(path: str, fill_bytes: int) -> dict[str, Any]:
    """Runs in a process of its own: the limit holds for every file that it writes."""
    acknowledged: list[str] = []

    def batch() -> Batch:
        return Batch([Append("log", f"{len(acknowledged)} {BODY}")])

    with pagefile.open(path) as handle:
        store = handle.store
        while len(acknowledged) * len(BODY) < fill_bytes:
            store.commit(batch())
            acknowledged.append(f"{len(acknowledged)} {BODY}")
        limit_file_sizes(Path(path).stat().st_size + 200_000)
        error = ""
        while not error:
            refused = batch()
            try:
                store.commit(refused)
                acknowledged.append(f"{len(acknowledged)} {BODY}")
            except PagefileError as failure:
                error = failure.code
        journal_bytes = Path(f"{path}-wal").stat().st_size
        readable = values(store) == acknowledged
        limit_file_sizes(resource.RLIM_INFINITY)
        store.commit(refused)
        acknowledged.append(f"{len(acknowledged)} {BODY}")
        problems = (*handle.check().problems, *handle.verify().problems)
        return {
            "error": error,
            "checkpoints_failed": journal_bytes > JOURNAL_BYTES,
            "readable": readable,
            "stored_once": values(store) == acknowledged,
            "problems": [problem.what for problem in problems],
        }


def limit_file_sizes(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


# An engine that fails under a crowd


@pytest.fixture(params=["memory:", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyEngine]:
    url = str(tmp_path / "state.db") if request.param == "sqlite" else request.param
    faulty = FaultyEngine(open_engine(url, Options()))
    yield faulty
    faulty.close()


def store_on(engine: Engine) -> pagefile.Store:
    return Pagefile(engine, Committer(engine), "default", Options()).store


def crowd(work: Callable[[int], object]) -> list[int]:
    """Run `work` in many threads at once; return the numbers of those that hang."""
    ready = threading.Barrier(THREADS)

    def start(number: int) -> None:
        ready.wait()
        work(number)

    # Daemons, so that a thread that hangs fails the test and not the whole run.
    threads = [threading.Thread(target=start, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [n for n, thread in enumerate(threads) if thread.is_alive()]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_every_caller_in_a_crowd_gets_an_answer_while_the_engine_fails(
    engine: FaultyEngine, moment: str
) -> None:
    store = store_on(engine)
    answers: list[Commit | Unavailable] = []
    arm = engine.fail_before if moment == "before" else engine.fail_after
    arm(20)

    def commit_often(number: int) -> None:
        for n in range(25):
            try:
                answers.append(store.commit(Batch([Append("log", [number, n])])))
            except Unavailable as error:
                answers.append(error)

    hanging = crowd(commit_often)

    assert (hanging, len(answers)) == ([], THREADS * 25)


def test_a_commit_that_failed_with_nothing_stored_left_nothing(engine: FaultyEngine) -> None:
    store = store_on(engine)
    acknowledged: list[list[int]] = []
    engine.fail_before(20)

    def commit_often(number: int) -> None:
        for n in range(25):
            if outcome_of(store, Batch([Append("log", [number, n])])) != "nothing":
                acknowledged.append([number, n])

    crowd(commit_often)

    assert sorted(values(store)) == sorted(acknowledged)


def test_a_batch_of_unknown_outcome_is_not_stored_twice_when_committed_again(
    engine: FaultyEngine,
) -> None:
    store = store_on(engine)
    engine.fail_after(20)

    def commit_until_answered(number: int) -> None:
        for n in range(25):
            batch = Batch([Append("log", [number, n])])
            while outcome_of(store, batch) == "unknown":
                pass

    crowd(commit_until_answered)

    assert sorted(values(store)) == [[t, n] for t in range(THREADS) for n in range(25)]


def test_a_batch_committed_again_after_a_lost_answer_gets_the_first_commit(
    engine: FaultyEngine,
) -> None:
    store = store_on(engine)
    batch = Batch([Append("log", "once")])
    engine.fail_after()
    with pytest.raises(Unavailable):
        store.commit(batch)
    commit = store.commit(batch)

    assert (commit.repeated, commit.position, commit.indexes) == (True, 1, (0,))


def test_every_caller_is_told_the_key_of_its_own_batch(engine: FaultyEngine) -> None:
    store = store_on(engine)
    engine.fail_before(10_000)
    pairs: list[tuple[str, str]] = []

    def commit_often(number: int) -> None:
        for n in range(25):
            batch = Batch([Append("log", n)], key=f"{number}.{n}")
            try:
                store.commit(batch)
            except Unavailable as error:
                pairs.append((batch.key, error.key))

    crowd(commit_often)

    assert [(own, told) for own, told in pairs if own != told] == []
    assert len(pairs) == THREADS * 25


def test_async_callers_get_an_answer_each_while_the_engine_fails(engine: FaultyEngine) -> None:
    committer = Committer(engine)
    store = Pagefile(engine, committer, "default", Options()).store
    engine.fail_before(3)

    async def commit_all() -> list[Commit | BaseException]:
        batches = [Batch([Append("log", n)]) for n in range(THREADS)]
        waiting = asyncio.gather(*map(store.commit_async, batches), return_exceptions=True)
        return await asyncio.wait_for(waiting, PATIENCE_SECONDS)

    answers = asyncio.run(commit_all())
    committer.close()

    assert [a for a in answers if not isinstance(a, Commit | Unavailable)] == []


class Surprising(FaultyEngine):
    """Fails once with an error that no engine declares, while somebody queues behind it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.entered = threading.Event()
        self.may_fail = threading.Event()

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        if self.entered.is_set():
            return super().apply(items)
        self.entered.set()
        self.may_fail.wait(PATIENCE_SECONDS)
        # Nothing outside tells that the other one is in the queue: give it time to get there.
        time.sleep(0.1)
        raise RuntimeError("nobody foresaw this")


def test_whoever_queues_behind_an_error_that_nobody_foresaw_gets_an_answer() -> None:
    engine = Surprising(open_engine("memory:", Options()))
    store = store_on(engine)
    answers: list[int] = []

    def lead() -> None:
        with pytest.raises(RuntimeError):
            store.commit(Batch([Append("log", "leader")]))

    def follow() -> None:
        engine.may_fail.set()
        answers.append(store.commit(Batch([Append("log", "follower")])).position)

    leader = threading.Thread(target=lead, daemon=True)
    follower = threading.Thread(target=follow, daemon=True)
    leader.start()
    engine.entered.wait(PATIENCE_SECONDS)
    follower.start()
    leader.join(PATIENCE_SECONDS)
    follower.join(PATIENCE_SECONDS)

    assert answers == [1]


# The seeded faults: each is visible to whoever looks, so a suite that misses it is at fault


def keeps_what_it_acknowledged(store: pagefile.Store) -> bool:
    store.commit(Batch([Append("log", 1)]))
    return store.length("log") == 1


def stores_all_or_nothing(store: pagefile.Store) -> bool:
    with pytest.raises(NotFound):
        store.commit(Batch([Append("log", 1), Fork("child", "unknown")]))
    return store.length("log") == 0


def refuses_a_stale_version(store: pagefile.Store) -> bool:
    try:
        store.commit(Batch([Put("document", 1)], [VersionIs("document", 5)]))
    except Conflict:
        return True
    return False


def stores_a_repeat_once(store: pagefile.Store) -> bool:
    batch = Batch([Append("log", 1)])
    store.commit(batch)
    store.commit(batch)
    return store.length("log") == 1


def reads_all_it_has(store: pagefile.Store) -> bool:
    store.commit(Batch([Append("log", 1), Append("log", 2)]))
    return values(store) == [1, 2]


def tells_the_numbers_of_a_conflict(store: pagefile.Store) -> bool:
    with pytest.raises(Conflict) as conflict:
        store.commit(Batch([Put("document", 1)], [VersionIs("document", 5)]))
    return (conflict.value.expected, conflict.value.current) == (5, 0)


def verifies(store: pagefile.Store) -> bool:
    store.commit(Batch([Append("log", 1)]))
    return bool(store.verify())


PROBES: dict[Fault, Callable[[pagefile.Store], bool]] = {
    "early_acknowledgement": keeps_what_it_acknowledged,
    "missing_transaction": stores_all_or_nothing,
    "ignored_condition": refuses_a_stale_version,
    "forgotten_key": stores_a_repeat_once,
    "off_by_one_read": reads_all_it_has,
    "wrong_field": tells_the_numbers_of_a_conflict,
    "changed_byte": verifies,
}


def test_every_seeded_fault_has_a_probe() -> None:
    assert set(PROBES) == set(get_args(Fault))


@pytest.mark.parametrize("fault", PROBES)
def test_a_faulty_engine_without_a_fault_is_honest(fault: Fault) -> None:
    engine = FaultyEngine(open_engine("memory:", Options()))

    assert PROBES[fault](store_on(engine))


@pytest.mark.parametrize("fault", PROBES)
def test_a_seeded_fault_is_visible_through_the_store(fault: Fault) -> None:
    engine = FaultyEngine(open_engine("memory:", Options()), fault)

    assert not PROBES[fault](store_on(engine))


if __name__ == "__main__":
    print(json.dumps(live_under_a_limit(sys.argv[1], int(sys.argv[2]))))

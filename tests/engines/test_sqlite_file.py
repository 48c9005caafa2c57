"""The SQLite file itself: opening, format, tampering, erased bytes, views, processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import apsw.ext
import pytest

import pagefile
from pagefile import Append, Batch, Delete, Fork, Options, Prune, Put, Selector
from pagefile.context.slot import LANE
from pagefile.engines.common import load_migrations, load_queries
from pagefile.engines.sqlite import format as sqlite_format
from pagefile.engines.sqlite.engine import SqliteEngine
from pagefile.engines.sqlite.file import SqliteFile
from pagefile.engines.sqlite.format import APPLICATION_ID
from pagefile.engines.sqlite.transaction import SqliteTransaction
from pagefile.migration import migrate
from pagefile.store.commit.idempotency import KeyExpiry
from pagefile.store.store import Store
from pagefile.testing.backend import FileBackend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def tell_a_story(store: Store) -> None:
    """Something of everything, positions 1 to 8."""
    store.commit(Batch([Append("a", "one", user="u"), Append("a", "two")]))
    store.commit(Batch([Append("b", "three")]))
    store.commit(Batch([Put("d", "first", keys={"k": 1})]))
    store.commit(Batch([Put("d", "second", keys={"k": 2})]))
    store.commit(Batch([Fork("c", "a", 1)]))
    store.commit(Batch([Append("c", "four")], key="given"))
    store.commit(Batch([Put("gone", 1)]))
    store.commit(Batch([Delete("gone")]))


@pytest.fixture
def story(path: Path) -> Path:
    with pagefile.open(path) as pf:
        tell_a_story(pf.store)
        assert pf.verify().problems == ()
    return path


def tamper(path: Path, *statements: str) -> None:
    """Change the file behind the store's back."""
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


# Streams are numbered as they came: 1 is log a, 2 log b, 3 document d, 4 fork c.
TAMPERINGS: list[tuple[str, int, tuple[str, ...]]] = [
    (
        "a flipped body",
        2,
        ("UPDATE records SET body = CAST('\"thrEe\"' AS BLOB) WHERE stream = 2 AND number = 0",),
    ),
    ("a changed user", 1, ("UPDATE records SET partition = 2 WHERE stream = 1 AND number = 0",)),
    ("a changed kind", 1, ("UPDATE records SET kind = 'x' WHERE stream = 1 AND number = 0",)),
    ("a changed actor", 2, ("UPDATE records SET actor = 'x' WHERE stream = 2 AND number = 0",)),
    (
        "changed keys",
        3,
        ("UPDATE records SET keys = CAST('{\"k\":9}' AS BLOB) WHERE id = (1 << 40) + 3",),
    ),
    ("a changed type", 2, ("UPDATE records SET type = 'm:T' WHERE stream = 2 AND number = 0",)),
    (
        "a changed time",
        2,
        ("UPDATE records SET time_us = time_us + 1 WHERE stream = 2 AND number = 0",),
    ),
    ("a changed commit time", 4, ("UPDATE records SET time_us = 5 WHERE id = (1 << 40) + 4",)),
    ("a dropped record", 2, ("DELETE FROM records WHERE stream = 2 AND number = 0",)),
    (
        "a record dressed up as erased",
        2,
        ("UPDATE records SET body = NULL, salt = NULL WHERE stream = 2 AND number = 0",),
    ),
    ("a dropped commit", 3, ("DELETE FROM records WHERE id = (1 << 40) + 3",)),
    (
        "two swapped records",
        1,
        (
            "UPDATE records SET number = 9 WHERE stream = 1 AND number = 0",
            "UPDATE records SET number = 0 WHERE stream = 1 AND number = 1",
            "UPDATE records SET number = 1 WHERE stream = 1 AND number = 9",
        ),
    ),
    (
        "two swapped commits",
        3,
        (
            "UPDATE records SET id = 7 WHERE id = (1 << 40) + 3",
            "UPDATE records SET id = (1 << 40) + 3 WHERE id = (1 << 40) + 4",
            "UPDATE records SET id = (1 << 40) + 4 WHERE id = 7",
        ),
    ),
    ("a changed idempotency key", 4, ("UPDATE records SET key = 'x' WHERE id = (1 << 40) + 4",)),
    ("sources that are no list", 2, ("UPDATE records SET sources = '{' WHERE stream = 2",)),
    (
        "a truncated body",
        2,
        ("UPDATE records SET body = substr(body, 1, 3) WHERE stream = 2 AND number = 0",),
    ),
    ("an emptied body", 2, ("UPDATE records SET body = X'' WHERE stream = 2 AND number = 0",)),
    ("a truncated salt", 2, ("UPDATE records SET salt = substr(salt, 1, 8) WHERE stream = 2",)),
    (
        "a truncated manifest",
        4,
        ("UPDATE records SET manifest = substr(manifest, 1, 5) WHERE position = 4",),
    ),
    ("a salt where there was none", 2, ("UPDATE streams SET salt = X'00' WHERE id = 2",)),
    ("a fork without its salt", 5, ("UPDATE streams SET salt = NULL WHERE id = 4",)),
    ("a body that is gone", 2, ("UPDATE records SET body = NULL WHERE stream = 2",)),
    ("a salt that is no salt", 2, ("UPDATE records SET salt = X'00' WHERE stream = 2",)),
    ("a user who is nobody", 1, ("UPDATE records SET partition = 99 WHERE stream = 1",)),
    ("a manifest that is noise", 6, ("UPDATE records SET manifest = X'c1' WHERE position = 6",)),
    (
        "a manifest of the wrong shape",
        6,
        ("UPDATE records SET manifest = X'9190' WHERE position = 6",),
    ),
    ("a commit without its columns", 6, ("UPDATE records SET digest = NULL WHERE position = 6",)),
    ("an invented erasure", 0, ("UPDATE tenants SET last_erase = 5",)),
    ("a renamed log", 2, ("UPDATE streams SET name = 'z' WHERE id = 2",)),
    ("a moved fork point", 5, ("UPDATE streams SET base_at = 2 WHERE id = 4",)),
    ("a renamed fork", 5, ("UPDATE streams SET name = 'z' WHERE id = 4",)),
    ("an undone deletion", 8, ("UPDATE records SET action = 2 WHERE action = 3",)),
    (
        "a forged entry at the end",
        2,
        (
            "INSERT INTO records SELECT -9, stream, number + 1, position, ordinal, time_us, action,"
            " NULL, NULL, NULL, partition, kind, actor, sources, keys, tenant_keys, notes, type,"
            " salt, body FROM records WHERE stream = 2 AND number = 0",
        ),
    ),
    ("a dropped stream", 2, ("DELETE FROM streams WHERE id = 2",)),
    ("a log turned into a fork", 2, ("UPDATE streams SET base = 1, base_at = 1 WHERE id = 2",)),
    ("hidden entries", 1, ("UPDATE streams SET pruned = 1 WHERE id = 1",)),
    ("a hidden log", 2, ("UPDATE streams SET dropped = 9 WHERE id = 2",)),
    ("a changed beginning", 2, ("UPDATE streams SET created = 3 WHERE id = 2",)),
    (
        "a log that no commit made",
        0,
        (
            "INSERT INTO streams SELECT 99, tenant, 99, kind, 'forged', 0, 0, 1, 0, 0, NULL"
            " FROM streams WHERE id = 2",
        ),
    ),
]


@pytest.mark.parametrize(
    ("position", "statements"),
    [pytest.param(position, how, id=name) for name, position, how in TAMPERINGS],
)
def test_verify_names_the_position_of_any_change(
    story: Path, position: int, statements: tuple[str, ...]
) -> None:
    tamper(story, *statements)
    with pagefile.open(story) as pf:
        problems = pf.verify().problems

    assert problems
    assert min(p.position for p in problems if p.position is not None) == position


def test_a_history_cannot_pass_for_another_tenants(story: Path) -> None:
    tamper(story, "UPDATE tenants SET name = 'other'")
    with pagefile.open(story, tenant="other") as pf:
        problems = pf.verify().problems

    assert problems[0].position == 1


def test_what_only_a_fork_still_shows_is_missed(path: Path) -> None:
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", "one"), Append("a", "two"), Append("a", "three")]))
        pf.store.commit(Batch([Fork("c", "a", 2)]))
        pf.store.commit(Batch([Prune(before=3, log="a")]))
        assert pf.verify().problems == ()
    tamper(path, "UPDATE records SET stream = NULL, number = NULL WHERE stream = 1 AND number = 1")
    with pagefile.open(path) as pf:
        problems = pf.verify().problems

    assert [p.position for p in problems] == [1]


def test_a_damaged_record_is_read_as_corrupt(story: Path) -> None:
    tamper(story, "UPDATE records SET sources = '{' WHERE stream = 2")
    with pagefile.open(story) as pf, pytest.raises(pagefile.Corrupt, match="position 2"):
        pf.store.read("b")


def test_check_of_one_tenant_is_silent_about_others(story: Path) -> None:
    with pagefile.open(story, tenant="other") as pf:
        tell_a_story(pf.store)
    tamper(
        story,
        "DELETE FROM keys WHERE space IN (SELECT id * 4 + 1 FROM partitions WHERE tenant = 2)",
    )
    with pagefile.open(story) as mine, pagefile.open(story, tenant="other") as theirs:
        assert mine.check().problems == ()
        assert theirs.check().problems != ()


def test_a_cut_off_tail_is_found_against_a_head_kept_elsewhere(story: Path) -> None:
    with pagefile.open(story) as pf:
        kept = pf.store.head()
    tamper(
        story,
        "DELETE FROM records WHERE position >= 7",
        "DELETE FROM streams WHERE created >= 7",
    )
    with pagefile.open(story) as pf:
        alone, against = pf.verify(), pf.verify(head=kept)

    assert alone.problems == ()
    assert [p.position for p in against.problems] == [7]


def test_a_rewritten_chain_is_found_against_a_head_kept_elsewhere(path: Path) -> None:
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", "original")]))
        kept = pf.store.head()
    path.unlink()
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", "forged")]))
        report = pf.verify(head=kept)

    assert [p.position for p in report.problems] == [1]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM streams WHERE id = 2",
        "DELETE FROM records WHERE stream = 3 AND number = 2",
        "DELETE FROM holdings",
        "INSERT INTO holdings VALUES (1, 2)",
        "DELETE FROM keys",
        "UPDATE keys SET value = X'00'",
        "UPDATE keys SET record = record - 1",
        "INSERT INTO keys VALUES (5, 'k', X'00', 4, 0, (1 << 40) + 4)",
        "DELETE FROM past_keys",
        "UPDATE past_keys SET until = until + 1",
        "INSERT INTO past_keys SELECT space, 'x', value, until, position, ordinal, record"
        " FROM past_keys",
        "DELETE FROM used_keys",
        "UPDATE used_keys SET position = 1",
        "INSERT INTO used_keys VALUES (1, '=invented', 2)",
        "UPDATE tenants SET keys_from = 8",
        "UPDATE partitions SET tenant = 9",
        "DELETE FROM tenants",
        "UPDATE tenants SET id = 2",
        "UPDATE streams SET tenant = 9 WHERE id = 2",
        "UPDATE records SET id = id + 1 WHERE position = 8",
        "UPDATE records SET id = id + (1 << 40) WHERE id < 0",
        "UPDATE tenants SET logs = 9",
        "UPDATE tenants SET documents = 9",
    ],
)
def test_check_finds_structures_that_disagree(story: Path, statement: str) -> None:
    tamper(story, statement)
    with pagefile.open(story) as pf:
        problems = pf.check().problems

    assert problems


def files_of(path: Path) -> bytes:
    return b"".join(
        Path(f"{path}{suffix}").read_bytes()
        for suffix in ("", "-wal", "-shm", "-gate")
        if Path(f"{path}{suffix}").exists()
    )


#: The newest format.
KNOWN = len(load_migrations("sqlite"))
SECRET = "correct horse battery staple"


def store_secrets(store: Store, marker: Callable[[int], str]) -> None:
    """Secrets in bodies, keys, names, kinds, actors and sources, amid much else."""
    for i in range(60):
        text = marker(i)
        store.commit(
            Batch(
                [
                    Append(
                        "shared",
                        {"text": text * (1 + i % 40), "i": i},
                        user="alice",
                        keys={"words": text},
                        actor=f"actor {text}",
                        sources=(f"source {text}",),
                    ),
                    Append("shared", {"harmless": "x" * (i * 37 % 900)}, user="bob"),
                    Put(f"profile {text}", text, user="alice", keys={"k": text}, kind=text),
                ]
            )
        )
        if i % 5 == 0:
            store.commit(Batch([Put("profile", [text] * 300, user="alice", keys={"k": text})]))


def test_erased_text_is_in_none_of_the_files(path: Path) -> None:
    with pagefile.open(path) as pf:
        store_secrets(pf.store, lambda i: f"{SECRET} {i}")
        before = files_of(path).count(SECRET.encode())
        receipt = pf.store.erase(Selector(user="alice"))
        left = files_of(path).count(SECRET.encode())
        problems = pf.verify().problems + pf.check().problems

        assert before > 100
        assert (left, receipt.level, receipt.remaining, problems) == (0, "bytes", (), ())
    assert files_of(path).count(SECRET.encode()) == 0


def test_pruned_text_is_overwritten_in_the_file(path: Path) -> None:
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", f"{SECRET} {i}") for i in range(200)]))
        pf.store.commit(Batch([Prune(before=200, log="a")]))
        pf.store.erase(Selector(log="a"))
    tamper(path, "PRAGMA wal_checkpoint(TRUNCATE)")

    assert files_of(path).count(SECRET.encode()) == 0


def test_an_old_reader_makes_the_receipt_say_so(path: Path) -> None:
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", SECRET, user="u")]))
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM records").fetchall()
        early = pf.store.erase(Selector(user="u"), timeout=0.05)
        reader.close()
        pf.store.commit(Batch([Append("b", 1, user="v")]))
        later = pf.store.erase(Selector(user="v"))

    assert (early.level, len(early.remaining), later.level) == ("logical", 1, "bytes")
    assert files_of(path).count(SECRET.encode()) == 0


@pytest.mark.parametrize("hindrance", ["a reader", "no room"])
def test_what_hindered_an_erasure_once_is_made_good_by_one_that_finds_nothing(
    path: Path, hindrance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pagefile.open(path) as pf, contextlib.ExitStack() as ending:
        pf.store.commit(Batch([Append("a", SECRET, user="u")]))
        if hindrance == "a reader":
            reader = ending.enter_context(contextlib.closing(apsw.Connection(str(path))))
            reader.execute("BEGIN; SELECT count(*) FROM records").fetchall()
        else:
            patched = ending.enter_context(monkeypatch.context())

            def full(*_: object) -> bool:
                raise apsw.FullError("database or disk is full")

            patched.setattr(SqliteFile, "_rewritten", full)
        early = pf.store.erase(Selector(user="u"), timeout=0.05)
        again = pf.store.erase(Selector(user="u"), timeout=0.05)
        left = SECRET.encode() in files_of(path)
        ending.close()
        with pagefile.open(path) as other:
            later = other.store.erase(Selector(user="u"), timeout=60.0)
        told = [(early.level, early.records), (again.level, again.records)]

        assert (told, left) == ([("logical", 1), ("logical", 0)], True)
        assert (later.level, later.records, later.position) == ("bytes", 0, None)
        assert SECRET.encode() not in files_of(path)


def test_what_is_removed_while_the_file_is_written_again_is_still_owed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten = SqliteFile._rewritten
    with pagefile.open(path) as pf, pagefile.open(path) as other:
        pf.store.commit(Batch([Append("a", "x", user="u"), Append("b", SECRET, user="v")]))

        def late(*arguments: Any) -> bool:
            done = rewritten(*arguments)
            other.store.erase(Selector(user="v"), scrub=False)
            return done

        with monkeypatch.context() as patched:
            patched.setattr(SqliteFile, "_rewritten", late)
            pf.store.erase(Selector(user="u"))
        meanwhile = pf.store.erase(Selector(user="u"), scrub=False)
        paid = pf.store.erase(Selector(user="u"))

        assert (meanwhile.level, paid.level) == ("logical", "bytes")
        assert SECRET.encode() not in files_of(path)


def test_one_rewriting_of_the_file_pays_for_all_its_tenants_and_is_not_made_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[None] = []
    rewrite = SqliteFile._rewritten

    def counted(*arguments: Any) -> bool:
        made.append(None)
        return rewrite(*arguments)

    monkeypatch.setattr(SqliteFile, "_rewritten", counted)
    with pagefile.Admin(path) as admin:
        one, two = admin.open("one").store, admin.open("two").store
        for store in (one, two):
            store.commit(Batch([Append("a", SECRET, user="u")]))
        first = one.erase(Selector(user="nobody"))
        one.erase(Selector(user="u"), scrub=False)
        of_two = two.erase(Selector(user="u"))
        of_one = one.erase(Selector(user="u"))
        last = one.erase([])

    assert {receipt.level for receipt in (first, of_two, of_one, last)} == {"bytes"}
    assert len(made) == 1


def test_a_file_of_the_first_format_is_written_again_by_its_first_erasure(path: Path) -> None:
    """Its removals were not noted: the format was made by its own script, as it was then."""
    made = apsw.Connection(str(path))
    made.execute(load_migrations("sqlite")[0]).fetchall()
    made.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1").fetchall()
    made.execute("INSERT INTO tenants VALUES (1, 'default', 0, 0, 0, 1)").fetchall()
    # What a removal left: a row that is deleted, and whose bytes are not overwritten.
    made.execute("PRAGMA secure_delete = OFF").fetchall()
    made.execute("INSERT INTO used_keys VALUES (1, ?, 1)", (SECRET,)).fetchall()
    made.execute("DELETE FROM used_keys").fetchall()
    made.close()
    with pagefile.open(path) as pf:
        left = SECRET.encode() in files_of(path)
        receipt = pf.store.erase(Selector(user="u"))

        assert (left, receipt.level, SECRET.encode() in files_of(path)) == (True, "bytes", False)
        assert pf.verify().problems + pf.check().problems == ()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted there")
def test_an_erasure_with_no_file_left_to_open_gives_its_receipt_and_says_what_remains(
    path: Path,
) -> None:
    script = f"""
import os, resource, pagefile
from pagefile import Append, Batch, Selector
pf = pagefile.open({str(path)!r})
pf.store.commit(Batch([Append("log", "text", user="ann")]))
pf.store.erase(Selector(user="bob"), dry_run=True)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, most))
receipt = pf.store.erase(Selector(user="ann"))
print(receipt.level, receipt.records, receipt.remaining)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("logical 1 ("), done.stderr
    assert "this process can open no more files" in done.stdout


def test_people_can_read_the_file_with_plain_sql(story: Path) -> None:
    connection = apsw.Connection(str(story))
    entries = connection.execute('SELECT log, "index", user, body FROM entries').fetchall()
    documents = connection.execute("SELECT document, version, body FROM documents").fetchall()
    commits = connection.execute("SELECT tenant, position FROM commit_log").fetchall()
    connection.close()

    assert entries == [
        ("a", 0, "u", '"one"'),
        ("a", 1, None, '"two"'),
        ("b", 0, None, '"three"'),
        ("c", 1, None, '"four"'),
    ]
    assert documents == [("d", 2, '"second"')]
    assert commits == [("default", n) for n in range(1, 9)]


def _no_folder(path: Path) -> Path:
    return path.parent / "missing" / "store.db"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _text_file(path: Path) -> Path:
    path.write_text("This is a diary, not a database. " * 200)
    return path


def _text_file_with_a_journal(path: Path) -> Path:
    """Somebody's note beside it that only sounds like a journal."""
    path.with_name(path.name + "-wal").write_text("what I owe: nothing " * 500)
    return _text_file(path)


def _others_torn_database_with_a_journal(path: Path) -> Path:
    """Its own program has to recover it."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA application_id = 77",
            "CREATE TABLE theirs (x)",
        ):
            connection.execute(statement).fetchall()
        journal = path.with_name(path.name + "-wal").read_bytes()
    path.with_name(path.name + "-wal").write_bytes(journal)
    path.write_bytes(bytes(512) + path.read_bytes()[512:])
    return path


def _others_database(path: Path) -> Path:
    tamper(path, "CREATE TABLE theirs (x)")
    return path


def _others_journalled_database(path: Path) -> Path:
    tamper(path, "PRAGMA journal_mode = WAL", "CREATE TABLE theirs (x)")
    return path


def _others_empty_database(path: Path) -> Path:
    tamper(path, "PRAGMA application_id = 77")
    return path


def _others_empty_database_with_a_version(path: Path) -> Path:
    tamper(path, "PRAGMA application_id = 77", "PRAGMA user_version = 1")
    return path


def _nobodys_database_with_a_version(path: Path) -> Path:
    tamper(path, "PRAGMA user_version = 1")
    return path


@pytest.mark.parametrize(
    "prepare",
    [
        _text_file,
        _text_file_with_a_journal,
        _others_torn_database_with_a_journal,
        lambda _: Path(os.devnull),
        _others_database,
        _others_journalled_database,
        _others_empty_database,
        _others_empty_database_with_a_version,
        _nobodys_database_with_a_version,
    ],
)
def test_nothing_is_left_beside_a_file_that_is_not_ours(
    path: Path, prepare: Callable[[Path], Path]
) -> None:
    target = prepare(path)
    before = sorted(target.parent.iterdir()) if target == path else []
    with pytest.raises(pagefile.Invalid):
        pagefile.open(target)
    if target == path:
        with pytest.raises(pagefile.Invalid):
            migrate(str(target), check=True)

    assert before == (sorted(target.parent.iterdir()) if target == path else [])
    assert not target.with_name(target.name + "-gate").exists()


def _ours_without_tables(path: Path) -> Path:
    tamper(path, f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {KNOWN}")
    return path


def _ours_with_other_tables(path: Path) -> Path:
    _ours_without_tables(path)
    tamper(path, "CREATE TABLE tenants (id)")
    return path


def _ours_without_a_version(path: Path) -> Path:
    pagefile.open(path).close()
    tamper(path, "PRAGMA user_version = 0")
    return path


def _ours_with_a_negative_version(path: Path) -> Path:
    pagefile.open(path).close()
    tamper(path, "PRAGMA user_version = -1")
    return path


def _file_for_a_folder(path: Path) -> Path:
    path.write_text("")
    return path / "deep" / "store.db"


def _newer_format(path: Path) -> Path:
    pagefile.open(path).close()
    tamper(path, "PRAGMA user_version = 99")
    return path


@pytest.mark.parametrize(
    ("prepare", "error", "words"),
    [
        (_no_folder, pagefile.Invalid, "mkdir"),
        (_folder, pagefile.Invalid, "is a folder"),
        (_text_file, pagefile.Invalid, "not a database"),
        (_text_file_with_a_journal, pagefile.Invalid, "not a database"),
        (_others_torn_database_with_a_journal, pagefile.Invalid, "not a database"),
        (_others_database, pagefile.Invalid, "another program"),
        (_others_journalled_database, pagefile.Invalid, "another program"),
        (_others_empty_database, pagefile.Invalid, "another program"),
        (_others_empty_database_with_a_version, pagefile.Invalid, "another program"),
        (_nobodys_database_with_a_version, pagefile.Invalid, "another program"),
        (_ours_without_tables, pagefile.Corrupt, "tables are not those: restore"),
        (
            _ours_with_other_tables,
            pagefile.Corrupt,
            f"format {KNOWN}, and its tables are not those",
        ),
        (_ours_without_a_version, pagefile.Corrupt, "format 0, and its tables are not those"),
        (_ours_with_a_negative_version, pagefile.Corrupt, "format -1, and its tables"),
        (_file_for_a_folder, pagefile.Invalid, "is a file, not a folder: name a file in a folder"),
        (_newer_format, pagefile.Unsupported, "upgrade Pagefile"),
    ],
)
def test_a_file_that_cannot_be_ours_is_refused_and_left_alone(
    path: Path, prepare: Callable[[Path], Path], error: type[Exception], words: str
) -> None:
    target = prepare(path)
    before = target.read_bytes() if target.is_file() else None
    with pytest.raises(error, match=words):
        pagefile.open(target)

    assert (target.read_bytes() if target.is_file() else None) == before


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize(
    ("of_file", "of_folder", "fact", "next_step"),
    [
        (0o444, 0o755, "{path} is read-only", "change its permissions, or copy it"),
        (0o000, 0o755, "{path} cannot be read and written", "change its permissions, or copy it"),
        (0o222, 0o755, "{path} cannot be read and written", "change its permissions, or copy it"),
        (0o666, 0o555, "the folder {path.parent} is read-only", "change the permissions"),
    ],
)
def test_what_may_not_be_written_to_is_refused_with_the_reason_and_left_alone(
    of_file: int, of_folder: int, fact: str, next_step: str
) -> None:
    """In a forked child that gives up its rights: to root every file is writable."""
    # Not in pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "store.db"
        pagefile.open(path).close()
        before = path.read_bytes()
        for file in Path(folder).iterdir():
            file.chmod(of_file)
        os.chmod(folder, of_folder)
        code, said = _said_by_a_stranger(path)
        os.chmod(folder, 0o755)
        path.chmod(0o644)

        assert (code, fact.format(path=path) in said, said.endswith(next_step)) == (
            "forbidden",
            True,
            True,
        ), said
        assert path.read_bytes() == before
        assert {file.name for file in Path(folder).iterdir()} == {"store.db", "store.db-gate"}


def _said_by_a_stranger(path: Path) -> tuple[str, str]:
    """The code and the words of what somebody without special rights is told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            pagefile.open(path)
        except pagefile.PagefileError as error:
            said = f"{error.code} {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.waitpid(child, 0)
    code, _, said = os.read(reading, 1000).decode().partition(" ")
    return code, said


def _with_migrations(monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """As if this version knew further formats."""
    scripts = [*load_migrations("sqlite"), *more]
    monkeypatch.setattr(sqlite_format, "load_migrations", lambda _: scripts)


def test_a_file_of_an_old_format_is_brought_up_to_date_with_all_that_is_in_it(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pagefile.open(story) as pf:
        before = pf.store.head()
    _with_migrations(
        monkeypatch,
        "CREATE TABLE extra (x INTEGER) STRICT",
        "INSERT INTO extra SELECT count(*) FROM records",
    )
    with pagefile.open(story) as pf:
        pf.store.commit(Batch([Append("a", "after")]))
        values = [entry.value for entry in pf.store.read("a")]
        problems = pf.verify(head=before).problems + pf.check().problems
    connection = apsw.Connection(str(story))
    version = connection.execute("PRAGMA user_version").fetchall()
    extra = connection.execute("SELECT x FROM extra").fetchall()
    connection.close()

    assert (values, problems) == (["one", "two", "after"], ())
    assert (version, extra) == ([(KNOWN + 2,)], [(9,)])


def test_a_script_that_fails_leaves_the_old_format_and_says_what_to_do(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        _with_migrations(newer, "CREATE TABLE extra (x); INSERT INTO missing VALUES (1)")
        with pytest.raises(
            pagefile.Unsupported, match=f"format {KNOWN} and cannot be brought to {KNOWN + 1}"
        ) as told:
            pagefile.open(story)
    with pagefile.open(story) as pf:
        values = [entry.value for entry in pf.store.read("a")]
        problems = pf.verify().problems + pf.check().problems
    connection = apsw.Connection(str(story))
    version = connection.execute("PRAGMA user_version").fetchall()
    extra = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'extra'").fetchall()
    connection.close()

    assert "open it with the Pagefile that wrote it" in told.value.next_step
    assert (values, problems, version, extra) == (["one", "two"], (), [(KNOWN,)], [])


_HOLD = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
        print("unused")
    except OSError:
        print("in use")
"""


def test_a_second_handle_of_a_process_leaves_the_first_ones_locks(path: Path) -> None:
    """Closing a file lets go of all locks that its process has on it, whoever took them.

    To SQLite in another process the store then was unused: its journal was deleted
    under a handle that went on writing to it.
    """
    with pagefile.open(path) as first, pagefile.open(path):
        first.store.commit(Batch([Append("a", 1)]))
        tried = subprocess.run(
            [sys.executable, "-c", _HOLD, str(path)], capture_output=True, text=True, check=True
        )

    assert tried.stdout.strip() == "in use"


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2"])
def test_a_library_with_the_wal_reset_bug_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(pagefile.Unsupported, match="can lose pages"):
        pagefile.open(path)

    assert not path.exists()


def test_a_damaged_file_gives_a_typed_error_or_an_honest_report(story: Path) -> None:
    """Bytes are flipped all over the file; whatever happens, it is said with our words."""
    original = story.read_bytes()
    outcomes = set()
    for at in range(100, len(original), len(original) // 150):
        damaged = bytearray(original)
        damaged[at] ^= 0xFF
        for suffix in ("-wal", "-shm"):
            Path(f"{story}{suffix}").unlink(missing_ok=True)
        story.write_bytes(bytes(damaged))
        outcomes.add(_look_at(story))

    assert outcomes <= {"clean", "reported", "Corrupt", "Invalid", "Unavailable", "Unsupported"}
    assert "reported" in outcomes or "Corrupt" in outcomes


def _look_at(path: Path) -> str:
    try:
        with pagefile.open(path) as pf:
            problems = pf.verify().problems + pf.check().problems
            for log in "abc":
                pf.store.read(log)
            return "reported" if problems else "clean"
    except pagefile.PagefileError as error:
        return type(error).__name__


def test_a_handle_used_in_a_forked_child_is_refused(path: Path) -> None:
    pf = pagefile.open(path)
    pf.store.commit(Batch([Append("a", 1)]))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            pf.store.commit(Batch([Append("a", 2)]))
        except pagefile.Forbidden as error:
            said = error.next_step
        os.write(writing, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(reading, 1000).decode()
    pf.store.commit(Batch([Append("a", 3)]))

    assert said == "call pagefile.open again in the child"
    assert [e.value for e in pf.store.read("a")] == [1, 3]
    pf.close()


def test_a_closed_handle_says_so(path: Path) -> None:
    pf = pagefile.open(path)
    pf.store.commit(Batch([Append("a", 1)]))
    pf.close()
    pf.close()
    for call in (
        lambda: pf.store.read("a"),
        lambda: pf.store.commit(Batch([Append("a", 1)])),
        lambda: pf.store.erase(Selector(log="a")),
        pf.check,
        pf.verify,
    ):
        with pytest.raises(pagefile.Forbidden, match="closed"):
            call()


def test_sixteen_processes_can_create_the_same_file_at_once(path: Path) -> None:
    code = (
        "import sys, pagefile; from pagefile import *\n"
        "with pagefile.open(sys.argv[1]) as pf:"
        " print(pf.store.commit(Batch([Append('a', 1)])).position)"
    )
    command = [sys.executable, "-c", code, str(path)]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(16)]
    positions = sorted(int(run.communicate(timeout=120)[0]) for run in runs)

    assert positions == list(range(1, 17))
    assert FileBackend(str(path)).finish() == []


def test_tenants_are_listed_by_the_admin_handle_only(path: Path) -> None:
    with pagefile.Admin(str(path)) as admin:
        for tenant in ("beta", "alpha"):
            admin.open(tenant).store.commit(Batch([Append("a", tenant)]))
        names = admin.tenants()

    assert names == ["alpha", "beta"]
    assert not hasattr(pagefile.Pagefile, "tenants")


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("", {}, pagefile.Invalid),
        ("a\x00b", {}, pagefile.Invalid),
        (":memory:", {}, pagefile.Invalid),
        ("sqlite://two-slashes.db", {}, pagefile.Invalid),
        ("mongodb://x", {}, pagefile.Unsupported),
        ("x.db", {"durability": "Power"}, pagefile.Invalid),
        ("x.db", {"durability": 5}, pagefile.Invalid),
        ("x.db", {"options": {"vfs": None}}, pagefile.Invalid),
        ("x.db", {"options": pagefile.Options(lock_seconds=-1)}, pagefile.Invalid),
        (
            "memory:",
            {"options": pagefile.Options(limits=pagefile.Limits(entry_bytes=-1))},
            pagefile.Invalid,
        ),
        ("memory:", {"durability": "power"}, pagefile.Unsupported),
        ("memory:", {"tenant": ""}, pagefile.Invalid),
        ("memory:", {"tenant": "a\nb"}, pagefile.Invalid),
    ],
)
def test_what_cannot_be_opened_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        pagefile.open(url, **options)

    assert list(tmp_path.iterdir()) == []


#: Statements that walk on purpose: `check`, and the names of all tenants.
_WALKS = {"living_logs", "living_documents", "keyed_records"}


def test_no_statement_of_a_commit_walks_all_streams_of_a_tenant(story: Path) -> None:
    """The planner once preferred the index by oid for its order, and walked them."""
    connection = apsw.Connection(str(story))
    walking = []
    for name, sql in load_queries("sqlite").items():
        if name in _WALKS or not apsw.complete(f"{sql};"):
            continue
        plan = apsw.ext.query_info(connection, sql, explain_query_plan=True).query_plan
        steps = [str(plan)] if plan else []
        if any("USING INDEX streams_by_oid (tenant=?)" in step for step in steps):
            walking.append(name)
    assert walking == []


def test_a_million_commits_are_looked_through_for_expired_keys_in_a_hundred_steps() -> None:
    """One commit a second, and a lifetime of a day."""
    asked: list[int] = []

    def time_at(position: int) -> int:
        asked.append(position)
        return position * 1_000_000

    expiry, day_us = KeyExpiry(), 86_400 * 1_000_000
    last = 1_000_000
    found = expiry.last_expired(day_us, 1, last, time_at(last), time_at)
    looked = len(asked)
    again = expiry.last_expired(day_us, 1, last + 256, (last + 256) * 1_000_000, time_at)

    assert found == again == last - 86_400 * 5 // 4
    assert looked < 120
    assert len(asked) == looked


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_new_store_is_its_owners_alone_with_the_files_beside_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with pagefile.open(tmp_path / "a.db") as pf:
            pf.store.commit(Batch([Append("log", 1)]))
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(["a.db", "a.db-gate", "a.db-shm", "a.db-wal"], 0o600)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_store_that_was_opened_up_to_a_group_keeps_that(tmp_path: Path) -> None:
    pagefile.open(tmp_path / "a.db").close()
    (tmp_path / "a.db").chmod(0o660)
    (tmp_path / "a.db-gate").unlink()
    before = os.umask(0)
    try:
        with pagefile.open(tmp_path / "a.db"):
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)

    assert set(modes.values()) == {0o660}


def test_a_single_append_with_a_clock_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    told: list[int | None] = [1, 2, None, 4]

    def clock() -> int:
        now = told.pop(0)
        if now is None:
            raise ValueError("the clock has stopped")
        return now

    with pagefile.open(tmp_path / "store.db", options=Options(clock=clock)) as pf:
        for number in range(2):
            pf.store.append(Append("log", number))
        with pytest.raises(ValueError, match="stopped"):
            pf.store.append(Append("log", 2))
        again = pf.store.append(Append("log", 3))

        assert (again.index, again.position, again.time_us) == (2, 3, 4)
        assert pf.verify()
        assert pf.check()


def test_single_appends_of_two_handles_in_turns_are_numbered_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pagefile.open(path) as one, pagefile.open(path) as other:
        made = []
        for number in range(24):
            # Runs of several: whoever was alone for a while takes the shortest way.
            pf = one if number % 6 < 4 else other
            made.append(pf.store.append(Append("log", number)))
            if number == 12:
                other.store.commit(Batch([Prune(2, log="log")]))

        assert [entry.index for entry in made] == list(range(24))
        assert [entry.value for entry in one.store.read("log", 2)] == list(range(2, 24))
        assert one.verify()
        assert other.check()


def test_a_commit_that_fails_and_is_interrupted_while_it_ends_is_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, and Ctrl-C comes when that was rolled back."""
    failing = False

    def flush(self: SqliteTransaction) -> None:
        if failing:
            raise apsw.FullError("full")
        real_flush(self)

    def end(self: SqliteFile) -> None:
        real_end(self)
        if failing:
            raise KeyboardInterrupt

    real_flush, real_end = SqliteTransaction.flush, SqliteFile.end
    monkeypatch.setattr(SqliteTransaction, "flush", flush)
    monkeypatch.setattr(SqliteFile, "end", end)
    with pagefile.open(path) as pf:
        for number in range(3):
            pf.store.append(Append("log", number))
        failing = True
        for batch in ([Append("log", 3)], [Append("log", 3), Append("new", 0)]):
            with pytest.raises(KeyboardInterrupt):
                pf.store.commit(Batch(list(batch)))
        failing = False

        assert pf.store.append(Append("log", 3)).index == 3
        assert pf.store.append(Append("new", 0)).index == 0
        assert pf.verify()
        assert pf.check()


def test_a_transaction_that_was_left_open_is_ended_by_the_next_commit(path: Path) -> None:
    """Ctrl-C came twice: the second time before anything was rolled back."""
    with pagefile.open(path) as pf:
        engine = pf.store._engine
        assert isinstance(engine, SqliteEngine)
        pf.store.append(Append("log", 0))
        engine._file.begin()

        assert pf.store.append(Append("log", 1)).index == 1
        assert pf.verify()


def test_a_tenant_is_up_to_date_when_another_made_out_that_somebody_wrote(path: Path) -> None:
    with pagefile.Admin(path) as one, pagefile.Admin(path) as other:
        a, b, elsewhere = one.open("a").store, one.open("b").store, other.open("b").store
        for number in range(3):
            a.append(Append("log", number))
            b.append(Append("log", number))
        elsewhere.append(Append("log", 3))
        # These see that somebody wrote, and then that nobody did any more.
        a.append(Append("log", 3))
        a.append(Append("log", 4))

        assert b.append(Append("log", 4)).index == 4
        assert b.verify()


def test_a_single_append_that_another_thread_commits_meanwhile_is_stored_once(path: Path) -> None:
    with pagefile.open(path) as pf:
        store = pf.store
        for number in range(3):
            store.append(Append("log", number))
        batch = Batch([Append("log", "once")])
        # One thread has come so far when another commits the same batch.
        one = store._preparer.prepare_lone(batch, store._reached)
        assert one is not None
        first = store.commit(batch)
        again = store._committer.commit(store._tenant, one)

        assert again.repeated
        assert again.commit.position == first.position
        assert store.length("log") == 4


@pytest.mark.parametrize("limit", [-1, True, 2.5, float("nan"), "x", b"", [], 1j])
def test_a_limit_that_is_no_count_is_refused_for_a_single_append(path: Path, limit: Any) -> None:
    with pagefile.open(path) as pf, pagefile.open("memory:") as instant:
        for store in (pf.store, instant.store):
            store.append(Append("log", 0))
            for write in (
                store.append,
                lambda op, store=store: store.commit(Batch([op])),
                lambda op, store=store: store.append_many(Batch([op])),
            ):
                with pytest.raises(pagefile.Invalid, match="limit"):
                    write(Append("log", 1, limit=limit))

            assert store.length("log") == 1


@pytest.mark.parametrize("way", ["prune", "erase"])
def test_what_is_taken_away_is_overwritten_in_the_file_at_once(tmp_path: Path, way: str) -> None:
    """Also when the file is not written anew after it."""
    path = tmp_path / "s.db"
    with pagefile.open(path) as pf:
        pf.store.append(Append("log", "zyqsecret" * 100, user="ann"))
        pf.store.append(Append("log", "kept"))
    before = b"zyqsecret" in path.read_bytes()
    with pagefile.open(path) as pf:
        if way == "prune":
            pf.store.commit(Batch([Prune(1, log="log")]))
        else:
            pf.store.erase(Selector(user="ann"), scrub=False)
    after = b"zyqsecret" in path.read_bytes()

    assert (before, after) == (True, False)


def test_check_names_a_record_whose_keys_cannot_be_read(tmp_path: Path) -> None:
    with pagefile.open(tmp_path / "s.db") as pf:
        # An index has nothing of it, so that it is found by the record alone.
        pf.store.append(Append("log", 1))
        pf.store.append(Append("log", 2, keys={"k": 1}))
        connection = apsw.Connection(str(tmp_path / "s.db"))
        connection.execute("UPDATE records SET keys = CAST('{' AS BLOB) WHERE keys IS NOT NULL")
        connection.close()
        problems = pf.check().problems

    assert [str(each.what) for each in problems if "cannot be read" in each.what] != []


def test_a_link_to_a_store_has_the_same_gate_and_one_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "store.db")
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    with pagefile.open(tmp_path / "real" / "store.db") as pf:
        pf.store.append(Append("log", 0))
        with pagefile.open(tmp_path / "link.db") as linked:
            assert linked.store.append(Append("log", 1)).index == 1
        with pytest.raises(pagefile.Invalid, match="leads back to itself"):
            pagefile.open(tmp_path / "loop.db")

    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.db", "loop.db", "real"]


def test_settings_in_the_url_of_a_file_are_refused_and_make_no_file(tmp_path: Path) -> None:
    with pytest.raises(pagefile.Invalid, match="question mark"):
        pagefile.open(f"sqlite:///{tmp_path}/x.db?mode=ro")

    assert list(tmp_path.iterdir()) == []


def test_a_child_forked_while_a_key_is_given_commits_without_delay(tmp_path: Path) -> None:
    code = """
import os, sys, time
import pagefile
from pagefile import Append
from pagefile.store.commit import preparation
pagefile.open("memory:")
with preparation._Giving.lock:
    child = os.fork()
    if not child:
        with pagefile.open(sys.argv[1]) as pf:
            pf.store.append(Append("log", 0))
        os._exit(0)
    sys.exit(os.waitpid(child, 0)[1])
"""
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.db")], timeout=120)

    assert ran.returncode == 0


def test_a_statement_is_planned_once_whatever_values_it_is_given(path: Path) -> None:
    """Planning takes longer than finding a record."""
    with pagefile.open(path) as pf:
        for n in range(5):
            pf.store.commit(Batch([Put(f"d{n}", n)]))
        engine = pf.store._engine
        planned: list[int] = []

        def asked_for(*_: Any) -> int:
            planned.append(1)
            return apsw.SQLITE_OK

        with engine._file.reader() as connection:  # type: ignore[attr-defined]
            connection.authorizer = asked_for  # Who plans a statement asks it about each step.
        pf.store.get_many(["d0", "d1"])
        assert planned

        planned.clear()
        for n in range(4):
            assert len(pf.store.get_many([f"d{n}", f"d{n + 1}"])) == 2

    assert planned == []


def test_a_group_that_heard_nothing_of_many_commits_is_told_of_its_repeats(path: Path) -> None:
    """Keys are looked for among what another process committed, once for the whole group."""
    with pagefile.open(path) as one, pagefile.open(path) as other:
        stale = one.store
        repeated = Batch([Append("log", "mine")])
        first = stale.commit(repeated)
        stale.commit(Batch([Append("log", "more")]))
        for number in range(600):
            other.store.append(Append("log", number))
        fresh = [Batch([Append("log", f"new {number}")]) for number in range(5)]

        async def story() -> list[pagefile.Commit]:
            asked = [stale.commit_async(batch) for batch in (*fresh, repeated, fresh[0])]
            return await asyncio.gather(*asked)

        *told, again, twice = asyncio.run(story())

        assert [commit.position for commit in told] == list(range(603, 608))
        assert (again.repeated, again.position) == (True, first.position)
        assert (twice.repeated, twice.position) == (True, told[0].position)
        assert stale.length("log") == 607
        assert other.verify()


def test_reading_the_last_slot_takes_at_most_four_statements(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def trace(_cursor: apsw.Cursor, statement: str, _bindings: object) -> bool:
        ran.append(statement)
        return True

    connect = SqliteFile._connect_reader

    def traced(file: SqliteFile) -> apsw.Connection:
        connection = connect(file)
        connection.exec_trace = trace
        return connection

    monkeypatch.setattr(SqliteFile, "_connect_reader", traced)
    with pagefile.open(path) as pf:
        pf.context.append("t", "first", "a", "b")
        pf.context.append("t", "last", "a", "b")
        thread = pf.context.get_thread("t")
        assert thread is not None
        assert thread[-1].payload == "last"
        ran.clear()
        thread = pf.context.get_thread("t")
        assert thread is not None
        assert thread[-1].payload == "last"

    assert 0 < len(ran) <= 4
    assert sum("FROM streams" in statement for statement in ran) == 2


def test_a_slot_takes_the_short_way_of_the_transaction(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pagefile.open(path) as pf:
        for number in range(2):
            pf.context.append("t", number, "a", "b")

        def long_way(*_: object) -> None:
            raise AssertionError("a slot is collected before it is written")

        with monkeypatch.context() as patched:
            patched.setattr(SqliteTransaction, "add", long_way)
            slot = pf.context.append("t", 2, "a", "b")
        lane = pagefile.Query(LANE, value=("int", "a", "b"), log=slot.entry.log)

        assert len(pf.store.find(lane).items) == 3
        assert pf.check().problems == ()
        assert pf.verify().problems == ()


def test_a_warm_append_passes_few_modules(path: Path) -> None:
    passed: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        if event == "call" and name.startswith("pagefile"):
            passed.add(name)

    with pagefile.open(path) as pf:
        for _ in range(2):
            pf.context.append("t", {"a": 1}, "a", "b")
        sys.setprofile(profile)
        try:
            pf.context.append("t", {"a": 2}, "a", "b")
        finally:
            sys.setprofile(None)

    # The tests hold every write to the kinds that rooms declare; nothing else does.
    checks = {
        name for name in passed if name.startswith(("pagefile.testing", "pagefile.store.kinds"))
    }
    assert len(passed - checks) <= 15

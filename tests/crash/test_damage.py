"""Damaged SQLite files: whatever is asked of one, the answer is typed or an honest report.

PAGEFILE_SOAK=1 runs many more rounds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import pagefile
from pagefile import Append, Batch, Delete, Fork, Prune, Put, Query, Selector
from pagefile.store.store import Store

SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
SEED = random.randrange(2**32) if SOAK else 20_260_104
ROUNDS = 3_000 if SOAK else 72
TAMPERINGS = 3_000 if SOAK else 120
_PAGE = 4_096


def _tell_a_story(store: Store) -> None:
    """Something of everything, over enough pages that damage is somewhere in particular."""
    store.commit(Batch([Append("a", "one", user="u"), Append("a", "two", sources=("s",))]))
    store.commit(Batch([Append("b", {"three": 3}, notes={"n": 1})]))
    store.commit(Batch([Put("d", "first", keys={"k": 1}, tenant_keys={"t": 1})]))
    store.commit(Batch([Put("d", "second", keys={"k": 2}, tenant_keys={"t": 2})]))
    store.commit(Batch([Fork("c", "a", 1)]))
    store.commit(Batch([Append("c", "four")], key="given"))
    store.commit(Batch([Put("gone", 1)]))
    store.commit(Batch([Delete("gone")]))
    for n in range(120):
        store.commit(Batch([Append("long", "x" * 500, user="u", keys={"k": n})]))
    store.commit(Batch([Prune(before=3, log="long")]))


def _asked(store: Store) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every read, and then what writes; the reports first, while the damage is as it was."""
    yield "verify", store.verify
    yield "check", store.check
    for log in ("a", "b", "c", "long"):
        yield f"read {log}", partial(_read, store, log)
        yield f"read {log} from its end", partial(_read, store, log, -3)
        yield f"read {log} at 6", partial(_read, store, log, at=6)
        yield f"length of {log} at 6", partial(store.length, log, at=6)
    yield "get", lambda: _shown([found] if (found := store.get("d")) else [])
    yield "get a version", lambda: store.get("d", version=1)
    yield "get many", lambda: store.get_many(["d", "gone"])
    yield "history", lambda: _shown(store.history("d"))
    yield "names", lambda: (store.names("log"), store.names("document"))
    yield "changes", store.changes
    yield "find", lambda: _shown(store.find(Query("k", 2)).items)
    yield "find at 3", lambda: _shown(store.find(Query("k", 1), at=3).items)
    yield "find everyone's", lambda: _shown(store.find(Query("t", 2, everyone=True)).items)
    yield "find in a log", lambda: _shown(store.find(Query("k", low=3, log="long")).items)
    yield "stats", store.stats
    yield "head", store.head
    yield "wait", lambda: store.wait(1, 0)
    yield "repeat", lambda: store.commit(Batch([Append("c", "four")], key="given"))
    yield "commit", lambda: store.commit(Batch([Append("a", "after", user="u")]))
    yield "put", lambda: store.commit(Batch([Put("d", 3, keys={"k": 4}), Append("new", 1)]))
    yield "fork", lambda: store.commit(Batch([Fork("e", "c", 1), Prune(before=1, log="a")]))
    yield "erase", lambda: store.erase(Selector(user="u"))
    yield "erase a document", lambda: store.erase(Selector(document="d"))
    yield "verify after", store.verify
    yield "check after", store.check


def _read(store: Store, log: str, start: int = 0, at: int | None = None) -> list[Any]:
    return _shown(store.read(log, start, at=at))


def _shown(stored: Any) -> list[Any]:
    """Also what is decoded only when it is asked for."""
    return [(one.value, one.keys, one.notes, one.digest) for one in stored if not one.erased]


class Answers(NamedTuple):
    """What a damaged file answered: which errors, which reports, and what no caller expects."""

    errors: set[str]
    reported: bool
    raw: list[str]


def _answers(path: Path) -> Answers:
    errors: set[str] = set()
    raw: list[str] = []
    reported = False
    try:
        pf = pagefile.open(path)
    except pagefile.PagefileError as error:
        return Answers({type(error).__name__}, False, [] if error.next_step else [repr(error)])
    with pf:
        for what, ask in _asked(pf.store):
            try:
                answer = ask()
                reported |= isinstance(answer, pagefile.Report) and not answer
            except pagefile.PagefileError as error:
                errors.add(type(error).__name__)
                if not error.next_step:
                    raw.append(f"{what}: no next step: {error!r}")
            except Exception as error:  # noqa: BLE001 - these are what is looked for
                raw.append(f"{what}: {error!r}")
    return Answers(errors, reported, raw)


class Files(NamedTuple):
    """A store that was closed, and the same one as a crash leaves it: file and journal."""

    closed: bytes
    live: bytes
    journal: bytes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "store.db"
    with pagefile.open(path, durability="process") as pf:
        _tell_a_story(pf.store)
        assert pf.verify().problems + pf.check().problems == ()
        live, journal = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    return Files(path.read_bytes(), live, journal)


def _write(path: Path, content: bytes, journal: bytes | None = None) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(content)
    if journal is not None:
        Path(f"{path}-wal").write_bytes(journal)


def _cut(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    return files.closed[: rng.randrange(1, len(files.closed))], None


def _noise(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    content = bytearray(files.closed)
    for _ in range(rng.randint(1, 20)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content), None


def _letters(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    """What makes text no text, and JSON or MessagePack none."""
    content = bytearray(files.closed)
    for _ in range(3):
        content[rng.randrange(_PAGE, len(content))] = rng.choice(b'\x00\x80\xff\xc1{"')
    return bytes(content), None


def _zeros(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    content = bytearray(files.closed)
    at, count = rng.randrange(len(content)), rng.choice((16, 512, _PAGE))
    count = min(count, len(content) - at)
    content[at : at + count] = bytes(count)
    return bytes(content), None


def _swap(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    pages = [files.closed[at : at + _PAGE] for at in range(0, len(files.closed), _PAGE)]
    one, other = rng.randrange(1, len(pages)), rng.randrange(1, len(pages))
    pages[one], pages[other] = pages[other], pages[one]
    return b"".join(pages), None


def _header(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    content = bytearray(files.closed)
    content[rng.randrange(100)] = rng.randrange(256)
    return bytes(content), None


def _cut_journal(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    return files.live, files.journal[: rng.randrange(len(files.journal))]


def _noise_in_journal(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    journal = bytearray(files.journal)
    for _ in range(rng.randint(1, 5)):
        journal[rng.randrange(len(journal))] ^= 0xFF
    return files.live, bytes(journal)


def _foreign_journal(files: Files, rng: random.Random) -> tuple[bytes, bytes | None]:
    journal = rng.randbytes(rng.randint(0, 20_000))
    return rng.choice(((files.live, journal), (files.closed, files.journal)))


DAMAGES = (
    _cut,
    _noise,
    _letters,
    _zeros,
    _swap,
    _header,
    _cut_journal,
    _noise_in_journal,
    _foreign_journal,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__[1:])
def test_damaged_bytes_never_lead_to_an_error_that_is_not_ours(
    files: Files, tmp_path: Path, damage: Callable[..., tuple[bytes, bytes | None]]
) -> None:
    rng = random.Random(f"{SEED} {damage.__name__}")
    path = tmp_path / "store.db"
    seen: set[str] = set()
    for turn in range(ROUNDS // len(DAMAGES)):
        _write(path, *damage(files, rng))
        answers = _answers(path)
        seen |= answers.errors

        assert answers.raw == [], (SEED, turn)
    assert seen <= {"Corrupt", "Invalid", "Unavailable", "Unsupported", "Forbidden", "NotFound"}


COLUMNS = {
    "tenants": "logs documents last_erase keys_from",
    "partitions": "tenant user",
    "streams": "tenant oid kind name base base_at created dropped pruned salt",
    "records": "stream number position ordinal time_us action key manifest digest partition kind"
    " actor sources keys tenant_keys notes type salt body",
    "keys": "space field value position ordinal record",
    "past_keys": "space field value until position ordinal record",
    "used_keys": "tenant key position",
    "holdings": "partition stream",
}
ODD = (
    *("NULL", "0", "-1", "4", str(2**63 - 1), str(-(2**63)), "'x'", "'[1'", "X'00'", "X'c1'"),
    # No text; manifests with too few parts, parts of a wrong kind, a fork of itself; [] and {}.
    *("CAST(X'ff80' AS TEXT)", "X'9190'", "X'9194010203'", "X'919401c0c0c0'"),
    *("X'9194a1780203c40100'", "X'91960404c400c40004c0'", "X'9196040401c400049100'"),
    *("X'91960404 01 c400 04 00'".replace(" ", ""), "X'5b5d'", "X'7b7d'"),
)


def test_odd_values_in_any_column_never_lead_to_an_error_that_is_not_ours(
    files: Files, tmp_path: Path
) -> None:
    """A table that forgot to be strict takes what a damaged page may hold."""
    rng = random.Random(f"{SEED} odd")
    path = tmp_path / "store.db"
    places = [(table, name) for table, names in COLUMNS.items() for name in names.split()]
    found = 0
    for _ in range(TAMPERINGS):
        (table, column), odd = rng.choice(places), rng.choice(ODD)
        row = f"(SELECT count(*) * {rng.random()} FROM {table})"
        which = _KEYS.get(table, "rowid")
        statement = (
            f"UPDATE OR IGNORE {table} SET {column} = {odd} WHERE ({which}) ="
            f" (SELECT {which} FROM {table} LIMIT 1 OFFSET CAST({row} AS INTEGER))"
        )
        _write(path, files.closed)
        _tamper_loosely(path, statement)
        answers = _answers(path)
        found += answers.reported or bool(answers.errors)

        assert answers.raw == [], (SEED, statement)
    assert found > TAMPERINGS // 4


_KEYS = {
    "keys": "space, field, value, position, ordinal",
    "past_keys": "space, field, value, until, position, ordinal",
    "used_keys": "tenant, key",
    "holdings": "partition, stream",
}


def _tamper_loosely(path: Path, *statements: str) -> None:
    """Change the file as no table of ours would let one."""
    connection = apsw.Connection(str(path))
    tables = connection.execute("SELECT sql, name FROM sqlite_schema WHERE sql LIKE '%STRICT%'")
    strict: list[Any] = tables.fetchall()
    loose = [(_loosened(sql), name) for sql, name in strict]
    _declare(connection, loose)
    for statement in statements:
        connection.execute(statement).fetchall()
    _declare(connection, strict)
    connection.close()


def _declare(connection: apsw.Connection, tables: list[tuple[str, str]]) -> None:
    connection.execute("PRAGMA writable_schema = ON").fetchall()
    connection.executemany("UPDATE sqlite_schema SET sql = ? WHERE name = ?", tables).fetchall()
    connection.execute("PRAGMA writable_schema = RESET").fetchall()


def _loosened(sql: str) -> str:
    for rule in ("NOT NULL", "CHECK (kind IN ('log', 'document'))", " STRICT"):
        sql = sql.replace(rule, "")
    return sql.replace("), WITHOUT", ") WITHOUT")


def test_a_fork_of_itself_is_damage_and_no_endless_loop(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    _write(path, files.closed)
    _tamper_loosely(path, "UPDATE streams SET base = oid, base_at = 100 WHERE name IN ('a', 'c')")
    with pagefile.open(path) as pf:
        for ask in (
            lambda: pf.store.read("c"),
            lambda: pf.store.find(Query("k", 1, log="c")),
            lambda: pf.store.commit(Batch([Fork("e", "c", 1)])),
            lambda: pf.store.commit(Batch([Prune(before=1, log="a")])),
        ):
            with pytest.raises(pagefile.Corrupt, match="no fork of"):
                ask()

        assert pf.verify().problems != ()


#: Its last version cannot be read, so that no next one can be put.
_BREAK_DOCUMENT = "UPDATE records SET body = NULL WHERE kind = 'marked'"


def test_a_commit_that_meets_damage_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", 1), Put("d", 1, keys={"k": 1}, kind="marked")]))
    _tamper_loosely(path, _BREAK_DOCUMENT)
    with pagefile.open(path) as pf:
        with pytest.raises(pagefile.Corrupt, match="position 1"):
            pf.store.commit(Batch([Append("a", "half"), Put("d", 2)]))
        pf.store.commit(Batch([Append("a", "whole")]))

        assert [entry.value for entry in pf.store.read("a")] == [1, "whole"]
        assert {problem.position for problem in pf.verify().problems} == {1}


def test_of_a_group_only_the_batch_that_meets_damage_fails(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with pagefile.Admin(str(path)) as admin:
        stores = {tenant: admin.open(tenant).store for tenant in ("broken", "sound")}
        for store in stores.values():
            store.commit(Batch([Put("d", 1, keys={"k": 1}, kind="marked")]))
        one = "id = (SELECT min(id) FROM records)"
        _tamper_loosely(path, f"{_BREAK_DOCUMENT} AND {one}")
        group = [
            (tenant, store._preparer.prepare(Batch([Put("d", 2)]), 1))
            for tenant, store in stores.items()
        ]
        refused, done = admin.engine.apply(group)

        assert isinstance(refused, pagefile.Corrupt)
        assert not isinstance(done, pagefile.PagefileError)
        assert stores["sound"].verify().problems == ()
        assert [stores[tenant].head().position for tenant in stores] == [1, 2]


def test_a_store_whose_last_commit_is_damaged_opens_and_says_so(
    files: Files, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    _write(path, files.closed)
    _tamper_loosely(
        path, "UPDATE records SET digest = NULL WHERE id = (SELECT max(id) FROM records)"
    )
    with pagefile.open(path) as pf:
        last = 129
        report = pf.verify()

        assert {problem.position for problem in report.problems} == {last, last + 1}
        assert pf.check().problems != ()
        with pytest.raises(pagefile.Corrupt, match=f"position {last}"):
            pf.store.commit(Batch([Append("a", 1)]))


# What an erasure leaves


@pytest.mark.parametrize(
    ("tampering", "found"),
    [
        ("SET action = 1 WHERE action = 2", "document 'd' number 1 was changed"),
        ("SET time_us = time_us + 1 WHERE number = 1 AND action = 1", "log 'a' number 1 was moved"),
        ("SET ordinal = 7 WHERE number = 1 AND action = 1", "log 'a' number 1 was moved"),
        (
            "SET stream = NULL, number = NULL WHERE number = 1 AND action = 1",
            "log 'a' number 1 is missing, and no commit let it go",
        ),
    ],
)
def test_what_stays_of_an_erased_record_is_proved_too(
    tmp_path: Path, tampering: str, found: str
) -> None:
    path = tmp_path / "store.db"
    with pagefile.open(path) as pf:
        pf.store.commit(Batch([Append("a", "kept"), Append("a", "hers", user="u")]))
        pf.store.commit(Batch([Put("d", "hers", user="u")]))
        pf.store.commit(Batch([Put("d", "kept")]))
        pf.store.erase(Selector(user="u"))
        assert pf.verify()
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE records {tampering} AND salt IS NULL AND stream IS NOT NULL")
    assert connection.changes() == 1
    connection.close()
    with pagefile.open(path) as pf:
        report = pf.verify()

    assert [problem.what for problem in report.problems] == [found]

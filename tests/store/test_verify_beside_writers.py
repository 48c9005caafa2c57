"""Verification while others write: what they do meanwhile is no damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile.handle import Pagefile
from pagefile.store.batch import Append, Selector
from pagefile.store.engine import Stream
from pagefile.store.log.audit import _LOOKS, Gathering

Write = Callable[[Pagefile, int], Any]


def _append(pf: Pagefile, number: int) -> None:
    pf.store.append(Append("known", {"n": number}))


def _make(pf: Pagefile, number: int) -> None:
    pf.store.append(Append(f"new/{number}", {"n": number}))


def _erase(pf: Pagefile, number: int) -> None:
    pf.store.erase(Selector(log="known", first=number, last=number))


def _drop(pf: Pagefile, number: int) -> None:
    pf.context.delete_thread(f"t{number}")


WRITES = {"append": _append, "make": _make, "erase": _erase, "drop": _drop}


@pytest.fixture(params=["memory:", "file"])
def pf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pagefile]:
    url = "memory:" if request.param == "memory:" else tmp_path / "a.db"
    with pagefile.open(url) as handle:
        for number in range(20):
            handle.store.append(Append("known", {"n": number}))
            handle.context.append(f"t{number}", {"n": number}, "a", "b")
        yield handle


@pytest.mark.parametrize("times", [1, 3, 100])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_commit_between_the_walk_and_the_comparison_is_no_problem(
    pf: Pagefile, write: Write, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = Gathering.streams
    compared: list[int] = []

    def interrupted(
        gathering: Gathering, oids: Iterable[int]
    ) -> Iterator[tuple[int, Stream | None]]:
        if len(compared) < times:
            write(pf, len(compared))
        compared.append(len(compared))
        return streams(gathering, oids)

    monkeypatch.setattr(Gathering, "streams", interrupted)
    report = pf.verify()

    assert report.problems == ()
    assert len(compared) == min(times + 1, _LOOKS)
    # All that was walked over is in the report, which a later one can be held against.
    assert report.commits >= 40
    assert pf.verify(head=report.head)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_commit_after_each_stretch_of_the_walk_is_no_problem(pf: Pagefile, write: Write) -> None:
    written: list[int] = []

    def write_once_more(position: int, last: int) -> None:
        if len(written) < 10:
            write(pf, len(written))
            written.append(position)

    assert pf.store.verify(progress=write_once_more).problems == ()
    assert written


def test_damage_is_still_found_when_somebody_wrote_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import apsw

    with pagefile.open(tmp_path / "a.db") as pf:
        for number in range(5):
            pf.store.append(Append(f"log/{number}", {"n": number}))
    raw = apsw.Connection(str(tmp_path / "a.db"))
    raw.execute("UPDATE streams SET created = created + 1 WHERE oid = 3")
    raw.close()
    streams = Gathering.streams
    with pagefile.open(tmp_path / "a.db") as pf:
        wrote: list[int] = []

        def interrupted(
            gathering: Gathering, oids: Iterable[int]
        ) -> Iterator[tuple[int, Stream | None]]:
            if not wrote:
                wrote.append(pf.store.append(Append("log/0", {"n": 9})).position)
            return streams(gathering, oids)

        monkeypatch.setattr(Gathering, "streams", interrupted)
        report = pf.verify()

    assert [problem.what for problem in report.problems] == [
        "log 'log/2' is not what its commits made of it"
    ]

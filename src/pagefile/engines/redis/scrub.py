"""Removing traces of erased content from the files of the server."""

from __future__ import annotations

import time
from collections.abc import Callable

from pagefile.engines.redis.connection import Server
from pagefile.engines.redis.durability import parse_info
from pagefile.errors import PagefileError

_PAUSE_SECONDS = 0.02


def scrub(server: Server, timeout: float) -> tuple[str, ...]:
    """Have the append-only file and the snapshot written anew; what could not be done."""
    deadline = time.monotonic() + timeout
    remaining: list[str] = []
    try:
        info = _info(server)
        if info.get("aof_enabled") == "1" and not _rewrite(
            server, "BGREWRITEAOF", "aof_rewrites", "aof_last_bgrewrite_status", deadline
        ):
            remaining.append(
                f"the append-only file of {server.where} is not written anew yet: "
                "the next erase does it, or BGREWRITEAOF"
            )
        if _has_snapshots(server, info) and not _rewrite(
            server, "BGSAVE", "rdb_saves", "rdb_last_bgsave_status", deadline
        ):
            remaining.append(
                f"the snapshot of {server.where} is not written anew yet: "
                "the next erase does it, or BGSAVE"
            )
        if info.get("role") != "master" or info.get("connected_slaves", "0") != "0":
            remaining.append(
                f"replicas of {server.where} keep files of their own: run BGREWRITEAOF on each"
            )
    except PagefileError as failure:
        # The erasure itself is committed; only its last step is still to do.
        remaining.append(
            f"files of {server.where} may hold old bytes ({failure.fact}): run BGREWRITEAOF there"
        )
    return tuple(remaining)


def _info(server: Server) -> dict[str, str]:
    return parse_info(server.ask_one("INFO"))


def _has_snapshots(server: Server, info: dict[str, str]) -> bool:
    """Whether the server writes dump files, by itself or because it was told to."""
    config = server.ask_one("CONFIG", "GET", "save")
    return info.get("rdb_saves", "0") != "0" or bool(config and config[1])


def _rewrite(server: Server, command: str, counter: str, status: str, deadline: float) -> bool:
    """Start a rewrite that begins after now, and wait for its end."""
    kind = "aof_rewrite" if command == "BGREWRITEAOF" else "rdb_bgsave"

    def is_idle(info: dict[str, str]) -> bool:
        # One that is under way began before the erasure, and its file may hold the content.
        return info.get(f"{kind}_in_progress") == "0" and info.get(f"{kind}_scheduled", "0") == "0"

    while (before := _until(server, is_idle, deadline)) is not None:
        if not _started(server, command):
            continue  # Another one was asked for at the same moment: wait for it, too.
        wanted = int(before.get(counter, "0")) + 1

        def is_done(info: dict[str, str], wanted: int = wanted) -> bool:
            return is_idle(info) and int(info.get(counter, "0")) >= wanted

        after = _until(server, is_done, deadline)
        return after is not None and after.get(status) == "ok"
    return False


def _started(server: Server, command: str) -> bool:
    try:
        server.ask_one(*((command, "SCHEDULE") if command == "BGSAVE" else (command,)))
    except PagefileError as failure:
        if "in progress" not in failure.fact:
            raise
        return False
    return True


def _until(
    server: Server, reached: Callable[[dict[str, str]], bool], deadline: float
) -> dict[str, str] | None:
    while not reached(info := _info(server)):
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE_SECONDS)
    return info

"""What an acknowledged commit survives on this server, and how far an erasure reaches in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from pagefile.engines.redis.connection import Address, Server
from pagefile.errors import Forbidden, PagefileError, Unavailable, Unsupported
from pagefile.store.records import Durability

RANK: dict[Durability, int] = {"none": 0, "process": 1, "power": 2}
_OLDEST = 7


class Found(msgspec.Struct, frozen=True):
    """The settings that durability depends on."""

    aof: bool
    fsync: str
    sync_always: bool
    has_waitaof: bool
    evicts: str


def read_settings(server: Server) -> Found:
    """Ask the server.

    Raises:
        Unsupported: it is older than Redis 7. Unavailable: it is a replica.
    """
    info = parse_info(server.ask_one("INFO"))
    version = info.get("redis_version", "0")
    if int(version.partition(".")[0] or 0) < _OLDEST:
        raise Unsupported(
            f"{server.where} is Redis {version}", f"use Redis {_OLDEST} or later, or Valkey"
        )
    if info.get("role") == "slave":
        primary = f"{info.get('master_host', '')}:{info.get('master_port', '')}"
        raise Unavailable(
            f"{server.where} is a replica, which takes no writes",
            f"name the primary in the URL ({primary} by its word), or make this one the primary",
        )
    config: dict[str, str] = {}
    try:
        answer = server.ask_one("CONFIG", "GET", "*append*", "maxmemory*")
        texts = [part.decode() for part in answer]
        config = dict(zip(texts[::2], texts[1::2], strict=True))
    except (Forbidden, Unavailable) as hidden:
        # Then nothing is known of it, and nothing is claimed.
        if not isinstance(hidden.__cause__, ResponseError):
            raise
    evicts = config.get("maxmemory-policy", info.get("maxmemory_policy", ""))
    full = int(config.get("maxmemory", info.get("maxmemory", "0")))
    return Found(
        aof=info.get("aof_enabled") == "1",
        fsync=config.get("appendfsync", ""),
        sync_always=config.get("no-appendfsync-on-rewrite") == "no",
        has_waitaof=_has_waitaof(server),
        evicts=evicts if full and evicts.startswith("allkeys") else "",
    )


def parse_info(raw: bytes) -> dict[str, str]:
    """The lines of INFO."""
    lines = (line.partition(":") for line in raw.decode("utf-8", "replace").splitlines())
    return {name: value for name, mark, value in lines if mark}


def _has_waitaof(server: Server) -> bool:
    answer: Any = server.ask_one("COMMAND", "INFO", "WAITAOF")
    return bool(answer) and answer[0] is not None


def level_of(found: Found, address: Address) -> Durability:
    """What an acknowledged commit survives."""
    if not found.aof:
        return "none"
    if address.waitaof or (found.fsync == "always" and found.sync_always):
        return "power"
    return "process" if found.fsync in ("always", "no") else "none"


def require_level(found: Found, address: Address, wanted: Durability | None) -> Durability:
    """The level to state: the wanted one if the server has it, else what it has.

    Raises:
        Unsupported: the server lacks what is wanted, or would drop data by itself.
    """
    if found.evicts:
        raise Unsupported(
            f"{address.where} evicts keys when its memory is full ({found.evicts})",
            "set maxmemory-policy to noeviction",
        )
    if address.waitaof and not (found.aof and found.has_waitaof and found.fsync != "no"):
        raise Unsupported(
            f"{address.where} cannot wait for its append-only file",
            "set appendonly yes and appendfsync everysec on Redis 7.2 or later, or omit waitaof",
        )
    has = level_of(found, address)
    if wanted is None:
        return has
    if RANK[wanted] > RANK[has]:
        settings = f"appendonly {'yes' if found.aof else 'no'}"
        if found.fsync:
            settings += f", appendfsync {found.fsync}"
        raise Unsupported(
            f"{address.where} is durable to {has!r}, not {wanted!r} ({settings})",
            "set appendonly yes and appendfsync always, or open it with ?waitaof=1",
        )
    return wanted


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

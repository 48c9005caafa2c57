"""kill -9 of writers, and of servers, by the thousand, over every kind of operation.

    python tests/crash/kills.py --engine sqlite|postgres|redis --kills 1000 [--server-kills 20]

Writers are forked, so that a kill costs milliseconds. What they say after each operation is kept
here; after every `--per-store` kills everything in the store is looked at by a process of its
own, and the next writers begin with an empty store. Ends with 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import selectors
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[2]))

import pagefile
from pagefile import Append, Batch, Conflict, Episode, Memory, Put, Selector, Unavailable, VersionIs
from pagefile.dispatch.journal import Delivery, Identity
from pagefile.errors import PagefileError
from tests.crash.test_dispatch_crash import expected_root
from tests.dispatch.worker import Done, Step, organism

WALK = 4
PATIENCE_SECONDS = 300.0


# One writer


class Writer:
    """Works until it is killed; says what is done, one line for each operation."""

    def __init__(self, url: str, name: str, out: int) -> None:
        self._url, self._name, self._out = url, name, out
        self._rng = random.Random(name)
        self._number = 0
        self._run: Any = None

    def say(self, kind: str, *facts: object) -> None:
        # One system call per line: what a killed process wrote is in the pipe, or is not.
        line = json.dumps([kind, self._name, self._number, *facts])
        os.write(self._out, line.encode() + b"\n")

    def work(self) -> None:
        while True:
            with suppress(Unavailable), pagefile.open(self._url) as pf:
                self.say("ready")
                if self._rng.random() < 0.2:
                    asyncio.run(self._dispatch(pf))
                self._write(pf)

    def kinds(self, pf: pagefile.Pagefile) -> list[Callable[[], None]]:
        """One operation of each kind."""
        memory = Memory(pf, embedder=None)
        return [
            lambda: self._append(pf),
            lambda: self._count(pf),
            lambda: self._pair(pf),
            lambda: self._slot(pf),
            lambda: self._erase(pf),
            lambda: self._patch(pf),
            lambda: self._remember(memory),
            lambda: self._consolidate(memory),
        ]

    def _write(self, pf: pagefile.Pagefile) -> None:
        kinds = self.kinds(pf)
        while True:
            self._number += 1
            try:
                self._rng.choice(kinds)()
            except Unavailable:
                # The server is away; what became of this one nobody was told.
                self._run = None
                time.sleep(0.02)

    @property
    def _value(self) -> list[object]:
        return [self._name, self._number]

    def _append(self, pf: pagefile.Pagefile) -> None:
        commit = pf.store.commit(Batch([Append("shared", self._value)]))
        self.say("append", commit.indexes[0])

    def _count(self, pf: pagefile.Pagefile) -> None:
        """Read a counter and put the next number, again until nobody was faster."""
        while True:
            current = pf.store.get("counter")
            version, value = (0, 0) if current is None else (current.version, current.value[2])
            put = Put("counter", [*self._value, value + 1])
            with suppress(Conflict):
                commit = pf.store.commit(Batch([put], [VersionIs("counter", version)]))
                self.say("count", commit.versions[0])
                return

    def _pair(self, pf: pagefile.Pagefile) -> None:
        value = self._value
        commit = pf.store.commit(
            Batch([Append("left", value), Append("right", value), Put("pair", value)])
        )
        self.say("pair", *commit.indexes[:2], commit.versions[0])

    def _slot(self, pf: pagefile.Pagefile) -> None:
        slot = pf.context.append(f"t{self._number % 4}", {"is": self._value}, self._name, "x")
        self.say("slot", slot.index)

    def _erase(self, pf: pagefile.Pagefile) -> None:
        user = f"{self._name}-{self._number}"
        both = [Append("private", user, user=user), Append("secret", user, user=user)]
        pf.store.commit(Batch(both))
        pf.store.erase(Selector(user=user), scrub=self._rng.random() < 0.1)
        self.say("erase", user)

    def _patch(self, pf: pagefile.Pagefile) -> None:
        if self._run is None:
            self._run = pf.runs.boot(
                objective=self._name, acceptance_criteria=["done"], constraints=[]
            )
            self.say("boot", self._run.run_id)
            return
        seq = self._run.load()["_update_seq"]
        patch = {"_schema_version": "2.1", "expected_seq": seq, "set": {"next_action": "go on"}}
        if self._run.apply_patch(patch):
            self.say("patch", self._run.run_id, seq + 1)

    def _remember(self, memory: Memory) -> None:
        text = f"I live in City{self._name}x{self._number}."
        episode = Episode(session_id=self._name, user_id=self._name, input=text, output="noted")
        self.say("remember", memory.remember(episode))

    def _consolidate(self, memory: Memory) -> None:
        self.say("consolidate", memory.consolidate(limit=3).episodes)

    async def _dispatch(self, pf: pagefile.Pagefile) -> None:
        async with organism(pf) as door:
            while True:
                self._number += 1
                asked = await door.inject(Step(1, WALK), "walker", caller=Identity("tester", "u"))
                self.say("inject", asked.message_id, asked.thread_id, asked.place)
                await asyncio.sleep(0.01)


def warm_up(folder: Path) -> None:
    """Import here what each forked writer would import before it writes."""
    with (folder / "said").open("wb") as out, pagefile.open(folder / "warm.db") as pf:
        for each in Writer("", "warm", out.fileno()).kinds(pf):
            each()
    with pagefile.open(folder / "warm.db") as pf:
        asyncio.run(_look_at_dispatch(pf, [], {}))
    assert threading.active_count() == 1, "a fork would lose the other threads"


# What a store is after the kills


def violations(url: str, lines: list[list[Any]]) -> dict[str, list[str]]:
    """What is wrong, under `lost`, `half`, `disagree` and `other`."""
    found: dict[str, list[str]] = {"lost": [], "half": [], "disagree": [], "other": []}
    with pagefile.open(url) as pf:
        asyncio.run(_look_at_dispatch(pf, lines, found))
        store = pf.store
        logs = {
            name: [(e.index, e.value) for e in _entries(store, name) if not e.erased]
            for name in ("shared", "left", "right", "private", "secret")
        }
        documents = {name: list(_versions(store, name)) for name in ("counter", "pair")}
        _look_at_places(lines, logs, documents, found)
        for name in ("left", "right", "shared"):
            values = [tuple(value) for _, value in logs[name]]
            if len(values) != len(set(values)):
                found["other"].append(f"twice in {name}")
            if [index for index, _ in logs[name]] != list(range(len(values))):
                found["other"].append(f"a gap in {name}")
        pairs = [[value for _, value in part] for part in (logs["left"], logs["right"])]
        pairs.append([value for _, value in documents["pair"]])
        if not pairs[0] == pairs[1] == pairs[2]:
            found["half"].append("a pair is there in part")
        if [value[2] for _, value in documents["counter"]] != list(
            range(1, len(documents["counter"]) + 1)
        ):
            found["other"].append("an update of the counter is lost")
        private, secret = ({value for _, value in logs[name]} for name in ("private", "secret"))
        found["half"] += [f"user {user} is there in part" for user in private ^ secret]
        erased = {line[3] for line in lines if line[0] == "erase"}
        found["lost"] += [f"user {user} was erased, and is there" for user in erased & private]
        _look_at_slots(pf, lines, found)
        _look_at_runs(pf, lines, found)
        _look_at_memory(pf, lines, found)
        found["disagree"] += [f"check: {problem.what}" for problem in pf.check().problems]
        found["disagree"] += [f"verify: {problem.what}" for problem in pf.verify().problems]
    return found


def _entries(store: pagefile.Store, log: str) -> Iterator[Any]:
    start = 0
    while entries := store.read(log, start):
        yield from entries
        start = entries[-1].index + 1


def _versions(store: pagefile.Store, document: str) -> Iterator[tuple[int, Any]]:
    after = 0
    while versions := store.history(document, after=after, limit=10_000):
        yield from ((v.version, v.value) for v in versions)
        after = versions[-1].version


def _look_at_places(
    lines: list[list[Any]],
    logs: dict[str, list[Any]],
    documents: dict[str, list[Any]],
    found: dict[str, list[str]],
) -> None:
    stored = {name: {place: value[:2] for place, value in logs[name]} for name in logs}
    stored |= {name: {v: value[:2] for v, value in documents[name]} for name in documents}
    where = {"append": ("shared",), "count": ("counter",), "pair": ("left", "right", "pair")}
    for kind, writer, number, *places in lines:
        for name, place in zip(where.get(kind, ()), places, strict=False):
            if stored[name].get(place) != [writer, number]:
                found["lost"].append(f"{kind} {number} of {writer} at {place} of {name}")


def _look_at_slots(
    pf: pagefile.Pagefile, lines: list[list[Any]], found: dict[str, list[str]]
) -> None:
    threads: dict[str, list[Any]] = {}
    for kind, writer, number, *rest in lines:
        if kind == "slot":
            name = f"t{number % 4}"
            if name not in threads:
                threads[name] = [slot.payload for slot in pf.context.get_or_create_thread(name)]
            held = threads[name]
            if rest[0] >= len(held) or held[rest[0]]["is"] != [writer, number]:
                found["lost"].append(f"slot {rest[0]} of {name}")


def _look_at_runs(
    pf: pagefile.Pagefile, lines: list[list[Any]], found: dict[str, list[str]]
) -> None:
    acknowledged: dict[str, int] = {}
    for kind, _, _, *rest in lines:
        if kind in ("boot", "patch"):
            seq = rest[1] if kind == "patch" else 0
            acknowledged[rest[0]] = max(acknowledged.get(rest[0], 0), seq)
    for run_id in pf.runs.list(limit=1_000):
        run = pf.runs.open(run_id)
        if run.load()["_update_seq"] < acknowledged.pop(run_id, 0):
            found["lost"].append(f"a patch of {run_id}")
        if not run.rebuild():
            found["disagree"].append(f"the ledger of {run_id} and its working set")
    found["lost"] += [f"run {run_id}" for run_id in acknowledged]


def _look_at_memory(
    pf: pagefile.Pagefile, lines: list[list[Any]], found: dict[str, list[str]]
) -> None:
    memory = Memory(pf, embedder=None)
    for kind, writer, number, *rest in lines:
        if kind == "remember":
            try:
                memory.episode(rest[0], user_id=writer)
            except PagefileError:
                found["lost"].append(f"episode {number} of {writer}")
    for writer in {line[1] for line in lines}:
        for message in memory.session_messages(writer, user_id=writer):
            text = str(message.content)
            if text.startswith("I live in "):
                word = text.removeprefix("I live in ").rstrip(".")
                matches = memory.recall_scored(word, user_id=writer, limit=3)
                if text not in [match.episode.input for match in matches]:
                    found["disagree"].append(f"{text!r} is stored and not found")


async def _look_at_dispatch(
    pf: pagefile.Pagefile, lines: list[list[Any]], found: dict[str, list[str]]
) -> None:
    asked = [Delivery(*line[3:]) for line in lines if line[0] == "inject"]
    if not asked:
        return
    async with organism(pf) as door:
        for delivery in asked:
            answer = await door.answer(delivery, PATIENCE_SECONDS)
            if answer.payload != Done(WALK):
                found["lost"].append(f"message {delivery.message_id}: {answer.payload}")
            slots = [slot.payload for slot in pf.context.get_or_create_thread(delivery.thread_id)]
            if slots != expected_root(WALK, 0.0):
                found["half"].append(f"the thread of message {delivery.message_id}")


# Who kills


class Server(Protocol):
    def kill(self) -> None: ...

    def start(self) -> Any: ...


class Child:
    """A forked process and what it said."""

    def __init__(self, work: Callable[[int], None], others: list[Child]) -> None:
        self.out, its = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.out)
            for other in others:
                os.close(other.out)
            try:
                work(its)
            except BaseException as error:  # noqa: BLE001 - it is told, and the process ends.
                os.write(its, json.dumps(["failed", repr(error)[:2_000]]).encode() + b"\n")
            finally:
                os._exit(0)
        os.close(its)
        self.said = b""
        #: When it is to be killed; None before it is ready.
        self.until: float | None = None

    def hear(self) -> bool:
        """Take what it said; False at the end."""
        data = os.read(self.out, 1 << 16)
        self.said += data
        return bool(data)

    def bury(self, *, kill: bool = True) -> list[list[Any]]:
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        while self.hear():
            pass
        os.waitpid(self.pid, 0)
        os.close(self.out)
        # The last one may be cut off.
        return [json.loads(line) for line in self.said.split(b"\n")[:-1]]


class Figures:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.examples: list[str] = []

    def __str__(self) -> str:
        names = ("stores", "kills", "server kills", "acknowledged", "lost", "half", "disagree")
        told = ", ".join(f"{self.counts[name]} {name}" for name in (*names, "other"))
        return f"{told} ({', '.join(f'{n} {k}' for k, n in sorted(self.kinds.items()))})"


def one_store(
    url: str,
    kills: int,
    server_kills: int,
    given: argparse.Namespace,
    server: Server | None,
    figures: Figures,
) -> None:
    """Kill so many writers of one store, then look at it."""
    rng = random.Random(f"{url}{kills}")
    moments = set(rng.sample(range(1, kills), server_kills)) if server is not None else set()
    lines: list[list[Any]] = []
    living: list[Child] = []
    born = killed = 0
    with selectors.DefaultSelector() as selector:
        while killed < kills:
            while len(living) < given.writers:
                born += 1
                name = f"w{born}"
                child = Child(lambda out, name=name: Writer(url, name, out).work(), living)  # type: ignore[misc]
                # A few are killed while they open the store.
                if rng.random() < 0.1:
                    child.until = time.monotonic() + rng.uniform(0, 0.1)
                living.append(child)
                selector.register(child.out, selectors.EVENT_READ, child)
            for key, _ in selector.select(0.005):
                child = key.data
                if not child.hear():
                    selector.unregister(child.out)
                    living.remove(child)
                    lines += child.bury(kill=False)
                elif child.until is None:
                    child.until = time.monotonic() + rng.uniform(0, given.life_seconds)
            now = time.monotonic()
            for child in [c for c in living if c.until is not None and c.until <= now]:
                selector.unregister(child.out)
                living.remove(child)
                lines += child.bury()
                killed += 1
                if killed in moments and server is not None:
                    server.kill()
                    server.start()
                    figures.counts["server kills"] += 1
        for child in living:
            lines += child.bury()
        killed += len(living)
    said = [line for line in lines if line[0] not in ("ready", "failed")]
    failed = [line[1] for line in lines if line[0] == "failed"]

    def look(out: int) -> None:
        os.write(out, json.dumps(["found", violations(url, said)]).encode() + b"\n")

    [answer] = Child(look, []).bury(kill=False)
    found = answer[1] if answer[0] == "found" else {"other": [answer[1]]}
    found.setdefault("other", []).extend(failed)
    figures.counts.update({"stores": 1, "kills": killed, "acknowledged": len(said)})
    figures.kinds.update(line[0] for line in said)
    for kind, what in found.items():
        figures.counts[kind] += len(what)
        figures.examples += [f"{url} {kind}: {one}" for one in what[:5]]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--engine", choices=["sqlite", "postgres", "redis"], default="sqlite")
    arguments.add_argument("--kills", type=int, default=1_000)
    arguments.add_argument("--server-kills", type=int, default=0)
    arguments.add_argument("--per-store", type=int, default=50)
    arguments.add_argument("--writers", type=int, default=6)
    arguments.add_argument("--life-seconds", type=float, default=0.4)
    given = arguments.parse_args()
    figures, started = Figures(), time.monotonic()
    stores = max(1, -(-given.kills // given.per_store))
    with tempfile.TemporaryDirectory(prefix="pagefile-kills-") as folder:
        Path(folder).chmod(0o755)  # Servers do not run as root.
        warm_up(Path(folder))
        server, new_url = _place(given.engine, Path(folder))
        try:
            for n in range(stores):
                left = given.kills - figures.counts["kills"]
                if left <= 0:
                    break
                share = given.server_kills * (n + 1) // stores - given.server_kills * n // stores
                kills = max(min(given.per_store, left), share + 2)
                one_store(new_url(), kills, share, given, server, figures)
                seconds = time.monotonic() - started
                print(f"{given.engine}, {seconds:.0f} s: {figures}", flush=True)
        finally:
            if server is not None:
                server.kill()
    for example in figures.examples:
        print(example)
    return 1 if figures.examples else 0


def _place(engine: str, folder: Path) -> tuple[Server | None, Callable[[], str]]:
    """A server, or none for files, and a maker of URLs of empty stores."""
    numbers = iter(range(1_000_000))
    if engine == "sqlite":
        return None, lambda: str(folder / f"store-{next(numbers)}.db")
    if engine == "postgres":
        from tests.servers.postgres import PostgresServer

        postgres = PostgresServer(folder)
        return postgres, postgres.new_url
    from tests.servers.redis import RedisServer

    redis = RedisServer(under=folder).start()
    return redis, lambda: f"{redis.url}?prefix=store-{next(numbers)}"


if __name__ == "__main__":
    sys.exit(main())

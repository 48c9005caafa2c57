"""Sending commits to whichever servers have their tenants, and waiting for as many copies as asked.

Each tenant's part of a group succeeds or fails by itself: a server that is away, or
a turn that does not come, is the answer to those alone who needed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from redis.exceptions import RedisError

from pagefile.engines.redis.cluster import Shards
from pagefile.engines.redis.connection import Address, Command, Server
from pagefile.engines.redis.durability import RANK, read_settings, require_level
from pagefile.engines.redis.errors import refused
from pagefile.engines.redis.layout import tenants_key
from pagefile.engines.redis.writer import Attempt
from pagefile.errors import PagefileError, Unavailable
from pagefile.store.records import Durability

Sent = list[tuple[Attempt, Command]]

#: How many servers of a cluster are written to at once by one group.
_MOST_AT_ONCE = 16
#: How often the list of tenants may have moved while one is put on it.
_MOST_MOVES = 100


class Sender:
    """Takes attempts to the servers until each is done."""

    def __init__(
        self, shards: Shards, address: Address, answer_seconds: float, lock_seconds: float
    ) -> None:
        self._shards = shards
        self._copies, self._waitaof = address.replicas, address.waitaof
        self._is_waited_for = address.waitaof or address.replicas > 0
        self._listed = tenants_key(address.prefix)
        self._most_ms = max(1, int(min(lock_seconds, answer_seconds / 2) * 1_000))
        #: Servers whose settings are known, and how many connections had broken then.
        self._checked: dict[Server, int] = {}
        self._level: Durability | None = None
        self._threads: ThreadPoolExecutor | None = None

    # What the servers are

    def require_level(self, wanted: Durability | None) -> Durability:
        """The level that all servers have which answer; others are looked at before they are used.

        Raises:
            Unsupported: one of them lacks what is wanted, or would drop data by itself.
            Unavailable: none answers.
        """
        self._level = wanted
        levels: list[Durability] = []
        away: Unavailable | None = None
        for server in self._shards.servers():
            try:
                levels.append(self._level_of(server))
            except Unavailable as failure:
                away = away or failure
        if not levels:
            raise away or Unavailable(
                "no server of the cluster has any slots", "see CLUSTER ADDSLOTSRANGE"
            )
        weakest = min(levels, key=RANK.__getitem__)
        self._level = weakest
        return weakest

    def _level_of(self, server: Server) -> Durability:
        breaks = server.breaks
        level = require_level(read_settings(server), server.address, self._level)
        self._checked[server] = breaks
        return level

    # Commits

    def commit(self, attempts: list[Attempt]) -> None:
        """Send until each is done: stored, or with the reason why not."""
        finished = False
        try:
            self._commit(attempts)
            finished = True
        finally:
            if not finished:
                for attempt in attempts:
                    # What the cache believes may not be what is stored.
                    attempt.known.clear()

    def _commit(self, attempts: list[Attempt]) -> None:
        waiting = attempts
        while waiting:
            together: dict[Server, Sent] = {}
            for attempt in waiting:
                try:
                    server = attempt.link.node()
                    if self._checked.get(server) != server.breaks:
                        # It is new, or came back after a connection broke: with which settings?
                        self._level_of(server)
                    command = attempt.compute()
                except PagefileError as failure:
                    attempt.fail(failure)
                else:
                    if command is not None:
                        together.setdefault(server, []).append((attempt, command))
            if together:
                self._send(together)
            waiting = [attempt for attempt in waiting if not attempt.is_done]
        if self._is_waited_for:
            for attempt in attempts:
                if attempt.found_stored:
                    self._wait_again(attempt)

    def _send(self, together: dict[Server, Sent]) -> None:
        if len(together) > 1:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, "pagefile-redis")
            answered = list(self._threads.map(self._answers, *zip(*together.items(), strict=True)))
        else:
            answered = [self._answers(server, sent) for server, sent in together.items()]
        for (server, sent), answers in zip(together.items(), answered, strict=True):
            if isinstance(answers, PagefileError):
                for attempt, _ in sent:
                    self._miss(attempt, server, answers)
                continue
            for (attempt, _), answer in zip(sent, answers, strict=True):
                try:
                    attempt.settle(answer)
                except PagefileError as failure:
                    attempt.fail(failure)

    def _answers(self, server: Server, sent: Sent) -> list[Any] | PagefileError:
        """What the server says to each, or why it says nothing."""
        commands: list[Command] = [command for _, command in sent]
        try:
            if len(sent) == 1 and sent[0][0].known.head.position:
                return self._send_and_wait(server, commands)
            new = [a.known.tenant for a, _ in sent if not a.known.head.position]
            if new:
                # Before its first commit, so that no tenant is missing from the list.
                commands[:0] = self._list(new)
            return self._send_and_wait(server, commands)[len(commands) - len(sent) :]
        except PagefileError as failure:
            return failure

    def _list(self, tenants: list[str]) -> list[Command]:
        """Put new tenants on the list: the command for it, or none if that was done elsewhere."""
        command: Command = ("SADD", self._listed, *tenants)
        link = self._shards.of(self._listed)
        if link.node() is link:
            return [command]
        for _ in range(_MOST_MOVES):
            answer = self._send_and_wait(link.node(), [command])[0]
            if not isinstance(answer, RedisError):
                return []
            if not link.follow(answer):
                raise refused(answer, link.where) from answer
        raise Unavailable(f"{link.where} moves to and fro", "see CLUSTER SHARDS, then retry")

    def _miss(self, attempt: Attempt, server: Server, failure: PagefileError) -> None:
        """No answer: once, it is looked for or sent to who came in that server's place."""
        if not isinstance(failure, Unavailable) or attempt.was_lost or failure.__cause__ is None:
            attempt.fail(failure)
            return
        is_unknown = failure.outcome == "unknown"
        try:
            attempt.link.renew()
            if is_unknown:
                # Connections break; the keys of the batches make it safe to try once more.
                attempt.link.ask_one("PING")
            elif attempt.link.node() is server:
                attempt.fail(failure)
                return
        except Unavailable:
            attempt.fail(failure)
            return
        attempt.lose()

    # Copies

    def _wait_again(self, attempt: Attempt) -> None:
        """It was committed, but perhaps not waited for; a later write stands for it."""
        turns = attempt.known.keys.turns
        try:
            self._send_and_wait(attempt.link.node(), [("XADD", turns, "MAXLEN", 1, "*", "n", "")])
        except PagefileError as failure:
            attempt.fail(failure)

    def _send_and_wait(self, server: Server, commands: Sequence[Command]) -> list[Any]:
        """Answers to commits, after as many copies have them as the URL asks for."""
        if not self._is_waited_for:
            return server.send(commands)
        wait: Command = ("WAIT", self._copies, self._most_ms)
        if self._waitaof:
            wait = ("WAITAOF", 1, self._copies, self._most_ms)
        *answers, reached = server.send(commands, (wait,))
        if all(isinstance(answer, RedisError) for answer in answers):
            return answers  # Nothing was stored, and nothing is to be waited for.
        if isinstance(reached, RedisError):
            raise _short(server, f"cannot be asked who has it ({reached})") from None
        synced, copies = reached if self._waitaof else (1, reached)
        if synced < 1:
            raise _short(server, "does not have it on disk yet")
        if copies < self._copies:
            raise _short(server, f"only {copies} of {self._copies} replicas have it")
        return answers

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def _short(server: Server, what: str) -> Unavailable:
    return Unavailable(
        f"{server.where} took the commit, but {what}: it would not survive the loss that the URL "
        "asks to be safe from",
        "look at its disk and replicas, then commit again with the same key",
        outcome="unknown",
    )

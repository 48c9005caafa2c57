"""Commits to Redis: turns, compare and set, sent to whichever servers have their tenants."""

from __future__ import annotations

import functools
import itertools
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from redis.exceptions import RedisError

from pagefile.engines.redis.cluster import Shards
from pagefile.engines.redis.connection import Address, Command, Link, Ready, Server, packed, script
from pagefile.engines.redis.durability import RANK, read_settings, require_level
from pagefile.engines.redis.errors import refused
from pagefile.engines.redis.layout import Keys, tenants_key
from pagefile.engines.redis.rows import (
    commit_from,
    copy_head,
    copy_of,
    pack_commit,
    pack_row,
    pack_stream,
)
from pagefile.engines.redis.tenant_cache import MOST_TOLD, Known, Moved
from pagefile.engines.redis.transaction import SWEEP_EVERY, RedisTransaction
from pagefile.errors import Corrupt, Forbidden, Invalid, PagefileError, Unavailable, Unsupported
from pagefile.store.commit.committer import own_copy
from pagefile.store.commit.rules import apply
from pagefile.store.engine import (
    LOG,
    IndexKey,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    Transaction,
)
from pagefile.store.records import Action, Durability, StreamKind

LEASE_MS = 250
_MOST_LEASE_MS = 8_000
#: Tells this process from all others; a forked child cannot use its parent's engine.
_PROCESS = uuid.uuid4().int >> 64
_NUMBERS = itertools.count()


class Turn:
    """One group's place in the queue of one tenant."""

    def __init__(self, link: Link, known: Known, seconds: float) -> None:
        self._link = link
        self._known = known
        self.deadline = time.monotonic() + seconds
        self.token = b"%x-%x" % (_PROCESS, next(_NUMBERS))
        self.is_queued = False
        self.is_held = False
        self.lease_ms = LEASE_MS

    def receive(self) -> None:
        """Have the turn, for others came first: who had it already has been too slow for its lease.

        Raises:
            Unavailable: others came first for too long; nothing was written.
        """
        if self.is_held:
            self.lease_ms = min(2 * self.lease_ms, _MOST_LEASE_MS)
        self.is_held, self.is_queued = True, False
        if time.monotonic() > self.deadline:
            self.pass_on()
            raise _waited_too_long()

    @property
    def queued(self) -> bytes:
        return b"1" if self.is_queued else b"0"

    def take(self) -> None:
        """Wait until nobody else may commit.

        Raises:
            Unavailable: others kept the turn for too long; nothing was written.
        """
        while not self.is_held:
            answer = self._call(b"take")
            if answer[0] == b"wait":
                self.wait(answer[1])
            else:
                self.is_held, self.is_queued = True, False

    def wait(self, last: bytes) -> None:
        """Sleep until the turn may have come, and learn what is committed meanwhile.

        Raises:
            Unavailable: others kept the turn for too long; nothing was written.
        """
        self.is_queued, self.is_held = True, False
        known, keys = self._known, self._known.keys
        until = time.monotonic() + LEASE_MS / 1_000
        while True:
            now = time.monotonic()
            if now > self.deadline:
                self.pass_on()
                raise _waited_too_long()
            if now >= until:
                return  # Whoever has the turn may have died: ask.
            answer = self._link.block(
                "XREAD",
                "COUNT",
                MOST_TOLD,
                "BLOCK",
                max(1, int((min(until, self.deadline) - now) * 1_000)),
                "STREAMS",
                keys.commits,
                keys.turns,
                f"{known.head.position}-0",
                last,
            )
            called = False
            for stream, entries in answer or ():
                if stream == keys.commits:
                    for entry in entries:
                        known.absorb(*commit_from(entry))
                else:
                    last = entries[-1][0]
                    called = called or entries[-1][1][1] == self.token
            if called:
                self.is_queued, self.is_held = False, True
                return

    def pass_on(self) -> None:
        """Let the next one have the turn, or leave the queue."""
        if self.is_held or self.is_queued:
            self.is_held = self.is_queued = False
            self._call(b"pass")

    def _call(self, what: bytes) -> Any:
        keys = self._known.keys
        return self._link.run(
            "turn",
            (keys.queue, keys.turn, keys.turns),
            (what, self.token, self.queued, self.lease_ms),
        )


def _waited_too_long() -> Unavailable:
    return Unavailable(
        "other processes kept the turn to commit for too long",
        "look for a stopped or debugged process on this tenant, then retry",
    )


#: What `commit.lua` and `append.lua` name, each with the count of its bytes: the key of the
#: records, head, new head, token, whether it is queued, lease, position, how many to tell of;
#: then the commit with its place, the record with its number, the log with its number.
_VALUES = (
    b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$1\r\n%b\r\n"
    + packed((LEASE_MS,))
    + b"$%d\r\n%b\r\n"
    + packed((MOST_TOLD,))
    + b"$%d\r\n%b\r\n" * 6
)
#: The count of keys, seven keys, thirteen values.
_PARTS = 1 + 7 + 13


class LoneAppend:
    """The part of a transaction that such a commit uses."""

    #: As in `RedisTransaction`.
    lets_go = is_sure = False

    def __init__(self, known: Known, stream: Stream) -> None:
        self._known = known
        self._stream = copy_of(stream)
        self.head = copy_head(known.head)
        self._row: Row | None = None
        self.last: RawCommit | None = None

    def stream(self, kind: StreamKind, name: str) -> Stream:
        """The log itself: nothing else is asked for."""
        return self._stream

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        """Keep the record."""
        (self._row,) = rows

    def seal(self, commit: RawCommit) -> None:
        """Keep the commit."""
        self.last = commit

    def apply(self, batch: Prepared, now_us: int) -> Sealed:
        """What `pagefile.store.commit.rules.apply` says of it.

        Raises:
            PagefileError: it is refused for what is known here, which may not be true there.
        """
        return apply(cast(Transaction, self), batch, now_us)

    def command(self, turn: Turn) -> Command:
        """The call of the script that stores it."""
        known, stream, row, commit = self._known, self._stream, self._row, self.last
        assert row is not None
        assert commit is not None
        rows = known.keys.rows(stream.oid)
        before, token = known.digest, turn.token
        at, place = b"%d" % known.head.position, b"%d-0" % commit.position
        number, oid = b"%d" % row.number, b"%d" % stream.oid
        entry, stored, state = pack_commit(commit, self.head), pack_row(row), pack_stream(stream)
        values = _VALUES % (
            *(len(rows), rows, len(before), before, len(commit.digest), commit.digest),
            *(len(token), token, turn.queued, len(at), at),
            *(len(place), place, len(entry), entry),
            *(len(number), number, len(stored), stored),
            *(len(oid), oid, len(state), state),
        )
        return "EVALSHA", script("append")[1], Ready(_fixed_keys(known.keys) + values, _PARTS)

    def settle(self) -> None:
        """It is stored: what it changed is known from now on."""
        known, stream, commit = self._known, self._stream, self.last
        assert commit is not None
        known.head = self.head
        known.note_key(commit.key, commit.position)
        known.streams[stream.oid] = known.named[LOG, stream.name] = stream


def lone_append(known: Known, batches: Sequence[Prepared]) -> LoneAppend | None:
    """A way to store the group without reading anything; None when it is not a lone append."""
    if len(batches) != 1 or not known.is_fresh:
        return None
    batch, position = batches[0], known.head.position
    if (
        batch.after != position
        or len(batch.writes) != 1
        or batch.when
        or batch.copied is not None
        or batch.key[:1] != "~"
        # Then old keys are swept out, too.
        or not (position + 1) % SWEEP_EVERY
    ):
        return None
    write = batch.writes[0]
    if write.action != Action.APPEND or len(write.contents) != 1 or write.keys:
        return None
    stream = known.named.get((LOG, write.name))
    if stream is None or stream.dropped or stream.deleted:
        return None
    if (write.contents[0].user, stream.oid) not in known.held:
        return None
    return LoneAppend(known, stream)


@functools.lru_cache(maxsize=1_024)
def _fixed_keys(keys: Keys) -> bytes:
    """The count of keys, and those that are the same for every log."""
    fixed = (keys.head, keys.queue, keys.turn, keys.turns, keys.commits, keys.streams)
    return packed((len(fixed) + 1, *fixed))


#: How often others may come in between before the turn is waited for.
_MOST_HURRIED = 2
#: What no rule of a commit raises: the server failed while the batch was looked at.
_NOT_RULES = (Unavailable, Corrupt, Forbidden, Unsupported)


class Attempt:
    """The batches of one tenant on their way into one script call."""

    def __init__(
        self,
        known: Known,
        batches: Sequence[Prepared],
        *,
        now_us: int,
        key_lifetime_us: int,
        seconds: float,
    ) -> None:
        self.link = link = known.link
        self.known = known
        self._batches = batches
        self._now_us = now_us
        self._key_lifetime_us = key_lifetime_us
        self._turn = Turn(link, known, seconds)
        self._transaction: RedisTransaction | LoneAppend | None = None
        #: What a script was to store whose answer never came, by the digest of its commit.
        self._unanswered: dict[bytes, Sealed] = {}
        self.outcomes: list[Sealed | PagefileError] = []
        self.is_done = False
        #: Whether it was sent once without an answer.
        self.was_lost = False
        #: Whether a commit of an earlier call is among the answers.
        self.found_stored = False

    def compute(self) -> Command | None:
        """The script call that stores the group; None, and done, when there is nothing to store.

        Raises:
            Unavailable: the server failed or others were in the way; nothing was stored.
        """
        if (lone := lone_append(self.known, self._batches)) is not None:
            try:
                self.outcomes = [lone.apply(self._batches[0], self._now_us)]
            except PagefileError:
                pass  # Refused for what is known here; the general way looks whether it is true.
            else:
                self._transaction = lone
                return lone.command(self._turn)
        hurried = 0
        while True:
            transaction = RedisTransaction(self.link, self.known, self._key_lifetime_us)
            try:
                transaction.prefetch(self._batches)
                outcomes = [self._outcome(transaction, batch) for batch in self._batches]
                if not transaction.is_sure and any(isinstance(o, PagefileError) for o in outcomes):
                    # Refused for what is known here; it must be what is true there.
                    transaction.look()
                break
            except Moved:
                hurried += 1
                if hurried > _MOST_HURRIED:
                    self._turn.take()
        self.outcomes = [
            self._answered(outcome, batch)
            for outcome, batch in zip(outcomes, self._batches, strict=True)
        ]
        last = transaction.last
        if last is None:
            self.is_done = True
            self._turn.pass_on()
            return None
        self._transaction = transaction
        return self._command(transaction, last)

    def _outcome(self, transaction: RedisTransaction, batch: Prepared) -> Sealed | PagefileError:
        try:
            return apply(transaction, batch, self._now_us)
        except _NOT_RULES:
            raise
        except PagefileError as refusal:
            return refusal

    def _answered(self, outcome: Sealed | PagefileError, batch: Prepared) -> Sealed | PagefileError:
        """Our own commit, found again after its answer was lost, is no repeat."""
        if (
            isinstance(outcome, Invalid)
            and self.known.head.position < batch.after <= self.known.most
        ):
            return Corrupt(
                f"{self.link.where} is at position {self.known.head.position} of tenant "
                f"{self.known.tenant!r}, and was at {batch.after}: it has lost commits",
                "look at its files and replicas; to go on from what is left, open the store anew",
            )
        if isinstance(outcome, Sealed) and outcome.repeated:
            self.found_stored = True
            return self._unanswered.get(outcome.commit.digest, outcome)
        return outcome

    def _command(self, transaction: RedisTransaction, last: RawCommit) -> Command:
        commands, turn, known = transaction.commands(), self._turn, self.known
        digest = script("release" if transaction.lets_go else "commit")[1]
        return (
            "EVALSHA",
            digest,
            len(commands.keys),
            *commands.keys,
            known.digest,
            last.digest,
            turn.token,
            turn.queued,
            turn.lease_ms,
            known.head.position,
            MOST_TOLD,
            *commands.arguments,
        )

    def settle(self, answer: Any) -> None:
        """Take the script's answer; unless `is_done` then, compute again."""
        transaction, turn = self._transaction, self._turn
        assert transaction is not None
        if isinstance(answer, RedisError) and self._is_elsewhere(answer):
            return
        if isinstance(answer, RedisError):
            failure = refused(answer, self.link.where)
            failure.__cause__ = answer
            self.outcomes = [failure if _is_new(o) else o for o in self.outcomes]
            self.is_done = True
            turn.pass_on()
        elif answer == b"OK":
            transaction.settle()
            self.is_done = True
        elif answer[0] == b"moved":
            turn.receive()
            if not self.known.catch_up(answer[1], answer[2]):
                self._start_anew()
        else:
            turn.wait(answer[1])

    def _is_elsewhere(self, answer: RedisError) -> bool:
        """Whether another server has the keys, or will have: nothing was stored, try there."""
        return time.monotonic() < self._turn.deadline and self.link.follow(answer)

    def fail(self, failure: PagefileError) -> None:
        """What was not answered yet ends like this."""
        self.outcomes = [own_copy(failure) for _ in self._batches]
        # What the cache believes may not be what is stored.
        self.known.clear()
        self.is_done = True

    def _start_anew(self) -> None:
        last = self.link.ask_one("XREVRANGE", self.known.keys.commits, "+", "-", "COUNT", 1)
        self.known.start_at(last[0] if last else None)

    def lose(self) -> None:
        """No answer came: what was sent may be stored or not, and is looked for."""
        if self._transaction is not None:
            for outcome in self.outcomes:
                if isinstance(outcome, Sealed) and not outcome.repeated:
                    self._unanswered[outcome.commit.digest] = outcome
        self.known.clear()
        self.was_lost = True


def _is_new(outcome: Sealed | PagefileError) -> bool:
    return isinstance(outcome, Sealed) and not outcome.repeated


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

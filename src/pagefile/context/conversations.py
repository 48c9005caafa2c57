"""One lifetime for a conversation: its threads, their places in the registry, their documents."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from pagefile.context import registry_documents
from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.context.names import EXPIRIES, PATHS, SWEPT, THREADS, USES, log_of
from pagefile.context.path import Path
from pagefile.context.residency import ending, require_time
from pagefile.context.thread import user_of
from pagefile.errors import Conflict, Invalid, NotFound, Unavailable, shown
from pagefile.store.arguments import require_count
from pagefile.store.batch import (
    Append,
    Batch,
    Condition,
    Drop,
    LengthIs,
    Operation,
    Prune,
    Put,
    Query,
    Selector,
    VersionIs,
)
from pagefile.store.records import Document, Erasure
from pagefile.store.threads import Rounds


class Sweeper(Rounds):
    """Calls `expire` every `interval_seconds` while it is entered; leaving it ends the thread.

    A server that is away for a while is asked again at the next round. Any other
    error ends the thread and is raised on leaving. `ended` counts conversations.
    """

    def __init__(self, conversations: Conversations, *, interval_seconds: float = 60.0) -> None:
        if not isinstance(conversations, Conversations):
            raise Invalid("conversations", shown(conversations), "give a Conversations")
        super().__init__("pagefile-sweeper", interval_seconds, daemon=True)
        self._conversations = conversations
        self.ended = 0

    def _round(self) -> bool:
        sweep = self._conversations.expire()
        self.ended += len(sweep.ended)
        return sweep.more

    def _goes_on_after(self, failure: Exception) -> bool:
        return isinstance(failure, Unavailable)


#: How many commits one sweep goes through, and how many threads one commit ends.
_COMMITS_AT_ONCE = 1_000
_THREADS_AT_ONCE = 200
_MOST_ENDED = 1_000


class Expired(msgspec.Struct, frozen=True):
    """A conversation that was ended: its threads, how many slots, and the last use in µs."""

    conversation: str
    threads: tuple[str, ...]
    slots: int
    last_used_us: int


class Sweep(msgspec.Struct, frozen=True):
    """What one `expire` did. With `more`, another call has more to look at."""

    ended: tuple[Expired, ...]
    more: bool
    #: As in a `Receipt`: how far the erasure reaches, and what finishes it.
    level: Erasure
    remaining: tuple[str, ...] = ()


class _Member(msgspec.Struct, frozen=True):
    """A thread of a conversation as it was read."""

    thread: str
    slots: int
    has_log: bool
    used_us: int
    #: That it is still as it was read: its length, then the versions of its documents.
    when: list[Condition]
    user: str | None

    @property
    def exists(self) -> bool:
        return self.has_log or len(self.when) > 1


class Conversations(ClosesItsStore):
    """Ends conversations that were idle for `ttl_seconds`; nothing ends unless `expire` is called.

    A use is a slot, a registration, a call or a `touch`; reading is none.
    Any number of processes may sweep one store at once. `backend` is a store,
    a handle or a URL.
    """

    def __init__(self, backend: Backend, *, ttl_seconds: float) -> None:
        self._ttl_us = int(require_time("ttl_seconds", ttl_seconds) * 1_000_000)
        self._store, self._close = store_behind(backend)

    def touch(self, thread_id: str) -> None:
        """Use a thread, and so its conversation, without writing to it."""
        log = log_of(thread_id)
        user = registry_documents.activation(self._store, thread_id).user
        if user is None:
            user = user_of(self._store, log)
        self._store.commit(Batch([Put(USES + thread_id, None, user=user)]))

    def expire(self, *, limit: int = 100, now_us: int | None = None) -> Sweep:
        """End at most `limit` idle conversations, each in a commit of its own.

        What a living fork shares of a thread stays the fork's. Roots and paths made by
        names alone belong to no conversation. `now_us` is the time to go by, in
        microseconds since 1970; the machine's clock if not given.
        """
        require_count(limit, "limit", most=_MOST_ENDED)
        if limit < 1:
            raise Invalid("limit", f"{shown(limit)} ends nothing", "give 1 or more")
        if now_us is None:
            now_us = time.time_ns() // 1_000
        require_count(now_us, "now_us")
        before_us = now_us - self._ttl_us
        swept = self._store.get(SWEPT)
        start = 0 if swept is None or swept.erased else int(swept.value["position"])
        ended: list[Expired] = []
        seen: set[str] = set()
        position, more = start, False
        changes = self._store.changes(start, limit=_COMMITS_AT_ONCE)
        for change in changes:
            if change.time_us >= before_us:
                break
            if len(ended) >= limit:
                more = True
                break
            for touched in change.touched:
                thread = _thread_of(touched.name)
                if thread is not None and thread not in seen:
                    ended += self._end(thread, before_us, seen)
            position = change.position
        else:
            more = len(changes) == _COMMITS_AT_ONCE
        level, remaining = self._note(start, position, erase=bool(ended))
        return Sweep(tuple(ended), more, level, remaining)

    def _note(self, start: int, position: int, *, erase: bool) -> tuple[Erasure, tuple[str, ...]]:
        """Say how far this sweep came; wipe the traces of what it ended, all at once."""
        if position > start:
            # Two sweeps at once may each say so: the one behind only looks again.
            note = Put(SWEPT, {"position": position})
            version = self._store.commit(Batch([note])).versions[0]
            if erase:
                if version == 1:
                    version = self._store.commit(Batch([note])).versions[0]
                # What it says of older sweeps is of no use, and traces of all go with it.
                receipt = self._store.erase(Selector(document=SWEPT, last=version - 1))
                return receipt.level, receipt.remaining
        # Nothing ended; what others left to be done is said as it is.
        receipt = self._store.erase([], scrub=False)
        return receipt.level, receipt.remaining

    def _end(self, thread: str, before_us: int, seen: set[str]) -> list[Expired]:
        """End the conversation of a thread, if all of it is idle."""
        path = registry_documents.activation(self._store, thread).path
        seen.add(thread)
        if path is not None and path.conversation is None:
            return []
        conversation = thread if path is None else path.conversation or thread
        members = [self._member(name) for name in self._threads(thread, path)]
        seen.update(member.thread for member in members)
        if any(member.used_us >= before_us for member in members):
            return []
        ended: list[Expired] = []
        for at in range(0, len(members), _THREADS_AT_ONCE):
            some = members[at : at + _THREADS_AT_ONCE]
            if not any(member.exists for member in some):
                continue
            told = Expired(
                conversation,
                tuple(member.thread for member in some),
                sum(member.slots for member in some),
                max(member.used_us for member in some),
            )
            farewell = _farewell(some, told)
            try:
                with ending(self._store, farewell.operations):
                    self._store.erase(_documents(some), beside=farewell, scrub=False)
            except (Conflict, NotFound):
                return ended  # Somebody has just used it, or ended it.
            ended.append(told)
        return ended

    def _threads(self, thread: str, path: Path | None) -> Iterator[str]:
        if path is None:
            yield thread
            return
        query = Query(registry_documents.CONVERSATION, path.conversation, everyone=True)
        while True:
            page = self._store.find(query, limit=_THREADS_AT_ONCE)
            for found in page.items:
                assert isinstance(found, Document)
                yield found.name.removeprefix(PATHS)
            if page.cursor is None:
                return
            query = msgspec.structs.replace(query, cursor=page.cursor)

    def _member(self, thread: str) -> _Member:
        log = THREADS + thread
        length = self._store.length(log)
        used = [entry.time_us for entry in self._store.read(log, -1)] if length else []
        when: list[Condition] = [LengthIs(log, length)]
        names = [PATHS + thread, USES + thread]
        for name, document in zip(names, self._store.get_many(names), strict=True):
            if document is not None:
                used.append(document.time_us)
                when.append(VersionIs(name, document.version))
        has_log = bool(length) or self._store.has_log(log)
        user = user_of(self._store, log) if length else None
        return _Member(thread, length, has_log, max(used, default=0), when, user)


def _thread_of(name: str | None) -> str | None:
    for prefix in (THREADS, PATHS, USES):
        if name is not None and name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def _documents(members: Sequence[_Member]) -> list[Selector]:
    return [
        Selector(document=prefix + member.thread) for member in members for prefix in (PATHS, USES)
    ]


def _farewell(members: Sequence[_Member], told: Expired) -> Batch:
    operations: list[Operation] = []
    when: list[Condition] = []
    for member in members:
        when += member.when
        if member.has_log:
            log = THREADS + member.thread
            operations += [Prune(None, log=log), Drop(log)]
    event = {**msgspec.structs.asdict(told), "threads": list(told.threads)}
    # It names threads, which may be named after the one user they had.
    users = {member.user for member in members if member.user is not None}
    user = users.pop() if len(users) == 1 else None
    return Batch([*operations, Append(EXPIRIES, event, user, "expiry")], when)

"""Storing episodes: once each, findable in the same commit, never one that was forgotten."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from pagefile.errors import Conflict, Invalid, LimitExceeded, shown
from pagefile.memory.documents import owner_key
from pagefile.memory.episodes.duplicates import POLICIES, Duplicate, DuplicatePolicy, Recognition
from pagefile.memory.episodes.episode import (
    UNREAD,
    Episode,
    episode_of,
    merging,
    put_episode,
    stored_form,
)
from pagefile.memory.privacy.tombstones import Guard
from pagefile.recall.index import Findable, SearchIndex
from pagefile.recall.records import IndexEntry, speaker_in
from pagefile.store.batch import Absent, Batch, Condition, Operation, Put, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.records import Document
from pagefile.store.store import Store

# What tasks of one event loop want stored at the same time, stored together.
#
# A commit costs the same steps whether it holds one episode or fifty. So the
# first task that comes opens a group, all that come in the same turn of the loop
# or while the group before it commits join it, and one commit serves them all.
# Each is answered when its own episodes are durable, as if it had been alone.


_T = TypeVar("_T")

#: Bounds one commit, so that nobody waits for an endless one.
MOST_TOGETHER = 64
MOST_CHARS_TOGETHER = 1_000_000


class Crowd(Generic[_T]):
    """The groups of every event loop that stores through one `store`.

    `store` is called with what a group wants, in another thread unless it takes
    microseconds; when it raises, nothing can be told of any of them, and each is
    to be tried alone.
    """

    def __init__(self, store: Callable[[Sequence[_T]], object], *, is_instant: bool) -> None:
        self._store = store
        self._is_instant = is_instant
        self._lock = threading.Lock()
        self._groups: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Groups[_T]] = (
            weakref.WeakKeyDictionary()
        )

    def join(
        self, things: Sequence[_T], names: Sequence[Hashable], chars: int
    ) -> asyncio.Future[bool] | None:
        """Store these with what others want; what tells whether they were.

        None, and a future's False, mean that they are to be stored alone. `names`
        tell them from others: two of one name never go together.
        """
        if chars > MOST_CHARS_TOGETHER or len(things) > MOST_TOGETHER:
            return None
        loop = asyncio.get_running_loop()
        groups = self._groups.get(loop)
        if groups is None:
            with self._lock:
                # What waited when its loop was closed would keep it for ever.
                for closed in [each for each in self._groups if each.is_closed()]:
                    del self._groups[closed]
                made: _Groups[_T] = _Groups(self._store, self._is_instant)
                groups = self._groups.setdefault(loop, made)
        return groups.join(loop, things, names, chars)


class _Group(Generic[_T]):
    """Those who go together, in the order they came."""

    def __init__(self) -> None:
        self.members: list[tuple[Sequence[_T], asyncio.Future[bool]]] = []
        self.names: set[Hashable] = set()
        self.count = self.chars = 0

    def has_room(self, count: int, chars: int) -> bool:
        return self.count + count <= MOST_TOGETHER and self.chars + chars <= MOST_CHARS_TOGETHER


class _Groups(Generic[_T]):
    """The groups of one event loop; only used in its thread.

    They do not keep the loop, which is what they are found by.
    """

    def __init__(self, store: Callable[[Sequence[_T]], object], is_instant: bool) -> None:
        self._store = store
        self._is_instant = is_instant
        self._waiting: list[_Group[_T]] = []
        self._worker: asyncio.Task[None] | None = None

    def join(
        self,
        loop: asyncio.AbstractEventLoop,
        things: Sequence[_T],
        names: Sequence[Hashable],
        chars: int,
    ) -> asyncio.Future[bool] | None:
        """What tells when these are stored; None when one of the names is waiting already."""
        waiting = self._waiting
        for group in waiting:
            if not group.names.isdisjoint(names):
                return None
        if not waiting or not waiting[-1].has_room(len(things), chars):
            waiting.append(_Group())
        group = waiting[-1]
        place: asyncio.Future[bool] = loop.create_future()
        group.members.append((things, place))
        group.names.update(names)
        group.count += len(things)
        group.chars += chars
        if self._worker is None:
            worker = loop.create_task(self._store_all())
            # Begun at once (`asyncio.eager_task_factory`), it may have ended already.
            if not worker.done():
                self._worker = worker
        return place

    async def _store_all(self) -> None:
        try:
            while self._waiting:
                await self._store_group(self._waiting.pop(0))
        finally:
            self._worker = None
            # Only when this was cancelled: whoever waits goes alone.
            for group in self._waiting:
                _tell(group, False)
            self._waiting.clear()

    async def _store_group(self, group: _Group[_T]) -> None:
        done = False
        try:
            # Who was cancelled meanwhile wants nothing stored any more.
            wanted = [things for things, place in group.members if not place.done()]
            if wanted:
                flat = [thing for things in wanted for thing in things]
                if self._is_instant:
                    self._store(flat)
                else:
                    await asyncio.to_thread(self._store, flat)
            done = True
        except Exception:  # noqa: BLE001 - each raises its own, alone
            done = False
        finally:
            _tell(group, done)


def _tell(group: _Group[_T], done: bool) -> None:
    for _, place in group.members:
        # Where the loop was closed, nobody waits any more.
        if not place.done() and not place.get_loop().is_closed():
            place.set_result(done)


MOST_AT_ONCE = 1_000
#: How often a batch is tried again after somebody else was faster.
_ATTEMPTS = 1_000 + MOST_AT_ONCE
#: How many are analysed while others of the event loop wait.
_MOST_QUICK = 8
#: How many times of repetition an episode keeps, the last ones.
_MOST_TIMES = 100
#: How many ids that were merged before a new version still names; older versions name the rest.
_MOST_MERGED = 24


class Rememberer:
    """Writes episodes of any user; what was stored under an id before is never lost unseen."""

    def __init__(
        self,
        store: Store,
        index: SearchIndex,
        guard: Guard,
        policy: DuplicatePolicy,
        on_duplicate: Callable[[Duplicate], None] | None,
    ) -> None:
        if policy not in POLICIES:
            raise Invalid("duplicates", shown(policy), f"use one of {', '.join(POLICIES)}")
        self._store = store
        self._index = index
        self._guard = guard
        self._policy = policy
        self._on_duplicate = on_duplicate
        self._recognition = Recognition(store, index)
        self._crowd = Crowd(self.remember, is_instant=store.is_instant)

    def remember(self, episodes: Sequence[Episode]) -> list[str]:
        """Store all of them or none, in one commit.

        An id that is there already with the same content is left alone; with
        other content it becomes a new version, which keeps the tool calls and
        their transcript where the new one brings none.

        Raises:
            Forbidden: one of them was forgotten; only a new id can be stored.
        """
        plans = {plan.name: plan for plan in map(_Plan, _checked(episodes))}
        if self._policy != "keep":
            self._recognise(list(plans.values()))
        for _ in range(_ATTEMPTS):
            pending = [plan for plan in plans.values() if plan.put is not None]
            if not pending:
                break
            self._analyse(pending)
            self._refuse(plans.values())
            try:
                self._store.commit(self._batch(pending))
                break
            except Conflict as conflict:
                last = conflict
                if not self._settled(conflict, plans):
                    raise
        else:
            raise last
        return [plan.episode.id for plan in plans.values()]

    async def remember_async(self, episodes: Sequence[Episode]) -> list[str]:
        """`remember` for a running event loop, which it never blocks."""
        if self._is_quick(_checked(episodes)):
            names = [episode.document for episode in episodes]
            chars = 0
            for episode in episodes:
                chars += len(episode.input) + len(episode.output)
            together = self._crowd.join(episodes, names, chars)
            if together is not None and await together:
                return [episode.id for episode in episodes]
        # Imported here: whoever never awaits does not pay for loading it.
        import asyncio

        return await asyncio.to_thread(self.remember, episodes)

    def _is_quick(self, episodes: Sequence[Episode]) -> bool:
        """Whether all that comes before the commit takes microseconds, and reads nothing."""
        if self._policy != "keep" or not 0 < len(episodes) <= _MOST_QUICK:
            return False
        if self._index.embedder is not None:
            for episode in episodes:
                if episode.embedding is None:
                    return False
        return self._index.is_settled

    def _recognise(self, plans: Sequence[_Plan], *, told: bool = True) -> None:
        """Say what was said before, and where it is to be merged, merge it."""
        merged: dict[str, _Plan] = {}
        fresh: dict[str, _Plan] = {}
        heard: set[str] = set()
        for plan in plans:
            known = self._recognition.earlier(plan.asked)
            if known is not None:
                heard.add(plan.asked.document)
                if told and self._on_duplicate is not None:
                    self._on_duplicate(known.duplicate)
            if known is not None and known.is_same and self._policy == "merge":
                plan.merge(merged.setdefault(known.document.name, plan), known.document)
            else:
                fresh[plan.asked.document] = plan
        asked = [plan.asked for plan in fresh.values()]
        for one, duplicate, of, is_same in self._recognition.within(asked):
            if told and self._on_duplicate is not None and one.document not in heard:
                self._on_duplicate(duplicate)
            if self._policy == "merge" and is_same:
                fresh[one.document].follow(fresh[of.document])

    def _refuse(self, plans: Iterable[_Plan]) -> None:
        """What was forgotten is not stored, nor merged with what was not."""
        if not self._guard.knows_of_any:
            return
        for plan in plans:
            names = (plan.name, plan.key) if plan.is_merged else (plan.name,)
            self._guard.refuse(plan.asked.user_id, names)

    def _batch(self, plans: Sequence[_Plan]) -> Batch:
        puts: list[Operation] = []
        # Entries of one log stand together: a run of appends is one step.
        appends: list[Operation] = []
        conditions: list[Condition] = []
        of_users: dict[str | None, list[_Plan]] = {}
        for plan in plans:
            of_users.setdefault(plan.episode.user_id, []).append(plan)
        for user, own in of_users.items():
            analysed = [plan.entry for plan in own if plan.entry is not None]
            entries, unchanged = self._index.operations(user, owner_key(user), analysed)
            puts += [plan.put for plan in own if plan.put is not None]
            appends += entries
            conditions += [plan.condition for plan in own]
            conditions += (self._guard.condition(user), *unchanged)
        return Batch([*puts, *appends], list(dict.fromkeys(conditions)))

    def _analyse(self, plans: Sequence[_Plan]) -> None:
        fresh = [plan for plan in plans if plan.entry is None]
        entries = self._index.analysed([_findable(plan.episode, plan.key) for plan in fresh])
        for plan, entry in zip(fresh, entries, strict=True):
            plan.entry = entry

    def _settled(self, conflict: Conflict, plans: dict[str, _Plan]) -> bool:
        """Whether the plans have been brought up to date with what was in the way."""
        if self._index.refresh(conflict):
            return True
        if any(conflict.target == plan.key for plan in plans.values()):
            if any(plan.is_merged for plan in plans.values()):
                # What it was to be merged with has changed, or is gone.
                for plan in plans.values():
                    plan.start_again()
                self._recognise(list(plans.values()), told=False)
            # Where one is there already the others may be: all are looked at, not one a commit.
            for plan in plans.values():
                if plan.put is not None and not plan.is_merged:
                    self._renew(plan)
            return True
        users = {plan.asked.user_id: None for plan in plans.values()}
        if any(self._guard.learns(conflict, user) for user in users):
            self._refuse(plans.values())
            return True
        return False

    def _renew(self, plan: _Plan) -> None:
        """Bring a plan up to date with what is stored under its id now."""
        found = self._store.get(plan.key)
        if found is None or found.erased:
            plan.condition = Absent(plan.key)
            return
        before, episode = episode_of(found), plan.episode
        if episode.tool_transcript is None:
            # It says nothing about tools, unless it names calls.
            calls, told = episode.tool_calls or before.tool_calls, before.tool_transcript
            if calls is not episode.tool_calls or told is not None:
                episode = msgspec.structs.replace(episode, tool_calls=calls, tool_transcript=told)
        if not episode.said_again and before.said_again:
            episode = msgspec.structs.replace(episode, said_again=before.said_again)
        if stored_form(episode) == stored_form(before):
            plan.put = None
            return
        plan.episode, plan.put = episode, merging(put_episode(episode), found.sources)
        plan.entry = None
        plan.condition = VersionIs(found.name, found.version)


class _Plan:
    """What is to be stored for one episode; nothing when it is there already."""

    __slots__ = ("asked", "condition", "entry", "episode", "leader", "name", "put")

    def __init__(self, episode: Episode) -> None:
        self.asked = episode
        self.start_again()
        #: The document that was asked for.
        self.name = self.key

    def start_again(self) -> None:
        """As it was asked for."""
        self.episode = episode = self.asked
        self.put: Put | None = put_episode(episode)
        self.condition: Condition = Absent(self.put.document)
        self.entry: IndexEntry | None = None
        #: Whose plan this one adds to. Never itself: what refers to itself stays until it is
        #: looked for, and there are thousands a second.
        self.leader: _Plan | None = None

    @property
    def key(self) -> str:
        """The document that is written."""
        return self.episode.document if self.put is None else self.put.document

    @property
    def is_merged(self) -> bool:
        """Whether it adds to what another says."""
        return self.episode is not self.asked and self.key != self.name

    def merge(self, first: _Plan, found: Document) -> None:
        """Add when this was said to a stored episode, together with the first that does."""
        if first is self:
            self.episode = episode_of(found)
            self.put = None
            self.condition = VersionIs(found.name, found.version)
        if first is not self:
            self.leader = first
        first._said_again(self.asked, found.sources, unread=UNREAD in found.tenant_keys)
        self._stand_back()

    def follow(self, other: _Plan) -> None:
        """Add when this was said to another that is about to be stored."""
        self.leader = other.leader or other
        self.leader._said_again(self.asked, (), unread=True)
        self._stand_back()

    def _said_again(self, asked: Episode, merged: Sequence[str], *, unread: bool) -> None:
        """Add when another was said, and its id to those that were `merged` before."""
        known, moment = self.episode, asked.occurred_at
        merged = merged[-_MOST_MERGED:] if self.put is None else self.put.sources
        if asked.id in merged:
            return  # The same, sent again.
        if moment != known.occurred_at and moment not in known.said_again:
            times = (*known.said_again, moment)[-_MOST_TIMES:]
            self.episode = msgspec.structs.replace(known, said_again=times)
        self.put = merging(put_episode(self.episode, unread=unread), (*merged, asked.id))
        self.entry = None

    def _stand_back(self) -> None:
        if self.leader is not None:
            self.episode, self.put = self.leader.episode, None


def findable(episode: Episode) -> Findable:
    """What an episode is found by."""
    return _findable(episode, episode.document)


def _findable(episode: Episode, key: str) -> Findable:
    """What an episode is found by; who spoke is read from the text where nothing else says it."""
    text = episode.text
    given = episode.speaker or ""
    speaker = given or speaker_in(text)[0]
    return Findable(
        key=key,
        kind="episode",
        text=text,
        speaker=speaker,
        # What looks like a name may be a label, and stays among the words.
        guessed=speaker != given,
        session=episode.session_id,
        time_us=microseconds(episode.occurred_at),
        vector=episode.embedding,
    )


def _checked(episodes: Sequence[Episode]) -> Sequence[Episode]:
    if not isinstance(episodes, (list, tuple)):
        raise Invalid("episodes", shown(episodes), "give a list of Episodes")
    if len(episodes) > MOST_AT_ONCE:
        raise LimitExceeded(
            "the number of episodes in one call",
            limit=MOST_AT_ONCE,
            wanted=len(episodes),
            next_step="remember them in several calls",
        )
    for episode in episodes:
        if not isinstance(episode, Episode):
            raise Invalid("episode", f"{shown(episode)} is no Episode", "give pagefile.Episode(…)")
    if len(episodes) > 1 and len({episode.document for episode in episodes}) < len(episodes):
        raise Invalid("episodes", "two of them have the same id", "give each its own")
    return episodes

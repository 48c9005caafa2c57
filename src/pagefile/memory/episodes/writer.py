"""Storing episodes: once each, findable in the same commit, never one that was forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from pagefile.errors import Conflict, Invalid, LimitExceeded, shown
from pagefile.memory.batcher import Crowd
from pagefile.memory.episodes.duplicates import Duplicate
from pagefile.memory.episodes.episode import (
    UNREAD,
    Episode,
    episode_of,
    merging,
    put_episode,
    stored_form,
)
from pagefile.memory.episodes.recognition import POLICIES, DuplicatePolicy, Recognition
from pagefile.memory.owner import owner_key
from pagefile.memory.privacy.tombstones import Guard
from pagefile.recall.entry import IndexEntry, speaker_in
from pagefile.recall.index import Findable, SearchIndex
from pagefile.store.batch import Absent, Batch, Condition, Operation, Put, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.records import Document
from pagefile.store.store import Store

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

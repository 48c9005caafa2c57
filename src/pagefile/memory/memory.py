"""Memory: what an agent pins, what it went through, what it knows, for each user apart."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.errors import Invalid, shown
from pagefile.memory.blocks import MOST_BLOCKS, Blocks, MemoryBlock
from pagefile.memory.consolidation.claims import reopen_failed
from pagefile.memory.consolidation.consolidation import (
    Consolidation,
    ConsolidationPolicy,
    ConsolidationReport,
    require_bounded,
    require_policy,
)
from pagefile.memory.documents import owner_key, require_session, require_text, require_user
from pagefile.memory.episodes.duplicates import (
    Duplicate,
    DuplicatePolicy,
    duplicates_of,
    repetitions,
    require_threshold,
)
from pagefile.memory.episodes.episode import Episode, Message, episode_of, stored_form
from pagefile.memory.episodes.store import Episodes, TimeRange, last_messages, require_limit
from pagefile.memory.episodes.writer import Rememberer
from pagefile.memory.extraction.candidate import Extractor, chosen_extractor, require_extractor
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.graph import StoredGraph
from pagefile.memory.facts.index import FactIndexing
from pagefile.memory.facts.proposal import ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.facts.user_check import WatchedFacts, WatchedGraph
from pagefile.memory.index_source import Findables
from pagefile.memory.items.change import Scope
from pagefile.memory.items.item import Status as ItemStatus
from pagefile.memory.items.reader import ItemReader
from pagefile.memory.privacy.dependents import DerivedFromEpisodes
from pagefile.memory.privacy.erasure_plan import Extent
from pagefile.memory.privacy.export import MemoryExport
from pagefile.memory.privacy.forget import Forgetting
from pagefile.memory.privacy.forget_receipt import ForgetReceipt
from pagefile.memory.privacy.importer import Bringing, ImportReceipt, Lines
from pagefile.memory.privacy.isolation import AwaitedFrom, named_users, warn_if_anonymous
from pagefile.memory.privacy.tombstones import Guard
from pagefile.memory.prompt_memory import MemoryParts, Recollection
from pagefile.memory.provenance import MemoryProfile, Profiles, Provenance, Provenances, UseRecorder
from pagefile.memory.recaller import (
    EpisodeMatch,
    FactMatch,
    MemoryKind,
    MemoryMatch,
    Recaller,
    Searching,
)
from pagefile.recall.arms.arm import VectorArm
from pagefile.recall.arms.choice import chosen_arm
from pagefile.recall.arms.synchronizer import (
    VectorsFollowed,
    VectorStatus,
    follower_of,
)
from pagefile.recall.embed.choice import chosen_embedder
from pagefile.recall.embed.embedder import Embedder
from pagefile.recall.embed.reranker import Reranker
from pagefile.recall.index import Rebuilding, SearchIndex
from pagefile.recall.partition_cache import Shelf
from pagefile.store import clock
from pagefile.store.arguments import (
    MOST_SECONDS,
    require_callable,
    require_count,
    require_flag,
    require_seconds,
)
from pagefile.store.snapshot import Snapshot

_MOST_USERS = 100_000_000
_MOST_MESSAGES = 10_000
_MOST_BLOCK_CHARS = 1_000_000


def utc_now() -> datetime:
    """The moment, by this machine."""
    return clock.now()


class Memory(ClosesItsStore):
    """Blocks, episodes and facts of every user, in a store.

    `user_id` says whose; None is a bucket of its own, never a wildcard, and a
    call for it while named users exist raises an `IsolationWarning`. Nothing a
    call for one user returns, counts or ranks depends on another's.

    `backend` is a store, a handle or a URL; None is a private `memory:`.
    `embedder` is "auto", "bundled", "openai", None for the lexical arm alone, or
    one of your own. `vectors` is where they are compared: "auto", "memory" for
    this process, "qdrant", "pgvector", "redis", or an arm of your own. `vectors_every`
    lets a thread fill the arm that often, in seconds, until `close`; 0 is never. `max_users` and
    `user_idle_ttl_seconds` bound which users' indexes stay in memory, None for no
    bound; what leaves is read again when it is asked for. `clock` gives aware
    datetimes and may be a script's.
    """

    #: What was made from a name, and is closed with the memory.
    _made_here: Extractor | None = None

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        embedder: Embedder | str | None = "auto",
        vectors: VectorArm | str = "auto",
        vectors_every: float | None = None,
        max_users: int | None = 100_000,
        user_idle_ttl_seconds: int | None = 86_400,
        max_blocks: int = 100,
        max_block_chars: int = 100_000,
        extractor: Extractor | str = "rules",
        policy: ConsolidationPolicy | None = None,
        reranker: Reranker | None = None,
        duplicates: DuplicatePolicy = "keep",
        on_duplicate: Callable[[Duplicate], None] | None = None,
        record_use: bool = False,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if max_users is not None:
            require_count(max_users, "max_users", least=1, most=_MOST_USERS)
        if user_idle_ttl_seconds is not None:
            require_count(user_idle_ttl_seconds, "user_idle_ttl_seconds", 1, 365 * MOST_SECONDS)
        require_count(max_blocks, "max_blocks", least=1, most=MOST_BLOCKS)
        require_count(max_block_chars, "max_block_chars", least=1, most=_MOST_BLOCK_CHARS)
        require_callable("clock", clock)
        if vectors_every is not None:
            require_seconds(vectors_every, "vectors_every")
        if on_duplicate is not None:
            require_callable("on_duplicate", on_duplicate)
        require_flag("record_use", record_use)
        _require_parts(policy, reranker)
        self._store, self._close = store_behind(backend)
        self._clock = clock
        self._owns_arm = isinstance(vectors, str)
        self._arm = chosen_arm(self._store, vectors)
        shelf = Shelf(
            self._store, most=max_users, idle_seconds=user_idle_ttl_seconds, arm=self._arm
        )
        self._index = SearchIndex(self._store, chosen_embedder(self._store, embedder), shelf)
        self._shelf, self._reranker = shelf, reranker
        self._blocks = Blocks(self._store, clock, max_blocks=max_blocks, max_chars=max_block_chars)
        guard = Guard(self._store)
        indexing = FactIndexing(self._index, guard)
        watched = WatchedFacts(self._store, indexing)
        self.facts: FactStore = watched
        self._facts = watched.bare
        self.proposals = ProposedFacts(self._store, self._facts, indexing, clock)
        self._indexing = indexing
        # A name is looked up at the first consolidation: what it stands for may need a library.
        self._extractor = require_extractor(extractor)
        self._policy = ConsolidationPolicy() if policy is None else policy
        if not isinstance(self._extractor, str):
            require_bounded(self._extractor, self._policy)
        self._uses = UseRecorder(self._store, guard, clock, on=record_use)
        self._episodes = Episodes(self._store)
        self._rememberer = Rememberer(self._store, self._index, guard, duplicates, on_duplicate)
        self._recaller = Recaller(
            self._store, self._index, self._facts, self._uses, reranker, clock
        )
        find = self._recaller.facts_by_words
        self.graph: StoredGraph = WatchedGraph(self._store, self._facts, find)
        self._searching = Searching(self._recaller, ItemReader(self._store), self._uses)
        derived = DerivedFromEpisodes(self._store, indexing)
        self._forgetting = Forgetting(self._store, self._index, derived)
        self._profiles = Profiles(self._store, self._index, self._facts)
        self._provenances = Provenances(self._store, self._facts, self._uses)
        self._findables = Findables(self._store, self._index)
        self._follower = follower_of(self._store, self._index.keeper, vectors_every)
        if self._follower is not None:
            self._follower.__enter__()

    @property
    def embedder(self) -> Embedder | None:
        """What turns text into vectors here; None when nothing does."""
        return self._index.embedder

    def close(self) -> None:
        """Store what waits; close the store and the vector arm if this opened them.

        Raises:
            Exception: what ended the thread of `vectors_every`; all is closed then, too.
        """
        try:
            if self._follower is not None:
                self._follower.end()
        finally:
            self._uses.flush()
            self._close_extractor()
            if self._arm is not None and self._owns_arm:
                self._arm.close()
            self._close()

    def _at(self, past: Snapshot, user_id: str | None) -> Recollection:
        """What is known of a user at a position; for who builds prompts."""
        parts = MemoryParts(self.embedder, self._shelf, self._reranker, self._uses, self._clock)
        return Recollection(parts, past, user_id)

    # Episodes

    def remember(self, episode: Episode) -> str:
        """Store one episode, findable from now on; return its id.

        The same id again is the same episode: with the same content nothing is
        stored, with other content it gets a new version. Another user's episode
        of that id is another one.

        Raises:
            Forbidden: it was forgotten, and can only be stored under a new id.
        """
        if getattr(episode, "user_id", "") is None:
            self._watch(None)
        return self._rememberer.remember([episode])[0]

    async def remember_async(self, episode: Episode) -> str:
        """`remember` for a running event loop, which it never blocks."""
        if getattr(episode, "user_id", "") is None:
            await self._watch_async([episode])
        return (await self._rememberer.remember_async([episode]))[0]

    def remember_many(self, episodes: Sequence[Episode]) -> list[str]:
        """Store up to 1,000 episodes in one commit, all or none."""
        if any(getattr(episode, "user_id", "") is None for episode in _listed(episodes)):
            self._watch(None)
        return self._rememberer.remember(episodes)

    async def remember_many_async(self, episodes: Sequence[Episode]) -> list[str]:
        """`remember_many` for a running event loop, which it never blocks."""
        await self._watch_async(episodes)
        return await self._rememberer.remember_async(episodes)

    async def _watch_async(self, episodes: object) -> None:
        if any(getattr(episode, "user_id", "") is None for episode in _listed(episodes)):
            # Whether there are named users, too, has to be read.
            with AwaitedFrom():
                await asyncio.to_thread(self._watch, None)

    def episode(self, episode_id: str, *, user_id: str | None = None) -> Episode:
        """One episode.

        Raises:
            NotFound: the user has none of that id.
        """
        self._watch(user_id)
        return self._episodes.get(episode_id, user_id)

    def session_messages(
        self, session_id: str, *, user_id: str | None = None, limit: int = 20
    ) -> list[Message]:
        """The last messages of a session, oldest first, at most `limit`.

        A call of tools is never parted from its answers: where only a part would
        fit, it is left out.
        """
        self._watch(user_id)
        require_session(session_id)
        if not require_limit(limit, _MOST_MESSAGES):
            return []
        newest = self._episodes.of_session(session_id, user_id, newest_first=True)
        return last_messages(newest, limit)

    # Recall

    def recall(
        self,
        query: str,
        *,
        kind: str = "episodic",
        limit: int = 5,
        time_range: TimeRange | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        exclude_session_id: str | None = None,
    ) -> list[Episode]:
        """The episodes that answer a question, best first; the newest for a blank one.

        Of one session, or of all but one: the one under way is in the prompt already.
        """
        self._watch(user_id)
        _require_kind(kind)
        found = self._recaller.episodes(
            query,
            user_id,
            limit,
            time_range,
            session_id,
            None,
            exclude_session_id=exclude_session_id,
            explain=False,
        )
        return [match.episode for match in found]

    def recall_scored(
        self,
        query: str,
        *,
        kind: str = "episodic",
        limit: int = 5,
        time_range: TimeRange | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        exclude_session_id: str | None = None,
        alpha: float | None = None,
    ) -> list[EpisodeMatch]:
        """As `recall`, each with its score and what it is made of.

        `alpha` weighs the arms: 0 is the words alone, 1 the vectors alone, None
        what measures best.
        """
        self._watch(user_id)
        _require_kind(kind)
        return self._recaller.episodes(
            query,
            user_id,
            limit,
            time_range,
            session_id,
            alpha,
            exclude_session_id=exclude_session_id,
        )

    def recall_facts(
        self,
        query: str,
        *,
        limit: int = 5,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
    ) -> list[Fact]:
        """Facts that answer a question and hold at `valid_at`, as known at `known_at`.

        Both are now unless they are given; see `FactStore.query`.
        """
        self._watch(user_id)
        found = self._recaller.facts(query, user_id, limit, valid_at, known_at, explain=False)
        return [match.fact for match in found]

    def recall_facts_scored(
        self,
        query: str,
        *,
        limit: int = 5,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
        user_id: str | None = None,
    ) -> list[FactMatch]:
        """As `recall_facts`, each with its score and what it is made of."""
        self._watch(user_id)
        return self._recaller.facts(query, user_id, limit, valid_at, known_at)

    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        kinds: Sequence[MemoryKind] = ("episode", "fact", "item"),
        user_id: str | None = None,
        session_id: str | None = None,
        time_range: TimeRange | None = None,
        status: ItemStatus | None = "active",
        scope: Scope | None = None,
        project_id: str | None = None,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[MemoryMatch]:
        """Episodes, facts and long-term items that answer a question, in one list, best first.

        A kind that cannot match a filter is left out: `session_id` leaves
        episodes alone, a `scope` other than "user" items, a `status` other than
        "active" what can have it; "superseded" is for facts too. `project_id` is
        about items, `valid_at` and `known_at` about facts.
        """
        self._watch(user_id)
        return self._searching.search(
            query,
            user_id,
            limit,
            kinds=kinds,
            session_id=session_id,
            time_range=time_range,
            status=status,
            scope=scope,
            project_id=project_id,
            valid_at=valid_at,
            known_at=known_at,
        )

    # Blocks

    def working(self, *, user_id: str | None = None) -> list[MemoryBlock]:
        """The user's blocks, in order: what belongs in every prompt."""
        self._watch(user_id)
        return self._blocks.all(user_id)

    def block(self, name: str, *, user_id: str | None = None) -> MemoryBlock:
        """One block.

        Raises:
            NotFound: the user has none of that name.
        """
        self._watch(user_id)
        return self._blocks.get(name, user_id)

    def update_block(
        self,
        name: str,
        content: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
    ) -> MemoryBlock:
        """Replace a block's text, or make the block, at the end of the others.

        Raises:
            Conflict: it is not at `expected_version`; 0 is a block that is not there.
            LimitExceeded: the text is too long, or the user has too many blocks.
        """
        self._watch(user_id)
        require_text("content", content)
        return self._blocks.change(
            name, user_id, lambda _: content, expected_version=expected_version
        )

    def append_block(
        self,
        name: str,
        content: str,
        *,
        user_id: str | None = None,
        expected_version: int | None = None,
    ) -> MemoryBlock:
        """Add to the end of a block's text, whoever else writes to it at the same time."""
        self._watch(user_id)
        require_text("content", content)
        return self._blocks.change(
            name, user_id, lambda before: before + content, expected_version=expected_version
        )

    def delete_block(
        self, name: str, *, user_id: str | None = None, expected_version: int | None = None
    ) -> None:
        """Take a block out; its versions stay readable until they are forgotten."""
        self._watch(user_id)
        self._blocks.delete(name, user_id, expected_version=expected_version)

    def block_history(
        self, name: str, *, user_id: str | None = None, after: int = 0, limit: int = 100
    ) -> list[MemoryBlock]:
        """A block's versions after `after`, oldest first."""
        self._watch(user_id)
        return self._blocks.history(name, user_id, after=after, limit=limit)

    # Consolidation

    def consolidate(
        self,
        *,
        limit: int = 1_000,
        cancel: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
        retry_failed: bool = False,
    ) -> ConsolidationReport:
        """Read up to `limit` episodes that are unread, of all users, and keep what they state.

        What the extractor is sure of becomes facts, the rest waits in `proposals`.
        Any number of workers may do this at once. `progress` is called with the
        number of episodes read so far; setting `cancel` ends it early.
        `retry_failed` opens before what was given up, or waits after a failure:
        for when what they failed by has been mended.

        Raises:
            Forbidden, Invalid: the extractor's settings are wrong; no episode is blamed.
        """
        require_count(limit, "limit", most=1_000_000)
        if cancel is not None and not callable(getattr(cancel, "is_set", None)):
            raise Invalid("cancel", shown(cancel), "give a threading.Event")
        if progress is not None:
            require_callable("progress", progress)
        require_flag("retry_failed", retry_failed)
        if isinstance(self._extractor, str):
            self._extractor = self._made_here = chosen_extractor(self._extractor)
        consolidation = Consolidation(
            self._store, self._facts, self._indexing, self._extractor, self._policy, self._clock
        )
        if retry_failed and not (cancel is not None and cancel.is_set()):
            reopen_failed(self._store)
        return consolidation.run(limit, cancel, progress)

    def _close_extractor(self) -> None:
        close = getattr(self._made_here, "close", None)
        if close is not None:
            close()

    # What is kept

    def profile(self, *, user_id: str | None = None) -> MemoryProfile:
        """How much is kept of a user, and the newest of it."""
        self._watch(user_id)
        return self._profiles.profile(user_id, len(self._blocks.all(user_id)))

    def snapshot(self, *, user_id: str | None = None) -> dict[str, Any]:
        """A user's blocks and episodes as plain values, for looking at."""
        self._watch(user_id)
        return {
            "blocks": [msgspec.to_builtins(block) for block in self._blocks.all(user_id)],
            "episodes": [
                stored_form(episode_of(found)) for found in self._episodes.documents(user_id)
            ],
        }

    def duplicates(
        self, *, user_id: str | None = None, threshold: float = 0.9, limit: int = 100
    ) -> list[Duplicate]:
        """Episodes that say what an earlier one says, nearly in the same words.

        Goes through all episodes of the user, in the order of their time; ids, with
        the share of terms in common, and whether it is the same word for word.
        Of a few words, only what is.
        """
        self._watch(user_id)
        share = require_threshold(threshold)
        most = require_limit(limit, 10_000)
        texts = self._index.texts(owner_key(user_id), "episode")
        named = {key.rsplit("/", 1)[1]: terms for key, terms in texts.items()}
        found = {one.key: one for one in duplicates_of(named, share)}
        found |= {one.key: one for one in repetitions(self._store, texts).values()}
        return [found[name] for name in named if name in found][:most]

    def why(
        self, memory_id: str, *, user_id: str | None = None, project_id: str | None = None
    ) -> Provenance:
        """Where a memory comes from: its sources, who let it in, what it replaced, who used it.

        Raises:
            NotFound: nothing of that id is to be seen with this user and project.
        """
        self._watch(user_id)
        return self._provenances.why(memory_id, user_id, project_id)

    def users(self, *, after: str = "", limit: int = 100) -> list[str]:
        """Named users whose memories are kept, in order; for operators."""
        require_text("after", after)
        require_count(limit, "limit", most=10_000)
        return named_users(self._store, after=after, limit=limit)

    # The user as a whole

    def export(self, *, user_id: str | None = None) -> MemoryExport:
        """Everything that is kept of a user: blocks, episodes, facts, items, runs, slots.

        Nothing is read before the lines are gone through.
        """
        self._watch(user_id)
        self._uses.flush()
        return MemoryExport(self._store, self._facts, user_id, self._clock())

    def import_(self, source: Lines, *, own_only: bool = False) -> ImportReceipt:
        """Take in what `export` gave: a path, or the lines. Doing it again does nothing.

        With `own_only`, for lines that somebody else made: what users other than
        the export's would meet is refused, and so are streams that hold records of others.

        Raises:
            Invalid: a line is not what its name says, or another's; nothing was stored.
            Corrupt: a line was changed or is missing; nothing was stored.
            Conflict: something else stands here under the same name.
        """
        findables = self._findables
        require_flag("own_only", own_only)
        return Bringing(
            self._store,
            findables.indexing,
            self._index.refresh,
            findables.check,
            own_only=own_only,
        ).bring(source)

    def forget(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        episode_id: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        scrub: bool = True,
    ) -> ForgetReceipt:
        """Erase what is kept of a user, everywhere, in one commit; say what went.

        With a session, its episodes, what was derived from them alone, and what
        the user said in the thread of that name. With an episode, that one and
        what was derived from it alone. With `before`, what happened or
        was stored before that moment. What is sent again later stays forgotten.
        `scrub=False` leaves the rewriting of the file to the next erasure.
        """
        self._watch(user_id)
        require_flag("dry_run", dry_run)
        require_flag("scrub", scrub)
        self._uses.flush()
        extent = Extent(user_id, session_id, episode_id, before)
        return self._forgetting.forget(extent, dry_run=dry_run, scrub=scrub)

    def reindex(self, progress: Callable[[int], None] | None = None) -> int:
        """Make the search index of the whole tenant anew, with this handle's embedder.

        Returns how many memories were indexed; `progress` is called with how many
        so far. Until it is done the index that was there serves the handles of its
        embedder, and others are refused; then it is the other way round. Cut off, it
        has changed nothing, and is to be done again.

        Raises:
            Unavailable: the embedder fails; it says whether the index is as it was.
            Conflict: somebody else began the same meanwhile, and goes on.
        """
        if progress is not None:
            require_callable("progress", progress)
        return Rebuilding(self._store, self._index, self._shelf, self._findables).run(progress)

    def sync_vectors(self, progress: Callable[[int], None] | None = None) -> int:
        """Bring the vector arm of the whole tenant up to date; return how many it was given.

        Until then what it lacks is compared in this process. Doing it again does
        nothing, whoever was cut off in between; an arm that was wiped is filled
        anew, and what was forgotten leaves it. Without an arm there is nothing to do.

        Raises:
            Unavailable: the arm does not answer.
            Unsupported: it holds another model's vectors.
        """
        if progress is not None:
            require_callable("progress", progress)
        keeper = self._index.keeper
        return 0 if keeper is None else keeper.sync_all(progress)

    def vector_status(self, *, user_id: str | None = None) -> VectorStatus:
        """Where a user's vectors are, and how far the vector arm lags behind."""
        self._watch(user_id)
        return self._index.vector_status(owner_key(user_id))

    def vectors_followed(self) -> VectorsFollowed | None:
        """How far the thread of `vectors_every` has come; None when there is none."""
        return None if self._follower is None else self._follower.status()

    # Whose

    def _watch(self, user_id: str | None) -> None:
        require_user(user_id)
        if user_id is None:
            warn_if_anonymous(self._store, user_id)


def _require_parts(policy: object, reranker: object) -> None:
    if policy is not None:
        require_policy(policy)
    if reranker is not None and not callable(getattr(reranker, "scores", None)):
        raise Invalid("reranker", f"{shown(reranker)} scores nothing", "it has scores()")


def _listed(episodes: object) -> Sequence[object]:
    return episodes if isinstance(episodes, (list, tuple)) else ()


def _require_kind(kind: object) -> None:
    if kind != "episodic":
        raise Invalid(
            "kind", f"{shown(kind)} are no episodes", "leave it out, or ask recall_facts()"
        )

"""Memory: what an agent pins, what it went through, what it knows, for each user apart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from pagefile.bounds import MOST_SECONDS, require_count
from pagefile.context.backend import Backend, store_behind
from pagefile.errors import Invalid, shown
from pagefile.memory.block import MemoryBlock
from pagefile.memory.blocks import MOST_BLOCKS, Blocks
from pagefile.memory.bringing import Bringing, ImportReceipt, Lines
from pagefile.memory.change import Scope
from pagefile.memory.consolidation import (
    Consolidation,
    ConsolidationPolicy,
    ConsolidationReport,
    require_policy,
)
from pagefile.memory.derived import DerivedFromEpisodes
from pagefile.memory.duplicates import Duplicate, duplicates_of, require_threshold
from pagefile.memory.episode import Episode, episode_of, stored_form
from pagefile.memory.episodes import Episodes, TimeRange, require_limit
from pagefile.memory.export import MemoryExport
from pagefile.memory.extraction.candidate import Extractor
from pagefile.memory.extraction.choice import chosen_extractor, require_extractor
from pagefile.memory.fact import Fact
from pagefile.memory.fact_graph import StoredGraph
from pagefile.memory.fact_index import FactIndexing
from pagefile.memory.facts import FactStore
from pagefile.memory.findables import Findables
from pagefile.memory.forget import ForgetReceipt, Forgetting
from pagefile.memory.guard import Guard
from pagefile.memory.isolation import named_users, warn_if_anonymous
from pagefile.memory.item import Status as ItemStatus
from pagefile.memory.match import EpisodeMatch, FactMatch, MemoryMatch
from pagefile.memory.message import Message
from pagefile.memory.owner import owner_key, require_user
from pagefile.memory.profile import MemoryProfile, Profiles
from pagefile.memory.proposed_fact import ProposedFacts
from pagefile.memory.provenance import Provenance, Provenances
from pagefile.memory.reader import ItemReader
from pagefile.memory.recaller import Recaller
from pagefile.memory.recognition import DuplicatePolicy
from pagefile.memory.remember import Rememberer
from pagefile.memory.searching import MemoryKind, Searching
from pagefile.memory.session import last_messages
from pagefile.memory.text import require_session, require_text
from pagefile.memory.use import UseRecorder
from pagefile.naming import require_callable, require_flag
from pagefile.recall.choice import chosen_embedder
from pagefile.recall.embedder import Embedder
from pagefile.recall.index import SearchIndex
from pagefile.recall.reranker import Reranker
from pagefile.recall.shelf import Shelf

_MOST_USERS = 100_000_000
_MOST_MESSAGES = 10_000
_MOST_BLOCK_CHARS = 1_000_000


def utc_now() -> datetime:
    """The moment, by this machine."""
    return datetime.now(UTC)


class Memory:
    """Blocks, episodes and facts of every user, in a store.

    `user_id` says whose; None is a bucket of its own, never a wildcard, and a
    call for it while named users exist raises an `IsolationWarning`. Nothing a
    call for one user returns, counts or ranks depends on another's.

    `backend` is a store, a handle or a URL; None is a private `memory:`.
    `embedder` is "auto", "bundled", "openai", None for the lexical arm alone, or
    one of your own. `max_users` and `user_idle_ttl_seconds` bound which users'
    indexes stay in memory, None for no bound; what leaves is read again when it
    is asked for. `clock` gives aware datetimes and may be a script's.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        embedder: Embedder | str | None = "auto",
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
        if on_duplicate is not None:
            require_callable("on_duplicate", on_duplicate)
        require_flag("record_use", record_use)
        _require_parts(policy, reranker)
        self._store, self._close = store_behind(backend)
        self._clock = clock
        shelf = Shelf(self._store, most=max_users, idle_seconds=user_idle_ttl_seconds)
        self._index = SearchIndex(self._store, chosen_embedder(self._store, embedder), shelf)
        self._blocks = Blocks(self._store, clock, max_blocks=max_blocks, max_chars=max_block_chars)
        guard = Guard(self._store)
        indexing = FactIndexing(self._index, guard)
        self.facts = FactStore(self._store, beside=indexing)
        self.graph = StoredGraph(self.facts)
        self.proposals = ProposedFacts(self._store, indexing, clock)
        self._indexing = indexing
        self._extractor = require_extractor(extractor)
        self._policy = ConsolidationPolicy() if policy is None else policy
        self._uses = UseRecorder(self._store, guard, clock, on=record_use)
        self._episodes = Episodes(self._store)
        self._rememberer = Rememberer(self._store, self._index, guard, duplicates, on_duplicate)
        self._recaller = Recaller(self._store, self._index, self.facts, self._uses, reranker)
        self._searching = Searching(self._recaller, ItemReader(self._store))
        derived = DerivedFromEpisodes(self._store, self.facts, indexing)
        self._forgetting = Forgetting(self._store, self._index, derived)
        self._profiles = Profiles(self._store, self._index, self.facts)
        self._provenances = Provenances(self._store, self.facts, self._uses)
        self._findables = Findables(self._store, self._index)

    @property
    def embedder(self) -> Embedder | None:
        """What turns text into vectors here; None when nothing does."""
        return self._index.embedder

    def close(self) -> None:
        """Store what waits; close the store if this opened it."""
        self._uses.flush()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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

    # Episodes

    def remember(self, episode: Episode) -> str:
        """Store one episode, findable from now on; return its id.

        The same id again is the same episode: with the same content nothing is
        stored, with other content it gets a new version. Another user's episode
        of that id is another one.

        Raises:
            Forbidden: it was forgotten, and can only be stored under a new id.
        """
        return self._rememberer.remember([episode])[0]

    def remember_many(self, episodes: Sequence[Episode]) -> list[str]:
        """Store up to 1,000 episodes in one commit, all or none."""
        return self._rememberer.remember(episodes)

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
    ) -> list[Episode]:
        """The episodes that answer a question, best first; the newest for a blank one."""
        self._watch(user_id)
        _require_kind(kind)
        found = self._recaller.episodes(
            query, user_id, limit, time_range, session_id, None, explain=False
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
        alpha: float | None = None,
    ) -> list[EpisodeMatch]:
        """As `recall`, each with its score and what it is made of.

        `alpha` weighs the arms: 0 is the words alone, 1 the vectors alone, None
        what measures best.
        """
        self._watch(user_id)
        _require_kind(kind)
        return self._recaller.episodes(query, user_id, limit, time_range, session_id, alpha)

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

        `session_id` leaves episodes alone; `status`, `scope` and `project_id` are
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

    def duplicates(
        self, *, user_id: str | None = None, threshold: float = 0.9, limit: int = 100
    ) -> list[Duplicate]:
        """Episodes that say what an earlier one says, nearly in the same words.

        Goes through all episodes of the user; ids, with the share of words in common.
        """
        self._watch(user_id)
        share = require_threshold(threshold)
        texts = self._index.texts(owner_key(user_id), "episode")
        named = {key.rsplit("/", 1)[1]: terms for key, terms in texts.items()}
        return duplicates_of(named, share)[: require_limit(limit, 10_000)]

    def why(
        self, memory_id: str, *, user_id: str | None = None, project_id: str | None = None
    ) -> Provenance:
        """Where a memory comes from: its sources, who let it in, what it replaced, who used it.

        Raises:
            NotFound: nothing of that id is to be seen with this user and project.
        """
        self._watch(user_id)
        return self._provenances.why(memory_id, user_id, project_id)

    # Consolidation

    def consolidate(
        self,
        *,
        limit: int = 1_000,
        cancel: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> ConsolidationReport:
        """Read up to `limit` episodes that are unread, of all users, and keep what they state.

        What the extractor is sure of becomes facts, the rest waits in `proposals`.
        Any number of workers may do this at once. `progress` is called with the
        number of episodes read so far; setting `cancel` ends it early.
        """
        require_count(limit, "limit", most=1_000_000)
        if cancel is not None and not callable(getattr(cancel, "is_set", None)):
            raise Invalid("cancel", shown(cancel), "give a threading.Event")
        if progress is not None:
            require_callable("progress", progress)
        if isinstance(self._extractor, str):
            self._extractor = chosen_extractor(self._extractor)
        consolidation = Consolidation(
            self._store, self.facts, self._indexing, self._extractor, self._policy, self._clock
        )
        return consolidation.run(limit, cancel, progress)

    # Keeping

    def profile(self, *, user_id: str | None = None) -> MemoryProfile:
        """How much is kept of a user, and the newest of it."""
        self._watch(user_id)
        return self._profiles.profile(user_id, len(self._blocks.all(user_id)))

    def export(self, *, user_id: str | None = None) -> MemoryExport:
        """Everything that is kept of a user: blocks, episodes, facts, items, runs, slots.

        Nothing is read before the lines are gone through.
        """
        self._watch(user_id)
        self._uses.flush()
        return MemoryExport(self._store, self.facts, user_id, self._clock())

    def import_(self, source: Lines) -> ImportReceipt:
        """Take in what `export` gave: a path, or the lines. Doing it again does nothing.

        Raises:
            Corrupt: a line was changed or is missing; nothing was stored.
            Conflict: something else stands here under the same name.
        """
        findables = self._findables
        return Bringing(
            self._store, findables.indexing, self._index.refresh, findables.check
        ).bring(source)

    def snapshot(self, *, user_id: str | None = None) -> dict[str, Any]:
        """A user's blocks and episodes as plain values, for looking at."""
        self._watch(user_id)
        return {
            "blocks": [msgspec.to_builtins(block) for block in self._blocks.all(user_id)],
            "episodes": [
                stored_form(episode_of(found)) for found in self._episodes.documents(user_id)
            ],
        }

    def forget(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        scrub: bool = True,
    ) -> ForgetReceipt:
        """Erase what is kept of a user, everywhere, in one commit; say what went.

        With a session, its episodes, what was derived from them alone, and what
        the user said in the thread of that name. With `before`, what happened or
        was stored before that moment. What is sent again later stays forgotten.
        `scrub=False` leaves the rewriting of the file to the next erasure.
        """
        self._watch(user_id)
        require_flag("dry_run", dry_run)
        require_flag("scrub", scrub)
        self._uses.flush()
        return self._forgetting.forget(user_id, session_id, before, dry_run=dry_run, scrub=scrub)

    def reindex(self, progress: Callable[[int], None] | None = None) -> int:
        """Make the search index of the whole tenant anew, with this handle's embedder.

        Returns how many memories were indexed; `progress` is called with how many
        so far. Until it is done a search finds what was indexed so far, and
        handles with another embedder are refused.
        """
        if progress is not None:
            require_callable("progress", progress)
        return self._index.rebuild(self._findables.all, progress)

    def users(self, *, after: str = "", limit: int = 100) -> list[str]:
        """Named users whose memories are kept, in order; for operators."""
        require_text("after", after)
        require_count(limit, "limit", most=10_000)
        return named_users(self._store, after=after, limit=limit)

    def _watch(self, user_id: str | None) -> None:
        require_user(user_id)
        if user_id is None:
            warn_if_anonymous(self._store, user_id, depth=3)


def _require_parts(policy: object, reranker: object) -> None:
    if policy is not None:
        require_policy(policy)
    if reranker is not None and not callable(getattr(reranker, "scores", None)):
        raise Invalid("reranker", f"{shown(reranker)} scores nothing", "it has scores()")


def _require_kind(kind: object) -> None:
    if kind != "episodic":
        raise Invalid(
            "kind", f"{shown(kind)} are no episodes", "leave it out, or ask recall_facts()"
        )

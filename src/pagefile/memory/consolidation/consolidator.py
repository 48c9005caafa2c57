"""Facts from episodes at hand, into any store of facts, without a memory's queue."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pagefile.errors import Invalid, shown
from pagefile.memory.consolidation.triage import fact_from, says_it_ended
from pagefile.memory.episodes.episode import Episode, as_spoken
from pagefile.memory.extraction.candidate import (
    Candidate,
    Extractor,
    chosen_extractor,
    require_extractor,
    signature_of,
)
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.store import FactStore
from pagefile.store.arguments import require_count, require_type


class Consolidator:
    """Reads the episodes it is given, and appends what they state to a `FactStore`.

    `model` is what `Memory` takes as `extractor`. Nothing is claimed, reviewed
    or noted as read: that is `Memory.consolidate`. Ids are made from what was
    said, so reading an episode again appends nothing new.
    """

    def __init__(
        self, *, model: Extractor | str = "rules", max_facts_per_episode: int = 20
    ) -> None:
        self._model = require_extractor(model)
        self._is_named = isinstance(model, str)
        self._most = require_count(max_facts_per_episode, "max_facts_per_episode", 1, 1_000)

    def consolidate(
        self,
        episodes: Sequence[Episode],
        *,
        store: FactStore,
        cancel: threading.Event | None = None,
    ) -> list[Fact]:
        """The facts that were appended, in the order they are stated.

        Those of an episode are appended before the next is read. One that cannot
        be read keeps nobody from the others, and its error is raised at the end;
        a statement that can be no fact is left out.
        """
        if not isinstance(episodes, (list, tuple)):
            raise Invalid("episodes", shown(episodes), "give a list of Episodes")
        for episode in episodes:
            require_type("episode", episode, Episode)
        require_type("store", store, FactStore)
        if isinstance(self._model, str):
            self._model = chosen_extractor(self._model)
        known: list[Fact] = []
        failure: Exception | None = None
        for episode in episodes:
            try:
                known += self._appended(self._model, episode, store, cancel)
            except Exception as error:  # noqa: BLE001  A model is somebody else's code.
                failure = failure or error
        if failure is not None:
            raise failure
        return known

    def close(self) -> None:
        """Close the connections of a model that was named and not given."""
        close = getattr(self._model, "close", None)
        if close is not None and self._is_named:
            close()

    def _appended(
        self,
        model: Extractor,
        episode: Episode,
        store: FactStore,
        cancel: threading.Event | None,
    ) -> list[Fact]:
        facts: dict[str, Fact] = {}
        ended: list[Candidate] = []
        for candidate in model.extract(as_spoken(episode), cancel=cancel)[: self._most]:
            if says_it_ended(candidate):
                ended.append(candidate)
                continue
            try:
                fact = fact_from(candidate, episode, signature_of(model))
            except Invalid:
                continue
            facts.setdefault(fact.id, fact)
        if facts:
            store.append_many(list(facts.values()))
        for candidate in ended:
            _end(candidate, episode, store, signature_of(model))
        return list(facts.values())


def _end(candidate: Candidate, episode: Episode, store: FactStore, actor: str) -> None:
    """What is known of it is so no longer."""
    since, user_id = candidate.valid_until, episode.user_id
    assert since is not None
    try:
        known = store.query(
            subject=candidate.subject,
            predicate=candidate.predicate,
            object_=candidate.object,
            user_id=user_id,
            limit=1,
        )
    except Invalid:
        return
    if known and known[0].valid_from < since:
        why = f"said in {episode.id}"
        store.retract(known[0].id, reason=why, actor=actor, user_id=user_id, since=since)

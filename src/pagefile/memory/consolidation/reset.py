"""Episodes that were given up, or wait after a failure, are opened to be read at once.

States are found by their names: only who has mended something asks for this.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pagefile.errors import Conflict, LimitExceeded
from pagefile.memory.consolidation.extraction_state import STATES, ExtractionState, put_state
from pagefile.memory.episodes.episode import document_of, episode_of, merging, put_episode
from pagefile.memory.serializer import shaped
from pagefile.store.batch import Batch, Condition, Operation, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

_PAGE = 500
_AT_ONCE = 20


def reopen_failed(store: Store) -> int:
    """Open every episode of the tenant whose last reading failed; how many they were."""
    opened, after = 0, ""
    while names := store.names("document", prefix=STATES, after=after, limit=_PAGE):
        failed = [one for one in store.get_many(names) if one is not None and _has_failed(one)]
        for at in range(0, len(failed), _AT_ONCE):
            opened += _reopened(store, failed[at : at + _AT_ONCE])
        after = names[-1]
    return opened


def _has_failed(document: Document) -> bool:
    if document.erased:
        return False
    state = shaped(document, ExtractionState)
    return state.status == "failed" or (state.status == "waiting" and bool(state.error))


def _reopened(store: Store, states: Sequence[Document]) -> int:
    operations: list[Operation] = []
    conditions: list[Condition] = []
    opened = 0
    for document in states:
        name = document_of(document.name.rsplit("/", 1)[1], document.user)
        held = store.get(name)
        if held is None or held.erased:
            continue
        state = shaped(document, ExtractionState)
        if state.status == "failed":
            operations.append(merging(put_episode(episode_of(held)), held.sources))
            if state.found_in == held.version:  # What was read is so in the next version too.
                state = msgspec.structs.replace(state, found_in=held.version + 1)
        reset = msgspec.structs.replace(state, status="waiting", attempts=0, until_us=0, error="")
        operations.append(put_state(document.name, document.user, reset))
        conditions.append(VersionIs(name, held.version))
        conditions.append(VersionIs(document.name, document.version))
        opened += 1
    if not opened:
        return 0
    try:
        store.commit(Batch(operations, conditions))
    except (Conflict, LimitExceeded) as error:
        # Somebody reads, changes or forgets one of them, or they are large: each by itself.
        if len(states) > 1:
            return sum(_reopened(store, [one]) for one in states)
        if isinstance(error, LimitExceeded):
            raise
        return 0
    return opened

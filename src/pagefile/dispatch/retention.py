"""Letting go of what is over: journals and marks of conversations that ended long ago.

Threads and their slots stay: they are the agents' memory, not the organism's.
"""

from __future__ import annotations

from pagefile.dispatch.names import BELL, CONVERSATIONS, ENDED, JOURNALS
from pagefile.errors import Conflict, NotFound
from pagefile.store.batch import Batch, Condition, Delete, Drop, Operation, Prune, Query, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

_PAGE = 100
#: So much of the bell may stand before what everybody has heard is let go.
_MOST_RUNG = 10_000


def let_go(store: Store, organism: str, before_us: int) -> int:
    """Forget conversations that ended before a moment; how many."""
    page = store.find(
        Query(ENDED, low=(organism, 0), high=(organism, before_us), everyone=True), limit=_PAGE
    )
    return sum(_forget(store, found) for found in page.items if isinstance(found, Document))


def _forget(store: Store, document: Document) -> bool:
    when: list[Condition] = [VersionIs(document.name, document.version)]
    operations: list[Operation] = [Delete(document.name)]
    if document.name.startswith(CONVERSATIONS):
        journal = JOURNALS + document.name.removeprefix(CONVERSATIONS)
        if store.has_log(journal):
            operations += [Prune(None, log=journal), Drop(journal)]
    try:
        store.commit(Batch(operations, when))
    except (Conflict, NotFound):
        return False  # It goes on, or another process was faster.
    return True


def quieten(store: Store) -> None:
    """Keep the bell's log short."""
    length = store.length(BELL)
    first = store.read(BELL, limit=1)
    if first and length - first[0].index > _MOST_RUNG:
        store.commit(Batch([Prune(length - _MOST_RUNG // 2, log=BELL)]))

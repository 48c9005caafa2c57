"""Forgetting: everything that is kept of a user, a session or a time, gone in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from pagefile.context.names import USAGE
from pagefile.context.names import log_of as thread_log
from pagefile.errors import Conflict, Invalid
from pagefile.memory.episodes.episode import document_of
from pagefile.memory.episodes.store import Episodes
from pagefile.memory.items.run_events import LEDGERS
from pagefile.memory.names import RECEIPTS, owner_key, unchanged_since
from pagefile.memory.privacy import dry_run as rehearsal
from pagefile.memory.privacy.chunks import Part, TooMany
from pagefile.memory.privacy.dry_run import rehearsed
from pagefile.memory.privacy.erasure_plan import Gone, gone_of
from pagefile.memory.privacy.forget_receipt import ForgetReceipt, forget_receipt, joined
from pagefile.memory.privacy.forget_runs import keeping_living, runs_in
from pagefile.memory.privacy.prompt_receipts import receipts_naming
from pagefile.memory.privacy.remnants import (
    beside_nobody,
    copies_of,
    ending,
    erased_in_part,
    texts_noted_since,
    texts_of_nothing_else,
)
from pagefile.memory.privacy.scope import Deriving, Extent
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.memory.provenance import OF_MEMORY, use_log
from pagefile.recall.index import SearchIndex
from pagefile.recall.records import entries_of
from pagefile.store.batch import Batch, Condition, Selector, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.records import Receipt, Touched
from pagefile.store.store import Store

#: How often it is tried again after something was remembered meanwhile.
_ATTEMPTS = 100

#: Logs that are made from other things.
_DERIVED = ("recall/", "memory/use/")
#: Where memory keeps documents and logs of each user, and of nobody.
PARTITIONED = (
    "memory/episode/",
    "memory/block/",
    "memory/candidate/",
    "memory/extraction/",
    "fact/",
    "fact-retraction/",
    "fact-alias/",
    "memory/use/",
    # The graph that clients of the reference memory server keep.
    "graph/entity/",
    "graph/relation/",
    "graph/import/",
    RECEIPTS,
)
#: What is one thing with all its versions: the older ones do not go alone.
_WHOLE = (
    "memory/episode/",
    "memory/candidate/",
    "memory/extraction/",
    "fact/",
    "fact-retraction/",
    "fact-alias/",
)


class Forgetting:
    """Finds what has to go, and erases it everywhere at once."""

    def __init__(self, store: Store, index: SearchIndex, derived: Deriving) -> None:
        self._store = store
        self._index = index
        self._episodes = Episodes(store)
        self._derived = derived

    def forget(self, extent: Extent, *, dry_run: bool = False, scrub: bool = True) -> ForgetReceipt:
        """Erase what matches, or say what would be erased.

        Raises:
            LimitExceeded: more was derived from one thing than a commit can name.
        """
        extent.require()
        done: list[ForgetReceipt] = []
        # None is all that is left; what is too much for one commit goes in parts before it.
        parts: list[Part | None] = [None]
        while parts:
            part = parts.pop()
            try:
                done.append(self._tried(extent, part, dry_run, scrub and not parts))
            except TooMany as many:
                parts += many.parted(part)
        return joined(done)

    def _tried(
        self, extent: Extent, part: Part | None, dry_run: bool, scrub: bool
    ) -> ForgetReceipt:
        for _ in range(_ATTEMPTS):
            try:
                return self._attempt(extent, part, dry_run, scrub)
            except Conflict as conflict:
                last = conflict  # Something was remembered meanwhile: it has to go too.
        raise last

    def _attempt(
        self, extent: Extent, part: Part | None, dry_run: bool, scrub: bool
    ) -> ForgetReceipt:
        user_id = extent.user_id
        position = self._store.head().position
        selectors = self._selectors(extent) if part is None else _naming(part.names)
        touched = rehearsed(self._store, selectors).removed
        if extent.before is not None and part is None:
            selectors = keeping_living(self._store, selectors, touched)
            touched = rehearsed(self._store, selectors).removed
        doomed = self._documents(touched)
        # Of a log that goes only in part, the rest may be brought in again.
        logs = _logs(touched)
        if extent.before is not None:
            logs = ending(self._store, touched, logs)
        # Their ids are those of what goes, too: something may rest on them by name.
        merged = self._episodes.merged(user_id, doomed)
        # Of a user who goes as a whole nothing has to be read to know what goes.
        gone = Gone() if extent.is_all else gone_of(doomed | merged, touched)
        going = gone if part is None else part.going
        derived = self._derived(user_id, gone, going)
        if derived.renewed is not None and not dry_run:
            # What stays says so without them, before they go.
            self._store.commit(derived.renewed)
            derived = self._derived(user_id, gone, going)
        is_whole = extent.is_all and part is None
        there = {one.name for one in touched}
        selectors = [one for one in selectors if one.document is None or one.document in there]
        if not extent.is_all:
            # Named, so that versions go too that are newer than what the rest is measured by.
            selectors += _naming(name for name in doomed if name.startswith(_WHOLE))
            selectors += _naming(name for name in derived.documents if name not in doomed)
            selectors += derived.parts
        ahead = [name for name in doomed if extent.is_all or name.startswith(_WHOLE)]
        doomed |= set(derived.documents)
        whole = None if is_whole else doomed
        if whole is not None:
            selectors += self._uses(user_id, doomed)
        entries, beside, when = self._index.erasure(user_id, owner_key(user_id), whole)
        if whole is not None and (doomed or touched):
            receipts = receipts_naming(self._store, user_id, doomed, touched)
            selectors += _naming(sorted(receipts))
            whole = doomed | receipts
        # What is found in two ways is named once.
        selectors = list(dict.fromkeys([*selectors, *entries]))
        if dry_run or not selectors:
            receipt = rehearsed(self._store, selectors)
            if not dry_run:
                # What an earlier one left is still to be done.
                receipt = self._store.erase([], scrub=scrub)
                receipt = self._without_vectors(receipt, user_id, whole=is_whole)
            if user_id is not None and part is None:
                receipt = _with_steps(receipt, beside_nobody(self._store, touched))
            return forget_receipt(receipt, whole, derived.kept, dry_run=dry_run)
        if len(selectors) > rehearsal.MOST_NAMED:
            raise TooMany(Part(sorted(ahead), going), len(selectors))
        forgotten = forgotten_of(self._store, user_id)
        told = erased_in_part(self._store, touched, doomed)
        operations = [
            *forgotten.with_names(sorted(doomed | logs | merged)),
            *derived.beside,
            *beside,
            *(event.operation for event in told),
        ]
        conditions: list[Condition] = [
            *when,
            *derived.conditions,
            *(event.condition for event in told),
            VersionIs(forgotten.document, forgotten.version),
            unchanged_since(user_id, position),
        ]
        # Read before their ledgers go: packs are files that no store reaches.
        left_over = self._packs(extent, touched) if part is None else []
        if user_id is not None and part is None:
            left_over += beside_nobody(self._store, touched)
        receipt = self._store.erase(selectors, beside=Batch(operations, conditions), scrub=scrub)
        receipt = _with_steps(receipt, left_over)
        receipt = self._without_vectors(receipt, user_id, whole=is_whole)
        return forget_receipt(receipt, whole, derived.kept, dry_run=False)

    def _without_vectors(self, receipt: Receipt, user_id: str | None, *, whole: bool) -> Receipt:
        """The receipt, after what lies elsewhere was asked to let go too."""
        keeper = self._index.keeper
        left = "" if keeper is None else keeper.erased(owner_key(user_id), whole=whole)
        if not left:
            return receipt
        remaining = (*receipt.remaining, left)
        return msgspec.structs.replace(receipt, level="logical", remaining=remaining)

    def _selectors(self, extent: Extent) -> list[Selector]:
        user_id, session_id, before = extent.user_id, extent.session_id, extent.before
        if extent.episode_id is not None:
            name = document_of(extent.episode_id, user_id)
            if self._store.get(name) is None:
                # One that was never here is nothing to erase, and nothing to note.
                return _naming(self._episodes.holding(user_id, extent.episode_id))
            return [Selector(document=name)]
        before_us = None if before is None else microseconds(before)
        if session_id is None and user_id is not None:
            whole = Selector(user=user_id, before_us=before_us)
            if before is None:
                return [whole]
            if self._store.names("document", prefix=USAGE, limit=1):
                noted = texts_noted_since(self._store, whole, self._holds(user_id))
                whole = msgspec.structs.replace(whole, sparing=noted)
            recorded = self._recorded_before(user_id, before)
            return [whole, *self._episodes_before(user_id, None, before), *recorded]
        selectors = self._episodes_before(user_id, session_id, before)
        if session_id is not None:
            # A session's thread is the one of the same name; what others said in it stays.
            whose = Selector(user=user_id, anonymous=user_id is None, before_us=before_us)
            return selectors + self._on_thread(session_id, whose)
        selectors += of_nobody(self._store, before_us)
        return selectors if before is None else selectors + self._recorded_before(None, before)

    def _on_thread(self, session_id: str, whose: Selector) -> list[Selector]:
        """What somebody has on the thread of that name: slots, with their texts, and runs."""
        log = self._thread_of(session_id)
        # Nobody said whose the runs of nobody are.
        has_runs = whose.user is not None and self._has_runs()
        if log is None and not has_runs:
            return []
        logs, selectors = self._holds(whose.user), list[Selector]()
        if log is not None:
            going = msgspec.structs.replace(whose, log=log)
            selectors.append(going)
            texts = texts_of_nothing_else(self._store, going, logs)
            selectors += [Selector(document=name) for name in texts]
        if has_runs:
            selectors += runs_in(self._store, logs, session_id, whose)
        return selectors

    def _has_runs(self) -> bool:
        """Whether there are any of the tenant: else nobody's have to be looked for."""
        return bool(self._store.names("log", prefix=LEDGERS, limit=1))

    def _holds(self, user_id: str | None) -> set[str]:
        """The logs that hold something of the user, or of nobody."""
        whole = Selector(user=user_id, anonymous=user_id is None)
        return _names_of_logs(rehearsed(self._store, [whole]).removed)

    def _packs(self, extent: Extent, touched: Sequence[Touched]) -> list[str]:
        """A step for each resume pack that may hold what goes."""
        if extent.session_id is None:
            return copies_of(self._store, _names_of_logs(touched))
        if not self._has_runs():
            return []
        if extent.user_id is None and self._thread_of(extent.session_id) is None:
            return []
        return copies_of(self._store, self._holds(extent.user_id), extent.session_id)

    def _episodes_before(
        self, user_id: str | None, session_id: str | None, before: datetime | None
    ) -> list[Selector]:
        documents = self._episodes.documents(user_id, session_id=session_id, before=before)
        return [Selector(document=document.name) for document in documents]

    def _recorded_before(self, user_id: str | None, before: datetime) -> list[Selector]:
        """Facts that say themselves that they were recorded earlier than they were stored."""
        return [Selector(document=name) for name in self._derived.recorded(user_id, before)]

    def _thread_of(self, session_id: str) -> str | None:
        """The log of the thread of that name; not every session could name one."""
        try:
            log = thread_log(session_id)
            return log if self._store.has_log(log) else None
        except Invalid:
            return None

    def _uses(self, user_id: str | None, documents: Iterable[str]) -> list[Selector]:
        """The notes of recalls that gave these back."""
        log = use_log(user_id)
        if not self._store.has_log(log):
            return []
        wanted = frozenset(documents)
        numbers = frozenset(
            entry.index
            for entry in entries_of(self._store, log)
            if not entry.erased and entry.keys.get(OF_MEMORY) in wanted
        )
        return [Selector(log=log, numbers=numbers)] if numbers else []

    def _documents(self, touched: Sequence[Touched]) -> set[str]:
        """The documents that will be gone; one whose newest version stays is not."""
        return {
            one.name
            for one in touched
            if one.stream == "document" and one.name is not None and self._is_last(one)
        }

    def _is_last(self, one: Touched) -> bool:
        assert one.name is not None
        if one.name.startswith(_WHOLE):
            return True
        found = self._store.get(one.name)
        return found is None or found.version <= one.last


def of_nobody(store: Store, before_us: int | None = None) -> list[Selector]:
    """What memory keeps in the bucket of nobody, name by name: the rest is not memory's."""
    found = [
        # The name says that it is nobody's; each would be looked for among all of nobody's.
        Selector(document=name, before_us=before_us)
        for prefix in PARTITIONED
        for name in _names(store, f"{prefix}anon/")
    ]
    log = use_log(None)
    if store.has_log(log):
        found.append(Selector(anonymous=True, log=log, before_us=before_us))
    return found


def _with_steps(receipt: Receipt, steps: Sequence[str]) -> Receipt:
    return msgspec.structs.replace(receipt, remaining=(*receipt.remaining, *steps))


def _naming(names: Iterable[str]) -> list[Selector]:
    return [Selector(document=name) for name in names]


def _logs(touched: Sequence[Touched]) -> set[str]:
    """The logs of which something goes, without those that are derived."""
    return {name for name in _names_of_logs(touched) if not name.startswith(_DERIVED)}


def _names_of_logs(touched: Sequence[Touched]) -> set[str]:
    return {one.name for one in touched if one.stream == "log" and one.name is not None}


def _names(store: Store, prefix: str) -> list[str]:
    found: list[str] = []
    after = ""
    while page := store.names("document", prefix=prefix, after=after, limit=10_000):
        found += page
        after = page[-1]
    return found

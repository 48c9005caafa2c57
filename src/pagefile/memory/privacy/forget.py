"""Forgetting: everything that is kept of a user, a session or a time, gone in one commit.

What there is to be forgotten is not listed here: rooms say it, as `pagefile.store.kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property

from msgspec.structs import replace

from pagefile.context.names import USAGE
from pagefile.context.names import log_of as thread_log
from pagefile.errors import Conflict, Invalid
from pagefile.memory.documents import living, owner_key, unchanged_since
from pagefile.memory.episodes.episode import document_of
from pagefile.memory.episodes.store import Episodes
from pagefile.memory.items.item import LEDGERS
from pagefile.memory.privacy import erasure_plan
from pagefile.memory.privacy.dependents import DerivedFromEpisodes
from pagefile.memory.privacy.erasure_plan import (
    Extent,
    Gone,
    Part,
    TooMany,
    gone_of,
    names_of,
    rehearsed,
    spans_of,
)
from pagefile.memory.privacy.forget_receipt import ForgetReceipt, forget_receipt, joined
from pagefile.memory.privacy.remnants import (
    anonymous_beside,
    ending,
    erased_in_part,
    keeping_living,
    packs_of,
    runs_in,
    texts_noted_since,
    texts_of_nothing_else,
)
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.memory.provenance import OF_MEMORY, use_log
from pagefile.recall.index import SearchIndex
from pagefile.recall.records import entries_of
from pagefile.store.batch import Batch, Condition, Selector, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.kinds import Spans, Taken, registry
from pagefile.store.records import Receipt, Touched
from pagefile.store.store import Store

#: How often it is tried again after something was remembered meanwhile.
_ATTEMPTS = 100
_PAGE = 1_000


class Forgetting:
    """Finds what has to go, and erases it everywhere at once."""

    def __init__(self, store: Store, index: SearchIndex, derived: DerivedFromEpisodes) -> None:
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
        user_id, store = extent.user_id, self._store
        position = store.head().position
        held = _Held(store, extent)
        selectors, touched = self._named(extent, part, held)
        taken = registry().each_of(touched)
        doomed = self._documents(taken)
        # Of a log that goes only in part, the rest may be brought in again.
        logs = {
            name
            for name, kind, one in taken
            if one.stream == "log" and name and (kind is None or not kind.returns)
        }
        if extent.before is not None:
            logs = ending(store, touched, logs)
        # Their ids are those of what goes, too: something may rest on them by name.
        merged = self._episodes.merged(user_id, doomed)
        # Of a user who goes as a whole nothing has to be read to know what goes.
        gone = Gone() if extent.is_all else gone_of(doomed | merged, taken)
        going = gone if part is None else part.going
        derived = self._derived(user_id, gone, going)
        if derived.renewed is not None and not dry_run:
            # What stays says so without them, before they go.
            store.commit(derived.renewed)
            derived = self._derived(user_id, gone, going)
        there = {one.name for one in touched}
        selectors = [one for one in selectors if one.document is None or one.document in there]
        if extent.is_all:
            ahead = list(doomed)
        else:
            whole = {name for name, kind, _ in taken if kind is not None and kind.whole}
            ahead = [name for name in doomed if name in whole]
            # Named, so that versions go too that are newer than what the rest is measured by.
            selectors += _naming(ahead)
            selectors += _naming(name for name in derived.documents if name not in doomed)
            selectors += derived.parts
        doomed |= set(derived.documents)
        # The documents that go, None where all of the user's do.
        named = None if extent.is_all and part is None else doomed
        if named is not None:
            selectors += self._uses(user_id, doomed)
        entries, beside, when = self._index.erasure(user_id, owner_key(user_id), named)
        if named is not None and (doomed or touched):
            mentions = self._mentioning(user_id, doomed, spans_of(touched))
            selectors += _naming(mentions)
            named = doomed.union(mentions)
        # What is found in two ways is named once.
        selectors = list(dict.fromkeys([*selectors, *entries]))
        steps = [] if user_id is None or part is not None else anonymous_beside(store, touched)
        if dry_run or not selectors:
            receipt = rehearsed(store, selectors)
            if not dry_run:
                # What an earlier one left is still to be done.
                receipt = store.erase([], scrub=scrub)
                receipt = self._without_vectors(receipt, user_id, whole=named is None)
            receipt = _with_steps(receipt, steps)
            return forget_receipt(receipt, named, derived.kept, dry_run=dry_run)
        if len(selectors) > erasure_plan.MOST_NAMED:
            raise TooMany(Part(sorted(ahead), going), len(selectors))
        if part is None:
            # Read before their ledgers go: packs are files that no store reaches.
            steps = _packs(store, extent, held, touched) + steps
        forgotten = forgotten_of(store, user_id)
        events = erased_in_part(store, taken, doomed)
        operations = [
            *forgotten.with_names(sorted(doomed | logs | merged)),
            *derived.beside,
            *beside,
            *(event.operation for event in events),
        ]
        conditions: list[Condition] = [
            *when,
            *derived.conditions,
            *(event.condition for event in events),
            VersionIs(forgotten.document, forgotten.version),
            unchanged_since(user_id, position),
        ]
        receipt = store.erase(selectors, beside=Batch(operations, conditions), scrub=scrub)
        receipt = self._without_vectors(_with_steps(receipt, steps), user_id, whole=named is None)
        return forget_receipt(receipt, named, derived.kept, dry_run=False)

    def _without_vectors(self, receipt: Receipt, user_id: str | None, *, whole: bool) -> Receipt:
        """The receipt, after what lies elsewhere was asked to let go too."""
        keeper = self._index.keeper
        left = "" if keeper is None else keeper.erased(owner_key(user_id), whole=whole)
        return replace(_with_steps(receipt, [left]), level="logical") if left else receipt

    # What is named by whom and when

    def _named(
        self, extent: Extent, part: Part | None, held: _Held
    ) -> tuple[list[Selector], Sequence[Touched]]:
        """What the extent names itself, or a part of it, and what that takes."""
        if part is not None:
            selectors = _naming(part.names)
            return selectors, rehearsed(self._store, selectors).removed
        selectors = self._selectors(extent, held)
        touched = rehearsed(self._store, selectors).removed
        if extent.before is not None:
            selectors = keeping_living(self._store, selectors, touched)
            touched = rehearsed(self._store, selectors).removed
        return selectors, touched

    def _selectors(self, extent: Extent, held: _Held) -> list[Selector]:
        user_id, session_id, before = extent.user_id, extent.session_id, extent.before
        if extent.episode_id is not None:
            name = document_of(extent.episode_id, user_id)
            if self._store.get(name) is None:
                # One that was never here is nothing to erase, and nothing to note.
                return _naming(self._episodes.holding(user_id, extent.episode_id))
            return _naming([name])
        before_us = None if before is None else microseconds(before)
        if session_id is not None:
            # A session's thread is the one of the same name; what others said in it stays.
            whose = Selector(user=user_id, anonymous=user_id is None, before_us=before_us)
            episodes = self._episodes_before(user_id, session_id, before)
            return episodes + self._on_thread(session_id, whose, held)
        if user_id is None:
            found = self._episodes_before(None, None, before) + of_anonymous(self._store, before_us)
        else:
            whole = Selector(user=user_id, before_us=before_us)
            if before is None:
                return [whole]
            if self._store.names("document", prefix=USAGE, limit=1):
                noted = texts_noted_since(self._store, whole, held.logs)
                whole = replace(whole, sparing=noted)
            found = [whole, *self._episodes_before(user_id, None, before)]
        # Facts say themselves when they were recorded, earlier than they were stored.
        return found if before is None else found + _naming(self._derived.recorded(user_id, before))

    def _on_thread(self, session_id: str, whose: Selector, held: _Held) -> list[Selector]:
        """What somebody has on the thread of that name: slots, with their texts, and runs."""
        selectors: list[Selector] = []
        if held.thread is not None:
            going = replace(whose, log=held.thread)
            selectors = [going, *_naming(texts_of_nothing_else(self._store, going, held.logs))]
        # Whose the runs without a user are was never said.
        if whose.user is not None and held.runs:
            selectors += runs_in(self._store, held.logs, session_id, whose)
        return selectors

    def _episodes_before(
        self, user_id: str | None, session_id: str | None, before: datetime | None
    ) -> list[Selector]:
        found = self._episodes.documents(user_id, session_id=session_id, before=before)
        return _naming(document.name for document in found)

    # What goes with it

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

    def _mentioning(self, user_id: str | None, gone: set[str], spans: Spans) -> list[str]:
        """The user's documents that speak of what goes, such as receipts of prompts."""
        found: list[str] = []
        for kind in registry():
            if kind.mentions is None:
                continue
            prefix, after = f"{kind.prefix}{owner_key(user_id)}/", ""
            while names := self._store.names("document", prefix=prefix, after=after, limit=_PAGE):
                there = living(one for one in self._store.get_many(names) if one is not None)
                found += [one.name for one in there if kind.mentions(one, gone, spans)]
                after = names[-1]
        return sorted(found)

    def _documents(self, taken: Taken) -> set[str]:
        """The documents that will be gone; one whose newest version stays is not."""
        return {
            name
            for name, kind, one in taken
            if one.stream == "document"
            and name
            and ((kind is not None and kind.whole) or self._is_last(name, one))
        }

    def _is_last(self, name: str, one: Touched) -> bool:
        found = self._store.get(name)
        return found is None or found.version <= one.last


class _Held:
    """What a store holds of a user and on a session's thread; each is asked for once."""

    def __init__(self, store: Store, extent: Extent) -> None:
        self._store = store
        self._extent = extent

    @cached_property
    def logs(self) -> set[str]:
        """The logs that hold something of the user, or of the anonymous user."""
        user_id = self._extent.user_id
        whole = Selector(user=user_id, anonymous=user_id is None)
        return _logs(rehearsed(self._store, [whole]).removed)

    @cached_property
    def thread(self) -> str | None:
        """The log of the thread of the session's name; not every session could name one."""
        try:
            log = thread_log(self._extent.session_id or "")
            return log if self._store.has_log(log) else None
        except Invalid:
            return None

    @cached_property
    def runs(self) -> bool:
        """Whether the tenant has any runs: else the user's need not be looked for."""
        return bool(self._store.names("log", prefix=LEDGERS, limit=1))


def of_anonymous(store: Store, before_us: int | None = None) -> list[Selector]:
    """What stands in the bucket of the anonymous user, name by name.

    Their other records are not memory's: they may be anybody's.
    """
    found: list[Selector] = []
    for kind in registry():
        name = f"{kind.prefix}{owner_key(None)}"
        if kind.bucket and kind.stream == "log" and store.has_log(name):
            found.append(Selector(anonymous=True, log=name, before_us=before_us))
        elif kind.bucket and kind.stream == "document":
            # The name says whose it is; each would be looked for among all of theirs.
            names = names_of(store, f"{name}/")
            found += [Selector(document=each, before_us=before_us) for each in names]
    return found


def _packs(store: Store, extent: Extent, held: _Held, touched: Sequence[Touched]) -> list[str]:
    """A step for each resume pack that may hold what goes."""
    if extent.session_id is None:
        return packs_of(store, _logs(touched))
    if not held.runs or (extent.user_id is None and held.thread is None):
        return []
    return packs_of(store, held.logs, extent.session_id)


def _with_steps(receipt: Receipt, steps: Sequence[str]) -> Receipt:
    return replace(receipt, remaining=(*receipt.remaining, *steps)) if steps else receipt


def _naming(names: Iterable[str]) -> list[Selector]:
    return [Selector(document=name) for name in names]


def _logs(touched: Sequence[Touched]) -> set[str]:
    return {one.name for one in touched if one.stream == "log" and one.name is not None}

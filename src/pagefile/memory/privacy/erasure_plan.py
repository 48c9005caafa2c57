"""What is to be forgotten: its extent, what it takes, and how much one commit can name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from pagefile.context.names import THREADS
from pagefile.errors import Invalid, LimitExceeded
from pagefile.memory.documents import require_session, require_user
from pagefile.memory.episodes.episode import EPISODES, require_episode_id
from pagefile.memory.facts.fact import require_moment
from pagefile.store.batch import Selector
from pagefile.store.kinds import Spans, Taken
from pagefile.store.records import Receipt, Touched
from pagefile.store.store import Store

#: How many selectors a store unites in one erasure.
MOST_NAMED = 100_000
_PAGE = 10_000


class Extent(msgspec.Struct, frozen=True):
    """How much of a user is to be forgotten: everything, a session, an episode, or a time."""

    user_id: str | None
    session_id: str | None = None
    episode_id: str | None = None
    before: datetime | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing bounds it."""
        return self.session_id is None and self.episode_id is None and self.before is None

    def require(self) -> None:
        """Refuse what cannot be meant."""
        require_user(self.user_id)
        if self.session_id is not None:
            require_session(self.session_id)
        if self.before is not None:
            require_moment("before", self.before)
        if self.episode_id is not None:
            require_episode_id(self.episode_id)
            if self.session_id is not None or self.before is not None:
                raise Invalid(
                    "episode_id",
                    "one episode is meant, and a session or a time besides",
                    "give the episode alone",
                )


class Gone(msgspec.Struct, frozen=True):
    """Episodes by their ids, and slots: of each thread the first and last of every run of them.

    A slot is called by its thread and its index, `thread-7/12`. `versions` are those of
    documents that go whatever they rest on, in runs too.
    """

    episodes: frozenset[str] = frozenset()
    slots: Mapping[str, Sequence[tuple[int, int]]] = {}
    versions: Mapping[str, Sequence[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self.episodes or self.slots)

    def __contains__(self, source: str) -> bool:
        if source in self.episodes:
            return True
        thread, _, index = source.rpartition("/")
        runs = self.slots.get(thread) if index.isdecimal() else None
        return runs is not None and _is_in(runs, int(index))

    def has_version(self, name: str, version: int) -> bool:
        """Whether this version of a document goes whatever it rests on."""
        return _is_in(self.versions.get(name, ()), version)

    def touches(self, sources: Iterable[str]) -> bool:
        """Whether one of the sources goes."""
        return any(source in self for source in sources)

    def covers(self, sources: Sequence[str]) -> bool:
        """Whether all of the sources go, so that nothing is left to rest on."""
        return bool(sources) and all(source in self for source in sources)

    def without(self, sources: Iterable[str]) -> tuple[str, ...]:
        """The sources that stay."""
        return tuple(source for source in sources if source not in self)


def gone_of(documents: Iterable[str], taken: Taken) -> Gone:
    """What goes of episodes, of threads, and of what rests on others."""
    slots: dict[str, list[tuple[int, int]]] = {}
    versions: dict[str, list[tuple[int, int]]] = {}
    for name, kind, one in taken:
        if kind is not None and kind.rests:
            versions.setdefault(name, []).append((one.first, one.last))
        elif name.startswith(THREADS):
            slots.setdefault(name.removeprefix(THREADS), []).append((one.first, one.last))
    ids = (name.rsplit("/", 1)[1] for name in documents if name.startswith(EPISODES))
    return Gone(frozenset(ids), slots, versions)


def spans_of(touched: Sequence[Touched]) -> Spans:
    """The numbers that go of each stream whose name is known."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for one in touched:
        if one.name is not None:
            spans.setdefault(one.name, []).append((one.first, one.last))
    return spans


def _is_in(runs: Sequence[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in runs)


class Part(msgspec.Struct, frozen=True):
    """Documents that go in a commit of their own, and all that goes in the end."""

    names: Sequence[str]
    going: Gone


class TooMany(Exception):
    """One commit cannot name it all; these documents can go before the rest."""

    def __init__(self, ahead: Part, wanted: int) -> None:
        super().__init__(wanted)
        self._ahead = ahead
        self._wanted = wanted

    def parted(self, part: Part | None) -> list[Part | None]:
        """The parts to be done one after the other, the last one first; it is `part`'s rest."""
        names, going = self._ahead.names, self._ahead.going
        size = min(len(names) // 2, MOST_NAMED // 2)
        if not size:
            raise LimitExceeded(
                "the number of things that one call forgets by name",
                limit=MOST_NAMED,
                wanted=self._wanted,
                next_step="forget in steps, with `before`",
            )
        rest, others = names[-size:], names[:-size]
        parts = [Part(others[at : at + size], going) for at in range(0, len(others), size)]
        return [None if part is None else Part(rest, going), *parts]


def rehearsed(store: Store, selectors: Sequence[Selector]) -> Receipt:
    """What these take together; nothing is touched."""
    if not selectors:
        return Receipt(None, (), 0, 0, "bytes")
    if len(selectors) <= MOST_NAMED:
        return store.erase(selectors, dry_run=True)
    named = [one for one in selectors if _names_a_document(one)]
    others = [one for one in selectors if not _names_a_document(one)]
    wide = rehearsed(store, others)
    parts = [store.erase(some, dry_run=True) for some in _parts(named)]
    # What the others take of a document that is named, too, must not count twice.
    names = {one.document for one in named}
    twice = [one for one in wide.removed if one.stream == "document" and one.name in names]
    once = [one for one in wide.removed if one.stream != "document" or one.name not in names]
    again = [Selector(document=one.name, first=one.first, last=one.last) for one in twice]
    doubled = [store.erase(some, dry_run=True) for some in _parts(again)]
    return Receipt(
        None,
        (*once, *(one for part in parts for one in part.removed)),
        wide.records + sum(part.records for part in parts) - sum(part.records for part in doubled),
        wide.size_bytes
        + sum(part.size_bytes for part in parts)
        - sum(part.size_bytes for part in doubled),
        "logical",
        (parts or [wide])[-1].remaining,
    )


def _names_a_document(selector: Selector) -> bool:
    return selector.document is not None and selector.user is None and not selector.anonymous


def _parts(named: Sequence[Selector]) -> Iterator[list[Selector]]:
    """As many at a time as a store takes; what names the same document stays together."""
    part: list[Selector] = []
    ordered = sorted(named, key=lambda one: one.document or "")
    for _, same in groupby(ordered, key=lambda one: one.document):
        group = list(same)
        if part and len(part) + len(group) > MOST_NAMED:
            yield part
            part = []
        part += group
    if part:
        yield part


def names_of(store: Store, prefix: str) -> Iterator[str]:
    """The documents whose names begin like this, page by page."""
    after = ""
    while page := store.names("document", prefix=prefix, after=after, limit=_PAGE):
        yield from page
        after = page[-1]

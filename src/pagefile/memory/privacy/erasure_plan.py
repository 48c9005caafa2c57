"""What goes when something is forgotten, by the ids under which others rest on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pagefile.context.names import THREADS
from pagefile.store.records import Touched

_EPISODES = "memory/episode/"
#: Documents that rest on others, and may go by themselves.
_RESTING = ("item/", "item-batch/", "fact/", "memory/candidate/")


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


def gone_of(documents: Iterable[str], touched: Sequence[Touched]) -> Gone:
    """What goes of episodes, and of threads."""
    slots: dict[str, list[tuple[int, int]]] = {}
    versions: dict[str, list[tuple[int, int]]] = {}
    for one in touched:
        if one.stream == "document" and one.name is not None and one.name.startswith(_RESTING):
            versions.setdefault(one.name, []).append((one.first, one.last))
        if one.stream == "log" and one.name is not None and one.name.startswith(THREADS):
            runs = slots.setdefault(one.name.removeprefix(THREADS), [])
            runs.append((one.first, one.last))
    ids = (name.rsplit("/", 1)[1] for name in documents if name.startswith(_EPISODES))
    return Gone(frozenset(ids), slots, versions)


def _is_in(runs: Sequence[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in runs)

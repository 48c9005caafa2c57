"""Everything in memory that can be found: for making the index anew, and for what is brought in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from pagefile.errors import Invalid
from pagefile.memory.documents import owner_key
from pagefile.memory.episodes.episode import EPISODES, Episode
from pagefile.memory.episodes.writer import findable as findable_episode
from pagefile.memory.facts.documents import FACTS, StoredAssertion
from pagefile.memory.facts.index import findable_fact
from pagefile.recall.index import Findable, Place, SearchIndex, Source
from pagefile.recall.records import Catalogue
from pagefile.store.batch import Append, Condition, Operation, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store

_PAGE = 1_000
#: How many documents are read at once.
_READ = 200
#: After every place of a log.
_NOWHERE = Place(2**62, None)


class Findables:
    """What a document is found by, whatever kind of memory it is."""

    def __init__(self, store: Store, index: SearchIndex) -> None:
        self._store = store
        self._index = index

    def all(self, held: Catalogue) -> Iterator[Source]:
        """Everything of every user, partition by partition, in the order it was indexed in.

        That is the order in the index `held`: turns of one moment are told apart by it alone.
        """
        for prefix in (EPISODES, FACTS):
            for whose, group in groupby(self._names(prefix), _owner):
                yield from self._of_owner(held, whose, list(group))

    def named(self, documents: Sequence[str], held: Catalogue, since: int) -> Iterator[Source]:
        """What documents that were put after a position are found by, partition by partition.

        Many are found by nothing.
        """
        for prefix in (EPISODES, FACTS):
            known = sorted(name for name in documents if name.startswith(prefix))
            for whose, group in groupby(known, _owner):
                yield from self._of_owner(held, whose, list(group), since)

    def _of_owner(
        self, held: Catalogue, whose: str, names: list[str], since: int = 0
    ) -> Iterator[Source]:
        """What a user's documents of one kind are found by, and the vectors given with them."""
        places: dict[str, Place] = {}
        if names[0].startswith(EPISODES):
            places = self._index.places(held, whose, since)
            if since and not places.keys() >= set(names):
                # Put again without being indexed again, as when its facts were read out of it.
                places = self._index.places(held, whose)
        names.sort(key=lambda name: places.get(name, _NOWHERE).at)
        for source in self._read(names):
            vector = places.get(source.thing.key, _NOWHERE).vector
            if vector is not None:
                thing = msgspec.structs.replace(source.thing, vector=vector)
                yield msgspec.structs.replace(source, thing=thing)
            else:
                yield source

    def _names(self, prefix: str) -> Iterator[str]:
        after = ""
        while names := self._store.names("document", prefix=prefix, after=after, limit=_PAGE):
            yield from names
            after = names[-1]

    def _read(self, names: Sequence[str]) -> Iterator[Source]:
        for at in range(0, len(names), _READ):
            for found in self._store.get_many(names[at : at + _READ]):
                if found is not None and not found.erased:
                    for thing in _things(found.name, found.user, found.value):
                        yield Source(found.user, owner_key(found.user), found.version, thing)

    def check(self, operation: Append | Put) -> None:
        """Refuse what calls itself something to be found, and is not.

        Raises:
            Invalid: it is no such thing, or another's.
        """
        if isinstance(operation, Put):
            _things(operation.document, operation.user, operation.value)

    def indexing(self, puts: Sequence[Put]) -> tuple[list[Operation], list[Condition]]:
        """What makes documents of one user findable that are about to be put as they are."""
        things = [thing for put in puts for thing in _things(put.document, put.user, put.value)]
        if not things:
            return [], []
        user = puts[0].user
        entries = self._index.analysed(things)
        return self._index.operations(user, owner_key(user), entries)


def _owner(name: str) -> str:
    """Whose a document is, as its name says it."""
    prefix = EPISODES if name.startswith(EPISODES) else FACTS
    return name.removeprefix(prefix).partition("/")[0]


def _things(name: str, user: str | None, value: Any) -> list[Findable]:
    """What a document is found by; nothing when it is not there to be found.

    By its name: a run's milestones are called episodes too.
    """
    kind = "episode" if name.startswith(EPISODES) else "fact" if name.startswith(FACTS) else ""
    try:
        if kind == "episode":
            episode = convert(value, Episode)
            if episode.document != name or episode.user_id != user:
                raise Invalid(name, "is not the episode of that name", "export it again")
            return [findable_episode(episode)]
        if kind == "fact":
            said = convert(value, StoredAssertion)
            words = (said.subject, said.predicate, said.object)
            return [findable_fact(name, *words, said.from_us)]
    except msgspec.ValidationError as error:
        raise Invalid(name, f"is no {kind} ({error})", "export it again") from error
    return []

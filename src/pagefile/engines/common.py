"""What several engines share: named SQL, parts of a group, what a writer knows of a tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from pagefile.store.commit.idempotency import KeyExpiry
from pagefile.store.engine import DOCUMENT, LOG, Prepared, RawCommit, Stream, TenantHead
from pagefile.store.records import StreamKind

#: How often, in commits, expired idempotency keys are swept out.
SWEEP_EVERY = 256
#: How many commits back made keys are looked for at once.
RECENT_KEYS = 4_096
_MOST_ABSENT = 4_096


def load_queries(dialect: str) -> dict[str, str]:
    """The dialect's queries by name. `-- :name sentence` starts one."""
    text = (_folder(dialect) / "queries.sql").read_text(encoding="utf-8")
    queries: dict[str, str] = {}
    for block in text.split("-- :")[1:]:
        title, _, body = block.partition("\n")
        queries[title.split(" ", 1)[0]] = body.strip()
    return queries


def load_migrations(dialect: str) -> list[str]:
    """The scripts that lead from format 0 to the newest, in order."""
    folder = _folder(dialect)
    names = sorted(f.name for f in folder.iterdir() if f.name[:4].isdigit())
    return [(folder / name).read_text(encoding="utf-8") for name in names]


def _folder(dialect: str) -> Traversable:
    engine, *part = dialect.split("/")
    return files("pagefile.engines").joinpath(engine, "sql", *part)


def parts_of(
    items: Sequence[tuple[str, Prepared]], most_bytes: int
) -> Sequence[Sequence[tuple[str, Prepared]]]:
    """The same batches in the same order; only a single one may be larger than a part."""
    if len(items) == 1:
        return (items,)
    parts: list[Sequence[tuple[str, Prepared]]] = []
    start = size = 0
    for at, (_, batch) in enumerate(items):
        own = sum(len(content.body) for write in batch.writes for content in write.contents)
        if size and size + own > most_bytes:
            parts.append(items[start:at])
            start, size = at, 0
        size += own
    return [*parts, items[start:]]


class MadeKeys:
    """Where the commits of one tenant with made keys are: the last ones, and the group's."""

    def __init__(self, position: int) -> None:
        #: All commits after a position.
        self._recent: dict[str, int] = {}
        self.after = position
        #: Older ones that the group under way asked for, 0 for one that is not there.
        self._looked_for: dict[str, int] = {}

    def note(self, key: str, position: int) -> None:
        """A commit with this key is there now."""
        self._recent[key] = position
        if len(self._recent) > 2 * RECENT_KEYS:
            self._recent.clear()
            self.after = position
            self.forget_group()  # They may be among what is not known any more.

    def reach_back(self, after: int, found: Iterable[tuple[str, int]]) -> None:
        """All commits after an older position are known now, with those that were found."""
        self._recent.update(found)
        self.after = after

    def knows_of(self, key: str, after: int) -> bool:
        """Whether `place` tells what there is to tell of a key that was made after a position."""
        return after >= self.after or key in self._looked_for

    def place(self, key: str) -> int:
        """The position of the commit with this key; 0 when there is none."""
        return self._recent.get(key) or self._looked_for.get(key, 0)

    def old_ones(self, batches: Sequence[Prepared]) -> list[Prepared]:
        """Those whose keys have to be looked for."""
        return [batch for batch in batches if 0 <= batch.after < self.after]

    def were_looked_for(self, keys: Iterable[str], found: Iterable[tuple[str, int]]) -> None:
        """What was found of the group's keys."""
        self._looked_for = dict.fromkeys(keys, 0) | dict(found)

    def forget_group(self) -> None:
        """It is over: what was looked for is known no longer."""
        if self._looked_for:
            self._looked_for.clear()


class TenantCache:
    """What a writer knows of one tenant between its commits, so that writing alone only inserts.

    Streams by name and by number, one object for each; names that were looked for
    in vain; made keys; which given keys have expired.
    """

    def __init__(self, head: TenantHead, key_lifetime_us: int) -> None:
        self.head = head
        self.keys = MadeKeys(head.position)
        #: Given keys of earlier commits have expired.
        self.keys_from = 1
        self._key_lifetime_us = key_lifetime_us
        self._expiry = KeyExpiry()
        self._logs: dict[str, Stream] = {}
        self._documents: dict[str, Stream] = {}
        #: Dropped ones too: the objects say more than rows that are not written yet.
        self._numbered: dict[int, Stream] = {}
        #: A new name is asked about twice, and some are in every commit.
        self._absent: dict[StreamKind, set[str]] = {LOG: set(), DOCUMENT: set()}

    def __len__(self) -> int:
        return len(self._numbered)

    def _of(self, kind: StreamKind) -> dict[str, Stream]:
        return self._documents if kind == DOCUMENT else self._logs

    # Streams

    def living(self, kind: StreamKind, name: str) -> Stream | None:
        """The living stream of that name, if it was looked at."""
        return (self._documents if kind == DOCUMENT else self._logs).get(name)

    def numbered(self, oid: int) -> Stream | None:
        """The stream with that number, if it was looked at."""
        return self._numbered.get(oid)

    def remember(self, stream: Stream) -> Stream:
        """Keep what was read, or find the object that already stands for it."""
        known = self._numbered.setdefault(stream.oid, stream)
        if known is stream and not stream.dropped:
            self._of(stream.kind)[stream.name] = stream
        return known

    def create(self, stream: Stream) -> None:
        """Keep one that did not exist before."""
        self._of(stream.kind)[stream.name] = self._numbered[stream.oid] = stream
        self._absent[stream.kind].discard(stream.name)

    def discard(self, stream: Stream) -> None:
        """It was not created after all."""
        self._let_go(stream)
        self.miss(stream.kind, stream.name)

    def end(self, stream: Stream) -> None:
        """Its name leads to nothing any more."""
        if self._of(stream.kind).get(stream.name) is stream:
            del self._of(stream.kind)[stream.name]
            self.miss(stream.kind, stream.name)

    def miss(self, kind: StreamKind, name: str) -> None:
        """There is none of that name."""
        absent = self._absent[kind]
        if len(absent) >= _MOST_ABSENT:
            absent.clear()
        absent.add(name)

    def is_absent(self, kind: StreamKind, name: str) -> bool:
        """Whether there is known to be none of that name."""
        return name in self._absent[kind]

    def take_in(self, lengths: Mapping[int, int], changed: Iterable[int]) -> None:
        """Be as others' commits left the streams: new lengths, and some to be read again."""
        for oid, length in lengths.items():
            if (stream := self._numbered.get(oid)) is not None:
                stream.length = length
        for oid in changed:
            if (stream := self._numbered.get(oid)) is not None:
                self._let_go(stream)
        for absent in self._absent.values():
            absent.clear()

    def _let_go(self, stream: Stream) -> None:
        self._of(stream.kind).pop(stream.name, None)
        self._numbered.pop(stream.oid, None)

    # Given keys

    def expired_to(self, last: RawCommit, time_at: Callable[[int], int]) -> int:
        """The position up to which given keys have expired since the last sweep; 0 for none."""
        expired = self._expiry.last_expired(
            self._key_lifetime_us, self.keys_from, last.position, last.time_us, time_at
        )
        return expired if expired >= self.keys_from else 0

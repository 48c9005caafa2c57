"""The logs that an index is folded from: their names, and what their entries say.

recall/<generation>/<whose>        in that user's partition
recall/<generation>/making         nobody's, and without content: see `mark_of`
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pagefile.errors import Corrupt
from pagefile.recall.entry import IndexEntry
from pagefile.store.batch import Append, Vector
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.codec.raw import encoded
from pagefile.store.records import Entry
from pagefile.store.store import Store

#: How many entries are read at once; more take no less time, and stay in memory meanwhile.
PAGE = 250
#: The kind of an entry that says only: something before this was erased, read again.
REREAD = "reread"
#: What the names of all of them begin with.
LOGS = "recall/"
_DECODER = json_decoder(IndexEntry)


def log_of(generation: int, whose: str) -> str:
    """The name of the log of one partition."""
    return f"{LOGS}{generation}/{whose}"


def marks_of(generation: int) -> str:
    """The name of the log of what is stored while that generation is made."""
    return f"{LOGS}{generation}/making"


def mark_of(generation: int) -> Append:
    """The operation that says: something was added to the index in force meanwhile.

    By the length of that log, who makes the new one knows whether it holds everything.
    """
    return Append(marks_of(generation), None, kind="recall")


def generation_of(log: str) -> int:
    """Which generation a log belongs to, by its name."""
    return int(log.split("/")[1])


def logs_of_index(store: Store) -> Iterator[str]:
    """The names of all logs of the index, of every generation."""
    after = ""
    while names := store.names("log", prefix=LOGS, after=after, limit=1_000):
        yield from names
        after = names[-1]


def append_entry(
    log: str, entry: IndexEntry, user: str | None, vector: Vector | None = None
) -> Append:
    """The operation that makes something findable, or no longer so."""
    # Text, numbers and truth values under names of ours: nothing that JSON would change.
    return Append(log, encoded(entry), user=user, kind="recall", vector=vector)


def entries_of(store: Store, log: str, start: int = 0) -> Iterator[Entry]:
    """All entries of a log, from one on, page by page."""
    while page := store.read(log, start, limit=PAGE):
        yield from page
        start = page[-1].index + 1


def before(store: Store, log: str, since: int) -> int:
    """A number in a log below which there is nothing after a position, found from its end."""
    length, back = store.length(log), PAGE
    while since and back < length:
        page = store.read(log, length - back, limit=1)
        if page and page[0].position <= since:
            return length - back
        back *= 2
    return 0


def decoded(entry: Entry) -> IndexEntry:
    """What an entry of the index says."""
    try:
        return _DECODER.decode(entry.body)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"entry {entry.index} of {entry.log!r} is none of a search index ({error})",
            "rebuild the index with reindex()",
        ) from error

"""What is left of somebody when their records are gone: shared texts, copies, nobody's slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from pagefile.context.names import THREADS, usage_document
from pagefile.context.slot import ERASED
from pagefile.errors import Corrupt
from pagefile.memory.items.run_events import LEDGERS, RUNS, RunEvent, run_event
from pagefile.memory.privacy.dry_run import rehearsed
from pagefile.recall.records import entries_of
from pagefile.store.batch import Query, Selector
from pagefile.store.records import Entry, Touched
from pagefile.store.store import Store

_PACKED = "RESUME_SNAPSHOT"
#: Where runs keep what is theirs, and what it is called.
_STREAMS = {
    LEDGERS: "events",
    RUNS: "states",
    "evicted/": "evicted items",
    "episode/": "milestones",
}
_USAGE = "usage"
_PAGE = 500
#: How many threads are rehearsed at once, and how many a receipt names.
_THREADS_AT_ONCE = 10_000
_THREADS_NAMED = 20


def texts_of_nothing_else(store: Store, going: Selector, logs: Iterable[str]) -> list[str]:
    """The usage texts that only those slots note which go; `logs` hold all that the user has."""
    assert going.log is not None
    wanted = {usage for entry in _noting(store, going.log, going) if (usage := _usage(entry))}
    staying = msgspec.structs.replace(going, before_us=None)
    for log in logs:
        if not wanted:
            break
        if log.startswith(THREADS):
            for entry in _noting(store, log, staying):
                if log != going.log or not _goes(entry, going):
                    wanted.discard(_usage(entry))
    return [usage_document(usage, going.user) for usage in sorted(wanted)]


def texts_noted_since(store: Store, going: Selector, logs: Iterable[str]) -> frozenset[str]:
    """The usage texts that slots note which stay; `logs` hold all that the user has.

    A text is stored once, with the first slot that notes it.
    """
    everything = msgspec.structs.replace(going, before_us=None)
    return frozenset(
        usage_document(_usage(entry), going.user)
        for log in logs
        if log.startswith(THREADS)
        for entry in _noting(store, log, everything)
        if not _goes(entry, going)
    )


def copies_of(store: Store, logs: Iterable[str], thread_id: str | None = None) -> list[str]:
    """A step for each resume pack of these ledgers' runs, or of those in one thread.

    A pack is a file somewhere, and no store reaches it.
    """
    runs = [log.removeprefix(LEDGERS) for log in sorted(logs) if log.startswith(LEDGERS)]
    return [
        f"pack {pack_id} of run {run_id!r} is a file outside the store: delete it, and its copies"
        for run_id in runs
        if thread_id is None or is_in(store, run_id, thread_id)
        for pack_id in _packs(store, LEDGERS + run_id)
    ]


def ending(store: Store, touched: Sequence[Touched], logs: Collection[str]) -> set[str]:
    """Those of the logs of which nothing is left."""
    going, names = _lengths(touched, logs), sorted(logs)
    found: set[str] = set()
    for at in range(0, len(names), _THREADS_AT_ONCE):
        some = [Selector(log=log) for log in names[at : at + _THREADS_AT_ONCE]]
        there = _lengths(rehearsed(store, some).removed, logs)
        found |= {log for log, n in there.items() if n == going[log]}
    return found


def beside_nobody(store: Store, touched: Sequence[Touched]) -> list[str]:
    """A step for each thread in which slots of nobody stay beside those that go.

    An answer that was appended without its user may well speak of them.
    """
    threads = {one.name for one in touched if one.name and one.name.startswith(THREADS)}
    going = _lengths(touched, threads)
    logs = sorted(going)
    found: list[str] = []
    for at in range(0, len(logs), _THREADS_AT_ONCE):
        some = [Selector(log=log) for log in logs[at : at + _THREADS_AT_ONCE]]
        there = _lengths(rehearsed(store, some).removed, threads)
        # Where nothing else is, nothing has to be read.
        found += [log for log, n in there.items() if n > going[log] and _has_nobodys(store, log)]
    steps = [
        f"thread {thread!r} holds slots without a user beside theirs: forget(session_id={thread!r})"
        " takes them, if they speak of the user"
        for thread in (log.removeprefix(THREADS) for log in found[:_THREADS_NAMED])
    ]
    if more := len(found) - len(steps):
        steps.append(f"{more} more threads hold slots without a user beside theirs")
    return steps


def erased_in_part(
    store: Store, touched: Sequence[Touched], doomed: Collection[str]
) -> list[RunEvent]:
    """An event for the ledger of each run that loses something and stays."""
    losses: dict[str, Counter[str]] = {}
    for one in touched:
        prefix = next((each for each in _STREAMS if (one.name or "").startswith(each)), None)
        if prefix is not None and one.name is not None:
            run_id = one.name.removeprefix(prefix).split("/")[0]
            lost = losses.setdefault(run_id, Counter())
            lost[_STREAMS[prefix]] += one.last - one.first + 1
    told = []
    for run_id, lost in sorted(losses.items()):
        reason = ", ".join(f"{lost[what]} {what}" for what in _STREAMS.values() if lost[what])
        payload = {"reason": f"forgotten: {reason}"}
        if RUNS + run_id not in doomed:
            told.append(run_event(store, run_id, "RUN_ERASED", payload, "forget"))
    return [event for event in told if event is not None]


def is_in(store: Store, run_id: str, thread_id: str) -> bool:
    """Whether a run is on that thread."""
    found = store.get(RUNS + run_id)
    if found is None or found.erased:
        return False
    try:
        value = found.value
    except Corrupt:
        return True  # It cannot tell, so its packs are named too.
    return isinstance(value, dict) and value.get("thread_id") == thread_id


def _lengths(touched: Sequence[Touched], logs: Collection[str]) -> Counter[str]:
    """How many entries of each log."""
    lengths: Counter[str] = Counter()
    for one in touched:
        if one.stream == "log" and one.name is not None and one.name in logs:
            lengths[one.name] += one.last - one.first + 1
    return lengths


def _has_nobodys(store: Store, log: str) -> bool:
    return store.has_log(log) and any(
        not entry.erased and entry.user is None and entry.kind != ERASED
        for entry in entries_of(store, log)
    )


def _packs(store: Store, ledger: str) -> Iterator[str]:
    cursor: str | None = None
    while True:
        query = Query("type", value=_PACKED, log=ledger, cursor=cursor)
        page = store.find(query, limit=_PAGE)
        for entry in page.items:
            if not entry.erased:
                yield str(entry.value["payload"]["pack_id"])
        cursor = page.cursor
        if cursor is None:
            return


def _noting(store: Store, log: str, whose: Selector) -> Iterator[Entry]:
    """The user's slots in a log that note a usage text."""
    for entry in entries_of(store, log):
        if not entry.erased and entry.user == whose.user and _usage(entry) and _goes(entry, whose):
            yield entry


def _goes(entry: Entry, going: Selector) -> bool:
    return going.before_us is None or entry.time_us < going.before_us


def _usage(entry: Entry) -> str:
    return str(entry.notes.get(_USAGE, ""))

"""What goes, and what is left, beside a user's own records: texts, runs, packs, others' slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from pagefile.context.names import THREADS, usage_document
from pagefile.context.slot import ERASED
from pagefile.errors import Corrupt
from pagefile.memory.items.item import LEDGERS, RUNS, RunEvent, run_event
from pagefile.memory.privacy.erasure_plan import names_of, rehearsed
from pagefile.recall.records import entries_of
from pagefile.store.batch import Query, Selector
from pagefile.store.kinds import Taken, registry
from pagefile.store.records import Entry, Touched
from pagefile.store.store import Store

_PACKED = "RESUME_SNAPSHOT"
_USAGE = "usage"
_PAGE = 500
#: How many threads are rehearsed at once, and how many a receipt names.
_THREADS_AT_ONCE = 10_000
_THREADS_NAMED = 20


# Usage texts: stored once, with the first slot that notes them


def texts_of_nothing_else(store: Store, going: Selector, logs: Iterable[str]) -> list[str]:
    """The usage texts that only those slots note which go; `logs` hold all that the user has."""
    assert going.log is not None
    wanted = {usage for entry in _noting(store, going.log, going) if (usage := _usage(entry))}
    staying = replace(going, before_us=None)
    for log in logs:
        if not wanted:
            break
        if log.startswith(THREADS):
            for entry in _noting(store, log, staying):
                if log != going.log or not _goes(entry, going):
                    wanted.discard(_usage(entry))
    return [usage_document(usage, going.user) for usage in sorted(wanted)]


def texts_noted_since(store: Store, going: Selector, logs: Iterable[str]) -> frozenset[str]:
    """The usage texts that slots note which stay; `logs` hold all that the user has."""
    everything = replace(going, before_us=None)
    return frozenset(
        usage_document(_usage(entry), going.user)
        for log in logs
        if log.startswith(THREADS)
        for entry in _noting(store, log, everything)
        if not _goes(entry, going)
    )


def _noting(store: Store, log: str, whose: Selector) -> Iterator[Entry]:
    """The user's slots in a log that note a usage text."""
    for entry in entries_of(store, log):
        if not entry.erased and entry.user == whose.user and _usage(entry) and _goes(entry, whose):
            yield entry


def _goes(entry: Entry, going: Selector) -> bool:
    return going.before_us is None or entry.time_us < going.before_us


def _usage(entry: Entry) -> str:
    return str(entry.notes.get(_USAGE, ""))


# Runs: several streams and one thing


def runs_in(store: Store, logs: Iterable[str], thread_id: str, whose: Selector) -> list[Selector]:
    """What takes the runs on a thread, of those whose ledgers are among the logs."""
    return [
        selector
        for run_id in _runs(logs)
        if _is_in(store, run_id, thread_id)
        for selector in _streams(store, run_id, whose)
    ]


def keeping_living(
    store: Store, selectors: Sequence[Selector], touched: Sequence[Touched]
) -> list[Selector]:
    """The selectors, without the state of a run that goes on: it is older than what came since.

    Its older states go, as its older events do.
    """
    going = {one.name: one.last for one in touched}
    spared: dict[str, int] = {}
    for one in touched:
        if one.stream != "document" or one.name is None or not one.name.startswith(RUNS):
            continue
        found = store.get(one.name)
        ledger = LEDGERS + one.name.removeprefix(RUNS)
        newest = store.read(ledger, -1)
        if found is None or found.version > one.last or not newest:
            continue
        if not newest[0].erased and newest[0].index > going.get(ledger, -1):
            spared[one.name] = found.version
    if not spared:
        return list(selectors)
    kept: dict[Selector, None] = {}
    for each in selectors:
        for name in spared if each.document is None and each.log is None else ():
            older = replace(each, document=name, last=spared[name] - 1)
            kept[older] = None
        if each.document in spared:
            each = replace(each, last=spared[each.document] - 1)
        elif each.document is None and each.log is None:
            each = replace(each, sparing=each.sparing.union(spared))
        kept[each] = None
    return list(kept)


def erased_in_part(store: Store, taken: Taken, doomed: Collection[str]) -> list[RunEvent]:
    """An event for the ledger of each run that loses something and stays."""
    losses: dict[str, Counter[str]] = {}
    for name, kind, one in taken:
        if kind is not None and (run_id := kind.run_of(name)) is not None:
            lost = losses.setdefault(run_id, Counter())
            lost[kind.run_part] += one.last - one.first + 1
    if not losses:
        return []
    events = []
    for run_id, lost in sorted(losses.items()):
        parts = [f"{lost[part]} {part}" for part in registry().run_parts if lost[part]]
        reason = ", ".join(parts)
        payload = {"reason": f"forgotten: {reason}"}
        if RUNS + run_id not in doomed:
            events.append(run_event(store, run_id, "RUN_ERASED", payload, "forget"))
    return [event for event in events if event is not None]


def packs_of(store: Store, logs: Iterable[str], thread_id: str | None = None) -> list[str]:
    """A step for each resume pack of these ledgers' runs, or of those in one thread.

    A pack is a file somewhere, and no store reaches it.
    """
    return [
        f"pack {pack_id} of run {run_id!r} is a file outside the store: delete it, and its copies"
        for run_id in _runs(logs)
        if thread_id is None or _is_in(store, run_id, thread_id)
        for pack_id in _packs(store, LEDGERS + run_id)
    ]


def _runs(logs: Iterable[str]) -> list[str]:
    return [log.removeprefix(LEDGERS) for log in sorted(logs) if log.startswith(LEDGERS)]


def _is_in(store: Store, run_id: str, thread_id: str) -> bool:
    """Whether a run is on that thread."""
    found = store.get(RUNS + run_id)
    if found is None or found.erased:
        return False
    try:
        value = found.value
    except Corrupt:
        return True  # It cannot tell, so it counts as one.
    return isinstance(value, dict) and value.get("thread_id") == thread_id


def _streams(store: Store, run_id: str, whose: Selector) -> Iterator[Selector]:
    """Everything of a run: one stream of each kind, or all below its name."""
    for kind in registry():
        if kind.run_part:
            name = kind.prefix + run_id
            if kind.takes(name):
                yield replace(whose, **{kind.stream: name})
            else:
                for each in names_of(store, f"{name}/"):
                    yield replace(whose, document=each)


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


# Logs of which something stays


def ending(store: Store, touched: Sequence[Touched], logs: Collection[str]) -> set[str]:
    """Those of the logs of which nothing is left."""
    going = _lengths(touched, logs)
    return {log for log, n in _contents(store, logs) if n == going[log]}


def anonymous_beside(store: Store, touched: Sequence[Touched]) -> list[str]:
    """A step for each thread in which slots without a user stay beside those that go.

    An answer that was appended without its user may well speak of them.
    """
    threads = {one.name for one in touched if one.name and one.name.startswith(THREADS)}
    going = _lengths(touched, threads)
    # Where nothing else is, nothing has to be read.
    found = [
        log for log, n in _contents(store, going) if n > going[log] and _has_anonymous(store, log)
    ]
    steps = [
        f"thread {thread!r} holds slots without a user beside theirs: forget(session_id={thread!r})"
        " takes them, if they speak of the user"
        for thread in (log.removeprefix(THREADS) for log in found[:_THREADS_NAMED])
    ]
    if more := len(found) - len(steps):
        steps.append(f"{more} more threads hold slots without a user beside theirs")
    return steps


def _contents(store: Store, logs: Collection[str]) -> Iterator[tuple[str, int]]:
    """How many entries of each log have content."""
    names = sorted(logs)
    for at in range(0, len(names), _THREADS_AT_ONCE):
        some = [Selector(log=log) for log in names[at : at + _THREADS_AT_ONCE]]
        yield from _lengths(rehearsed(store, some).removed, logs).items()


def _lengths(touched: Sequence[Touched], logs: Collection[str]) -> Counter[str]:
    """How many entries of each log."""
    lengths: Counter[str] = Counter()
    for one in touched:
        if one.stream == "log" and one.name is not None and one.name in logs:
            lengths[one.name] += one.last - one.first + 1
    return lengths


def _has_anonymous(store: Store, log: str) -> bool:
    return store.has_log(log) and any(
        not entry.erased and entry.user is None and entry.kind != ERASED
        for entry in entries_of(store, log)
    )

"""What forgetting takes of runs, which are several streams and one thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from pagefile.memory.items.run_events import LEDGERS, RUNS
from pagefile.memory.privacy.remnants import is_in
from pagefile.store.batch import Selector
from pagefile.store.records import Touched
from pagefile.store.store import Store

#: What else a run keeps under its id: what left its working set, and items that came with it.
_EVICTED = "evicted/"
_BROUGHT = "brought/"
_MILESTONES = "episode/"
_PAGE = 1_000


def runs_in(store: Store, logs: Iterable[str], thread_id: str, whose: Selector) -> list[Selector]:
    """What takes the runs on a thread, of those whose ledgers are among the logs."""
    runs = [log.removeprefix(LEDGERS) for log in sorted(logs) if log.startswith(LEDGERS)]
    return [
        selector
        for run_id in runs
        if is_in(store, run_id, thread_id)
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


def _streams(store: Store, run_id: str, whose: Selector) -> Iterator[Selector]:
    for log in (LEDGERS + run_id, _EVICTED + run_id):
        yield replace(whose, log=log)
    yield replace(whose, document=RUNS + run_id)
    yield replace(whose, document=_BROUGHT + run_id)
    prefix, after = f"{_MILESTONES}{run_id}/", ""
    while names := store.names("document", prefix=prefix, after=after, limit=_PAGE):
        yield from (replace(whose, document=name) for name in names)
        after = names[-1]

"""What an erasure selects, which records it takes, and what its receipt says."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from pagefile.errors import Invalid, PagefileError
from pagefile.store.arguments import Naming, require_count, require_flag, require_type
from pagefile.store.batch import Selector
from pagefile.store.engine import DOCUMENT, LOG, ReadsAhead, Row, Stream, Transaction, Wiped
from pagefile.store.records import Action, Receipt, StreamKind, Touched


class Rehearsed(PagefileError):
    """Not a failure: an erasure that stored nothing, as asked or for want of a match."""

    def __init__(self, wiped: tuple[Wiped, ...]) -> None:
        super().__init__("nothing was erased")
        self.wiped = wiped


class Doomed(msgspec.Struct):
    """What an erasure takes of one stream. `emptied` when nothing of it is left."""

    stream: Stream
    rows: list[Row]
    emptied: bool
    named: bool

    def leaves_nothing(self, tx: Transaction) -> bool:
        """Whether the stream ends: nothing of its own is left, and nothing it shares."""
        return self.emptied and (self.named or shares_nothing(tx, self.stream))


def doomed_by(tx: Transaction, selectors: Sequence[Selector]) -> list[Doomed]:
    """What the selectors take together, stream by stream; each stream is read once."""
    streams: dict[int, Stream] = {}
    asked: dict[int, list[Selector]] = {}
    holders: dict[str | None, list[Stream]] = {}
    ahead = tx if isinstance(tx, ReadsAhead) else None
    if ahead is not None:
        ahead.expect_names([name for one in selectors if (name := _name_of(one)) is not None])
    for selector in selectors:
        for stream in candidates(tx, selector, holders):
            streams[stream.oid] = stream
            asked.setdefault(stream.oid, []).append(selector)
    if ahead is not None:
        ahead.expect_rows(list(streams.values()))
    found = [_doomed_of(tx, stream, asked[oid]) for oid, stream in streams.items()]
    return [doomed for doomed in found if doomed.rows or doomed.emptied]


def _doomed_of(tx: Transaction, stream: Stream, selectors: Sequence[Selector]) -> Doomed:
    rows = [row for row in tx.rows(stream) if row.content is not None]
    doomed = [row for row in rows if any(matches(row, selector) for selector in selectors)]
    named = any(is_named(selector) for selector in selectors)
    whole = any(is_whole_stream(selector) for selector in selectors)
    # That a document was deleted says nothing about anybody: such a version
    # goes when nothing else is left, and its stream with it.
    markers = [row for row in rows if row.action == Action.DELETE]
    emptied = (bool(doomed) or named) and whole and len(doomed) + len(markers) == len(rows)
    return Doomed(stream, rows if emptied else doomed, emptied, named)


def candidates(
    tx: Transaction, selector: Selector, known: dict[str | None, list[Stream]]
) -> list[Stream]:
    """The streams, living or dropped, in which something may match; `known` are users' streams."""
    found = _streams_of(tx, selector, known)
    return [one for one in found if one.name not in selector.sparing] if selector.sparing else found


def _streams_of(
    tx: Transaction, selector: Selector, known: dict[str | None, list[Stream]]
) -> list[Stream]:
    name = _name_of(selector)
    named = tx.incarnations(*name) if name is not None else None
    if selector.user is None and not selector.anonymous:
        return named or []
    holders = known.get(selector.user)
    if holders is None:
        holders = known[selector.user] = tx.holders(selector.user)
    if named is None:
        return holders
    wanted = {stream.oid for stream in named}
    return [stream for stream in holders if stream.oid in wanted]


def _name_of(selector: Selector) -> tuple[StreamKind, str] | None:
    if selector.log is not None:
        return LOG, selector.log
    return None if selector.document is None else (DOCUMENT, selector.document)


def matches(row: Row, selector: Selector) -> bool:
    """Whether this record is to go."""
    content = row.content
    if content is None or row.action == Action.DELETE:
        return False
    if (selector.user is not None or selector.anonymous) and content.user != selector.user:
        return False
    if selector.first is not None and row.number < selector.first:
        return False
    if selector.last is not None and row.number > selector.last:
        return False
    if selector.numbers is not None and row.number not in selector.numbers:
        return False
    return selector.before_us is None or row.time_us < selector.before_us


def is_named(selector: Selector) -> bool:
    """Whether it takes one stream as such, whoever wrote to it."""
    by_user = selector.user is not None or selector.anonymous
    return not by_user and (selector.log is not None or selector.document is not None)


def is_whole_stream(selector: Selector) -> bool:
    """Whether nothing bounds the selection inside a stream."""
    bounds = (selector.first, selector.last, selector.numbers, selector.before_us)
    return bounds == (None, None, None, None)


def shares_nothing(tx: Transaction, stream: Stream) -> bool:
    """Whether a stream shows nothing of the logs it forks: there is none, or all is erased."""
    floor, end = stream.pruned, stream.base_at
    while stream.base:
        stream = tx.stream_number(stream.base)
        if any(row.content is not None for row in tx.rows(stream) if floor <= row.number < end):
            return False
        end = min(end, stream.base_at)
    return True


def bare_forks(tx: Transaction, streams: Sequence[Stream]) -> list[Stream]:
    """Forks of these, and theirs, that show nothing any more and have nothing of their own."""
    found: list[Stream] = []
    todo = list(streams)
    seen: set[int] = set()
    while todo:
        base = todo.pop()
        if base.oid in seen:
            continue
        seen.add(base.oid)
        left = [row.number for row in tx.rows(base) if row.content is not None]
        for fork in tx.forks(base):
            at = bisect_left(left, fork.pruned)
            if at < len(left) and left[at] < fork.base_at:
                continue  # It shows something, and what forks it from there on shows it too.
            if any(row.content is not None for row in tx.rows(fork)) or not shares_nothing(
                tx, fork
            ):
                continue
            todo.append(fork)
            # One that never showed anything goes with its base alone.
            if fork.name and (base.dropped or fork.pruned < fork.base_at):
                found.append(fork)
    return found


def runs_of(stream: Stream, rows: list[Row]) -> list[Wiped]:
    """Neighbouring numbers joined, so that a million entries are one line of the receipt."""
    runs: list[list[Row]] = []
    for row in rows:
        if runs and row.number == runs[-1][-1].number + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [
        Wiped(
            stream.kind,
            stream.name,
            stream.oid,
            run[0].number,
            run[-1].number,
            len(run),
            sum(len(row.content.body) for row in run if row.content is not None),
        )
        for run in runs
    ]


def receipt_of(
    position: int | None, wiped: tuple[Wiped, ...], remaining: tuple[str, ...]
) -> Receipt:
    """What was removed, and whether traces remain."""
    return Receipt(
        position,
        tuple(Touched("erase", run.stream, run.name, run.first, run.last) for run in wiped),
        sum(run.records for run in wiped),
        sum(run.size_bytes for run in wiped),
        "logical" if remaining else "bytes",
        remaining,
    )


#: How many selections one erasure unites; each is looked up by itself.
MOST_SELECTORS = 100_000


def require_selectors(selectors: Sequence[Selector], naming: Naming) -> None:
    """Refuse selectors that are too many, or unclear."""
    if len(selectors) > MOST_SELECTORS:
        raise Invalid(
            "selector", f"there are {len(selectors)}", f"give at most {MOST_SELECTORS} of them"
        )
    for selector in selectors:
        _require_selector(selector, naming)


def _require_selector(selector: Selector, naming: Naming) -> None:
    require_type("selector", selector, Selector)
    require_flag("selector.anonymous", selector.anonymous)
    named = (selector.log, selector.document)
    if selector.user is None and not selector.anonymous and named == (None, None):
        raise Invalid(
            "selector",
            "selects everything",
            "name a user, anonymous=True, a log or a document",
        )
    if selector.user is not None and selector.anonymous:
        raise Invalid("selector", "names a user and nobody", "choose one of the two")
    if None not in named:
        raise Invalid("selector", "names a log and a document", "erase one, then the other")
    bounds = (selector.first, selector.last, selector.numbers)
    if named == (None, None) and bounds != (None, None, None):
        raise Invalid("selector", "bounds numbers of no stream", "name a log or a document")
    naming.check_user(selector.user)
    for field, text in zip(("log", "document"), named, strict=True):
        if text is not None:
            naming.check_text(field, text)
    for field in ("first", "last", "before_us"):
        if (number := getattr(selector, field)) is not None:
            require_count(number, f"selector.{field}")
    if selector.numbers is not None:
        require_type("selector.numbers", selector.numbers, frozenset)
        for number in selector.numbers:
            require_count(number, "selector.numbers")
    require_type("selector.sparing", selector.sparing, frozenset)
    for name in selector.sparing:
        naming.check_text("selector.sparing", name)

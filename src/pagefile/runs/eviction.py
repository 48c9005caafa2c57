"""Which sliding items stay when a working set is too big for its budget.

Everything that the brief shows is counted first: that is the fixed part. The
rest of the budget is for sliding items. They leave in this order until the
others fit: lowest priority first, then oldest (in UTC), then lowest id. So an
important item never leaves for a less important one, however big it is; small
items that would still have fitted behind it leave too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec

from pagefile.errors import LimitExceeded
from pagefile.runs.brief_lines import HEADINGS, LEFT_OUT, NONE, TITLE, fixed_sections, sliding_line
from pagefile.runs.schema.timestamps import parse_time
from pagefile.runs.tokens import Cached, TokenCounter
from pagefile.store.arguments import require_count

#: Where an item stands: the lowest leaves first. The content parts items of one id.
Rank: TypeAlias = tuple[int, int, str, str]
_Price: TypeAlias = tuple[int, Rank]

_fields_of = itemgetter("id", "content", "timestamp", "priority")

# With the most that the sections of sliding items and of memories show when they are emptied:
# whatever memory is retrieved, none of it can push out an item that was let in here.
_FRAME: Final = (TITLE, *HEADINGS, NONE, LEFT_OUT.format(999_999))


class Budget(msgspec.Struct, frozen=True):
    """How big a working set may be. Pinned items beyond the limit leave, the first ones first."""

    max_tokens: int = 2000
    pinned_max_items: int = 10

    def __post_init__(self) -> None:
        require_count(self.max_tokens, "max_tokens", least=1)
        require_count(self.pinned_max_items, "pinned_max_items")


class Fitted(msgspec.Struct, frozen=True):
    """A working set within its budget, and what had to leave.

    `evicted` has sliding items in the order they left. `unpinned` has pinned
    items beyond the limit, in their order. `tokens` is what the brief of `ws`
    takes at most, `fixed_tokens` that of everything but the sliding items.
    """

    ws: dict[str, Any]
    evicted: list[dict[str, Any]]
    tokens: int
    fixed_tokens: int
    unpinned: list[dict[str, Any]] = []


def fit(ws: Mapping[str, Any], budget: Budget, counter: TokenCounter) -> Fitted:
    """The working set without what does not fit; `ws`, a valid one, stays as it is.

    The items that stay keep their order. What stays, and the order of
    `evicted`, do not depend on the order of `ws["sliding_context"]`. With a
    `Cached` counter only new texts are counted.

    Raises:
        LimitExceeded: the fixed part alone is over the budget.
        Invalid: a timestamp is no date and time.
    """
    result = dict(ws)
    pinned = result["pinned_context"]
    surplus = max(0, len(pinned) - budget.pinned_max_items)
    if surplus:
        result["pinned_context"] = pinned[surplus:]
    fixed = fixed_tokens(result, counter)
    if fixed > budget.max_tokens:
        raise LimitExceeded(
            "the fixed part of the working set",
            limit=budget.max_tokens,
            wanted=fixed,
            next_step="shorten its texts, remove pinned items, or raise ws_max_tokens",
        )
    items = result["sliding_context"]
    prices = _prices(items, counter)
    total = fixed + sum([price[0] for price in prices])
    evicted = []
    if total > budget.max_tokens:
        # A heap and no sort: as a rule one item comes and one leaves.
        ranks = [(price[1], place) for place, price in enumerate(prices)]
        heapify(ranks)
        gone = set()
        while total > budget.max_tokens:
            place = heappop(ranks)[1]
            gone.add(place)
            evicted.append(items[place])
            total -= prices[place][0]
        result["sliding_context"] = [item for at, item in enumerate(items) if at not in gone]
    return Fitted(result, evicted, total, fixed, pinned[:surplus])


def fixed_tokens(ws: Mapping[str, Any], counter: TokenCounter) -> int:
    """What everything but the sliding items takes."""
    count = counter.count
    frame = sum([count(piece) for piece in _FRAME])
    return frame + sum([count(piece) for section in fixed_sections(ws) for piece in section])


def rank(item: Mapping[str, Any]) -> Rank:
    """Where a sliding item stands in the order of eviction."""
    time = parse_time(item["timestamp"], f"sliding_context.{item['id']}.timestamp")
    return int(item["priority"]), time, item["id"], item["content"]


def _prices(items: Sequence[Mapping[str, Any]], counter: TokenCounter) -> list[_Price]:
    if not isinstance(counter, Cached):
        return [_price(item, counter) for item in items]
    # In C as far as it goes: this is most of what an unchanged working set costs.
    found = list(map(counter.items.get, map(_fields_of, items)))
    if None not in found:
        return [known[0] for known in found if known is not None]
    return [
        _remembered(item, counter) if known is None else known[0]
        for item, known in zip(items, found, strict=True)
    ]


def _remembered(item: Mapping[str, Any], counter: Cached) -> _Price:
    price = _price(item, counter.counter)
    counter.items.put(_fields_of(item), price, len(item["content"]) + len(item["id"]))
    return price


def _price(item: Mapping[str, Any], counter: TokenCounter) -> _Price:
    return counter.count(sliding_line(item)), rank(item)

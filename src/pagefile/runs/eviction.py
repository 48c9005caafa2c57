"""Which sliding items stay when a working set is too big, and the lines it is counted by.

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
from pagefile.runs.schema.timestamps import parse_time
from pagefile.runs.tokens import Cached, TokenCounter
from pagefile.store.arguments import require_count

# The lines of a context brief: what is shown to a model, hence what is counted.
#
# Each piece ends its line and starts with a character that no tokenizer joins to
# the line before, so the counts of the pieces add up to that of the brief, or to
# a little more. Text of the working set is contained: whatever it holds, it
# cannot start a heading, open or close a fence, or look like another item.


TITLE: Final = "# CONTEXT BRIEF\n"
HEADINGS: Final = (
    "\n## 1. OBJECTIVE\n",
    "\n## 2. ACCEPTANCE CRITERIA\n",
    "\n## 3. CONSTRAINTS & BUDGETS\n",
    "\n## 4. PINNED CONTEXT\n",
    "\n## 5. RECENT / SLIDING CONTEXT\n",
    "\n## 6. RETRIEVED LONG-TERM MEMORY\n",
    "\n## 7. STATUS\n",
)
NONE: Final = "- (none)\n"
UNSET: Final = "(unset)"
LEFT_OUT: Final = "- ({} left out: no room)\n"
#: The places of the sections that `fixed_sections` leaves empty.
SLIDING: Final = 4
MEMORY: Final = 5

# What Markdown takes for structure when a line starts with it.
_STRUCTURE: Final = frozenset("#`~><|=+*-_\\")
_CONTROLS: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) != "\t"
}


def contained(text: str, indent: str = "  ") -> str:
    """The text so that it stays within its item: further lines start with a bar."""
    if text.isprintable() and text[:1] not in _STRUCTURE and text[:1] != " ":
        return text
    first, *rest = [line.translate(_CONTROLS) for line in text.splitlines() or [""]]
    first = first.lstrip()
    if first[:1] in _STRUCTURE:
        first = f"\\{first}"
    return "".join([first, *(f"\n{indent}| {line}" for line in rest)])


def inline(text: str) -> str:
    """The text on one line, for ids and other marks."""
    return text if text.isprintable() else " ".join(text.split()).translate(_CONTROLS)


def sliding_line(item: Mapping[str, Any]) -> str:
    """An item of the sliding context as the brief shows it."""
    mark = f"(pri={int(item['priority'])} ts={inline(item['timestamp'])})"
    return f"- {contained(item['content'])} {mark}\n"


def memory_line(item: Mapping[str, Any]) -> str:
    """A retrieved memory as the brief shows it."""
    mark = f"(memory_id={inline(item['memory_id'])} conf={item['confidence']:.2f})"
    return f"- {contained(item['content'])} {mark}\n"


def fixed_sections(ws: Mapping[str, Any]) -> list[list[str]]:
    """The pieces of each section but SLIDING and MEMORY, whose items may be left out."""
    return [
        [f"{contained(ws['objective'].strip()) or UNSET}\n"],
        _bullets(ws["acceptance_criteria"]),
        _bullets(ws["constraints"]),
        [_pinned_line(item) for item in ws["pinned_context"]] or [NONE],
        [],
        [],
        _status_lines(ws),
    ]


def _bullets(texts: Sequence[str]) -> list[str]:
    return [f"- {contained(text)}\n" for text in texts] or [NONE]


def _pinned_line(item: Mapping[str, Any]) -> str:
    source = item.get("source_ref")
    mark = f"(id={inline(item['id'])})" + (f" source={inline(source)}" if source else "")
    return f"- {contained(item['content'])} {mark}\n"


def _status_lines(ws: Mapping[str, Any]) -> list[str]:
    pieces = [
        f"- {label}: {contained(ws[field]) or UNSET}\n"
        for label, field in (
            ("status", "status"),
            ("stage", "current_stage"),
            ("next_action", "next_action"),
            ("last_action_summary", "last_action_summary"),
        )
    ]
    blockers = [f"  - {contained(text, '    ')}\n" for text in ws["blockers"]]
    refs = [_artifact_line(ref) for ref in ws["artifact_refs"]]
    for label, lines in (("blockers", blockers), ("artifact_refs", refs)):
        pieces += [f"- {label}:\n", *lines] if lines else [f"- {label}: (none)\n"]
    return pieces


def _artifact_line(ref: Mapping[str, Any]) -> str:
    extras = "".join(f" {name}={inline(ref[name])}" for name in ("path", "sha256") if ref.get(name))
    return f"  - {inline(ref['type'])} (id={inline(ref['id'])}){extras}\n"


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

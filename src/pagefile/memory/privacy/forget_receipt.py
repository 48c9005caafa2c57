"""What a call that forgets says of itself: how many things went, and which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Self

from pagefile.context.names import THREADS, USAGE
from pagefile.memory.names import RECEIPTS
from pagefile.store.records import Receipt, Touched

#: What streams are called, and what a receipt calls what was in them.
_KINDS = {
    "memory/episode/": "episodes",
    "memory/block/": "blocks",
    "memory/use/": "uses",
    "memory/candidate/": "candidates",
    "memory/extraction/": "extractions",
    "fact/": "facts",
    "fact-retraction/": "retractions",
    "fact-alias/": "aliases",
    "item/": "items",
    THREADS: "slots",
    USAGE: "usage_texts",
    "run/": "runs",
    "episode/": "milestones",
    "ledger/": "events",
    "recall/": "index",
    RECEIPTS: "receipts",
}
#: What counts as one thing each however many versions it had.
_DOCUMENTS = frozenset(
    {"episodes", "blocks", "facts", "items", "runs", "milestones", "receipts", "usage_texts"}
)
#: Versions of documents that stay.
_VERSIONS = "versions"
#: Made from the rest, and in no export, or of what is still there: the number says how much
#: of a user is gone.
_NOT_COUNTED = frozenset({"index", "receipts", _VERSIONS})


class ForgetReceipt(int):
    """How many things were forgotten, and which, as a number that compares and adds.

    `counts` says how many of each kind; entries of the index and receipts of
    prompts are made from the rest, and `versions` are older ones of documents that
    stay: these are not counted in the number. `kept` says
    how many rested on something else too: they stay, under new ids, without
    what was forgotten. `dry_run` is True when nothing was touched. `receipt`
    is the store's own, with every stream and how far the removal reaches.
    """

    counts: Mapping[str, int]
    kept: Mapping[str, int]
    dry_run: bool
    receipt: Receipt

    def __new__(
        cls,
        counts: Mapping[str, int],
        *,
        dry_run: bool,
        receipt: Receipt,
        kept: Mapping[str, int] | None = None,
    ) -> Self:
        made = super().__new__(
            cls, sum(n for kind, n in counts.items() if kind not in _NOT_COUNTED)
        )
        made.counts = dict(counts)
        made.kept = dict(kept or {})
        made.dry_run = dry_run
        made.receipt = receipt
        return made

    def __repr__(self) -> str:
        parts = ", ".join(f"{kind}={n}" for kind, n in sorted(self.counts.items()))
        return f"ForgetReceipt({int(self)}: {parts or 'nothing'})"

    __str__ = __repr__


def forget_receipt(
    receipt: Receipt, gone: Container[str] | None, kept: Mapping[str, int], *, dry_run: bool
) -> ForgetReceipt:
    """What a store removed, told by kinds; what stands in for something is not gone.

    `gone` are the documents that went as a whole, all of them where it is None.
    """
    counts = _counts(receipt.removed, gone)
    for kind, n in kept.items():
        counts[kind] -= n
    told = {kind: n for kind, n in counts.items() if n}
    return ForgetReceipt(told, dry_run=dry_run, receipt=receipt, kept=kept)


def joined(rounds: Sequence[ForgetReceipt]) -> ForgetReceipt:
    """Several rounds as one; the position is that of the last."""
    if len(rounds) == 1:
        return rounds[0]
    counts: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for each in rounds:
        counts.update(each.counts)
        kept.update(each.kept)
    parts = [each.receipt for each in rounds]
    receipt = Receipt(
        parts[-1].position,
        tuple(one for part in parts for one in part.removed),
        sum(part.records for part in parts),
        sum(part.size_bytes for part in parts),
        parts[-1].level,
        parts[-1].remaining,
    )
    return ForgetReceipt(counts, dry_run=rounds[-1].dry_run, receipt=receipt, kept=kept)


def _counts(removed: Sequence[Touched], gone: Container[str] | None) -> Counter[str]:
    """How many things of each kind; a document is one thing however many versions it had."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for one in removed:
        name = one.name or ""
        kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "other")
        if kind not in _DOCUMENTS and one.stream == "log":
            counts[kind] += one.last - one.first + 1
        elif one.stream == "document" and gone is not None and name not in gone:
            counts[_VERSIONS] += one.last - one.first + 1
        elif name not in seen:
            seen.add(name)
            counts[kind] += 1
    return counts

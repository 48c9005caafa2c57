"""What a call that forgets says of itself: how many things went, and which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Self

from pagefile.store.kinds import registry
from pagefile.store.records import Receipt, Touched

#: Versions of documents that stay.
_VERSIONS = "versions"


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
        apart = {_VERSIONS, *registry().derived}
        made = super().__new__(cls, sum(n for kind, n in counts.items() if kind not in apart))
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
    for name, kind, one in registry().each_of(removed):
        counted_as = "other" if kind is None else kind.counted_as
        if one.stream == "log":
            counts[counted_as] += one.last - one.first + 1
        elif gone is not None and name not in gone:
            counts[_VERSIONS] += one.last - one.first + 1
        elif name not in seen:
            seen.add(name)
            counts[counted_as] += 1
    return counts

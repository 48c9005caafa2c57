"""From timings to rows: the peers as they are, then each claim about ours against one of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from _measure import Subject, Timing, cpu_ratio, measure, rate_ratio
from _row import Row, Target
from _workplace import Workplace


@dataclass(frozen=True)
class Claim:
    """What is said about one subject, measured against another."""

    ours: str
    peer: str
    of: Literal["CPU", "rate"] = "CPU"
    target: Target | None = None


def compared(
    place: Workplace,
    case: str,
    subjects: Sequence[Subject],
    claims: Sequence[Claim],
    *,
    rounds: int,
    level: str | Mapping[str, str] = "",
) -> list[Row]:
    """Measure in turns. `level` is the same for all, or given for each subject by name.

    A claim about a peer that is not installed is left out; the script says so
    once, under the table.
    """
    rounds = place.rounds(rounds)
    place.announce(case, rounds)
    with _settled():
        timings = measure(subjects, rounds, place.advance)
    levels = {n: level if isinstance(level, str) else level.get(n, "") for n in timings}
    kept = [claim for claim in claims if claim.peer in timings]
    peers = {claim.peer for claim in kept}
    lonely = {claim.ours for claim in claims} - peers
    rows = [
        Row(case, name, timing, level=levels[name], alone=name in lonely)
        for name, timing in timings.items()
        if name not in {claim.ours for claim in kept}
    ]
    return rows + [_row(case, claim, timings, levels[claim.ours]) for claim in kept]


@contextmanager
def _settled() -> Iterator[None]:
    """What is there already is no subject's garbage.

    Importing the peers leaves some 170,000 objects; walking those takes a tenth
    of a second, before every round of every subject.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _row(case: str, claim: Claim, timings: Mapping[str, Timing], level: str) -> Row:
    ours, peer = timings[claim.ours], timings[claim.peer]
    ratio = cpu_ratio(ours, peer) if claim.of == "CPU" else rate_ratio(ours, peer)
    meaning = f"× {claim.of} of {claim.peer}"
    return Row(case, claim.ours, ours, meaning, ratio, claim.target, level)

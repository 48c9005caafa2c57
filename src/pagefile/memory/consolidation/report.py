"""What one consolidation did."""

from __future__ import annotations

import msgspec

_MOST_ERRORS = 100


class ConsolidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one consolidation did.

    `errors` names the episodes that could not be read, or of which a statement
    was `dropped` because it can be no fact, and why. `budget_spent` says that
    the token budget ended it before all was read.
    """

    episodes: int = 0
    facts: int = 0
    proposed: int = 0
    dropped: int = 0
    failed: int = 0
    cancelled: bool = False
    budget_spent: bool = False
    errors: tuple[tuple[str, str], ...] = ()


def summed(report: ConsolidationReport, one: ConsolidationReport) -> ConsolidationReport:
    """Both together, with the first hundred errors."""
    return ConsolidationReport(
        episodes=report.episodes + one.episodes,
        facts=report.facts + one.facts,
        proposed=report.proposed + one.proposed,
        dropped=report.dropped + one.dropped,
        failed=report.failed + one.failed,
        errors=(report.errors + one.errors)[:_MOST_ERRORS],
    )

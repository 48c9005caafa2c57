"""What becomes of what an extractor reads, and within which bounds."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.extraction.budget import TokenBudget
from pagefile.memory.extraction.candidate import Extractor
from pagefile.store.arguments import require_count


class ConsolidationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of what an extractor reads.

    What it is at least `auto_commit` sure of becomes a fact, the rest waits for
    review; None lets everything wait. A claim lasts `lease_seconds`: who does
    not come back in that time has lost it. After `attempts` failures an episode
    is given up. `token_budget` is what a model may spend in one consolidation.
    """

    auto_commit: float | None = 0.8
    lease_seconds: int = 300
    attempts: int = 5
    concurrency: int = 1
    max_facts_per_episode: int = 20
    token_budget: int | None = None


def require_policy(policy: object) -> None:
    """Refuse a policy that says nothing, or bounds nothing."""
    if not isinstance(policy, ConsolidationPolicy):
        raise Invalid("policy", shown(policy), "give a ConsolidationPolicy")
    sure = policy.auto_commit
    if sure is not None and (type(sure) not in (int, float) or not 0 <= sure <= 1):
        raise Invalid("auto_commit", shown(sure), "give 0 to 1, or None")
    for field in ("lease_seconds", "attempts", "concurrency", "max_facts_per_episode"):
        number = getattr(policy, field)
        if type(number) is not int or not 1 <= number <= 86_400:
            raise Invalid(field, shown(number), "give a whole number from 1 to 86,400")
    if policy.token_budget is not None:
        require_count(policy.token_budget, "token_budget", least=1)


def require_bounded(extractor: Extractor, policy: ConsolidationPolicy) -> Extractor:
    """The extractor as far as the policy lets it go: under its budget, if there is one.

    Raises:
        Invalid: it knows of no budgets, or could not ask anything within this one.
    """
    if policy.token_budget is None:
        return extractor
    within: Callable[[TokenBudget], Extractor] | None = getattr(extractor, "within", None)
    if not callable(within):
        raise Invalid(
            "token_budget",
            f"{shown(extractor)} keeps to none",
            "leave it out, or give an extractor that has within(budget)",
        )
    return within(TokenBudget(policy.token_budget))

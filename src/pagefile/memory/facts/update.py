"""A fact that gets a new object: the new one holds, and the old one does no longer."""

from __future__ import annotations

from datetime import datetime

from pagefile.memory.facts.fact import Fact, normalised
from pagefile.memory.facts.store import FactStore


def give_new_object(
    facts: FactStore,
    fact_id: str,
    object_: str,
    now: datetime,
    *,
    since: datetime | None = None,
    user_id: str | None,
    actor: str,
) -> str:
    """Assert the fact with another object; the id of the new one.

    It holds from `since` on, or from now on if that is None, as long as the old
    one would; one that is yet to begin begins when it would have.

    Raises:
        NotFound: this user has no assertion of that id.
    """
    known = facts.assertion(fact_id, user_id=user_id).fact()
    start = max(now, known.valid_from) if since is None else since
    ends = known.valid_until is not None and known.valid_until > start
    reason = f"update of {fact_id}"
    made = Fact(
        subject=known.subject,
        predicate=known.predicate,
        object=object_,
        user_id=user_id,
        actor=actor,
        reason=reason,
        valid_from=start,
        valid_until=known.valid_until if ends else None,
    )
    new = facts.append(made)
    is_other = normalised(object_) != normalised(known.object)
    if is_other and facts.kinds.kind(known.predicate) == "multi":
        # Where many may hold, the new one does not end the old one by itself.
        facts.retract(fact_id, reason=reason, actor=actor, user_id=user_id, since=start)
    return new

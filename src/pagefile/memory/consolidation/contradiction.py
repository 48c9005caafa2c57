"""What a later statement contradicts, because it says since when something else is so.

"I live in Lisbon" does not say since when, so it counts from when it was said. "I moved
to Berlin last week", said the day after, starts earlier, and would stand back behind it
for ever: where it is right, the other was not so even when it was said.
"""

from __future__ import annotations

from pagefile.memory.episodes.episode import Episode, document_of, episode_of
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.store import FactStore
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.store import Store

#: How many statements one may contradict, the newest of them.
_MOST = 100


def contradicted_by(fact: Fact, episode: Episode, facts: FactStore, store: Store) -> list[str]:
    """The assertions that cannot have been so, if the episode's statement is right.

    They were made earlier, say another object of a predicate that holds one at a
    time, do not say themselves since when, and were made within what the fact says.
    """
    since, said = microseconds(fact.valid_from), microseconds(episode.occurred_at)
    if fact.valid_until is not None or since >= said:
        return []
    user = fact.user_id
    known = facts.query(subject=fact.subject, predicate=fact.predicate, user_id=user, limit=1)
    if not known:
        return []
    view = facts.viewpoint(None, None, user)
    group = facts.group_of(facts.assertion(known[0].id, user_id=user), view)
    if group.kind != "single":
        return []
    own = view.names.of(fact.object)
    found = [
        claim
        for claim in group.standing
        if claim.object != own and claim.is_open and claim.end is None
        # One that somebody asserted says since when, as one does that has several sources.
        and since <= claim.start < said and len(claim.sources) == 1
    ]  # fmt: skip
    newest = sorted(found, key=lambda claim: claim.order)[-_MOST:]
    return [
        claim.id for claim in newest if _was_said_at(store, claim.sources[0], user, claim.start)
    ]


def _was_said_at(store: Store, episode_id: str, user: str | None, moment_us: int) -> bool:
    found = store.get(document_of(episode_id, user))
    if found is None or found.erased:
        return False
    return microseconds(episode_of(found).occurred_at) == moment_us

"""Assertions, retractions and aliases as lines of an export, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.facts.documents import (
    Alias,
    Ledger,
    alias_put,
    assertion_put,
    retraction_put,
)
from pagefile.memory.facts.fact import (
    Fact,
    moment_us,
    require_actor,
    require_reason,
    require_text,
)
from pagefile.store.batch import Put
from pagefile.store.codec import sort_key
from pagefile.store.codec.decoder import convert


class AssertionLine(msgspec.Struct, frozen=True, tag="assertion", tag_field="record"):
    """A fact as it was asserted, and when."""

    id: str
    subject: str
    predicate: str
    object: str
    confidence: float
    valid_from: datetime
    valid_until: datetime | None
    recorded_at: datetime
    sources: list[str]
    reason: str
    actor: str


class RetractionLine(msgspec.Struct, frozen=True, tag="retraction", tag_field="record"):
    """What took an assertion away; it stands after that in an export."""

    id: str
    target: str
    since: datetime | None
    recorded_at: datetime
    reason: str
    actor: str


class AliasLine(msgspec.Struct, frozen=True, tag="alias", tag_field="record"):
    """That a name stood for another from then on, or for itself again."""

    id: str
    name: str
    canonical: str | None
    recorded_at: datetime
    actor: str


Line = AssertionLine | RetractionLine | AliasLine


def lines_of(ledger: Ledger, aliases: Sequence[Alias]) -> Iterator[dict[str, Any]]:
    """Everything that was recorded, in order."""
    found: list[tuple[tuple[int, int, int, str], Line]] = []
    for each in ledger.assertions.values():
        fact = msgspec.structs.asdict(each.fact())
        fields = {name: fact[name] for name in AssertionLine.__struct_fields__}
        fields["sources"] = list(each.sources)
        found.append((each.order, AssertionLine(**fields)))
    for retraction in ledger.retractions.values():
        since = retraction.since_us
        line = RetractionLine(
            retraction.id,
            retraction.target,
            None if since is None else sort_key.moment(since),
            sort_key.moment(retraction.order[0]),
            retraction.reason,
            retraction.actor,
        )
        found.append((retraction.order, line))
    for alias in aliases:
        at = sort_key.moment(alias.order[0])
        said = AliasLine(alias.id, alias.name, alias.canonical, at, alias.actor)
        found.append((alias.order, said))
    for _, one in sorted(found, key=lambda pair: pair[0]):
        yield msgspec.to_builtins(one)


def line_of(line: object, at: str) -> Line:
    """A line that was read, checked.

    Raises:
        Invalid: names the line and what is wrong with it.
    """
    if not isinstance(line, Mapping):
        raise Invalid(at, f"{shown(line)} is no mapping", "give the lines of an export")
    try:
        return convert(dict(line), Line)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise Invalid(at, str(error), "give the lines of an export unchanged") from None


def puts_of(lines: Sequence[Line], user_id: str | None) -> Iterator[tuple[Put, Fact | None]]:
    """What stores each line for this user, and the fact if it is an assertion."""
    facts: dict[str, Fact] = {}
    for place, line in enumerate(lines):
        if isinstance(line, AssertionLine):
            fact = Fact(user_id=user_id, **msgspec.structs.asdict(line))
            facts[fact.id] = fact
            yield assertion_put(fact, place), fact
        elif isinstance(line, RetractionLine):
            yield _retraction(line, facts, place), None
        else:
            require_text("name", line.name)
            if line.canonical is not None:
                require_text("canonical", line.canonical)
            require_actor(line.actor)
            at = moment_us("recorded_at", line.recorded_at)
            said = user_id, line.name, line.canonical, line.actor
            yield alias_put(*said, place=place, alias_id=line.id, recorded_us=at), None


def _retraction(line: RetractionLine, facts: dict[str, Fact], place: int) -> Put:
    require_reason(line.reason)
    require_actor(line.actor)
    fact = facts.get(line.target)
    if fact is None:
        raise Invalid("target", f"{shown(line.target)} is not in the export", "give all of it")
    return retraction_put(
        fact,
        place=place,
        since_us=None if line.since is None else moment_us("since", line.since),
        reason=line.reason,
        actor=line.actor,
        retraction_id=line.id,
        recorded_us=moment_us("recorded_at", line.recorded_at),
    )

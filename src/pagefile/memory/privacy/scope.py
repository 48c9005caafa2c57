"""How much of a user is to be forgotten, and what may follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from pagefile.errors import Invalid
from pagefile.memory.episodes.episode import require_episode_id
from pagefile.memory.facts.fact import require_moment
from pagefile.memory.names import require_user
from pagefile.memory.privacy.erasure_plan import Gone
from pagefile.memory.serializer import require_session
from pagefile.store.batch import Batch, Condition, Operation, Selector


class Extent(msgspec.Struct, frozen=True):
    """How much of a user is to be forgotten: everything, a session, an episode, or a time."""

    user_id: str | None
    session_id: str | None = None
    episode_id: str | None = None
    before: datetime | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing bounds it."""
        return self.session_id is None and self.episode_id is None and self.before is None

    def require(self) -> None:
        """Refuse what cannot be meant."""
        require_user(self.user_id)
        if self.session_id is not None:
            require_session(self.session_id)
        if self.before is not None:
            require_moment("before", self.before)
        if self.episode_id is not None:
            require_episode_id(self.episode_id)
            if self.session_id is not None or self.before is not None:
                raise Invalid(
                    "episode_id",
                    "one episode is meant, and a session or a time besides",
                    "give the episode alone",
                )


class Derived(msgspec.Struct, frozen=True):
    """What follows from what is to go: documents that go too, and what stands in for them.

    `parts` are versions of documents that stay without them; `renewed` is what has
    to be committed before, so that no newest version is among them. `kept` is how
    many documents something stands in for, by kind.
    """

    documents: Sequence[str] = ()
    parts: Sequence[Selector] = ()
    renewed: Batch | None = None
    beside: Sequence[Operation] = ()
    conditions: Sequence[Condition] = ()
    kept: Mapping[str, int] = {}


class Deriving(Protocol):
    """Knows what was derived from episodes and slots."""

    def __call__(self, user_id: str | None, gone: Gone, going: Gone, /) -> Derived:
        """What goes with `gone`, and what stands in for it when all of `going` are gone."""
        ...

    def recorded(self, user_id: str | None, before: datetime) -> list[str]:
        """The documents of facts that were recorded before a moment."""
        ...

"""Calls for one user, watched for the one that forgot to say whose."""

from __future__ import annotations

from pagefile.memory.names import require_user
from pagefile.memory.privacy.isolation import warn_if_anonymous
from pagefile.store.store import Store


class WatchedCalls:
    """A part of `Memory`: each public method asks `_watch` first."""

    _store: Store

    def _watch(self, user_id: str | None) -> None:
        require_user(user_id)
        if user_id is None:
            warn_if_anonymous(self._store, user_id)

"""A thread that ends idle conversations now and then, until it is told to stop."""

from __future__ import annotations

from pagefile.context.conversations import Conversations
from pagefile.errors import Invalid, Unavailable, shown
from pagefile.store.threads import Rounds


class Sweeper(Rounds):
    """Calls `expire` every `interval_seconds` while it is entered; leaving it ends the thread.

    A server that is away for a while is asked again at the next round. Any other
    error ends the thread and is raised on leaving. `ended` counts conversations.
    """

    def __init__(self, conversations: Conversations, *, interval_seconds: float = 60.0) -> None:
        if not isinstance(conversations, Conversations):
            raise Invalid("conversations", shown(conversations), "give a Conversations")
        super().__init__("pagefile-sweeper", interval_seconds, daemon=True)
        self._conversations = conversations
        self.ended = 0

    def _round(self) -> bool:
        sweep = self._conversations.expire()
        self.ended += len(sweep.ended)
        return sweep.more

    def _goes_on_after(self, failure: Exception) -> bool:
        return isinstance(failure, Unavailable)

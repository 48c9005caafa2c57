"""What a tool is given: the store of the caller's tenant, and whose things may be touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagefile.context.appender import no_thread
from pagefile.context.names import log_of
from pagefile.errors import Forbidden, NotFound, shown
from pagefile.surfaces.access.identity import digest_of
from pagefile.surfaces.mcp.budget import Budget
from pagefile.surfaces.mcp.identity import Identity

if TYPE_CHECKING:
    from pagefile.context.slot import BufferSlot
    from pagefile.context.thread import ThreadContext
    from pagefile.handle import Pagefile
    from pagefile.runs.run import Run

_PAGE = 1_000


class Caller:
    """One call: who makes it, on which handle, how long the answer may be."""

    def __init__(self, pf: Pagefile, identity: Identity, budget: Budget) -> None:
        self.pf = pf
        self.identity = identity
        self.budget = budget

    def require(self, right: str) -> None:
        """Refuse what the caller has no right to."""
        if right not in self.identity.rights:
            raise Forbidden(f"this connection has no right to {right}", "use another key")

    def user(self, asked: str | None) -> str | None:
        """Whose memories are meant; None is the bucket of nobody.

        Raises:
            Forbidden: the connection is one user's, and another was asked for.
        """
        own = self.identity.user
        if own is None or asked in (None, own):
            return own if asked is None else asked
        raise Forbidden("this connection belongs to another user", "leave user_id out")

    def key(self, thread_id: str, key: str) -> str:
        """A key for repeats as the store's: callers who choose the same never meet."""
        who = self.identity
        return f"mcp:{digest_of(who.name, who.user, thread_id, key)}" if key else ""

    # With a connection for one user, a thread is theirs if its first slot is, and of its slots
    # their own are shown. Without one, every thread and run of the tenant is theirs.

    def thread(self, thread_id: str) -> ThreadContext:
        """A thread that the caller may read."""
        view = self.pf.context.get_thread(thread_id)
        if view is None or not self._owns(view):
            raise no_thread(thread_id)
        return view

    def run(self, run_id: str) -> Run:
        """A run that the caller may read."""
        run = self.pf.runs.open(run_id)
        if self.identity.user is not None and run.user_id != self.identity.user:
            raise NotFound(f"there is no run {shown(run_id)}", "check the id")
        return run

    def sees(self, slot: BufferSlot) -> bool:
        """Whether a slot may be shown to the caller."""
        own = self.identity.user
        return own is None or (not slot.erased and slot.entry.user == own)

    def settled(self, thread_id: str) -> int | None:
        """The position to read a thread at that goes out whole; None for as it is then.

        What was looked at is what is read.

        Raises:
            NotFound: it is another user's. Forbidden: others speak in it too.
        """
        own, store, log = self.identity.user, self.pf.store, log_of(thread_id)
        if own is None or not store.has_log(log):
            return None
        self.thread(thread_id)
        at = store.head().position
        start, length = 0, store.length(log, at=at)
        while start < length:
            entries = store.read(log, start, limit=_PAGE)
            if any(not entry.erased and entry.user != own for entry in entries[: length - start]):
                raise Forbidden("others speak in this thread too", "use a key for all users")
            start += len(entries) or length
        return at

    def _owns(self, view: ThreadContext) -> bool:
        if self.identity.user is None:
            return True
        first = self.pf.store.read(log_of(view.thread_id), limit=1)
        return not first or (not first[0].erased and first[0].user == self.identity.user)

"""What a tool is given: the store of the caller's tenant, and whose things may be touched."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pagefile.context.names import log_of
from pagefile.errors import Forbidden, NotFound, shown
from pagefile.surfaces.mcp.budget import Budget
from pagefile.surfaces.mcp.identity import READ, WRITE, Identity

if TYPE_CHECKING:
    from pagefile.context.thread import ThreadContext
    from pagefile.handle import Pagefile
    from pagefile.records import Entry
    from pagefile.runs.run import Run

#: How far the owner of a thread is looked for behind slots that were erased.
_MOST_ERASED = 10_000
_PAGE = 1_000


class Caller:
    """One call: who makes it, on which handle, how long the answer may be."""

    def __init__(self, pf: Pagefile, identity: Identity, budget: Budget) -> None:
        self.pf = pf
        self.identity = identity
        self.budget = budget

    def require(self, *, writes: bool) -> None:
        """Refuse what the caller has no right to."""
        right = WRITE if writes else READ
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

    # With a connection for one user, a thread is theirs if its first slot is. Without one,
    # every thread and run of the tenant is theirs.

    def thread(self, thread_id: str) -> ThreadContext:
        """A thread that the caller may read."""
        view = self.pf.context.get_thread(thread_id)
        if view is None or not self._owns(view):
            raise NotFound(f"there is no thread {shown(thread_id)}", "check the id")
        return view

    def require_alone(self, thread_id: str) -> None:
        """Refuse a connection for one user a prompt of what others say too."""
        own, start, log = self.identity.user, 0, log_of(thread_id)
        while own is not None:
            entries = self.pf.store.read(log, start, limit=_PAGE)
            if any(not self.may_see(entry) for entry in entries):
                raise Forbidden("others speak in this thread too", "use a key for the tenant")
            if len(entries) < _PAGE:
                return
            start = entries[-1].index + 1

    def may_see(self, entry: Entry) -> bool:
        """Whether what a slot says may be shown to the caller."""
        own = self.identity.user
        return own is None or entry.erased or entry.user == own

    def require_writable(self, thread_id: str) -> bool:
        """Refuse to write into a thread that is another user's; whether it is yet to come."""
        if self.identity.user is None:
            return False
        view = self.pf.context.get_thread(thread_id)
        if view is None:
            return True
        if not self._owns(view):
            raise Forbidden(f"thread {shown(thread_id)} is another user's", "choose another id")
        return False

    def run(self, run_id: str) -> Run:
        """A run that the caller may read."""
        run = self.pf.runs.open(run_id)
        if self.identity.user is not None and run.user_id != self.identity.user:
            raise NotFound(f"there is no run {shown(run_id)}", "check the id")
        return run

    def _owns(self, view: ThreadContext) -> bool:
        if self.identity.user is None:
            return True
        for slot in islice(view, _MOST_ERASED):
            if not slot.erased:
                return slot.metadata.user_id == self.identity.user
        return True

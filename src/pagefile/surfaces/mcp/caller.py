"""Who calls, what they may do, and what a tool is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pagefile.context.appender import no_thread
from pagefile.context.names import log_of
from pagefile.errors import Forbidden, NotFound, shown
from pagefile.surfaces.access.identity import digest_of
from pagefile.surfaces.mcp.budget import Budget

if TYPE_CHECKING:
    from pagefile.context.slot import BufferSlot
    from pagefile.context.thread import ThreadContext
    from pagefile.handle import Pagefile
    from pagefile.runs.run import Run


# Who calls: one tenant, perhaps one user of it, and what they may do.


READ: Final = "read"
WRITE: Final = "write"
ADMIN: Final = "admin"


class Identity(msgspec.Struct, frozen=True):
    """Who a connection speaks for; settled before the first call, by no argument of one.

    `user` None leaves the user to the calls' arguments. `name` tells callers of one
    tenant apart, and no two have the same: a session over HTTP is used by the one who
    opened it alone, and a caller's keys for repeats are the caller's own.
    """

    tenant: str
    user: str | None = None
    rights: frozenset[str] = frozenset({READ, WRITE})
    name: str = ""


# What a call needs: the right that the same request needs over HTTP, in one table.
#
# A key has the same rights on both surfaces; a test sends each request of this
# table over HTTP, with and without the right.


#: What `forget` needs to erase; without it, it rehearses and takes facts back.
ERASING = "forget: erase"
#: Reading a pack makes it, which is noted in the run's ledger.
PACKING = "resource: pack"


class Need(NamedTuple):
    """A right, and the request over HTTP that does the same."""

    right: str
    method: str = ""
    path: str = ""


NEEDS: Mapping[str, Need] = {
    "add_memory": Need(WRITE, "POST", "/v1/episodes"),
    "search_memory": Need(READ, "POST", "/v1/search"),
    "get_memory": Need(READ, "GET", "/v1/memories/m/why"),
    "update_memory": Need(WRITE, "POST", "/v1/episodes"),
    "forget": Need(WRITE, "POST", "/v1/facts/f/retract"),
    ERASING: Need(ADMIN, "POST", "/v1/forget"),
    "get_context": Need(READ, "POST", "/v1/context"),
    "append_message": Need(WRITE, "POST", "/v1/threads/t/slots"),
    "get_thread": Need(READ, "GET", "/v1/threads/t/slots"),
    "propose_memory": Need(WRITE, "POST", "/v1/batches"),
    "commit_memory": Need(ADMIN, "POST", "/v1/batches/b/commit"),
    PACKING: Need(WRITE, "POST", "/v1/runs/r/packs"),
    # The reference server's, which there are over MCP alone.
    "create_entities": Need(WRITE),
    "create_relations": Need(WRITE),
    "add_observations": Need(WRITE),
    "delete_entities": Need(WRITE),
    "delete_observations": Need(WRITE),
    "delete_relations": Need(WRITE),
    "read_graph": Need(READ),
    "search_nodes": Need(READ),
    "open_nodes": Need(READ),
}


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

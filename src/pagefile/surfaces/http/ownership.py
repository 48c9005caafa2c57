"""What a caller who is bound to one user may reach of threads and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagefile.context.appender import no_thread
from pagefile.context.names import log_of
from pagefile.context.slot import BufferSlot
from pagefile.errors import Forbidden, NotFound, shown
from pagefile.memory.items.proposal import no_batch
from pagefile.surfaces.http.call import Caller

if TYPE_CHECKING:
    from pagefile.aio._types import AsyncRun


async def own_run(caller: Caller, run_id: str) -> AsyncRun:
    """A run, if it is the caller's to see.

    Raises:
        NotFound: there is none; or it is somebody else's, which looks the same.
    """
    run = await caller.pf.runs.open(run_id)
    own = caller.identity.user_id
    if own is not None and run.user_id != own:
        raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
    caller.touches(run.user_id)
    return run


async def require_own_thread(caller: Caller, thread_id: str) -> None:
    """Refuse to read a thread that another user began; one that nobody began is anybody's.

    A write says `owner` instead, which is looked at in its commit.

    Raises:
        NotFound: it is somebody else's, which looks as if there were none.
    """
    own = caller.identity.user_id
    if own is None:
        return
    first = await caller.pf.store.read(log_of(thread_id), limit=1)
    if first and (first[0].erased or first[0].user != own):
        raise no_thread(thread_id)


def require_own_scope(caller: Caller, mcrs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a caller who is bound to one user changes that concern others.

    Raises:
        Forbidden: there are such changes among these.
    """
    own = caller.identity.user_id
    if own is None:
        return
    for mcr in mcrs:
        # What is no change request is refused by who reads it.
        if isinstance(mcr, Mapping) and mcr.get("scope", "user") != "user":
            raise Forbidden(
                f"this key is bound to one user, and scope {shown(mcr['scope'])} concerns others",
                "use scope 'user', or a key for the whole tenant",
            )


async def require_own_batch(caller: Caller, batch_id: str | None) -> None:
    """Refuse a caller who is bound to one user a batch with changes that concern others.

    Raises:
        Forbidden: there are such changes in it. NotFound: there is no such batch.
    """
    if caller.identity.user_id is None or not batch_id:
        return
    batch = await caller.pf.items.batch(batch_id)
    if batch.user_id != caller.identity.user_id:
        raise no_batch(batch_id)
    require_own_scope(caller, [{"scope": change.scope} for change in batch.changes])


def may_see(caller: Caller, slot: BufferSlot) -> bool:
    """Whether a slot may be shown to the caller."""
    own = caller.identity.user_id
    return own is None or (not slot.erased and slot.entry.user == own)

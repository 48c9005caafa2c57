"""Who asks: the tenant's handle, and what may be touched through it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pagefile.context.appender import no_thread
from pagefile.context.names import log_of
from pagefile.context.slot import BufferSlot
from pagefile.errors import Forbidden, NotFound, shown
from pagefile.memory.items.proposal import ItemBatch, no_batch
from pagefile.operations.answer import encoded
from pagefile.store.records import Document

if TYPE_CHECKING:
    from pagefile.aio import AsyncPagefile
    from pagefile.aio._types import AsyncRun
    from pagefile.aio.memory import AsyncMemory
    from pagefile.operations.operation import Right
    from pagefile.operations.packs import PackShelf

#: Handles whose memory is loaded.
_with_memory: weakref.WeakSet[Any] = weakref.WeakSet()


class Who(Protocol):
    """A caller who proved who they are; see `pagefile.surfaces.access.identity`."""

    @property
    def name(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def rights(self) -> frozenset[Any]: ...
    @property
    def principal(self) -> str: ...
    def of_user(self, user_id: str | None) -> str | None: ...
    def require(self, right: Right) -> None: ...
    def require_whole_tenant(self) -> None: ...


class Trace(Protocol):
    """What is kept of a request: with whom, and whether it may be guessed from."""

    partition: str | None
    is_untraceable: bool
    kept_answer: bytes | None


class Host(Protocol):
    """What a server has that a library has not."""

    @property
    def packs(self) -> PackShelf: ...
    @property
    def most_upload_bytes(self) -> int: ...


class Caller:
    """An authenticated request, as operations see it."""

    __slots__ = ("identity", "pf", "trace")

    def __init__(self, identity: Who, pf: AsyncPagefile, trace: Trace) -> None:
        self.identity = identity
        self.pf = pf
        self.trace = trace

    async def memory(self) -> AsyncMemory:
        """The tenant's memory; what the first call loads is loaded without blocking the loop."""
        held = self.pf
        if held not in _with_memory:
            await asyncio.to_thread(lambda: held.sync.memory)
            _with_memory.add(held)
        return held.memory

    async def document(self, name: str) -> Document | None:
        """A document as it is now, read together with what others ask for."""
        return await self.pf.store.get(name)

    @property
    def key(self) -> str:
        """The key of this request as the store's; empty for a request without one."""
        return ""

    @property
    def is_large(self) -> bool:
        """Whether so much was sent that storing it would hold up the loop."""
        return False

    @property
    def host(self) -> Host:
        """The server that answers."""
        raise NotImplementedError

    async def run(self, run_id: str) -> AsyncRun:
        """A run, if it is the caller's to see.

        Raises:
            NotFound: there is none; or it is somebody else's, which looks the same.
        """
        run = await self.pf.runs.open(run_id)
        own = self.identity.user_id
        if own is not None and run.user_id != own:
            raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
        self.touches(run.user_id)
        return run

    async def require_own_thread(self, thread_id: str) -> None:
        """Refuse to read a thread that another user began; one that no user began is anybody's.

        A write says `owner` instead, which is looked at in its commit.

        Raises:
            NotFound: it is somebody else's, which looks as if there were none.
        """
        own = self.identity.user_id
        if own is None:
            return
        first = await self.pf.store.read(log_of(thread_id), limit=1)
        if first and (first[0].erased or first[0].user != own):
            raise no_thread(thread_id)

    def may_see(self, slot: BufferSlot) -> bool:
        """Whether a slot may be shown."""
        own = self.identity.user_id
        return own is None or (not slot.erased and slot.entry.user == own)

    def require_own_scope(self, mcrs: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a caller who is bound to one user changes that concern others.

        Raises:
            Forbidden: there are such changes among these.
        """
        if self.identity.user_id is None:
            return
        for mcr in mcrs:
            # What is not a change request is refused by its reader.
            if isinstance(mcr, Mapping) and mcr.get("scope", "user") != "user":
                raise Forbidden(
                    f"this key is bound to one user, and scope {shown(mcr['scope'])} concerns "
                    "others",
                    "use scope 'user', or a key for the whole tenant",
                )

    async def batch(self, batch_id: str) -> ItemBatch:
        """A batch, if it is the caller's to see.

        Raises:
            NotFound: there is none; or it is somebody else's, which looks the same.
        """
        batch = await self.pf.items.batch(batch_id)
        own = self.identity.user_id
        if own is not None and batch.user_id != own:
            raise no_batch(batch_id)
        self.touches(batch.user_id)
        return batch

    async def require_own_batch(self, batch_id: str | None) -> None:
        """Refuse a caller who is bound to one user a batch with changes that concern others.

        Raises:
            Forbidden: there are such changes in it. NotFound: there is no such batch.
        """
        if self.identity.user_id is not None and batch_id:
            batch = await self.batch(batch_id)
            self.require_own_scope([{"scope": change.scope} for change in batch.changes])

    @property
    def writer_id(self) -> str:
        """What ledgers call this caller."""
        return self.identity.name

    def user(self, user_id: str | None) -> str | None:
        """The user a call is for; what is kept of this request is kept with that user.

        Of a request about several it is kept with the first, and says nothing of the others.

        Raises:
            Forbidden: the caller is bound to another user.
        """
        trace, user_id = self.trace, self.identity.of_user(user_id)
        if trace.partition is None:
            trace.partition = user_id
        elif user_id != trace.partition:
            trace.is_untraceable = True
        return user_id

    def touches(self, user_id: str | None) -> None:
        """Say whose data is answered with, where that is known only now."""
        self.trace.partition = user_id

    def leaves_nothing(self, answer: Any = None) -> None:
        """Say that what is kept of this request must not tell whom it was about.

        A repeat gets `answer` if there is one, which names no user and nothing of theirs.
        """
        self.trace.partition = None
        self.trace.is_untraceable = True
        self.trace.kept_answer = None if answer is None else encoded(answer)

    def require(self, right: Right) -> None:
        """Refuse a caller without that right.

        Raises:
            Forbidden: says which right is missing.
        """
        self.identity.require(right)

    def require_whole_tenant(self) -> None:
        """Refuse a caller who is bound to one user what is about everybody.

        Raises:
            Forbidden: the caller is.
        """
        self.identity.require_whole_tenant()

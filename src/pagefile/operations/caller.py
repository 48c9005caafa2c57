"""Who asks: the tenant's handle, and what may be touched through it."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from pagefile.errors import NotFound

if TYPE_CHECKING:
    from pagefile.aio import AsyncPagefile
    from pagefile.aio._types import AsyncRun
    from pagefile.aio.memory import AsyncMemory
    from pagefile.operations.operation import Right

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

    def leaves_nothing(self, answer: bytes | None = None) -> None:
        """Say that what is kept of this request must not tell whom it was about.

        A repeat gets `answer` if there is one, which names no user and nothing of theirs.
        """
        self.trace.partition = None
        self.trace.is_untraceable = True
        self.trace.kept_answer = answer

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

"""A run with all that belongs to it: working set, ledger, milestones, brief."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagefile.memory.items.store import LongTermItems
from pagefile.runs.brief import render_context_brief
from pagefile.runs.config import RunConfig
from pagefile.runs.knowledge import Knowledge
from pagefile.runs.ledger import Identity
from pagefile.runs.milestones import Episodes, Milestone
from pagefile.runs.patch_result import PatchResult, WorkingSet
from pagefile.runs.rebuild import Rebuilt, rebuild
from pagefile.runs.repair import Repaired, repair
from pagefile.runs.working_set import WorkingRun
from pagefile.store.store import Store

if TYPE_CHECKING:
    from pagefile.runs.packs.format import Progress

__all__ = ["PatchResult", "Run", "WorkingSet"]


class Run(WorkingRun):
    """One task of an agent, from boot to resume pack."""

    def __init__(
        self, store: Store, identity: Identity, config: RunConfig, items: LongTermItems
    ) -> None:
        super().__init__(store, identity, config)
        self.episodes = Episodes(store, self, items)
        self.memory = Knowledge(self, items)

    def milestone(
        self,
        reason: str = "manual",
        *,
        memory_batch_id: str | None = None,
        next_entry_point: str = "",
        writer_id: str = "api",
    ) -> Milestone:
        """See `Episodes.create`."""
        return self.episodes.create(
            reason,
            memory_batch_id=memory_batch_id,
            next_entry_point=next_entry_point,
            writer_id=writer_id,
        )

    def rebuild(self) -> Rebuilt:
        """Fold the ledger and compare: true when it gives the stored working set.

        Where part of the ledger was erased, from the next milestone on.

        Raises:
            Corrupt: there is no milestone after what was erased.
        """
        return rebuild(self, lambda episode_id: self.episodes.get(episode_id)["ws_after"])

    def repair(self, *, writer_id: str = "api") -> Repaired:
        """Make a damaged working set again from the ledger, as its newest version.

        Raises:
            Corrupt: the ledger does not tell it either.
        """
        return repair(self, writer_id)

    def brief(
        self,
        *,
        ltm_results: Sequence[Mapping[str, Any]] | None = None,
        min_confidence: float = 0.8,
        max_tokens: int | None = None,
    ) -> str:
        """The working set as Markdown for a prompt, within the run's budget if none is given.

        Retrieved memories count: what is left of the budget beside the working set is theirs.
        """
        limit = self.config.ws_max_tokens if max_tokens is None else max_tokens
        return render_context_brief(
            self.load(),
            ltm_results=ltm_results,
            min_confidence=min_confidence,
            max_tokens=limit,
            counter=self._counter,
        )

    def create_resume_pack(
        self,
        directory: str | os.PathLike[str],
        *,
        pointers: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        writer_id: str = "api",
    ) -> pathlib.Path:
        """Write the whole run, as it is at one moment, into one file; return its path."""
        from pagefile.runs.packs.writer import create_resume_pack

        with self.recording("create_resume_pack", writer_id):
            return create_resume_pack(
                self, directory, pointers=pointers, progress=progress, writer_id=writer_id
            )

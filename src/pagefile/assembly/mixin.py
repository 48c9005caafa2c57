"""The part of a handle that makes prompts. What it needs is loaded when it is asked for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pagefile.store.store import Store

if TYPE_CHECKING:
    from pagefile.assembly.assembly import Assembly
    from pagefile.assembly.options import AssemblyOptions
    from pagefile.assembly.prompt import Prompt
    from pagefile.memory.memory import Memory
    from pagefile.runs.tokens import TokenCounter


class AssemblesPrompts:
    """A handle with a store and a memory, from which prompts are made."""

    store: Store
    _making: threading.Lock
    _assembly: Assembly | None = None

    @property
    def memory(self) -> Memory:
        raise NotImplementedError

    @property
    def assembly(self) -> Assembly:
        """Prompts for this tenant's agents, and their receipts."""
        from pagefile.assembly.assembly import Assembly

        memory = self.memory
        with self._making:
            if self._assembly is None:
                self._assembly = Assembly(self.store, memory=memory)
        return self._assembly

    def assemble(
        self,
        source: Any = None,
        query: str | None = None,
        budget: int = 8_000,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        system: str = "",
        agent: str = "",
        counter: TokenCounter | str | None = None,
        at: int | None = None,
        record: bool = True,
        options: AssemblyOptions | None = None,
    ) -> Prompt:
        """See `Assembly.assemble`."""
        return self.assembly.assemble(
            source,
            query,
            budget,
            user_id=user_id,
            project_id=project_id,
            system=system,
            agent=agent,
            counter=counter,
            at=at,
            record=record,
            options=options,
        )

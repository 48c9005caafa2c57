"""Filling a budget: who gets how much, and who leaves when it was too much after all.

The fixed part is in, or nothing is. Of what it leaves, the tail of the thread
may take its share, then the working set its own and what the tail left, then
what was recalled the rest. So another query never moves the conversation, and
another note in the working set neither. If the whole is still too big by the
counter, the worst memories leave first, then notes, the next to be evicted
first, then the status, then the oldest messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagefile.assembly.dynamic_part import Changing, normal
from pagefile.assembly.fixed_part import Fixed, RunState
from pagefile.assembly.message import ChatMessage, text_of
from pagefile.assembly.options import AssemblyOptions
from pagefile.assembly.tail import Tail
from pagefile.assembly.token_count import Meter
from pagefile.assembly.turns import Unit
from pagefile.errors import LimitExceeded
from pagefile.memory.prompt_memory import Answer, Pinned

_NEXT_STEP = "raise the budget, or shorten the system text, the blocks or what the run is for"


class Filling:
    """One prompt while it is being filled."""

    def __init__(
        self, fixed: Fixed, query: str | None, budget: int, options: AssemblyOptions, by: Meter
    ) -> None:
        self._by = by
        self._budget = budget
        self._options = options
        self._system: list[ChatMessage] = (
            [{"role": "system", "content": fixed.text}] if fixed.text else []
        )
        asks = options.include_query and query
        self.asked: list[ChatMessage] = [{"role": "user", "content": query}] if asks else []
        self.units: list[Unit] = []
        self.costs: list[int] = []
        self.changing = Changing(by)
        needed = by.prompt([*self._system, *self.asked])
        if needed > budget:
            parts = ", ".join(f"{name} {tokens}" for name, tokens in fixed.tokens.items())
            raise LimitExceeded(
                f"the fixed part of a prompt ({parts or 'query'} tokens)",
                limit=budget,
                wanted=needed,
                next_step=_NEXT_STEP,
            )
        #: What the fixed part leaves.
        self.room = budget - needed

    # Filling

    def shares(self, *, tail: bool, working: bool, recall: bool) -> tuple[int, int]:
        """What the tail and the working set may take; who is not there has no share."""
        options = self._options
        weights = (
            options.tail_share if tail else 0.0,
            options.working_share if working else 0.0,
            1 - options.tail_share - options.working_share if recall else 0.0,
        )
        whole = sum(weights)
        if whole <= 0:
            return (self.room if tail else 0), 0
        return int(self.room * weights[0] / whole), int(self.room * weights[1] / whole)

    def take_tail(self, tail: Tail, limit: int) -> int:
        """Put in the newest messages; return what they take.

        Raises:
            LimitExceeded: the newest one does not fit, and is required.
        """
        if tail.units and self._options.require_newest and tail.newest > self.room:
            raise self._no_room(tail.newest)
        count = tail.within(limit, self.room)
        if count:
            self.units, self.costs = list(tail.units[-count:]), list(tail.costs[-count:])
        return sum(self.costs)

    def take_changing(
        self,
        run: RunState | None,
        working: int,
        answer: Answer | None,
        taken: int,
        blocks: Sequence[Pinned],
    ) -> None:
        """Put in what changes with every call, into what the tail left."""
        if run is not None:
            taken += self.changing.take_working(run, working)
        if answer is not None:
            known = self._known(blocks)
            self.changing.take_recalled(answer, self.room - taken, self._options, known)

    def _known(self, blocks: Sequence[Pinned]) -> Callable[[str], bool]:
        said = [text_of(message) for unit in self.units for message in unit.messages]
        said += [pinned.block.content for pinned in blocks]
        text = f" {normal(' '.join(said))} "

        def is_known(told: str) -> bool:
            # A question and its answer may have something between them in the conversation.
            return all(f" {normal(line)} " in text for line in told.splitlines() if line.strip())

        return is_known

    def settle(self) -> tuple[list[ChatMessage], int]:
        """The messages, within the budget by what they really take."""
        while (taken := self._by.prompt(messages := self.messages())) > self._budget:
            if not self._drop(taken - self._budget):
                raise self._no_room(taken - self._budget + self.room)
        return messages, taken

    def _drop(self, excess: int) -> bool:
        """Leave out about so much of the first kind that has something; False when none has.

        Of one kind only, and then it is counted again: so what was recalled has no
        say in which messages leave.
        """
        for drop in (self.changing.drop_memory, self.changing.drop_note, self._drop_oldest):
            freed = 0
            while freed < excess and (cost := drop()):
                freed += cost
            if freed:
                return True
        return False

    def _drop_oldest(self) -> int:
        if len(self.units) <= (1 if self._options.require_newest else 0):
            return 0
        self.units.pop(0)
        return max(self.costs.pop(0), 1)

    def messages(self) -> list[ChatMessage]:
        """The prompt: what is fixed, the conversation, what changes, the newest message."""
        changing = self.changing.message()
        context = [] if changing is None else [changing]
        tail = [message for unit in self.units for message in unit.messages]
        if self.asked or not self.units:
            return [*self._system, *tail, *context, *self.asked]
        newest = len(self.units[-1].messages)
        return [*self._system, *tail[:-newest], *context, *tail[-newest:]]

    def prefix(self) -> list[ChatMessage]:
        """The part that stays the same while blocks, run and system text do."""
        return self._system

    def _no_room(self, needed: int) -> LimitExceeded:
        return LimitExceeded(
            "a prompt with its fixed part and the newest message",
            limit=self._budget,
            wanted=max(self._budget - self.room + needed, self._budget + 1),
            next_step=f"{_NEXT_STEP}; require_newest=False lets a long message be left out",
        )

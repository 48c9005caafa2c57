"""Assembly: prompts from threads, runs and memory, each with a receipt that can be checked."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.assembly import receipt_store
from pagefile.assembly.budget import Filling
from pagefile.assembly.fixed_part import fixed_part
from pagefile.assembly.options import (
    MOST_BUDGET,
    MOST_QUERY,
    MOST_SYSTEM,
    AssemblyOptions,
)
from pagefile.assembly.prompt import Prompt, copy_of
from pagefile.assembly.receipt import AssemblyReceipt, LeftOut, Piece, Verification
from pagefile.assembly.receipt_store import ReceiptPage, Whose
from pagefile.assembly.receipt_writer import Inputs, ReceiptWriter
from pagefile.assembly.relevance import Relevance
from pagefile.assembly.sources import Source, counter_of, source_of
from pagefile.assembly.tail import Tail, TailReader
from pagefile.assembly.token_count import Meter
from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.context.names import require_name
from pagefile.errors import LimitExceeded, NotFound
from pagefile.memory.items.change import require_name_or_none
from pagefile.memory.memory import Memory
from pagefile.memory.owner import require_user
from pagefile.memory.privacy.isolation import warn_if_anonymous
from pagefile.memory.prompt_memory import Answer, Recollection
from pagefile.memory.text import require_text
from pagefile.runs.tokens import TokenCounter
from pagefile.store.arguments import bounded, require_count, require_flag, require_type
from pagefile.store.snapshot import Snapshot

#: What may differ between a receipt and the one of the same prompt made again.
_NOT_COMPARED = frozenset({"recorded", "missing"})


class _Asked(msgspec.Struct, frozen=True):
    """Everything that decides what a prompt is, but the store."""

    source: Any
    query: str | None
    budget: int
    user_id: str | None
    project_id: str | None
    system: str
    agent: str
    counter: TokenCounter
    options: AssemblyOptions


class _Run(msgspec.Struct, frozen=True):
    """A run by its id alone."""

    run_id: str


class Assembly(ClosesItsStore):
    """Prompts for one tenant's agents.

    Everything of a prompt is read at one position, and nothing in it depends on
    the clock: the same position, query, budget and options give the same bytes,
    in any process. It is never over its budget by the counter. What changes least
    stands first. A call of tools and its answers stay together. Text that was
    retrieved is fenced and marked as data.

    `backend` is a store, a handle or a URL; None is a private `memory:`.
    `memory` is what is asked for blocks and recall; one with the defaults when None.
    """

    def __init__(self, backend: Backend | None = None, *, memory: Memory | None = None) -> None:
        if memory is not None:
            require_type("memory", memory, Memory)
        self._store, self._close = store_behind(backend)
        self._memory = memory

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
        """A prompt within `budget` tokens from a run, a thread or its id, or neither.

        `query` is what memory is asked; None asks nothing. `agent` is the sender
        whose messages are the model's own. `at` reads at a past position.
        `record=False` stores no receipt; the same inputs store one once.

        Raises:
            LimitExceeded: the fixed part, or the newest message, does not fit.
            NotFound: there is no such run or thread. Forbidden: it is another user's.
            Conflict: something in it was forgotten while it was made.
        """
        chosen = AssemblyOptions() if options is None else options
        require_type("options", chosen, AssemblyOptions)
        require_flag("record", record)
        require_count(budget, "budget", least=1, most=MOST_BUDGET)
        _require_texts(query, system, agent)
        require_name_or_none("project_id", project_id)
        by = counter_of(counter, source)
        asked = _Asked(source, query, budget, user_id, project_id, system, agent, by, chosen)
        past = Snapshot(self._store, at)
        where = source_of(past, source, user_id)
        if chosen.blocks or query is not None:
            warn_if_anonymous(self._store, where.user_id)
        recollection = self._recollection(past, where, asked)
        answer = self._answer(recollection, past, where, asked)
        prompt, whose = _made(asked, past, where, recollection, answer)
        if not record:
            return prompt
        stored = receipt_store.record(past, prompt.receipt, whose)
        used = [piece.stream for piece in stored.pieces if piece.section == "recall"]
        if recollection is not None and used:
            recollection.note(used, stored.receipt_id)
        return msgspec.structs.replace(prompt, receipt=stored)

    # Receipts

    def receipt(self, receipt_id: str, *, user_id: str | None = None) -> AssemblyReceipt:
        """A receipt that was recorded.

        Raises:
            NotFound: this user has none of that id.
        """
        require_user(user_id)
        return receipt_store.read(self._store, receipt_id, user_id)

    def receipts(
        self, *, user_id: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> ReceiptPage:
        """The receipts of a user's prompts, newest first."""
        require_user(user_id)
        return receipt_store.listed(self._store, user_id, bounded(limit), cursor)

    def verify_receipt(
        self,
        receipt: AssemblyReceipt | str,
        *,
        user_id: str | None = None,
        query: str | None = None,
        system: str = "",
        counter: TokenCounter | None = None,
    ) -> Verification:
        """Make the prompt again, at its position, and compare: true when the bytes are the same.

        A receipt holds no text, so `query` and `system` have to be given again, and
        a `counter` that is not registered. Where the search index was made anew
        since, memories are taken as the receipt lists them.
        """
        if isinstance(receipt, str):
            receipt = self.receipt(receipt, user_id=user_id)
        require_type("receipt", receipt, AssemblyReceipt)
        _require_texts(query, system, receipt.agent)
        kind, _, name = receipt.source.partition("/")
        given: Any = _Run(name) if kind == "run" else name or None
        asked = _Asked(
            given,
            query,
            receipt.budget,
            receipt.user_id,
            receipt.project_id,
            system,
            receipt.agent,
            counter_of(receipt.counter if counter is None else counter, given),
            receipt.options,
        )
        past = Snapshot(self._store, receipt.position)
        try:
            where = source_of(past, given, receipt.user_id)
        except NotFound as error:
            return Verification(receipt.receipt_id, ("source",), str(error))
        recollection = self._recollection(past, where, asked)
        if recollection is None or recollection.is_findable or query is None:
            answer = self._answer(recollection, past, where, asked)
        else:
            answer = _as_recorded(recollection, receipt)
        try:
            made, _ = _made(asked, past, where, recollection, answer)
        except LimitExceeded as error:
            return Verification(receipt.receipt_id, ("tokens",), str(error))
        return _compared(receipt, made.receipt)

    # Inside

    def _recollection(self, past: Snapshot, where: Source, asked: _Asked) -> Recollection | None:
        if not asked.options.blocks and asked.query is None:
            return None
        if self._memory is None:
            self._memory = Memory(self._store)
        return self._memory._at(past, where.user_id)

    def _answer(
        self, recollection: Recollection | None, past: Snapshot, where: Source, asked: _Asked
    ) -> Answer | None:
        if recollection is None or asked.query is None:
            return None
        options = asked.options
        answer = recollection.recall(
            asked.query,
            options.max_recalled,
            kinds=options.kinds,
            # What was said in this thread may be in the prompt already; what no longer is, counts.
            more_episodes=0 if where.thread_id is None else options.max_recalled,
            project_id=asked.project_id,
        )
        if not options.related_only:
            return answer
        about = Relevance(asked.query, recollection.model, past.time_us, options.min_similarity)
        return msgspec.structs.replace(answer, unrelated=about.unrelated(answer))


def _made(
    asked: _Asked,
    past: Snapshot,
    where: Source,
    recollection: Recollection | None,
    answer: Answer | None,
) -> tuple[Prompt, Whose]:
    by, options = Meter(asked.counter), asked.options
    blocks = recollection.pinned() if recollection is not None and options.blocks else []
    fixed = fixed_part(asked.system, blocks, where.run, by)
    filling = Filling(fixed, asked.query, asked.budget, options, by)
    limit, working = filling.shares(
        tail=where.thread_id is not None,
        working=where.run is not None,
        recall=answer is not None,
    )
    tail: Tail | None = None
    taken = 0
    if where.thread_id is not None:
        reader = TailReader(past, where.thread_id, asked.agent, by, only_user=where.only_user)
        tail = reader.read(limit, options.max_slots)
        taken = filling.take_tail(tail, limit)
    # The newest message may take more than its share: then less is left for the others.
    working = min(working + max(limit - taken, 0), filling.room - taken)
    filling.take_changing(where.run, working, answer, taken, blocks)
    messages, tokens = filling.settle()
    writer = ReceiptWriter(fixed, filling, tail, by)
    inputs = Inputs(
        past.position,
        where.name,
        where.user_id,
        asked.project_id,
        asked.agent,
        by.name,
        asked.budget,
        options,
        asked.query,
    )
    receipt = writer.receipt(inputs, messages, tokens)
    return Prompt(copy_of(messages), receipt), writer.whose(where.user_id)


def _as_recorded(recollection: Recollection, receipt: AssemblyReceipt) -> Answer:
    """What was recalled then, from the receipt: the index that found it is gone."""
    entries: list[Piece | LeftOut] = [*receipt.pieces, *receipt.left_out]
    recalled = [entry for entry in entries if entry.section == "recall"]
    found = {entry.stream: entry.score for entry in recalled if entry.score is not None}
    gone = [entry.stream for entry in recalled if entry.score is None]
    unrelated = [entry.stream for entry in receipt.left_out if entry.reason == "unrelated"]
    answer = recollection.again(found, gone)
    return msgspec.structs.replace(answer, unrelated=frozenset(unrelated))


def _compared(recorded: AssemblyReceipt, made: AssemblyReceipt) -> Verification:
    differs = tuple(
        name
        for name in recorded.__struct_fields__
        if name not in _NOT_COMPARED and getattr(recorded, name) != getattr(made, name)
    )
    reason = ""
    if differs:
        reason = "the prompt comes out otherwise: another query or system text was given, or"
        reason += " something that it was made of has been erased since"
    if recorded.missing:
        reason = f"{recorded.missing} entries of the receipt were erased since"
    return Verification(recorded.receipt_id, differs, reason)


def _require_texts(query: object, system: object, agent: object) -> None:
    if query is not None:
        require_text("query", query, MOST_QUERY)
    require_text("system", system, MOST_SYSTEM)
    if agent != "":
        require_name("agent", agent)

"""Assembly: prompts from threads, runs and memory, each with a receipt that can be checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from pagefile.assembly import receipt as receipts
from pagefile.assembly.budget import Filling, Fixed, RunState, fixed_part
from pagefile.assembly.message import ChatMessage
from pagefile.assembly.options import (
    MOST_BUDGET,
    MOST_QUERY,
    MOST_SYSTEM,
    AssemblyOptions,
    digest_of,
)
from pagefile.assembly.prompt import Meter, Prompt, bytes_of, copy_of
from pagefile.assembly.receipt import (
    ID_PREFIX,
    AssemblyReceipt,
    LeftOut,
    Piece,
    ReceiptPage,
    Verification,
    Whose,
)
from pagefile.assembly.tail import Tail, TailReader
from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.context.names import log_of, require_name
from pagefile.context.slot import BufferSlot
from pagefile.errors import Forbidden, Invalid, LimitExceeded, NotFound, shown
from pagefile.memory.documents import require_text, require_user
from pagefile.memory.items.change import require_name_or_none
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.isolation import warn_if_anonymous
from pagefile.memory.prompt_memory import Answer, Recalled, Recollection
from pagefile.recall.hit import Hit
from pagefile.recall.text.analysis import terms
from pagefile.recall.text.question import Speakers, question_of
from pagefile.runs.kinds import RUNS, WORKING_SET, require_id
from pagefile.runs.tokens import TokenCounter, counter_named
from pagefile.store.arguments import bounded, require_count, require_flag, require_type
from pagefile.store.records import Document, Entry
from pagefile.store.snapshot import Snapshot

# What a prompt is about: a run, a thread, or nothing but a user's memory.


_DEFAULT_COUNTER = "chars/4"


class Source(msgspec.Struct, frozen=True):
    """Where a prompt comes from; `name` is the stream's, empty when there is none."""

    name: str
    user_id: str | None
    thread_id: str | None = None
    run: RunState | None = None
    #: Whose run it is: in its thread, what other users said is not shown.
    only_user: str | None = None


def source_of(past: Snapshot, given: Any, user_id: str | None) -> Source:
    """What the caller means: a run, a thread or its id, or None.

    A run, sync or awaited, is known by its `run_id`, a view of a thread by its
    `thread_id`; both are read here, at the position.

    Raises:
        NotFound: there is no such run or thread at the position.
        Forbidden: the run is another user's.
    """
    require_user(user_id)
    if given is None:
        return Source("", user_id)
    run_id = getattr(given, "run_id", None)
    if run_id is not None:
        return _run(past, require_id("run_id", run_id), user_id)
    thread_id = given if isinstance(given, str) else getattr(given, "thread_id", None)
    if thread_id is None:
        raise Invalid("source", f"{shown(given)} is none", "give a run, a thread, its id, or None")
    log = log_of(thread_id)
    if not past.has_log(log):
        raise NotFound(f"there is no thread {shown(thread_id)}", "append to it first")
    return Source(log, user_id, thread_id)


def _run(past: Snapshot, run_id: str, user_id: str | None) -> Source:
    name = RUNS + run_id
    found = past.get(name)
    if found is None or found.erased or found.kind != WORKING_SET:
        raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
    if user_id is None:
        user_id = found.user
    elif found.user is not None and found.user != user_id:
        raise Forbidden(f"run {run_id!r} is another user's", "leave user_id out, or give the run's")
    ws = found.value
    thread_id = ws["thread_id"] if past.has_log(log_of(ws["thread_id"])) else None
    return Source(name, user_id, thread_id, RunState(ws, found), found.user)


def counter_of(given: TokenCounter | str | None, source: Any) -> TokenCounter:
    """The counter that was named or given; a run's own when none was."""
    if given is None:
        config = getattr(source, "config", None)
        given = getattr(config, "token_counter", _DEFAULT_COUNTER)
    if isinstance(given, str):
        return counter_named(given)
    if not callable(getattr(given, "count", None)) or not isinstance(
        getattr(given, "name", None), str
    ):
        raise Invalid("counter", shown(given), "give the name of a counter, or one with count()")
    return given


# Whether a memory that was found has to do with the question, by measures that hold for any.


#: From which cosine on a model holds two texts to be about one thing. Of the bundled one, texts
#: about nothing in common have 0.3 to 0.55, and seldom more; an answer has mostly 0.56 to 0.8.
FLOORS: Final = {"bge-small-en-v1.5-int8": 0.56}


class Relevance:
    """What a question is about.

    Scores compare the memories of one search with each other: the best of them
    has a high one whatever is asked. Here each is held against the question alone.
    """

    def __init__(
        self, query: str, model: str, now_us: int, min_similarity: float | None = None
    ) -> None:
        self._query = query
        self._terms = frozenset(terms(query))
        self._only_when = question_of(query, Speakers(()), now_us).only_when
        self._floor = FLOORS.get(model) if min_similarity is None else min_similarity

    def unrelated(self, answer: Answer) -> frozenset[str]:
        """The documents of what was found for no reason but that nothing better was there."""
        if not self._query.strip():  # The newest were asked for.
            return frozenset()
        return frozenset(one.record.name for one in answer.found if not self._is_related(one))

    def _is_related(self, one: Recalled) -> bool:
        if not self._terms.isdisjoint(terms(one.text)):
            return True
        hit = one.hit
        if hit is None:
            return False
        return bool(hit.matched) or self._is_near(hit) or self._is_of(hit) or self._is_timely(hit)

    def _is_near(self, hit: Hit) -> bool:
        """Whether the vectors say so; of an unknown model, all that they find is near."""
        floor = self._floor
        return any(
            arm.name == "vector" and (floor is None or arm.score >= floor) for arm in hit.arms
        )

    def _is_of(self, hit: Hit) -> bool:
        """Whether the question names who said it; "I" and "you" are no names."""
        return any(not named.implied for named in Speakers((hit.speaker,)).find(self._query))

    def _is_timely(self, hit: Hit) -> bool:
        return self._only_when and any(boost.name == "time" for boost in hit.boosts)


# Writing the receipt of a prompt that has been filled.


class Inputs(msgspec.Struct, frozen=True):
    """What a receipt tells of what was asked for."""

    position: int
    source: str
    user_id: str | None
    project_id: str | None
    agent: str
    counter: str
    budget: int
    options: AssemblyOptions
    query: str | None


class ReceiptWriter:
    """Tells what a filled prompt is made of."""

    def __init__(self, fixed: Fixed, filling: Filling, tail: Tail | None, by: Meter) -> None:
        self._fixed = fixed
        self._filling = filling
        self._tail = tail
        self._by = by

    def receipt(
        self, inputs: Inputs, messages: Sequence[ChatMessage], tokens: int
    ) -> AssemblyReceipt:
        """The receipt; its id is a digest of all of it."""
        key = self._key()
        sections: dict[str, int] = {}
        sections |= {str(name): tokens for name, tokens in self._fixed.tokens.items()}
        sections.update(self._filling.changing.tokens)
        if self._filling.costs:
            sections["tail"] = sum(self._filling.costs)
        if self._filling.asked:
            sections["query"] = sum(map(self._by.message, self._filling.asked))
        made = AssemblyReceipt(
            receipt_id="",
            position=inputs.position,
            source=inputs.source,
            user_id=inputs.user_id,
            project_id=inputs.project_id,
            agent=inputs.agent,
            counter=inputs.counter,
            budget=inputs.budget,
            tokens=tokens,
            options=inputs.options,
            options_digest=digest_of(inputs.options),
            digest=_keyed(key, bytes_of(messages)),
            prefix_digest=_keyed(b"pagefile prefix", bytes_of(self._filling.prefix())),
            query_digest="" if inputs.query is None else _keyed(key, inputs.query.encode()),
            sections=sections,
            pieces=tuple(self._pieces()),
            left_out=tuple(self._left_out()),
        )
        return msgspec.structs.replace(made, receipt_id=ID_PREFIX + digest_of(made)[:32])

    def whose(self, own: str | None) -> Whose:
        """The records in the receipt that are of other users, who have names."""
        users: dict[tuple[str, int], str] = {}
        for name, number, user in self._owners():
            if user is not None and user != own:
                users[name, number] = user
        return Whose(users)

    def _owners(self) -> list[tuple[str, int, str | None]]:
        found = []
        if self._tail is not None:
            slots = [slot for unit in self._tail.units for slot in unit.slots]
            slots += [one.slot for one in self._tail.dropped if not one.slot.erased]
            found += [(self._tail.log, slot.index, slot.entry.user) for slot in slots]
        found += [
            (one.record.name, one.record.version, one.record.user)
            for one in self._filling.changing.seen
        ]
        return found

    def _pieces(self) -> list[Piece]:
        pieces = list(self._fixed.pieces)
        if self._tail is not None:
            for slot, tokens in self._shown.items():
                digest = slot.entry.digest.hex()
                pieces.append(Piece("tail", tokens, digest, self._tail.log, slot.index))
        pieces += self._filling.changing.pieces
        pieces += [Piece("query", self._by.message(one)) for one in self._filling.asked]
        return pieces

    @cached_property
    def _shown(self) -> dict[BufferSlot, int]:
        """The slots of the tail that are in the prompt, and what their messages take."""
        shown: dict[BufferSlot, int] = {}
        for unit in self._filling.units:
            for slot, message in zip(unit.slots, unit.messages, strict=True):
                shown[slot] = shown.get(slot, 0) + self._by.message(message)
        return shown

    def _left_out(self) -> list[LeftOut]:
        found: list[LeftOut] = []
        tail = self._tail
        if tail is not None:
            first = min((unit.first for unit in self._filling.units), default=tail.length)
            if first > 0:
                found.append(LeftOut("tail", "budget", tail.log, 0, first - 1))
            for one in tail.dropped:
                index = one.slot.index
                if index >= first:
                    found.append(LeftOut("tail", one.reason, tail.log, index, index))
        return [*found, *self._filling.changing.left_out]

    def _key(self) -> bytes:
        """Made of the salts of all records in the prompt: gone when one of them is erased."""
        records: list[Document | Entry] = list(self._fixed.records)
        records += [slot.entry for slot in self._shown]
        records += [one.record for one in self._recalled()]
        return _salts(records)

    def _recalled(self) -> list[Recalled]:
        lines = self._filling.changing.recalled
        return [line.recalled for line in lines if line.recalled is not None]


def _salts(records: Sequence[Document | Entry]) -> bytes:
    whole = hashlib.sha256(b"pagefile prompt")
    for record in records:
        assert record.content is not None
        whole.update(record.content.salt)
    return whole.digest()


def _keyed(key: bytes, told: bytes) -> str:
    return hashlib.sha256(key + told).hexdigest()


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
        stored = receipts.record(past, prompt.receipt, whose)
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
        return receipts.read(self._store, receipt_id, user_id)

    def receipts(
        self, *, user_id: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> ReceiptPage:
        """The receipts of a user's prompts, newest first."""
        require_user(user_id)
        return receipts.listed(self._store, user_id, bounded(limit), cursor)

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

"""Writing the receipt of a prompt that has been filled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import msgspec

from pagefile.assembly.budget import Filling
from pagefile.assembly.fixed_part import Fixed
from pagefile.assembly.message import ChatMessage
from pagefile.assembly.options import AssemblyOptions, digest_of
from pagefile.assembly.prompt import bytes_of
from pagefile.assembly.receipt import AssemblyReceipt, LeftOut, Piece
from pagefile.assembly.receipt_store import ID_PREFIX, Whose
from pagefile.assembly.tail import Tail
from pagefile.assembly.token_count import Meter
from pagefile.context.slot import BufferSlot
from pagefile.memory.prompt_memory import Recalled
from pagefile.store.records import Document, Entry


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

"""The receipt of a prompt: what went in, what was left out and why; no text of anybody's."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagefile.assembly.options import AssemblyOptions

Section = Literal["system", "blocks", "run", "tail", "working", "recall", "query"]
#: Why something is not in the prompt.
Reason = Literal[
    "budget",
    "duplicate",
    "superseded",
    "threshold",
    "unrelated",
    "unpaired_tool_call",
    "unpaired_tool_result",
    "erased",
]


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that went in: the record it comes from, and what it takes.

    `stream` and `number` name the record: a document and its version, a log and
    an index. `digest` is the record's own, which is salted; of the system text,
    that of the text. It is empty for an item of a working set, whose record is
    that of section `run`; `item` is its id.
    """

    section: Section
    tokens: int
    digest: str = ""
    stream: str = ""
    number: int = 0
    item: str = ""
    score: float | None = None


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that did not go in, and why; of a log, everything from `number` to `last`."""

    section: Section
    reason: Reason
    stream: str = ""
    number: int = 0
    last: int = 0
    item: str = ""
    tokens: int = 0
    score: float | None = None


class AssemblyReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to make a prompt.

    `position` is where everything was read. `tokens` is what the prompt takes by
    `counter`, `sections` what each part takes; the difference is what parts and
    messages cost by themselves. `digest` is of the prompt's bytes, made with the
    salts of the records in it, so that it says nothing once they are erased;
    `query_digest` the same of the query. `prefix_digest` is of the system message
    alone, unsalted: it stays while the start of the prompt does. `recorded` says
    whether the receipt is in the store. `missing` counts entries that were erased
    since.
    """

    receipt_id: str
    position: int
    source: str
    user_id: str | None
    project_id: str | None
    agent: str
    counter: str
    budget: int
    tokens: int
    options: AssemblyOptions
    options_digest: str
    digest: str
    prefix_digest: str
    query_digest: str
    sections: dict[str, int]
    pieces: tuple[Piece, ...]
    left_out: tuple[LeftOut, ...]
    recorded: bool = False
    missing: int = 0


class Verification(msgspec.Struct, frozen=True):
    """Whether a prompt can be made again, byte for byte; true when it can.

    `differs` names the fields of the receipt that came out otherwise.
    """

    receipt_id: str
    differs: tuple[str, ...] = ()
    reason: str = ""

    def __bool__(self) -> bool:
        return not self.differs

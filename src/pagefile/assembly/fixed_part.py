"""The fixed part of a prompt: what stands first, changes least, and is never left out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pagefile.assembly.receipt import Piece, Section
from pagefile.assembly.token_count import Meter
from pagefile.memory.prompt_memory import Pinned
from pagefile.runs.brief_lines import fixed_sections
from pagefile.store.records import Document

_BLOCKS: Final = "# Memory blocks\n\n"
_RUN: Final = "# Task\n"
_HEADINGS: Final = (
    "\n## Objective\n",
    "\n## Acceptance criteria\n",
    "\n## Constraints\n",
    "\n## Pinned context\n",
)


class RunState(msgspec.Struct, frozen=True):
    """A run's working set, and the record that holds it."""

    ws: Mapping[str, Any]
    record: Document


class Fixed(msgspec.Struct, frozen=True):
    """The text of the system message, what it is made of, and what each part takes."""

    text: str
    pieces: tuple[Piece, ...]
    tokens: dict[Section, int]
    records: tuple[Document, ...]


def fixed_part(system: str, blocks: Sequence[Pinned], run: RunState | None, by: Meter) -> Fixed:
    """System text, then blocks, then what the run is for: from what changes least."""
    texts: list[str] = []
    pieces: list[Piece] = []
    tokens: dict[Section, int] = {}
    if system:
        texts.append(system)
        tokens["system"] = by.count(system)
        digest = hashlib.sha256(system.encode()).hexdigest()
        pieces.append(Piece("system", tokens["system"], digest))
    if blocks:
        shown = [pinned.block.format() for pinned in blocks]
        texts.append(_BLOCKS + "\n".join(shown))
        tokens["blocks"] = by.count(texts[-1])
        pieces += [
            _piece("blocks", pinned.record, by.count(text))
            for pinned, text in zip(blocks, shown, strict=True)
        ]
    if run is not None:
        sections = zip(_HEADINGS, fixed_sections(run.ws), strict=False)
        texts.append(_RUN + "".join(f"{heading}{''.join(lines)}" for heading, lines in sections))
        tokens["run"] = by.count(texts[-1])
        pieces.append(_piece("run", run.record, tokens["run"]))
    records = [pinned.record for pinned in blocks]
    records += [] if run is None else [run.record]
    return Fixed("\n\n".join(texts), tuple(pieces), tokens, tuple(records))


def _piece(section: Section, record: Document, tokens: int) -> Piece:
    return Piece(section, tokens, record.digest.hex(), record.name, record.version)

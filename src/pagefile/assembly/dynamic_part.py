"""The part of a prompt that changes with every call: the run's state, and what was recalled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pagefile.assembly.fence import MARK, fenced, framed
from pagefile.assembly.fixed_part import RunState
from pagefile.assembly.message import ChatMessage
from pagefile.assembly.options import AssemblyOptions
from pagefile.assembly.receipt import LeftOut, Piece
from pagefile.assembly.token_count import PER_MESSAGE, Meter
from pagefile.memory.prompt_memory import Answer, Recalled
from pagefile.runs.brief_lines import contained, fixed_sections, inline, sliding_line
from pagefile.runs.eviction import rank

#: Who seems to say it: neither the user nor the system.
_NAME: Final = "context"
_STATE: Final = "# State of the task\n"
_NOTES: Final = "\n## Notes\n"
_MEMORY: Final = "# From memory\n"
_STATUS: Final = "status"


class Line(msgspec.Struct, frozen=True):
    """A line that may go in: its place among the others, and what it costs."""

    text: str
    cost: int
    order: int
    item: str = ""
    recalled: Recalled | None = None


class Changing:
    """What of a working set and of memory goes into one message."""

    def __init__(self, by: Meter) -> None:
        self._by = by
        self.working: list[Line] = []
        self.recalled: list[Line] = []
        self.left_out: list[LeftOut] = []
        #: All that was recalled, in the prompt or not.
        self.seen: list[Recalled] = []

    # Choosing

    def take_working(self, run: RunState, room: int) -> int:
        """The status, then sliding items, the last to be evicted first, while they fit."""
        lines = [self._status(run.ws), *self._sliding(run.ws)]
        taken = PER_MESSAGE + self._by.count(_STATE + _NOTES)
        full = False
        for line in lines:
            full = full or taken + line.cost > room
            if full:
                self.left_out.append(_left_line(line))
            else:
                self.working.append(line)
                taken += line.cost
        return taken if self.working else 0

    def take_recalled(
        self,
        answer: Answer,
        room: int,
        options: AssemblyOptions,
        is_known: Callable[[str], bool],
    ) -> None:
        """The best that fit, each once, without what the prompt says already.

        Of each kind at most `max_recalled`, those not counted that the prompt says already.
        """
        taken = PER_MESSAGE + self._by.count(_MEMORY + framed(MARK, ""))
        said: set[str] = set()
        looked_at: Counter[str] = Counter()
        for order, one in enumerate(answer.found):
            text = normal(one.text)
            is_new = not (text in said or is_known(one.text))
            if is_new and looked_at[one.kind] == options.max_recalled:
                continue
            looked_at[one.kind] += is_new
            self.seen.append(one)
            if one.score < options.min_score or one.confidence < options.min_confidence:
                self.left_out.append(_left(one, "threshold"))
            elif one.record.name in answer.unrelated:
                self.left_out.append(_left(one, "unrelated"))
            elif not is_new:
                self.left_out.append(_left(one, "duplicate"))
            else:
                line = _memory_line(one)
                cost = self._by.count(line)
                if taken + cost > room:
                    self.left_out.append(_left(one, "budget", cost))
                    continue
                said.add(text)
                taken += cost
                self.recalled.append(Line(line, cost, order, one.id, one))
        self.left_out += [LeftOut("recall", "superseded", name) for name in answer.superseded]

    def drop_memory(self) -> int:
        """Leave the worst memory out; what it cost, at least 1, or 0 when there is none."""
        if not self.recalled:
            return 0
        line = self.recalled.pop()
        assert line.recalled is not None
        self.left_out.append(_left(line.recalled, "budget", line.cost))
        return max(line.cost, 1)

    def drop_note(self) -> int:
        """Leave out the note that is evicted next, at last the status; what it cost."""
        if not self.working:
            return 0
        line = self.working.pop()
        self.left_out.append(_left_line(line))
        return max(line.cost, 1)

    # Showing

    def message(self) -> ChatMessage | None:
        """The one message, or None when nothing is in it."""
        parts = []
        if self.working:
            parts.append(self._working_text())
        if self.recalled:
            parts.append(_MEMORY + fenced([line.text for line in self.recalled]))
        if not parts:
            return None
        return {"role": "user", "name": _NAME, "content": "\n".join(parts)}

    def _working_text(self) -> str:
        notes = sorted((line for line in self.working if line.item), key=lambda line: line.order)
        status = [line.text for line in self.working if not line.item]
        shown = [_NOTES, *(line.text for line in notes)] if notes else []
        return "".join([_STATE, *status, *shown])

    @property
    def tokens(self) -> dict[str, int]:
        """What each of the two takes, frames included."""
        taken = {}
        if self.working:
            taken["working"] = self._by.count(self._working_text())
        if self.recalled:
            text = _MEMORY + fenced([line.text for line in self.recalled])
            taken["recall"] = self._by.count(text)
        return taken

    @property
    def pieces(self) -> list[Piece]:
        pieces = [Piece("working", line.cost, item=line.item or _STATUS) for line in self.working]
        for line in self.recalled:
            one = line.recalled
            assert one is not None
            digest = one.record.digest.hex()
            name, version = one.record.name, one.record.version
            pieces.append(Piece("recall", line.cost, digest, name, version, score=one.score))
        return pieces

    def _status(self, ws: Mapping[str, Any]) -> Line:
        text = "".join(fixed_sections(ws)[-1])
        return Line(text, self._by.count(text), -1)

    def _sliding(self, ws: Mapping[str, Any]) -> list[Line]:
        items: Sequence[Mapping[str, Any]] = ws["sliding_context"]
        kept_longest = sorted(range(len(items)), key=lambda at: rank(items[at]), reverse=True)
        lines = []
        for order in kept_longest:
            text = sliding_line(items[order])
            lines.append(Line(text, self._by.count(text), order, items[order]["id"]))
        return lines


def normal(text: str) -> str:
    """What two tellings of the same have in common."""
    return " ".join(text.casefold().split())


def _memory_line(one: Recalled) -> str:
    sure = "" if one.kind == "episode" else f" confidence={one.confidence:.2f}"
    return f"- {contained(one.text)} ({one.kind} {inline(one.id)} {one.when.date()}{sure})\n"


def _left(one: Recalled, reason: Any, tokens: int = 0) -> LeftOut:
    number = one.record.version
    return LeftOut(
        "recall", reason, one.record.name, number, number, tokens=tokens, score=one.score
    )


def _left_line(line: Line) -> LeftOut:
    return LeftOut("working", "budget", item=line.item or _STATUS, tokens=line.cost)

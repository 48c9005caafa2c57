"""What a prompt takes, by a token counter, in whichever form it is sent.

A message costs what its texts count, and `PER_MESSAGE` for what an API adds to
it; a prompt costs `PER_PROMPT` more. Counted are all three forms, and the
largest is what it takes: so it fits in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pagefile.assembly.formats import to_anthropic, to_text
from pagefile.assembly.message import ChatMessage, spelled
from pagefile.errors import Invalid, shown
from pagefile.runs.tokens import TokenCounter

PER_MESSAGE: Final = 4
PER_PROMPT: Final = 3
_SHORT: Final = 40


class Meter:
    """Counts with one counter, whose answers are held to what a counter promises."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.name = counter.name
        #: Roles, names and ids come again and again.
        self._short: dict[str, int] = {}
        #: By identity, and with the message, so that the identity stays its own.
        self._prices: dict[int, tuple[ChatMessage, int]] = {}

    def count(self, text: str) -> int:
        """How many tokens the text is."""
        if len(text) <= _SHORT:
            known = self._short.get(text)
            if known is None:
                known = self._short[text] = self._counted(text)
            return known
        return self._counted(text)

    def _counted(self, text: str) -> int:
        found = self._counter.count(text)
        if type(found) is not int or found < 0:
            fact = f"{self.name} counts {shown(found)} tokens"
            raise Invalid("counter", fact, "count() gives a whole number from 0 up")
        return found

    def message(self, message: ChatMessage) -> int:
        """What one message costs, to plan with; a message must not change afterwards."""
        known = self._prices.get(id(message))
        if known is None:
            price = PER_MESSAGE + sum(map(self.count, _parts(message)))
            known = self._prices[id(message)] = (message, price)
        return known[1]

    def prompt(self, messages: Sequence[ChatMessage]) -> int:
        """What the whole takes in its largest form."""
        openai = _sum(self.count(part) for message in messages for part in _parts(message))
        form = to_anthropic(messages)
        anthropic = self.count(form["system"]) + _sum(
            self.count(part) for turn in form["messages"] for part in _turn_parts(turn)
        )
        turns = len(form["messages"]) + bool(form["system"])
        return PER_PROMPT + max(
            openai + PER_MESSAGE * len(messages),
            anthropic + PER_MESSAGE * turns,
            self.count(to_text(messages)),
        )


def _sum(counts: Iterable[int]) -> int:
    return sum(counts)


def _parts(message: ChatMessage) -> list[str]:
    content = message["content"]
    parts = [message["role"], content if isinstance(content, str) else spelled(content)]
    parts += [message[name] for name in ("name", "tool_call_id") if name in message]
    if "tool_calls" in message:
        parts.append(spelled(message["tool_calls"]))
    return parts


def _turn_parts(turn: dict[str, Any]) -> list[str]:
    blocks = turn["content"]
    texts = [block["text"] if block["type"] == "text" else spelled(block) for block in blocks]
    return [turn["role"], *texts]

"""A prompt: messages for a model, and the receipt of how they were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pagefile.assembly.formats import to_anthropic, to_text
from pagefile.assembly.message import ChatMessage
from pagefile.assembly.receipt import AssemblyReceipt


class Prompt(msgspec.Struct, frozen=True):
    """What to send to a model. `messages` is what OpenAI's chat API takes.

    In any of its three forms it is within the budget of `receipt`.
    """

    messages: list[ChatMessage]
    receipt: AssemblyReceipt

    def openai(self) -> list[ChatMessage]:
        """The messages, a copy of your own."""
        return copy_of(self.messages)

    def anthropic(self) -> dict[str, Any]:
        """`system` and `messages`, as Anthropic's API takes them."""
        return to_anthropic(copy_of(self.messages))

    def text(self) -> str:
        """Everything as one text, each message under a heading."""
        return to_text(self.messages)

    def to_bytes(self) -> bytes:
        """The messages as JSON: the same bytes for the same position, query, budget and options."""
        return bytes_of(self.messages)


def bytes_of(messages: Sequence[ChatMessage]) -> bytes:
    """Messages as JSON, the same for the same messages."""
    return msgspec.json.encode(messages, order="deterministic")


def copy_of(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The same messages, which can be changed."""
    made: list[ChatMessage] = msgspec.json.decode(msgspec.json.encode(messages))
    return made

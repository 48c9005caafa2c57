"""A prompt in its three forms, and what each of them takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from pagefile.assembly.message import ChatMessage, spelled, text_of
from pagefile.assembly.receipt import AssemblyReceipt
from pagefile.errors import Invalid, shown
from pagefile.runs.tokens import TokenCounter

# The three forms of a prompt: OpenAI's messages, Anthropic's, and plain text.


_EARLIER = "(The conversation began earlier.)"
_HEADING = "### "
#: What could be taken for a heading: at the start of a line, by any sign that ends one.
_IMITATION = re.compile("(^|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])(\\\\*### )")


def to_anthropic(messages: Sequence[ChatMessage]) -> dict[str, Any]:
    """`system` and `messages` for Anthropic's API.

    The first system message stands apart; a later one becomes what the user
    says. Turns alternate and the user's comes first: what stands next to each
    other is joined, and where the model would come first, a note stands before.
    """
    system = text_of(messages[0]) if messages and messages[0]["role"] == "system" else ""
    turns: list[dict[str, Any]] = []
    for message in messages[1 if system else 0 :]:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message)
        if not turns and role == "assistant":
            turns.append({"role": "user", "content": [_text(_EARLIER)]})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return {"system": system, "messages": turns}


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        answer = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
        return [answer | {"content": text_of(message)}]
    said = text_of(message)
    if message.get("name"):
        said = f"{message['name']}: {said}"
    # Empty texts are refused there.
    blocks = [_text(said)] if said.strip() else []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": _arguments(function["arguments"]),
            }
        )
    return blocks


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _arguments(text: str) -> dict[str, Any]:
    """What the model wrote as arguments; what is no JSON object stays as it was written."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def to_text(messages: Sequence[ChatMessage]) -> str:
    """One text, each message under a heading that no message can imitate."""
    return "\n".join(_passage(message) for message in messages)


def _passage(message: ChatMessage) -> str:
    who = " ".join(
        str(message[name]) for name in ("role", "name", "tool_call_id") if message.get(name)
    )
    lines = [_IMITATION.sub(r"\1\\\2", text_of(message))]
    lines += [f"-> {spelled(call)}" for call in message.get("tool_calls", ())]
    body = "\n".join(lines)
    return f"{_HEADING}{who}\n{body}\n"


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


# What a prompt takes, by a token counter, in whichever form it is sent.
#
# A message costs what its texts count, and `PER_MESSAGE` for what an API adds to
# it; a prompt costs `PER_PROMPT` more. Counted are all three forms, and the
# largest is what it takes: so it fits in each.


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

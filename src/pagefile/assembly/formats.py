"""The three forms of a prompt: OpenAI's messages, Anthropic's, and plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from pagefile.assembly.message import ChatMessage, spelled, text_of

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

"""From what a slot holds to chat messages, in the shape that OpenAI's API takes.

Messages are made from the stored bytes, not from Python objects, so they are the
same in every process, whichever payload classes it knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from pagefile.context.slot import LANE, BufferSlot
from pagefile.store.records import mapping_from_bytes

#: One chat message: role, content, and where there are some name, tool_calls, tool_call_id.
ChatMessage: TypeAlias = dict[str, Any]

#: Senders that are the model's own side where nobody says which one is.
_MODELS: Final = frozenset({"assistant", "agent", "ai", "model"})
_PEOPLE: Final = frozenset({"user", "human", ""})
_ROLES: Final = frozenset({"user", "assistant", "tool", "system", "developer"})
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MOST_NAME: Final = 64


def messages_of(slot: BufferSlot, agent: str) -> list[ChatMessage]:
    """The messages that a slot stands for; as a rule one.

    A chat message is taken as it is, Anthropic's content blocks in OpenAI's
    shape. Any other payload is told as JSON, with its type's name, by its sender.
    A "system" message counts as one only from a sender named "system".
    """
    value = msgspec.json.decode(slot.entry.body or b"null")
    if isinstance(value, dict) and _has_role(value) and not _is_tagged(value):
        made = _chat(value, slot)
        if made is not None:
            return made
    role = "assistant" if _is_own(slot, agent) else "user"
    return [_sent({"role": role, "content": _told(value, slot.entry.type_name)}, slot)]


def _is_own(slot: BufferSlot, agent: str) -> bool:
    """Whether the model itself said it."""
    metadata = slot.metadata
    if metadata.is_self_call:
        return True
    if agent:
        return slot.from_id == agent
    return slot.from_id == metadata.own_name or slot.from_id in _MODELS


def _has_role(value: Mapping[str, Any]) -> bool:
    # Anybody's payload comes here: a role may as well be a list, which no set can look up.
    role = value.get("role")
    return isinstance(role, str) and role in _ROLES


def _is_tagged(value: Mapping[str, Any]) -> bool:
    return any(name.startswith("$") for name in value)


def _told(value: Any, type_name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and len(value) == 1 and not type_name:
        ((name, text),) = value.items()
        if name in ("text", "content") and isinstance(text, str):
            return text
    told = spelled(value)
    return f"{type_name} {told}" if type_name else told


def _sent(message: ChatMessage, slot: BufferSlot) -> ChatMessage:
    if message["role"] != "user":
        return message
    content = slot.entry.content
    assert content is not None
    return _named(message, _sender(content.keys, content.actor))


@lru_cache(4_096)
def _sender(keys: bytes, actor: str) -> str:
    """Who sent a slot with these keys; kept, for they are the same in most slots of a thread."""
    lane = mapping_from_bytes(keys).get(LANE)
    return str(lane[1]) if isinstance(lane, tuple) else actor


def _named(message: ChatMessage, sender: str) -> ChatMessage:
    """With who said it, where that is not plain from the role."""
    if message["role"] == "user" and sender not in _PEOPLE:
        name = _UNFIT.sub("_", sender)[:_MOST_NAME]
        if name.strip("_"):
            message["name"] = name
    return message


def _chat(value: Mapping[str, Any], slot: BufferSlot) -> list[ChatMessage] | None:
    """The messages of a chat payload; None when it has not the shape of one."""
    role, content = value["role"], value.get("content")
    if role in ("system", "developer"):
        if not isinstance(content, str):
            return None
        if slot.from_id == "system":
            return [{"role": "system", "content": content}]
        return [_sent({"role": "user", "content": spelled(value)}, slot)]
    if role == "tool":
        call = value.get("tool_call_id")
        if not isinstance(call, str) or not call:
            return None
        return [{"role": "tool", "content": _plain(content), "tool_call_id": call}]
    if isinstance(content, list) and _has_blocks(content):
        return _from_blocks(role, content, slot)
    if content is not None and not isinstance(content, str) and not _is_parts(content):
        return None
    message: ChatMessage = {"role": role, "content": "" if content is None else content}
    given = value.get("name")
    if role == "user" and isinstance(given, str):
        return [_named(message, given)]
    if role == "assistant" and value.get("tool_calls"):
        calls = _calls(value["tool_calls"])
        if calls is None:
            return None
        message["tool_calls"] = calls
    return [_sent(message, slot)]


def _calls(given: Any) -> list[dict[str, Any]] | None:
    """The calls in OpenAI's shape, each id once; None when they are none."""
    if not isinstance(given, list):
        return None
    calls: dict[str, dict[str, Any]] = {}
    for one in given:
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return None
        if not isinstance(one.get("id"), str) or not one["id"]:
            return None
        arguments = function.get("arguments", "{}")
        if not isinstance(arguments, str):
            arguments = spelled(arguments)
        calls.setdefault(one["id"], call_of(one["id"], function["name"], arguments))
    return list(calls.values())


def call_of(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """One call of a tool in OpenAI's shape."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _is_parts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )


def _has_blocks(content: list[Any]) -> bool:
    return any(
        isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result")
        for part in content
    )


def _from_blocks(role: str, content: list[Any], slot: BufferSlot) -> list[ChatMessage] | None:
    """Anthropic's blocks: what calls tools, and what they answered, as OpenAI has it."""
    if not _is_parts(content):
        return None
    rest = [part for part in content if part["type"] not in ("tool_use", "tool_result")]
    texts = [part.get("text") for part in rest if part["type"] == "text"]
    told = "\n".join(text for text in texts if isinstance(text, str))
    calls: dict[str, dict[str, Any]] = {}
    answers: list[ChatMessage] = []
    for part in content:
        if part["type"] == "tool_use" and isinstance(part.get("id"), str) and part["id"]:
            made = call_of(part["id"], str(part.get("name", "")), spelled(part.get("input", {})))
            calls.setdefault(part["id"], made)
        elif part["type"] == "tool_result" and isinstance(part.get("tool_use_id"), str):
            told_back = _plain(part.get("content"))
            answers.append(
                {"role": "tool", "content": told_back, "tool_call_id": part["tool_use_id"]}
            )
    if role == "assistant":
        message: ChatMessage = {"role": role, "content": told}
        if calls:
            message["tool_calls"] = list(calls.values())
        return [message, *answers]
    said = [_sent({"role": "user", "content": told}, slot)] if told else []
    return [*answers, *said]


def _plain(content: Any) -> str:
    """Content as text: the texts of its parts, and JSON for whatever else it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if _is_parts(content) and all(isinstance(part.get("text"), str) for part in content):
        return "\n".join(part["text"] for part in content)
    return spelled(content)


def text_of(message: ChatMessage) -> str:
    """What a message says, without its calls."""
    return _plain(message["content"])


def spelled(value: Any) -> str:
    """A value as JSON, the same for the same value."""
    return msgspec.json.encode(value, order="deterministic").decode()

"""Chat messages and tool calls, as an episode keeps them."""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.ids import new_id
from pagefile.memory.text import require_text
from pagefile.store import codec
from pagefile.store.arguments import require_flag, require_type


class Role(enum.StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Image(msgspec.Struct, frozen=True):
    """A picture in a message, as base64."""

    data: str
    media_type: str = "image/png"

    def __post_init__(self) -> None:
        require_text("data", self.data)
        require_text("media_type", self.media_type)


class ToolDef(msgspec.Struct, frozen=True):
    """What a model was told about a tool."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    server: str | None = None
    destructive: bool = False

    def __post_init__(self) -> None:
        for field in ("name", "description", "server"):
            if getattr(self, field) is not None or field != "server":
                require_text(field, getattr(self, field))
        require_flag("destructive", self.destructive)
        _require_values("input_schema", self.input_schema)


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a model asked for."""

    tool: str
    args: dict[str, Any] = {}
    id: str = msgspec.field(default_factory=lambda: new_id("tcall"))
    tool_def: ToolDef | None = None
    destructive: bool = False

    def __post_init__(self) -> None:
        require_text("tool", self.tool)
        require_text("id", self.id)
        require_flag("destructive", self.destructive)
        if self.tool_def is not None:
            require_type("tool_def", self.tool_def, ToolDef)
        _require_values("args", self.args)

    def is_destructive(self) -> bool:
        """Whether the call, or its tool, says that it destroys something."""
        return self.destructive or (self.tool_def is not None and self.tool_def.destructive)

    def idempotency_key(self) -> str:
        """The same for the same tool and arguments, whatever their order."""
        spelled = msgspec.json.encode([self.tool, self.args], order="deterministic")
        return hashlib.sha256(spelled).hexdigest()


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Role
    content: str
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    images: tuple[Image, ...] = ()

    def __post_init__(self) -> None:
        try:
            msgspec.structs.force_setattr(self, "role", Role(self.role))
        except ValueError:
            words = ", ".join(Role)
            raise Invalid("role", shown(self.role), f"use one of {words}") from None
        require_text("content", self.content)
        for field in ("name", "tool_call_id"):
            if getattr(self, field) is not None:
                require_text(field, getattr(self, field))
        for field, kind in (("tool_calls", ToolCall), ("images", Image)):
            given = getattr(self, field)
            if not isinstance(given, (list, tuple)):
                raise Invalid(field, shown(given), f"give a list of {kind.__name__}s")
            for each in given:
                require_type(field, each, kind)
            msgspec.structs.force_setattr(self, field, tuple(given))


def _require_values(field: str, values: object) -> None:
    """Refuse what could not be stored, before it is part of anything."""
    if type(values) is not dict:
        raise Invalid(field, shown(values), "give a dict")
    try:
        codec.encode(msgspec.to_builtins(values))
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(field, f"cannot be stored ({error})", "give values that JSON has") from error

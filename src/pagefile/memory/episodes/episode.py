"""An episode: one finished exchange, and how it is stored.

    memory/episode/<digest of the user>/<id>        in that user's partition

An id counts within its partition, so that writing one can never touch what
another user has under the same id.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.documents import (
    MOST_SESSION_BYTES,
    new_id,
    owner_key,
    require_session,
    require_text,
    require_user,
    shaped,
    users_key,
)
from pagefile.memory.facts.fact import require_moment
from pagefile.recall.records import speaker_in
from pagefile.recall.vectors.embedding import embedding_of
from pagefile.store import clock, codec
from pagefile.store.arguments import require_flag, require_type
from pagefile.store.batch import Put
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.codec.writer import encoded
from pagefile.store.records import Document

# Chat messages and tool calls, as an episode keeps them.


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


#: Documents, one per episode.
EPISODES = "memory/episode/"
#: A session's episodes stand under this key in the order of their time, then of their id.
BY_SESSION = "memory.session"
BY_TIME = "memory.time"
#: Under this key, of the whole tenant, stand those that no extractor has seen yet.
UNREAD = "memory.unread"
#: Under this key, of its user, stands an episode that others were merged into.
MERGED = "memory.merged"

MOST_TEXT = 1_000_000
_MOST_CALLS = 1_000
#: No character of a session's name takes more than four bytes of what it may have.
_PLAIN_SESSION = MOST_SESSION_BYTES // 4
_ID = re.compile(r"[A-Za-z0-9._:@+-]{1,128}")


class Episode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One finished exchange: what came in, what went out, and when.

    `speaker` is who said the input, when it was not the user. `embedding` is
    used instead of making one. `tool_transcript` is None when none was kept.
    `said_again` are the times of later ones that were merged into this one.
    """

    session_id: str
    input: str = ""
    output: str = ""
    id: str = msgspec.field(default_factory=lambda: new_id("ep"))
    user_id: str | None = None
    occurred_at: datetime = msgspec.field(default_factory=clock.now)
    tool_calls: Sequence[ToolCall] = ()
    embedding: Sequence[float] | None = None
    tool_transcript: Sequence[Message] | None = None
    speaker: str | None = None
    said_again: Sequence[datetime] = ()

    def __post_init__(self) -> None:
        # Every search builds some of these anew: what most of them lack is not gone into.
        if type(self.tool_calls) is not tuple or self.tool_calls:
            _settle_parts(self, "tool_calls", ToolCall)
        if self.tool_transcript is not None:
            _settle_parts(self, "tool_transcript", Message)
        if type(self.said_again) is not tuple or self.said_again:
            again = _as_tuple("said_again", self.said_again)
            again = tuple(require_moment("said_again", each) for each in again)
            msgspec.structs.force_setattr(self, "said_again", again)
        if self.embedding is not None:
            given = embedding_of(self.embedding)
            msgspec.structs.force_setattr(self, "embedding", given)
        _require(self)
        moment = self.occurred_at
        if type(moment) is not datetime or moment.tzinfo is not UTC:
            moment = require_moment("occurred_at", moment)
            msgspec.structs.force_setattr(self, "occurred_at", moment)

    @property
    def text(self) -> str:
        """What is searched: input and output, one under the other."""
        if self.input and self.output:
            return f"{self.input}\n{self.output}"
        return self.input or self.output

    @property
    def document(self) -> str:
        """The name of the document that holds it."""
        return document_of(self.id, self.user_id)

    def format(self) -> str:
        """One line for people."""
        return f"[{self.occurred_at.isoformat()}] {self.input!r} -> {self.output!r}"


def document_of(episode_id: str, user_id: str | None) -> str:
    """The name of the document of the episode of that id."""
    return f"{EPISODES}{owner_key(user_id)}/{episode_id}"


def require_episode_id(episode_id: object) -> None:
    """Refuse what could not be an episode's id."""
    if not isinstance(episode_id, str) or not _ID.fullmatch(episode_id):
        raise Invalid(
            "id", shown(episode_id), "give up to 128 letters, digits and the signs . _ : @ + -"
        )


def put_episode(episode: Episode, *, unread: bool = True) -> Put:
    """Write an episode, in the partition of its user."""
    time_us = microseconds(episode.occurred_at)
    tenant_keys = users_key(episode.user_id)
    if unread:
        tenant_keys[UNREAD] = time_us
    form = stored_form(episode)
    # Arguments of tools may be anything; the rest is text under names of ours, and was checked.
    is_text = not episode.tool_calls and episode.tool_transcript is None
    return Put(
        episode.document,
        encoded(form) if is_text else form,
        user=episode.user_id,
        kind="episode",
        actor=episode.speaker or "",
        keys={
            BY_SESSION: (episode.session_id, time_us, episode.id),
            BY_TIME: (time_us, episode.id),
        },
        tenant_keys=tenant_keys,
    )


def merging(put: Put, ids: Sequence[str]) -> Put:
    """What writes an episode, with the ids of those that were merged into it as its sources.

    They are written nowhere else, and have to be known when it is forgotten.
    """
    if not ids:
        return put
    keys = {**put.keys, MERGED: True}
    return msgspec.structs.replace(put, sources=tuple(ids), keys=keys)


def stored_form(episode: Episode) -> dict[str, Any]:
    """The episode as plain JSON values; the vector is in the index, not here."""
    form: dict[str, Any] = {
        "id": episode.id,
        "session_id": episode.session_id,
        "user_id": episode.user_id,
        "occurred_at": episode.occurred_at.isoformat(),
        "input": episode.input,
        "output": episode.output,
    }
    if episode.speaker is not None:
        form["speaker"] = episode.speaker
    if episode.said_again:
        form["said_again"] = [moment.isoformat() for moment in episode.said_again]
    if episode.tool_calls:
        form["tool_calls"] = msgspec.to_builtins(episode.tool_calls)
    if episode.tool_transcript is not None:
        form["tool_transcript"] = msgspec.to_builtins(episode.tool_transcript)
    return form


def episode_of(document: Document) -> Episode:
    """The episode in a stored version, a copy of its own."""
    return shaped(document, Episode)


def _require(episode: Episode) -> None:
    said, answered, session = episode.input, episode.output, episode.session_id
    if (
        episode.speaker is None
        and type(said) is type(answered) is type(session) is type(episode.id) is str
        and len(said) <= MOST_TEXT
        and len(answered) <= MOST_TEXT
        and len(session) <= _PLAIN_SESSION
        and (said + answered + session).isascii()
        and _ID.fullmatch(episode.id)
    ):
        # Most are so, and every search builds some anew: no more is asked of these.
        require_user(episode.user_id)
        return
    require_user(episode.user_id)
    require_episode_id(episode.id)
    require_session(episode.session_id)
    require_text("input", episode.input, MOST_TEXT)
    require_text("output", episode.output, MOST_TEXT)
    if episode.speaker is not None and (
        not require_text("speaker", episode.speaker, 128) or not episode.speaker.isprintable()
    ):
        rule = "give a name of 1 to 128 printable characters"
        raise Invalid("speaker", shown(episode.speaker), rule)


def _settle_parts(episode: Episode, field: str, kind: type[Message] | type[ToolCall]) -> None:
    parts = _as_tuple(field, getattr(episode, field))
    if len(parts) > _MOST_CALLS:
        raise Invalid(field, "are too many", f"keep at most {_MOST_CALLS} with an episode")
    for part in parts:
        if not isinstance(part, kind):
            raise Invalid(field, f"{shown(part)} is no {kind.__name__}", f"give {kind.__name__}s")
    msgspec.structs.force_setattr(episode, field, parts)


def _as_tuple(field: str, given: Any) -> tuple[Any, ...]:
    if type(given) is tuple:
        return given
    if isinstance(given, (str, bytes)):
        raise Invalid(field, shown(given), "give a list")
    try:
        return tuple(given)
    except TypeError:
        raise Invalid(field, shown(given), "give a list") from None


# Who says "I" in an episode, where its text says so.


#: Names that stand for the two who always take part.
_THE_USER = ("user", "human", "me")
_THE_AGENT = ("assistant", "ai", "agent", "bot", "system")


def as_spoken(episode: Episode) -> Episode:
    """The episode with its speaker named, where the text itself says who it was."""
    if episode.speaker is not None:
        return episode
    name, rest = speaker_in(episode.input)
    if not name:
        return episode
    who = None if name.casefold() in _THE_USER else name
    said = "" if name.casefold() in _THE_AGENT else rest
    return msgspec.structs.replace(episode, speaker=who, input=said)

"""What crosses the border between processes: codec bytes and the name of a function, no objects."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch.letter import (
    CloseEffect,
    Effects,
    HandlerResponse,
    LetterKind,
    SlotEffect,
    StateEffect,
    WatchEffect,
)
from pagefile.errors import Corrupt
from pagefile.store import codec
from pagefile.store.codec.decoder import msgpack_decoder


class Encoded(msgspec.Struct, frozen=True, array_like=True):
    """A value as the codec writes it."""

    type_name: str
    body: bytes

    def value(self) -> Any:
        """The value itself."""
        return codec.decode(self.type_name, self.body)


class Task(msgspec.Struct, frozen=True):
    """One run of a CPU-bound handler."""

    url: str
    tenant: str
    entry: str
    payload: Encoded
    thread_id: str
    from_id: str
    own_name: str | None
    is_self_call: bool
    usage_instructions: str
    todo_nudge: str
    listener: str
    takes: int
    message_id: str
    kind: LetterKind
    attempt: int
    user_id: str | None
    tokens_left: int
    most: int
    timeout: float
    #: Modules whose classes the payload may be of.
    modules: tuple[str, ...] = ()

    def metadata(self) -> HandlerMetadata:
        """The metadata as the handler gets it."""
        return HandlerMetadata(
            self.thread_id,
            self.from_id,
            self.own_name,
            self.is_self_call,
            self.usage_instructions,
            self.todo_nudge,
        )


class Result(msgspec.Struct, frozen=True):
    """What became of it. `failure` is its code and text, and whether a further try may help."""

    responses: tuple[tuple[Encoded, str | None, bool], ...] = ()
    made: tuple[tuple[str, tuple[str, ...], Encoded | None], ...] = ()
    sent: tuple[tuple[Encoded, str | None], ...] = ()
    spent: int = 0
    failure: tuple[str, str, bool] | None = None


encode_task = msgspec.msgpack.Encoder().encode
decode_task = msgpack_decoder(Task).decode
encode_result = msgspec.msgpack.Encoder().encode
_decode_result = msgpack_decoder(Result).decode


def encoded(value: Any) -> Encoded:
    """A value on its way."""
    return Encoded(*codec.encode(value))


def result_of(responses: Any, effects: Effects) -> Result:
    """What a handler returned and did, as bytes."""
    sent = tuple((encoded(payload), to) for payload, to in effects.sent)
    made = tuple(_packed(effect) for effect in effects.made)
    return Result(
        tuple(
            (encoded(one.payload), one.to if isinstance(one.to, str) else None, one.is_response)
            for one in responses
        ),
        made,
        sent,
        effects.spent,
    )


def decode_result(raw: object) -> Result:
    """What came back, whatever sent it."""
    try:
        if not isinstance(raw, bytes):
            raise msgspec.ValidationError(f"it is of type {type(raw).__name__}")
        return _decode_result(raw)
    except msgspec.MsgspecError as error:
        raise Corrupt(
            f"a worker sent no result ({error})", "run the same version on both sides"
        ) from error


def outcome_of(result: Result) -> tuple[list[HandlerResponse], Effects]:
    """The messages and effects in a result."""
    effects = Effects()
    effects.spent = result.spent
    effects.sent = [(payload.value(), to) for payload, to in result.sent]
    effects.made = [_unpacked(*packed) for packed in result.made]
    responses = [
        HandlerResponse.respond(payload.value())
        if answers
        else HandlerResponse(payload.value(), to)
        for payload, to, answers in result.responses
    ]
    return responses, effects


def _packed(effect: Any) -> tuple[str, tuple[str, ...], Encoded | None]:
    if isinstance(effect, SlotEffect):
        return "slot", (effect.to,), encoded(effect.payload)
    if isinstance(effect, StateEffect):
        return "state", (effect.name,), encoded(effect.value)
    if isinstance(effect, WatchEffect):
        words = (effect.id, effect.wait_for, effect.from_listener, effect.description)
        return "watch", words, None
    return "close", (effect.id,), None


def _unpacked(kind: str, words: tuple[str, ...], value: Encoded | None) -> Any:
    if kind == "slot" and value is not None:
        return SlotEffect(value.value(), words[0])
    if kind == "state" and value is not None:
        return StateEffect(words[0], value.value())
    if kind == "watch":
        return WatchEffect(*words)
    return CloseEffect(words[0])

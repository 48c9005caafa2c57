"""A session as messages again: the last ones, exactly counted, no tool call without its result."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pagefile.memory.episodes.episode import Episode
from pagefile.memory.episodes.message import Message, Role


def messages_of(episode: Episode) -> list[Message]:
    """What was said in an episode, in order."""
    said = [] if not episode.input else [Message(Role.USER, episode.input, episode.speaker)]
    said += episode.tool_transcript or ()
    if episode.output:
        said.append(Message(Role.ASSISTANT, episode.output))
    return said


def last_messages(newest_first: Iterable[Episode], limit: int) -> list[Message]:
    """The last messages in the order they were said, at most `limit`.

    Answers of tools stand right behind the call that asked for them, wherever
    they came, also in a later episode: no model takes them elsewhere. Where a
    call and its answers would have to be cut, they are left out, so there may
    be fewer. Calls that were not answered in full go, and so do answers to
    nothing; what was said with such a call stays.
    """
    units: list[list[Message]] = []
    answers = _Answers()
    count = 0
    for episode in newest_first:
        for message in reversed(_addressed(messages_of(episode))):
            unit = answers.with_theirs(message)
            count += len(unit)
            if count > limit:
                return _joined(units)
            units.append(unit)
        if count == limit:
            break
    return _joined(units)


def _joined(newest_first: list[list[Message]]) -> list[Message]:
    return [message for unit in reversed(newest_first) for message in unit]


def _addressed(messages: list[Message]) -> list[Message]:
    """The messages, with answers that name no call given those of the call they stand behind."""
    told: list[Message] = []
    open_ids: list[str] = []
    for message in messages:
        if message.role != Role.TOOL:
            open_ids = [call.id for call in message.tool_calls]
        elif message.tool_call_id is None and open_ids:
            message = msgspec.structs.replace(message, tool_call_id=open_ids.pop(0))
        elif message.tool_call_id in open_ids:
            open_ids.remove(message.tool_call_id)
        told.append(message)
    return told


class _Answers:
    """Answers of tools that were met before their calls, on the way back through a session."""

    def __init__(self) -> None:
        self._met = 0
        self._open: dict[str, list[tuple[int, Message]]] = {}

    def with_theirs(self, message: Message) -> list[Message]:
        """What is told in this message's place: a call with its answers, an answer with none."""
        if message.role == Role.TOOL:
            self._met += 1
            self._open.setdefault(message.tool_call_id or "", []).append((self._met, message))
            return []
        if not message.tool_calls:
            return [message]
        asked = {call.id for call in message.tool_calls}
        # An id may be used again later: what came first behind this call is its answer.
        found = [self._open.pop(name)[-1] for name in asked if name in self._open]
        if len(found) == len(asked):
            found.sort(key=lambda one: -one[0])
            return [message, *(answer for _, answer in found)]
        if message.content.strip():
            return [msgspec.structs.replace(message, tool_calls=())]
        return []

"""A session as messages again: the last ones, exactly counted, no tool call without its result."""

from __future__ import annotations

from collections.abc import Iterable

from pagefile.memory.episode import Episode
from pagefile.memory.message import Message, Role


def messages_of(episode: Episode) -> list[Message]:
    """What was said in an episode, in order."""
    said = [] if not episode.input else [Message(Role.USER, episode.input, episode.speaker)]
    said += episode.tool_transcript or ()
    if episode.output:
        said.append(Message(Role.ASSISTANT, episode.output))
    return said


def last_messages(newest_first: Iterable[Episode], limit: int) -> list[Message]:
    """The last messages in the order they were said, at most `limit`.

    A call of tools and what they answered stay together: where they would have
    to be cut, they are left out, so there may be fewer.
    """
    groups: list[list[Message]] = []
    count = 0
    for episode in newest_first:
        for group in reversed(_groups(messages_of(episode))):
            count += len(group)
            if count > limit:
                return _joined(groups)
            groups.append(group)
        if count == limit:
            break
    return _joined(groups)


def _joined(newest_first: list[list[Message]]) -> list[Message]:
    return [message for group in reversed(newest_first) for message in group]


def _groups(messages: list[Message]) -> list[list[Message]]:
    """Messages that mean nothing without each other: a call, and the answers to it."""
    groups: list[list[Message]] = []
    for message in messages:
        is_answer = message.role == Role.TOOL
        if is_answer and groups and _calls(groups[-1]):
            groups[-1].append(message)
        elif not is_answer:
            groups.append([message])
        # An answer to nothing would be refused by every model; it is left out.
    return groups


def _calls(group: list[Message]) -> bool:
    return bool(group[0].tool_calls)

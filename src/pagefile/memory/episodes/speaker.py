"""Who says "I" in an episode, where its text says so."""

from __future__ import annotations

import msgspec

from pagefile.memory.episodes.episode import Episode
from pagefile.recall.entry import speaker_in

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

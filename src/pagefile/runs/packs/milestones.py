"""The milestones of a run, on their way into a pack and out of it."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.runs.milestones import created_at, digest_of
from pagefile.runs.names import episode_name
from pagefile.runs.packs.errors import WrongContent
from pagefile.runs.packs.format import checked, parse_object
from pagefile.store.batch import Put
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document


class PackedEpisode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One milestone: as schema 2.1 describes it, and what the store notes beside it."""

    episode: dict[str, Any]
    writer_id: str
    first: int
    last: int
    digest: str

    @property
    def episode_id(self) -> str:
        return str(self.episode["episode_id"])

    @property
    def body(self) -> dict[str, Any]:
        """What is stored: all but the time, which is noted."""
        return {name: value for name, value in self.episode.items() if name != "created_at"}

    def put(self, run_id: str, user_id: str | None) -> Put:
        """What stores it as a milestone of that run."""
        notes = {
            "first": self.first,
            "last": self.last,
            "digest": self.digest,
            "created_at": self.episode["created_at"],
        }
        name = episode_name(run_id, self.episode_id)
        return Put(name, self.body, user_id, "episode", self.writer_id, notes=notes)


def episode_of(document: Document | None) -> PackedEpisode | None:
    """A stored milestone as a pack has it; None for one that is gone."""
    if document is None or document.erased or document.deleted:
        return None
    notes = document.notes
    whole = document.value | {"created_at": created_at(document)}
    return PackedEpisode(whole, document.actor, notes["first"], notes["last"], notes["digest"])


def read_episode(member: str, episode_id: str, raw: bytes) -> PackedEpisode:
    """The milestone in a member, checked.

    Raises:
        WrongContent: it is none, or another.
    """
    try:
        packed = convert(parse_object(member, raw), PackedEpisode)
    except msgspec.ValidationError as error:
        raise WrongContent(member, f"is no episode ({error})") from error
    checked(member, "episode", packed.episode)
    if packed.episode_id != episode_id:
        raise WrongContent(member, "is another episode")
    if packed.first < 1 or packed.last < 0 or digest_of(packed.body) != packed.digest:
        raise WrongContent(member, "is not the episode that was stored")
    return packed

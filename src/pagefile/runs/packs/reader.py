"""A resume pack that was read from one end to the other before anybody relies on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from pagefile.errors import Invalid, shown
from pagefile.runs.config import RunConfig, config_from
from pagefile.runs.kinds import path_from
from pagefile.runs.packs import format as pack
from pagefile.runs.packs.archive import Members, open_members, require_listed
from pagefile.runs.packs.format import MissingMember, NotAPack, UnknownMember, WrongContent
from pagefile.runs.packs.legacy import ManifestPack, RunFolder, SimplePack
from pagefile.runs.packs.members import (
    PackedEpisode,
    PackedItem,
    PackedSlot,
    read_episode,
    read_item,
    read_slots,
)
from pagefile.runs.rebuild import Fold
from pagefile.store.arguments import require_callable

WorkingSet = dict[str, Any]


class Contents(Protocol):
    """What a sound pack of any format has to give to whoever restores it.

    Every method reads the pack anew, and every line is checked again on the way.
    """

    report: pack.PackReport
    ws: WorkingSet
    user_id: str | None

    def history(self) -> Iterator[tuple[int, WorkingSet | None]]:
        """The versions by sequence number, oldest first; None for one that was erased."""
        ...

    def events(self) -> Iterator[dict[str, Any]]: ...
    def episodes(self) -> Iterator[PackedEpisode]: ...
    def items(self) -> Iterator[PackedItem]: ...
    def slots(self) -> Iterator[PackedSlot]: ...
    def evicted(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Items that had left, with who made them leave."""
        ...


def verify_pack(
    path: str | os.PathLike[str],
    limits: pack.PackLimits | None = None,
    *,
    progress: pack.Progress | None = None,
) -> pack.PackReport:
    """Read all of a pack and hold it against its digests, its schemas and itself.

    Raises:
        Invalid, Corrupt, LimitExceeded, Unsupported: why nobody should restore it;
            `errors` has a class for each reason.
    """
    with open_pack(path, limits, progress) as contents:
        return contents.report


@contextmanager
def open_pack(
    path: str | os.PathLike[str],
    limits: pack.PackLimits | None = None,
    progress: pack.Progress | None = None,
) -> Iterator[Contents]:
    """A pack of any format, read and found sound."""
    if limits is not None and not isinstance(limits, pack.PackLimits):
        raise Invalid("limits", f"{shown(limits)} is no PackLimits", "give PackLimits(…)")
    if progress is not None:
        require_callable("progress", progress)
    place = path_from(path)
    if place is None:
        raise NotAPack(path, "is no path")
    with open_members(place, pack.PackLimits() if limits is None else limits) as members:
        yield _contents(members, progress)


def _contents(members: Members, progress: pack.Progress | None) -> Contents:
    if pack.MANIFEST not in members.names:
        if RunFolder.fits(members):
            return RunFolder(members)
        if pack.WORKING_SET not in members.names:
            raise NotAPack(members.archive.path, f"has neither {pack.MANIFEST} nor a working set")
        return SimplePack(members)
    manifest = pack.read_manifest(members.read(pack.MANIFEST))
    if "format" not in manifest.pointers:
        return ManifestPack(members, manifest)
    return Pack(members, manifest, progress)


class Pack:
    """A pack of our format."""

    def __init__(
        self, members: Members, manifest: pack.Manifest, progress: pack.Progress | None
    ) -> None:
        self._members = members
        self._pointers = pack.read_pointers(manifest)
        self.user_id = self._pointers.user_id
        self._config = RunConfig()
        self._steps = pack.Steps(self._pointers.ledger_last_seq + self._pointers.seq + 1, progress)
        self._require_names(manifest)
        members.require_digests(manifest.files)
        self.ws = self._working_set()
        wanted, events, named = self._events_examined()
        fold = Fold(self._config.most_pinned, wanted)
        proved, versions = self._history_examined(fold)
        episodes = 0
        for episode in self.episodes():
            episodes += 1
            _require_told(episode, named)
        self.report = pack.PackReport(
            format=pack.ENGINE,
            pack_id=manifest.pack_id,
            run_id=self._pointers.run_id,
            seq=self._pointers.seq,
            events=events,
            versions=versions,
            episodes=episodes,
            items=sum(1 for _ in self.items()),
            slots=sum(1 for _ in self.slots()),
            evicted=sum(1 for _ in self.evicted()),
            size_bytes=members.archive.size_bytes,
            proved=proved,
        )

    # The contents

    def history(self) -> Iterator[tuple[int, WorkingSet | None]]:
        last = -1
        for number, raw in self._members.lines(pack.HISTORY):
            line = pack.parse_object(pack.HISTORY, raw, number)
            seq = line.get("seq")
            if type(seq) is not int or seq <= last:
                raise WrongContent(pack.placed(pack.HISTORY, number), "is out of order")
            last = seq
            if line.get("erased") is True:
                yield seq, None
                continue
            ws = line.get("working_set")
            pack.checked(pack.HISTORY, "working_set", ws, number)
            assert type(ws) is dict
            if ws["_update_seq"] != seq or self._ids(ws) != self._ids(self.ws):
                raise WrongContent(
                    pack.placed(pack.HISTORY, number), "is a version of another run or number"
                )
            yield seq, ws

    def events(self) -> Iterator[dict[str, Any]]:
        for number, raw in self._members.lines(pack.LEDGER):
            event = pack.parse_object(pack.LEDGER, raw, number)
            pack.checked(pack.LEDGER, "ledger_event", event, number)
            if event["sequence_id"] != number or self._ids(event) != self._ids(self.ws):
                raise WrongContent(
                    pack.placed(pack.LEDGER, number), "is an event of another run or number"
                )
            yield event

    def episodes(self) -> Iterator[PackedEpisode]:
        for name in sorted(self._members.names):
            episode_id = pack.episode_in(name)
            if episode_id is not None:
                yield read_episode(name, episode_id, self._members.read(name))

    def items(self) -> Iterator[PackedItem]:
        for number, raw in self._optional(pack.ITEMS):
            yield read_item(raw, number)

    def slots(self) -> Iterator[PackedSlot]:
        return read_slots(self._optional(pack.SLOTS))

    def evicted(self) -> Iterator[tuple[dict[str, Any], str]]:
        for number, raw in self._optional(pack.EVICTED):
            line = pack.parse_object(pack.EVICTED, raw, number)
            item, writer = line.get("item"), line.get("writer_id")
            if type(item) is not dict or type(writer) is not str or len(line) != 2:
                raise WrongContent(pack.placed(pack.EVICTED, number), "is no evicted item")
            field = "sliding_context" if "priority" in item else "pinned_context"
            pack.checked(pack.EVICTED, "working_set", self.ws | {field: [item]}, number)
            yield item, writer

    # Examining it

    def _optional(self, name: str) -> Iterator[tuple[int, bytes]]:
        return self._members.lines(name) if name in self._members.names else iter(())

    def _require_names(self, manifest: pack.Manifest) -> None:
        for name in sorted(self._members.names):
            known = name in pack.REQUIRED or name in pack.OPTIONAL
            if not known and pack.episode_in(name) is None:
                raise UnknownMember(name)
        for name in sorted(pack.REQUIRED - self._members.names):
            raise MissingMember(name)
        require_listed(self._members, manifest.files)

    def _working_set(self) -> WorkingSet:
        ws = pack.parse_object(pack.WORKING_SET, self._members.read(pack.WORKING_SET))
        pack.checked(pack.WORKING_SET, "working_set", ws)
        told = self._pointers
        wanted = (told.task_id, told.thread_id, told.run_id)
        if self._ids(ws) != wanted or ws["_update_seq"] != told.seq:
            raise WrongContent(pack.WORKING_SET, "is not the one that the manifest points to")
        return ws

    @staticmethod
    def _ids(of: Mapping[str, Any]) -> tuple[str, str, str]:
        return of["task_id"], of["thread_id"], of["run_id"]

    def _events_examined(self) -> tuple[set[int], int, set[str]]:
        """Where rollbacks go to, how many events there are, and the milestones they name."""
        wanted: set[int] = set()
        named: set[str] = set()
        count = 0
        for event in self.events():
            count += 1
            self._steps.step()
            payload = event["payload"]
            if count == 1:
                self._config = _config(payload)
            if event["event_type"] == "WS_ROLLBACK":
                wanted.add(payload["to_seq"])
            elif event["event_type"] == "MILESTONE":
                named.add(payload.get("episode_id", ""))
        if count != self._pointers.ledger_last_seq:
            raise WrongContent(pack.LEDGER, f"has {count} events, and the manifest says otherwise")
        if self._pointers.seq >= count:
            # Each version has its event, so whoever restores it need not write more than there is.
            raise WrongContent(pack.LEDGER, f"has {count} events, too few for this working set")
        return wanted, count, named

    def _history_examined(self, fold: Fold) -> tuple[bool, int]:
        """Whether the ledger proves the working set, and how many versions there are.

        Each version that the events lead to is held against the one in the
        history. Where an event was erased the fold goes on from the history.
        """
        versions = self.history()
        ahead = next(versions, None)
        count, last = 0, None
        identity = {name: self.ws[name] for name in ("task_id", "thread_id", "run_id")}
        for event in self.events():
            try:
                changed = fold.take(event["event_type"], event["payload"])
            except Invalid as error:
                at = pack.placed(pack.LEDGER, event["sequence_id"])
                raise WrongContent(at, f"does not follow from what was before ({error})") from error
            if not changed:
                continue
            seq = _seq_of(event)
            while ahead is not None and ahead[0] <= seq:
                self._steps.step()
                last, count = ahead, count + 1
                ahead = next(versions, None)
            there = last[1] if last is not None and last[0] == seq else None
            if fold.ws is None:
                fold.resume(there)
            elif there is not None and fold.ws | identity != there:
                raise WrongContent(pack.HISTORY, f"disagrees with the ledger at {seq}")
        while ahead is not None:
            last, count = ahead, count + 1
            ahead = next(versions, None)
        if last != (self._pointers.seq, self.ws):
            raise WrongContent(pack.HISTORY, "does not end with the working set")
        if fold.ws is not None and fold.ws | identity != self.ws:
            raise WrongContent(pack.WORKING_SET, "is not the fold of the ledger")
        return fold.ws is not None, count


def _require_told(episode: PackedEpisode, named: set[str]) -> None:
    if episode.episode_id not in named:
        raise WrongContent(pack.episode_member(episode.episode_id), "is not in the ledger")


def _seq_of(event: Mapping[str, Any]) -> int:
    payload = event["payload"]
    if event["event_type"] == "RUN_START":
        return int(payload["working_set"]["_update_seq"])
    return int(payload["new_seq"])


def _config(payload: Mapping[str, Any]) -> RunConfig:
    config = payload.get("config", {})
    try:
        return config_from(config if isinstance(config, dict) else {})
    except Invalid as error:
        raise WrongContent(f"{pack.LEDGER}:1", f"has no usable config ({error})") from error

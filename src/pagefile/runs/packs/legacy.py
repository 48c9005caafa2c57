"""The older formats of resume packs, and of a run's own folder, read only.

    simple      a zip: working_set.json, and run.jsonl where there was a ledger
    manifest    a zip or a folder: manifest.v2.1.json with digests,
                state/working_set.v2.1.json, ledger/run.v2.1.jsonl, episodes/<id>.v2.1.json
    run folder  the same without a manifest, as the earlier system kept a run under AOS_RUNS_ROOT;
                what is in resume/ and artifacts/ is no part of the run

Their ledgers do not say how the working set came about, and no older version
of it is there. So the run begins anew with it, at sequence 0, after the events
that were packed. What the earlier system let in and a run does not is brought
into form on the way, and the report says so; see `legacy_forms`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pagefile.errors import Invalid
from pagefile.runs.config import config_from
from pagefile.runs.legacy_forms import Changes, in_form_time, in_form_working_set, is_torn
from pagefile.runs.milestones import digest_of
from pagefile.runs.packs import format as pack
from pagefile.runs.packs.archive import Members, require_listed
from pagefile.runs.packs.errors import MissingMember, NewerPack, UnknownMember, WrongContent
from pagefile.runs.packs.items import PackedItem
from pagefile.runs.packs.milestones import PackedEpisode
from pagefile.runs.packs.slots import PackedSlot
from pagefile.runs.redaction import redact
from pagefile.runs.schema import artifacts

_SIMPLE_LEDGER = "run.jsonl"
_STATE = "state/working_set.v2.1.json"
_LEDGER = "ledger/run.v2.1.jsonl"
_EPISODE = re.compile(r"episodes/([A-Za-z0-9_-]{1,64})\.v2\.1\.json")
#: Zip files made of a folder name its sub-folders too; they hold nothing.
_FOLDERS = frozenset({"state/", "ledger/", "episodes/"})
#: What the earlier system put beside a run: snapshots of it, and nothing.
_BESIDE = ("resume/", "artifacts/")
_KNOWN_ENGINE = re.compile(r"aos-context/2(\..*)?")
_WRITER = "restore"


class _OldPack:
    """What both formats have in common."""

    user_id: str | None = None

    def __init__(
        self, members: Members, form: str, pack_id: str, state: str, ledger: str | None
    ) -> None:
        self._members = members
        self._ledger = ledger
        self._changes = Changes()
        packed = pack.parse_object(state, members.read(state))
        packed = in_form_working_set(packed, self._changes)
        pack.checked(state, "working_set", packed)
        self._packed_seq = int(packed["_update_seq"])
        self._pack_id = pack_id
        self.ws: dict[str, Any] = packed | {"_update_seq": 0}
        self._config: dict[str, Any] = {}
        self._named: set[str] = set()
        for event in self._packed_events():
            payload = event["payload"]
            if event["event_type"] == "RUN_START" and not self._config:
                self._config = _known(payload["config"], ledger)
            elif event["event_type"] == "MILESTONE":
                self._named.add(payload.get("episode_id", ""))
        events = sum(1 for _ in self._packed_events())
        episodes = sum(1 for _ in self.episodes())
        self._started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.report = pack.PackReport(
            format=form,
            pack_id=pack_id,
            run_id=packed["run_id"],
            seq=self._packed_seq,
            events=events,
            versions=1,
            episodes=episodes,
            items=0,
            slots=0,
            evicted=0,
            size_bytes=members.archive.size_bytes,
            proved=False,
            normalised=self._changes.told(),
        )

    def history(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        yield 0, self.ws

    def events(self) -> Iterator[dict[str, Any]]:
        """The packed events, then the ones that begin the run anew."""
        yield from self._packed_events()
        for episode in self.episodes():
            if episode.episode_id not in self._named:
                told = {"reason": "packed", "episode_id": episode.episode_id}
                yield self._event("MILESTONE", told)
        origin = {
            "parent_run_id": self.ws["run_id"],
            "at_seq": self._packed_seq,
            "pack_id": self._pack_id,
        }
        if self.report.normalised:
            origin["normalised"] = list(self.report.normalised)
        start = {"config": self._config, "parent": origin, "working_set": self.ws}
        yield self._event("RUN_START", start)

    def episodes(self) -> Iterator[PackedEpisode]:
        return iter(())

    def items(self) -> Iterator[PackedItem]:
        return iter(())

    def slots(self) -> Iterator[PackedSlot]:
        return iter(())

    def evicted(self) -> Iterator[tuple[dict[str, Any], str]]:
        return iter(())

    def _packed_events(self) -> Iterator[dict[str, Any]]:
        if self._ledger is None:
            return
        for number, raw in self._members.lines(self._ledger):
            if is_torn(raw):
                self._changes.add(f"{self._ledger}:{number} was torn by a crash, and is left out")
                continue
            event = pack.parse_object(self._ledger, raw, number)
            event = in_form_time(event, "timestamp", f"{self._ledger}:{number}", self._changes)
            pack.checked(self._ledger, "ledger_event", event, number)
            yield event

    def _event(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        event = {
            "_schema_version": artifacts.SCHEMA_VERSION,
            "event_id": str(uuid.uuid4()),
            "parent_event_id": None,
            "sequence_id": None,
            "event_type": kind,
            "timestamp": self._started,
            "writer_id": _WRITER,
            "payload": payload,
        }
        return event | {name: self.ws[name] for name in ("task_id", "thread_id", "run_id")}


class SimplePack(_OldPack):
    """The format without a manifest, and so without digests."""

    def __init__(self, members: Members) -> None:
        for name in sorted(members.names):
            if name not in (pack.WORKING_SET, _SIMPLE_LEDGER):
                raise UnknownMember(name)
        ledger = _SIMPLE_LEDGER if _SIMPLE_LEDGER in members.names else None
        # It has no id of its own; the file's name is what people know it by.
        pack_id = members.archive.path.stem[:200] or "simple"
        super().__init__(members, "simple", pack_id, pack.WORKING_SET, ledger)


class _WithEpisodes(_OldPack):
    """What the formats with milestones have in common."""

    def episodes(self) -> Iterator[PackedEpisode]:
        for name in sorted(self._members.names):
            found = _EPISODE.fullmatch(name)
            if found is None:
                continue
            episode = redact(pack.parse_object(name, self._members.read(name)))
            episode = in_form_time(episode, "created_at", name, self._changes)
            pack.checked(name, "episode", episode)
            if episode["episode_id"] != found[1]:
                raise WrongContent(name, "is another episode")
            # Which events it covers was never noted: none, then.
            packed = PackedEpisode(episode, _WRITER, 1, 0, "")
            yield PackedEpisode(episode, _WRITER, 1, 0, digest_of(packed.body))


class ManifestPack(_WithEpisodes):
    """The format with a manifest."""

    def __init__(self, members: Members, manifest: pack.Manifest) -> None:
        if not any(_KNOWN_ENGINE.fullmatch(name) for name in manifest.compatible_engine_versions):
            raise NewerPack(pack.MANIFEST, "names no engine version that is known here")
        members.names = members.names - _FOLDERS
        for name in sorted(members.names):
            is_known = name in (pack.MANIFEST, _STATE, _LEDGER) or _EPISODE.fullmatch(name)
            if not is_known:
                raise UnknownMember(name)
        if _STATE not in members.names:
            raise MissingMember(_STATE)
        require_listed(members, manifest.files)
        members.require_digests(manifest.files)
        ledger = _LEDGER if _LEDGER in members.names else None
        super().__init__(members, "manifest", manifest.pack_id, _STATE, ledger)


class RunFolder(_WithEpisodes):
    """A run as it lay in the earlier system's folder: nothing says what its bytes should be."""

    def __init__(self, members: Members) -> None:
        members.names = frozenset(n for n in members.names if not n.startswith(_BESIDE))
        for name in sorted(members.names):
            if name not in (_STATE, _LEDGER) and not _EPISODE.fullmatch(name):
                raise UnknownMember(name)
        ledger = _LEDGER if _LEDGER in members.names else None
        # Its name is all that it is known by.
        folder = members.archive.path.name[:200] or "run"
        super().__init__(members, "run folder", folder, _STATE, ledger)

    @staticmethod
    def fits(members: Members) -> bool:
        """Whether this is such a folder."""
        return _STATE in members.names


def _known(config: dict[str, Any], ledger: str | None) -> dict[str, Any]:
    """The settings that mean something here."""
    try:
        return config_from(config).to_json()
    except Invalid as error:
        raise WrongContent(f"{ledger}", f"has no usable config ({error})") from error

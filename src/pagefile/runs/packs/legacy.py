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
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.runs.config import config_from, redact
from pagefile.runs.milestones import digest_of
from pagefile.runs.packs import format as pack
from pagefile.runs.packs.archive import Members, require_listed
from pagefile.runs.packs.format import MissingMember, NewerPack, UnknownMember, WrongContent
from pagefile.runs.packs.members import PackedEpisode, PackedItem, PackedSlot
from pagefile.runs.patch import ITEM_LISTS
from pagefile.runs.schema import artifacts
from pagefile.runs.schema.timestamps import is_moment

# What the earlier system took and a run does not, brought into form.
#
# It never looked at times, nor at ids that were there twice, and a crash could
# leave half a line at the end of its ledger, to which the next one was glued.
# None of that is a reason to lose a run. Nothing is changed in silence, though:
# each change is told.


#: For what has no time: it ranks as the oldest.
_NO_TIME: Final = "1970-01-01T00:00:00Z"
_MOST_TOLD: Final = 100


class Changes:
    """What was brought into form, each change once however often it is read."""

    def __init__(self) -> None:
        self._told: dict[str, None] = {}

    def add(self, change: str) -> None:
        self._told[change] = None

    def told(self) -> tuple[str, ...]:
        """The first of them, and how many more there are."""
        told = tuple(self._told)
        if len(told) <= _MOST_TOLD:
            return told
        return (*told[:_MOST_TOLD], f"and {len(told) - _MOST_TOLD} more")


def is_torn(line: bytes) -> bool:
    """Whether a line of a ledger begins as an event does, and is none for want of its end."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return False


def in_form_time(value: dict[str, Any], field: str, at: str, changes: Changes) -> dict[str, Any]:
    """The object with a time in that field; what is no text there is left to the schema."""
    was = value.get(field)
    if not isinstance(was, str) or is_moment(was):
        return value
    time = _moment_in(was)
    changes.add(f"{at}: {field} {shown(was)} became {time}")
    return value | {field: time}


def in_form_working_set(ws: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """The working set with times that are some, and ids of their own."""
    result = dict(ws)
    for field in sorted(ITEM_LISTS):
        items = ws.get(field)
        if isinstance(items, list):
            result[field] = _own_ids(field, _timed(field, items, changes), changes)
    return result


def _timed(field: str, items: list[Any], changes: Changes) -> list[Any]:
    return [
        in_form_time(item, "timestamp", f"{field}.{number}", changes)
        if isinstance(item, dict)
        else item
        for number, item in enumerate(items)
    ]


def _own_ids(field: str, items: list[Any], changes: Changes) -> list[Any]:
    """An item that is there already goes; another one of the same id gets an id of its own."""
    kept: list[Any] = []
    by_id: dict[str, Any] = {}
    taken = {_id_of(item) for item in items}
    for number, item in enumerate(items):
        item_id = _id_of(item)
        if item_id is None or item_id not in by_id:
            kept.append(item)
            if item_id is not None:
                by_id[item_id] = item
            continue
        if item == by_id[item_id]:
            changes.add(f"{field}.{number}: {shown(item_id)} was there already, and is left out")
            continue
        made = next(
            name for n in range(2, len(items) + 2) if (name := f"{item_id}-{n}") not in taken
        )
        taken.add(made)
        changes.add(
            f"{field}.{number}: {shown(item_id)} was there already, and became {shown(made)}"
        )
        kept.append(item | {"id": made})
    return kept


def _id_of(item: Any) -> str | None:
    found = item.get("id") if isinstance(item, Mapping) else None
    return found if isinstance(found, str) else None


def _moment_in(text: str) -> str:
    """The time that somebody meant; one without an offset is taken for UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
        aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
        made = aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return _NO_TIME
    return made if is_moment(made) else _NO_TIME


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

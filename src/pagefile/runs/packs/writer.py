"""Writing a resume pack: one cut through the store, streamed into a file of its own."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pagefile.context.names import THREADS
from pagefile.context.slot import is_anothers
from pagefile.errors import (
    Conflict,
    Invalid,
    NotFound,
    PagefileError,
    Unavailable,
    Unsupported,
    shown,
)
from pagefile.runs import kinds as stored
from pagefile.runs.config import redact
from pagefile.runs.packs import format as pack
from pagefile.runs.packs.members import (
    UsageTexts,
    episode_of,
    erased_slot,
    item_documents,
    item_lines,
    slot_of,
)
from pagefile.runs.working_set import WorkingRun
from pagefile.store import clock
from pagefile.store.arguments import require_callable
from pagefile.store.atomic_file import new_file
from pagefile.store.records import Document, Entry, Head
from pagefile.store.store import Store

_PAGE = 500
#: The time that every member has, so that the same content gives the same bytes.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_READ_ONLY_FILE: Final = 0o100444 << 16


def create_resume_pack(
    run: WorkingRun,
    directory: str | os.PathLike[str],
    *,
    pointers: Mapping[str, Any] | None = None,
    progress: pack.Progress | None = None,
    writer_id: str = "api",
) -> Path:
    """Write all of a run, as it is now, to a new file in the folder; return its path.

    Everything in it is as of one position of the store, whoever writes
    meanwhile. The file has its name only when it is complete and on disk.
    `pointers` are kept in the manifest, secrets redacted; ours come first.

    Raises:
        Invalid: the folder or the pointers are none.
        NotFound: there is no such run. Unsupported: its ledger was pruned.
        Conflict: it was deleted meanwhile. Unavailable: the disk refused.
    """
    folder = stored.path_from(directory)
    if folder is None:
        raise Invalid("directory", f"{shown(directory)} is no path", "name a folder")
    if pointers is not None and not isinstance(pointers, Mapping):
        raise Invalid("pointers", f"{shown(pointers)} is no mapping", "give a dict")
    if progress is not None:
        require_callable("progress", progress)
    cut = _Cut(run._store, run)
    pack_id = stored.made_id("pack")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{run.run_id}_{pack_id}.zip"
        with new_file(path, replaces=True) as file:
            told = _write(file, cut, pack_id, pointers or {}, progress)
    except OSError as error:
        raise Unavailable(
            f"no pack could be written to {shown(str(folder))} ({error.strerror})",
            "look at the disk and the permissions, then retry",
        ) from error
    try:
        run.record("RESUME_SNAPSHOT", {"pack_id": pack_id, "pointers": told}, writer_id)
    except PagefileError as error:
        # The run ended, or was forgotten, meanwhile: nothing of it may be left in a file.
        # Nor is there a pack that the ledger certainly does not tell of.
        if isinstance(error, Unavailable) and error.outcome == "unknown":
            raise
        path.unlink(missing_ok=True)
        raise
    return path


class _Cut:
    """A run as of one position."""

    def __init__(self, store: Store, run: WorkingRun) -> None:
        self.store = store
        self.run = run
        self.head: Head = store.head()
        self.at = self.head.position
        document = store.get(stored.RUNS + run.run_id, at=self.at)
        if document is None or document.erased or document.kind != stored.WORKING_SET:
            raise NotFound(f"there is no run {run.run_id!r}", "boot it, or list the runs")
        self.document: Document = document
        self.ws: dict[str, Any] = document.value
        self.ledger = stored.LEDGERS + run.run_id
        self.evicted = stored.EVICTED + run.run_id
        self.thread = THREADS + self.ws["thread_id"]
        self.events = store.length(self.ledger, at=self.at)
        self.episodes: list[str] = []
        self.batches: dict[str, None] = {}
        #: States that were damaged, and repaired by later ones: the events tell them.
        self.damaged: set[int] = set()

    def entries(self, log: str, *, whole: bool = False) -> Iterator[Entry]:
        """What the log had at the cut; with `whole`, nothing may be missing."""
        start, stop = 0, self.store.length(log, at=self.at)
        while start < stop:
            found = self.store.read(log, start, stop, limit=_PAGE)
            if whole and (not found or found[0].index != start):
                raise self._missing(bool(found) and start == 0)
            if not found:
                return
            yield from found
            start = found[-1].index + 1

    def _missing(self, is_pruned: bool) -> Exception:
        if is_pruned:
            return Unsupported(
                f"the ledger of {self.run!r} was pruned", "fork the run, and pack the fork"
            )
        return Conflict(
            f"{self.run!r} was deleted while it was packed",
            "there is nothing left to pack",
            target=self.run.run_id,
            expected=self.events,
            current=0,
        )

    def versions(self) -> Iterator[Document]:
        after, last = 0, self.document.version
        while after < last:
            found = self.store.history(self.document.name, after=after, limit=_PAGE)
            for version in found:
                if version.version <= last:
                    yield version
            if not found:
                return
            after = found[-1].version


class _Writer:
    """A zip file that is written member by member, each hashed on its way."""

    def __init__(self, archive: zipfile.ZipFile, steps: pack.Steps) -> None:
        self._archive = archive
        self._steps = steps
        self.files: dict[str, str] = {}

    def lines(self, name: str, values: Iterable[Any], *, counted: bool = False) -> None:
        """A member of one line per value."""
        digest = hashlib.sha256()
        with self._archive.open(_member(name), "w", force_zip64=True) as member:
            for value in values:
                line = pack.encode_json(value) + b"\n"
                digest.update(line)
                member.write(line)
                if counted:
                    self._steps.step()
        self.files[name] = digest.hexdigest()

    def document(self, name: str, raw: bytes, *, listed: bool = True) -> None:
        """A member of one piece."""
        self._archive.writestr(_member(name), raw)
        if listed:
            self.files[name] = hashlib.sha256(raw).hexdigest()


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _NO_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = _READ_ONLY_FILE
    info.create_system = 3
    return info


def _write(
    file: Any, cut: _Cut, pack_id: str, given: Mapping[str, Any], progress: pack.Progress | None
) -> dict[str, Any]:
    store, run = cut.store, cut.run
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        writer = _Writer(archive, pack.Steps(cut.events + cut.document.version, progress))
        writer.document(pack.WORKING_SET, pack.encode_json(cut.ws))
        writer.lines(pack.LEDGER, _events(cut), counted=True)
        history = (_version(version, cut.damaged) for version in cut.versions())
        writer.lines(pack.HISTORY, history, counted=True)
        for episode_id in dict.fromkeys(cut.episodes):
            packed = episode_of(store.get(stored.episode_name(run.run_id, episode_id), at=cut.at))
            if packed is not None:
                writer.document(pack.episode_member(episode_id), pack.encode_json(packed))
        documents = item_documents(store, run.run_id, cut.batches, cut.at)
        if documents:
            writer.lines(pack.ITEMS, item_lines(store, documents, cut.at, cut.document.user))
        if store.length(cut.thread, at=cut.at):
            texts = UsageTexts(store, cut.at)
            # What others said in the thread is theirs: only its place is kept.
            slots = (
                erased_slot(entry)
                if entry.erased or is_anothers(entry, cut.document.user)
                else slot_of(entry, texts.first(entry))
                for entry in cut.entries(cut.thread)
            )
            writer.lines(pack.SLOTS, slots)
        if store.length(cut.evicted, at=cut.at):
            left = (_evicted(entry) for entry in cut.entries(cut.evicted) if not entry.erased)
            writer.lines(pack.EVICTED, left)
        told: dict[str, Any] = redact(dict(given)) | _pointers(cut)
        moment = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        writer.document(
            pack.MANIFEST, pack.manifest_bytes(pack_id, moment, writer.files, told), listed=False
        )
    return told


def _pointers(cut: _Cut) -> dict[str, Any]:
    return msgspec.structs.asdict(
        pack.Pointers(
            format=pack.FORMAT,
            run_id=cut.ws["run_id"],
            task_id=cut.ws["task_id"],
            thread_id=cut.ws["thread_id"],
            user_id=cut.document.user,
            seq=cut.ws["_update_seq"],
            ledger_last_seq=cut.events,
            position=cut.at,
            head=cut.head.digest.hex(),
        )
    )


def _events(cut: _Cut) -> Iterator[dict[str, Any]]:
    """The events; what they say belongs to the run is noted on the way."""
    for entry in cut.entries(cut.ledger, whole=True):
        event = cut.run.ledger.whole(entry)
        payload = event["payload"]
        if entry.erased:
            pass
        elif entry.kind == "MILESTONE" and payload.get("episode_id"):
            cut.episodes.append(payload["episode_id"])
        elif entry.kind == "MEMORY_COMMIT":
            cut.batches[payload["batch_id"]] = None
        elif entry.kind == "WS_REPAIRED":
            cut.damaged.add(payload["damaged_seq"])
        yield event


def _version(version: Document, damaged: Collection[int]) -> dict[str, Any]:
    seq = version.version - 1
    is_gone = version.erased or version.deleted or version.kind == stored.GONE
    if is_gone or seq in damaged:
        return {"seq": seq, "erased": True}
    return {"seq": seq, "working_set": version.value}


def _evicted(entry: Entry) -> dict[str, Any]:
    return {"item": entry.value, "writer_id": entry.actor}

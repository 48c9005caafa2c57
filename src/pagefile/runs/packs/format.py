"""What is in a resume pack: the names of its members, its manifest, its limits.

    manifest.v2.1.json           what the pack is, and the SHA-256 of every other member
    working_set.json             the working set
    working_set_history.jsonl    every version of it, oldest first
    ledger.jsonl                 every event, as schema 2.1 describes it
    episodes/<episode_id>.json   the milestones
    memory_items.jsonl           long-term items that this run's batches changed
    thread_slots.jsonl           the slots of the run's thread
    evicted.jsonl                what left the working set

A zip file with these and nothing else. Lines are canonical JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from pagefile.errors import Corrupt, Invalid, LimitExceeded, Unsupported, shown
from pagefile.runs.schema import artifacts
from pagefile.store.arguments import require_count
from pagefile.store.codec.decoder import convert, json_decoder

# Why a pack is refused: each reason is a class of its own, and `field` names the member.
#
# Every class is one of the general errors too, so that a surface needs to know
# only those, and the `code` stays the general one's.


_MAKE_AGAIN = "make the pack again"


class NotAPack(Invalid):
    """The file or folder is no pack of any format."""

    def __init__(self, path: object, fact: str) -> None:
        told = shown(str(path) if isinstance(path, os.PathLike) else path)
        super().__init__("path", f"{told} {fact}", "give the path of a resume pack")


class UnsafeName(Invalid):
    """A member's name could leave the pack: absolute, `..`, a backslash, a drive."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(shown(member), f"the name {why}", "do not trust this pack")


class LinkMember(Invalid):
    """A member is a link or a device, not a file."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "is a link or special file", "do not trust this pack")


class DuplicateMember(Invalid):
    """Two members have one name, so nobody can say which is meant."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "is in the pack twice", "do not trust this pack")


class UnknownMember(Invalid):
    """A member that no pack of this format has."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "has no place in a pack", "remove it, or pack again")


class MissingMember(Invalid):
    """A member that the manifest lists, or every pack has, is not there."""

    def __init__(self, member: str) -> None:
        super().__init__(shown(member), "is missing from the pack", _MAKE_AGAIN)


class WrongContent(Invalid):
    """A member is whole, and does not say what it has to say."""

    def __init__(self, member: str, fact: str) -> None:
        super().__init__(member, fact, _MAKE_AGAIN)


class WrongDigest(Corrupt):
    """A member is not the one that the manifest was written for."""

    def __init__(self, member: str) -> None:
        super().__init__(f"{shown(member)} fails its digest", "take another copy of the pack")
        self.field = member


class DamagedPack(Corrupt):
    """The archive cannot be read to its end."""

    def __init__(self, member: str, why: object) -> None:
        super().__init__(f"{shown(member)} cannot be read ({why})", "take another copy of the pack")
        self.field = member


class PackTooLarge(LimitExceeded):
    """More bytes, members or bytes of a line than the limits allow."""

    def __init__(self, member: str, what: str, *, limit: int, wanted: int) -> None:
        super().__init__(
            f"{what} of {shown(member)}",
            limit=limit,
            wanted=wanted,
            next_step="raise it in PackLimits, if you trust the pack",
        )
        self.field = member


class PackTooDense(PackTooLarge):
    """It unpacks to many times its size, as archives do that are made to fill a disk."""


class NewerPack(Unsupported):
    """The pack was made by a later version."""

    def __init__(self, member: str, fact: str) -> None:
        super().__init__(f"{member}: {fact}", "restore it with a newer Pagefile")
        self.field = member


FORMAT: Final = 1
ENGINE: Final = f"pagefile-pack/{FORMAT}"

MANIFEST: Final = "manifest.v2.1.json"
WORKING_SET: Final = "working_set.json"
HISTORY: Final = "working_set_history.jsonl"
LEDGER: Final = "ledger.jsonl"
ITEMS: Final = "memory_items.jsonl"
SLOTS: Final = "thread_slots.jsonl"
EVICTED: Final = "evicted.jsonl"
_EPISODE = re.compile(r"episodes/([A-Za-z0-9_-]{1,64})\.json")
REQUIRED: Final = frozenset({MANIFEST, WORKING_SET, HISTORY, LEDGER})
OPTIONAL: Final = frozenset({ITEMS, SLOTS, EVICTED})

_DRIVE = re.compile(r"[A-Za-z]:")
_MOST_BYTES = 2**50

encode_json = msgspec.json.Encoder(order="sorted").encode
_decode_json = json_decoder(Any).decode


#: Called with how many events and versions are done, and how many there are.
Progress = Callable[[int, int], None]
_STEPS_TOLD = 500


class Steps:
    """How far the work is; tells of it now and then, and at the end."""

    def __init__(self, total: int, tell: Progress | None) -> None:
        self._done, self._total, self._tell = 0, total, tell

    def step(self) -> None:
        self._done += 1
        if self._tell is None or self._done > self._total:
            return
        if self._done % _STEPS_TOLD == 0 or self._done == self._total:
            self._tell(self._done, self._total)


class PackLimits(msgspec.Struct, frozen=True):
    """What a pack may make of itself when it is read.

    Nothing in the archive's own headers is trusted: bytes are counted as they
    come. `max_ratio` is how many times larger than in the archive they may be;
    the first `ratio_free_bytes` of a member are not held to it.
    """

    max_bytes: int = 16 * 1024**3
    max_members: int = 100_000
    max_ratio: int = 500
    #: Twice the largest entry of a store, and what stands around it: a body is text in JSON here.
    max_line_bytes: int = 40 * 1024**2
    #: A slot as large as they come may be one letter over and over: that is no bomb.
    ratio_free_bytes: int = 16 * 1024**2

    def require(self) -> PackLimits:
        """Itself, if every limit is one."""
        for name in self.__struct_fields__:
            require_count(getattr(self, name), f"limits.{name}", least=1, most=_MOST_BYTES)
        return self


class PackReport(msgspec.Struct, frozen=True):
    """What a pack holds. There is a report only for a pack that is sound.

    `format` is "pagefile-pack/1", or "manifest", "simple" or "run folder" for older ones.
    `proved` is True when the working set was found to be the fold of the ledger.
    `normalised` says what of an older one is stored otherwise than it was packed.
    """

    format: str
    pack_id: str
    run_id: str
    seq: int
    events: int
    versions: int
    episodes: int
    items: int
    slots: int
    evicted: int
    size_bytes: int
    proved: bool
    normalised: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True):
    """The manifest's fields that we read."""

    pack_id: str
    created_at: str
    compatible_engine_versions: tuple[str, ...]
    files: dict[str, str]
    pointers: dict[str, Any]


class Pointers(msgspec.Struct, frozen=True):
    """What the manifest says about the run, and where it was cut."""

    format: int
    run_id: str
    task_id: str
    thread_id: str
    user_id: str | None
    seq: int
    ledger_last_seq: int
    position: int
    head: str


def episode_member(episode_id: str) -> str:
    return f"episodes/{episode_id}.json"


def episode_in(member: str) -> str | None:
    """The episode's id, if the member is one."""
    found = _EPISODE.fullmatch(member)
    return None if found is None else found[1]


def require_safe(name: str) -> None:
    """Refuse a name that could mean a place outside the pack.

    Raises:
        UnsafeName: says what is wrong with it.
    """
    why = ""
    if not name or "\x00" in name:
        why = "is empty or has a NUL in it"
    elif "\\" in name:
        why = "has a backslash"
    elif name.startswith("/"):
        why = "is absolute"
    elif _DRIVE.match(name):
        why = "begins with a drive letter"
    elif any(part in ("..", ".") for part in name.split("/")):
        why = "has '..' or '.' in it"
    if why:
        raise UnsafeName(name, why)


def parsed(member: str, raw: bytes, number: int | None = None) -> Any:
    """The JSON in a member, or in one of its lines."""
    try:
        return _decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongContent(placed(member, number), f"is no JSON ({error})") from error


def placed(member: str, number: int | None) -> str:
    return member if number is None else f"{member}:{number}"


def parse_object(member: str, raw: bytes, number: int | None = None) -> dict[str, Any]:
    """The JSON object in a member, or in one of its lines."""
    value = parsed(member, raw, number)
    if type(value) is not dict:
        raise WrongContent(placed(member, number), "is no JSON object")
    return value


def read_manifest(raw: bytes) -> Manifest:
    """The manifest, checked.

    Raises:
        Invalid: it is none. NewerPack: it is one of a later version.
    """
    value = parse_object(MANIFEST, raw)
    version = value.get("_schema_version")
    if version != artifacts.SCHEMA_VERSION and type(version) is str:
        raise NewerPack(MANIFEST, f"has schema version {version!r:.40}")
    checked(MANIFEST, "resume_pack_manifest", value)
    manifest = convert(value, Manifest)
    number = manifest.pointers.get("format")
    if type(number) is int and number > FORMAT:
        raise NewerPack(MANIFEST, f"is of format {number}, and {FORMAT} is the last known here")
    for name in manifest.files:
        require_safe(name)
    return manifest


def read_pointers(manifest: Manifest) -> Pointers:
    """What the manifest of this format says about the run."""
    try:
        found = convert(manifest.pointers, Pointers)
    except msgspec.ValidationError as error:
        raise WrongContent(MANIFEST, f"has pointers that are none ({error})") from error
    if found.format != FORMAT or ENGINE not in manifest.compatible_engine_versions:
        raise NewerPack(MANIFEST, f"does not name {ENGINE} as an engine that can read it")
    return found


def checked(member: str, artifact: str, value: Any, number: int | None = None) -> None:
    """Hold a value against its schema; the refusal names the member."""
    try:
        artifacts.check(artifact, value)
    except Invalid as error:
        raise WrongContent(placed(member, number), f"is no {artifact} ({error.args[0]})") from error


def manifest_bytes(
    pack_id: str, created_at: str, files: Mapping[str, str], pointers: Mapping[str, Any]
) -> bytes:
    """The manifest as it stands in a pack."""
    value = {
        "_schema_version": artifacts.SCHEMA_VERSION,
        "pack_id": pack_id,
        "created_at": created_at,
        "compatible_engine_versions": [ENGINE],
        "files": dict(files),
        "pointers": dict(pointers),
    }
    artifacts.check("resume_pack_manifest", value)
    return bytes(encode_json(value))

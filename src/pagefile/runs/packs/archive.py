"""Reading an archive that somebody else made: nothing in it is believed.

Members are streamed; bytes are counted and hashed as they come, so a header
that lies about sizes gains nothing. Nothing is ever extracted to a disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from pagefile.errors import Unavailable, shown
from pagefile.runs.packs.format import (
    MANIFEST,
    DamagedPack,
    DuplicateMember,
    LinkMember,
    MissingMember,
    NotAPack,
    PackLimits,
    PackTooDense,
    PackTooLarge,
    UnknownMember,
    WrongDigest,
    require_safe,
)

_CHUNK = 64 * 1024
#: What the standard library raises for archives that are not what they seem.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    IndexError,
    KeyError,
    struct.error,
)
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_MOST_COMMENT = 65_535
#: A directory entry has 46 bytes, a name, and extra fields; this many are plenty for one of ours.
_ENTRY_BYTES = 1_024


class Archive(Protocol):
    """The members of a pack, whatever holds them."""

    path: Path
    names: list[str]
    #: Bytes that the pack takes as it lies there.
    size_bytes: int

    def chunks(self, name: str) -> Iterator[bytes]:
        """The member's bytes, a bounded piece at a time."""
        ...


class Members:
    """An archive with limits and digests: what all formats are read through."""

    def __init__(self, archive: Archive, limits: PackLimits) -> None:
        self.archive = archive
        self.limits = limits
        self.names = frozenset(archive.names)
        #: SHA-256 of each member; those that are not listed are not held to one.
        self.digests: Mapping[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._unpacked = 0
        if len(archive.names) > limits.max_members:
            raise PackTooLarge(
                str(archive.path),
                "the number of members",
                limit=limits.max_members,
                wanted=len(archive.names),
            )
        seen: set[str] = set()
        for name in archive.names:
            require_safe(name)
            if name in seen:
                raise DuplicateMember(name)
            seen.add(name)

    def chunks(self, name: str) -> Iterator[bytes]:
        """A member's bytes.

        Raises:
            MissingMember, DamagedPack, WrongDigest, PackTooLarge: at the chunk that shows it.
        """
        if name not in self.names:
            raise MissingMember(name)
        digest, size = hashlib.sha256(), 0
        for chunk in self.archive.chunks(name):
            size += len(chunk)
            # What is read once more counts once.
            self._unpacked += max(0, size - self._sizes.get(name, 0))
            self._sizes[name] = max(size, self._sizes.get(name, 0))
            if self._unpacked > self.limits.max_bytes:
                raise PackTooLarge(
                    name, "the unpacked size", limit=self.limits.max_bytes, wanted=self._unpacked
                )
            digest.update(chunk)
            yield chunk
        wanted = self.digests.get(name)
        if wanted is not None and digest.hexdigest() != wanted:
            raise WrongDigest(name)

    def require_digests(self, digests: Mapping[str, str]) -> None:
        """Hold every member against its digest, before anything in one is believed or blamed.

        Raises:
            WrongDigest, DamagedPack, PackTooLarge: the first member that is not as listed.
        """
        self.digests = digests
        for name in sorted(digests):
            for _ in self.chunks(name):
                pass

    def lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        """The lines of a member with their numbers; blank ones are left out."""
        # Grown in place: a line of many chunks is not copied, nor searched, once for each.
        rest, number = bytearray(), 0
        for chunk in self.chunks(name):
            head, *others = chunk.split(b"\n")
            rest += head
            self._require_short(name, rest)
            if not others:
                continue
            *whole, tail = others
            for line in (bytes(rest), *whole):
                number += 1
                if not line:
                    continue  # A bomb is made of these.
                self._require_short(name, line)
                if line.strip():
                    yield number, line
            rest = bytearray(tail)
        self._require_short(name, rest)
        if rest.strip():
            yield number + 1, bytes(rest)

    def read(self, name: str) -> bytes:
        """A whole member, which must not be longer than a line may be."""
        parts, size = [], 0
        for chunk in self.chunks(name):
            size += len(chunk)
            if size > self.limits.max_line_bytes:
                raise self._too_long(name, size)
            parts.append(chunk)
        return b"".join(parts)

    def _require_short(self, name: str, line: bytes | bytearray) -> None:
        if len(line) > self.limits.max_line_bytes:
            raise self._too_long(name, len(line))

    def _too_long(self, name: str, size: int) -> PackTooLarge:
        limit = self.limits.max_line_bytes
        return PackTooLarge(name, "the length of a line or document", limit=limit, wanted=size)


class Zip:
    """A zip file."""

    def __init__(self, path: Path, file: IO[bytes], limits: PackLimits) -> None:
        self.path = path
        self.size_bytes = os.fstat(file.fileno()).st_size
        self._limits = limits
        _require_small_directory(path, file, self.size_bytes, limits)
        try:
            self._zip = zipfile.ZipFile(file)
            infos = self._zip.infolist()
        except _BROKEN as error:
            raise NotAPack(path, f"is no zip file, or is cut off ({error})") from error
        # The library cuts names at a NUL; the name as it was written is what counts.
        self.names = [info.orig_filename for info in infos]
        self._infos = {info.orig_filename: info for info in infos}
        for info in infos:
            _require_plain(info)

    def chunks(self, name: str) -> Iterator[bytes]:
        info = self._infos[name]
        packed = min(info.compress_size, self.size_bytes)
        most = self._limits.ratio_free_bytes + packed * self._limits.max_ratio
        most_of_all = self._limits.ratio_free_bytes + self.size_bytes * self._limits.max_ratio
        count = 0
        try:
            with self._zip.open(info) as member:
                while chunk := member.read(_CHUNK):
                    count += len(chunk)
                    if count > min(most, most_of_all):
                        raise PackTooDense(name, "the unpacked size", limit=most, wanted=count)
                    yield chunk
        except _BROKEN as error:
            # LimitExceeded is a MemoryError and WrongDigest an Exception of ours: not caught here.
            raise DamagedPack(name, error) from error
        except OSError as error:
            raise DamagedPack(name, error.strerror or error) from error


class Folder:
    """The members of a pack as files in a folder; only one of the older formats is like that."""

    def __init__(self, path: Path, limits: PackLimits) -> None:
        self.path = path
        self.names = []
        self.size_bytes = 0
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                full = Path(folder, name)
                mode = full.lstat().st_mode
                shown_name = full.relative_to(path).as_posix()
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise LinkMember(shown_name)
                if stat.S_ISREG(mode):
                    self.names.append(shown_name)
                    self.size_bytes += full.lstat().st_size
            if len(self.names) > limits.max_members:
                break  # `Members` says it.

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            # Not through a link that somebody put there since.
            descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW)
            with open(descriptor, "rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        except OSError as error:
            raise DamagedPack(name, error.strerror or error) from error


@contextmanager
def open_members(path: Path, limits: PackLimits) -> Iterator[Members]:
    """The members of the pack at a path, every name of them safe."""
    limits.require()
    if path.is_dir():
        yield Members(Folder(path, limits), limits)
        return
    with _open(path) as file:
        yield Members(Zip(path, file, limits), limits)


def _open(path: Path) -> IO[bytes]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotAPack(path, "is no file")
        return open(path, "rb")
    except FileNotFoundError as error:
        raise NotAPack(path, "is not there") from error
    except OSError as error:
        fact = f"{shown(str(path))} cannot be read ({error.strerror})"
        raise Unavailable(fact, "look at the file's permissions, then retry") from error


def require_listed(members: Members, files: Mapping[str, str]) -> None:
    """The manifest lists every member but itself, and no other."""
    for name in files:
        if name not in members.names:
            raise MissingMember(name)
    for name in sorted(members.names):
        if name != MANIFEST and name not in files:
            raise UnknownMember(name)


def _require_plain(info: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG) and not (stat.S_ISDIR(kind) and info.is_dir()):
        raise LinkMember(info.orig_filename)
    if info.flag_bits & 0x1:
        raise DamagedPack(info.orig_filename, "it is encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DamagedPack(info.orig_filename, "it is compressed in an unknown way")


def _require_small_directory(path: Path, file: IO[bytes], size: int, limits: PackLimits) -> None:
    """Look before the library does: it reads the whole directory into memory."""
    if size < _END.size:
        raise NotAPack(path, "is no zip file")
    start = max(0, size - _MOST_COMMENT - _END.size)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise NotAPack(path, "is no zip file, or is cut off")
    _, _, _, _, count, directory, _, _ = _END.unpack_from(tail, at)
    end_64 = start + at - _LOCATOR_64.size
    if end_64 >= 0:
        file.seek(end_64)
        mark, _, offset, _ = _LOCATOR_64.unpack(file.read(_LOCATOR_64.size))
        if mark == b"PK\x06\x07":
            # Where the library will look, and where the record says that it is.
            for place in (offset, end_64 - _END_64.size):
                if 0 <= place <= size - _END_64.size:
                    file.seek(place)
                    record = _END_64.unpack(file.read(_END_64.size))
                    if record[0] == b"PK\x06\x06":
                        count, directory = max(count, record[7]), max(directory, record[8])
    if count > limits.max_members:
        what = "the number of members"
        raise PackTooLarge(str(path), what, limit=limits.max_members, wanted=count)
    most = _ENTRY_BYTES * limits.max_members
    if directory > most and directory != 0xFFFF_FFFF:
        raise PackTooLarge(str(path), "the directory", limit=most, wanted=directory)
    file.seek(0)

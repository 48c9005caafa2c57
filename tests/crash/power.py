"""Power cuts, without a plug to pull: record what SQLite does to its files, then
build every state that a disk could be left in.

A write is certain only once its file was synced. When the power fails, any of
the later ones may be on the disk or not, in any order, and one may be there in
part. `Recorder` writes down the operations of a live store in order;
`Recording.cuts` lists the states after a cut at one of them; `Recording.rebuild`
puts such a state into a folder, where a store must open by itself.

What the disk is taken to do:

- Sectors of 512 bytes arrive whole; a longer write may arrive in part. Of the sector that was
  being written when the power failed, the bytes that were to be written may be anything.
- A sync makes the file's earlier operations certain, and its name.
- Names become certain together when the folder is synced. SQLite does that with
  the first sync of a journal it opened, and when it deletes one and says so.
- The `-shm` file and temporary files are lost: they are not recorded.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import apsw
import msgspec

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECTOR_BYTES = 512
_JUNK = b"\xa5"
_JOURNALS = ("-wal", "-journal")
_names = itertools.count(1)


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One thing done to a file. `file` numbers files as a disk does: a name can change hands."""

    kind: Literal["create", "write", "truncate", "sync", "delete", "acknowledged"]
    file: int = 0
    name: str = ""
    offset: int = 0
    data: bytes = b""
    #: For a sync or a delete: the names in the folder became certain with it.
    folder: bool = False


class Recorder(apsw.VFS):
    """An SQLite VFS that does everything for real and writes it down.

    Open a store that does not exist yet with `Options(vfs=recorder.name)`, and
    call `acknowledge` after each commit that returned.
    """

    def __init__(self) -> None:
        self.name = f"pagefile-recorder-{next(_names)}"
        super().__init__(self.name, "")
        self.operations: list[Operation] = []
        self._files: dict[str, int] = {}
        self._newest = 0

    def acknowledge(self) -> None:
        """Note that everything asked for so far was promised to its caller."""
        self.operations.append(Operation("acknowledged"))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:
            return apsw.VFSFile("", name, flags)
        short = Path(path).name
        file = _RecordedFile(name, flags, self, short)
        if short not in self._files:
            self._newest += 1
            self._files[short] = self._newest
            self.operations.append(Operation("create", self._newest, short))
        file.number = self._files[short]
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        short = Path(filename).name
        if short in self._files:
            number = self._files.pop(short)
            self.operations.append(Operation("delete", number, short, folder=syncdir))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unregister()


class _RecordedFile(apsw.VFSFile):
    def __init__(
        self, name: str | apsw.URIFilename | None, flags: list[int], recorder: Recorder, short: str
    ) -> None:
        super().__init__("", name, flags)
        self.number = 0
        self._recorder = recorder
        self._short = short
        self._syncs_folder = short.endswith(_JOURNALS) and bool(flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: Buffer, offset: int) -> None:
        super().xWrite(data, offset)
        self._note(Operation("write", self.number, self._short, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._note(Operation("truncate", self.number, self._short, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._note(Operation("sync", self.number, self._short, folder=self._syncs_folder))
        self._syncs_folder = False

    def _note(self, operation: Operation) -> None:
        self._recorder.operations.append(operation)


class Part(msgspec.Struct, frozen=True):
    """One write that arrived in part: the bytes of `operation` from `start` to `stop`."""

    operation: int
    start: int
    stop: int
    #: So many more bytes after these are junk.
    junk: int = 0


class Cut(msgspec.Struct, frozen=True):
    """One state of the disk after the power failed just before operation `at`."""

    at: int
    variant: str
    #: How many commits had been acknowledged.
    acknowledged: int
    #: The names in the folder and the files they lead to.
    names: tuple[tuple[str, int], ...]
    #: Of each file with a name: the operations that reached the disk.
    kept: tuple[tuple[int, ...], ...]
    torn: Part | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for two cuts that leave the same bytes and the same promises."""
        return self.acknowledged, self.names, self.kept, self.torn


class _Moment:
    """What is certain, and what is not, just before one operation."""

    def __init__(self, operations: Sequence[Operation], at: int) -> None:
        self.acknowledged = 0
        self.contents: dict[int, list[int]] = {}
        self.certain_contents: dict[int, int] = {}
        self.renamings: list[int] = []
        self.certain_renamings: set[int] = set()
        for i, operation in enumerate(operations[:at]):
            self._see(i, operation, operations)

    def _see(self, i: int, operation: Operation, operations: Sequence[Operation]) -> None:
        file = operation.file
        if operation.kind == "acknowledged":
            self.acknowledged += 1
        elif operation.kind in ("create", "delete"):
            self.renamings.append(i)
        elif operation.kind == "sync":
            self.certain_contents[file] = len(self.contents.get(file, ()))
            for r in self.renamings:
                named = operations[r]
                if operation.folder or (named.kind == "create" and named.file == file):
                    self.certain_renamings.add(r)
        else:
            self.contents.setdefault(file, []).append(i)
        if operation.kind == "delete" and operation.folder:
            self.certain_renamings.update(self.renamings)

    @cached_property
    def certain(self) -> frozenset[int]:
        found = set(self.certain_renamings)
        for file, numbers in self.contents.items():
            found.update(numbers[: self.certain_contents.get(file, 0)])
        return frozenset(found)

    def uncertain(self) -> list[int]:
        every = [*self.renamings, *itertools.chain.from_iterable(self.contents.values())]
        return sorted(i for i in every if i not in self.certain)


class Recording:
    """What a recorder wrote down, and the states that power cuts could leave of it."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = tuple(operations)

    def boundaries(self) -> range:
        """Every moment for a cut: before each operation, and after the last."""
        return range(len(self.operations) + 1)

    def cuts(self, at: int, seed: int, *, subsets: int, prefixes: int | None = None) -> list[Cut]:
        """States after a cut before operation `at`.

        Of what was not certain: nothing, everything, every prefix (or that many,
        evenly spread), everything with the last write torn either way, and
        `subsets` drawn from it, some with a torn write. A subset is also what a
        disk leaves that wrote in another order.
        """
        moment = _Moment(self.operations, at)
        uncertain = moment.uncertain()
        rng = random.Random(f"{seed}.{at}")
        found = [self._cut(at, "nothing more", moment, [])]
        if not uncertain:
            return found
        found.append(self._cut(at, "everything", moment, uncertain))
        lengths = list(range(1, len(uncertain)))
        if prefixes is not None and len(lengths) > prefixes:
            # One of each stretch, from its middle.
            lengths = [
                lengths[(2 * n + 1) * len(lengths) // (2 * prefixes)] for n in range(prefixes)
            ]
        found += [self._cut(at, f"the first {n}", moment, uncertain[:n]) for n in lengths]
        for part in self._tears(uncertain[-1]):
            found.append(self._cut(at, "the last torn", moment, uncertain, part))
        for n in range(subsets):
            chosen = self._subset(uncertain, rng)
            tears = self._tears(rng.choice(chosen)) if chosen else []
            torn = rng.choice(tears) if tears and rng.random() < 0.5 else None
            found.append(self._cut(at, f"subset {n}", moment, chosen, torn))
        return found

    def torn_pages(self, at: int) -> list[Cut]:
        """States after a cut within the write before operation `at`, torn at every sector.

        All that came before it has arrived. Of the write itself: the sectors before a border,
        those after it, and those before it with the next one as junk.
        """
        moment = _Moment(self.operations, at)
        uncertain, number = moment.uncertain(), at - 1
        size = len(self.operations[number].data)
        parts = [Part(number, 0, 0, min(SECTOR_BYTES, size))]
        for border in self._borders(number):
            junk = min(SECTOR_BYTES, size - border)
            parts += [Part(number, 0, border), Part(number, border, size)]
            parts.append(Part(number, 0, border, junk))
        return [self._cut(at, "a page torn", moment, uncertain, part) for part in parts]

    def rebuild(self, cut: Cut, folder: Path) -> None:
        """Write the files as the cut left them."""
        for (name, file), kept in zip(cut.names, cut.kept, strict=True):
            (folder / name).write_bytes(self.content(file, kept, cut.torn))

    def content(self, file: int, kept: tuple[int, ...], torn: Part | None = None) -> bytes:
        """The bytes of one file after these operations of it."""
        image = bytearray()
        for i in kept:
            operation = self.operations[i]
            if torn is not None and torn.operation == i:
                operation = Operation(
                    "write",
                    file,
                    operation.name,
                    operation.offset + torn.start,
                    operation.data[torn.start : torn.stop] + _JUNK * torn.junk,
                )
            _apply(image, operation)
        return bytes(image)

    def _cut(
        self,
        at: int,
        variant: str,
        moment: _Moment,
        chosen: Sequence[int],
        torn: Part | None = None,
    ) -> Cut:
        present = moment.certain.union(chosen)
        names: dict[str, int] = {}
        for i in moment.renamings:
            operation = self.operations[i]
            if i not in present:
                continue
            if operation.kind == "create":
                names[operation.name] = operation.file
            elif names.get(operation.name) == operation.file:
                del names[operation.name]
        listed = tuple(sorted(names.items()))
        kept = tuple(
            tuple(i for i in moment.contents.get(file, ()) if i in present) for _, file in listed
        )
        return Cut(at, variant, moment.acknowledged, listed, kept, torn)

    def _subset(self, uncertain: Sequence[int], rng: random.Random) -> list[int]:
        """Any of the contents; of the names a prefix, for a folder's journal is in order."""
        share = rng.choice((0.2, 0.5, 0.8))
        names = [i for i in uncertain if self.operations[i].kind in ("create", "delete")]
        kept_names = names[: rng.randint(0, len(names))]
        contents = [i for i in uncertain if self.operations[i].kind in ("write", "truncate")]
        kept = [*kept_names, *(i for i in contents if rng.random() < share)]
        return sorted(kept)

    def _tears(self, number: int) -> list[Part]:
        """The write cut at the sector border nearest its middle: its front, and its back."""
        borders = self._borders(number)
        if not borders:
            return []
        size = len(self.operations[number].data)
        at = borders[min(bisect.bisect(borders, size // 2), len(borders) - 1)]
        return [Part(number, 0, at), Part(number, at, size)]

    def _borders(self, number: int) -> range:
        """Where sectors end within a write, as places in its bytes."""
        operation = self.operations[number]
        if operation.kind != "write":
            return range(0)
        first = SECTOR_BYTES - operation.offset % SECTOR_BYTES
        return range(first, len(operation.data), SECTOR_BYTES)


def _apply(image: bytearray, operation: Operation) -> None:
    start = operation.offset
    if operation.kind == "truncate":
        del image[start:]
    if len(image) < start:
        image.extend(bytes(start - len(image)))
    image[start : start + len(operation.data)] = operation.data

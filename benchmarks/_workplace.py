"""What every case is given: a folder on a real disk, its size, a way to report progress."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pagefile
from pagefile import Append, Batch, Options, Pagefile, Store

#: With its key, quotes and braces this makes a body of 500 bytes.
TEXT = "An agent saw this. ".ljust(489, "x")
VALUE = {"text": TEXT}
LOG = "log"


class Closable(Protocol):
    def close(self) -> None: ...


_Closable = TypeVar("_Closable", bound=Closable)


@dataclass
class Workplace:
    """One run of the benchmarks. Whatever is put on `open` is closed at its end."""

    folder: Path
    quick: bool
    announce: Callable[[str, int], None]
    advance: Callable[[], None]
    open: ExitStack
    #: What several cases of one run use and only the first builds.
    kept: dict[str, Any] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def rounds(self, full: int) -> int:
        return max(3, full // 4) if self.quick else full

    def new_path(self) -> Path:
        return self.folder / f"{next(self._numbers)}.db"

    def closing(self, thing: _Closable) -> _Closable:
        self.open.callback(thing.close)
        return thing

    def open_handle(self, url: str | Path, options: Options | None = None) -> Pagefile:
        return self.open.enter_context(pagefile.open(url, options=options))

    def open_store(self, url: str | Path, options: Options | None = None) -> Store:
        return self.open_handle(url, options).store


def append_one(store: Store, log: str = LOG) -> None:
    """The operation that most cases count."""
    store.commit(Batch([Append(log, VALUE)]))


def append_many(store: Store, count: int, log: str = LOG) -> int:
    """One commit after the other."""
    for _ in range(count):
        append_one(store, log)
    return count

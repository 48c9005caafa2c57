"""What is stored under which name, whose it is, and what erasure and export do with it.

Each room declares its kinds in a module `kinds` of its folder, with the prefixes that
its writers use. `registry()` collects them when it is first asked: forgetting, exports,
imports and tests ask it, and keep no lists of names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Literal

import msgspec

from pagefile.store.batch import Append, Put
from pagefile.store.records import Document, Touched

#: The rooms that store something; each has a module `kinds` with its `KINDS`.
ROOMS = ("context", "recall", "memory", "runs", "assembly", "dispatch", "surfaces")

#: By name of a stream, the runs of its numbers, first and last.
Spans = Mapping[str, Sequence[tuple[int, int]]]
#: Refuses a record of an import that would not be written like this: the operation,
#: whose it is, and whether it may reach no other user.
Check = Callable[[Any, "str | None", bool], None]
#: Whether a document speaks of one of the documents, or of records in the spans.
Mentions = Callable[[Document, Collection[str], Spans], bool]


#: What was touched, with the names and kinds of the streams.
Taken = Sequence[tuple[str, "Kind | None", Touched]]


class NotOfItsKind(Exception):
    """Why a record is not what its name says."""


class Kind(msgspec.Struct, frozen=True, gc=False):
    """One kind of stream: all those whose names begin with `prefix`.

    `what` is a line for people. What follows the prefix matches `form`; an empty one
    means that the prefix is the whole name. With `bucket` it begins with the digest of
    the user, or with "anon".
    """

    prefix: str
    what: str
    stream: Literal["log", "document"] = "document"
    #: "user": each record says whose it is. "tenant": it says nothing of any user.
    owner: Literal["user", "tenant"] = "user"
    form: str = ".+"
    bucket: bool = False
    #: What a receipt of forgetting calls what was in them.
    counted_as: str = "other"
    #: Made from the rest: it goes with it, counts for nothing, and is in no export.
    derived: bool = False
    #: One thing with all its versions: the older ones do not go alone.
    whole: bool = False
    #: Rests on others by its sources, and may go by itself.
    rests: bool = False
    #: Whether what was forgotten may be stored under the same name again.
    returns: bool = False
    #: The id of a run follows the prefix: it goes and comes with the run. This is what the
    #: run's ledger calls it when some of it is lost.
    run_part: str = ""
    #: Entries stand on their own: an imported one whose place is taken goes to the end.
    loose: bool = False
    #: Bodies may be of any type that the codec knows.
    typed: bool = False
    #: Whether an export has it.
    exported: bool = True
    #: Whether a user may bring it in with a key of their own.
    own: bool = False
    check: Check | None = None
    mentions: Mentions | None = None

    def takes(self, name: str) -> bool:
        """Whether a name has the form of this kind."""
        return _form_of(self.prefix, self.form).fullmatch(name) is not None

    def run_of(self, name: str) -> str | None:
        """The run that a stream of this kind belongs to, if it does."""
        return name.removeprefix(self.prefix).split("/")[0] if self.run_part else None

    @property
    def erasure(self) -> str:
        """What forgetting a user does with it, for people."""
        if self.owner == "tenant":
            return "stays"
        return "all versions at once" if self.whole else "by record"


class Kinds:
    """All kinds, found by name."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = tuple(kinds)
        self._by_prefix = {kind.prefix: kind for kind in kinds}
        longest_first = sorted(kinds, key=lambda kind: -len(kind.prefix))
        ends = (re.escape(each.prefix) + ("" if each.form else r"\Z") for each in longest_first)
        self._prefix = re.compile("|".join(ends))
        #: What receipts of forgetting call what is made from the rest.
        self.derived = frozenset(kind.counted_as for kind in kinds if kind.derived)
        #: What ledgers call the parts of a run.
        self.run_parts = [kind.run_part for kind in kinds if kind.run_part]

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def of(self, name: str) -> Kind | None:
        """The kind that a name belongs to; None for a name of the caller's own."""
        found = self._prefix.match(name)
        return None if found is None else self._by_prefix[found.group()]

    def each_of(self, touched: Iterable[Touched]) -> Taken:
        """What was touched, with its name and kind; an erased name is empty."""
        return [(one.name or "", self.of(one.name or ""), one) for one in touched]


@cache
def registry() -> Kinds:
    """The kinds of all rooms, which are imported now."""
    rooms = [import_module(f"pagefile.{room}.kinds") for room in ROOMS]
    return Kinds([kind for room in rooms for kind in room.KINDS])


@lru_cache(256)
def _form_of(prefix: str, form: str) -> re.Pattern[str]:
    return re.compile(re.escape(prefix) + form, re.DOTALL)


# For checks


def require(is_so: object, what: str) -> None:
    """Refuse a record, and say why."""
    if not is_so:
        raise NotOfItsKind(what)


def require_bare(operation: Append | Put) -> None:
    """Refuse keys where none would be."""
    require(not operation.keys, "has keys, and would get none")
    require(not isinstance(operation, Put) or not operation.tenant_keys, "has keys")


def require_same(given: Put, wanted: Put) -> None:
    """Refuse what would not be written like this, in this place, under these keys."""
    require(given.document == wanted.document, "stands in another place than it says")
    require(given.kind == wanted.kind, "is of another kind")
    require(dict(given.keys) == dict(wanted.keys), "has other keys than it would get")
    same = dict(given.tenant_keys) == dict(wanted.tenant_keys)
    require(same, "has other keys than it would get")
    require(given.user == wanted.user, "is another's")

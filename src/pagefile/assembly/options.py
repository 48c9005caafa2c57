"""How a prompt is built: what may be in it, how much of each, and how it is counted."""

from __future__ import annotations

import hashlib
from typing import Any, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.recaller import MemoryKind
from pagefile.store.arguments import require_count, require_flag

MOST_BUDGET = 10_000_000
MOST_QUERY = 100_000
MOST_SYSTEM = 1_000_000
MOST_SLOTS = 10_000
MOST_RECALLED = 200
_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)


class AssemblyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into a prompt, and how much of it.

    Shares are of what the fixed part leaves. The tail of the thread may take
    `tail_share`; the working set `working_share` and what the tail left; what is
    recalled the rest. Without a run, or without a query, its share goes to the others.
    """

    #: Pinned blocks of the user stand in the prompt.
    blocks: bool = True
    tail_share: float = 0.5
    working_share: float = 0.25
    #: Never more slots of a thread, whatever the budget.
    max_slots: int = 1_000
    #: How many memories of each kind are asked for.
    max_recalled: int = 20
    kinds: tuple[MemoryKind, ...] = _KINDS
    #: Recalled memories below are left out; the best of each kind is at least 0.5.
    min_score: float = 0.2
    #: Recalled memories that share no word with the query, and are not near it, are left out.
    related_only: bool = True
    #: The cosine from which on one is near; None is the bundled model's own. With another
    #: model and None, all that its vectors find is near, and `min_score` decides.
    min_similarity: float | None = None
    #: Facts and items below are left out.
    min_confidence: float = 0.3
    #: The newest message of the thread must be in the prompt.
    require_newest: bool = True
    #: The query stands at the end, as what the user says.
    include_query: bool = False

    def __post_init__(self) -> None:
        for name in ("blocks", "related_only", "require_newest", "include_query"):
            require_flag(name, getattr(self, name))
        shares = ["tail_share", "working_share", "min_score", "min_confidence"]
        if self.min_similarity is not None:
            shares.append("min_similarity")
        for name in shares:
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise Invalid(name, shown(value), "give a number from 0 to 1")
            msgspec.structs.force_setattr(self, name, float(value))
        if self.tail_share + self.working_share > 1:
            raise Invalid("tail_share", "is more than 1 with working_share", "lower one of them")
        require_count(self.max_slots, "max_slots", most=MOST_SLOTS)
        require_count(self.max_recalled, "max_recalled", most=MOST_RECALLED)
        if not isinstance(self.kinds, (list, tuple)) or any(k not in _KINDS for k in self.kinds):
            raise Invalid("kinds", shown(self.kinds), f"give some of {', '.join(_KINDS)}")
        msgspec.structs.force_setattr(self, "kinds", tuple(self.kinds))


def digest_of(value: Any) -> str:
    """The digest of a plain value, the same wherever and whenever it is made."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()

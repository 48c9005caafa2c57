"""How a run keeps its working set; chosen at boot and recorded in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.runs.eviction import Budget
from pagefile.runs.schema.definitions import MOST_PINNED
from pagefile.runs.tokens import Cached, TokenCounter, counter_named
from pagefile.store.arguments import require_count, require_flag
from pagefile.store.codec.decoder import convert

#: Which status may follow which, where a run asks for that to be checked.
TRANSITIONS: Mapping[str, frozenset[str]] = {
    "BOOT": frozenset({"IDLE", "BUSY", "FAILED"}),
    "IDLE": frozenset({"BUSY", "WAITING_INPUT", "PAUSED", "DONE", "FAILED"}),
    "BUSY": frozenset({"IDLE", "WAITING_INPUT", "PAUSED", "DONE", "FAILED"}),
    "WAITING_INPUT": frozenset({"IDLE", "BUSY", "PAUSED", "DONE", "FAILED"}),
    "PAUSED": frozenset({"IDLE", "BUSY", "WAITING_INPUT", "FAILED"}),
    "DONE": frozenset(),
    "FAILED": frozenset({"BOOT", "IDLE", "BUSY"}),
}


class RunConfig(msgspec.Struct, frozen=True):
    """The settings of one run."""

    ws_max_tokens: int = 2_000
    pinned_context_max_items: int = 10
    token_counter: str = "chars/4"
    #: Refuse changes of status that `TRANSITIONS` does not name.
    check_transitions: bool = False

    def __post_init__(self) -> None:
        require_count(self.ws_max_tokens, "ws_max_tokens", least=1)
        require_count(self.pinned_context_max_items, "pinned_context_max_items")
        require_flag("check_transitions", self.check_transitions)
        if type(self.token_counter) is not str:
            fact = f"{shown(self.token_counter)} is no name of a counter"
            raise Invalid("token_counter", fact, "give a str such as 'chars/4'")

    @property
    def budget(self) -> Budget:
        return Budget(self.ws_max_tokens, self.most_pinned)

    @property
    def most_pinned(self) -> int:
        """How many items stay pinned: no more than the schema allows, whatever was asked for."""
        return min(self.pinned_context_max_items, MOST_PINNED)

    def counter(self) -> TokenCounter:
        """The run's token counter, with a cache of its own."""
        return Cached(counter_named(self.token_counter))

    def to_json(self) -> dict[str, Any]:
        """As the ledger's first event records it."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


#: What the ledger's first event records of a run's own settings, beside those of the caller.
SETTINGS = RunConfig.__struct_fields__


def config_from(recorded: Mapping[str, Any]) -> RunConfig:
    """The settings that a run was booted with; what we do not know is left out."""
    if not isinstance(recorded, Mapping):
        raise Invalid("config", f"{shown(recorded)} is no mapping", "boot the run again")
    known = {name: recorded[name] for name in SETTINGS if name in recorded}
    try:
        return convert(known, RunConfig)
    except msgspec.ValidationError as error:
        raise Invalid("config", str(error), "boot the run with whole numbers") from error


def require_transition(before: str, after: str) -> None:
    """Refuse a change of status that no run makes."""
    if before != after and after not in TRANSITIONS[before]:
        allowed = ", ".join(sorted(TRANSITIONS[before])) or "nothing: it is final"
        raise Invalid("status", f"{before} cannot become {after}", f"it may become {allowed}")

"""How a run keeps its working set; and secrets kept out of what is stored and shown."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.runs.eviction import Budget
from pagefile.runs.schema.definitions import MOST_PINNED
from pagefile.runs.tokens import Cached, TokenCounter, counter_named
from pagefile.store.arguments import require_count, require_flag
from pagefile.store.codec.canonical_json import MAX_DEPTH
from pagefile.store.codec.decoder import convert
from pagefile.store.codec.shapes import shape_for

# Secrets kept out of what is stored, logged and shown.


REDACTED: Final = "[redacted]"

_NAMES: Final = frozenset(
    {
        *("key", "keys", "token", "tokens", "secret", "secrets", "password", "passwords"),
        *("authorization", "credential", "credentials", "passwd", "passphrase", "pwd", "cookie"),
    }
)
# Names written as one word, such as apikey; "key" alone would take monkey for one.
_ENDINGS: Final = (
    *("apikey", "apikeys", "accesskey", "secretkey", "privatekey", "signingkey"),
    *("token", "secret", "password", "passwd", "authorization", "credential", "credentials"),
)
# A number under such a name counts tokens, as in max_tokens.
_COUNTS: Final = frozenset({"tokens", "count", "limit", "budget", "max", "min", "total", "used"})
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+")
_PLAIN: Final = (NoneType, str, int, float, bytes, date, Decimal, UUID, Enum)


class Secret:
    """A value that is used but never shown, stored or copied to another process.

    Its text, repr and format are "[redacted]"; JSON encoders, the codec and
    pickle refuse it. Only `reveal` gives the value.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value. Do not put it where it is stored or logged."""
        return self._value

    def __str__(self) -> str:
        return REDACTED

    def __repr__(self) -> str:
        return f"Secret({REDACTED!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # In a time that says nothing about where they differ.
        mine, theirs = (str(s._value).encode(errors="surrogatepass") for s in (self, other))
        return hmac.compare_digest(mine, theirs)

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: give the other process the secret another way")


def redact(value: Any) -> Any:
    """A deep copy in which "[redacted]" stands for every secret.

    Secrets are `Secret` instances, and whatever stands under a name like key,
    token, password, secret or authorization (`api_key`, `x-api-key` and
    `accessToken` too); numbers that count tokens stay. Objects with fields
    become dicts, sets become lists. What lies too deep, contains itself, or is of an unknown type
    is taken for a secret. Secrets inside longer texts are not looked for.
    """
    return _copy(value, 1, {})


def _copy(value: Any, depth: int, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, Secret):
        return REDACTED
    if isinstance(value, _PLAIN):
        return value
    if depth > MAX_DEPTH:
        return REDACTED
    if id(value) not in copies:
        # What it finds of itself inside itself. The value is held, so that its id stays its own.
        copies[id(value)] = (value, REDACTED)
        copies[id(value)] = (value, _copy_container(value, depth + 1, copies))
    return copies[id(value)][1]


def _copy_container(value: Any, depth: int, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, (list, set, frozenset)):
        items = [_copy(item, depth, copies) for item in value]
        return items if isinstance(value, list) else sorted(items, key=repr)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_copy(item, depth, copies) for item in value)
    fields = _fields_of(value)
    if fields is None:
        return REDACTED
    copy = {}
    for key, item in fields.items():
        shown = key if isinstance(key, _PLAIN) else REDACTED
        copy[shown] = REDACTED if _is_secret(key, item) else _copy(item, depth, copies)
    return copy


def _fields_of(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(zip(value._fields, value, strict=True))  # type: ignore[attr-defined]
    shape = shape_for(type(value))
    return None if shape is None else shape.read(value)


def _is_secret(key: Any, item: Any) -> bool:
    if isinstance(key, bytes):
        key = key.decode(errors="replace")
    if not isinstance(key, str) or item is None:
        return False
    words = {word.lower() for word in _WORD.findall(key)}
    if words & _COUNTS and isinstance(item, (int, float)):
        return False
    return not words.isdisjoint(_NAMES) or "".join(_WORD.findall(key)).lower().endswith(_ENDINGS)


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

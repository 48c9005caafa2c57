"""What can go wrong, as a tree whose classes say what to do next.

    PagefileError
    ├── NotFound       the name or number is unknown; retrying cannot help
    ├── Conflict       someone wrote first; re-read, then retry
    ├── Invalid        the input breaks a rule; mend the input
    ├── LimitExceeded  a stated limit would be passed; raise it or remove something
    ├── Unavailable    the store did not answer; `outcome` says whether it may have committed
    ├── Corrupt        stored bytes fail their digest or shape; stop and restore
    ├── Unsupported    this engine does not promise it; choose another
    └── Forbidden      this handle may not do that

A message is the fact, then the next step. `code` is the same word in Python,
REST, MCP, the command line and between processes, and `as_fields` is what
stands on each of these wires: the code, the fact, the next step, and what the
class carries besides. `from_fields` is the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

_MOST_SHOWN = 60


def shown(value: object) -> str:
    """A value as a message shows it: in one short line, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out a number of thousands of digits.
        return f"a very long {type(value).__name__}"
    except RecursionError:
        return f"a very deep {type(value).__name__}"
    line = " ".join(text[:_MOST_SHOWN].split())
    return line if len(text) <= _MOST_SHOWN else f"{line}…"


class PagefileError(Exception):
    """Base of every error that Pagefile raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, fact: str, next_step: str = "") -> None:
        super().__init__(f"{fact}: {next_step}" if next_step else fact)
        self.fact = fact
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (worker pools); the default would call
        # __init__ with the finished message and lose the fields.
        return revive, (type(self), self.args, self.__dict__)


def revive(
    cls: type[PagefileError], args: tuple[Any, ...], state: Mapping[str, Any]
) -> PagefileError:
    """An error from its finished message and its fields, as another process raised it."""
    # By the name of the base: MemoryError's own refuses to make a LimitExceeded.
    error = Exception.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class NotFound(PagefileError, LookupError):
    """The name or number is unknown here; retrying cannot help."""

    code = "not_found"


class Conflict(PagefileError):
    """Someone wrote first. Nothing of the batch was stored; re-read, then retry."""

    code = "conflict"

    def __init__(
        self, fact: str, next_step: str = "", *, target: str, expected: int, current: int
    ) -> None:
        super().__init__(fact, next_step)
        self.target = target
        self.expected = expected
        self.current = current


class Invalid(PagefileError, ValueError):
    """The input breaks a rule. Nothing was stored; mend the input."""

    code = "invalid"

    def __init__(self, field: str, fact: str, rule: str) -> None:
        super().__init__(f"{field}: {fact}", rule)
        self.field = field
        self.rule = rule


class LimitExceeded(PagefileError, MemoryError):
    """A stated limit would be passed. Nothing was stored."""

    code = "limit_exceeded"

    def __init__(self, what: str, *, limit: int, wanted: int, next_step: str) -> None:
        super().__init__(f"{what} is limited to {limit}, and this would make {wanted}", next_step)
        self.what = what
        self.limit = limit
        self.wanted = wanted


class Unavailable(PagefileError):
    """The store did not answer in time, or its disk or server failed.

    `outcome` is "nothing" when nothing was stored for certain, and "unknown"
    when the batch may have been committed: commit it again with the same
    `key` to find out; a batch that did commit answers with its first `Commit`.
    """

    code = "unavailable"

    def __init__(
        self,
        fact: str,
        next_step: str = "",
        *,
        outcome: Literal["nothing", "unknown"] = "nothing",
        key: str = "",
    ) -> None:
        super().__init__(fact, next_step)
        self.outcome = outcome
        self.key = key


class Corrupt(PagefileError):
    """Stored bytes fail their digest or shape. Stop writing and restore a copy."""

    code = "corrupt"


class Unsupported(PagefileError):
    """This engine or machine does not promise it; choose another."""

    code = "unsupported"


class Forbidden(PagefileError):
    """This handle may not do that."""

    code = "forbidden"


#: Every class by its code.
CLASSES: Mapping[str, type[PagefileError]] = {
    cls.code: cls
    for cls in (
        NotFound,
        Conflict,
        Invalid,
        LimitExceeded,
        Unavailable,
        Corrupt,
        Unsupported,
        Forbidden,
    )
}
#: What classes carry besides their words, and what stands there when nothing was said.
CARRIED: Mapping[type[PagefileError], Mapping[str, Any]] = {
    Conflict: {"target": "", "expected": -1, "current": -1},
    Invalid: {"field": "", "rule": ""},
    LimitExceeded: {"what": "", "limit": 0, "wanted": 0},
    Unavailable: {"outcome": "nothing", "key": ""},
}


def carried_by(error: PagefileError) -> dict[str, Any]:
    """What an error carries besides its words."""
    names = (name for cls, usual in CARRIED.items() if isinstance(error, cls) for name in usual)
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def as_fields(error: PagefileError) -> dict[str, Any]:
    """An error as plain values, the same on every wire; what says nothing is left out."""
    fields = {"code": error.code, "fact": error.fact, "next_step": error.next_step}
    more = carried_by(error)
    if more.get("rule") == error.next_step:
        del more["rule"]  # What to do is said once.
    return fields | {name: value for name, value in more.items() if value not in (None, "")}


def from_fields(fields: Mapping[str, Any]) -> PagefileError:
    """The error that such values stand for; one of an unknown code is a `PagefileError`."""
    cls = CLASSES.get(str(fields.get("code")), PagefileError)
    fact, next_step = str(fields.get("fact", "")), str(fields.get("next_step", ""))
    state: dict[str, Any] = {"fact": fact, "next_step": next_step}
    for name, usual in CARRIED.get(cls, {}).items():
        state[name] = fields.get(name, next_step if name == "rule" else usual)
    return revive(cls, (f"{fact}: {next_step}" if next_step else fact,), state)

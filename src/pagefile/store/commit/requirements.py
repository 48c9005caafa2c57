"""From the conditions of a batch to what an engine requires: checked, with keys as bytes."""

from __future__ import annotations

from typing import Any

from pagefile.errors import Invalid
from pagefile.store.arguments import Naming, require_count, require_flag
from pagefile.store.batch import (
    Absent,
    CountBelow,
    CreatedAt,
    LengthBelow,
    LengthIs,
    Unchanged,
    VersionIs,
)
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.commit.preparation import Envelopes
from pagefile.store.engine import Requirement

#: Numbers below this one need no closer look.
_COMMON = 2**32


class Requirements:
    """Makes requirements under one set of limits."""

    def __init__(self, naming: Naming, envelopes: Envelopes) -> None:
        self._naming = naming
        self._envelopes = envelopes

    def of(self, condition: object, at: int) -> Requirement:
        """What the condition at this place of `Batch.when` requires."""
        if type(condition) is VersionIs:  # Most are.
            return self._numbered("version", "document", condition.document, condition.version)
        if type(condition) is Absent:  # Of what is remembered, one each.
            return self._numbered("absent", "document", condition.document, 0)
        match condition:
            case VersionIs(document, version):
                return self._numbered("version", "document", document, version)
            case Absent(document):
                return self._numbered("absent", "document", document, 0)
            case LengthIs(log, length):
                return self._numbered("length", "log", log, length)
            case LengthBelow(log, limit):
                return self._numbered("below", "log", log, limit)
            case CreatedAt(log, position):
                return self._numbered("created", "log", log, position)
            case CountBelow(field, value, limit, user, everyone):
                require_flag("when.everyone", everyone)
                return self._keyed("count", field, value, limit, user if not everyone else ...)
            case Unchanged(field, value, since, user, everyone):
                require_flag("when.everyone", everyone)
                return self._keyed("unchanged", field, value, since, user if not everyone else ...)
        raise Invalid(
            f"when[{at}]",
            f"is of type {type(condition).__name__}, which is no condition",
            "use VersionIs, Absent, LengthIs, LengthBelow, CreatedAt, CountBelow or Unchanged",
        )

    def _numbered(self, what: Any, field: str, name: object, number: object) -> Requirement:
        if type(name) is not str or name not in self._naming.known_good:
            self._naming.check_text(field, name)
        if type(number) is not int or not 0 <= number < _COMMON:
            require_count(number, f"when.{what}")
        return Requirement(what, name, number)  # type: ignore[arg-type]  # Checked above.

    def _keyed(
        self, what: Any, field: str, value: KeyValue, number: object, user: Any
    ) -> Requirement:
        everyone = user is ...
        if not everyone:
            self._naming.check_user(user)
        key = self._envelopes.index_key("tenant" if everyone else "user", field, value)
        wanted = require_count(number, f"when.{what}")
        return Requirement(what, "", wanted, key, None if everyone else user)

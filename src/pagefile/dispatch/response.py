"""What a handler returns: where its message goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


class _ToCaller:
    """The address of whoever called; a class of its own, so that no name can be taken for it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "RESPOND_TO_CALLER"


RESPOND_TO_CALLER: Final = _ToCaller()


@dataclass(frozen=True, slots=True)
class HandlerResponse:
    """One message of a handler.

    `to` is the name of a listener, or None for whoever takes this type of
    payload. `HandlerResponse.respond(payload)` answers the caller and ends the
    activation.
    """

    payload: Any
    to: str | _ToCaller | None = None

    @classmethod
    def respond(cls, payload: Any) -> HandlerResponse:
        """An answer to the caller."""
        return cls(payload, RESPOND_TO_CALLER)

    @property
    def is_response(self) -> bool:
        """Whether it answers the caller."""
        return isinstance(self.to, _ToCaller)

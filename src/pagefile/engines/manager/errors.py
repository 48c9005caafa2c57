"""Errors on their way from a manager to its clients, and those about the way itself."""

from __future__ import annotations

import msgspec

from pagefile.engines.manager.protocol import Refusal
from pagefile.errors import Forbidden, PagefileError, Unavailable, as_fields, from_fields
from pagefile.store.codec.decoder import convert
from pagefile.store.commit.erasure import Rehearsed
from pagefile.store.engine import Wiped

#: The code of what is no failure: an erasure that was only tried.
_REHEARSED = "rehearsed"
_SAME_KEY = "commit again with the same key: it is stored once"


def refusal_of(error: PagefileError) -> Refusal:
    """The error as it goes over the wire; its cause stays behind."""
    if isinstance(error, Rehearsed):
        wiped = [msgspec.to_builtins(one) for one in error.wiped]
        return Refusal(_REHEARSED, "", {"wiped": wiped})
    return Refusal(error.code, str(error), as_fields(error))


def error_of(refusal: Refusal) -> PagefileError:
    """The error that a refusal stands for: one of ours, with plain fields and nothing else."""
    if refusal.code == _REHEARSED:
        return Rehearsed(convert(refusal.fields.get("wiped", []), tuple[Wiped, ...]))
    return from_fields(refusal.fields)


def no_key(where: str) -> Forbidden:
    """A URL without a key, and none in the environment."""
    return Forbidden(
        f"{where} asks for a key, and there is none",
        "write manager://:key@host:port, or set PAGEFILE_MANAGER_AUTHKEY",
    )


def not_reached(where: str, cause: Exception) -> Unavailable:
    """No connection could be made, and nothing was sent."""
    return Unavailable(
        f"{where} cannot be reached ({said(cause)})", "start a manager there, or check the URL"
    )


def lost(where: str, cause: Exception, *, committing: bool) -> Unavailable:
    """The connection broke before the answer."""
    if not committing:
        return Unavailable(f"{where} was lost ({said(cause)})", "retry")
    return Unavailable(
        f"{where} was lost in mid-commit ({said(cause)})", _SAME_KEY, outcome="unknown"
    )


def started_anew(where: str) -> Unavailable:
    """Another manager listens there now, and what this handle knew is gone with the old one."""
    return Unavailable(
        f"the manager at {where} was started anew, and what it held is gone",
        "open it again to begin with an empty store",
    )


def said(cause: Exception) -> str:
    """The system's word for a failure, in one short line."""
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return " ".join(text.split())[:100] or type(cause).__name__

"""What the errors of Redis and its client mean for the caller."""

from __future__ import annotations

import ssl

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    MovedError,
    RedisError,
)

from pagefile.errors import Corrupt, Forbidden, PagefileError, Unavailable, Unsupported

_AGAIN = "commit again with the same key to learn the outcome"

#: The first word of an error that Redis answers with: all of them mean that nothing was done.
_BEFORE_ANYTHING = {
    "LOADING": ("is still loading its data", "wait, then retry"),
    "BUSY": ("is busy with a script that does not end", "see SCRIPT KILL, then retry"),
    "READONLY": ("is a replica, which takes no writes", "name the primary in the URL"),
    "MISCONF": ("refuses writes, for it cannot store them", "look at its log and disk, then retry"),
    "NOREPLICAS": ("has too few replicas to take writes", "start them, then retry"),
    "MASTERDOWN": ("has lost its primary", "wait, then retry"),
    "CLUSTERDOWN": ("belongs to a cluster that is down", "wait, then retry"),
    "TRYAGAIN": ("is moving these keys elsewhere", "retry"),
    "MAXCLIENTS": ("has too many clients", "close some, then retry"),
}


def refused(error: RedisError, where: str) -> PagefileError:
    """The typed error for an answer that is an error; nothing was stored."""
    text = str(error)
    word = text.split(" ", 1)[0].upper()
    if isinstance(error, BusyLoadingError):
        return Unavailable(f"{where} {_BEFORE_ANYTHING['LOADING'][0]}", "wait, then retry")
    if isinstance(error, AuthenticationError) or word in ("NOAUTH", "WRONGPASS"):
        return Forbidden(f"{where} refuses the credentials", "give user and password in the URL")
    if word == "NOPERM" or type(error).__name__ == "NoPermissionError":
        return Forbidden(f"{where} forbids a command ({text})", "extend the user's ACL")
    if word == "OOM" or "used memory > 'maxmemory'" in text:
        return Unavailable(
            f"the memory of {where} is full (maxmemory)",
            "nothing of the batch is stored; erase or prune something, or give it more, then retry",
        )
    if isinstance(error, MovedError):
        return Unsupported(
            f"{where} is one of several shards of a cluster",
            "leave cluster=0 out of the URL, or let a proxy that routes by key stand before them",
        )
    if isinstance(error, AskError):
        return Unavailable(f"{where} {_BEFORE_ANYTHING['TRYAGAIN'][0]}", "retry")
    if word == "WRONGTYPE":
        return Corrupt(f"keys of {where} were changed by others", "stop writing and restore a copy")
    for known, (fact, next_step) in _BEFORE_ANYTHING.items():
        # The client replaces some first words by a class of its own.
        if word == known or type(error).__name__.upper().startswith(known):
            return Unavailable(f"{where} {fact}", next_step)
    return Unavailable(f"{where} answered: {text[:200]}", "look at the server, then retry")


#: Answers all the same, though the client counts them among broken connections.
ANSWERS = (AuthenticationError, BusyLoadingError)


def lost(error: Exception, where: str, *, committing: bool = False) -> PagefileError:
    """The typed error for an answer that did not come."""
    if isinstance(error, ANSWERS):
        return refused(error, where)
    what = type(error).__name__
    cause = error.__context__ if error.__cause__ is None else error.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        what = cause.strerror
    if committing:
        return Unavailable(f"{where} was lost in mid-commit ({what})", _AGAIN, outcome="unknown")
    if isinstance(cause, ssl.SSLError):
        return _unsafe(cause, where)
    if isinstance(cause, TimeoutError) and "handshake" in str(cause):
        return Unavailable(
            f"{where} does not answer to TLS", "write redis:// if it speaks none, then retry"
        )
    return Unavailable(
        f"{where} cannot be reached ({what})", "start it or check the URL, then retry"
    )


def _unsafe(error: ssl.SSLError, where: str) -> PagefileError:
    """No connection, for one side does not trust the other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Forbidden(
            f"the certificate of {where} is not to be trusted ({error.verify_message})",
            "give the file of its authority as ssl_ca_certs, and the host as the certificate does",
        )
    reason = str(error.reason or "").replace("_", " ").lower()
    if "alert" in reason:
        return Forbidden(
            f"{where} refuses this client ({reason})",
            "give ssl_certfile and ssl_keyfile of a client that it trusts",
        )
    return Unavailable(
        f"{where} broke off the TLS handshake ({reason or 'no reason given'})",
        "if it asks clients for certificates, give ssl_certfile and ssl_keyfile; look at its log",
    )

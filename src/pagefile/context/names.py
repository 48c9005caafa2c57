"""Where the context keeps its things in a store: one prefix for each kind."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import Naming

#: Logs, one per thread.
THREADS = "thread/"
#: Documents, one per thread that stands on a call path.
PATHS = "path/"
#: Documents, one per usage text of a user, and of nobody; see `usage_document`.
USAGE = "usage/"
#: Documents, one per thread that was used without being written to.
USES = "use/"
#: The log of conversations that were ended for being idle.
EXPIRIES = "context/expiries"
#: The document that says up to which position idle conversations were looked for.
SWEPT = "context/swept"
#: The log of what left residency, and why.
EVICTIONS = "context/evictions"

#: What a store takes as a name unless its limits say otherwise.
_NAME_BYTES = 512
_NAMES_REMEMBERED = 16_384


def log_of(thread_id: str) -> str:
    """The log that holds a thread's slots."""
    # A subclass of str could change under our hands, and what is no text cannot be looked up.
    if type(thread_id) is not str or not thread_id:
        raise Invalid("thread_id", f"{shown(thread_id)} is no thread id", "give a non-empty str")
    return _log_of(thread_id)


def usage_document(digest: str, user_id: str | None) -> str:
    """Where a usage text of a user's slots is: with the user, so that it goes with them."""
    if user_id is None:
        return USAGE + digest
    owner = sha256(user_id.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"{USAGE}{owner}/{digest}"


def require_name(field: str, name: object) -> None:
    """Refuse what would be unreadable, unbounded or ambiguous as the name of somebody."""
    if type(name) is not str:
        raise Invalid(field, f"{shown(name)} is no name", "give a non-empty str")
    _check_name(field, name)


def require_text(field: str, text: object) -> None:
    """Refuse what is no text, or text that cannot be stored; any length will do here."""
    if type(text) is not str:
        raise Invalid(field, f"{shown(text)} is no text", "give a str")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Invalid(field, "the text holds a lone surrogate", "replace it") from None


@lru_cache(_NAMES_REMEMBERED)
def _log_of(thread_id: str) -> str:
    Naming(_NAME_BYTES - len(THREADS)).check_text("thread_id", thread_id)
    return THREADS + thread_id


@lru_cache(_NAMES_REMEMBERED)
def _check_name(field: str, name: str) -> None:
    Naming(_NAME_BYTES).check_text(field, name)

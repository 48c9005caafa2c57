"""Where the context keeps its things in a store: one prefix for each kind."""

from __future__ import annotations

from pagefile.errors import Invalid

#: Logs, one per thread.
THREADS = "thread/"
#: Documents, one per thread that stands on a call path.
PATHS = "path/"
#: Documents, one per usage text, named by its digest.
USAGE = "usage/"
#: The log of what left residency, and why.
EVICTIONS = "context/evictions"


def log_of(thread_id: str) -> str:
    """The log that holds a thread's slots."""
    if type(thread_id) is not str or not thread_id:
        raise Invalid("thread_id", f"{thread_id!r:.60} is no thread id", "give a non-empty str")
    return THREADS + thread_id

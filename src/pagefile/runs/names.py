"""Where runs keep their things in a store, and what may name a run."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from pagefile.errors import Invalid, shown
from pagefile.memory.items import run_events
from pagefile.store import clock

#: Documents and logs that memory writes into, too: working sets, and events of runs.
RUNS, LEDGERS = run_events.RUNS, run_events.LEDGERS
#: Logs: what left a working set to respect its budget.
EVICTED = "evicted/"
#: Documents: the milestones of each run.
EPISODES = "episode/"
#: Documents: which long-term items came with a run that was restored from a pack.
BROUGHT = "brought/"

#: Kinds of versions of a run's document. While a run is being restored its last one is not
#: a working set yet, so nobody takes it for a run; a gone one only keeps the numbers right.
WORKING_SET = "working_set"
RESTORING = "restoring"
GONE = "gone"

#: What the id of a run, a task, a milestone is made of.
ID = "[A-Za-z0-9_-]{1,64}"
_ID = re.compile(ID)


def is_id(value: object) -> bool:
    """Whether it is safe in any name, path or address."""
    return type(value) is str and _ID.fullmatch(value) is not None


def require_id(field: str, value: object) -> str:
    """An id, as `is_id` knows one."""
    if type(value) is not str or not is_id(value):
        raise Invalid(
            field,
            f"{shown(value)} is no id",
            "use 1 to 64 letters, digits, '_' and '-'",
        )
    return value


def path_from(path: object) -> Path | None:
    """A path that the system can be asked about; None for what is none, or too long for one."""
    told = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(told, str) or "\x00" in told:
        return None
    try:
        os.stat(told)
    except UnicodeEncodeError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
    return Path(told)


def made_id(prefix: str) -> str:
    """A new id: the prefix and 32 hexadecimal digits."""
    return f"{prefix}_{clock.uuid4().hex}"


def episode_name(run_id: str, episode_id: str) -> str:
    """The document of one milestone."""
    return f"{EPISODES}{run_id}/{episode_id}"

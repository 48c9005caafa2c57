"""Processes for tests of copying: writers that never stop, and a copy to be killed."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.context import ForkServerContext

from pagefile.handle import Admin, Options
from pagefile.store.batch import Append, Batch, Put, Selector

_ERASE_EVERY = 10
#: Many writers leave something of the machine to the copy.
_PAUSE_SECONDS = 0.1


def _opened(url: str) -> Admin:
    """It is processes that are killed here: on files, syncs would take most of the time."""
    return Admin(url, options=None if "://" in url else Options(durability="process"))


def ready_processes() -> ForkServerContext:
    """Where processes start within milliseconds: everything is imported before they do."""
    context = multiprocessing.get_context("forkserver")
    engines = ["pagefile.engines.memory"]
    engines += [f"pagefile.engines.{name}.engine" for name in ("sqlite", "postgres", "redis")]
    context.set_forkserver_preload([__name__, "pagefile.store.log.copy", *engines])
    return context


def write_without_end(url: str, tenant: str, name: str, told: str) -> None:
    """Commit, and write down each position that was acknowledged; erase now and then."""
    output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with _opened(url) as admin:
        store, number = admin.open(tenant).store, 0
        while True:
            operations = [Append("a", [name, number], user=name), Append(f"own {name}", number)]
            commit = store.commit(Batch([*operations, Put(f"last {name}", number, user=name)]))
            # One system call per line: what a killed process wrote is there, or is not.
            os.write(output, b"%d\n" % commit.position)
            number += 1
            if number % _ERASE_EVERY == 0:
                store.erase(Selector(user=name, log="a", last=number), scrub=False)
            time.sleep(_PAUSE_SECONDS)


def copy_until_killed(source: str, target: str, tenant: str) -> None:
    """Copy, and follow what is written meanwhile."""
    with _opened(source) as original, _opened(target) as copy:
        original.copy_to(copy, tenant, follow_seconds=600)

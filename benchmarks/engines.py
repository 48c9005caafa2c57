"""What the engines for more than one machine cost, next to their bare clients.

    python benchmarks/engines.py [--json] [--quick] [--only NAME] [--folder PATH]

The servers are started by this script, with their default settings, on the
disk of the folder. Every figure is a median over rounds that take turns with
the peer's, in this run.
"""

from __future__ import annotations

from _manager_cases import CASES as MANAGER
from _postgres_cases import CASES as POSTGRES
from _redis_cases import CASES as REDIS
from _run import Suite, run

SUITE = Suite(
    title="Pagefile engine benchmarks",
    about="What the engines cost, next to their bare clients.",
    cases={**POSTGRES, **REDIS, **MANAGER},
    together=True,
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))

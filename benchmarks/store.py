"""What the store costs, next to the least that could be done instead.

    python benchmarks/store.py [--json] [--quick] [--only NAME] [--folder PATH]

Every figure is a median over rounds that take turns with the peer's, in this
run. Targets are printed with whether this run met them, and never asserted:
on a busy machine a durable commit measures the scheduler.
"""

from __future__ import annotations

from _durable import crowd, one_writer
from _growth import length, spread_out, tail
from _in_memory import memory
from _run import Suite, run
from _startup import startup

SUITE = Suite(
    title="Pagefile store benchmarks",
    about="What the store costs, next to bare peers.",
    cases={
        "writer": one_writer,
        "crowd": crowd,
        "memory": memory,
        "length": length,
        "spread": spread_out,
        "tail": tail,
        "import": startup,
    },
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))

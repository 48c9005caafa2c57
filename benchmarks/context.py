"""What the context buffer costs, next to what agents keep their messages in today.

    python benchmarks/context.py [--json] [--quick] [--only NAME] [--folder PATH]

The peers are lists and locks in memory, OpenAI Agents' SQLiteSession and
LangGraph's SqliteSaver. The last two are measured when they are installed:

    pip install --constraint constraints.txt --editable '.[bench]'

They run at the durability that their row states, which `_context_peers.py`
sets and reads back. Every figure is a median over rounds that take turns, in
this run. Targets are printed with whether this run met them, never asserted.
"""

from __future__ import annotations

from _context_peers import notes
from _context_reads import by_type, fork, full, tail
from _context_writes import append, crowd, memory, threads
from _run import Suite, run

SUITE = Suite(
    title="Pagefile context benchmarks",
    about="What the context buffer costs, next to what agents use today.",
    cases={
        "append": append,
        "crowd": crowd,
        "memory": memory,
        "threads": threads,
        "full": full,
        "by_type": by_type,
        "tail": tail,
        "fork": fork,
    },
    notes=notes(),
    together=True,
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))

"""What `import pagefile` adds to the start of an interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

from _measure import Subject, measure, spread
from _row import Row, Target
from _workplace import Workplace

_BARE = "python -c pass"
_IMPORT = "python -c 'import pagefile'"


def startup(place: Workplace) -> list[Row]:
    """Fresh interpreters, with and without the import."""
    rounds = place.rounds(32)
    environment = _with_bytecode(place)
    place.announce("import", rounds)

    def run(code: str) -> int:
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        return 1

    run("import pagefile")
    timings = measure(
        [Subject(_BARE, lambda: run("pass")), Subject(_IMPORT, lambda: run("import pagefile"))],
        rounds,
        place.advance,
    )
    bare, full = timings[_BARE], timings[_IMPORT]
    added_ms = spread([(w - b) * 1000 for w, b in zip(full.wall, bare.wall, strict=True)])
    return [
        Row("import", _BARE, bare),
        Row("import", _IMPORT, full, "ms over the bare interpreter", added_ms, Target(high=100)),
    ]


def _with_bytecode(place: Workplace) -> dict[str, str]:
    """An installed package is compiled once; a clone where that is switched off is not."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return environment | {"PYTHONPYCACHEPREFIX": str(place.new_path())}

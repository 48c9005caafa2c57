"""What `import pagefile` adds to the start of an interpreter."""

from __future__ import annotations

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
    place.announce("import", rounds)
    timings = measure(
        [Subject(_BARE, lambda: _run("pass")), Subject(_IMPORT, lambda: _run("import pagefile"))],
        rounds,
        place.advance,
    )
    bare, full = timings[_BARE], timings[_IMPORT]
    added_ms = spread([(w - b) * 1000 for w, b in zip(full.wall, bare.wall, strict=True)])
    return [
        Row("import", _BARE, bare),
        Row("import", _IMPORT, full, "ms over the bare interpreter", added_ms, Target(high=100)),
    ]


def _run(code: str) -> int:
    subprocess.run([sys.executable, "-c", code], check=True)
    return 1

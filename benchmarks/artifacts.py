"""What checking a working set costs, next to jsonschema on the published file.

    python benchmarks/artifacts.py [--json] [--quick] [--only NAME]

Every figure is a median over rounds that take turns with the peers', in this
run. Targets are printed with whether this run met them, and never asserted.
"""

from __future__ import annotations

from importlib.metadata import version

from _artifact_checks import empty, full
from _run import Suite, run

SUITE = Suite(
    title="Pagefile artifact benchmarks",
    about="What checking a working set costs, next to jsonschema.",
    cases={"empty": empty, "full": full},
    notes=[f"jsonschema {version('jsonschema')}"],
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))

"""`python -m pagefile` is `pagefile`."""

from __future__ import annotations

from pagefile.surfaces.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

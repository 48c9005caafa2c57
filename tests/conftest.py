"""Property tests are seeded, so that a run can be repeated; `make soak` lets them roam."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("seeded", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None)
settings.load_profile("soak" if os.environ.get("PAGEFILE_SOAK") == "1" else "seeded")

"""Property tests are seeded, so that a run can be repeated; `make soak` lets them roam."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# What is shipped tells as much when it fails as what stands here.
pytest.register_assert_rewrite("pagefile.testing")

settings.register_profile("seeded", derandomize=True, deadline=None)
settings.register_profile("soak", deadline=None)
settings.load_profile("soak" if os.environ.get("PAGEFILE_SOAK") == "1" else "seeded")

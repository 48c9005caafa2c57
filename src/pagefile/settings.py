"""The only reader of the environment."""

from __future__ import annotations

import os
from typing import Self

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """What the environment says, or the defaults."""

    url: str = "pagefile.db"
    tenant: str = "default"

    @classmethod
    def from_environment(cls) -> Self:
        """Read PAGEFILE_URL and PAGEFILE_TENANT, now."""
        return cls(
            url=os.environ.get("PAGEFILE_URL", "pagefile.db"),
            tenant=os.environ.get("PAGEFILE_TENANT", "default"),
        )

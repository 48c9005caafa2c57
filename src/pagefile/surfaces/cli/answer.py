"""What a command gives back: values for programs, and how people see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pagefile.surfaces.cli.screen import Screen


class Answer(msgspec.Struct, frozen=True):
    """The outcome of one command.

    `data` is plain values or structs, for `--json`; `show` prints it for people.
    `status` is not 0 when the command ran and found something wrong.
    """

    data: Any
    show: Callable[[Screen], None]
    count: int | None = None
    status: int = 0

    @property
    def counted(self) -> int:
        """How many things `data` holds."""
        if self.count is not None:
            return self.count
        return len(self.data) if isinstance(self.data, (list, tuple)) else 1

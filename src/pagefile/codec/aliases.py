"""Names in data of classes that have moved. A stored name never changes; a module's name may."""

from __future__ import annotations

from typing import Final

#: The name that a class of this package is stored under, and where the class is now.
MOVED: Final[dict[str, str]] = {}

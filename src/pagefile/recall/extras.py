"""Packages that come with an extra, imported when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from pagefile.errors import Unavailable


def required(name: str, extra: str) -> Any:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name} is not installed", f"pip install 'pagefile[{extra}]'") from error


def optional(name: str) -> Any | None:
    """The module, or None where there is another way."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None

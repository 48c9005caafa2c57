"""Word lists as they are read best: running text."""

from __future__ import annotations


def listed(text: str) -> list[str]:
    """The words of a text, in order."""
    return text.split()

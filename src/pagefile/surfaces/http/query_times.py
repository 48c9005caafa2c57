"""Moments in queries: RFC 3339, with an offset."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query

from pagefile.errors import Invalid, shown
from pagefile.runs.schema.timestamps import RULE, is_moment

Moment = Annotated[
    str | None,
    Query(max_length=64, description="A moment, such as 2026-01-31T09:30:00Z."),
]


def moment_of(field: str, text: str | None) -> datetime | None:
    """The moment that a text names.

    Raises:
        Invalid: it names none, or not which one.
    """
    if text is None:
        return None
    if not is_moment(text):
        raise Invalid(field, shown(text), RULE)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:  # A leap second is a moment, and Python has none.
        raise Invalid(field, f"{shown(text)} cannot be counted", RULE) from error

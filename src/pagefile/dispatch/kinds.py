"""What dispatch stores under which name."""

from __future__ import annotations

from pagefile.dispatch.listener import (
    BELL,
    CONVERSATIONS,
    DEAD,
    JOURNALS,
    STATES,
    TAKEN,
    WORKERS,
)
from pagefile.store.kinds import Kind

KINDS = (
    Kind(CONVERSATIONS, "who works on a conversation"),
    Kind(JOURNALS, "what was sent, done and answered in a conversation", "log"),
    Kind(STATES, "what a handler put through its handle", typed=True),
    Kind(TAKEN, "that a message id of the caller's was used"),
    Kind(DEAD, "a message that was given up"),
    Kind(
        WORKERS,
        "a process that is alive, and how it is doing",
        owner="tenant",
        exported=False,
    ),
    Kind(
        BELL,
        "that work was left for others",
        "log",
        owner="tenant",
        form="",
        exported=False,
    ),
)

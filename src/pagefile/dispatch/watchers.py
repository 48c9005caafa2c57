"""Watchers: "tell me when a payload of this type has come to my thread"."""

from __future__ import annotations

from typing import Any

from pagefile.context.slot import payload_type_of
from pagefile.dispatch.activation import Activation, Watcher
from pagefile.dispatch.effects import CloseEffect, WatchEffect
from pagefile.dispatch.hop import Hop


def watch(hop: Hop, effect: WatchEffect) -> None:
    """Begin to watch; it ends with the activation at the latest."""
    watcher = Watcher(effect.id, effect.wait_for, effect.from_listener, effect.description)
    if hop.act.watchers is None:
        hop.act.watchers = {}
    hop.act.watchers[effect.id] = watcher
    hop.watches.append(["+", effect.id, effect.wait_for, effect.from_listener, effect.description])


def close(hop: Hop, effect: CloseEffect) -> bool:
    """Close a watcher; whether it had been raised."""
    watcher = (hop.act.watchers or {}).pop(effect.id, None)
    hop.watches.append(["-", effect.id])
    return watcher is not None and watcher.raised


def raise_matching(hop: Hop, act: Activation, payload: Any, sender: str) -> None:
    """A message comes to a thread: raise those who waited for it."""
    kind = payload_type_of(payload)
    for watcher in (act.watchers or {}).values():
        if not watcher.raised and watcher.matches(kind, sender):
            watcher.raised = True
            hop.watches.append(["!", act.thread, watcher.id])

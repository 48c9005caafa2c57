"""What an agent is told about those it may call."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pagefile.dispatch.listener import Listener, Listeners

_RULE = (
    "Responding ends this activation: whatever the listeners that you called "
    "have not answered by then is lost."
)


def usage_of(listener: Listener, listeners: Listeners) -> str:
    """Who it is, whom it may call and with what."""
    lines = [f"{listener.prompt}\n"] if listener.prompt else []
    lines.append(f"You are {listener.name}.")
    if listener.description:
        lines.append(listener.description)
    for name in sorted(listener.peers):
        peer = listeners.get(name)
        if peer is None:
            continue
        lines.append(f"\n{peer.name}: {peer.description}" if peer.description else f"\n{peer.name}")
        lines += [f"  {cls.__name__}: {_schema(cls)}" for cls in peer.payload]
    lines.append(f"\n{_RULE}")
    return "\n".join(lines)


def _schema(cls: type) -> str:
    make: Any = getattr(cls, "model_json_schema", None)
    try:
        schema = make() if make is not None else msgspec.json.schema(cls)
    except TypeError:  # Fields that have no schema; the name has to do.
        return "{}"
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))

"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

import msgspec

from pagefile.client.shapes import shared


class Edge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact as an edge between two nodes, which go by their canonical names."""

    subject: str
    predicate: str
    object: str
    fact: shared.Fact


class Neighborhood(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Edges at one node, recorded last first. `cut` says what was left out, and why."""

    edges: tuple[Edge, ...]
    cut: tuple[str, ...] = ()


class Path(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Edges one after the other; "in" is one that is walked against its direction."""

    edges: tuple[Edge, ...]
    directions: tuple[str, ...] = ()


class Walk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Paths, the shortest first, then those with the newest fact."""

    paths: tuple[Path, ...]
    cut: tuple[str, ...] = ()

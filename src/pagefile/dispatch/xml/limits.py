"""How large a document may be, and what lxml is found by."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.errors import LimitExceeded, Unsupported
from pagefile.store.arguments import require_count


class XmlLimits(msgspec.Struct, frozen=True):
    """Bounds on a document that is read or written; one byte or level more is refused."""

    most_bytes: int = 1_000_000
    most_depth: int = 64
    most_elements: int = 50_000
    most_attribute: int = 10_000


def require_xml_limits(limits: XmlLimits) -> XmlLimits:
    """The limits, if they make sense."""
    # Above this, libxml2 has limits of its own, which it reports less clearly.
    require_count(limits.most_bytes, "most_bytes", least=1, most=10_000_000)
    require_count(limits.most_depth, "most_depth", least=3, most=200)
    require_count(limits.most_elements, "most_elements", least=1)
    require_count(limits.most_attribute, "most_attribute", least=1)
    return limits


def lxml_etree() -> Any:
    """The library, which is installed with an extra.

    Raises:
        Unsupported: it is not installed.
    """
    try:
        from lxml import etree
    except ModuleNotFoundError as error:
        raise Unsupported("lxml is not installed", "pip install 'pagefile[xml]'") from error
    return etree


def too_deep(depth: int, most: int) -> LimitExceeded:
    """What a document that is nested too deep is refused with."""
    return LimitExceeded(
        "the depth of a document", limit=most, wanted=depth, next_step="send something flatter"
    )


def too_many(count: int, most: int) -> LimitExceeded:
    """What a document of too many elements is refused with."""
    return LimitExceeded(
        "a document's number of elements", limit=most, wanted=count, next_step="send less"
    )

"""What an erasure is told to select: refused when it says too much, or two things at once."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.errors import Invalid
from pagefile.store.arguments import Naming, require_count, require_flag, require_type
from pagefile.store.batch import Selector

#: How many selections one erasure unites; each is looked up by itself.
MOST_SELECTORS = 100_000


def require_selectors(selectors: Sequence[Selector], naming: Naming) -> None:
    """Refuse selectors that are too many, or unclear."""
    if len(selectors) > MOST_SELECTORS:
        raise Invalid(
            "selector", f"there are {len(selectors)}", f"give at most {MOST_SELECTORS} of them"
        )
    for selector in selectors:
        _require_selector(selector, naming)


def _require_selector(selector: Selector, naming: Naming) -> None:
    require_type("selector", selector, Selector)
    require_flag("selector.anonymous", selector.anonymous)
    named = (selector.log, selector.document)
    if selector.user is None and not selector.anonymous and named == (None, None):
        raise Invalid(
            "selector",
            "selects everything",
            "name a user, anonymous=True, a log or a document",
        )
    if selector.user is not None and selector.anonymous:
        raise Invalid("selector", "names a user and nobody", "choose one of the two")
    if None not in named:
        raise Invalid("selector", "names a log and a document", "erase one, then the other")
    bounds = (selector.first, selector.last, selector.numbers)
    if named == (None, None) and bounds != (None, None, None):
        raise Invalid("selector", "bounds numbers of no stream", "name a log or a document")
    naming.check_user(selector.user)
    for field, text in zip(("log", "document"), named, strict=True):
        if text is not None:
            naming.check_text(field, text)
    for field in ("first", "last", "before_us"):
        if (number := getattr(selector, field)) is not None:
            require_count(number, f"selector.{field}")
    if selector.numbers is not None:
        require_type("selector.numbers", selector.numbers, frozenset)
        for number in selector.numbers:
            require_count(number, "selector.numbers")
    require_type("selector.sparing", selector.sparing, frozenset)
    for name in selector.sparing:
        naming.check_text("selector.sparing", name)

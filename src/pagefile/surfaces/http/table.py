"""Every operation that is served over HTTP, and what a path says of the one that is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, cached_property

from pagefile import operations
from pagefile.operations import Operation
from pagefile.surfaces.http import earlier, status

_NAME = re.compile(r"\{\w+\}")


@cache
def served() -> tuple[Operation, ...]:
    """Every operation that is served over HTTP."""
    every = (*operations.table(), *operations.rows(earlier, status))
    return tuple(each for each in every if each.http is not None)


class Paths:
    """The paths of some operations, to be asked whether a request is for one of them."""

    def __init__(self, wanted: Callable[[Operation], bool]) -> None:
        self._wanted = wanted

    def __contains__(self, path: str) -> bool:
        whole, ends, pattern = self._known
        # The end first: most paths have another, and a pattern costs more than that.
        return path in whole or (path.endswith(ends) and pattern.fullmatch(path) is not None)

    @cached_property
    def _known(self) -> tuple[frozenset[str], tuple[str, ...], re.Pattern[str]]:
        paths = [each.http.path for each in served() if each.http and self._wanted(each)]
        named = [path for path in paths if "{" in path]
        ends = {path.rpartition("}")[2] for path in named}
        pattern = "|".join(_NAME.sub("[^/]+", path) for path in named)
        return frozenset(paths) - {*named}, tuple(ends), re.compile(pattern or "(?!)")


def _is_asked(operation: Operation) -> bool:
    assert operation.http is not None
    return operation.http.method != "GET"


#: What is sent with POST because a question can be long; it needs no more than "read".
ASKING = Paths(lambda each: _is_asked(each) and (each.right == "read" or not each.changes))
#: What changes nothing, whatever is sent: no repeat of it has to be known.
UNCHANGING = Paths(lambda each: _is_asked(each) and not each.changes)
#: What knows repeats itself, in the store.
EXACT = Paths(lambda each: each.is_exact)
#: Bodies that are files.
UPLOADS = Paths(lambda each: bool(each.upload))

"""What can be asked from outside, declared once.

An operation is one row, bound to a method of the library and its docstring:

    search = operation(
        Memory.search,
        http=post("/v1/search", "recall"),
        right="read",
        takes="SearchQuestion: What to find among everything.",
        gives=Matches,
        span="search_memory",
    )

What is not written in the row follows from the signature (`Operation.bound`): where
the method hangs on a handle, the place, name, type, default and description of each
parameter, the shapes of body and answer, and the call itself. The HTTP routes, the
OpenAPI document, rights, keys of repeats and spans are made from the rows.

Where a method is not enough, the row is a decorator and the function answers: its own
signature says what travels then, and the method, if one is named, is what it stands
for in the library.

    @operation(Memory.remember, http=post("/v1/episodes", "episodes", 201), gives=Remembered)
    async def remember(caller: Caller, body: NewEpisode) -> str: ...

For who calls the other way, from a program to a server, `each` of `table()` has:

    each.bound.place, each.method   the object on a handle ("memory.facts"; "run" and "run.ledger"
                                    are of `runs.open(run_id)`), and its method
    each.http                       method, path, status; `names` are the parameters in the path
    each.bound.parameters           `name` in the library and `wire` where it travels, the `place`
                                    (path, query, body), `shape`, `default`; `is_time` is a moment
                                    as text. Parameters of one name are the parts of a tuple
                                    (`spread`). `actor`, `writer_id`, `reviewer` are never sent
    each.bound.body, .answer        shapes of the bodies; `wrapped_in` names the field of the answer
                                    that holds the value (a field `ok` holds nothing)
    each.bound.returns              the value's type in the library, where `each.own` is None
    each.page                       not None: `after` of the library travels as `cursor_of(after)`
    each.guard                      the parameter that may travel as `If-Match: "7"`
    each.changes                    send an `Idempotency-Key`; else it may be repeated freely
    each.upload, each.gives_file    media types of bodies that are files; `resumes` is a stream
    each.own                        not None: the function that answers, with its own parameters

A refusal is problem+json whose fields are those of the error (`surfaces/http/problems.py`):
`code` names the class of `pagefile.errors`, and what it carries stands beside it.

Read in this order:

operation    the row and its columns
binder       what follows from a signature
caller       who asks, and whose data may be touched
answer       what is answered: values, pages, streams, files
glossary     what names mean, for descriptions
memory, facts …
             the rows, noun by noun

Nothing here is imported by `import pagefile`; `table()` imports the rooms.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from pagefile.operations.answer import Answer
from pagefile.operations.caller import Caller
from pagefile.operations.operation import Operation, operation

__all__ = ["Answer", "Caller", "Operation", "operation", "rows", "table"]

_NOUNS = (
    "memory",
    "facts",
    "items",
    "prompts",
    "threads",
    "runs",
    "packs",
    "privacy",
    "store",
)


@cache
def table() -> tuple[Operation, ...]:
    """Every operation, in the order of the modules; imports the rooms they are about."""
    return rows(*(importlib.import_module(f"{__name__}.{noun}") for noun in _NOUNS))


def rows(*modules: ModuleType) -> tuple[Operation, ...]:
    """The operations of some modules, each with the name that it has there."""
    found = []
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, Operation):
                value.name = name
                found.append(value)
    return tuple(found)

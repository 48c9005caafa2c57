"""The form of a row: what an operation is called, who may ask for it, and how it travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

if TYPE_CHECKING:
    from pagefile.operations.binder import Bound

Right = Literal["read", "write", "admin"]
#: What changes nothing by its method alone.
_ASKING = frozenset({"GET", "HEAD"})


class Http(msgspec.Struct, frozen=True):
    """Where an operation is found over HTTP."""

    method: str
    path: str
    #: The chapter of the document it stands in.
    tag: str
    #: The status of its answer.
    status: int = 200

    @property
    def names(self) -> frozenset[str]:
        """The parameters that stand in the path."""
        parts = self.path.split("{")[1:]
        return frozenset(part.partition("}")[0] for part in parts)


def get(path: str, tag: str) -> Http:
    return Http("GET", path, tag)


def post(path: str, tag: str, status: int = 200) -> Http:
    return Http("POST", path, tag, status)


def put(path: str, tag: str) -> Http:
    return Http("PUT", path, tag)


def patch(path: str, tag: str) -> Http:
    return Http("PATCH", path, tag)


def delete(path: str, tag: str) -> Http:
    return Http("DELETE", path, tag)


class Operation:
    """One row of the table; see `operation` for its columns."""

    #: What it is called, in the document too: the name it has in its module.
    name = ""

    def __init__(self, method: Callable[..., Any] | None, columns: Mapping[str, Any]) -> None:
        #: The method of the library that it is; None where it is a server's own.
        self.method = method
        #: The function that answers in place of the method.
        self.own: Callable[..., Any] | None = None
        self.http: Http | None = columns["http"]
        self.right: Right = columns["right"]
        self.whole_tenant: bool = columns["whole_tenant"]
        #: Whether it needs no key. Its function is given the server in place of a caller.
        self.is_public: bool = columns["is_public"]
        #: Whether it changes anything; a repeat of one that does is known by its key.
        self.changes: bool = columns["changes"]
        self.takes: str = columns["takes"]
        self.may_be_empty: bool = columns["may_be_empty"]
        self.upload: str = columns["upload"]
        self.gives: Any = columns["gives"]
        self.gives_file: str = columns["gives_file"]
        self.says: str = columns["says"]
        self.refuses: tuple[int, ...] = columns["refuses"]
        self.wire: Mapping[str, Any] = columns["wire"] or {}
        self.without: tuple[str, ...] = columns["without"]
        self.spread: Mapping[str, tuple[str, ...]] = columns["spread"] or {}
        #: The field of an item that the next page begins behind; "" the item, None no pages.
        self.page: str | None = columns["page"]
        self.guard: str = columns["guard"]
        self.etag: str = columns["etag"]
        self.knows: bool = columns["knows"]
        self.is_exact: bool = columns["is_exact"]
        self.resumes: bool = columns["resumes"]
        self.span: str = columns["span"]

    def __call__(self, function: Callable[..., Any]) -> Self:
        """Answer by this function, as a decorator; its name is the operation's."""
        self.own = function
        return self

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    @property
    def classes(self) -> list[type]:
        """The classes whose method it is: the one of the library, and the one that is awaited."""
        from pagefile.operations.binder import classes_of

        return [] if self.method is None else classes_of(self.method)

    @cached_property
    def bound(self) -> Bound:
        """What follows from the signature, worked out when it is first asked for."""
        from pagefile.operations.binder import bind

        return bind(self)


def operation(
    method: Callable[..., Any] | None = None,
    *,
    http: Http | None = None,
    right: Right | None = None,
    whole_tenant: bool = False,
    is_public: bool = False,
    changes: bool | None = None,
    takes: str = "",
    may_be_empty: bool = False,
    upload: str = "",
    gives: Any = None,
    gives_file: str = "",
    says: str = "Done.",
    refuses: tuple[int, ...] = (),
    wire: Mapping[str, Any] | None = None,
    without: tuple[str, ...] = (),
    spread: Mapping[str, tuple[str, ...]] | None = None,
    page: str | None = None,
    guard: str = "",
    etag: str = "",
    knows: bool = False,
    is_exact: bool = False,
    resumes: bool = False,
    span: str = "",
) -> Operation:
    """A row of the table: a method of the library and how it is asked for from outside.

    Who may ask: `right` is what a key needs, "read" for GET and "write" else if left
    out; `whole_tenant` refuses keys that are bound to one user, and `is_public` needs no
    key: its function is given the server. What is not a GET and needs more than "read"
    `changes` something, unless it says otherwise.

    What is sent: `takes` is the name of the body, a colon, and what it is; the body
    itself follows from the signature. `may_be_empty` bodies can be left out. `wire`
    replaces the types of parameters where they travel, `without` leaves parameters
    out, and `spread` sends the parts of a tuple as parameters of their own. `upload`
    is the media type of a body that is a file.

    What is answered: `gives` is its shape where that is not what the method returns:
    then the value is the first field of it. `gives_file` is a media type, `says` a
    word about the answer, and `refuses` statuses that do not follow from the rest.

    Flags: a `page` begins behind `after`, and the next one behind that field of the
    last item ("" is the item itself). `guard` is the parameter that `If-Match` stands
    for, `etag` the field of the answer that is its version; one that `knows` is answered
    with 304 to a caller who has that version. What `is_exact` knows repeats by their key
    itself, in the store. What `resumes` goes on behind `Last-Event-ID`. `span` is the
    name of its span.
    """
    columns = dict(locals())
    del columns["method"]
    is_asking = http is not None and http.method in _ASKING
    if right is None:
        columns["right"] = "read" if is_asking else "write"
    if changes is None:
        columns["changes"] = not is_asking and right != "read"
    return Operation(method, columns)

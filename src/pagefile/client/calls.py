"""A method of the library as a request: made from its row of the operations table.

A `Room` is the remote side of one class of the library: its public methods are talks,
written here where the row says all, and in `rooms.py` where it does not. `faced` makes
two classes of a room, one that blocks and one that is awaited. What no row offers is
there too, and says `Unsupported` when it is called.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args, get_origin

import msgspec

from pagefile.client.request import Ask, asked, place
from pagefile.client.transport import AsyncLink, Exchange, Link, Talk
from pagefile.errors import Invalid, Unsupported, shown
from pagefile.operations import table
from pagefile.operations.answer import cursor_of
from pagefile.operations.binder import FILLED, Parameter
from pagefile.operations.operation import Operation
from pagefile.store.codec.decoder import convert

Item = TypeVar("Item")
#: None that is said, where leaving it out would be something else.
_NULL = object()
#: How many a server gives at once.
MOST_PER_PAGE = 1_000


class Listing(msgspec.Struct, Generic[Item], kw_only=True):
    """Part of a listing, as it travels."""

    items: list[Item]
    cursor: str | None = None


@cache
def operations() -> Mapping[str, Operation]:
    """The rows by place and method ("memory.facts.query"), or by name where they have none."""
    found: dict[str, Operation] = {}
    for each in table():
        if each.http is None:
            continue
        if each.method is None:
            found[each.name] = each
        else:
            found[f"{each.bound.place}.{each.method.__name__}"] = each
    return found


class Row:
    """One operation, ready to be asked for."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._parameters = operation.bound.parameters
        self._wires = frozenset(each.wire for each in self._parameters)

    def ask(
        self,
        given: Mapping[str, Any],
        *,
        user_id: str | None = None,
        body: Any = None,
        key: str = "",
        if_match: int | None = None,
    ) -> Ask:
        """The request with those values, by the names they travel under.

        What is None is left out, so that the server's default holds; `user_id` stands
        in where no user is given. `body` is the whole of it where the row says so.
        """
        operation, http = self.operation, self.operation.http
        assert http is not None
        unknown = given.keys() - self._wires
        assert not unknown, f"{operation} has no {unknown}"
        parts: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "body": {}}
        for each in self._parameters:
            value = given.get(each.wire)
            if value is None and each.wire == "user_id":
                value = user_id
            if value is not None and value is not _NULL:
                _require_fit(each, value)
            if value is not None or each.place == "path":
                parts[each.place][each.wire] = None if value is _NULL else value
        if body is None and (parts["body"] or operation.takes):
            body = parts["body"]
        return asked(
            http.method,
            place(http.path, **parts["path"]) if parts["path"] else http.path,
            query=parts["query"],
            body=body,
            media=operation.upload,
            key=key or None,
            if_match=if_match,
            is_safe=not operation.changes,
            is_exact=operation.is_exact,
            span=operation.span if not operation.span.startswith("pagefile.") else "",
        )


def _require_fit(parameter: Parameter, value: Any) -> None:
    """Refuse what would become something else where it is written as text or JSON."""
    if parameter.is_time:
        if not isinstance(value, datetime):
            rule = "give an aware datetime"
            raise Invalid(parameter.name, f"{shown(value)} is not a datetime", rule)
        return
    try:
        convert(value, parameter.shape)
    except msgspec.ValidationError as error:
        rule = "see the method's signature"
        raise Invalid(parameter.name.rstrip("_"), str(error), rule) from None


@cache
def row(name: str) -> Row:
    """The row of that place and method, or of that name."""
    return Row(operations()[name])


class Reading(msgspec.Struct, frozen=True):
    """Where an answer is not just the value: its row, its shape, and what to take out of it."""

    row: str
    shape: Any
    take: Callable[[Any], Any]
    #: What parameters are called where they travel, where it is something else.
    wires: Mapping[str, str] = {}


class Room:
    """The remote side of one class of the library, or of one object of it."""

    #: The class whose names it has.
    library: ClassVar[type]
    #: Where the object hangs on a handle; see `operations.binder.PLACES`.
    place: ClassVar[str]
    #: Methods whose row says all but what the answer means.
    readings: ClassVar[Mapping[str, Reading]] = {}
    #: Properties of the class that an object here has as attributes.
    known: ClassVar[tuple[str, ...]] = ()

    def __init__(self, link: Link | AsyncLink, **ids: str) -> None:
        self._link: Any = link
        #: The values of the path that say which object it is: a run's id.
        self._ids = ids

    def __repr__(self) -> str:
        ids = "".join(f" {value!r}" for value in self._ids.values())
        return f"<remote {self.library.__name__}{ids} at {self._link.address.url}>"

    def _new(self, room: type[Room], **ids: Any) -> Any:
        """Another room with the same face."""
        face: Any = faced(cast(Any, room), self._link.is_awaited)
        return face(self._link, **ids)

    def _ask(
        self,
        name: str,
        given: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
        key: str = "",
        if_match: int | None = None,
    ) -> Ask:
        return row(name).ask(
            {**self._ids, **(given or {})},
            user_id=self._link.address.user_id,
            body=body,
            key=key,
            if_match=if_match,
        )

    def _user(self, user_id: str | None) -> str | None:
        """The user that a call names, else the handle's own."""
        return self._link.address.user_id if user_id is None else user_id

    def _pages(self, name: str, given: Mapping[str, Any], item: Any, limit: int) -> Talk[list[Any]]:
        """Items of a listing, up to `limit` of them, page after page."""
        found: list[Any] = []
        if limit == 0:
            return found
        given = dict(given)
        while True:
            # A number that no page may have is refused by who knows the rules.
            most = min(limit - len(found), MOST_PER_PAGE)
            page = yield Exchange(self._ask(name, {**given, "limit": most}), Listing[item])
            found += page.items
            if page.cursor is None or len(found) >= limit:
                return found
            given["cursor"] = page.cursor


@cache
def faced(room: Any, is_awaited: bool) -> Any:
    """The class of a room that blocks, or the one that is awaited."""
    wrap = _awaited if is_awaited else _blocking
    members: dict[str, Any] = {"__doc__": f"`{room.library.__name__}`, remote."}
    for name, offered in offers(room).items():
        if offered is None:
            members[name] = _refused(room, name)
        elif isinstance(offered, property):
            talk = offered.fget
            if inspect.isgeneratorfunction(talk):
                members[name] = wrap(talk) if is_awaited else property(wrap(talk))
        elif inspect.isgeneratorfunction(offered):
            members[name] = wrap(offered)
    return type(f"{'Async' * is_awaited}Remote{room.library.__name__}", (room,), members)


@cache
def offers(room: Any) -> Mapping[str, Any]:
    """The public names of the library's class, each with the talk that it is, or None."""
    found: dict[str, Any] = {}
    for name, member in inspect.getmembers(room.library):
        if name.startswith("_") or name.endswith("_async") or name in room.known:
            continue
        if not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        found[name] = _written(room, name) or _made(room, name)
    for name, member in vars(room).items():
        if not name.startswith("_") and (inspect.isfunction(member)):
            found.setdefault(name, member)
    return found


def _written(room: type[Room], name: str) -> Any:
    return next((vars(cls)[name] for cls in room.__mro__ if name in vars(cls)), None)


def _made(room: type[Room], name: str) -> Any:
    reading = room.readings.get(name)
    if reading is not None:
        return _talk_of(room, getattr(room.library, name), reading)
    operation = operations().get(f"{room.place}.{name}")
    if operation is None or not _says_all(operation):
        return None
    shape, take = _answer_of(operation)
    reading = Reading(f"{room.place}.{name}", shape, take)
    return _talk_of(room, getattr(room.library, name), reading)


def _says_all(operation: Operation) -> bool:
    """Whether what is answered is what the library returns; a body of its own says that."""
    bound = operation.bound
    if operation.own is None:
        return True
    if bound.whole_body is not None or operation.gives_file or operation.upload:
        return False
    assert operation.method is not None
    returns = _returned(operation.method)
    is_list = get_origin(returns) is list
    return returns == bound.answer or (
        is_list and "items" in getattr(bound.answer, "__struct_fields__", ())
    )


def _returned(method: Callable[..., Any]) -> Any:
    """What a method returns; only that is looked up, the rest may be for type checkers alone."""
    method = inspect.unwrap(method)
    said = method.__annotations__.get("return")
    return eval(said, vars(sys.modules[method.__module__])) if isinstance(said, str) else said


def _talk_of(room: type[Room], method: Callable[..., Any], reading: Reading) -> Callable[..., Any]:
    """The talk of a method whose row says all: what is sent, and what the answer means."""
    operation = operations()[reading.row]
    signature = inspect.signature(method)
    wires: dict[str, list[str]] = {}
    for each in operation.bound.parameters:
        wires.setdefault(each.name.rstrip("_"), []).append(each.wire)
    shape, take, guard = reading.shape, reading.take, operation.guard
    item = get_args(shape)[0] if get_origin(shape) is Listing else None
    is_paged = item is not None and "cursor" in wires and "limit" in wires
    how_many = signature.parameters.get("limit") or signature.parameters.get("top_k")

    @functools.wraps(method)
    def talk(self: Room, *args: Any, **options: Any) -> Talk[Any]:
        bound = signature.bind(self, *args, **options)
        given: dict[str, Any] = {}
        if_match: int | None = None
        for said, value in list(bound.arguments.items())[1:]:
            parts = wires.get(reading.wires.get(said, said).rstrip("_"))
            if parts is not None and len(parts) == 1:
                usual = signature.parameters[said].default
                is_said = value is None and usual not in (None, inspect.Parameter.empty)
                given[parts[0]] = _NULL if is_said else value
            elif parts is not None:
                given |= zip(parts, value or (None,) * len(parts), strict=True)
            elif said == "after" and "cursor" in wires:
                given["cursor"] = cursor_of(value) if value else None
            elif said == guard:
                if_match = value
            elif said not in FILLED and value != signature.parameters[said].default:
                raise not_offered(room, f"{method.__name__}({said}=…)")
        limit = 0 if how_many is None else bound.arguments.get(how_many.name, how_many.default)
        if item is not None and how_many is not None and limit == 0:
            return take(Listing(items=[]))
        if is_paged and how_many is not None:
            found = yield from self._pages(reading.row, given, item, limit)
            return take(Listing(items=found))
        answer = yield Exchange(self._ask(reading.row, given, if_match=if_match), shape)
        return take(answer)

    return talk


def _answer_of(operation: Operation) -> tuple[Any, Callable[[Any], Any]]:
    """The shape of an answer, and how the library's value is taken out of it."""
    bound = operation.bound
    if operation.own is None:
        field = bound.wrapped_in
        returns = bound.returns
        if not field:
            return bound.answer, _same
        if field == "ok":
            return bound.answer, _nothing
        if field == "items":
            return _listing(get_args(returns)[0]), _items
        return bound.answer, lambda answer: getattr(answer, field)
    assert operation.method is not None
    returns = _returned(operation.method)
    fields = getattr(bound.answer, "__struct_fields__", ())
    if get_origin(returns) is list and "items" in fields:
        return _listing(get_args(returns)[0]), _items
    return returns, _same


def _listing(item: Any) -> Any:
    return Listing[item]


def _same(answer: Any) -> Any:
    return answer


def _nothing(answer: Any) -> None:
    return None


def _items(answer: Any) -> Any:
    return answer.items


def not_offered(room: type[Room], what: str) -> Unsupported:
    """The error for what a server does not offer."""
    place = room.place or "pf"
    return Unsupported(
        f"{place}.{what} is not offered over HTTP",
        "open the store itself by its path or URL, beside the server or in place of it",
    )


def _refused(room: type[Room], name: str) -> Any:
    member = getattr(room.library, name)
    if isinstance(member, property):

        def look(self: Any) -> Any:
            raise not_offered(room, name)

        return property(look)

    @functools.wraps(member)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        raise not_offered(room, name)

    return call


def _blocking(talk: Callable[..., Talk[Any]]) -> Callable[..., Any]:
    @functools.wraps(talk)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self._link.run(talk(self, *args, **options))

    return method


def _awaited(talk: Callable[..., Talk[Any]]) -> Callable[..., Any]:
    @functools.wraps(talk)
    async def method(self: Any, *args: Any, **options: Any) -> Any:
        return await self._link.run(talk(self, *args, **options))

    return method

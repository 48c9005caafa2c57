"""What follows from a signature: where each parameter travels, its shape, and the call.

A parameter that the path names travels there; of GET, DELETE and uploads the others
are queries, of the rest they are fields of the body. `user_id` is always the user the
caller may speak for, and what ledgers write down about the caller is never sent. A
function of one's own may take its whole body as one parameter named `body`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from pagefile import aio
from pagefile.aio import memory as aio_memory
from pagefile.assembly.assembly import Assembly
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.context.thread import ThreadContext
from pagefile.errors import Invalid, shown
from pagefile.handle import Pagefile
from pagefile.memory.facts.graph import StoredGraph
from pagefile.memory.facts.proposal import ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.store import LongTermItems
from pagefile.memory.memory import Memory
from pagefile.operations import glossary
from pagefile.operations.answer import Answer, behind, number_in, place_in
from pagefile.operations.caller import Caller
from pagefile.operations.operation import Operation
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes
from pagefile.runs.run import Knowledge, Run
from pagefile.runs.runs import Runs
from pagefile.runs.schema.timestamps import RULE, is_moment
from pagefile.store.store import Store

Place = Literal["path", "query", "body"]
#: Text that is short, as ids and names are.
Id = Annotated[str, msgspec.Meta(max_length=512)]

#: A number of a position, an index or a version.
Number = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
#: Where the objects of the library hang on a handle. "run" is `runs.open(run_id)` and
#: "thread" is `context.get_thread(thread_id)`, with the id of the path.
PLACES: Mapping[type, str] = {
    Memory: "memory",
    FactStore: "memory.facts",
    StoredGraph: "memory.graph",
    ProposedFacts: "memory.proposals",
    LongTermItems: "items",
    Runs: "runs",
    Run: "run",
    Ledger: "run.ledger",
    Episodes: "run.episodes",
    Knowledge: "run.memory",
    ContextBuffer: "context",
    ThreadContext: "thread",
    ThreadRegistry: "registry",
    Assembly: "assembly",
    Store: "store",
    Pagefile: "",
}
#: Who did it is written down as the caller's name, whatever they say.
FILLED = ("actor", "writer_id", "reviewer")
_QUERIED = frozenset({"GET", "DELETE"})
_CURSOR = Annotated[str, msgspec.Meta(max_length=2_048)] | None
_MOMENT = Annotated[str, msgspec.Meta(max_length=64)] | None
_LIMIT = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class Parameter(msgspec.Struct, frozen=True):
    """One value of a call: what the library calls it, and how it travels."""

    #: What the method calls it; of a spread tuple, what the tuple is called.
    name: str
    #: What it is called where it travels.
    wire: str
    place: Place
    shape: Any
    default: Any = msgspec.NODEFAULT
    description: str = ""
    #: Text that becomes a moment: there are no others in paths and queries.
    is_time: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is msgspec.NODEFAULT


class Bound:
    """An operation with what follows from its signature."""

    def __init__(self, operation: Operation, signature: Signature) -> None:
        self.operation = operation
        #: The object of the library that has the method, from the handle on: "memory.facts".
        self.place = signature.place
        self.parameters: tuple[Parameter, ...] = signature.parameters
        #: What the method, or the function in its place, returns.
        self.returns: Any = signature.returns
        #: The whole body, where a function takes it as one parameter.
        self.whole_body: Any = signature.whole_body
        self._takes_page = operation.page is not None
        self._after_is_number = signature.after_is_number
        self._function = operation.own
        self._method = "" if operation.method is None else operation.method.__name__
        self._fills = signature.fills
        self._spread = operation.spread
        self._path = self.place.split(".") if self.place else []
        self._from_texts, self._from_body = (
            [(each.name, each.wire, each.is_time) for each in self._placed(*places)]
            for places in (("path", "query"), ("body",))
        )

    def _placed(self, *places: Place) -> list[Parameter]:
        return [each for each in self.parameters if each.place in places]

    @cached_property
    def description(self) -> str:
        """What it does, without what it raises."""
        about = self.operation.own or self.operation.method
        text = inspect.getdoc(about) or ""
        return text.partition("\n\nRaises:")[0]

    @cached_property
    def texts(self) -> type[msgspec.Struct] | None:
        """The shape of what the path and the query say; None where they say nothing."""
        parts = self._placed("path", "query")
        return _struct("Texts", "", parts, is_open=True) if parts else None

    @cached_property
    def body(self) -> Any:
        """The shape of the body; None where there is none."""
        if self.whole_body is not None:
            return self.whole_body
        parts = self._placed("body")
        if not parts:
            return None
        name, _, says = self.operation.takes.partition(": ")
        return _struct(name, says, parts)

    @cached_property
    def answer(self) -> Any:
        """The shape of the answer."""
        gives = self.operation.gives
        return self.returns if gives is None else gives

    @cached_property
    def wrapped_in(self) -> str:
        """The field of the answer that holds the value; empty where the answer is the value."""
        gives = self.operation.gives
        if gives is None or gives is self.returns or get_origin(gives) is not None:
            return ""
        fields: tuple[str, ...] = gives.__struct_fields__
        return fields[0]

    def arguments(self, caller: Caller, texts: Any, body: Any) -> dict[str, Any]:
        """The arguments of the call, from values of the shapes `texts` and `body`.

        Raises:
            Forbidden: the caller may not ask for that user. Invalid: a moment is not one.
        """
        given: dict[str, Any] = {}
        for name, wire, is_time in self._from_texts:
            value = getattr(texts, wire)
            given[name] = moment_of(wire, value) if is_time else value
        if self.whole_body is not None:
            given["body"] = body
        for name, wire, _ in self._from_body:
            given[name] = getattr(body, wire)
        for name, parts in self._spread.items():
            values = tuple(getattr(body, part) for part in parts)
            given[name] = None if values == (None,) * len(values) else values
        if "user_id" in given:
            given["user_id"] = caller.user(given["user_id"])
        if self._takes_page:
            cursor = given.pop("cursor")
            given["after"] = number_in(cursor) if self._after_is_number else place_in(cursor)
        for name in self._fills:
            given[name] = caller.writer_id
        return given

    def admit(self, caller: Caller) -> None:
        """Refuse who may not ask for this at all.

        Raises:
            Forbidden: a right is missing, or the caller is bound to one user.
        """
        if self.operation.right == "admin":
            caller.require("admin")
        if self.operation.whole_tenant:
            caller.require_whole_tenant()

    async def call(self, caller: Caller, given: dict[str, Any]) -> Any:
        """Do it: the library's value, or what the function in its place gave.

        Raises:
            PagefileError: as the method does.
        """
        if self._function is not None:
            return await self._function(caller, **given)
        target: Any = caller.pf
        for step in self._path:
            if step == "run":
                target = await caller.run(given.pop("run_id"))
                continue
            if step in ("memory", "assembly") and target is caller.pf:
                await caller.memory()  # What is loaded with it must not block the loop.
            target = getattr(target, step)
        return await getattr(target, self._method)(**given)

    def shown(self, value: Any, given: Mapping[str, Any]) -> Any:
        """The value as it is answered with."""
        field = self.wrapped_in
        if not field:
            return value
        if isinstance(value, self.operation.gives):
            return value
        page = self.operation.page
        if page is not None:
            cursor = behind(value, given["limit"], page)
            return self.operation.gives(**{field: value, "cursor": cursor})
        # A method that returns nothing says by returning that it is done.
        return self.operation.gives(**{field: True if value is None else value})


class Signature:
    """What a signature says."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._http = operation.http
        function = operation.own or operation.method
        assert function is not None
        hints = get_type_hints(function, include_extras=True)
        returns = hints.pop("return", None)
        self.returns = get_args(returns)[0] if get_origin(returns) is Answer else returns
        self.place = "" if operation.method is None else place_of(operation.method)
        self.whole_body: Any = None
        self.after_is_number = False
        self.fills: tuple[str, ...] = ()
        known = list(inspect.signature(function).parameters.values())[1:]
        found: list[Parameter] = []
        if self._http is not None and operation.own is None and "run_id" in self._http.names:
            found.append(self._parameter("run_id", "run_id", str, msgspec.NODEFAULT))
        for each in known:
            found += self._of(each, hints)
        self.parameters = tuple(found)

    def _of(self, known: inspect.Parameter, hints: Mapping[str, Any]) -> list[Parameter]:
        operation, name = self._operation, known.name
        default = msgspec.NODEFAULT if known.default is known.empty else known.default
        if name in operation.without:
            return []
        if operation.own is None and name in FILLED:
            self.fills += (name,)
            return []
        if operation.own is not None:
            if name == "body":
                self.whole_body = hints[name]
                return []
            if name == "upload" or (name == operation.guard and self.whole_body is not None):
                return []
        if operation.page is not None and name == "after":
            self.after_is_number = hints[name] is int
            return [self._parameter("cursor", "cursor", str | None, None)]
        if name in operation.spread:
            [whole] = [each for each in get_args(hints[name]) if each is not type(None)]
            parts = zip(operation.spread[name], get_args(whole), strict=True)
            return [self._parameter(name, wire, shape, None) for wire, shape in parts]
        return [self._parameter(name, name.rstrip("_"), hints[name], default)]

    def _parameter(self, name: str, wire: str, shape: Any, default: Any) -> Parameter:
        place = self._place_of(name)
        shape = self._operation.wire.get(name, shape)
        is_time = place != "body" and datetime in (shape, *get_args(shape))
        if place == "query":
            shape = _queried(wire, shape)
        about = (self._operation.own, self._operation.method)
        said = (each.__doc__ for each in about if each is not None)
        description = _described(shape) or glossary.about(wire, *said)
        return Parameter(name, wire, place, shape, default, description, is_time)

    def _place_of(self, name: str) -> Place:
        http = self._http
        if http is None:
            return "body"
        if name in http.names:
            return "path"
        is_query = http.method in _QUERIED or bool(self._operation.upload)
        return "query" if is_query else "body"


def bind(operation: Operation) -> Bound:
    """An operation with what follows from its signature."""
    return Bound(operation, Signature(operation))


def place_of(method: Callable[..., Any]) -> str:
    """Where the object that has a method hangs on a handle; "run" is one that is opened by id."""
    return PLACES[_class_of(method)]


def classes_of(method: Callable[..., Any]) -> list[type]:
    """The class that has a method, and the one that has it awaited."""
    cls, name = _class_of(method), method.__name__
    name_awaited = f"Async{cls.__name__}"
    awaited = getattr(aio, name_awaited, None) or getattr(aio_memory, name_awaited)
    return [cls, awaited] if hasattr(awaited, name) else [cls]


def _class_of(method: Callable[..., Any]) -> type:
    wanted = inspect.unwrap(method)
    for cls in PLACES:
        found = getattr(cls, method.__name__, None)
        if found is not None and inspect.unwrap(found) is wanted:
            return cls
    raise LookupError(f"no class of PLACES has {method.__qualname__}")


def moment_of(field: str, text: str | None) -> datetime | None:
    """The moment that a text of a query names.

    Raises:
        Invalid: it names none, or not which one.
    """
    if text is None:
        return None
    if not is_moment(text):
        raise Invalid(field, shown(text), RULE)
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:  # A leap second is a moment, and Python has none.
        raise Invalid(field, f"{shown(text)} cannot be counted", RULE) from error


def _described(shape: Any) -> str:
    """What a type says of itself where a signature names it."""
    for part in get_args(shape):
        found = (part.description if isinstance(part, msgspec.Meta) else _described(part)) or ""
        if found:
            return found
    return ""


def _queried(wire: str, shape: Any) -> Any:
    """What a query may say, where the signature does not say it closer."""
    if wire == "cursor":
        return _CURSOR if shape == str | None else shape
    if shape == datetime | None:
        return _MOMENT
    if shape is int and wire == "limit":
        return _LIMIT
    if shape is str:
        return Id
    if shape == str | None:
        return Id | None
    return shape


#: Bodies that several operations take, by name and fields.
_shared: dict[Any, type[msgspec.Struct]] = {}


def _struct(
    name: str, says: str, parts: Sequence[Parameter], *, is_open: bool = False
) -> type[msgspec.Struct]:
    key = (name, tuple((each.wire, repr(each.shape), repr(each.default)) for each in parts))
    if key in _shared:
        return _shared[key]
    fields: list[Any] = []
    for each in parts:
        shape = each.shape
        if each.description:
            shape = Annotated[shape, msgspec.Meta(description=each.description)]
        fields.append((each.wire, shape, *(() if each.is_required else (each.default,))))
    _shared[key] = msgspec.defstruct(
        name,
        fields,
        kw_only=True,
        forbid_unknown_fields=not is_open,
        namespace={"__doc__": says or None},
        module=__name__,
    )
    return _shared[key]

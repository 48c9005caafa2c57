"""The codec: what is stored comes back equal, and reading runs nobody's code."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import json
import math
import pickle
import sys
import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, Literal, NewType, Optional, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagefile.errors import Corrupt, Invalid
from pagefile.store import codec
from pagefile.store.codec import (
    MAX_DEPTH,
    Record,
    aliases,
    decode,
    encode,
    is_deeply_immutable,
    register,
    registry,
)
from pagefile.store.records import keys_to_bytes, mapping_to_bytes

T = TypeVar("T")
UserId = NewType("UserId", str)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Pair(enum.Enum):
    FIRST = (1, 2)
    LISTED = [3]  # noqa: RUF012


class Guessing(enum.Enum):
    KNOWN = "known"

    @classmethod
    def _missing_(cls, value: object) -> Guessing:
        raise AssertionError("_missing_ was run")


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Note:
    title: str
    score: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)
    where: Point | None = None
    color: Color = Color.RED
    kind: Literal["a", "b"] = "a"
    extra: dict[str, int] = dataclasses.field(default_factory=dict)
    size: tuple[int, int] = (0, 0)
    owner: UserId = UserId("")


@dataclasses.dataclass
class Shelf:
    items: list[Note]


@dataclasses.dataclass
class Chain:
    value: int
    following: Optional[Chain] = None  # noqa: UP045


class Fast(msgspec.Struct):
    name: str
    n: int = 1
    parts: list[int] = []


class FrozenFast(msgspec.Struct, frozen=True):
    name: str
    at: tuple[int, ...] = ()


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str


class Tagged(msgspec.Struct, tag=True):
    a: int


class HookedStruct(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a == 666:
            raise AssertionError("__post_init__ was run")


@dataclasses.dataclass
class Blob:
    data: bytes
    seen: datetime | None = None
    anything: Any = None


@dataclasses.dataclass
class Hooked:
    a: int
    armed = False

    def __post_init__(self) -> None:
        if Hooked.armed:
            raise AssertionError("__post_init__ was run")


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenBlob:
    data: bytes
    b: tuple[date, ...] = ()


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


@dataclasses.dataclass
class Computed:
    a: int
    double: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.double = self.a * 2


class Model(pydantic.BaseModel):
    name: str = pydantic.Field(alias="theName")
    count: int = 3
    found: list[int] = pydantic.Field(default_factory=list)
    nested: dict[str, Any] = {}
    _cache: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)

    @pydantic.field_validator("name")
    @classmethod
    def _refuse(cls, value: str) -> str:
        if value == "stored":
            raise AssertionError("a validator was run")
        return value

    def model_post_init(self, context: Any, /) -> None:
        if self.name == "stored":
            raise AssertionError("model_post_init was run")


class FrozenModel(pydantic.BaseModel, frozen=True):
    a: int
    b: tuple[str, ...] = ()


class OpenModel(pydantic.BaseModel, extra="allow"):
    a: int = 1


class Roots(pydantic.RootModel[list[int]]):
    pass


def round_trip(value: Any) -> Any:
    return decode(*encode(value))


def json_of(value: Any) -> Any:
    return json.loads(encode(value)[1])


def nested_lists(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


# --- plain values -----------------------------------------------------------------------------

PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    2**64,
    -(2**64) - 1,
    10**4000,
    1.5,
    -0.0,
    1e308,
    5e-324,
    "",
    "grüß 🙂",
    '"$',
    [],
    {},
    [1, [2, {"a": None}]],
    {"a": {"b": [True, 1, 1.0]}},
    {"code": "{[" * 500},
    [[i] for i in range(500)],
    {"$": 1, "$a": 2, "$$b": 3, "$type": "x", "$bytes": "y"},
    ["$bytes"],
    {"price": "$5"},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: repr(v)[:30])
def test_a_plain_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    name, body = encode(value)
    assert name == ""
    back = decode(name, body)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(json.loads(json.dumps(value, sort_keys=True)))


def test_bodies_are_sorted_json_without_white_space() -> None:
    assert encode({"b": [1, 2], "a": "ü"}) == ("", '{"a":"ü","b":[1,2]}'.encode())


def test_a_negative_zero_keeps_its_sign() -> None:
    assert math.copysign(1, round_trip(-0.0)) == -1


def test_every_decode_gives_a_fresh_object() -> None:
    for value in ({"a": [1]}, Note("t"), Blob(b"x", anything=[1]), Model(theName="n")):
        name, body = encode(value)
        first, second = decode(name, body), decode(name, body)
        assert first == second == value
        assert first is not second


def test_a_user_key_that_begins_with_a_dollar_gets_one_more() -> None:
    assert encode({"$type": 1, "$$": 2})[1] == b'{"$$$":2,"$$type":1}'


def test_plain_enum_like_members_and_subclasses_inside_plain_values_read_back_as_plain() -> None:
    assert round_trip({"w": Word.YES, "n": Level.LOW, "o": OrderedDict(a=1)}) == {
        "w": "yes",
        "n": 1,
        "o": {"a": 1},
    }


def test_depth_is_allowed_up_to_the_limit_and_not_beyond() -> None:
    deepest = nested_lists(MAX_DEPTH)
    assert round_trip(deepest) == deepest
    with pytest.raises(Invalid, match="nested deeper than 100") as caught:
        encode(nested_lists(MAX_DEPTH + 1))
    assert caught.value.field == "$" + "[0]" * MAX_DEPTH


def test_the_deepest_tagged_values_can_be_read_again() -> None:
    value: Any = (b"x", Color.RED.value)
    for _ in range(MAX_DEPTH - 1):
        value = (value,)
    assert round_trip(value) == value
    boxed: Any = Box(b"x")
    for _ in range(MAX_DEPTH - 1):
        boxed = Box(boxed)
    assert round_trip(boxed) == boxed
    with pytest.raises(Invalid):
        encode(Box(boxed))


# --- tagged values ----------------------------------------------------------------------------

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

TAGGED: list[tuple[Any, Any]] = [
    (b"\x00\xff", {"$bytes": "AP8="}),
    (MOMENT, {"$datetime": "2026-01-02T03:04:05.000006Z"}),
    (datetime(1, 1, 1, tzinfo=UTC), {"$datetime": "0001-01-01T00:00:00.000000Z"}),
    (date(2026, 1, 2), {"$date": "2026-01-02"}),
    (Decimal("1.10"), {"$decimal": "1.10"}),
    (Decimal("-0E+7"), {"$decimal": "-0E+7"}),
    (UUID(int=5), {"$uuid": "00000000-0000-0000-0000-000000000005"}),
    ((1, [2]), {"$tuple": [1, [2]]}),
    ((), {"$tuple": []}),
    ({3, 1, "a"}, {"$set": ["a", 1, 3]}),
    (frozenset({(1,)}), {"$frozenset": [{"$tuple": [1]}]}),
    (Color.RED, {"$enum": f"{__name__}:Color", "value": "red"}),
    (Access.READ | Access.WRITE, {"$enum": f"{__name__}:Access", "value": 3}),
    (Pair.FIRST, {"$enum": f"{__name__}:Pair", "value": {"$tuple": [1, 2]}}),
    (Pair.LISTED, {"$enum": f"{__name__}:Pair", "value": [3]}),
    ({"p": Point(1)}, {"p": {"$type": f"{__name__}:Point", "x": 1, "y": 0.0}}),
    ([Fast("n")], [{"$type": f"{__name__}:Fast", "name": "n", "n": 1, "parts": []}]),
    ([FrozenModel(a=1)], [{"$type": f"{__name__}:FrozenModel", "a": 1, "b": {"$tuple": []}}]),
]


# Named by the form alone: a set has another order in each process, and with it another name.
@pytest.mark.parametrize(
    ("value", "form"), [pytest.param(v, f, id=repr(f)[:40]) for v, f in TAGGED]
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"k": v}])
def test_a_value_that_json_lacks_is_tagged_and_comes_back(
    value: Any, form: Any, wrap: Callable[[Any], Any]
) -> None:
    name, body = encode(wrap(value))
    assert (name, json.loads(body)) == ("", wrap(form))
    back = decode(name, body)
    assert back == wrap(value)
    assert repr(back) == repr(wrap(value)) or isinstance(value, set)


def test_a_time_in_another_zone_is_stored_in_utc() -> None:
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert encode(elsewhere) == encode(MOMENT)
    assert round_trip(elsewhere).tzinfo is UTC


def test_an_int_enum_member_by_itself_comes_back_as_the_member() -> None:
    assert round_trip(Level.LOW) is Level.LOW
    assert round_trip((Word.YES,))[0] is Word.YES


def test_an_enum_whose_class_is_unknown_gives_its_raw_value() -> None:
    assert decode("", b'{"$enum":"nowhere:Gone","value":{"$tuple":[1]}}') == (1,)


def test_an_enum_value_that_is_no_longer_a_member_gives_its_raw_value() -> None:
    for cls, raw in (("Color", '"green"'), ("Guessing", '"x"'), ("Access", "64"), ("Point", "1")):
        body = f'{{"$enum":"{__name__}:{cls}","value":{raw}}}'.encode()
        assert decode("", body) == json.loads(raw)


def test_an_unknown_nested_type_gives_a_record() -> None:
    back = decode("", b'[{"$type":"nowhere:Gone","$$odd":1,"a":{"$bytes":"AA=="}}]')
    assert back == [Record("nowhere:Gone", {"$odd": 1, "a": b"\x00"})]


def test_typed_members_of_a_set_come_back_even_when_their_class_is_gone() -> None:
    assert round_trip({Point(1), Point(2)}) == {Point(1), Point(2)}
    gone = Record("nowhere:Gone", {"a": [1]})
    assert decode("", b'{"$set":[{"$type":"nowhere:Gone","a":[1]}]}') == {gone}


def test_a_set_member_whose_class_lost_its_hash_comes_back_as_a_record() -> None:
    body = f'{{"$set":[{{"$type":"{__name__}:Blob","data":{{"$bytes":""}}}}]}}'.encode()
    assert decode("", body) == {Record(f"{__name__}:Blob", {"data": b""})}


# --- refusals ---------------------------------------------------------------------------------


class MyDict(dict[str, int]):
    pass


class MyStr(str):
    __slots__ = ()


class MyInt(int):
    pass


class MyList(list[int]):
    pass


class MyMoment(datetime):
    pass


Coordinates = namedtuple("Coordinates", "x y")


def odd_model() -> OpenModel:
    fields: dict[str, Any] = {"\ud800": 1}
    return OpenModel.model_construct(**fields)


def unset_blob() -> Blob:
    blob = Blob(b"")
    del blob.data
    return blob


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_chain() -> Chain:
    chain = Chain(1)
    chain.following = chain
    return chain


def unequal_member() -> Color:
    stray = object.__new__(Color)
    stray._value_ = "stray"
    return stray


FAR_WEST = timezone(timedelta(hours=-5))

BAD: list[tuple[Any, str, str]] = [
    (math.nan, "$", "store None"),
    ({"a": [1, math.inf]}, "$.a[1]", "store None"),
    ({"a": -math.inf, "b": (1,)}, "$.a", "store None"),
    ({1: 2}, "$", "str keys"),
    ({"x": {None: 2}}, "$.x", "str keys"),
    ({"a": {True: 1}}, "$.a", "str keys"),
    ({"a b": {(1,): 2}}, '$["a b"]', "str keys"),
    ("\ud800", "$", "replace it"),
    ({"a": ["ok", "\udfff"]}, "$.a[1]", "replace it"),
    ({"\ud800": 1}, '$["\\ud800"]', "replace it"),
    ([bytearray(b"x")], "$[0]", "use bytes"),
    ({"m": memoryview(b"x")}, "$.m", "use bytes"),
    ({"at": datetime(2026, 1, 1)}, "$.at", "attach a time zone"),
    ([datetime.max.replace(tzinfo=FAR_WEST)], "$[0]", "between the years"),
    (Decimal("NaN"), "$", "store None"),
    ([Decimal("-Infinity")], "$[0]", "store None"),
    (MyDict(a=1), "$", "dict(...)"),
    ([MyStr("x")], "$[0]", "str(...)"),
    ([MyInt(1)], "$[0]", "int(...)"),
    ([MyList([1]), b""], "$[0]", "list(...)"),
    ([Coordinates(1, 2)], "$[0]", "tuple(...)"),
    ([MyMoment(2026, 1, 1, tzinfo=UTC)], "$[0]", "plain datetime"),
    ({"f": print}, "$.f", "dataclasses"),
    ([object()], "$[0]", "dict, list, str"),
    ([Point], "$[0]", "dict, list, str"),
    ([1, 2, 3j], "$[2]", "dict, list, str"),
    (Record("x:Y", {"a": 1}), "$", "to_dict()"),
    ([Record("", {})], "$[0]", "to_dict()"),
    (10**5000, "$", "hexadecimal"),
    ({"n": [10**5000]}, "$.n[0]", "hexadecimal"),
    (cyclic_list(), "$" + "[0]" * MAX_DEPTH, "contain itself"),
    (cyclic_chain(), "$" + ".following" * MAX_DEPTH, "contain itself"),
    ((1, nested_lists(3000)), "$[1]" + "[0]" * (MAX_DEPTH - 1), "contain itself"),
    ([unequal_member()], "$[0]", "declared member"),
    # closed classes
    (Note(1), "$.title", "str"),  # type: ignore[arg-type]
    (Note("t", score=math.nan), "$.score", "store None"),
    (Note("t", tags=["a", 2]), "$.tags[1]", "str"),  # type: ignore[list-item]
    (Note("t", tags=("a",)), "$.tags", "list[str]"),  # type: ignore[arg-type]
    (Note("t", where=Point("x")), "$.where.x", "int"),  # type: ignore[arg-type]
    (Note("t", where=Point(1, 2**53 + 1)), "$.where.y", "float"),
    (Note("t", kind="c"), "$.kind", "Literal"),  # type: ignore[arg-type]
    (Note("t", color="red"), "$.color", "Color"),  # type: ignore[arg-type]
    (Note("t", extra={"k": "v"}), "$.extra.k", "int"),  # type: ignore[dict-item]
    (Note("t", extra={1: 1}), "$.extra", "str keys"),  # type: ignore[dict-item]
    (Note("t", size=(1, True)), "$.size[1]", "int"),
    (Note("t", size=(1, 2, 3)), "$.size", "tuple[int, int]"),  # type: ignore[arg-type]
    (Note("\ud800"), "$.title", "replace it"),
    (Note(b"bytes"), "$.title", "str"),  # type: ignore[arg-type]
    (Note(FrozenModel(a=1)), "$.title", "str"),  # type: ignore[arg-type]
    (Shelf([Note("a"), Note("b", score="high")]), "$.items[1].score", "float"),  # type: ignore[arg-type]
    (Fast("n", n=1.5), "$.n", "int"),  # type: ignore[arg-type]
    (Point(10**5000), "$.x", "hexadecimal"),
    # open classes
    (Blob(b"", datetime(2026, 1, 1)), "$.seen", "attach a time zone"),
    (Blob(b"", anything={"a": {object()}}), "$.anything.a", "dict, list, str"),
    (unset_blob(), "$.data", "set it"),
    (odd_model(), '$["\\ud800"]', "replace it"),
]


@pytest.mark.parametrize(("value", "field", "step"), BAD, ids=range(len(BAD)))
def test_a_bad_value_is_refused_at_its_place_with_the_next_step(
    value: Any, field: str, step: str
) -> None:
    with pytest.raises(Invalid) as caught:
        encode(value)
    assert caught.value.field == field
    assert step in caught.value.rule
    assert str(caught.value) == f"{caught.value.fact}: {caught.value.rule}"
    assert caught.value.fact.startswith(field + ": ")


def test_a_nan_in_a_closed_class_is_called_a_nan() -> None:
    with pytest.raises(Invalid, match=r"\$\.items\[0\]\.score: nan has no JSON form"):
        encode(Shelf([Note("t", score=math.nan)]))


def test_a_value_that_leaves_no_stack_is_refused() -> None:
    def call_at_depth(depth: int) -> None:
        if depth:
            call_at_depth(depth - 1)
        else:
            encode((nested_lists(90),))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(stack_depth() + 250)
    try:
        with pytest.raises(Invalid, match="no stack left"):
            call_at_depth(100)
    finally:
        sys.setrecursionlimit(limit)


def test_a_reader_with_little_stack_is_not_told_that_the_store_is_damaged() -> None:
    body = b"[" * 100 + b'"]{}["' + b"]" * 100
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(stack_depth() + 50)
    try:
        # From Python 3.12 on, C code has a stack of its own and the body is simply read.
        expected = pytest.raises(RecursionError) if sys.version_info < (3, 12) else nullcontext()
        with expected:
            decode("", body)
    finally:
        sys.setrecursionlimit(limit)


def stack_depth() -> int:
    frame: types.FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


# --- closed classes ---------------------------------------------------------------------------

CLOSED: list[Any] = [
    Point(1, 2.5),
    Point(10**30),
    Note("t", 1.0, ["a"], Point(3), Color.BLUE, "b", {"$type": 1, "k": 2}, (4, 5), UserId("u")),
    Shelf([Note("a"), Note("b")]),
    Chain(1, Chain(2)),
    Fast("n", 2, [1]),
    FrozenFast("n", (1, 2)),
]


@pytest.mark.parametrize("value", CLOSED, ids=lambda v: type(v).__name__)
def test_a_closed_class_is_stored_with_plain_fields(value: Any) -> None:
    name, body = encode(value)
    assert name == codec.type_name(type(value))
    assert not name.endswith("+")
    assert body == msgspec.json.encode(value, order="sorted")
    back = decode(name, body)
    assert back == value
    assert type(back) is type(value)


def test_a_closed_body_is_read_verbatim_without_its_class() -> None:
    body = encode(Note("t", extra={"$bytes": 1}))[1]
    record = decode("nowhere:Note", body)
    assert record.extra["$bytes"] == 1
    assert record.type_name == "nowhere:Note"


def test_a_missing_field_of_a_closed_class_takes_its_default() -> None:
    assert decode(f"{__name__}:Note", b'{"title":"t"}') == Note("t")
    assert decode(f"{__name__}:Fast", b'{"name":"t"}') == Fast("t")


def test_an_int_in_a_float_field_is_read_as_the_equal_float() -> None:
    assert round_trip(Point(1, 2)) == Point(1, 2.0)


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":"changed"}',
        b'{"y":1.5}',
        b'{"x":1,"y":1.0,"z":"a field the class no longer has"}',
        b'{"$tuple":[1]}',
    ],
)
def test_a_closed_body_that_no_longer_fits_the_class_gives_a_record(body: bytes) -> None:
    record = decode(f"{__name__}:Point", body)
    assert type(record) is Record
    assert record == Record(f"{__name__}:Point", json.loads(body))


def test_a_dropped_field_deep_inside_a_closed_body_gives_a_record() -> None:
    body = b'{"items":[{"title":"t"},{"title":"u","where":{"x":1,"z":2}}]}'
    record = decode(f"{__name__}:Shelf", body)
    assert record["items"][1].where.z == 2


def test_a_closed_body_whose_class_became_open_gives_a_record() -> None:
    assert decode(f"{__name__}:Hooked", b'{"a":1}') == Record(f"{__name__}:Hooked", {"a": 1})


def test_a_deep_chain_of_objects_is_refused_and_reported_when_read() -> None:
    chain = Chain(0)
    for _ in range(MAX_DEPTH):
        chain = Chain(1, chain)
    with pytest.raises(Invalid, match="nested deeper"):
        encode(chain)
    assert chain.following is not None
    assert round_trip(chain.following) == chain.following
    link = b'{"value":1,"following":'
    for name in (f"{__name__}:Chain", "nowhere:Chain"):
        with pytest.raises(Corrupt):
            decode(name, link * 300 + b'{"value": 1}' + b"}" * 300)


# --- open classes -----------------------------------------------------------------------------

OPEN: list[Any] = [
    Blob(b"x", MOMENT, {"$k": (1, {2})}),
    FrozenBlob(b"x", (date(2026, 1, 1),)),
    Hooked(1),
    Computed(2),
    Box(1),
    Box(Box("x")),
    Renamed("r"),
    Tagged(1),
    Model(theName="n", nested={"a": (1, 2)}),
    FrozenModel(a=1, b=("x",)),
    OpenModel(a=2, **{"more": [b"x"], "$type": "odd"}),
    Roots([1, 2]),
]


@pytest.mark.parametrize("value", OPEN, ids=lambda v: type(v).__name__)
def test_an_open_class_is_marked_and_comes_back_equal(value: Any) -> None:
    name, body = encode(value)
    assert name == codec.type_name(type(value)) + "+"
    back = decode(name, body)
    assert back == value
    assert type(back) is type(value)
    assert round_trip([value]) == [value]


@pytest.mark.parametrize("value", OPEN, ids=lambda v: type(v).__name__)
def test_an_open_body_without_its_class_gives_a_record(value: Any) -> None:
    body = encode(value)[1]
    record = decode("nowhere:Gone+", body)
    assert type(record) is Record
    assert record.type_name == "nowhere:Gone"
    assert hash(record) == hash(copy.deepcopy(record))


def make_variants() -> dict[str, type[Any]]:
    @dataclasses.dataclass(eq=False)
    class NoEquality:
        a: int = 1

    @dataclasses.dataclass
    class OwnEquality:
        a: int = 1

        def __eq__(self, other: object) -> bool:
            return True

    @dataclasses.dataclass
    class Uncompared:
        a: int = dataclasses.field(default=1, compare=False)

    @dataclasses.dataclass
    class Unresolvable:
        a: Nowhere = 1  # type: ignore[name-defined]  # noqa: F821

    @dataclasses.dataclass
    class BareList:
        a: list = dataclasses.field(default_factory=list)  # type: ignore[type-arg]

    @dataclasses.dataclass
    class IntKeys:
        a: dict[int, int] | None = None

    @dataclasses.dataclass
    class AmbiguousUnion:
        a: list[int] | tuple[int, ...] = (1,)

    @dataclasses.dataclass
    class GuessingEnum:
        a: Guessing = Guessing.KNOWN

    @dataclasses.dataclass
    class FlagField:
        a: Access = Access.READ

    @dataclasses.dataclass
    class UserFactory:
        a: int = dataclasses.field(default_factory=lambda: 1)

    @dataclasses.dataclass
    class OwnNew:
        a: int = 1

        def __new__(cls, *arguments: Any) -> OwnNew:
            return object.__new__(cls)

    class ArrayStruct(msgspec.Struct, array_like=True):
        a: int = 1

    class OmittingStruct(msgspec.Struct, omit_defaults=True):
        a: int = 1

    class StrictStruct(msgspec.Struct, forbid_unknown_fields=True):
        a: int = 1

    class NoEqualityStruct(msgspec.Struct, eq=False):
        a: int = 1

    class UnresolvableStruct(msgspec.Struct):
        a: Nowhere = 1  # type: ignore[name-defined]  # noqa: F821

    class UserFactoryStruct(msgspec.Struct):
        a: int = msgspec.field(default_factory=lambda: 1)

    return {name: cls for name, cls in locals().items() if isinstance(cls, type)}


VARIANTS = make_variants()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_class_that_json_cannot_bring_back_exactly_is_open(name: str) -> None:
    value = VARIANTS[name]()
    stored, body = encode(value)
    assert stored.endswith(f"{name}+")
    assert "<locals>" in stored
    back = decode(stored, body)
    assert type(back) is type(value)
    assert back.a == value.a


def test_a_missing_field_of_an_open_class_takes_its_default() -> None:
    assert decode(f"{__name__}:Blob+", b'{"data":{"$bytes":""}}') == Blob(b"")
    model = decode(f"{__name__}:Model+", b'{"name":"stored"}')
    assert (model.name, model.count, model.found, model.nested) == ("stored", 3, [], {})
    assert model.model_fields_set == {"name"}
    assert model.nested is not Model.model_fields["nested"].default


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("Blob", b'{"data":"x","gone":1}'),
        ("Blob", b'{"seen":null}'),
        ("Model", b'{"count":1}'),
        ("FrozenModel", b'{"a":1,"gone":[1]}'),
        ("Renamed", b'{"firstName":"x"}'),
        ("Color", b'{"a":1}'),
        ("json", b'{"a":1}'),
        ("BAD", b'{"a":1}'),
        ("HookedStruct", b'{"a":666}'),
    ],
)
def test_fields_that_do_not_fit_an_open_class_give_a_record(name: str, body: bytes) -> None:
    record = decode(f"{__name__}:{name}+", body)
    assert record == Record(f"{__name__}:{name}", json.loads(body))


def test_a_struct_with_a_post_init_is_stored_and_read_as_a_record() -> None:
    assert round_trip(HookedStruct(1)) == Record(f"{__name__}:HookedStruct", {"a": 1})


def test_a_missing_field_whose_default_is_the_users_code_gives_a_record() -> None:
    for variant in ("UserFactory", "UserFactoryStruct"):
        name, _ = encode(VARIANTS[variant]())
        assert decode(name, b"{}") == Record(name[:-1], {})


def test_a_dataclass_that_cannot_be_allocated_plainly_gives_a_record() -> None:
    @dataclasses.dataclass
    class Failure(Exception):
        reason: str

    record = round_trip(Failure("x"))
    assert type(record) is Record
    assert record.reason == "x"


def test_a_field_behind_a_property_is_not_set_through_it() -> None:
    class Guarded:
        def __init__(self, a: int) -> None:
            self.__dict__["a"] = a

        def _set(self, value: int) -> None:
            raise AssertionError("a setter was run")

        a = property(lambda self: self.__dict__["a"], _set)
        __annotations__ = {"a": int}

    guarded = dataclasses.dataclass(init=False)(Guarded)
    assert round_trip(guarded(1)).to_dict() == {"a": 1}


def test_private_attributes_of_a_model_start_at_their_safe_defaults() -> None:
    class Private(pydantic.BaseModel):
        a: int
        _safe: list[int] = pydantic.PrivateAttr(default_factory=list)
        _given: int = 5
        _users: int = pydantic.PrivateAttr(default_factory=lambda: 1)
        _unset: int

    back = round_trip(Private.model_validate({"a": 1}))
    assert (back._safe, back._given) == ([], 5)
    with pytest.raises(AttributeError):
        _ = back._users
    with pytest.raises(AttributeError):
        _ = back._unset


def test_model_fields_set_are_the_stored_fields_and_extras() -> None:
    back = round_trip(OpenModel.model_validate({"a": 2, "more": 1}))
    assert back.model_fields_set == {"a", "more"}
    assert back.model_extra == {"more": 1}
    assert back.more == 1


def test_a_frozen_model_stays_frozen() -> None:
    with pytest.raises(pydantic.ValidationError):
        round_trip(FrozenModel(a=1)).a = 2


# --- the registry -----------------------------------------------------------------------------


def test_register_is_a_decorator_and_names_by_module_and_class() -> None:
    @register
    @dataclasses.dataclass
    class Local:
        a: int

    assert codec.type_name(Local) == f"{__name__}:{Local.__qualname__}"
    assert "<locals>" in codec.type_name(Local)
    assert round_trip(Local(1)) == Local(1)


def test_a_given_name_is_stored_and_read() -> None:
    @dataclasses.dataclass
    class Local:
        a: int

    encode(Local(1))
    old_name = codec.type_name(Local)
    assert register(Local, "short") is Local
    assert encode(Local(1)) == ("short", b'{"a":1}')
    assert decode("short", b'{"a":1}') == decode(old_name, b'{"a":1}') == Local(1)


def test_the_latest_registration_under_a_name_wins() -> None:
    first = dataclasses.make_dataclass("First", [("a", int)])
    second = dataclasses.make_dataclass("Second", [("a", int)])
    register(first, "same")
    register(second, "same")
    assert type(decode("same", b'{"a":1}')) is second


def test_a_class_that_has_moved_keeps_the_name_that_data_has_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Moved(msgspec.Struct):
        n: int

    Moved.__qualname__ = "Moved"
    monkeypatch.setattr(sys.modules[__name__], "Moved", Moved, raising=False)
    present = f"{__name__}:Moved"
    monkeypatch.setitem(aliases.MOVED, "before:Moved", present)
    monkeypatch.setitem(registry._STORED_AS, present, "before:Moved")
    read_first = decode("before:Moved", b'{"n":1}')
    stored = encode(Moved(2))

    assert (read_first, codec.type_name(Moved)) == (Moved(1), "before:Moved")
    assert stored == ("before:Moved", b'{"n":2}')


@pytest.mark.parametrize("cls", [int, dict, object, Record, 5, print, "Point"])
def test_a_class_of_no_supported_family_cannot_be_registered(cls: Any) -> None:
    for attempt in (register, codec.type_name):
        with pytest.raises(Invalid, match="use a dataclass") as caught:
            attempt(cls)
        assert caught.value.field == "cls"


@pytest.mark.parametrize("name", ["", "app:Note+", "a\nb", "\ud800"])
def test_a_name_that_could_not_be_stored_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="choose a printable name") as caught:
        register(Point, name)
    assert caught.value.field == "name"
    assert codec.type_name(Point) == f"{__name__}:Point"


def test_local_enums_work_through_the_registry() -> None:
    class Local(enum.Enum):
        A = 1

    assert round_trip([Local.A]) == [Local.A]


def test_an_enum_with_a_dataclass_mix_in_is_stored_as_a_member() -> None:
    class Planet(Point, enum.Enum):
        EARTH = (1, 2.0)

    assert round_trip(Planet.EARTH) is Planet.EARTH


# --- nothing is imported or run ---------------------------------------------------------------


@pytest.fixture
def lively_module() -> Iterator[types.ModuleType]:
    class Lively(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"the module was asked for {name}")

    module = Lively("lively_module")
    members = types.ModuleType.__getattribute__(module, "__dict__")
    members["Point"] = Point
    members["__getattr__"] = lambda name: pytest.fail(f"__getattr__({name}) was run")
    sys.modules["lively_module"] = module
    yield module
    del sys.modules["lively_module"]


@pytest.mark.parametrize(
    "name", ["this:Zen", "antigravity:x", "lib2to3.pgen2:y", ":", "x", "a:b:c"]
)
def test_a_type_name_imports_nothing(name: str) -> None:
    loaded = set(sys.modules)
    nested = json.dumps([{"$type": name, "a": 1}, {"$enum": name, "value": 1}]).encode()
    assert decode(name, b'{"a":1}').type_name == name
    assert decode(name + "+", b'{"a":1}').type_name == name
    assert decode("", nested) == [Record(name, {"a": 1}), 1]
    assert set(sys.modules) == loaded


@pytest.mark.usefixtures("lively_module")
def test_a_modules_own_attribute_access_is_not_run() -> None:
    assert decode("lively_module:Point", b'{"x":1,"y":0.0}') == Point(1)
    for name in ("lively_module:Absent", "lively_module:Point.Absent", "lively_module:"):
        assert type(decode(name, b'{"x":1}')) is Record


@pytest.mark.parametrize("stand_in", [None, object(), "text"])
def test_a_loaded_module_that_is_no_module_is_passed_over(
    stand_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "odd_module", stand_in)
    assert type(decode("odd_module:upper", b"{}")) is Record


def test_a_post_init_is_not_run_on_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    name, body = encode(Hooked(1))
    nested = encode([Hooked(1)])
    monkeypatch.setattr(Hooked, "armed", True)
    assert decode(name, body).a == 1
    assert decode(*nested)[0].a == 1


def test_validators_are_not_run_on_reading() -> None:
    model = decode(f"{__name__}:Model+", b'{"name":"stored","count":"not an int"}')
    assert model.count == "not an int"


def test_a_loaded_class_is_found_by_its_nested_name() -> None:
    holder = types.ModuleType("holder_module")

    class Outer:
        @dataclasses.dataclass
        class Inner:
            a: int

    vars(holder)["Outer"] = Outer
    sys.modules["holder_module"] = holder
    try:
        assert decode("holder_module:Outer.Inner", b'{"a":1}') == Outer.Inner(1)
        assert type(decode("holder_module:Outer", b'{"a":1}')) is Record
    finally:
        del sys.modules["holder_module"]


def test_values_are_stored_where_pydantic_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pydantic.main")
    local = dataclasses.make_dataclass("WithoutPydantic", [("a", int)])
    assert round_trip(local(1)) == local(1)


# --- records ----------------------------------------------------------------------------------


@pytest.fixture
def record() -> Record:
    body = b'{"title":"t","items":[1,{"a":[2]}],"type_name":"own","at":{"$set":[1]}}'
    result = decode("nowhere:Gone+", body)
    assert type(result) is Record
    return result


def test_a_record_gives_attributes_and_items(record: Record) -> None:
    assert record.title == record["title"] == "t"
    assert record.type_name == "nowhere:Gone"
    assert record["type_name"] == "own"
    assert "title" in record
    assert "absent" not in record
    assert len(record) == 4
    assert sorted(record) == ["at", "items", "title", "type_name"]
    assert "title" in dir(record)


def test_a_record_is_read_only_all_the_way_down(record: Record) -> None:
    assert record.items == (1, Record("", {"a": [2]}))
    assert record.items[1].type_name == ""
    assert record.items[1].a == (2,)
    assert record.at == frozenset({1})
    for name in ("title", "new", "_fields", "type_name"):
        with pytest.raises(AttributeError, match="read-only"):
            setattr(record, name, 1)
        with pytest.raises(AttributeError, match="read-only"):
            delattr(record, name)


def test_typed_objects_inside_a_record_are_records_too() -> None:
    inner = encode([Blob(b"x")])[1]
    assert type(decode("nowhere:Gone+", b'{"a":' + inner + b"}").a[0]) is Record


def test_a_missing_field_of_a_record_is_an_ordinary_error(record: Record) -> None:
    with pytest.raises(AttributeError, match="'nowhere:Gone' has no field 'absent'"):
        _ = record.absent
    with pytest.raises(KeyError):
        record["absent"]
    assert not hasattr(Record.__new__(Record), "_fields")


def test_to_dict_gives_plain_mutable_copies(record: Record) -> None:
    plain = record.to_dict()
    assert plain["items"] == [1, {"a": [2]}]
    plain["items"][1]["a"].append(3)
    assert record.items[1].a == (2,)


def test_records_are_equal_by_type_name_and_content() -> None:
    assert Record("a:B", {"x": [1]}) == Record("a:B", {"x": (1,)})
    assert hash(Record("a:B", {"x": [1], "y": 1})) == hash(Record("a:B", {"y": 1, "x": (1,)}))
    assert Record("a:B", {"x": 1}) != Record("a:C", {"x": 1})
    assert Record("a:B", {"x": 1}) != Record("a:B", {"x": 2})
    assert Record("", {"x": 1}) != {"x": 1}


def test_a_record_is_shown_as_it_can_be_written(record: Record) -> None:
    assert repr(Record("a:B", {"x": [1]})) == "Record('a:B', {'x': (1,)})"
    assert eval(repr(record)) == record


def test_a_record_can_be_copied_and_sent_between_processes(record: Record) -> None:
    assert copy.deepcopy(record) == copy.copy(record) == record
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"\xff",
        b'"\xff"',
        b'"\\ud800"',
        b"NaN",
        b"1e999",
        b"1" * 5000,
        b"[" * 100_000,
        b'{"$nothing":1}',
        b'{"$nothing":[]}',
        b'{"$":1}',
        b'{"$bytes":"?"}',
        b'{"$bytes":"AB=="}',
        b'{"$bytes":5}',
        b'{"$bytes":"","more":1}',
        b'{"$datetime":"2026-01-02T03:04:05.000006"}',
        b'{"$datetime":"2026-01-02T03:04:05Z"}',
        b'{"$datetime":"soon"}',
        b'{"$date":"2026-02-30"}',
        b'{"$date":"20260201"}',
        b'{"$decimal":"NaN"}',
        b'{"$decimal":"x"}',
        b'{"$decimal":"1e5"}',
        b'{"$uuid":"5"}',
        b'{"$uuid":"{00000000-0000-0000-0000-000000000005}"}',
        b'{"$tuple":{}}',
        b'{"$tuple":[],"$set":[]}',
        b'{"$set":[[]]}',
        b'{"$frozenset":[{}]}',
        b'{"$enum":1,"value":1}',
        b'{"$enum":"x"}',
        b'{"$enum":"x","value":1,"more":1}',
        b'{"$type":1}',
        b'{"$type":"x","$enum":"y"}',
        b'["$",' + b"[" * 150 + b"]" * 150 + b"]",
        b'{"$a":' * 101 + b"1" + b"}" * 101,
        b'{"$$a":' * 101 + b"1" + b"}" * 101,
        b'{"$enum":"x","value":' * 300 + b"1" + b"}" * 300,
        b'{"$type":"x","a":' * 300 + b"1" + b"}" * 300,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_damaged_body_is_reported_as_corrupt(body: bytes) -> None:
    with pytest.raises(Corrupt, match="restore a copy"):
        decode("", body)


@pytest.mark.parametrize("name", ["nowhere:Gone", "nowhere:Gone+", f"{__name__}:Point"])
@pytest.mark.parametrize("body", [b"", b"[1]", b"5", b'{"a":', b"\xff"])
def test_a_damaged_typed_body_is_reported_as_corrupt(name: str, body: bytes) -> None:
    with pytest.raises(Corrupt, match="restore a copy"):
        decode(name, body)


@pytest.mark.parametrize("damage", [b'"\x80":1', b'"z":"\xff"', b'"z":1e999'])
def test_damage_in_a_field_that_the_class_does_not_have_is_corrupt(damage: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(f"{__name__}:Point", b'{"x":1,' + damage + b"}")


def test_a_tag_among_the_fields_of_an_open_body_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode(f"{__name__}:Blob+", b'{"$bytes":""}')


# --- deep immutability ------------------------------------------------------------------------


# fmt: off
IMMUTABLE_HINTS = [
    str, int, float, bool, None, bytes, datetime, date, Decimal, UUID, Color, Literal["a", 1],
    tuple[int, ...], tuple[str, bytes], frozenset[date], int | None, Optional[Point], UserId,  # noqa: UP045
    Point, FrozenFast, FrozenModel, tuple[Point | None, ...], FrozenBlob,
]
MUTABLE_HINTS = [
    list[int], dict[str, int], set[int], Any, object, tuple, frozenset, tuple[list[int], ...],
    Note, Fast, Model, int | list[int], bytearray, T, "Nowhere", Box[int],
]
# fmt: on


def frozen_with(hint: Any) -> type[Any]:
    return dataclasses.make_dataclass("Frozen", [("a", hint)], frozen=True)


@pytest.mark.parametrize(
    "hint",
    IMMUTABLE_HINTS,
    ids=str,
)
def test_a_frozen_class_of_immutable_fields_is_deeply_immutable(hint: Any) -> None:
    assert is_deeply_immutable(frozen_with(hint))


@pytest.mark.parametrize(
    "hint",
    MUTABLE_HINTS,
    ids=str,
)
def test_a_field_that_may_change_makes_a_class_mutable(hint: Any) -> None:
    assert not is_deeply_immutable(frozen_with(hint))


class FrozenExtras(pydantic.BaseModel, frozen=True, extra="allow"):
    a: int


class FrozenPrivate(pydantic.BaseModel, frozen=True):
    a: int
    _b: int = 1


@pytest.mark.parametrize(
    "cls", [Note, Fast, Model, int, str, tuple, Color, Record, FrozenExtras, FrozenPrivate, 5]
)
def test_anything_else_is_not_deeply_immutable(cls: Any) -> None:
    assert not is_deeply_immutable(cls)


@dataclasses.dataclass(frozen=True)
class FrozenChain:
    following: FrozenChain | None


def test_a_class_that_contains_itself_is_judged_by_the_rest() -> None:
    assert is_deeply_immutable(FrozenChain)
    assert is_deeply_immutable(Point)


# --- properties -------------------------------------------------------------------------------

texts = st.text(max_size=8) | st.sampled_from(["$", "$type", "$$x", "$bytes", "value"])
floats = st.floats(allow_nan=False, allow_infinity=False)
plain_scalars = st.none() | st.booleans() | st.integers() | floats | texts
hashables = st.recursive(
    plain_scalars
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
    | st.sampled_from([*Color, *Access, Access.READ | Access.WRITE, Pair.FIRST])
    | st.builds(Point, st.integers(), floats),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
typed = (
    st.builds(Note, texts, floats, st.lists(texts), extra=st.dictionaries(texts, st.integers()))
    | st.builds(Fast, texts, st.integers(), st.lists(st.integers()))
    | st.builds(FrozenModel, a=st.integers(), b=st.lists(texts).map(tuple))
    | st.builds(Hooked, st.integers())
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts, inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.builds(Blob, st.binary(max_size=4), anything=inner)
        | st.builds(Box, inner)
    )


plain_values = st.recursive(
    plain_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)
values = st.recursive(hashables | typed | st.sets(hashables, max_size=4), containers, max_leaves=12)


@given(plain_values)
def test_any_plain_value_survives(value: Any) -> None:
    name, body = encode(value)
    assert name == ""
    back = decode(name, body)
    assert back == value
    assert encode(back) == (name, body)


@given(values)
def test_any_value_survives_and_is_stored_the_same_again(value: Any) -> None:
    name, body = encode(value)
    back = decode(name, body)
    assert back == value
    assert type(back) is type(value)
    assert encode(back) == (name, body)


def reordered(value: Any) -> Any:
    if type(value) is dict:
        return {key: reordered(value[key]) for key in reversed(value)}
    if type(value) is list:
        return [reordered(item) for item in value]
    if type(value) is set:
        return set(sorted(value, key=repr, reverse=True))  # noqa: C414
    return value


@given(st.dictionaries(texts, values, max_size=6))
def test_equal_values_have_equal_bytes_whatever_their_insertion_order(value: Any) -> None:
    assert encode(reordered(value)) == encode(value)


stored_names = st.sampled_from(
    ["", "nowhere:Gone", "nowhere:Gone+"]
    + [
        f"{__name__}:{cls}{mark}"
        for cls in ("Note", "Blob", "Fast", "Model", "OpenModel", "Hooked", "Color", "HookedStruct")
        for mark in ("", "+")
    ]
)


def returns_or_reports(name: str, body: bytes) -> None:
    with contextlib.suppress(Corrupt):
        repr(decode(name, body))


@given(stored_names | st.text(), st.binary())
def test_arbitrary_bytes_are_read_or_reported_as_corrupt(name: str, body: bytes) -> None:
    returns_or_reports(name, body)


TAG_NAMES = ["$bytes", "$datetime", "$date", "$decimal", "$uuid", "$tuple", "$set", "$frozenset"]
json_keys = st.sampled_from([*TAG_NAMES, "$enum", "value", "$type", "$odd", "a", "data", "name"])
json_scalars = plain_scalars | st.sampled_from([f"{__name__}:Blob", f"{__name__}:Color", "red"])
json_nodes = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_keys, inner, max_size=3),
    max_leaves=12,
)


@given(stored_names, json_nodes)
def test_any_well_formed_json_is_read_or_reported_as_corrupt(name: str, node: Any) -> None:
    returns_or_reports(name, msgspec.json.encode(node))


@given(values, st.data())
def test_a_mutated_body_is_read_or_reported_as_corrupt(value: Any, data: st.DataObject) -> None:
    name, body = encode(value)
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 4)))
    patch = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"$", b"[", b"}", b"null"]))
    returns_or_reports(name, body[:start] + patch + body[end:])


_PARTS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.text('ab$é"\\\0\n'), st.booleans(), st.binary()
)


@given(st.dictionaries(st.text("ab$.é", min_size=1), _PARTS | st.tuples(_PARTS, _PARTS)))
def test_keys_have_the_same_bytes_whichever_way_they_are_written(keys: dict[str, Any]) -> None:
    assert keys_to_bytes(keys) == mapping_to_bytes(keys)

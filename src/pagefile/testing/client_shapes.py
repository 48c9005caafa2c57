"""The shapes of bodies and answers, as a client has them: plain structs without the library."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

SHARED = "shared"
_RECORDS = "pagefile.store.records"
_PLAIN = {int: "int", str: "str", float: "float", bool: "bool", bytes: "bytes", Any: "Any"}
_MORE = {
    datetime: "datetime",
    Decimal: "Decimal",
    type(None): "None",
    object: "Any",
    msgspec.UnsetType: "msgspec.UnsetType",
}


def spelled(hint: Any, *, request: bool) -> str:
    """A type without structs, as it is written."""
    return Shapes().spelled_for(hint, "", request=request)


class Shapes:
    """Which structs there are, and which nouns use them."""

    def __init__(self) -> None:
        self._users: dict[type, set[str]] = {}

    @property
    def nouns(self) -> list[str]:
        """The modules that there are."""
        return sorted({self._home(shape) for shape in self._users} - {""})

    def want(self, hint: Any, noun: str) -> None:
        """A noun uses a type, and what is in it."""
        for shape in _structs_in(hint):
            if noun not in self._users.setdefault(shape, set()):
                self._users[shape].add(noun)
                if not _is_record(shape):
                    for field in msgspec.structs.fields(shape):
                        self.want(field.type, noun)

    def _home(self, shape: type) -> str:
        if _is_record(shape):
            return ""
        nouns = self._users[shape]
        return next(iter(nouns)) if len(nouns) == 1 else SHARED

    def spelled_for(self, hint: Any, noun: str, *, request: bool = True) -> str:
        """A type as a call writes it; what a body holds may be a mapping too."""
        self.want(hint, noun)

        def name(shape: type) -> str:
            if _is_record(shape):
                return f"library.{shape.__name__}"
            return f"«{shape.__module__}:{shape.__qualname__}»"

        return _spelled(hint, name, request=request)

    def resolved(self, text: str, *, inside: str = "", outside: str = "") -> str:
        """The same text with every struct called by its module."""
        for shape in self._users:
            mark = f"«{shape.__module__}:{shape.__qualname__}»"
            if mark in text:
                home = self._home(shape)
                own = shape.__name__
                text = text.replace(mark, own if home == inside else f"{outside}{home}.{own}")
        return text

    def files(self) -> dict[str, str]:
        """The text of each module."""
        return {noun: self._module(noun) for noun in self.nouns}

    def _module(self, noun: str) -> str:
        mine = [shape for shape in self._users if self._home(shape) == noun]
        names = [shape.__name__ for shape in mine]
        assert len(set(names)) == len(names), (noun, names)
        imports = [
            "from __future__ import annotations",
            "from collections.abc import Mapping, Sequence",
            "from datetime import datetime",
            "from decimal import Decimal",
            "from typing import Any, Literal",
            "import msgspec",
            "import pagefile.store.records as library",
        ]
        if noun != SHARED and SHARED in self.nouns:
            imports.append("from pagefile.client.shapes import shared")
        parts = [self._struct(shape, noun) for shape in _inner_first(mine)]
        return "\n".join(imports) + "\n\n\n" + "\n\n\n".join(parts) + "\n"

    def _struct(self, shape: type, noun: str) -> str:
        config = shape.__struct_config__  # type: ignore[attr-defined]
        options = ["frozen=True", "kw_only=True", "omit_defaults=True"]
        if config.tag is not None:
            options += [f"tag={config.tag!r}", f"tag_field={config.tag_field!r}"]
        doc = (inspect.getdoc(shape) or "").split("\n\n")[0].replace("\n", " ")
        lines = [f"class {shape.__name__}(msgspec.Struct, {', '.join(options)}):"]
        lines.append(f'    """{doc}"""\n')
        takes = getattr(config, "forbid_unknown_fields", False)
        for field in msgspec.structs.fields(shape):
            hint = _spelled(field.type, self._marked, request=takes)
            lines.append(f"    {field.name}: {hint}{_default(field)}")
        return self.resolved("\n".join(lines), inside=noun)

    @staticmethod
    def _marked(shape: type) -> str:
        if _is_record(shape):
            return f"library.{shape.__name__}"
        return f"«{shape.__module__}:{shape.__qualname__}»"


def _is_record(shape: type) -> bool:
    return shape.__module__ == _RECORDS


def _inner_first(shapes: list[type]) -> list[type]:
    """Structs that are defaults of others stand before them."""
    order: list[type] = []

    def add(shape: type) -> None:
        if shape in order:
            return
        for field in msgspec.structs.fields(shape):
            for inner in _structs_in(field.type):
                if inner in shapes and inner is not shape:
                    add(inner)
        order.append(shape)

    for shape in shapes:
        add(shape)
    return order


def _default(field: Any) -> str:
    if field.required:
        is_renamed = field.encode_name != field.name
        return f" = msgspec.field(name={field.encode_name!r})" if is_renamed else ""
    if field.default_factory is not msgspec.NODEFAULT:
        factory = field.default_factory
        if factory in (list, dict, tuple, set, frozenset):
            return {list: " = []", dict: " = {}"}.get(factory, f" = {factory.__name__}()")
        if isinstance(factory, type) and issubclass(factory, msgspec.Struct):
            return f" = msgspec.field(default_factory={factory.__name__})"
        return ""  # What the server makes up is always told.
    if isinstance(field.default, msgspec.Struct):
        return f" = {type(field.default).__name__}()"
    value = "msgspec.UNSET" if field.default is msgspec.UNSET else repr(field.default)
    if field.encode_name != field.name:
        return f" = msgspec.field(default={value}, name={field.encode_name!r})"
    return f" = {value}"


def _structs_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint) if get_origin(hint) is not Literal else ():
        yield from _structs_in(inner)
    if isinstance(hint, tuple):
        for inner in hint[1:]:
            yield from _structs_in(inner)


def _spelled(hint: Any, name: Any, *, request: bool) -> str:
    origin, args = get_origin(hint), get_args(hint)
    known = _MORE | _PLAIN
    if hint is None or hint in known:
        return known.get(hint, "None")
    if origin is Annotated:
        return _spelled(args[0], name, request=request)
    if origin is Literal:
        if not request:
            # A server that is newer may have more words.
            return "str" if all(isinstance(each, str) for each in args) else "Any"
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin in (types.UnionType, typing.Union):
        parts = [_spelled(each, name, request=request) for each in args]
        return " | ".join(dict.fromkeys(parts))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"{name(hint)} | Mapping[str, Any]" if request else str(name(hint))
    inner = [_spelled(each, name, request=request) for each in args if each is not Ellipsis]
    if origin is collections.abc.Sequence:
        return f"Sequence[{inner[0]}]" if request else f"tuple[{inner[0]}, ...]"
    if origin is list or hint is list:
        return f"{'Sequence' if request else 'list'}[{inner[0] if inner else 'Any'}]"
    if origin is tuple:
        if request:
            return f"Sequence[{inner[0]}]"
        return f"tuple[{', '.join(inner)}{', ...' if Ellipsis in args else ''}]"
    if (
        origin is not None
        and isinstance(origin, type)
        and issubclass(origin, collections.abc.Mapping)
    ):
        return f"{'Mapping' if request else 'dict'}[{', '.join(inner)}]"
    if origin in (set, frozenset):
        return f"list[{inner[0]}]"
    if inspect.isclass(hint) and issubclass(hint, str):
        return "str"
    return "Any"

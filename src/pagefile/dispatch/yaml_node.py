"""A YAML file as nodes that know their lines; nothing in it is executed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pagefile.errors import Invalid, Unsupported, shown

_MOST_BYTES = 1_000_000
_MOST_DEPTH = 20
#: Aliases count as often as they are used: a few lines can stand for more than fits anywhere.
_MOST_NODES = 100_000
#: What the library lets through when a scalar is not what its tag says.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong in a file."""

    line: int
    key: str
    what: str

    def __str__(self) -> str:
        return ": ".join(part for part in (f"line {self.line}", self.key, self.what) if part)


class Node:
    """One value of the file: a mapping, a list or a scalar, with its place."""

    def __init__(self, key: str, line: int, value: Any) -> None:
        self.key = key
        self.line = line
        #: A dict of nodes by name, a list of nodes, or a plain value.
        self.value = value

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


class Reader:
    """Takes nodes apart, and notes everything that is wrong on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.nodes = 0

    def wrong(self, node: Node, what: str) -> None:
        self.problems.append(Problem(node.line, node.key, what))

    def mapping(self, node: Node, known: tuple[str, ...]) -> dict[str, Node]:
        """The members of a mapping; unknown ones are noted and left out."""
        if not isinstance(node.value, dict):
            self.wrong(node, "is no mapping")
            return {}
        for name, member in node.value.items():
            if name not in known:
                self.wrong(member, f"unknown key; known are {', '.join(known)}")
        return {name: member for name, member in node.value.items() if name in known}

    def items(self, node: Node) -> list[Node]:
        """The members of a list."""
        if not isinstance(node.value, list):
            self.wrong(node, "is no list")
            return []
        return node.value

    def scalar(self, node: Node, kind: type | tuple[type, ...], said: str) -> Any:
        """A plain value of a type; None, with a note, when it is another."""
        value = node.value
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.wrong(node, f"{shown(node.plain())} is no {said}")
            return None
        return value


def read_yaml(text: str | bytes, reader: Reader) -> Node | None:
    """The file as nodes; None, with a note, when it is no YAML.

    Raises:
        Unsupported: the library is not installed.
    """
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise Unsupported("PyYAML is not installed", "pip install 'pagefile[yaml]'") from error
    if len(text) > _MOST_BYTES:
        raise Invalid("file", f"has {len(text)} bytes", f"keep it within {_MOST_BYTES}")
    loader: Any = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            reader.problems.append(Problem(1, "", "the file is empty"))
            return None
        return _node("", root, loader, reader, 0)
    except yaml.reader.ReaderError as error:
        line = _line_at(text, error.position)
        _refuse(reader, line, f"is no text ({error.reason})")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        _refuse(reader, line, _syntax(error))
    except RecursionError:
        _refuse(reader, getattr(loader, "line", 0) + 1, "is nested too deep")
    except _UNREADABLE as error:
        _refuse(reader, getattr(loader, "line", 0) + 1, f"is no YAML ({error})")
    finally:
        if loader is not None:
            loader.dispose()
    return None


def _refuse(reader: Reader, line: int, what: str) -> None:
    reader.problems.append(Problem(line, "", what))


def _line_at(text: str | bytes, position: int) -> int:
    """The line of a place that the library counts in bytes or in characters."""
    before = text[:position]
    return 1 + (before.count(b"\n") if isinstance(before, bytes) else before.count("\n"))


def _syntax(error: Exception) -> str:
    """What the parser says, and what most often is behind it."""
    what = str(getattr(error, "problem", None) or "is no YAML")
    if "mapping values are not allowed" in what:
        return f'{what}: put quotes around text with a colon, such as url: "memory:"'
    if "block end" in what:
        return f"{what}: keys of one mapping begin in the same column"
    if "cannot start any token" in what:
        return f"{what}: indent with spaces, and put quotes around text that begins so"
    return what


def _node(key: str, raw: Any, loader: Any, reader: Reader, depth: int) -> Node:
    import yaml

    line = raw.start_mark.line + 1
    node = Node(key, line, None)
    reader.nodes += 1
    if reader.nodes > _MOST_NODES:
        what = f"has more than {_MOST_NODES} values"
        raise yaml.constructor.ConstructorError(None, None, what, raw.start_mark)
    if depth > _MOST_DEPTH:
        reader.wrong(node, "is nested too deep")
    elif isinstance(raw, yaml.MappingNode):
        node.value = dict(_members(key, raw, loader, reader, depth))
    elif isinstance(raw, yaml.SequenceNode):
        node.value = [
            _node(f"{key}[{at}]", one, loader, reader, depth + 1)
            for at, one in enumerate(raw.value)
        ]
    else:
        try:
            node.value = loader.construct_object(raw)
        except _UNREADABLE:
            kind = raw.tag.rpartition(":")[2]
            reader.wrong(node, f"{shown(raw.value)} is no {kind}")
    return node


def _members(
    key: str, raw: Any, loader: Any, reader: Reader, depth: int
) -> Iterator[tuple[str, Node]]:
    import yaml

    seen: set[str] = set()
    for name_node, value_node in raw.value:
        if not isinstance(name_node, yaml.ScalarNode):
            mark = name_node.start_mark
            raise yaml.constructor.ConstructorError(None, None, "a key is no text", mark)
        name = str(name_node.value)
        full = f"{key}.{name}" if key else name
        node = _node(full, value_node, loader, reader, depth + 1)
        node.line = name_node.start_mark.line + 1
        if name in seen:
            reader.wrong(node, "is given twice")
        seen.add(name)
        yield name, node

"""organism.yaml: one loader; every key has an effect, every other one is an error with its line."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pagefile.dispatch.listener import (
    DispatchLimits,
    Listener,
    Listeners,
    Retry,
    listener_of,
    require_limits,
)
from pagefile.dispatch.organism import Organism
from pagefile.dispatch.workers.pool import ProcessPool, executor_at, process_pool
from pagefile.errors import Invalid, NotFound, PagefileError, Unsupported, shown
from pagefile.settings import Settings

# A YAML file as nodes that know their lines; nothing in it is executed.


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


_SECTIONS = ("organism", "backend", "process_pool", "limits", "prompts", "listeners")
_LISTENER = (
    "name",
    "payload_class",
    "handler",
    "description",
    "agent",
    "peers",
    "broadcast",
    "prompt",
    "cpu_bound",
    "timeout_seconds",
    "retry",
)
_LIMITS = tuple(DispatchLimits.__struct_fields__)
_MOST_PROMPT = 100_000


class OrganismFile(msgspec.Struct, frozen=True):
    """What a file says, checked."""

    name: str
    url: str
    tenant: str
    limits: DispatchLimits
    listeners: tuple[Listener, ...]
    process_pool: ProcessPool | None = None
    executor: str = ""
    register_calls: bool = False

    def organism(self) -> Organism:
        """The organism that the file describes; leaving it closes its store."""
        made = Organism(
            self.url,
            tenant=self.tenant,
            name=self.name,
            limits=self.limits,
            process_pool=self.process_pool,
            executor=self.executor or None,
            register_calls=self.register_calls,
        )
        for listener in self.listeners:
            made.register(listener)
        return made


def load(file: str | os.PathLike[str]) -> OrganismFile:
    """Read a file.

    Raises:
        Invalid: something in it is wrong; says what, with lines and keys.
        NotFound: there is no such file.
    """
    found, problems = _read(Path(file))
    if problems or found is None:
        lines = "; ".join(str(problem) for problem in problems)
        raise Invalid(os.fspath(file), lines, "mend the file")
    return found


def check(file: str | os.PathLike[str]) -> list[Problem]:
    """Everything that is wrong in a file; nothing when it can be run."""
    return _read(Path(file))[1]


def _read(path: Path) -> tuple[OrganismFile | None, list[Problem]]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{str(path)!r} cannot be read ({error.strerror})", "name a file") from error
    except ValueError as error:
        raise Invalid("file", f"{shown(str(path))} is no path ({error})", "name a file") from error
    reader = Reader()
    root = read_yaml(text, reader)
    if root is None:
        return None, reader.problems
    found = _Parts(reader, path.parent).all(root)
    return found, sorted(reader.problems, key=lambda problem: problem.line)


class _Parts:
    """Reads section by section; goes on after an error, to find them all."""

    def __init__(self, reader: Reader, folder: Path) -> None:
        self._reader = reader
        self._folder = folder

    def all(self, root: Node) -> OrganismFile | None:
        sections = self._reader.mapping(root, _SECTIONS)
        for needed in ("organism", "listeners"):
            if needed not in sections:
                self._reader.problems.append(Problem(1, needed, "is missing"))
        name, register_calls = self._organism(sections.get("organism"))
        url, tenant = self._backend(sections.get("backend"))
        pool, executor = self._pool(sections.get("process_pool"), url)
        limits = self._limits(sections.get("limits"))
        prompts = self._prompts(sections.get("prompts"))
        listeners = self._listeners(sections.get("listeners"), prompts, pool is not None)
        if self._reader.problems:
            return None
        return OrganismFile(
            name, url, tenant, limits, tuple(listeners), pool, executor, register_calls
        )

    def _organism(self, node: Node | None) -> tuple[str, bool]:
        if node is None:
            return "", False
        members = self._reader.mapping(node, ("name", "register_calls"))
        registers = False
        if "register_calls" in members:
            said = self._reader.scalar(members["register_calls"], bool, "truth value")
            registers = said is True
        if "name" not in members:
            self._reader.wrong(node, "name is missing")
            return "", registers
        return self._named(members["name"]), registers

    def _backend(self, node: Node | None) -> tuple[str, str]:
        settings = Settings.from_environment()
        if node is None:
            return settings.url, settings.tenant
        members = self._reader.mapping(node, ("url", "tenant"))
        url, tenant = settings.url, settings.tenant
        if "url" in members:
            url = self._named(members["url"])
            if url and self._has_password(members["url"], url):
                self._reader.wrong(
                    members["url"], "holds a password: leave url out, and set PAGEFILE_URL"
                )
        if "tenant" in members:
            tenant = self._named(members["tenant"])
        return url, tenant

    def _named(self, node: Node) -> str:
        """A text that is not empty; "" when it is wrong."""
        said = self._reader.scalar(node, str, "text")
        if said == "":
            self._reader.wrong(node, "is empty")
        return str(said or "")

    def _has_password(self, node: Node, url: str) -> bool:
        try:
            return urlsplit(url).password is not None
        except ValueError as error:
            self._reader.wrong(node, f"is no address ({error})")
            return False

    def _pool(self, node: Node | None, url: str) -> tuple[ProcessPool | None, str]:
        if node is None:
            return None, ""
        members = self._reader.mapping(
            node, ("enabled", "workers", "max_tasks_per_child", "grace_seconds", "executor")
        )
        # The section itself turns the pool on.
        enabled = True
        if "enabled" in members:
            enabled = self._reader.scalar(members["enabled"], bool, "truth value") is not False
        values: dict[str, Any] = {}
        if "grace_seconds" in members:
            seconds = self._reader.scalar(members["grace_seconds"], (int, float), "number")
            values["grace_seconds"] = 1.0 if seconds is None else seconds
        for name in ("workers", "max_tasks_per_child"):
            if name in members:
                number = self._reader.scalar(members[name], int, "whole number")
                values[name] = 1 if number is None else number
        executor = ""
        if "executor" in members:
            executor = str(self._reader.scalar(members["executor"], str, "text") or "")
            if "://" not in executor:
                self._reader.wrong(members["executor"], "is no address such as dask://host:port")
            else:
                self._attempt(members["executor"], lambda: executor_at(executor))
            if "max_tasks_per_child" in members:
                self._reader.wrong(
                    members["max_tasks_per_child"], "has no effect on the processes of an executor"
                )
        if not enabled:
            return None, ""
        if url == "memory:":
            self._reader.wrong(node, "needs a store that other processes can open, not memory:")
        pool = ProcessPool(**values)
        self._attempt(node, lambda: process_pool(pool))
        return pool, executor

    def _limits(self, node: Node | None) -> DispatchLimits:
        values: dict[str, Any] = {}
        if node is not None:
            for name, member in self._reader.mapping(node, _LIMITS).items():
                values[name] = member.plain()
                self._attempt(member, partial(_require_limit, name, values[name]))
        return DispatchLimits() if self._reader.problems else DispatchLimits(**values)

    def _prompts(self, node: Node | None) -> dict[str, str]:
        prompts: dict[str, str] = {}
        if node is None:
            return prompts
        if not isinstance(node.value, dict):
            self._reader.wrong(node, "is no mapping")
            return prompts
        for name, member in node.value.items():
            if isinstance(member.value, dict):
                members = self._reader.mapping(member, ("file",))
                prompts[name] = self._prompt_file(members["file"]) if "file" in members else ""
                continue
            prompts[name] = str(self._reader.scalar(member, str, "text") or "")
        return prompts

    def _prompt_file(self, node: Node) -> str:
        name = self._reader.scalar(node, str, "text")
        if name is None:
            return ""
        try:
            path = (self._folder / str(name)).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            self._reader.wrong(node, f"is no path ({error})")
            return ""
        if not path.is_relative_to(self._folder.resolve()):
            self._reader.wrong(node, "lies outside the folder of this file")
            return ""
        try:
            text: str = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._reader.wrong(node, f"cannot be read ({error})")
            return ""
        if len(text) > _MOST_PROMPT:
            self._reader.wrong(node, f"has more than {_MOST_PROMPT} characters")
        return text

    def _listeners(
        self, node: Node | None, prompts: dict[str, str], has_pool: bool
    ) -> list[Listener]:
        found: list[Listener] = []
        if node is None:
            return found
        known = Listeners()
        peers: list[tuple[Node, str]] = []
        for item in self._reader.items(node):
            members = self._reader.mapping(item, _LISTENER)
            listener = self._listener(item, members, prompts)
            if listener is None:
                continue
            if listener.mode == "pool" and not has_pool:
                self._reader.wrong(members["cpu_bound"], "needs a process_pool")
            self._attempt(members.get("name", item), partial(known.add, listener))
            found.append(listener)
            peers += [(members["peers"], peer) for peer in listener.peers]
        for member, peer in peers:
            if peer not in known:
                self._reader.wrong(member, f"there is no listener {shown(peer)}")
        return found

    def _listener(
        self, item: Node, members: dict[str, Node], prompts: dict[str, str]
    ) -> Listener | None:
        reader = self._reader
        before = len(reader.problems)
        missing = [name for name in ("name", "payload_class", "handler") if name not in members]
        for name in missing:
            reader.wrong(item, f"{name} is missing")
        options: dict[str, Any] = {}
        for name, kind, said in (
            ("description", str, "text"),
            ("agent", bool, "truth value"),
            ("broadcast", bool, "truth value"),
            ("cpu_bound", bool, "truth value"),
        ):
            if name in members:
                options[name] = reader.scalar(members[name], kind, said)
        if "timeout_seconds" in members:
            options["timeout"] = reader.scalar(members["timeout_seconds"], (int, float), "number")
        if "peers" in members:
            nodes = reader.items(members["peers"])
            options["peers"] = [reader.scalar(one, str, "name") for one in nodes]
        if "prompt" in members:
            name = reader.scalar(members["prompt"], str, "name")
            if name is not None and name not in prompts:
                reader.wrong(members["prompt"], f"there is no prompt {shown(name)}")
            options["prompt"] = prompts.get(name or "", "")
        if "retry" in members:
            options["retry"] = self._retry(members["retry"])
        handler = self._imported(members["handler"]) if "handler" in members else None
        payload = self._imported(members["payload_class"]) if "payload_class" in members else None
        if len(reader.problems) > before:
            return None
        assert handler is not None
        name = members["name"].plain()
        make = partial(listener_of, handler, name, payload=payload, **options)
        made: Listener | None = self._attempt(members["name"], make)
        return made

    def _retry(self, node: Node) -> Retry:
        members = self._reader.mapping(node, tuple(Retry.__struct_fields__))
        values: dict[str, Any] = {}
        for name, member in members.items():
            kind: type | tuple[type, ...] = int if name == "attempts" else (int, float)
            values[name] = self._reader.scalar(member, kind, "number")
        return Retry() if None in values.values() else Retry(**values)

    def _imported(self, node: Node) -> Any:
        """What `module:name` or `module.name` leads to."""
        said = self._reader.scalar(node, str, "name")
        if said is None:
            return None
        module, _, name = said.rpartition(":" if ":" in said else ".")
        if not module or not name:
            self._reader.wrong(node, f"{shown(said)} is no module:name")
            return None
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # noqa: BLE001 - a module does what it likes when it is imported
            said = str(error) if isinstance(error, ImportError) else repr(error)
            self._reader.wrong(node, f"cannot be imported ({said})")
            return None
        return found

    def _attempt(self, node: Node, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except PagefileError as error:
            self._reader.wrong(node, str(error))
            return None


def _require_limit(name: str, value: Any) -> None:
    require_limits(DispatchLimits(**{name: value}))

"""organism.yaml: one loader; every key has an effect, every other one is an error with its line."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pagefile.dispatch.limits import DispatchLimits, require_limits
from pagefile.dispatch.listener import Listener, Listeners, listener_of
from pagefile.dispatch.organism import Organism
from pagefile.dispatch.retry import Retry
from pagefile.dispatch.workers.executors import executor_at
from pagefile.dispatch.workers.pool import ProcessPool, process_pool
from pagefile.dispatch.yaml_node import Node, Problem, Reader, read_yaml
from pagefile.errors import Invalid, NotFound, PagefileError, shown
from pagefile.settings import Settings

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

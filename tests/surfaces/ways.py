"""The same store, reached in different ways: what the behavioural tests are run through.

A way is a surface seen from outside: plain values in, plain values out, and a
refusal as the code that it has everywhere. A surface that does not offer
something leaves it out of `offers`; tests about it are skipped by name.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pagefile.errors import PagefileError

#: Everything that a way may offer.
EVERYTHING = frozenset({"memory", "threads", "forks", "runs", "exports", "verification"})


class Refused(Exception):
    """A call was refused; `code` is the same word in whichever way it was made."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code


class Way(Protocol):
    """What can be done in every way that offers it, for one tenant of one store."""

    offers: ClassVar[frozenset[str]]

    def add(
        self, text: str, *, user: str, session: str = "s", identity: str | None = None
    ) -> str: ...

    def search(self, query: str, *, user: str, limit: int = 10) -> list[dict[str, Any]]:
        """Each with `id`, `kind` and `memory`."""
        ...

    def get(self, identity: str, *, user: str) -> dict[str, Any]:
        """With `kind` and `text`."""
        ...

    def update(self, identity: str, text: str, *, user: str) -> None: ...

    def forget(self, *, user: str, session: str | None = None, dry_run: bool = False) -> int: ...

    def append(
        self,
        thread: str,
        payload: Any,
        *,
        sender: str = "user",
        key: str = "",
        expected_len: int | None = None,
    ) -> int:
        """The index of the slot."""
        ...

    def thread(self, thread: str) -> list[Any]:
        """The payloads."""
        ...

    def fork(self, thread: str, new_id: str, *, at: int | None = None) -> str: ...

    def boot(self, run: str, objective: str) -> None: ...

    def patch(self, run: str, patch: dict[str, Any]) -> dict[str, Any]:
        """The working set that results."""
        ...

    def working_set(self, run: str) -> dict[str, Any]: ...

    def events(self, run: str) -> list[str]:
        """The types of a run's events."""
        ...

    def export(self, *, user: str) -> bytes: ...

    def take_in(self, exported: bytes) -> int: ...

    def verified(self) -> bool: ...

    def close(self) -> None: ...


class LibraryWay:
    """The library itself."""

    offers: ClassVar[frozenset[str]] = EVERYTHING

    def __init__(self, url: str, tenant: str) -> None:
        from pagefile.handle import open as open_pagefile

        self._pf = open_pagefile(url, tenant=tenant)

    def close(self) -> None:
        self._pf.close()

    def add(self, text: str, *, user: str, session: str = "s", identity: str | None = None) -> str:
        from pagefile.memory.episodes.episode import Episode

        with _refusing():
            named: dict[str, Any] = {} if identity is None else {"id": identity}
            return self._pf.memory.remember(
                Episode(session_id=session, user_id=user, input=text, **named)
            )

    def search(self, query: str, *, user: str, limit: int = 10) -> list[dict[str, Any]]:
        with _refusing():
            found = self._pf.memory.search(query, user_id=user, limit=limit)
        return [{"id": m.id, "kind": m.kind, "memory": m.text} for m in found]

    def get(self, identity: str, *, user: str) -> dict[str, Any]:
        with _refusing():
            found = self._pf.memory.why(identity, user_id=user)
        return {"kind": found.kind, "text": found.text}

    def update(self, identity: str, text: str, *, user: str) -> None:
        import msgspec

        with _refusing():
            known = self._pf.memory.episode(identity, user_id=user)
            self._pf.memory.remember(msgspec.structs.replace(known, input=text, embedding=None))

    def forget(self, *, user: str, session: str | None = None, dry_run: bool = False) -> int:
        with _refusing():
            return int(self._pf.memory.forget(user_id=user, session_id=session, dry_run=dry_run))

    def append(
        self,
        thread: str,
        payload: Any,
        *,
        sender: str = "user",
        key: str = "",
        expected_len: int | None = None,
    ) -> int:
        with _refusing():
            slot = self._pf.context.append(
                thread, payload, sender, "agent", key=key, expected_len=expected_len
            )
        return slot.index

    def thread(self, thread: str) -> list[Any]:
        with _refusing():
            return [slot.payload for slot in self._pf.context.get_thread_slots(thread)]

    def fork(self, thread: str, new_id: str, *, at: int | None = None) -> str:
        with _refusing():
            return self._pf.context.fork(thread, at, new_id=new_id)

    def boot(self, run: str, objective: str) -> None:
        with _refusing():
            self._pf.runs.boot(objective, run_id=run)

    def patch(self, run: str, patch: dict[str, Any]) -> dict[str, Any]:
        with _refusing():
            result = self._pf.runs.open(run).apply_patch(patch)
        if result.new_ws is None:
            raise Refused(result.code or "", result.error or "")
        return result.new_ws

    def working_set(self, run: str) -> dict[str, Any]:
        with _refusing():
            return self._pf.runs.open(run).load()

    def events(self, run: str) -> list[str]:
        with _refusing():
            return [event["event_type"] for event in self._pf.runs.open(run).ledger]

    def export(self, *, user: str) -> bytes:
        with _refusing():
            return b"".join(self._pf.memory.export(user_id=user))

    def take_in(self, exported: bytes) -> int:
        with _refusing():
            return self._pf.memory.import_(exported.splitlines(keepends=True)).records

    def verified(self) -> bool:
        return bool(self._pf.verify()) and bool(self._pf.check())


class CommandLineWay:
    """The command line, as a program uses it: `--json`, exit statuses, one process per call.

    The calls are made in this process, which is the same but for the time it takes to start.
    """

    offers: ClassVar[frozenset[str]] = EVERYTHING

    def __init__(self, url: str, tenant: str) -> None:
        self._where = ["--url", url, "--tenant", tenant]

    def close(self) -> None:
        pass

    def _run(self, *words: str) -> Any:
        from pagefile.surfaces.cli import main

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([*self._where, "--json", *words])
        told = json.loads(out.getvalue())
        if told["status"] == "error":
            assert status != 0, told
            raise Refused(told["error"]["code"], told["error"]["fact"])
        return told["data"]

    def add(self, text: str, *, user: str, session: str = "s", identity: str | None = None) -> str:
        named = [] if identity is None else ["--id", identity]
        told = self._run("add", "--user", user, "--session", session, *named, "--", text)
        return str(told[0]["id"])

    def search(self, query: str, *, user: str, limit: int = 10) -> list[dict[str, Any]]:
        found = self._run("search", "--user", user, "--limit", str(limit), "--", query)
        return [{name: each[name] for name in ("id", "kind", "memory")} for each in found]

    def get(self, identity: str, *, user: str) -> dict[str, Any]:
        found = self._run("get", "--user", user, "--", identity)
        return {"kind": found["kind"], "text": found["text"]}

    def update(self, identity: str, text: str, *, user: str) -> None:
        self._run("update", "--user", user, "--", identity, text)

    def forget(self, *, user: str, session: str | None = None, dry_run: bool = False) -> int:
        which = [] if session is None else ["--session", session]
        how = "--dry-run" if dry_run else "--yes"
        return int(self._run("forget", "--user", user, *which, how)["forgotten"])

    def append(
        self,
        thread: str,
        payload: Any,
        *,
        sender: str = "user",
        key: str = "",
        expected_len: int | None = None,
    ) -> int:
        options = ["--payload", "--from", sender]
        options += ["--key", key] if key else []
        options += [] if expected_len is None else ["--expected-len", str(expected_len)]
        told = self._run("threads", "append", *options, "--", thread, json.dumps(payload))
        return int(told["index"])

    def thread(self, thread: str) -> list[Any]:
        return [each["payload"] for each in self._run("threads", "show", "--", thread)]

    def fork(self, thread: str, new_id: str, *, at: int | None = None) -> str:
        where = [] if at is None else ["--at", str(at)]
        told = self._run("threads", "fork", "--id", new_id, *where, "--", thread)
        return str(told["thread_id"])

    def boot(self, run: str, objective: str) -> None:
        self._run("runs", "boot", "--id", run, "--", objective)

    def patch(self, run: str, patch: dict[str, Any]) -> dict[str, Any]:
        told = self._run("runs", "patch", "--", run, json.dumps(patch))
        if not told["ok"]:
            raise Refused(told["code"], told["error"])
        made: dict[str, Any] = told["ws"]
        return made

    def working_set(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self._run("runs", "show", run)
        return found

    def events(self, run: str) -> list[str]:
        return [event["event_type"] for event in self._run("ledger", run, "--limit", "1000")]

    def export(self, *, user: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "export.jsonl")
            self._run("export", "--user", user, str(path))
            return path.read_bytes()

    def take_in(self, exported: bytes) -> int:
        with tempfile.NamedTemporaryFile() as file:
            file.write(exported)
            file.flush()
            return int(self._run("import", file.name)["records"])

    def verified(self) -> bool:
        return bool(self._run("verify")["ok"] and self._run("check")["ok"])


class McpWay:
    """The MCP server, through the SDK's client; the server runs in this process."""

    offers: ClassVar[frozenset[str]] = frozenset({"memory", "threads"})

    def __init__(self, url: str, tenant: str) -> None:
        from anyio.from_thread import start_blocking_portal
        from mcp import Client

        from pagefile.handle import Admin
        from pagefile.surfaces.mcp import Identity, mcp_service
        from pagefile.surfaces.mcp.server import server_of

        with contextlib.ExitStack() as opened:
            admin = opened.enter_context(Admin(url))
            every = frozenset({"read", "write", "admin"})
            server = server_of(mcp_service(admin), Identity(tenant, rights=every))
            self._portal = opened.enter_context(start_blocking_portal())
            client = self._portal.wrap_async_context_manager(Client(server))
            self._client = opened.enter_context(client)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def _call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        answer = self._portal.call(self._client.call_tool, name, arguments)
        if answer.is_error:
            told = json.loads(answer.content[0].text)
            raise Refused(told["code"], told["fact"])
        assert json.loads(answer.content[0].text) == answer.structured_content
        made: dict[str, Any] = answer.structured_content
        return made

    def add(self, text: str, *, user: str, session: str = "s", identity: str | None = None) -> str:
        told = self._call(
            "add_memory", text=text, user_id=user, session_id=session, memory_id=identity
        )
        return str(told["id"])

    def search(self, query: str, *, user: str, limit: int = 10) -> list[dict[str, Any]]:
        found = self._call("search_memory", query=query, user_id=user, limit=limit)["memories"]
        return [{name: each[name] for name in ("id", "kind", "memory")} for each in found]

    def get(self, identity: str, *, user: str) -> dict[str, Any]:
        found = self._call("get_memory", memory_id=identity, user_id=user)
        return {"kind": found["kind"], "text": found["text"]}

    def update(self, identity: str, text: str, *, user: str) -> None:
        self._call("update_memory", memory_id=identity, text=text, user_id=user)

    def forget(self, *, user: str, session: str | None = None, dry_run: bool = False) -> int:
        which = {"everything": True} if session is None else {"session_id": session}
        return int(self._call("forget", user_id=user, dry_run=dry_run, **which)["forgotten"])

    def append(
        self,
        thread: str,
        payload: Any,
        *,
        sender: str = "user",
        key: str = "",
        expected_len: int | None = None,
    ) -> int:
        told = self._call(
            "append_message",
            thread_id=thread,
            payload=payload,
            sender=sender,
            key=key,
            expected_len=expected_len,
        )
        return int(told["index"])

    def thread(self, thread: str) -> list[Any]:
        told = self._call("get_thread", thread_id=thread, limit=1_000, max_tokens=100_000)
        return [each["payload"] for each in told["messages"]]

    def fork(self, thread: str, new_id: str, *, at: int | None = None) -> str:
        raise NotImplementedError

    def boot(self, run: str, objective: str) -> None:
        raise NotImplementedError

    def patch(self, run: str, patch: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def working_set(self, run: str) -> dict[str, Any]:
        raise NotImplementedError

    def events(self, run: str) -> list[str]:
        raise NotImplementedError

    def export(self, *, user: str) -> bytes:
        raise NotImplementedError

    def take_in(self, exported: bytes) -> int:
        raise NotImplementedError

    def verified(self) -> bool:
        raise NotImplementedError


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """What the library raises, as every way tells it."""
    try:
        yield
    except PagefileError as error:
        raise Refused(error.code, error.fact) from error

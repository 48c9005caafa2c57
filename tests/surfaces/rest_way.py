"""The REST way: a real server in a process of its own, reached through the client."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import io
import tempfile
from collections.abc import Iterator
from typing import Any, ClassVar

from pagefile.client import Client
from pagefile.errors import PagefileError
from tests.surfaces.ways import EVERYTHING, Refused


@functools.cache
def _server() -> tuple[str, str]:
    """The address of one server for all tests of this process, and its store."""
    from tests.servers.http import HttpServer

    stack = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pagefile-rest-"))
    server = stack.enter_context(HttpServer(f"{folder}/store.db"))
    atexit.register(stack.close)
    return server.base, f"{folder}/store.db"


@functools.cache
def _key(tenant: str) -> str:
    from pagefile.handle import Admin
    from pagefile.surfaces.access.keys import KeyStore

    with Admin(_server()[1]) as admin:
        return KeyStore(admin).create(tenant, ("read", "write", "admin")).secret


class RestWay:
    """REST, as a program uses it. A tenant of a store is a tenant of the server's own."""

    offers: ClassVar[frozenset[str]] = EVERYTHING

    def __init__(self, url: str, tenant: str) -> None:
        own = hashlib.sha256(f"{url}\n{tenant}".encode()).hexdigest()[:16]
        self._client = Client(_server()[0], api_key=_key(own))

    def close(self) -> None:
        self._client.close()

    def add(self, text: str, *, user: str, session: str = "s", identity: str | None = None) -> str:
        with _refusing():
            return self._client.episodes.remember(session, input=text, user_id=user, id=identity).id

    def search(self, query: str, *, user: str, limit: int = 10) -> list[dict[str, Any]]:
        with _refusing():
            found = self._client.memory.search(query, user_id=user, limit=limit)
        return [{"id": m.id, "kind": m.kind, "memory": m.text} for m in found.items]

    def get(self, identity: str, *, user: str) -> dict[str, Any]:
        with _refusing():
            found = self._client.memory.why(identity, user_id=user)
        return {"kind": found.kind, "text": found.text}

    def update(self, identity: str, text: str, *, user: str) -> None:
        with _refusing():
            known = self._client.episodes.get(identity, user_id=user)
            self._client.episodes.remember(
                known.session_id,
                input=text,
                output=known.output,
                id=known.id,
                user_id=user,
                occurred_at=known.occurred_at,
            )

    def forget(self, *, user: str, session: str | None = None, dry_run: bool = False) -> int:
        with _refusing():
            return self._client.privacy.forget(
                user_id=user, session_id=session, dry_run=dry_run
            ).count

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
            slot = self._client.threads.append(
                thread,
                payload,
                sender,
                "agent",
                expected_len=expected_len,
                idempotency_key=key or None,
            )
        return slot.index

    def thread(self, thread: str) -> list[Any]:
        with _refusing():
            client = self._client
            return [slot.payload for slot in client.every(client.threads.slots, thread)]

    def fork(self, thread: str, new_id: str, *, at: int | None = None) -> str:
        with _refusing():
            return self._client.threads.fork(thread, at=at, new_id=new_id).thread_id

    def boot(self, run: str, objective: str) -> None:
        with _refusing():
            self._client.runs.boot(objective, run_id=run)

    def patch(self, run: str, patch: dict[str, Any]) -> dict[str, Any]:
        with _refusing():
            return self._client.runs.patch(
                run, set=patch["set"], expected_seq=patch["expected_seq"]
            ).ws

    def working_set(self, run: str) -> dict[str, Any]:
        with _refusing():
            return self._client.runs(run).load()

    def events(self, run: str) -> list[str]:
        with _refusing():
            client = self._client
            return [event["event_type"] for event in client.every(client.ledger.read, run)]

    def export(self, *, user: str) -> bytes:
        exported = io.BytesIO()
        with _refusing():
            self._client.privacy.export(exported, user_id=user)
        return exported.getvalue()

    def take_in(self, exported: bytes) -> int:
        with _refusing():
            return self._client.privacy.import_(exported).records

    def verified(self) -> bool:
        with _refusing():
            return self._client.store.verify().ok and self._client.store.check().ok


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """What the client raises, as every way tells it."""
    try:
        yield
    except PagefileError as error:
        raise Refused(error.code, error.fact) from error

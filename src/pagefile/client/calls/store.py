"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Any, Literal

import pagefile.store.records as library
from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.page import Page
from pagefile.client.request import asked, given


class Store:
    """Routes about store; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def stats(self) -> library.Stats:
        """Numbers about the tenant, and the engine that holds it."""
        ask = asked("GET", "/v1/store/stats", is_safe=True)
        return self._link.send(ask, library.Stats)

    def head(self) -> shapes.store.HeadShown:
        """The last position, and the digest of everything up to it."""
        ask = asked("GET", "/v1/store/head", is_safe=True)
        return self._link.send(ask, shapes.store.HeadShown)

    def verify(
        self, *, position: int | None = None, digest: str | None = None
    ) -> shapes.store.ReportShown:
        """Walk the hash chain of the tenant; with a head kept elsewhere, prove that nothing is
        cut."""
        ask = asked(
            "POST", "/v1/store/verify", body=given(position=position, digest=digest), is_safe=True
        )
        return self._link.send(ask, shapes.store.ReportShown)

    def check(self) -> shapes.store.ReportShown:
        """Examine the engine's structures: files, indexes, counters."""
        ask = asked("POST", "/v1/store/check", is_safe=True)
        return self._link.send(ask, shapes.store.ReportShown)

    def changes(self, *, limit: int = 100, cursor: str | None = None) -> shapes.store.Changes:
        """What happened, commit by commit, erasures included."""
        ask = asked(
            "GET", "/v1/store/changes", query=given(limit=limit, cursor=cursor), is_safe=True
        )
        return self._link.send(ask, shapes.store.Changes)

    def names(
        self,
        kind: Literal["log", "document"],
        *,
        prefix: str = "",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[str]:
        """Names of living logs or documents, in order."""
        ask = asked(
            "GET",
            "/v1/store/names",
            query={"kind": kind, **given(prefix=prefix, limit=limit, cursor=cursor)},
            is_safe=True,
        )
        return self._link.send(ask, Page[str])

    def document(
        self, name: str, *, version: int | None = None, at: int | None = None
    ) -> shapes.store.Stored:
        """A document now, at a version, or as of a position."""
        ask = asked(
            "GET",
            "/v1/store/document",
            query={"name": name, **given(version=version, at=at)},
            is_safe=True,
        )
        return self._link.send(ask, shapes.store.Stored)

    def document_history(
        self, name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[dict[str, Any]]:
        """Versions of a document, oldest first."""
        ask = asked(
            "GET",
            "/v1/store/document/history",
            query={"name": name, **given(limit=limit, cursor=cursor)},
            is_safe=True,
        )
        return self._link.send(ask, Page[dict[str, Any]])

    def log(
        self, name: str, *, limit: int = 100, cursor: str | None = None, at: int | None = None
    ) -> Page[dict[str, Any]]:
        """Entries of a log, oldest first, now or as of a position."""
        ask = asked(
            "GET",
            "/v1/store/log",
            query={"name": name, **given(limit=limit, cursor=cursor, at=at)},
            is_safe=True,
        )
        return self._link.send(ask, Page[dict[str, Any]])

    def vectors(self, *, user_id: str | None = None) -> shapes.store.VectorsShown:
        """Where a user's vectors are, and how far the vector arm lags behind."""
        ask = asked(
            "GET", "/v1/store/vectors", query=given(user_id=self._link.user(user_id)), is_safe=True
        )
        return self._link.send(ask, shapes.store.VectorsShown)

    def sync_vectors(self, *, idempotency_key: str | None = None) -> shapes.store.Synced:
        """Bring the vector arm of the tenant up to date."""
        ask = asked("POST", "/v1/store/vectors/sync", key=idempotency_key)
        return self._link.send(ask, shapes.store.Synced)

    def reindex(self, *, idempotency_key: str | None = None) -> dict[str, int]:
        """Make the search index anew, with the embedder of this server."""
        ask = asked("POST", "/v1/store/reindex", key=idempotency_key)
        return self._link.send(ask, dict[str, int])

"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.request import asked, given


class Server:
    """Routes about server; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def health(self) -> shapes.server.Health:
        """Whether the process answers; touches nothing."""
        ask = asked("GET", "/health", is_safe=True)
        return self._link.send(ask, shapes.server.Health)

    def ready(self) -> shapes.server.Health:
        """Whether the store answers too."""
        ask = asked("GET", "/ready", is_safe=True)
        return self._link.send(ask, shapes.server.Health)

    def metrics(self) -> str:
        """Counters of all its processes; for those who operate the server."""
        ask = asked("GET", "/metrics", is_safe=True)
        return self._link.text(ask)

    def whoami(self) -> shapes.server.WhoAmI:
        """Whose key this is, and what it may do."""
        ask = asked("GET", "/v1/whoami", is_safe=True)
        return self._link.send(ask, shapes.server.WhoAmI)

    def refusals(self, *, limit: int = 100, cursor: str | None = None) -> shapes.server.Refusals:
        """Requests that were refused; for those who operate the server."""
        ask = asked("GET", "/v1/refusals", query=given(limit=limit, cursor=cursor), is_safe=True)
        return self._link.send(ask, shapes.server.Refusals)

"""What one tenant's part of a transaction is still to write, and its way to the server.

Statements are collected and sent together: a round trip costs more than most of
them. Only a question that depends on what was collected sends it earlier.
"""

from __future__ import annotations

from typing import Any, Protocol

#: A named query and its parameters.
Statement = tuple[str, Any]


class Door(Protocol):
    """The writing connection, as a tenant's transaction sees it."""

    def fetch(self, tenant: str, name: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Ask; outside the tenant's turn the answer counts only if the commit succeeds."""

    def write(self, tenant: str, statements: list[Statement]) -> None:
        """Write inside the tenant's turn, which is taken if it was not yet."""


class Pending:
    """Statements of one tenant. The tenant's number is put before their parameters."""

    def __init__(self, door: Door, tenant: str, number: int) -> None:
        self._door = door
        self.tenant = tenant
        #: The tenant's number, or 0 before its first commit.
        self.number = number
        self.statements: list[Statement] = []

    def add(self, name: str, *parameters: Any) -> None:
        """Collect a statement."""
        self.statements.append((name, (self.number, *parameters)))

    def read(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask what does not depend on anything collected."""
        if not self.number:
            return []
        return self._door.fetch(self.tenant, name, (self.number, *parameters))

    def read_after(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask after everything collected is written."""
        self.write_out()
        return self.read(name, *parameters)

    def write_out(self) -> None:
        """Send what was collected."""
        if self.statements:
            statements, self.statements = self.statements, []
            self._door.write(self.tenant, statements)

    def create_tenant(self) -> None:
        """Give the tenant its number."""
        self._door.write(self.tenant, [])  # Takes the turn: two may have the same idea.
        self.number = int(self._door.fetch(self.tenant, "add_tenant", (self.tenant,))[0][0])

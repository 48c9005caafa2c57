"""What a command is given: who asks, which store, where to print."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagefile.errors import Invalid, NotFound, shown
from pagefile.settings import Settings
from pagefile.surfaces.cli.envelope import masked
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    import typer

    from pagefile.handle import Admin, Pagefile


class Call:
    """One run of the program: the options that every command takes, and what follows from them."""

    def __init__(self) -> None:
        self.command = ""
        self.json = False
        self.debug = False
        self.screen = Screen()
        self._began = time.perf_counter()
        #: The options that were given, of those that name something.
        self.given: dict[str, str] = {}

    @staticmethod
    def of(context: typer.Context) -> Call:
        """The call that a command is run by."""
        call = context.find_root().obj
        assert isinstance(call, Call)
        call.command = context.command_path.partition(" ")[2]
        return call

    def choose(self, name: str, value: Any) -> None:
        """Note an option that was given, before the command or behind it."""
        if name == "quiet":
            self.screen.quiet = value
        elif name in ("json", "debug"):
            setattr(self, name, value)
        else:
            self.given[name] = value

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.perf_counter() - self._began

    @property
    def url(self) -> str:
        """The store that is meant."""
        given = self.given.get("url")
        return Settings.from_environment().store_url() if given is None else given

    @property
    def tenant(self) -> str:
        given = self.given.get("tenant")
        return Settings.from_environment().tenant if given is None else given

    @property
    def user(self) -> str | None:
        """Whose memories are meant; None is the bucket of nobody."""
        given = self.given.get("user")
        return given if given is not None else Settings.from_environment().user or None

    def require_user(self, *, nobody: bool) -> str | None:
        """Whose memories are meant, said in so many words, for what cannot be undone."""
        if self.user is None and not nobody:
            raise Invalid("user", "nobody is named", "give --user NAME, or --nobody for no user's")
        if self.user is not None and nobody:
            raise Invalid("user", f"{shown(self.user)} and --nobody", "give one of the two")
        return self.user

    def scope(self) -> dict[str, Any]:
        """What the call was about, as far as it is known; for an envelope."""
        try:
            return {"url": masked(self.url), "tenant": self.tenant, "user": self.user}
        except Invalid:  # Settings that make no sense are what the error itself tells of.
            return {"url": None, "tenant": None, "user": None}

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Pagefile]:
        """The tenant's handle. A file that is not there is made only by who writes to it."""
        from pagefile.handle import open as open_pagefile

        self._require_store(create)
        with open_pagefile(self.url, tenant=self.tenant) as handle:
            yield handle

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """All tenants of the store."""
        from pagefile.handle import Admin

        self._require_store(create=False)
        with Admin(self.url) as admin:
            yield admin

    def _require_store(self, create: bool) -> None:
        file = file_of(self.url)
        if file is not None and not create and not file.exists():
            raise NotFound(
                f"there is no store at {shown(str(file))}",
                "make one with 'pagefile init', or name another with --url",
            )


def file_of(url: str) -> Path | None:
    """The file behind a URL; None when it is no file."""
    if url.startswith("sqlite:///"):
        url = url.removeprefix("sqlite:///")
    elif not url or "://" in url or url.endswith(("memory:", "manager:")) or "\x00" in url:
        return None
    try:
        return Path(url).expanduser()
    except RuntimeError:  # No such user; opening it says so.
        return None

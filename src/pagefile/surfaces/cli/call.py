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
        #: What a command is about that names its stores itself; for an envelope.
        self.about: dict[str, str] = {}

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
            url = self.about.get("url") or masked(self.url)
            return {"url": url, "tenant": self.tenant, "user": self.user, **self.about}
        except Invalid:  # Settings that make no sense are what the error itself tells of.
            return {"url": None, "tenant": None, "user": None}

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Pagefile]:
        """The tenant's handle. A store and a tenant are made only by who writes to them."""
        from pagefile.handle import open as open_pagefile

        self._require_store(create)
        with open_pagefile(self.url, tenant=self.tenant) as handle:
            if not create and not handle.store.head().position:
                self._require_tenant()
            yield handle

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """All tenants of the store."""
        from pagefile.handle import Admin

        self._require_store(create=False)
        with Admin(self.url) as admin:
            yield admin

    def _require_store(self, create: bool) -> None:
        if create:
            return
        file = file_of(self.url)
        if file is not None:
            is_there, place = file.exists(), str(file)
        else:
            is_there, place = _has_tables(self.url), masked(self.url)
        if not is_there:
            raise NotFound(
                f"there is no store at {shown(place)}",
                "make one with 'pagefile init', or name another with --url",
            )

    def _require_tenant(self) -> None:
        """Refuse a name under which nothing was ever stored; the only one may be yet to begin."""
        from pagefile.engines import is_fleeting, scheme_of
        from pagefile.handle import Admin

        if is_fleeting(self.url):
            return  # It has no other tenants.
        with Admin(self.url) as admin:
            others = people_of(admin)
        if others or not scheme_of(self.url).is_marked:
            raise NotFound(
                f"there is no tenant {shown(self.tenant)} in {shown(masked(self.url))}",
                "see 'pagefile list tenants'; the first 'pagefile add' makes one",
            )


def people_of(admin: Admin) -> list[str]:
    """The tenants that people named, without the one that holds the server's keys."""
    from pagefile.surfaces.access.identity import ACCESS_TENANT

    return [name for name in admin.tenants() if name != ACCESS_TENANT]


def _has_tables(url: str) -> bool:
    """Whether a server has what opening a store there would make."""
    from pagefile.engines import scheme_of

    if not scheme_of(url).makes_tables:
        return True  # Opening it makes nothing there.
    from pagefile.migration import migrate

    return migrate(url, check=True).before is not None


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

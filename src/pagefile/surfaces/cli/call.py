"""What a command is given, what it gives back, and how it ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pagefile.errors import Invalid, NotFound, shown
from pagefile.settings import Settings
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    import typer

    from pagefile.handle import Admin, Pagefile


# What the shell gets to know: the same reasons as everywhere, as small numbers.


EXIT_STATUS: Final = {
    "not_found": 3,
    "conflict": 4,
    "invalid": 5,
    "limit_exceeded": 6,
    "unavailable": 7,
    "corrupt": 8,
    "unsupported": 9,
    "forbidden": 10,
}

FINE: Final = 0
#: The command ran, and what it looked at is not in order; or it was told no.
PROBLEMS: Final = 1
#: The command line itself makes no sense.
USAGE: Final = 2
#: A fault of the program, as `sysexits.h` numbers it.
INTERNAL: Final = 70
#: 128 and the number of the signal, as a shell counts.
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


def status_of(code: str) -> int:
    """The exit status for the code of an error."""
    return EXIT_STATUS.get(code, PROBLEMS)


# What a command gives back: values for programs, and how people see them.


class Answer(msgspec.Struct, frozen=True):
    """The outcome of one command.

    `data` is plain values or structs, for `--json`; `show` prints it for people.
    `status` is not 0 when the command ran and found something wrong.
    """

    data: Any
    show: Callable[[Screen], None]
    count: int | None = None
    status: int = 0

    @property
    def counted(self) -> int:
        """How many things `data` holds."""
        if self.count is not None:
            return self.count
        return len(self.data) if isinstance(self.data, (list, tuple)) else 1


# An answer or an error as one JSON object, the same fields for every command.


#: The password in a URL, which no output may show.
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")


def plain(value: Any) -> Any:
    """Structs, moments and bytes as what JSON has; what has no form of its own as text."""
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def encoded(value: Any) -> str:
    """One line of JSON."""
    told = plain(value)
    try:
        return msgspec.json.encode(told).decode()
    except UnicodeEncodeError:  # A name with bytes that are no UTF-8; escapes can hold them.
        return json.dumps(told)


def masked(url: str) -> str:
    """A URL without its password."""
    return _PASSWORD.sub(r"\1:***@", url)


def envelope(
    command: str,
    seconds: float,
    scope: dict[str, Any],
    *,
    data: Any = None,
    count: int = 0,
    status: str = "ok",
    error: dict[str, Any] | None = None,
) -> str:
    """What `--json` prints."""
    told: dict[str, Any] = {
        "status": status,
        "command": command,
        "duration_ms": round(seconds * 1_000, 1),
        "scope": scope,
        "count": count,
        "data": data,
    }
    if error is not None:
        told["error"] = error
    return encoded(told)


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

"""The manager itself: a process that holds a store in memory for others.

    python -m pagefile.engines.manager.server [--host HOST] [--port PORT] …

Listens on loopback, unless another host is named. The key is PAGEFILE_MANAGER_AUTHKEY;
without it, one is made and printed as part of the URL that clients open.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import msgspec

from pagefile.engines.manager.event_loop import Bounds, Loop
from pagefile.engines.manager.protocol import (
    DEFAULT_PORT,
    LOOPBACK,
    MOST_KEY_BYTES,
    Address,
    address_of,
    is_loopback,
    new_key,
)
from pagefile.errors import Invalid, PagefileError, Unavailable, shown
from pagefile.settings import Settings
from pagefile.store.arguments import require_count

#: What a key needs where strangers can listen and guess at leisure.
LEAST_KEY_BYTES = 16
_BACKLOG = 128
#: Files that a process needs besides its connections.
_SPARE_FILES = 32


class ManagerServer:
    """A manager in this process: bound when made, serving while `serve` runs."""

    def __init__(
        self,
        host: str = LOOPBACK,
        port: int = 0,
        *,
        authkey: str | bytes | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        if not isinstance(host, str) or not host:
            raise Invalid("host", f"{shown(host)} is no host", "give a name or address")
        require_count(port, "port", most=65_535)
        key = new_key() if authkey is None else require_key(authkey)
        listener = _listen(host, port)
        if not is_loopback(listener.getsockname()[0]) and len(key) < LEAST_KEY_BYTES:
            listener.close()
            raise Invalid(
                "authkey",
                f"{len(key)} bytes are too few where other machines listen",
                f"give at least {LEAST_KEY_BYTES}, or leave it out to have one made",
            )
        self.address = Address(host, int(listener.getsockname()[1]), key)
        self._loop = Loop(listener, key, _affordable(bounds or Bounds()))

    @property
    def url(self) -> str:
        """What clients open; it holds the key."""
        return self.address.url

    @property
    def requests(self) -> int:
        """How many requests it has answered."""
        return self._loop.requests

    def serve(self) -> None:
        """Serve until `stop` is called."""
        self._loop.run()

    def serve_for(self, owner: int, stdin: int) -> None:
        """Serve while the process `owner` lives and keeps this one's stdin open."""
        try:
            # Readable once the owner is dead, also if a fork of it keeps the pipe open.
            watched = os.pidfd_open(owner) if hasattr(os, "pidfd_open") else -1
        except OSError:
            return
        if os.getppid() != owner:
            return
        if watched < 0:
            self._loop.run(ends_with=lambda: os.getppid() != owner, watched=(stdin,))
        else:
            self._loop.run(watched=(stdin, watched))

    def stop(self) -> None:
        """End `serve`; from any thread. What it held is gone."""
        self._loop.stop()


def serve_manager(
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    *,
    authkey: str | bytes | None = None,
    bounds: Bounds | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run a manager in this process until it is told to end by SIGTERM or SIGINT.

    `ready` is called once, with the URL that clients open, which holds the key.

    Raises:
        Invalid: an argument is not usable. Unavailable: the address is taken.
    """
    server = ManagerServer(host, port, authkey=authkey, bounds=bounds)

    def end(signum: int, frame: FrameType | None) -> None:
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if ready is not None:
        ready(server.url)
    server.serve()


def require_key(authkey: object) -> bytes:
    """A key as bytes.

    Raises:
        Invalid: it is none. The message does not repeat it.
    """
    # What the environment holds need not be Unicode; to a key it makes no difference.
    raw = authkey.encode(errors="surrogateescape") if isinstance(authkey, str) else authkey
    if not isinstance(raw, bytes) or not 0 < len(raw) <= MOST_KEY_BYTES:
        raise Invalid(
            "authkey", "it is no key", f"give text or bytes, at most {MOST_KEY_BYTES} of them"
        )
    return raw


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.owned_by is not None:
            _serve_owner(asked.owned_by)
            return 0
        given = Settings.from_environment().manager_authkey
        bounds = Bounds(
            connections=asked.connections, frame_bytes=asked.frame_bytes, spaces=asked.spaces
        )

        def tell(url: str) -> None:
            # A key that was given is known to those who need it.
            print(address_of(url).where if given else url, flush=True)

        serve_manager(asked.host, asked.port, authkey=given or None, bounds=bounds, ready=tell)
    except PagefileError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    return 0


def _serve_owner(owner: int) -> None:
    key = sys.stdin.buffer.readline(MOST_KEY_BYTES + 1).strip()
    server = ManagerServer(authkey=key)
    # Its owner says when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(server.address.port, flush=True)
    server.serve_for(owner, sys.stdin.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pagefile.engines.manager.server",
        description="Hold a store in memory for other processes of this machine.",
    )
    parser.add_argument("--host", default=LOOPBACK, help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="default: %(default)s")
    bounds = Bounds()
    for field in ("connections", "frame_bytes", "spaces"):
        option = f"--{field.replace('_', '-')}"
        parser.add_argument(option, type=int, default=getattr(bounds, field), metavar="N")
    parser.add_argument("--owned-by", type=int, metavar="PID", help=argparse.SUPPRESS)
    return parser


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Invalid("host", f"{shown(host)} is no address here", "name another") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{host}:{port} cannot be listened on ({error.strerror})", "choose another port"
        ) from error
    return listener


def _affordable(bounds: Bounds) -> Bounds:
    """As many connections as this process may have files open."""
    import resource

    for field in bounds.__struct_fields__:
        if getattr(bounds, field) <= 0:
            raise Invalid(f"bounds.{field}", "it is not positive", "give at least 1")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES
    return msgspec.structs.replace(bounds, connections=max(1, min(bounds.connections, most)))


if __name__ == "__main__":
    raise SystemExit(main())

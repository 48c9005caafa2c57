"""One backend, buffer and registry per process by its settings."""

from __future__ import annotations

import threading
from urllib.parse import quote, urlsplit

import msgspec

from pagefile.context.backend import Backend, place_of
from pagefile.context.buffer import ContextBuffer
from pagefile.context.conversations import Conversations, Sweeper
from pagefile.context.registry import ThreadRegistry
from pagefile.context.residency import Policy
from pagefile.errors import Invalid, PagefileError, shown
from pagefile.store.store import Store

_REDIS_URL, _REDIS_PREFIX = "redis://localhost:6379", "xp:"
#: Which settings belong to which kind; the two limits belong to all.
_OWN_SETTINGS = {
    "memory": (),
    "manager": ("manager_address", "manager_authkey"),
    "redis": ("redis_url", "redis_prefix", "redis_ttl"),
}
_ADDRESS = "give (host, port) or 'host:port', or leave it out to start one"
_MOST_PORT = 65_535
_MOST_INTERVAL_SECONDS = 60.0
_MOST_LIFETIME_SECONDS = 3_650 * 86_400


class BackendConfig(msgspec.Struct, frozen=True):
    """Where threads are kept, in the words of the shared backends.

    `backend_type` is "memory", "manager" or "redis". What is left out takes the
    kind's default: Redis at `redis://localhost:6379` under the prefix `xp:`, and
    a manager that is started here. Checked when it is made.
    """

    backend_type: str = "memory"
    redis_url: str | None = None
    redis_prefix: str | None = None
    redis_ttl: int | None = None
    manager_address: tuple[str, int] | str | None = None
    manager_authkey: bytes | str | None = None
    max_slots_per_thread: int = 10_000
    max_threads: int = 1_000

    def __post_init__(self) -> None:
        kind = self.backend_type
        if not isinstance(kind, str) or kind not in _OWN_SETTINGS:
            raise Invalid(
                "backend_type", f"{shown(kind)} is no kind of backend", f"give one of {_kinds()}"
            )
        for owner, settings in _OWN_SETTINGS.items():
            for setting in settings:
                if owner != kind and getattr(self, setting) is not None:
                    raise Invalid(
                        setting,
                        f"it has no effect on a backend of type {kind!r}",
                        f"leave it out, or choose {owner!r}",
                    )
        Policy(self.max_slots_per_thread, self.max_threads, None, None)
        _require_lifetime(self.redis_ttl)
        # Whatever is wrong with a part shows now, not at the first append.
        self._make_url()

    @property
    def url(self) -> str:
        """What `pagefile.open` opens for it. It may hold a key or a password."""
        return self._make_url()

    def __repr__(self) -> str:
        """Without what a URL or key may hold; a log gets to know the kind and the limits."""
        limits = f"max_slots_per_thread={self.max_slots_per_thread}, max_threads={self.max_threads}"
        return f"BackendConfig({self.backend_type!r}, {limits}, …)"

    def _make_url(self) -> str:
        if self.backend_type == "redis":
            return self._redis_url()
        if self.backend_type == "manager":
            return self._manager_url()
        return "memory:"

    def _redis_url(self) -> str:
        url = _REDIS_URL if self.redis_url is None else self.redis_url
        prefix = _REDIS_PREFIX if self.redis_prefix is None else self.redis_prefix
        if not isinstance(prefix, str) or not prefix:
            raise Invalid("redis_prefix", f"{shown(prefix)} is no prefix", "give a text")
        schemes = ("redis://", "rediss://", "valkey://", "valkeys://")
        if not isinstance(url, str) or not url.startswith(schemes):
            raise Invalid("redis_url", "it is no URL of a Redis server", "begin with redis://")
        parts = urlsplit(url)
        if any(part.partition("=")[0] == "prefix" for part in parts.query.split("&")):
            raise Invalid("redis_url", "it has a prefix of its own", "give it as redis_prefix")
        query = f"{parts.query}&" if parts.query else ""
        return parts._replace(query=f"{query}prefix={quote(prefix, safe='')}").geturl()

    def _manager_url(self) -> str:
        key, address = self.manager_authkey, self.manager_address
        raw = key.encode() if isinstance(key, str) else key
        if raw is not None and (not isinstance(raw, bytes) or not raw):
            raise Invalid("manager_authkey", "it is no key", "give bytes or a text")
        if address is None:
            if key is not None:
                raise Invalid(
                    "manager_authkey",
                    "it has no effect without manager_address: who starts a manager makes its key",
                    "name the manager's address, or leave it out and hand on the backend's `url`",
                )
            return "manager:"
        host, port = _place_of(address)
        shown_key = "" if raw is None else f":{quote(raw, safe='')}@"
        return f"manager://{shown_key}{f'[{host}]' if ':' in host else host}:{port}"


class SharedBackend:
    """What `get_shared_backend` gives: a store, and the threads and paths in it.

    Goes wherever a backend goes. `context` and `registry` are this process's;
    `url` is what other processes open to use the same store.
    """

    def __init__(self, config: BackendConfig) -> None:
        import pagefile  # Here, and only when it is needed: handles stand above this room.

        self.config = config
        self._handle = pagefile.open(config.url)
        try:
            self.context = ContextBuffer(
                self._handle,
                max_slots_per_thread=config.max_slots_per_thread,
                max_threads=config.max_threads,
            )
            self.registry = ThreadRegistry(self._handle)
            self._sweeper = _sweeper(self._handle.store, config.redis_ttl)
        except PagefileError:
            self._handle.close()
            raise

    @property
    def store(self) -> Store:
        return self._handle.store

    @property
    def url(self) -> str:
        """With its key or password, if it has one."""
        return self._handle.url

    def close(self) -> None:
        """Let go of it; a manager that was started for it ends."""
        try:
            if self._sweeper is not None:
                self._sweeper.__exit__(None, None, None)
        finally:
            self._handle.close()

    def __repr__(self) -> str:
        return f"<SharedBackend of {self.config!r}>"


_lock = threading.Lock()
_backend: SharedBackend | None = None


def get_shared_backend(config: BackendConfig | None = None) -> SharedBackend:
    """The backend of this process, made at the first call.

    Later calls may leave the settings out, or say the same again.

    Raises:
        Invalid: it exists with other settings; nothing was changed.
    """
    global _backend
    if config is not None and not isinstance(config, BackendConfig):
        raise Invalid("config", f"{shown(type(config))} is no settings", "give a BackendConfig")
    with _lock:
        if _backend is None:
            _backend = SharedBackend(BackendConfig() if config is None else config)
        backend = _backend
    if config is not None and config != backend.config:
        raise Invalid(
            "config",
            f"this process has a backend with other settings: {backend.config!r}",
            "call reset_shared_backend() first, or open a store of your own",
        )
    return backend


def reset_shared_backend() -> None:
    """Let the backend of this process go. What a server holds stays in it."""
    global _backend
    with _lock:
        made, _backend = _backend, None
    if made is not None:
        made.close()


def _require_lifetime(seconds: int | None) -> None:
    if seconds is None:
        return
    if type(seconds) is not int or not 0 <= seconds <= _MOST_LIFETIME_SECONDS:
        raise Invalid("redis_ttl", f"{shown(seconds)} is no lifetime", "give seconds, 0 for none")


def _sweeper(store: Store, ttl_seconds: int | None) -> Sweeper | None:
    """What ends conversations that were idle for so long; a server's own clock ends none."""
    if not ttl_seconds:
        return None
    conversations = Conversations(store, ttl_seconds=ttl_seconds)
    # Late by at most a tenth of the lifetime, and by no more than a minute.
    interval = min(_MOST_INTERVAL_SECONDS, ttl_seconds / 10)
    return Sweeper(conversations, interval_seconds=interval).__enter__()


def _place_of(address: object) -> tuple[str, int]:
    host: object
    port: object
    if isinstance(address, str):
        host, _, text = address.rpartition(":")
        port = int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 else None
        host = host.removeprefix("[").removesuffix("]")
    elif isinstance(address, (tuple, list)) and len(address) == 2:
        host, port = address
    else:
        raise Invalid("manager_address", f"{shown(address)} is no address", _ADDRESS)
    if not isinstance(host, str) or not host or set(host) & set("/@?#[] "):
        raise Invalid("manager_address", f"{shown(host)} is no host", _ADDRESS)
    if type(port) is not int or not 0 < port <= _MOST_PORT:
        raise Invalid("manager_address", f"{shown(port)} is no port", _ADDRESS)
    return host, port


def _kinds() -> str:
    return ", ".join(repr(kind) for kind in _OWN_SETTINGS)


_making = threading.Lock()
#: Each with the place it was made on, as `place_of` tells it.
_buffer: tuple[ContextBuffer, object] | None = None
_registry: tuple[ThreadRegistry, object] | None = None


def get_context_buffer(
    backend: Backend | None = None,
    *,
    max_slots_per_thread: int | None = None,
    max_threads: int | None = None,
    idle_seconds: float | None = None,
) -> ContextBuffer:
    """The buffer of this process, made at the first call.

    Later calls may leave everything out, or say how it is by now. A backend with
    settings of its own brings its limits along, where none are given here.

    Raises:
        Invalid: it exists with other settings; nothing was changed.
    """
    global _buffer
    if isinstance(backend, SharedBackend):
        if max_slots_per_thread is None:
            max_slots_per_thread = backend.config.max_slots_per_thread
        if max_threads is None:
            max_threads = backend.config.max_threads
    limits: dict[str, int | float | None] = {
        "max_slots_per_thread": max_slots_per_thread,
        "max_threads": max_threads,
        "idle_seconds": idle_seconds,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    with _making:
        if _buffer is None:
            # What is given is checked there, limit by limit.
            _buffer = ContextBuffer(backend, **given), place_of(backend)  # type: ignore[arg-type]
        buffer, place = _buffer
    changed = [name for name, value in given.items() if value != getattr(buffer, name)]
    if backend is not None and place_of(backend) != place:
        changed.insert(0, "backend")
    if changed:
        raise _other(changed[0], "buffer", "reset_context_buffer", "ContextBuffer")
    return buffer


def reset_context_buffer() -> None:
    """Let the buffer of this process go. What a store holds stays in it."""
    global _buffer
    with _making:
        made, _buffer = _buffer, None
    if made is not None:
        made[0].close()


def get_registry(backend: Backend | None = None) -> ThreadRegistry:
    """The registry of this process; the first call makes it, on `backend`.

    Raises:
        Invalid: it was made on another backend.
    """
    global _registry
    with _making:
        if _registry is None:
            _registry = ThreadRegistry(backend), place_of(backend)
        registry, place = _registry
    if backend is not None and place_of(backend) != place:
        raise _other("backend", "registry", "reset_registry", "ThreadRegistry")
    return registry


def reset_registry() -> None:
    """Forget the registry of this process. What a shared store holds stays there."""
    global _registry
    with _making:
        made, _registry = _registry, None
    if made is not None:
        made[0].close()


def _other(field: str, what: str, reset: str, cls: str) -> Invalid:
    return Invalid(
        field,
        f"this process has a {what} with another setting",
        f"call {reset}() first, or make a {cls} of your own",
    )

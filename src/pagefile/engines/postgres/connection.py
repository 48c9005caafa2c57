"""Connections to one PostgreSQL server: how they are made, checked, shared and let go."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper

from pagefile.engines.postgres.errors import cannot_connect, is_lost, translate
from pagefile.engines.postgres.rows import Bigints, BigintsDumper, Embedding, EmbeddingDumper
from pagefile.errors import Corrupt, Forbidden, Invalid, Unavailable, Unsupported, shown
from pagefile.store.records import Durability

DEFAULT_SCHEMA = "pagefile"
_SHAPE = "write postgresql://user@host:5432/database?schema=pagefile"
_MOST_SCHEMA_BYTES = 63
#: A peer that is gone without a word is noticed within about this many seconds.
_SILENCE_SECONDS = 20


class Address(msgspec.Struct, frozen=True):
    """What to connect to, which schema holds the store, and how to speak of it."""

    parameters: dict[str, Any]
    schema: str
    #: Whether the store is to keep vectors with its entries.
    vectors: bool = False

    def __repr__(self) -> str:
        # The parameters hold the password.
        return f"<Address {self}>"

    def __str__(self) -> str:
        host = self.parameters.get("host", "")
        port = self.parameters.get("port")
        place = f"{host}:{port}" if port else f"{host}"
        return f"postgresql://{place}/{self.parameters.get('dbname', '')}"

    def number_for(self, what: str) -> int:
        """The advisory lock that stands for something of this store: 64 bits of a digest."""
        named = f"pagefile\x00{self.schema}\x00{what}"
        digest = hashlib.sha256(named.encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)

    @property
    def channel(self) -> str:
        """Where commits of this store are announced; an identifier of at most 63 bytes."""
        digest = hashlib.sha256(self.schema.encode()).hexdigest()
        return f"pagefile_{digest[:24]}"


def address_of(url: str) -> Address:
    """Take a URL apart. Everything but `schema` and `vectors` is libpq's own.

    Raises:
        Invalid: it is no URL that libpq understands; the message repeats nothing of it.
    """
    head, _, query = url.partition("?")
    schema, vectors, rest = DEFAULT_SCHEMA, "", []
    try:
        urlsplit(url)
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name == "schema":
                schema = value
            elif name == "vectors":
                vectors = value
            else:
                rest.append(f"{quote(name)}={quote(value, safe='')}")
        parameters = conninfo_to_dict(f"{head}?{'&'.join(rest)}" if rest else head)
    except (psycopg.Error, ValueError):
        # Without its cause: libpq and Python repeat parts of what they cannot read.
        raise Invalid("url", "libpq cannot read it", _SHAPE) from None
    if not 0 < len(schema.encode()) <= _MOST_SCHEMA_BYTES or schema.startswith("pg_"):
        raise Invalid("url", f"{shown(schema)} cannot name a schema", "use 1 to 63 bytes, not pg_…")
    if vectors not in ("", "pgvector"):
        raise Invalid("url", f"there are no vectors of {shown(vectors)}", "write vectors=pgvector")
    defaults = {
        "application_name": "pagefile",
        "connect_timeout": "10",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "2",
        "tcp_user_timeout": str(_SILENCE_SECONDS * 1_000),
    }
    return Address({**defaults, **parameters}, schema, vectors != "")


_T = TypeVar("_T")

#: After so long without a byte, the server is asked; and again after each such time.
QUIET_SECONDS = 20.0
#: What it said just before the question may still be on its way.
LAST_SECONDS = 2.0
#: How long a commit may take beyond the wait for its turn, though the server is at work.
MOST_SECONDS = 600.0
_STATE = "SELECT state FROM pg_stat_activity WHERE pid = %s"


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which nobody waits without bound for a server that is not there."""

    #: Whether the server is at work for this connection; without it, silence alone counts.
    is_at_work: Callable[[PatientConnection], bool] | None = None
    #: The bound on one answer whatever the server says; none for reading.
    most_seconds: float | None = None

    def wait(self, gen: PQGen[_T], *how: Any, **named: Any) -> _T:
        """Every wait of the driver for this connection passes here."""
        return super().wait(self._bounded(gen), *how, **named)

    def _bounded(self, gen: PQGen[_T]) -> PQGen[_T]:
        """The same steps; the driver also takes one whenever nothing came for a moment."""
        silence: _Silence | None = None
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready == 0:
                    silence = silence or _Silence()
                    self._require_answer(silence)
                else:
                    silence = None
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: _T = end.value
            return answer

    def _require_answer(self, silence: _Silence) -> None:
        now = time.monotonic()
        if now < silence.until:
            return
        seconds = now - silence.since
        is_late = self.most_seconds is not None and seconds >= self.most_seconds
        if not is_late and not silence.is_last:
            if self.is_at_work is not None and self.is_at_work(self):
                silence.until = time.monotonic() + QUIET_SECONDS
            else:
                silence.until, silence.is_last = time.monotonic() + LAST_SECONDS, True
            return
        self.close()
        raise psycopg.OperationalError(f"the server has said nothing for {seconds:.0f} s")


class _Silence:
    def __init__(self) -> None:
        self.since = time.monotonic()
        self.until = self.since + QUIET_SECONDS
        self.is_last = False


def asking(parameters: dict[str, Any]) -> Callable[[PatientConnection], bool]:
    """Asks the server behind a connection, on one that is made for it, what it does."""

    def is_at_work(quiet: PatientConnection) -> bool:
        own = parameters
        if "," in str(parameters.get("host", "")):
            # Of several servers, the one that is quiet.
            own = {**parameters, "host": quiet.info.host, "port": quiet.info.port}
            own.pop("hostaddr", None)
        try:
            other = PatientConnection.connect(**own, autocommit=True)
        except psycopg.Error as error:
            # A refusal is an answer, such as that there are too many connections.
            return "FATAL" in str(error)
        try:
            found = other.execute(_STATE, (quiet.info.backend_pid,)).fetchone()
        except psycopg.Error:
            return False
        finally:
            with suppress(psycopg.Error):
                other.close()
        return found is not None and not str(found[0]).startswith("idle")

    return is_at_work


Connection = PatientConnection


#: How many connections of one handle read at the same time.
MOST_READERS = 16
#: Views that obey the wall of the one who asks, and MERGE-free SQL, came with it.
_OLDEST_SERVER = 15
_PREPARED = 400
_RANKS: dict[Durability, int] = {"none": 0, "process": 1, "power": 2}


class Session:
    """One connection, and which tenant's rows it shows."""

    def __init__(self, connection: Connection, sql: dict[str, str]) -> None:
        self.connection = connection
        self._sql = sql
        self.tenant: str | None = None
        # A handle that is just dropped ends its connections in order, as a closed one does.
        weakref.finalize(self, _let_go, connection, os.getpid())

    def enter(self, tenant: str) -> None:
        """See and write this tenant's rows from now on."""
        if self.tenant != tenant:
            self.tenant = None
            self.connection.execute(query(self._sql["enter"]), (tenant,))
            self.tenant = tenant

    def fetch(self, name: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """All rows of one named query: one statement, one consistent snapshot."""
        return self.connection.execute(query(self._sql[name]), bindings, binary=True).fetchall()


def _let_go(connection: Connection, owner: int) -> None:
    if os.getpid() == owner:  # A child must not say goodbye for its parent.
        with suppress(psycopg.Error):
            connection.close()


class Link:
    """The server, and the connections of one handle to it."""

    def __init__(
        self,
        address: Address,
        sql: dict[str, str],
        *,
        durability: Durability | None,
        lock_seconds: float,
    ) -> None:
        self.address = address
        self.place = str(address)
        #: As it was given, for what is kept beside the store.
        self.url = ""
        self.sql = sql
        self.lock_seconds = lock_seconds
        self._wanted = durability
        #: What every connection must have, once the first has shown it.
        self.durability: Durability | None = None
        #: Whether advisory locks lock, once the first connection has shown it. On some servers
        #: that speak PostgreSQL's protocol they do nothing.
        self.locks: bool | None = None
        self._adapters = _adapters()
        self._is_at_work = asking(address.parameters)
        self._pid = os.getpid()
        self._idle: list[Session] = []
        self._free = threading.BoundedSemaphore(MOST_READERS)
        self._closed = False

    def connect(self) -> Session:
        """A new connection that keeps the level this handle promises.

        Raises:
            Unavailable, Forbidden, Invalid: it cannot be made, and why.
            Unsupported: the server does not have what was asked for.
        """
        self.require_usable()
        options = (
            f"-c search_path={_option(self.address.schema)} -c jit=off -c enable_seqscan=off "
            f"-c default_transaction_isolation=read\\ committed "
            f"-c lock_timeout={max(1, int(self.lock_seconds * 1_000))} "
            "-c idle_in_transaction_session_timeout=60000"
        )
        if self._wanted == "none":
            options += " -c synchronous_commit=off"
        given = self.address.parameters.get("options")
        parameters = {
            **self.address.parameters,
            "options": f"{given} {options}" if given else options,
        }
        try:
            connection = PatientConnection.connect(
                **parameters,
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
                context=self._adapters,
            )
        except psycopg.Error as error:
            raise cannot_connect(error, self.place) from error
        connection.is_at_work = self._is_at_work
        connection.prepare_threshold = 3
        connection.prepared_max = _PREPARED
        session = Session(connection, self.sql)
        ready = False
        try:
            self._require_level(session)
            if self.locks is None:
                self.locks = _locks(session)
            ready = True
        except psycopg.Error as error:
            raise translate(error, self.place) from error
        finally:
            if not ready:
                connection.close()
        return session

    def _require_level(self, session: Session) -> None:
        """Read the server's settings; they may have changed since the last connection."""
        facts = session.fetch("facts")[0]
        if facts[2] == "off" and self._wanted != "none":
            # Somebody's default must not weaken a promise in silence. A session may turn
            # it on for itself; then it is read again, not assumed.
            session.connection.execute("SET synchronous_commit = on")
            facts = session.fetch("facts")[0]
        _require_fit(facts, self.place)
        level = level_of(facts[0], facts[1], facts[2])
        wanted = self.durability or self._wanted
        if wanted is not None and _RANKS[level] < _RANKS[wanted]:
            raise Unsupported(
                f"{self.place} is at level {level!r}, not {wanted!r} (fsync={facts[0]}, "
                f"full_page_writes={facts[1]}, synchronous_commit={facts[2]})",
                f"turn them on, or open the store with durability={level!r}",
            )
        if self.durability is None:
            self.durability = self._wanted or level

    def require_usable(self) -> None:
        """Refuse a handle that is closed, or came through fork."""
        if not self.is_own:
            raise Forbidden(
                f"{self.place} was opened in process {self._pid} and used in its child",
                "call pagefile.open again in the child",
            )
        if self._closed:
            raise Forbidden(f"{self.place} is closed on this handle", "call pagefile.open again")

    def read(self, tenant: str | None, name: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """The rows of one named query, for one tenant or none."""
        return self.ask(tenant, lambda session: session.fetch(name, *bindings))

    def ask(self, tenant: str | None, question: Callable[[Session], _T]) -> _T:
        """What `question` reads, for a tenant or none; asked again if the connection was dead."""
        try:
            with self.reader(tenant) as session:
                return question(session)
        except _Lost:
            # The server may have been restarted since; a fresh connection will tell.
            try:
                with self.reader(tenant) as session:
                    return question(session)
            except _Lost as lost:
                raise translate(lost.error, self.place) from lost.error

    @contextmanager
    def reader(self, tenant: str | None) -> Iterator[Session]:
        """A connection for reading; it goes back to the others afterwards."""
        self.require_usable()
        if not self._free.acquire(timeout=self.lock_seconds):
            raise Unavailable(
                f"{MOST_READERS} reads are under way on this handle for too long", "retry"
            )
        session: Session | None = None
        try:
            session = self._take(tenant) or self.connect()
            if tenant is not None:
                session.enter(tenant)
            yield session
        except psycopg.Error as error:
            if session is not None and is_lost(error, session.connection):
                # The others were probably lost with it.
                self.forget_idle()
                raise _Lost(error) from error
            raise translate(error, self.place) from error
        except UnicodeDecodeError as error:
            raise Corrupt(
                f"{self.place} holds text that is no text ({error})",
                "stop writing and restore a copy",
            ) from error
        finally:
            if session is not None:
                self._take_back(session)
            self._free.release()

    def _take(self, tenant: str | None) -> Session | None:
        """The one used last, or better one that already shows this tenant."""
        for session in reversed(self._idle):
            if session.tenant == tenant:
                with suppress(ValueError):  # Somebody else was faster.
                    self._idle.remove(session)
                    return session
        with suppress(IndexError):
            return self._idle.pop()
        return None

    def _take_back(self, session: Session) -> None:
        connection = session.connection
        if connection.closed or connection.info.transaction_status != 0:
            connection.close()
            return
        self._idle.append(session)
        # After, not before: `close` may come between a look and the append.
        if self._closed:
            self.forget_idle()

    def forget_idle(self) -> None:
        """Let the idle connections go; new ones are made when needed."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().connection.close()

    def close(self) -> None:
        self._closed = True
        if self.is_own:
            self.forget_idle()

    @property
    def is_own(self) -> bool:
        """Whether this process opened it; a child must not say goodbye for its parent."""
        return os.getpid() == self._pid

    def patience(self) -> Iterator[float]:
        """Seconds to pause between attempts to reach a server that went away."""
        deadline = time.monotonic() + min(self.lock_seconds, 5.0)
        pause = 0.0
        while time.monotonic() < deadline:
            yield pause
            pause = min(0.25, pause * 2 or 0.02)


class _Lost(Exception):
    """The connection ended during a read."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


def query(text: str) -> LiteralString:
    """A query from this package's own files, for a driver that asks whether it is one."""
    return text  # type: ignore[return-value, unused-ignore]


def level_of(fsync: str, full_page_writes: str, synchronous_commit: str) -> Durability:
    """What an acknowledged commit survives on a server with these settings.

    Without synchronous commit, killing the server loses what it had not yet written.
    Without fsync or full pages, a power cut loses or tears what it had.
    """
    if synchronous_commit == "off":
        return "none"
    return "power" if fsync == full_page_writes == "on" else "process"


def _require_fit(facts: tuple[Any, ...], place: str) -> None:
    if facts[5] // 10_000 < _OLDEST_SERVER:
        raise Unsupported(
            f"{place} is PostgreSQL {facts[5] // 10_000}", f"use {_OLDEST_SERVER} or newer"
        )
    if facts[3] != "UTF8":
        raise Unsupported(
            f"{place} has the encoding {facts[3]}", "create the database with ENCODING 'UTF8'"
        )
    if facts[4]:
        raise Unsupported(f"{place} is a standby, which cannot write", "connect to the primary")


def _locks(session: Session) -> bool:
    """Whether an advisory lock that this session takes is held.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    connection, own = session.connection, random.getrandbits(62)
    try:
        with connection.transaction():
            session.fetch("turn", own)
            return bool(session.fetch("held_locks")[0][0])
    except (psycopg.ProgrammingError, psycopg.NotSupportedError):
        return False  # It does not know them.


def whole(numbers: Iterable[int]) -> Bigints:
    """Numbers to be bound as one array.

    Of plain ones the driver looks for the smallest type in the first array of a
    statement, and takes it for those behind it, too: they may not fit.
    """
    return Bigints(tuple(numbers))


def _adapters() -> AdaptersMap:
    """One type for each kind of value, so that a statement is prepared once, and in binary."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8BinaryDumper)
    adapters.register_dumper(str, StrBinaryDumper)
    adapters.register_dumper(bytes, BytesBinaryDumper)
    adapters.register_dumper(Bigints, BigintsDumper)
    adapters.register_dumper(Embedding, EmbeddingDumper)
    return adapters


def _option(schema: str) -> str:
    """A quoted identifier inside libpq's `options`, where blanks and backslashes are special."""
    quoted = '"' + schema.replace('"', '""') + '"'
    return quoted.replace("\\", "\\\\").replace(" ", "\\ ")

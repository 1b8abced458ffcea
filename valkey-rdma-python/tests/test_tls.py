"""TLS: the clients of this package, and redis-py and valkey-py over it."""

import asyncio
import importlib
import os
import ssl
from types import SimpleNamespace

import numpy
import pytest
from certificates import Authority
from conftest import Mock, without_tls

import valkey_rdma
from valkey_rdma import AsyncClient, Client, LMCacheClient
from valkey_rdma._encryption import encrypted


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"), "issuer")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def person(authority):
    """The certificate of a client."""
    return authority.issue("person", "DNS:person")


@pytest.fixture(scope="module")
def secure(authority, person):
    """The mock with TLS. It asks for certificates, and takes clients without one."""
    clients = ("--tls-client-ca", authority.ca, "--tls-client-auth", "optional")
    mock = Mock((*authority.issue("server", "IP:127.0.0.1").flags, *clients))
    yield mock
    mock.stop()


@pytest.fixture(scope="module")
def named(authority):
    """The mock with a certificate for another name, which requires certificates of its clients."""
    mock = Mock((*authority.issue("named", "DNS:valkey.test").flags, "--tls-client-ca", authority.ca))
    yield mock
    mock.stop()


@pytest.fixture(params=["emulated", "tcp"])
def over(request):
    """The URL of a mock, once for each transport."""
    return lambda mock: getattr(mock, request.param)


@pytest.fixture(params=["redis", "valkey"])
def library(request):
    """Our module for a client library, and that library."""
    name, ours = request.param, importlib.import_module(f"valkey_rdma.{request.param}_py")
    clients = getattr(ours, name.capitalize()), getattr(ours, f"Async{name.capitalize()}")
    return SimpleNamespace(ours=ours, theirs=importlib.import_module(name), sync=clients[0], asyncio=clients[1])


def arguments(url):
    scheme, address = url.split("://")
    host, port = address.split(":")
    return {"scheme": scheme, "host": host, "port": int(port)}


def test_values_and_buffers_over_tls(over, secure, authority, key):
    value = os.urandom(3_000_000)
    with Client(f"{over(secure)}?ca={authority.ca}") as client:
        tls = client.info()["tls"]
        assert (tls["version"], tls["cipher"][:4], tls["resumed"]) == ("TLS 1.3", "TLS_", False)
        client.command("SET", key, value)
        assert client.command("GET", key) == value
        buffer = numpy.zeros(len(value), numpy.uint8)
        assert client.get_into(key, buffer) == len(value) and buffer.tobytes() == value
        client.set_from(key + "2", buffer)
        assert client.command("GET", key + "2") == value
        assert all(each["tls"]["version"] == "TLS 1.3" for each in client.stats()["connections"])


async def test_values_over_tls_for_asyncio(over, secure, authority, key):
    value = os.urandom(1_000_000)
    async with await AsyncClient.connect(f"{over(secure)}?ca={authority.ca}") as client:
        await client.set_from(key, value)
        assert await client.command("GET", key) == value
        assert client.info()["tls"]["version"] == "TLS 1.3"


def test_lmcache_over_tls(over, secure, authority):
    client = LMCacheClient(f"{over(secure)}?ca={authority.ca}")
    client.close()
    with pytest.raises(valkey_rdma.ConnectError, match="issuer"):
        LMCacheClient(f"{over(secure)}?timeout=1m")


@without_tls
def test_a_plain_connection_has_no_tls(client):
    assert client.info()["tls"] is None


def test_errors_say_what_is_wrong(over, secure, named, authority, stranger, person):
    with_issuer = f"?ca={authority.ca}"
    with_login = f"{with_issuer}&cert={person.cert}&key={person.key}"
    for url, wrong in (
        (f"{over(secure)}?ca={stranger.ca}", "issuer"),
        (f"{over(secure)}?ca={stranger.folder}/none.pem", "none.pem"),
        (f"{over(named)}{with_login}", "valkey.test"),
        (f"{over(named)}{with_issuer}&server_name=valkey.test", "certificate"),
    ):
        with pytest.raises(valkey_rdma.ConnectError, match=wrong) as raised:
            Client(f"{url}&timeout=1m")
        assert raised.value.fate == "not-sent"
    for allowed in ("server_name=valkey.test", "verify=ca", "verify=none"):
        with Client(f"{over(named)}{with_login}&{allowed}") as client:
            assert client.command("PING") == b"PONG"


@pytest.mark.parametrize("options", ["cert=a", "key=a", "verify=some"])
def test_options_that_cannot_be_are_refused_at_once(options):
    with pytest.raises(valkey_rdma.UrlError):
        Client(f"valkeys://127.0.0.1?{options}")
    with pytest.raises(valkey_rdma.UrlError, match="valkeys"):
        Client("valkey://127.0.0.1?ca=ca.pem")


def plain(url):
    """The arguments for a URL, without what makes it encrypted."""
    given = arguments(url)
    return given | {"scheme": given["scheme"].removesuffix("s")}


def test_client_libraries_over_tls(library, over, secure, authority, person, key):
    url, value = over(secure), os.urandom(1_000_000)
    files = {"ssl_ca_certs": authority.ca, "ssl_certfile": str(person.cert), "ssl_keyfile": person.key}
    pool = library.theirs.ConnectionPool(connection_class=library.ours.RdmaConnection, **plain(url), ssl=True, **files)
    for client in (
        library.sync(**plain(url), ssl=True, **files),
        library.sync(**arguments(url), ssl_cert_reqs="none"),
        library.ours.from_url(f"{url}?ca={authority.ca}"),
        library.ours.from_url(f"{url}?ssl_cert_reqs=none"),
        library.ours.from_url(url, ssl_ca_certs=authority.ca, ssl_check_hostname=True),
        library.sync(connection_pool=pool),
    ):
        with client:
            assert client.set(key, value) and client.get(key) == value
    pool.disconnect()


async def test_client_libraries_over_tls_for_asyncio(library, over, secure, authority, key):
    url, value = over(secure), os.urandom(1_000_000)
    for client in (
        library.asyncio(**plain(url), ssl=True, ssl_ca_certs=authority.ca),
        library.ours.async_from_url(f"{url}?ca={authority.ca}"),
    ):
        async with client:
            assert await client.set(key, value) and await client.get(key) == value
    with pytest.raises(library.theirs.ConnectionError, match="issuer"):
        async with library.asyncio(**arguments(url), retry=None) as client:
            await client.ping()


def test_client_libraries_check_the_name_also_where_their_default_does_not(library, over, named, authority, person):
    given = arguments(over(named)) | {"ssl_ca_certs": authority.ca, "ssl_certfile": person.cert, "ssl_keyfile": person.key}
    with library.sync(**given, retry=None) as client, pytest.raises(library.theirs.ConnectionError, match="valkey.test"):
        client.ping()
    with library.sync(**given, ssl_check_hostname=False) as client:
        assert client.ping()


def test_arguments_of_the_client_libraries_as_options():
    for theirs, ours in (
        ({}, {}),
        ({"ssl_cert_reqs": "required", "ssl_check_hostname": True, "ssl_ca_data": None, "ssl_validate_ocsp": False}, {}),
        ({"ssl_cert_reqs": ssl.CERT_OPTIONAL, "ssl_check_hostname": "no"}, {"verify": "ca"}),
        ({"ssl_cert_reqs": None, "ssl_check_hostname": True}, {"verify": "none"}),
        ({"ssl_cert_reqs": ssl.CERT_NONE}, {"verify": "none"}),
        ({"ssl_ca_certs": "a", "ssl_certfile": "b", "ssl_keyfile": "c"}, {"ca": "a", "cert": "b", "key": "c"}),
        ({"ssl_min_version": ssl.TLSVersion.TLSv1_2}, {}),
    ):
        for scheme, with_tls in (("rdma", "rdmas"), ("valkey", "valkeys"), ("rdmas", "rdmas")):
            assert encrypted(scheme, {"timeout": "1s"}, theirs | {"ssl": True}) == (with_tls, {"timeout": "1s"} | ours)


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        ({"ssl_ca_data": "PEM"}, "ssl_ca_data.*ca, cert"),
        ({"ssl_ca_path": "/certs"}, "ssl_ca_path"),
        ({"ssl_password": "hidden"}, "ssl_password is not supported"),
        ({"ssl_validate_ocsp": True}, "ssl_validate_ocsp"),
        ({"ssl_min_version": ssl.TLSVersion.TLSv1_3}, "ssl_min_version"),
        ({"ssl_cert_reqs": "some"}, "none, optional or required, not 'some'"),
        ({"ssl_ca_certs": "a", "options": {"ca": "b"}}, "ca is given twice"),
        ({"ssl_certfile": "a"}, "key"),
        ({"ssl": False, "ssl_ca_certs": "a"}, "ssl_ca_certs is for encrypted connections: add ssl=True, or use rdmas://"),
        ({"ssl": False, "ssl_cert_reqs": "none"}, "ssl_cert_reqs is for encrypted"),
    ],
)
def test_arguments_that_nothing_here_stands_for_are_refused(library, theirs, text):
    for make in (library.sync, library.asyncio, library.ours.RdmaConnection):
        with pytest.raises(valkey_rdma.UrlError, match=text) as raised:
            make(host="h", **{"ssl": True} | theirs)
        assert "hidden" not in str(raised.value)
    with pytest.raises(valkey_rdma.UrlError, match=text):
        library.ours.from_url("rdma://h", **{"ssl": True} | theirs)


def test_a_pool_of_the_library_cannot_make_plain_what_has_files(library, authority):
    """Their `from_url` drops the scheme of a URL with TLS where it is given a class of connections."""
    url = f"{library.theirs.__name__}s://127.0.0.1:1?ssl_ca_certs={authority.ca}"
    client = library.theirs.from_url(url, connection_class=library.ours.RdmaConnection)
    with client, pytest.raises(valkey_rdma.UrlError, match="ssl_ca_certs is for encrypted"):
        client.ping()


def test_many_tasks_share_one_encrypted_connection(over, secure, authority, key):
    async def run():
        async with await AsyncClient.connect(f"{over(secure)}?ca={authority.ca}") as client:
            keys = [f"{key}{number}" for number in range(500)]
            await asyncio.gather(*(client.command("SET", each, each) for each in keys))
            return await asyncio.gather(*(client.command("GET", each) for each in keys)) == [each.encode() for each in keys]

    assert asyncio.run(run())

"""redis-py and valkey-py over our connections."""

import asyncio
import importlib
import os
import signal
import traceback

import pytest

import valkey_rdma
from valkey_rdma import _bridge, _native


@pytest.fixture(params=["redis", "valkey"])
def library(request):
    return importlib.import_module(f"valkey_rdma.{request.param}_py")


def test_the_bridge_takes_all_options_of_the_client_but_the_protocol():
    every = set(_native.url_options())
    assert {"rx_size", "fallback", "protocol"} <= every
    assert _bridge.OPTIONS == every - {"protocol", "db"}


def test_commands_pipelines_and_messages(library, url, key):
    with library.from_url(url) as client:
        big = os.urandom(1_000_000)
        assert client.set(key, big)
        assert client.get(key) == big
        pipeline = client.pipeline()
        pipeline.incr(key + "n")
        pipeline.lrange(key + "list", 0, -1)
        assert pipeline.execute() == [1, []]
        messages = client.pubsub()
        messages.subscribe(key)
        assert messages.get_message(timeout=30)["type"] == "subscribe"
        client.publish(key, "hello")
        assert messages.get_message(timeout=30)["data"] == b"hello"
        assert messages.get_message(timeout=0.01) is None
        messages.close()


def test_what_was_sent_arrives_though_the_replies_are_not_read(library, url, key):
    with library.from_url(url) as client:
        connection = client.connection_pool.make_connection()
        commands = [("INCR", key)] * 10_000 + [("RPUSH", key + "end", "all")]
        connection.send_packed_command(connection.pack_commands(commands))
        connection.disconnect()
        assert client.blpop(key + "end", timeout=30)
        assert client.get(key) == b"10000"


def test_a_reply_that_does_not_come(library, url, key):
    with library.from_url(url, socket_timeout=1, retry=None) as client:
        module = importlib.import_module(library.__name__.split(".")[1].removesuffix("_py"))
        with pytest.raises(module.TimeoutError):
            client.blpop(key, timeout=0)
        assert client.ping()


def test_no_server(library):
    module = importlib.import_module(library.__name__.split(".")[1].removesuffix("_py"))
    with library.from_url("valkey://127.0.0.1:1", retry=None) as client:
        with pytest.raises(module.ConnectionError) as raised:
            client.ping()
    assert_cause(raised.value)


def assert_cause(error):
    """Our error is the cause of theirs, and says what became of the command."""
    assert (type(error.__cause__), error.__cause__.fate) == (valkey_rdma.ConnectError, "not-sent")


async def test_no_server_for_asyncio(library):
    module = importlib.import_module(library.__name__.split(".")[1].removesuffix("_py"))
    async with library.async_from_url("valkey://127.0.0.1:1", retry=None) as client:
        with pytest.raises(module.ConnectionError) as raised:
            await client.ping()
    assert_cause(raised.value)


@pytest.mark.parametrize("hosts", ["127.0.0.1:26379", "127.0.0.1:26379,127.0.0.2:26379", "sentinel"])
def test_sentinels_are_refused_with_what_to_do(library, hosts):
    url = f"rdma+sentinel://{hosts}/mymaster"
    for make in (library.from_url, library.async_from_url, lambda _: library.RdmaConnection(scheme="rdma+sentinel")):
        with pytest.raises(valkey_rdma.UrlError, match="master_for") as raised:
            make(url)
        assert raised.value.fate == "not-sent"


@pytest.mark.parametrize("scheme", ["unix", "redis+unix", "valkey+unix"])
def test_unix_sockets_are_refused_with_what_to_do(library, scheme):
    for make in (library.from_url, library.async_from_url, lambda _: library.RdmaConnection(scheme=scheme)):
        with pytest.raises(valkey_rdma.UrlError, match="Unix sockets are not supported here"):
            make(f"{scheme}:///run/valkey.sock")


@pytest.mark.parametrize("place", ["[fe80::1%25d0]", "[fe80::1%d0]", "[FE80::1%25d0]"])
def test_the_interface_of_a_link_local_address_survives(library, place):
    with library.from_url(f"rdma://me:p%25w@{place}:7000/0?rx_size=65536") as client:
        host = client.connection_pool.connection_kwargs["host"]
        assert (host, client.connection_pool.connection_kwargs["password"]) == ("fe80::1%d0", "p%w")
    for host in (host, "fe80::1%25d0", "fe80::1%253"):
        url = library.RdmaConnection(host=host, port=7000)._url()
        assert url.startswith(f"rdma://[{host.replace('%', '%25', 1)}]:7000"), url


def test_an_interface_that_is_unknown_is_named(library):
    module = importlib.import_module(library.__name__.split(".")[1].removesuffix("_py"))
    with library.from_url("valkey://[fe80::1%nosuch0]:1", retry=None) as client:
        with pytest.raises(module.ConnectionError, match="no network interface `nosuch0`"):
            client.ping()
    with pytest.raises(module.ConnectionError, match="no network interface `nosuch0`"):
        library.RdmaConnection(host="fe80::1%nosuch0", scheme="valkey").connect()


@pytest.mark.parametrize(
    "url",
    [
        "valkey://h?timeout=",
        "rdma://h?rx_size=&timeout=1s",
        "rdma://h?device",
        "valkey://h?timeout=1s&timeout=2s",
        "valkey://h?socket_timeout=1&socket_timeout=2",
        "valkey://h?socket_timeout=1&timeout=1s&timeout=1s",
        "rdma://u:Zq7/Xw4@h",
        "rdma://u:Zq7?Xw4@h",
        "rdma://u:Zq7?socket_timeout=Xw4@h",
        "rdma://u:Zq7#Xw4@h",
        "rdma://u:Zq7Xw4",
        "rdma://u:Zq7%Xw4@h",
    ],
)
def test_what_client_refuses_in_a_url_is_refused_here_too(library, url):
    for make in (library.from_url, library.async_from_url):
        with pytest.raises(valkey_rdma.UrlError) as raised:
            make(url)
        assert "Zq7" not in str(raised.value) and "Xw4" not in str(raised.value)
    if "socket_timeout" not in url:
        with pytest.raises(valkey_rdma.UrlError):
            valkey_rdma.Client(url)


@pytest.mark.parametrize("password", ["Zq7\uff0fXw4", "Zq7\uff20Xw4", "Zq7[Xw4]", "Zq7\u2100Xw4"])
def test_no_part_of_a_password_is_quoted_that_urllib_cannot_read(library, password):
    for make in (library.from_url, library.async_from_url):
        with pytest.raises(valkey_rdma.UrlError) as raised:
            make(f"rdma://u:{password}@127.0.0.1:1")
        shown = f"{raised.value}{raised.value.__cause__}{raised.value.__suppress_context__ or raised.value.__context__}"
        assert "Zq7" not in shown and "Xw4" not in shown


def test_the_password_of_a_user_in_the_url_may_be_an_argument(library):
    with library.from_url(" rdma://app@h:7000\n", password="pw") as client:
        kwargs = client.connection_pool.connection_kwargs
        assert (kwargs["host"], kwargs["username"], kwargs["password"]) == ("h", "app", "pw")
    with pytest.raises(valkey_rdma.UrlError, match="no password"):
        library.from_url("rdma://app@h:7000")


async def test_asyncio(library, url, key):
    async with library.async_from_url(url) as client:
        big = os.urandom(1_000_000)

        async def work(number):
            assert await client.set(f"{key}{number}", big)
            assert await client.get(f"{key}{number}") == big

        await asyncio.gather(*(work(number) for number in range(10)))
        # A cancelled call costs its connection only.
        blocked = asyncio.ensure_future(client.blpop(key + "list"))
        await asyncio.sleep(0.05)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        assert await client.ping()


def test_a_fork(library, url):
    if url.startswith("rdma://"):
        pytest.skip("a child of a process that has used RDMA cannot: test_processes.py")
    with library.from_url(url) as client:
        assert client.ping()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            # Whatever happens, the child does not go on with the other tests.
            try:
                os._exit(0 if client.ping() else 1)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert client.ping()

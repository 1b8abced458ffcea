"""redis-py and valkey-py: how our connections are made, and what is said when they are not."""

import asyncio
import importlib
import pathlib
import pickle
import threading
import time
from types import SimpleNamespace

import pytest

import valkey_rdma


@pytest.fixture(params=["redis", "valkey"])
def library(request):
    """Our module for a client library, and that library."""
    module = importlib.import_module(request.param)
    name = request.param.capitalize()
    ours = importlib.import_module(f"valkey_rdma.{request.param}_py")
    importlib.import_module(f"{request.param}.asyncio.sentinel")
    clients = getattr(ours, name), getattr(ours, f"Async{name}")
    return SimpleNamespace(ours=ours, theirs=module, sync=clients[0], asyncio=clients[1], scheme=request.param)


def connecting_to(port):
    """How many connections of this machine wait for an answer of the port."""
    rows = [row.split() for row in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)


def arguments(url):
    scheme, address = url.split("://")
    return {"scheme": scheme, "host": address.rsplit(":", 1)[0], "port": int(address.rsplit(":", 1)[1])}


def test_a_connect_without_an_answer_times_out(library, silent):
    client = library.ours.from_url(f"valkey://127.0.0.1:{silent}", socket_connect_timeout=0.2, retry=None)
    with pytest.raises(library.theirs.TimeoutError, match="Timeout connecting to server") as raised:
        client.ping()
    assert isinstance(raised.value.__cause__, valkey_rdma.ConnectError)
    assert isinstance(raised.value.__cause__, TimeoutError)


async def test_a_connect_without_an_answer_times_out_for_asyncio(library, silent):
    async with library.ours.async_from_url(
        f"valkey://127.0.0.1:{silent}", socket_connect_timeout=0.2, retry=None
    ) as client:
        with pytest.raises(library.theirs.TimeoutError, match="Timeout connecting to server"):
            await client.ping()


def test_our_own_client_says_that_it_was_the_time(silent):
    with pytest.raises(valkey_rdma.ConnectTimeoutError, match="no answer within 200ms"):
        valkey_rdma.Client(f"valkey://127.0.0.1:{silent}?timeout=200ms")


def test_no_time_to_connect(library, url):
    with library.ours.from_url(url, socket_connect_timeout=0, retry=None) as client:
        with pytest.raises(library.theirs.TimeoutError) as raised:
            client.ping()
    assert "socket_connect_timeout=0" in str(raised.value.__cause__)


def test_an_error_of_the_system_has_its_number_and_is_told_once(library):
    with library.ours.from_url("valkey://127.0.0.1:1", retry=None) as client:
        with pytest.raises(library.theirs.ConnectionError) as raised:
            client.ping()
    expected = "Error 111 connecting to 127.0.0.1:1 over tcp: connection refused; is a server listening on this port?"
    assert str(raised.value) == expected
    assert raised.value.__cause__.errno == 111


def test_a_cancelled_connect_does_not_hold_up_the_end(library, silent):
    async def connect():
        client = library.ours.async_from_url(f"valkey://127.0.0.1:{silent}", socket_connect_timeout=60, retry=None)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.ping(), 0.1)

    thread = threading.Thread(target=asyncio.run, args=(connect(),), daemon=True)
    thread.start()
    # The attempt would take 60 s.
    thread.join(30)
    assert not thread.is_alive()


async def test_slow_connects_do_not_stop_others(library, silent, url):
    slow = library.ours.async_from_url(f"valkey://127.0.0.1:{silent}", socket_connect_timeout=60, retry=None)
    others = connecting_to(silent)
    stuck = [asyncio.ensure_future(slow.ping()) for _ in range(40)]
    while connecting_to(silent) < others + len(stuck):
        await asyncio.sleep(0.01)
    async with library.ours.async_from_url(url) as client:
        assert await asyncio.wait_for(client.ping(), 30)
    assert await asyncio.wait_for(asyncio.to_thread(threading.get_ident), 30)
    for call in stuck:
        call.cancel()
    await asyncio.wait(stuck)


def test_cancelled_connects_leave_no_descriptor(library, url, opened):
    async def cancelled():
        for turns in range(20):
            connection = library.ours.AsyncRdmaConnection(**arguments(url))
            connecting = asyncio.ensure_future(connection.connect())
            await asyncio.sleep(turns / 10_000)
            connecting.cancel()
            await asyncio.wait([connecting])
            await connection.disconnect()

    asyncio.run(cancelled())
    deadline, before = time.monotonic() + 60, opened()
    asyncio.run(cancelled())
    while opened() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not opened() - before


@pytest.mark.parametrize("url", ["http://h", "unix:///run/valkey.sock", "nonsense"])
def test_other_schemes_are_refused_at_once_with_what_python_can_do(library, url):
    for make in (library.ours.from_url, library.ours.async_from_url):
        with pytest.raises(valkey_rdma.UrlError) as raised:
            make(url)
        assert "Client::" not in str(raised.value)
    with pytest.raises(valkey_rdma.UrlError):
        library.sync(host="h", scheme="http")
    with pytest.raises(valkey_rdma.UrlError, match="unix_socket_path"):
        library.sync(host="h", unix_socket_path="/run/valkey.sock")


def test_bad_options_are_refused_at_once(library):
    for make in (library.ours.from_url, library.ours.async_from_url):
        with pytest.raises(valkey_rdma.UrlError, match="rx_size"):
            make("rdma://h?rx_size=1")
    with pytest.raises(valkey_rdma.UrlError, match="nonsense"):
        library.ours.RdmaConnection(options={"nonsense": 1})


def test_options_of_the_library_in_a_url(library, url):
    options = f"{url}/2?decode_responses=True&socket_timeout=7&protocol=resp3&timeout=9s"
    with library.ours.from_url(options) as client:
        assert client.set("option", "text") and client.get("option") == "text"
        connection = client.connection_pool.make_connection()
        assert (connection.socket_timeout, connection.protocol, connection.db) == (7, 3, 2)
        assert connection.options == {"timeout": "9s"}


def test_a_client_of_a_class_of_ours(library, url):
    given = arguments(url)
    for client in (library.sync(**given), library.sync(**given, single_connection_client=True), library.sync.from_url(url)):
        with client:
            assert client.ping()
            assert client.connection_pool.connection_class is library.ours.RdmaConnection
    # What the library's own class does with a pool of somebody else: it leaves it open.
    pool = library.theirs.ConnectionPool(connection_class=library.ours.RdmaConnection, **given)
    assert not library.sync(connection_pool=pool).auto_close_connection_pool


async def test_a_client_of_a_class_of_ours_for_asyncio(library, url):
    given = arguments(url)
    for client in (library.asyncio(**given), library.asyncio.from_url(url, socket_timeout=60)):
        async with client:
            assert await client.ping()
            assert client.connection_pool.connection_class is library.ours.AsyncRdmaConnection


def test_a_client_is_made_again_from_the_arguments_of_its_pool(library, url):
    """Programs that pass connections to other processes do that: the arguments can be pickled, clients cannot."""
    with library.sync.from_url(url, db=3) as client:
        pool = client.connection_pool
        passed = {name: value for name, value in pool.connection_kwargs.items() if name in ("host", "port", "db", "scheme", "options")}
        connection_class, passed = pickle.loads(pickle.dumps((pool.connection_class, passed)))
        pool = library.theirs.ConnectionPool(connection_class=connection_class, **passed)
        with library.sync(**passed) as again:
            assert again.set("again", 1) and library.sync(connection_pool=pool).get("again") == b"1"
        pool.disconnect()
        with pytest.raises(TypeError):
            pickle.dumps(client)


class Sentinel:
    """Answers what client libraries ask a Sentinel: the address of one primary."""

    def __init__(self, host, port):
        address = ["name", "mymaster", "ip", host, "port", str(port)]
        self.reply = [*address, "flags", "master", "num-slaves", "0", "num-other-sentinels", "0"]

    async def __call__(self, reader, writer):
        encoded = "".join(f"${len(word)}\r\n{word}\r\n" for word in self.reply)
        resp3 = False
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int((await reader.readline())[1:])
                words.append((await reader.readexactly(length + 2))[:-2].upper())
            if words[0] == b"HELLO":
                resp3 = True
                writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
            elif words[0] == b"PING":
                writer.write(b"+PONG\r\n")
            elif words[:2] == [b"SENTINEL", b"MASTERS"]:
                one = f"%{len(self.reply) // 2}" if resp3 else f"*{len(self.reply)}"
                writer.write(f"*1\r\n{one}\r\n{encoded}".encode())
            else:
                writer.write(b"+OK\r\n")
        writer.close()


@pytest.fixture
def sentinel(url):
    """The port of a Sentinel that knows the server."""
    ready, ports = threading.Event(), []

    async def serve():
        given = arguments(url)
        server = await asyncio.start_server(Sentinel(given["host"], given["port"]), "127.0.0.1", 0)
        ports.extend([server.sockets[0].getsockname()[1], asyncio.get_running_loop(), asyncio.Event()])
        ready.set()
        async with server:
            await ports[2].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(30)
    yield ports[0]
    ports[1].call_soon_threadsafe(ports[2].set)
    thread.join()


def test_the_primary_that_sentinels_know(library, sentinel, url):
    sentinels = library.theirs.Sentinel([("127.0.0.1", sentinel)])
    ours = {"connection_class": library.ours.SentinelRdmaConnection, "scheme": arguments(url)["scheme"]}
    with sentinels.master_for("mymaster", **ours) as client:
        assert client.ping()
    for each in sentinels.sentinels:
        each.close()


async def test_the_primary_that_sentinels_know_for_asyncio(library, sentinel, url):
    sentinels = library.theirs.asyncio.Sentinel([("127.0.0.1", sentinel)])
    ours = {"connection_class": library.ours.AsyncSentinelRdmaConnection, "scheme": arguments(url)["scheme"]}
    async with sentinels.master_for("mymaster", **ours) as client:
        assert await client.ping()
    for each in sentinels.sentinels:
        await each.aclose()


def test_a_class_for_the_other_library_says_so():
    redis = importlib.import_module("redis")
    valkey_py = importlib.import_module("valkey_rdma.valkey_py")
    pool = redis.ConnectionPool(connection_class=valkey_py.RdmaConnection)
    with pytest.raises(TypeError, match="classes of valkey_rdma.redis_py are for redis-py"):
        pool.get_connection()

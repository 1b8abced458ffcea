"""Lost connections and closed clients: what became of values in buffers, and when the buffers are free."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time

import pytest
from conftest import without_tls

import valkey_rdma
from valkey_rdma import AsyncClient, Client


@pytest.fixture(params=["emulated", "tcp"])
def own_url(request, own_mock):
    return getattr(own_mock, request.param)


class Proxy:
    """Stands before a server. It closes the connection on which `lose` comes by, once the server has answered what was sent."""

    def __init__(self, url, lose, meanwhile):
        self.server = url.removeprefix("valkey://").split(":")
        self.lose, self.meanwhile = lose, meanwhile
        self.lost = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"valkey://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        # It ends the thread, which closes the listener.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)

    def accept(self):
        with self.listener, contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.pass_on, args=(client,), daemon=True).start()

    def pass_on(self, client):
        # The server may be gone: then the client loses its connection too.
        with contextlib.suppress(OSError), client, socket.create_connection(self.server) as server:
            while data := client.recv(1 << 16):
                server.sendall(data)
                answer = server.recv(1 << 16)
                if self.lose in data:
                    self.lost += 1
                    self.meanwhile(self)
                    return
                client.sendall(answer)


def lose_once(proxy):
    proxy.lose = b"nothing more"


@without_tls
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_store_that_may_have_run_is_not_sent_again(own_mock, comes_back):
    other = Client(own_mock.tcp)

    def meanwhile(proxy):
        other.command("SET", "k", "newer")
        if not comes_back:
            proxy.stop()

    proxy = Proxy(own_mock.tcp, b"older", meanwhile)
    with Client(proxy.url, offline_timeout=0.1) as client:
        client.set_from("k", b"before")
        with pytest.raises(valkey_rdma.LostError) as raised:
            client.set_from("k", b"older")
        assert raised.value.fate == "may-have-run"
    assert (other.command("GET", "k"), proxy.lost) == (b"newer", 1)
    other.close()
    proxy.stop()


@without_tls
def test_a_load_is_sent_again(own_mock):
    with Client(own_mock.tcp) as other:
        other.command("SET", "older", "value")
        proxy = Proxy(own_mock.tcp, b"older", lose_once)
        with Client(proxy.url) as client:
            buffer = bytearray(5)
            assert client.get_into("older", buffer) == 5
            assert (buffer, proxy.lost) == (b"value", 1)
        proxy.stop()
        proxy = Proxy(own_mock.tcp, b"older", lambda proxy: None)
        with Client(proxy.url, retries=0) as client, pytest.raises(valkey_rdma.LostError):
            client.get_into("older", buffer)
        proxy.stop()


@without_tls
def test_a_deletion_that_may_have_run_is_not_sent_again(own_mock):
    with Client(own_mock.tcp) as other:
        other.command("SET", "k", "older")

        def meanwhile(proxy):
            other.command("SET", "k", "newer")
            lose_once(proxy)

        proxy = Proxy(own_mock.tcp, b"UNLINK", meanwhile)
        with Client(proxy.url) as client, pytest.raises(valkey_rdma.LostError) as raised:
            client.delete_many(["k"])
        assert raised.value.fate == "may-have-run"
        assert (other.command("GET", "k"), proxy.lost) == (b"newer", 1)
        proxy.stop()


@without_tls
def test_a_look_for_keys_is_sent_again(own_mock):
    with Client(own_mock.tcp) as other:
        other.command("SET", "k", "value")
    proxy = Proxy(own_mock.tcp, b"EXISTS", lose_once)
    with Client(proxy.url) as client:
        assert client.exists_many(["k", "none"]) == [True, False]
        assert proxy.lost == 1
    proxy.stop()


def test_lanes_that_a_restart_has_closed_are_replaced(own_mock, own_url):
    with Client(own_url) as client:
        client.set_from("k", b"before")
        own_mock.stop()
        own_mock.start()
        client.set_from("k", b"after")
        buffer = bytearray(5)
        assert client.get_into("k", buffer) == 5
        assert buffer == b"after"


def test_buffers_wait_for_the_server_as_commands_do(own_mock, own_url):
    with Client(own_url) as client:
        client.set_from("k", b"before")
        own_mock.stop()
        lengths = []
        waiting = threading.Thread(target=lambda: lengths.append(client.get_into("k", bytearray(10))))
        waiting.start()
        own_mock.start()
        waiting.join(60)
        assert lengths == [None], "it has forgotten everything"
    with Client(own_url, offline_timeout=0.1) as client:
        own_mock.stop()
        with pytest.raises(valkey_rdma.ConnectError):
            client.get_into("k", bytearray(10))


def in_thread(call, *arguments):
    """Starts a call in a thread. Returns that, and the list in which its error will be."""
    errors = []

    def work():
        try:
            call(*arguments)
        except valkey_rdma.Error as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def until_in_use(buffer):
    with pytest.raises(BufferError):
        while True:
            buffer.append(1)


def test_closing_ends_operations_on_buffers(own_mock, own_url):
    client = Client(own_url)
    buffer = bytearray(1 << 20)
    client.set_from("k", buffer)
    with own_mock.frozen():
        loading, load_errors = in_thread(client.get_into, "k", buffer)
        blocking, block_errors = in_thread(client.blocking_command, "BLPOP", "none", 0)
        until_in_use(buffer)
        client.close()
        for thread in (loading, blocking):
            thread.join(60)
    errors = load_errors + block_errors
    assert [type(error) for error in errors] == [valkey_rdma.ClosedError] * 2
    assert {error.fate for error in errors} <= {"may-have-run", "not-sent"}
    buffer.append(1)


@pytest.mark.parametrize("method", ["get_into", "set_from", "mget_into"])
async def test_a_cancelled_call_frees_its_buffer(own_mock, own_url, method):
    async with await AsyncClient.connect(own_url) as client:
        buffer = bytearray(1 << 20)
        await client.set_from("k", buffer)
        with own_mock.frozen():
            for _ in range(20):
                many = method == "mget_into"
                call = getattr(client, method)(["k"] if many else "k", [buffer] if many else buffer)
                with pytest.raises(BufferError):
                    buffer.append(1)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(call, 0.001)
                buffer.append(1)
        assert await client.get_into("k", bytearray(len(buffer))) in (1 << 20, len(buffer))


async def test_a_future_that_is_cancelled_frees_its_buffer_at_once(own_mock, own_url):
    async with await AsyncClient.connect(own_url) as client:
        buffer = bytearray(1 << 20)
        await client.set_from("k", buffer)
        with own_mock.frozen():
            future = client.get_into("k", buffer)
            with pytest.raises(BufferError):
                buffer.append(1)
            assert future.cancel()
            # Before the loop's next turn: to await it now would raise without one.
            buffer.append(1)
            with pytest.raises(asyncio.CancelledError):
                await future


async def test_calls_that_wait_for_a_lane_fail_with_the_one_that_could_not_connect(own_mock, own_url):
    async with await AsyncClient.connect(own_url, lanes=1, offline_timeout=1, timeout=20) as client:
        own_mock.stop()
        calls = [client.get_into("k", bytearray(1)) for _ in range(50)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {(type(error), error.fate) for error in errors} == {(valkey_rdma.ConnectError, "not-sent")}


def test_a_call_that_only_waited_for_a_lane_was_not_sent(own_mock, own_url):
    with Client(own_url, lanes=1) as client:
        client.set_from("k", b"x")
        with own_mock.frozen():
            calls = [in_thread(lambda: client.get_into("k", bytearray(1), timeout=1)) for _ in range(2)]
            for thread, _ in calls:
                thread.join(60)
        fates = [error.fate for _, errors in calls for error in errors]
        assert sorted(fates) == ["may-have-run", "not-sent"]


async def test_closing_a_client_for_asyncio_leaves_no_buffer_in_use(own_mock, own_url):
    client = await AsyncClient.connect(own_url)
    buffer = bytearray(1 << 20)
    await client.set_from("k", buffer)
    with own_mock.frozen():
        call = client.get_into("k", buffer)
        await client.close()
        buffer.append(1)
        with pytest.raises(valkey_rdma.ClosedError):
            await call


def test_a_signal_handler_may_close_the_client(own_mock):
    client = Client(own_mock.tcp)
    before = signal.signal(signal.SIGUSR1, lambda *_: client.close())

    def interrupt():
        with Client(own_mock.tcp) as other:
            while b" flags=b" not in other.command("CLIENT", "LIST"):
                pass
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(valkey_rdma.ClosedError):
            client.blocking_command("BLPOP", "none", 0)
    finally:
        signal.signal(signal.SIGUSR1, before)
        thread.join(60)
    client.close()


class Interrupted(Exception):
    pass


def test_closing_that_was_interrupted_is_finished_by_another_call(own_mock):
    client = Client(own_mock.tcp)
    buffer = bytearray(1 << 20)
    client.set_from("k", buffer)

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with own_mock.frozen():
            loading, load_errors = in_thread(client.get_into, "k", buffer)
            until_in_use(buffer)
            # The load may have no connection yet, and closing does not wait for such. It waits for this one's reply, longer than for the signal.
            reading, read_errors = in_thread(client.command, "GET", "k")
            while client.stats()["in_flight"] == 0:
                time.sleep(0.001)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Interrupted):
                client.close()
            client.close()
            for thread in (loading, reading):
                thread.join(60)
    finally:
        # A signal that comes now would end the tests.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [type(error) for error in load_errors] == [valkey_rdma.ClosedError]
    assert [type(error) for error in read_errors] == [valkey_rdma.ClosedError]
    buffer.append(1)

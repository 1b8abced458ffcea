"""A new client, and a server that still reads its data: it accepts connections, and answers commands with LOADING."""

import re
import select
import socketserver
import threading

import pytest

import valkey_rdma
from valkey_rdma import Client, LMCacheClient

HELLO = b"%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.0\r\n+proto\r\n:3\r\n"
LOADING = b"-LOADING Valkey is loading the dataset in memory\r\n"


class Loads(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(1 << 16):
            # Names of commands are the first strings of their arrays.
            for name in re.findall(rb"\*\d+\r\n\$\d+\r\n([A-Z]+)\r\n", data):
                self.request.sendall(HELLO if name == b"HELLO" else LOADING)


@pytest.fixture
def loading_url():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Loads) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"valkey://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_new_client_does_not_wait_for_the_data(loading_url):
    with Client(loading_url) as client:
        for call in (
            lambda: client.command("GET", "k"),
            lambda: client.get_into("k", bytearray(1)),
            lambda: client.set_from("k", b"value"),
            lambda: client.mget_into(["k", "l"], [bytearray(1), bytearray(1)]),
        ):
            with pytest.raises(valkey_rdma.ServerError) as raised:
                call()
            assert (raised.value.code, raised.value.fate) == ("LOADING", "answered")
        assert [error.code for error in raised.value.outcomes] == ["LOADING", "LOADING"]


def test_batches_of_lmcache_fail_with_that_reason(loading_url):
    connector = LMCacheClient(loading_url)
    for submit in (
        lambda: connector.submit_batch_get(["k"], [bytearray(1)]),
        lambda: connector.submit_batch_set(["k"], [b"value"]),
        lambda: connector.submit_batch_exists(["k"]),
    ):
        number = submit()
        assert select.select([connector.event_fd()], [], [], 30)[0]
        ((done, ok, error, succeeded),) = connector.drain_completions()
        assert (done, ok, succeeded) == (number, False, [False])
        assert "LOADING" in error
    connector.close()

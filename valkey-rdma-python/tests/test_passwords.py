"""Passwords that change: in a file, and supplied by the program."""

import gc
import importlib
import select
import threading
import weakref

import pytest
from conftest import Mock

import valkey_rdma
from valkey_rdma import AsyncClient, Client, ClusterClient, LMCacheClient


@pytest.fixture
def guarded():
    """A mock with the password ``one``, and a client that is logged in."""
    mock = Mock()
    with Client(mock.tcp) as admin:
        admin.command("CONFIG", "SET", "requirepass", "one")
        yield mock, admin
    mock.stop()


@pytest.fixture
def password_file(tmp_path):
    file = tmp_path / "password"
    file.write_text("one\n")
    return file


def end_connections(admin):
    admin.command("CLIENT", "KILL", "TYPE", "normal")


def calling_threads():
    return [thread for thread in threading.enumerate() if thread.name == "valkey-rdma-credentials"]


def test_a_file_is_read_for_each_connection(guarded, password_file):
    mock, admin = guarded
    for url in (mock.emulated, mock.tcp.replace("://", "://default@")):
        with Client(f"{url}?password_file={password_file}") as client:
            assert client.command("PING") == b"PONG"
            for password in ("two", "one"):
                password_file.write_text(password)
                admin.command("CONFIG", "SET", "requirepass", password)
                end_connections(admin)
                assert client.command("ECHO", password) == password.encode()


def test_a_file_without_a_password_is_named(guarded, tmp_path):
    mock, _ = guarded
    with pytest.raises(valkey_rdma.ConnectError, match=f'password_file "{tmp_path}": it is not a regular file'):
        Client(f"{mock.tcp}?password_file={tmp_path}")
    with pytest.raises(valkey_rdma.UrlError, match="leave out one of them"):
        Client(f"{mock.tcp.replace('://', '://:one@')}?password_file={tmp_path}")


class Provider:
    """As redis-py's, and a function."""

    def __init__(self, *supplied):
        self.supplied, self.calls = supplied, 0

    def get_credentials(self):
        self.calls += 1
        return self.supplied[min(self.calls, len(self.supplied)) - 1]


@pytest.mark.parametrize("supplied", ["one", ("one",), ("default", "one"), (None, "one")])
def test_a_provider_supplies_user_and_password(guarded, supplied):
    mock, _ = guarded
    provider = Provider(supplied)
    for credentials in (provider, provider.get_credentials):
        with Client(mock.emulated, credentials=credentials) as client:
            assert client.command("PING") == b"PONG"
    assert provider.calls == 2


def test_a_provider_is_called_again_for_each_connection_and_after_a_refusal(guarded):
    mock, admin = guarded
    # The second one is what the server requires by then; the third call finds it.
    provider = Provider("one", "one", "two")
    with Client(mock.emulated, credentials=provider) as client:
        client.command("PING")
        admin.command("CONFIG", "SET", "requirepass", "two")
        end_connections(admin)
        assert client.command("ECHO", "x") == b"x"
    assert provider.calls == 3


async def test_a_provider_for_asyncio(guarded):
    mock, admin = guarded
    provider = Provider("one", "two")
    async with await AsyncClient.connect(mock.emulated, credentials=provider) as client:
        await client.command("PING")
        admin.command("CONFIG", "SET", "requirepass", "two")
        end_connections(admin)
        assert await client.command("ECHO", "x") == b"x"


def test_a_provider_for_a_cluster(cluster_urls):
    provider = Provider(("default", "any: the mocks require none"))
    with ClusterClient(cluster_urls, credentials=provider) as client:
        for number in range(50):
            client.command("SET", f"password:{number}", number)
    assert provider.calls >= 3


def test_a_provider_for_lmcache(guarded):
    mock, admin = guarded
    provider = Provider("one")
    connector = LMCacheClient(mock.emulated, offline_timeout=30, credentials=provider)
    try:
        for password in ("two", "one"):
            calls, provider.supplied = provider.calls, (password,)
            admin.command("CONFIG", "SET", "requirepass", password)
            end_connections(admin)
            connector.submit_batch_exists([f"{number}" for number in range(4)])
            assert select.select([connector.event_fd()], [], [], 30)[0]
            ((_, ok, error, found),) = connector.drain_completions()
            assert (ok, error, found) == (True, "", [False] * 4)
            assert provider.calls > calls
    finally:
        connector.close()
    with pytest.raises(TypeError, match="credentials must be a function"):
        LMCacheClient(mock.emulated, credentials=7)


def test_what_a_provider_does_wrong_is_the_error(guarded):
    mock, _ = guarded

    def failing():
        raise LookupError("no token today")

    with pytest.raises(valkey_rdma.ConnectError, match="provider of credentials failed: LookupError: no token today"):
        Client(mock.emulated, credentials=failing)
    with pytest.raises(valkey_rdma.ConnectError, match="must return .user, password. or a password, not int"):
        Client(mock.emulated, credentials=lambda: 7)
    with pytest.raises(TypeError, match="credentials must be a function"):
        Client(mock.emulated, credentials=7)


def test_the_thread_that_calls_the_provider_ends_with_the_client(guarded):
    mock, _ = guarded
    # Clients of other tests have theirs.
    before = calling_threads()
    client = Client(mock.emulated, credentials=lambda: "one")
    threads = [thread for thread in calling_threads() if thread not in before]
    assert threads
    client.close()
    del client
    gc.collect()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_a_closed_client_lets_go_of_the_object_that_has_it_and_supplies_its_password(guarded):
    mock, _ = guarded

    class Application:
        def __init__(self):
            self.client = Client(mock.emulated, credentials=self.login)

        def login(self):
            return "one"

    before = calling_threads()
    application = Application()
    gone = weakref.ref(application)
    threads = [thread for thread in calling_threads() if thread not in before]
    assert threads
    application.client.close()
    del application
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["redis", "valkey"])
def test_redis_py_and_valkey_py_read_the_file_for_each_connection(guarded, password_file, name):
    mock, admin = guarded
    ours, theirs = importlib.import_module(f"valkey_rdma.{name}_py"), importlib.import_module(name)
    url = f"{mock.emulated.replace('://', '://default@')}?password_file={password_file}"
    with ours.from_url(url) as client:
        assert client.ping()
        password_file.write_text("two")
        admin.command("CONFIG", "SET", "requirepass", "two")
        client.connection_pool.disconnect()
        assert client.ping()
        password_file.unlink()
        client.connection_pool.disconnect()
        with pytest.raises(theirs.ConnectionError, match="No such file") as raised:
            client.ping()
        assert isinstance(raised.value.__cause__, valkey_rdma.ConnectError)
    with pytest.raises(valkey_rdma.UrlError, match="leave out one of them"), ours.from_url(url, password="two") as client:
        client.ping()

"""The contract of LMCache's native connectors, as its `native_connector_l2_adapter.py` uses it."""

import ctypes
import mmap
import select

import pytest

import valkey_rdma
from valkey_rdma import Client, LMCacheClient

CHUNK = 256 * 1024


@pytest.fixture
def connector(url, key):
    connector = LMCacheClient(url, connections=3, key_prefix=key)
    yield connector
    connector.close()


class Arena:
    """What LMCache's L1 is: one large piece of memory, of which chunks are seen through ctypes."""

    def __init__(self, chunks):
        self.memory = mmap.mmap(-1, chunks * CHUNK)
        base = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.memory))
        kind = ctypes.c_ubyte * CHUNK
        # As in LMCache, the views do not keep the memory alive.
        self.views = [memoryview(kind.from_address(base + number * CHUNK)) for number in range(chunks)]

    def __getitem__(self, number):
        return self.views[number]

    def fill(self, number, byte):
        self.memory[number * CHUNK : (number + 1) * CHUNK] = byte * CHUNK

    def bytes(self, number):
        return self.memory[number * CHUNK : (number + 1) * CHUNK]


@pytest.fixture
def arena():
    return Arena(40)


def wait(connector, number):
    """What a batch came to."""
    assert select.select([connector.event_fd()], [], [], 30)[0]
    (completion,) = connector.drain_completions()
    assert completion[0] == number
    assert not select.select([connector.event_fd()], [], [], 0)[0]
    return completion[1:]


def test_a_batch_goes_out_and_comes_back(connector, arena):
    assert arena[0].itemsize == 1
    keys = [f"model@00000000@0@{number:064x}" for number in range(20)]
    for number in range(20):
        arena.fill(number, bytes([number + 1]))
    everything = [True] * 20
    assert wait(connector, connector.submit_batch_set(keys, arena[:20])) == (True, "", everything)
    assert wait(connector, connector.submit_batch_exists([*keys, "none"])) == (True, "", [*everything, False])
    assert wait(connector, connector.submit_batch_get(keys, arena[20:])) == (True, "", everything)
    assert all(arena.bytes(number) == arena.bytes(20 + number) for number in range(20))
    assert wait(connector, connector.submit_batch_delete(keys[:2])) == (True, "", [True, True])
    assert wait(connector, connector.submit_batch_exists(keys[:3])) == (True, "", [False, False, True])


def test_a_missing_value_is_reported_and_its_buffer_untouched(connector, arena):
    wait(connector, connector.submit_batch_set(["there"], [arena[0]]))
    arena.fill(1, b"x")
    ok, error, succeeded = wait(connector, connector.submit_batch_get(["none", "there"], [arena[1], arena[2]]))
    assert (ok, succeeded) == (False, [False, True])
    assert "does not exist" in error
    assert arena.bytes(1) == b"x" * CHUNK


def test_a_value_of_another_size_is_reported_and_its_buffer_untouched(connector, arena):
    wait(connector, connector.submit_batch_set(["short"], [arena[0][:100]]))
    wait(connector, connector.submit_batch_set(["whole"], [arena[0]]))
    arena.fill(1, b"x")
    for key, buffer in (("short", arena[1]), ("whole", arena[1][:100])):
        ok, error, succeeded = wait(connector, connector.submit_batch_get([key], [buffer]))
        assert (ok, succeeded) == (False, [False])
        assert "bytes" in error
    assert arena.bytes(1) == b"x" * CHUNK


def test_many_batches_at_once(connector, arena):
    numbers = {connector.submit_batch_set([f"{n}"], [arena[n]]) for n in range(20)}
    numbers |= {connector.submit_batch_get(["0"], [arena[20 + n]]) for n in range(20)}
    done = []
    while len(done) < 40:
        assert select.select([connector.event_fd()], [], [], 30)[0]
        done += connector.drain_completions()
    assert {completion[0] for completion in done} == numbers
    assert connector.stats()["pending"] == 0


def test_too_many_batches_are_refused(url, key, arena):
    connector = LMCacheClient(url, key_prefix=key, max_pending=2)
    first, second = (connector.submit_batch_exists(["a"]) for _ in range(2))
    with pytest.raises(BlockingIOError, match="2 batches"):
        connector.submit_batch_get(["a"], [arena[0]])
    done = set()
    while len(done) < 2:
        select.select([connector.event_fd()], [], [], 30)
        done |= {completion[0] for completion in connector.drain_completions()}
    assert done == {first, second}
    connector.submit_batch_exists(["a"])
    connector.close()


def test_keys_have_a_prefix_and_a_time_to_live(url, key, arena):
    connector = LMCacheClient(url, key_prefix=key, ttl=100)
    wait(connector, connector.submit_batch_set(["a"], [arena[0]]))
    with Client(url) as client:
        assert client.command("STRLEN", key + "a") == CHUNK
        assert 0 < client.command("PTTL", key + "a") <= 100_000
    connector.close()


@pytest.mark.parametrize("options", [{"connections": 0}, {"max_pending": 0}, {"ttl": -1}, {"offline_timeout": -1}])
def test_options_out_of_range_are_named(url, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"^{name} must be "):
        LMCacheClient(url, **options)


def test_a_lost_server_fails_batches_and_comes_back(own_mock, arena):
    connector = LMCacheClient(own_mock.emulated, timeout=5)
    assert wait(connector, connector.submit_batch_set(["a"], [arena[0]]))[0]
    own_mock.stop()
    for submit in (
        lambda: connector.submit_batch_get(["a", "b"], arena[:2]),
        lambda: connector.submit_batch_set(["a", "b"], arena[:2]),
        lambda: connector.submit_batch_exists(["a", "b"]),
    ):
        ok, error, succeeded = wait(connector, submit())
        assert (ok, succeeded) == (False, [False, False])
        assert error
    own_mock.start()
    assert wait(connector, connector.submit_batch_set(["a"], [arena[0]])) == (True, "", [True])
    assert wait(connector, connector.submit_batch_get(["a"], [arena[0]])) == (True, "", [True])
    connector.close()


def test_batches_wait_for_a_server_that_is_away(own_mock, arena):
    connector = LMCacheClient(own_mock.tcp, timeout=60, offline_timeout=60)
    own_mock.stop()
    number = connector.submit_batch_exists(["a"])
    own_mock.start()
    assert wait(connector, number) == (True, "", [False])
    connector.close()


def test_nothing_writes_to_buffers_after_close(own_mock):
    connector = LMCacheClient(own_mock.tcp)
    assert wait(connector, connector.submit_batch_set(["a"], [b"value"]))[0]
    buffers = [bytearray(3 << 20) for _ in range(3)]
    with own_mock.frozen():
        numbers = [connector.submit_batch_get(["a"], buffers[:1]), connector.submit_batch_get(["a", "a"], buffers[1:])]
        connector.close()
        done = connector.drain_completions()
        assert sorted(number for number, *_ in done) == numbers
        # A batch that had not begun was not sent.
        texts = {"the client was closed before the reply; the command may have run", "the client is closed"}
        assert {error for _, _, error, _ in done} <= texts
        assert sorted(succeeded for *_, succeeded in done) == [[False], [False, False]]
        for buffer in buffers:
            buffer.extend(b"more")


def test_one_lost_node_does_not_hide_what_the_others_answered(own_cluster):
    keys = [own_cluster.key_of(1), own_cluster.key_of(0)]
    connector = LMCacheClient(own_cluster.urls[1:3], cluster=True)
    connector.submit_batch_set(keys, [b"1", b"0"])
    assert wait(connector, 1)[0]
    own_cluster.do("kill", 0)
    ok, error, succeeded = wait(connector, connector.submit_batch_exists(keys))
    assert (ok, succeeded) == (False, [True, False])
    assert error
    ok, error, succeeded = wait(connector, connector.submit_batch_delete(keys))
    assert (ok, succeeded) == (False, [True, False])
    assert error
    connector.close()


def test_a_cluster(cluster_urls, key, arena):
    connector = LMCacheClient(cluster_urls, cluster=True, connections=2, key_prefix=key, ttl=1000)
    keys = [f"model@{number}" for number in range(20)]
    for number in range(20):
        arena.fill(number, bytes([number + 1]))
    everything = [True] * 20
    assert wait(connector, connector.submit_batch_set(keys, arena[:20])) == (True, "", everything)
    assert wait(connector, connector.submit_batch_exists([*keys, "none"])) == (True, "", [*everything, False])
    ok, error, succeeded = wait(connector, connector.submit_batch_get(["none", *keys], [arena[39], *arena[20:39], arena[0]]))
    assert (ok, succeeded) == (False, [False, *everything])
    assert "does not exist" in error
    assert all(arena.bytes(number) == arena.bytes(20 + number) for number in range(1, 19))
    assert wait(connector, connector.submit_batch_delete(keys)) == (True, "", everything)
    assert connector.info()["complete"]
    assert connector.stats()["pending"] == 0
    connector.close()


def test_several_urls_are_a_cluster_only_if_it_says_so(url):
    with pytest.raises(TypeError):
        LMCacheClient([url])
    with pytest.raises(valkey_rdma.ConnectError, match="not part of a cluster"):
        LMCacheClient(url, cluster=True)


def test_bad_input(connector, arena):
    with pytest.raises(ValueError, match="2 keys and 1 buffers"):
        connector.submit_batch_get(["a", "b"], [arena[0]])
    with pytest.raises(BufferError):
        connector.submit_batch_get(["a"], [memoryview(b"read-only")])
    with pytest.raises(TypeError):
        connector.submit_batch_exists("a")
    assert wait(connector, connector.submit_batch_exists([])) == (True, "", [])
    connector.close()
    with pytest.raises(valkey_rdma.ClosedError):
        connector.submit_batch_exists(["a"])
    assert connector.drain_completions() == []

"""Direct transfers (spec, area D): the server's adapter moves values between the server and registered memory."""

import asyncio
import mmap
import random
import sys
import threading
import time
import types

import pytest
from certificates import Authority
from conftest import Mock, MockCluster, frozen, without_tls

import valkey_rdma
from valkey_rdma import AsyncClient, AsyncClusterClient, Client, ClusterClient

pytestmark = without_tls

#: From this length on, values go directly.
DIRECT_FROM = 64 << 10
#: What the memory around a value has.
GUARD = b"\xa5"


@pytest.fixture
def direct(mock):
    """A client over RDMA, to a server that offers direct transfers."""
    with Client(mock.emulated) as client:
        yield client


def moved(client):
    """How many calls were direct so far, and why the last one was not."""
    stats = client.stats()
    return stats["buffers"]["direct"], stats["not_direct"]


def lent(client):
    """Bytes that lanes have sent from where they are."""
    return sum(connection["device_counters"]["lent"] for connection in client.stats()["connections"])


def value_of(length):
    return random.Random(length).randbytes(length)


def wait_until_free(buffer, client):
    """Until nothing exports it any more: devices of closed connections end in the background."""
    deadline = time.monotonic() + 60
    while True:
        try:
            buffer.append(0)
            return
        except BufferError:
            assert time.monotonic() < deadline
            client.close()  # as every call, it releases what has become free


@pytest.mark.parametrize("length", [DIRECT_FROM, 300_001, 5_000_000])
def test_values_go_to_their_place_and_nowhere_else(direct, key, length):
    value, arena = value_of(length), bytearray(GUARD * (3 * length))
    with direct.register(arena), memoryview(arena) as view:
        view[:length] = value
        direct.set_from(key, view[:length])
        assert direct.command("GET", key) == value
        # The memory is longer than the value.
        assert direct.get_into(key, view[length + 100 : 2 * length + 200]) == length
        assert moved(direct) == (2, None)
    assert arena[:length] == arena[length + 100 : 2 * length + 100] == value
    assert arena[length : length + 100] == GUARD * 100
    assert arena[2 * length + 100 :] == GUARD * (length - 100)


def test_batches_go_directly_as_far_as_their_memory_is_registered(direct, key):
    length, count = 100_000, 20
    arena, other = bytearray(length * count), [bytearray(length) for _ in range(count)]
    keys = [f"{key}{number}" for number in range(2 * count)]
    with direct.register(arena), memoryview(arena) as view:
        mine = [view[number * length : (number + 1) * length] for number in range(count)]
        buffers = [buffer for pair in zip(mine, other) for buffer in pair]
        for number, buffer in enumerate(buffers):
            buffer[:] = value_of(length + number)[:length]
        expected = [bytes(buffer) for buffer in buffers]
        direct.mset_from(keys, buffers)
        assert moved(direct) == (count, None)
        for buffer in buffers:
            buffer[:] = bytes(length)
        buffers.append(view[:0])
        assert direct.mget_into([*keys, key + "none"], buffers) == [length] * (2 * count) + [None]
        assert [bytes(buffer) for buffer in buffers[:-1]] == expected
        assert moved(direct) == (2 * count, None)
        # One memory for several values: it is read by one call at a time, and the others go over lanes.
        direct.mset_from(keys[:3], [mine[0]] * 3)
        assert all(direct.command("GET", each) == expected[0] for each in keys[:3])
        for buffer in mine:
            buffer.release()
        buffers.pop().release()


def test_the_outcomes_are_those_of_lanes(direct, key):
    arena = bytearray(GUARD * 300_000)
    with direct.register(arena), memoryview(arena) as view:
        assert direct.get_into(key + "none", view) is None
        direct.command("SET", key, bytes(300_001))
        with pytest.raises(valkey_rdma.SizeError, match="the value of key 0 has 300001 bytes, and its buffer has 300000"):
            direct.get_into(key, view)
        direct.command("RPUSH", key + "list", 1)
        with pytest.raises(valkey_rdma.ServerError, match="WRONGTYPE"):
            direct.get_into(key + "list", view)
        assert "WRONGTYPE" in moved(direct)[1]
    assert arena == GUARD * 300_000


def test_what_cannot_go_directly_goes_over_lanes_and_the_reason_is_there(direct, key):
    arena = bytearray(value_of(200_000))
    with direct.register(arena), memoryview(arena) as view:
        direct.set_from(key, view, ttl=100)
        assert moved(direct) == (0, "the value has a time to live")
        assert lent(direct) == 200_000, "not copied"
        assert 0 < direct.command("PTTL", key) <= 100_000
        assert direct.get_into(key, view, timeout=100) == 200_000
        assert moved(direct) == (0, "the call has a longer timeout than the client")
        direct.set_from(key, view[: DIRECT_FROM - 1])
        assert moved(direct)[0] == 0
    # Memory of no registration, of one that is over, and across the end of one.
    with memoryview(arena) as view, direct.register(view[1:100_000]):
        direct.set_from(key, view[:100_000])
        direct.set_from(key, view[1:100_001])
        assert moved(direct)[0] == 0
        direct.set_from(key, view[1:100_000])
        assert moved(direct)[0] == 1


@pytest.mark.parametrize("way", ["direct=False", "read-only"])
def test_values_are_only_sent_from_memory_that_the_server_may_not_use(direct, key, way):
    arena = bytearray(value_of(200_000))
    view = memoryview(arena) if way == "direct=False" else memoryview(arena).toreadonly()
    with direct.register(view, direct=way != "direct=False"):
        direct.set_from(key, view)
        assert lent(direct) == 200_000
        assert direct.get_into(key, bytearray(200_000)) == 200_000
        assert moved(direct) == (0, None)


def test_over_tcp_values_go_over_the_stream(mock, key):
    arena = bytearray(value_of(200_000))
    with Client(mock.tcp) as client, client.register(arena):
        for _ in range(3):
            client.set_from(key, arena)
            assert client.get_into(key, arena) == len(arena)
        assert moved(client) == (0, "the client is not connected over RDMA")
        assert client.command("GET", key) == value_of(200_000)


def test_over_tls_values_go_over_the_encrypted_stream_d1(tmp_path, key):
    authority = Authority(tmp_path, "issuer")
    mock = Mock(authority.issue("server", "IP:127.0.0.1").flags)
    arena = bytearray(value_of(200_000))
    try:
        with Client(f"{mock.emulated}?ca={authority.ca}") as client, client.register(arena):
            client.set_from(key, arena)
            assert client.get_into(key, arena) == len(arena)
            assert moved(client) == (0, "the connection is encrypted, and direct transfers are plain")
    finally:
        mock.stop()
    assert arena == value_of(200_000)


def test_values_that_cannot_go_directly_share_the_lanes(own_mock, key):
    count = 32
    arena = bytearray(value_of(count * DIRECT_FROM))
    with Client(own_mock.tcp) as other, Client(own_mock.tcp, lanes=2) as client, client.register(arena):
        with memoryview(arena) as view, Client(own_mock.tcp) as before:
            first = before.command("CLIENT", "ID")
            values = [view[n * DIRECT_FROM : (n + 1) * DIRECT_FROM] for n in range(count)]
            client.mset_from([f"{key}{n}" for n in range(count)], values)
            with Client(own_mock.tcp) as after:
                assert after.command("CLIENT", "ID") <= first + 3, "2 lanes, and this one"
            for value in values:
                value.release()
        assert other.command("GET", f"{key}{count - 1}") == arena[-DIRECT_FROM:]


def test_memory_that_cannot_be_registered(direct):
    for strided in (memoryview(bytearray(100))[::2], memoryview(bytes(100))[::2]):
        with pytest.raises(BufferError):
            direct.register(strided)
    with pytest.raises(TypeError):
        direct.register(7)


def test_a_value_across_the_parts_of_a_large_memory(direct, key):
    # Its pages exist once they are used.
    arena = mmap.mmap(-1, (1 << 30) + (1 << 20))
    middle = (1 << 30) - 100_000
    with direct.register(arena), memoryview(arena) as view:
        view[middle : middle + 300_000] = value_of(300_000)
        direct.set_from(key, view[middle : middle + 300_000])
        view[middle : middle + 300_000] = bytes(300_000)
        assert direct.get_into(key, view[middle : middle + 300_000]) == 300_000
        assert view[middle : middle + 300_000] == value_of(300_000)
        assert moved(direct) == (2, None)


@pytest.mark.parametrize("transport", ["emulated", "tcp"])
def test_a_cluster(shared_clusters, key, transport):
    keys = [f"{key}{number}" for number in range(12)]
    arena = bytearray(value_of(12 * 100_000))
    with ClusterClient(shared_clusters(transport).urls) as client, client.register(arena), memoryview(arena) as view:
        buffers = [view[number * 100_000 : (number + 1) * 100_000] for number in range(12)]
        client.mset_from(keys, buffers)
        view[:] = bytes(len(view))
        assert client.mget_into(keys, buffers) == [100_000] * 12
        assert view == value_of(12 * 100_000)
        assert moved(client)[0] == (24 if transport == "emulated" else 0)
        for buffer in buffers:
            buffer.release()


async def test_asyncio(mock, key):
    arena = bytearray(value_of(20 * 100_000))
    async with await AsyncClient.connect(mock.emulated) as client:
        with client.register(arena), memoryview(arena) as view:
            buffers = [view[number * 100_000 : (number + 1) * 100_000] for number in range(20)]
            await asyncio.gather(*(client.set_from(f"{key}{n}", buffer) for n, buffer in enumerate(buffers)))
            view[:] = bytes(len(view))
            await asyncio.gather(*(client.get_into(f"{key}{n}", buffer) for n, buffer in enumerate(buffers)))
            assert view == value_of(20 * 100_000)
            assert moved(client) == (40, None)
            for buffer in buffers:
                buffer.release()


def test_threads(direct, key):
    arena = bytearray(8 * 100_000)
    with direct.register(arena), memoryview(arena) as view:

        def work(number):
            mine, value = view[number * 100_000 : (number + 1) * 100_000], value_of(100_000 + number)[:100_000]
            for _ in range(20):
                mine[:] = value
                direct.set_from(f"{key}{number}", mine)
                mine[:] = bytes(100_000)
                assert direct.get_into(f"{key}{number}", mine) == 100_000
                correct[number] += mine == value
            mine.release()

        correct = [0] * 8
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert correct == [20] * 8
        assert moved(direct) == (320, None)


def doorbells(client):
    """How often the connections for direct transfers have sent something."""
    connections = client.stats()["connections"]
    return sum(one["device_counters"]["doorbells"] for one in connections if one["purpose"] == "bulk")


async def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


async def test_after_a_thousand_cancelled_calls_the_memory_is_the_programs_d5(mock, key):
    length = 200_000
    arena = bytearray(GUARD * (3 * length))
    async with await AsyncClient.connect(mock.emulated) as client:
        await client.set_from(key, bytes(length))
        with client.register(arena), memoryview(arena) as view:
            mine = view[length : 2 * length]
            for number in range(1000):
                call = client.get_into(key, mine) if number % 2 else client.set_from(key + "set", mine)
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                if number % 7 == 0:
                    await client.command("PING")
                call.cancel()
                # The memory is free now: no other call is refused, and nothing writes to it.
                mine[:] = GUARD * length
                if number % 10 == 0:
                    await client.command("PING")
                    assert mine == GUARD * length
            assert arena == GUARD * (3 * length)
            assert await client.get_into(key, mine) == length
            assert mine == bytes(length)
            mine.release()
        assert arena[:length] == arena[2 * length :] == GUARD * length


async def test_a_call_that_is_cancelled_before_its_reply_ends_the_connection_d5(own_mock, key):
    arena = bytearray(GUARD * 200_000)
    async with await AsyncClient.connect(own_mock.emulated) as client:
        await client.set_from(key, bytes(200_000))
        with client.register(arena):
            for _ in range(3):
                assert await client.get_into(key, arena) == 200_000
                with own_mock.frozen():
                    sent = doorbells(client)
                    call = client.get_into(key, arena)
                    await until(lambda: doorbells(client) > sent)
                    call.cancel()
                    arena[:] = GUARD * len(arena)
                await client.command("PING")
                assert arena == GUARD * len(arena)
            assert moved(client)[0] == 3


async def test_a_call_to_many_silent_nodes_is_cancelled_and_none_writes_afterwards_d5():
    """One after the other, they would be waited for longer than for anything else."""
    cluster = MockCluster("emulated", primaries=12, replicas=0)
    try:
        keys = [cluster.key_of(node) for node in range(12)]
        arena = bytearray(12 * DIRECT_FROM)
        async with await AsyncClusterClient.connect(cluster.urls[0]) as client:
            with client.register(arena), memoryview(arena) as view:
                buffers = [view[at : at + DIRECT_FROM] for at in range(0, len(arena), DIRECT_FROM)]
                await client.mset_from(keys, buffers)
                assert moved(client) == (12, None)
                with frozen(cluster.process):
                    sent = doorbells(client)
                    call = client.mget_into(keys, buffers)
                    await until(lambda: doorbells(client) >= sent + 12)
                    call.cancel()
                    arena[:] = GUARD * len(arena)
                for key in keys:
                    assert await client.command("EXISTS", key) == 1
                assert arena == GUARD * len(arena)
                [buffer.release() for buffer in buffers]
    finally:
        cluster.stop()


def test_a_call_that_times_out_gives_memory_back_that_nobody_writes_d5(own_mock, key):
    arena = bytearray(GUARD * 200_000)
    with Client(own_mock.emulated) as client, client.register(arena):
        client.set_from(key, bytes(200_000))
        assert client.get_into(key, arena) == 200_000
        with own_mock.frozen():
            with pytest.raises(valkey_rdma.DeadlineError):
                client.get_into(key, arena, timeout=0.1)
            arena[:] = GUARD * len(arena)
            with pytest.raises(valkey_rdma.DeadlineError) as raised:
                client.set_from(key, arena, timeout=0.1)
            assert raised.value.fate == "may-have-run"
        client.command("PING")
        assert arena == GUARD * len(arena)
        assert client.get_into(key, arena) == 200_000
        assert moved(client)[0] == 2


async def test_a_registration_is_closed_while_a_call_uses_it(own_mock, key):
    arena = bytearray(200_000)
    client = await AsyncClient.connect(own_mock.emulated)
    registration = client.register(arena)
    await client.set_from(key, value_of(200_000))
    await client.set_from(key + "other", arena)
    with own_mock.frozen():
        call = client.get_into(key, arena)
        registration.close()
        with pytest.raises(BufferError, match="in use"):
            client.get_into(key, arena)
    assert await call == 200_000
    assert arena == value_of(200_000)
    assert moved(client) == (2, None)
    await client.set_from(key, arena)
    assert moved(client)[0] == 2, "later calls go over lanes"
    await client.close()
    with Client(own_mock.emulated) as other:
        wait_until_free(arena, other)


def test_a_server_that_is_killed_fails_calls_and_comes_back(own_mock, key):
    arena = bytearray(value_of(8 << 20))
    with Client(own_mock.emulated, offline_timeout=0.1) as client, client.register(arena):
        for _ in range(3):
            client.set_from(key, arena)
            outcomes = []

            def work():
                # Until the server is gone.
                try:
                    while True:
                        outcomes.append(client.get_into(key, arena))
                except ConnectionError as error:
                    outcomes.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            while len(outcomes) < 3:
                time.sleep(0)
            own_mock.process.kill()
            own_mock.process.communicate(timeout=30)
            thread.join()
            assert set(outcomes[:-1]) == {len(arena)}
            arena[:] = value_of(8 << 20)
            with pytest.raises(ConnectionError):
                client.set_from(key, arena)
            assert arena == value_of(8 << 20)
            before = moved(client)[0]
            own_mock.start()
            wait_for(client)
            client.set_from(key, arena)
            assert client.get_into(key, arena) == len(arena)
            assert moved(client)[0] == before + 2


def wait_for(client):
    deadline = time.monotonic() + 30
    while True:
        try:
            return client.command("PING")
        except valkey_rdma.Error:
            assert time.monotonic() < deadline


def test_thousands_of_registrations_leave_nothing_behind(mock, key):
    arena = bytearray(DIRECT_FROM)
    references = sys.getrefcount(arena)
    with Client(mock.emulated) as client:
        for _ in range(5000):
            client.register(arena).close()
        kept = [client.register(arena) for _ in range(100)]
        assert sys.getrefcount(arena) > references
        with pytest.raises(BufferError):
            arena.append(0)
        del kept
        # A registration that is not closed lasts as long as its client.
        with pytest.raises(BufferError):
            arena.append(0)
    # Those that connections have used end with these.
    for _ in range(5):
        with Client(mock.emulated) as client:
            for _ in range(20):
                with client.register(arena):
                    client.set_from(key, arena)
            assert moved(client) == (20, None)
    del client
    with Client(mock.emulated) as client:
        wait_until_free(arena, client)
    assert sys.getrefcount(arena) == references


class NativeConnectorL2Adapter:
    """What LMCache's keeps."""

    def __init__(self, client, **options):
        self.client, self.options = client, options


@pytest.mark.parametrize("parameters", [{}, {"direct": False}])
def test_lmcaches_plugin_registers_its_memory(mock, key, monkeypatch, parameters):
    import ctypes
    import select

    name = "lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter"
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:count]), types.ModuleType(parts[count - 1]))
    sys.modules[name].NativeConnectorL2Adapter = NativeConnectorL2Adapter
    monkeypatch.delitem(sys.modules, "valkey_rdma.lmcache_plugin", raising=False)
    from valkey_rdma.lmcache_plugin import ValkeyRdmaL2Adapter

    arena = mmap.mmap(-1, 20 * 100_000)
    base = ctypes.addressof(ctypes.c_ubyte.from_buffer(arena))
    memory = types.SimpleNamespace(ptr=base, size=len(arena), align_bytes=4096)
    adapter = ValkeyRdmaL2Adapter({"url": mock.emulated, "key_prefix": key, "max_capacity_gb": 1, **parameters}, memory)
    assert adapter.options == {"max_capacity_gb": 1, "type_name": "valkey_rdma"}
    client, kind = adapter.client, ctypes.c_ubyte * 100_000
    views = [memoryview(kind.from_address(base + number * 100_000)) for number in range(20)]
    keys = [str(number) for number in range(10)]
    arena[:1_000_000] = value_of(1_000_000)

    def wait(number):
        assert select.select([client.event_fd()], [], [], 30)[0]
        ((done, *outcome),) = client.drain_completions()
        assert done == number
        return outcome

    assert wait(client.submit_batch_set(keys, views[:10])) == [True, "", [True] * 10]
    assert wait(client.submit_batch_get(keys, views[10:])) == [True, "", [True] * 10]
    assert arena[1_000_000:] == value_of(1_000_000)
    assert moved(client) == ((20, None) if not parameters else (0, None))
    client.close()


def test_lmcaches_batches_report_values_of_another_size(mock, key):
    import select

    arena = bytearray(GUARD * 200_000)
    client = valkey_rdma.LMCacheClient(mock.emulated, key_prefix=key)
    client.register(arena)

    def get(name):
        client.submit_batch_get([name], [arena])
        assert select.select([client.event_fd()], [], [], 30)[0]
        ((_, ok, error, succeeded),) = client.drain_completions()
        assert (ok, succeeded) == (False, [False])
        return error

    with Client(mock.emulated) as other:
        other.command("SET", key + "long", bytes(200_001))
        other.command("SET", key + "short", bytes(100_000))
    assert get("long") == "a value has 200001 bytes, and its buffer another length"
    assert "does not exist" in get("none")
    assert arena == GUARD * 200_000
    assert get("short") == "a value has 100000 bytes, and its buffer another length"
    assert arena[100_000:] == GUARD * 100_000
    client.close()


def test_lmcaches_batches_end_when_the_server_cannot_write_any_more_d5(own_mock, key):
    import select

    arena = bytearray(GUARD * 200_000)
    client = valkey_rdma.LMCacheClient(own_mock.emulated, timeout=1)
    client.register(arena)
    with Client(own_mock.emulated) as other:
        other.command("SET", key, bytes(200_000))
    client.submit_batch_get([key], [arena])
    assert select.select([client.event_fd()], [], [], 30)[0]
    assert client.drain_completions()[0][1]
    with own_mock.frozen():
        client.submit_batch_get([key], [arena])
        assert select.select([client.event_fd()], [], [], 30)[0]
        assert not client.drain_completions()[0][1]
        arena[:] = GUARD * len(arena)
        client.submit_batch_get([key], [arena])
        client.close()
        assert not client.drain_completions()[0][1]
        arena[:] = GUARD * len(arena)
    with Client(own_mock.emulated) as other:
        other.command("PING")
    assert arena == GUARD * len(arena)

"""The clients of a cluster: every method with keys of several nodes, slots that move, nodes that fail."""

import asyncio
import concurrent.futures
import contextlib
import threading

import pytest

import valkey_rdma
from valkey_rdma import AsyncClient, AsyncClusterClient, Client, ClusterClient


def pattern(length):
    return bytes(range(256)) * (length // 256) + bytes(length % 256)


@pytest.fixture
def keys(key):
    """Keys in many slots."""
    return [f"{key}{number}" for number in range(40)]


def test_it_is_a_client(cluster, key):
    assert isinstance(cluster, Client)
    assert "ClusterClient of" in repr(cluster)
    assert cluster.command("SET", key, "value") == b"OK"
    assert cluster.command("GET", key) == b"value"


def test_one_url_is_enough(cluster_urls, key):
    for urls in (cluster_urls[0], tuple(cluster_urls), iter(cluster_urls[:1])):
        with ClusterClient(urls, connections=2, name="test") as client:
            assert client.command("EXISTS", key) == 0


def test_a_url_says_that_its_servers_are_a_cluster(cluster_urls, key):
    scheme, hosts = cluster_urls[0].split("://")
    with Client(f"{scheme}+cluster://{hosts}") as client:
        assert client.command("EXISTS", key) == 0
        assert len(client.info()["nodes"]) >= 3
        assert "of " in repr(client) and "nodes" in repr(client)


def test_commands_with_keys_of_several_nodes_are_split(cluster, keys):
    assert cluster.command("MSET", *(word for key in keys for word in (key, key))) == b"OK"
    assert cluster.command("MGET", *keys) == [key.encode() for key in keys]
    assert cluster.command("DEL", *keys) == len(keys)
    with pytest.raises(valkey_rdma.RefusedError, match="slots") as raised:
        cluster.command("LMOVE", keys[0], keys[1], "LEFT", "RIGHT")
    assert raised.value.fate == "not-sent"


@pytest.mark.parametrize("command", ["SCAN 0", "CLUSTER FAILOVER", "BGSAVE", "SELECT 1", "BLPOP a 0", "WAIT 1 0", "MULTI"])
def test_errors_of_refused_commands_name_what_python_has(cluster, command):
    with pytest.raises(valkey_rdma.RefusedError) as raised:
        cluster.command(*command.split())
    assert "::" not in str(raised.value)
    with pytest.raises(valkey_rdma.RefusedError) as raised:
        cluster.pipeline().command(*command.split()).execute()
    assert "::" not in str(raised.value)


def test_pipelines_keep_their_order_and_each_reply_its_error(cluster, keys):
    pipeline = cluster.pipeline()
    for number, key in enumerate(keys):
        pipeline.command("SET", key, number).command("LPOP", key)
    replies = pipeline.execute(raise_on_error=False)
    assert replies[::2] == [b"OK"] * len(keys)
    assert {(type(error), error.fate) for error in replies[1::2]} == {(valkey_rdma.ServerError, "answered")}
    with pytest.raises(valkey_rdma.ServerError, match="WRONGTYPE"):
        cluster.pipeline().command("GET", keys[0]).command("LPOP", keys[1]).execute()


def test_batches_of_values_reach_every_node(cluster, keys):
    lengths = [0, 1, 3_000_000, *(1000 * number for number in range(len(keys) - 3))]
    values = [pattern(length) for length in lengths]
    cluster.mset_from(keys, values, ttl=1000)
    buffers = [bytearray(length + 1) for length in lengths]
    assert cluster.mget_into(keys, buffers) == lengths
    assert [bytes(buffer[:-1]) for buffer in buffers] == values
    assert cluster.exists_many([*keys, keys[0] + "none"]) == [True] * len(keys) + [False]
    assert 0 < cluster.command("PTTL", keys[5]) <= 1_000_000
    assert cluster.mget_into([keys[0] + "none", keys[1]], [bytearray(1), bytearray(1)]) == [None, 1]
    with pytest.raises(valkey_rdma.SizeError, match="key 1 has 3000000 bytes"):
        cluster.mget_into(keys[1:3], [bytearray(1), bytearray(1)])
    assert cluster.delete_many(keys) == [True] * len(keys)


def test_one_value_goes_out_of_and_into_a_buffer(cluster, key):
    value = bytearray(pattern(1_000_000))
    with cluster.register(value):
        cluster.set_from(key, value)
    buffer = bytearray(1_000_000)
    assert cluster.get_into(key, buffer) == len(value)
    assert buffer == value
    assert cluster.get_into(key + "none", buffer) is None


def test_blocking_commands_wait_on_the_node_of_their_key(cluster, key):
    pushes = threading.Timer(0.1, cluster.command, ("RPUSH", key, "job"))
    pushes.start()
    assert cluster.blocking_command("BLPOP", key, 30) == [key.encode(), b"job"]
    pushes.join()
    with pytest.raises(valkey_rdma.DeadlineError):
        cluster.blocking_command("BLPOP", key, 0, timeout=0.05)


def test_messages_arrive(cluster, key):
    with cluster.subscriber() as subscriber:
        subscriber.subscribe(key)
        subscriber.subscribe(key + "shard", kind="shard")
        cluster.command("PUBLISH", key, "to all")
        cluster.command("SPUBLISH", key + "shard", "to a shard")
        received = {subscriber.next(timeout=30)["payload"] for _ in range(2)}
        assert received == {b"to all", b"to a shard"}
        assert subscriber.next(timeout=0) is None


def test_a_cluster_describes_itself(cluster, keys):
    cluster.command("MSET", *(word for key in keys for word in (key, "value")))
    info, stats = cluster.info(), cluster.stats()
    assert info["complete"] is True
    primaries = [node for node in info["nodes"] if node["role"] == "primary"]
    assert sum(node["slots"] for node in primaries) == 16384
    assert {node["connection"]["transport"] for node in primaries} <= {"emulated", "tcp", "rdma"}
    assert stats["state"] == "connected"
    assert stats["commands"] >= len(primaries)
    assert {connection["node"] for connection in stats["connections"]} >= {node["address"] for node in primaries}


def test_what_is_not_a_cluster_and_other_bad_arguments(url, own_mock):
    with pytest.raises(valkey_rdma.ConnectError, match="not part of a cluster") as raised:
        ClusterClient(own_mock.tcp)
    assert raised.value.fate == "not-sent"
    for urls, error in (
        ([], valkey_rdma.UrlError),
        (["valkey://127.0.0.1:1", "valkey://:secret@127.0.0.1:2"], valkey_rdma.UrlError),
        (["valkey://127.0.0.1:1", "valkey://127.0.0.1:2"], valkey_rdma.ConnectError),
        (17, TypeError),
        ([17], TypeError),
    ):
        with pytest.raises(error):
            ClusterClient(urls)
    with pytest.raises(ValueError, match="read_from"):
        ClusterClient("valkey://127.0.0.1:1", read_from="rumours")
    with pytest.raises(ValueError, match="lanes"):
        ClusterClient("valkey://127.0.0.1:1", lanes=0)


def test_a_closed_client_raises(cluster_urls, key):
    client = ClusterClient(cluster_urls)
    subscriber = client.subscriber()
    client.set_from(key, b"value")
    client.close()
    client.close()
    assert repr(client) == "<valkey_rdma.ClusterClient closed>"
    for call in (lambda: client.command("PING"), lambda: client.get_into(key, bytearray(5)), client.info):
        with pytest.raises(valkey_rdma.ClosedError):
            call()
    with pytest.raises(valkey_rdma.ClosedError):
        subscriber.next()


@pytest.mark.parametrize(("read_from", "is_used"), [("primary", False), ("prefer-replica", True)])
def test_reads_may_go_to_replicas(own_cluster, read_from, is_used):
    replica = own_cluster.urls[3].split("://")[1]
    with ClusterClient(own_cluster.urls[0], read_from=read_from) as client:
        key = own_cluster.key_of(0)
        client.command("SET", key, "value")
        assert client.command("GET", key) == b"value"
        (node,) = (node for node in client.info()["nodes"] if node["address"] == replica)
        assert node["role"] == "replica"
        # It is connected when the first command needs it.
        assert (node["connection"] is not None) == is_used


def test_values_follow_their_slots(own_cluster):
    with ClusterClient(own_cluster.urls) as client:
        keys = [own_cluster.key_of(node) for node in range(3)]
        values = [pattern(100_000 + number) for number in range(3)]
        buffers = [bytearray(100_002) for _ in keys]
        client.mset_from(keys, values)
        slot = own_cluster.slot(keys[0])
        # The lanes to the old node are still there, and so is the old map.
        own_cluster.do("begin", slot, slot, 1)
        assert client.mget_into(keys, buffers) == [100_000, 100_001, 100_002]
        client.mset_from(keys, values[::-1])
        assert client.stats()["ask"] >= 2
        own_cluster.do("move", slot, slot, 1)
        assert client.mget_into(keys, buffers) == [100_002, 100_001, 100_000]
        assert client.stats()["moved"] == 1
        # MOVED makes the client read the map, at a time of its own: after this move too, and then there is no second MOVED.
        own_cluster.do("move", slot, slot, 2)
        client.mset_from(keys, values)
        before = client.stats()["moved"]
        for _ in range(3):
            assert client.mget_into(keys, buffers) == [100_000, 100_001, 100_002]
        # One more if a map that was read before the move has come after it.
        assert client.stats()["moved"] <= before + 1, "the new node is known"
        assert [bytes(buffer[: len(value)]) for buffer, value in zip(buffers, values)] == values
        own_cluster.do("move", slot, slot, 0)
        with pytest.raises(valkey_rdma.SizeError):
            client.get_into(keys[0], bytearray(1))
        own_cluster.do("move", slot, slot, 1)
        assert client.get_into(keys[0] + "{x}none", bytearray(1)) is None


def test_values_survive_a_failover(own_cluster):
    with ClusterClient(own_cluster.urls) as client:
        keys = [own_cluster.key_of(node) for node in range(3)]
        client.mset_from(keys, [b"a", b"b", b"c"])
        own_cluster.do("promote", 3)
        own_cluster.do("kill", 0)
        buffers = [bytearray(1) for _ in keys]
        assert client.mget_into(keys, buffers) == [1, 1, 1]
        assert buffers == [b"a", b"b", b"c"]
        client.mset_from(keys, [b"d", b"e", b"f"])
        assert client.command("MGET", *keys) == [b"d", b"e", b"f"]


@pytest.mark.parametrize("leaves_the_map", [False, True])
def test_buffers_leave_a_frozen_node_that_was_replaced(own_cluster, leaves_the_map):
    mine, other = own_cluster.key_of(0), own_cluster.key_of(1)
    with contextlib.ExitStack() as stack:
        # Each has lanes that are connected, and one has none.
        getter, batcher, setter, newcomer = clients = [
            stack.enter_context(ClusterClient(own_cluster.urls, timeout=60)) for _ in range(4)
        ]
        for client in clients[:3]:
            client.mset_from([mine, other], [b"a", b"b"])
        newcomer.command("MGET", mine, other)
        own_cluster.do("freeze", 0)
        if leaves_the_map:
            own_cluster.do("fail", 0)
        buffers = [bytearray(1) for _ in range(4)]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            got = threads.submit(getter.get_into, mine, buffers[0])
            got_many = threads.submit(batcher.mget_into, [mine, other], buffers[1:3])
            was_set = threads.submit(setter.set_from, mine, b"a")
            got_late = threads.submit(newcomer.get_into, mine, buffers[3])
            own_cluster.do("promote", 3)
            assert (got.result(), got_many.result(), got_late.result()) == (1, [1, 1], 1)
            error = was_set.exception()
        assert buffers == [b"a", b"a", b"b", b"a"]
        assert (type(error), error.fate) == (valkey_rdma.LostError, "may-have-run")
        assert "did not answer PING within 1s" in str(error)
        setter.set_from(mine, b"d")
        assert setter.command("GET", mine) == b"d"


def test_one_lost_node_fails_its_keys_only(own_cluster):
    lost, other = own_cluster.key_of(0), own_cluster.key_of(1)
    with ClusterClient(own_cluster.urls, offline_timeout=0.2) as client, ClusterClient(own_cluster.urls) as patient:
        client.mset_from([lost, other], [b"a", b"b"])
        own_cluster.do("kill", 0)
        replies = client.pipeline().command("GET", lost).command("GET", other).execute(raise_on_error=False)
        # The last attempt to connect may not have ended yet.
        assert isinstance(replies[0], (ConnectionError, TimeoutError)) and replies[1] == b"b"
        with pytest.raises((ConnectionError, TimeoutError)):
            client.set_from(lost, b"c")
        assert client.get_into(other, bytearray(1)) == 1
        own_cluster.do("restart", 0)
        patient.set_from(lost, b"c")
        assert patient.get_into(lost, bytearray(1)) == 1


def test_many_threads_share_a_client_while_slots_move(own_cluster):
    failures = []
    with ClusterClient(own_cluster.urls) as client:

        def work(number):
            try:
                value, buffer = pattern(20_000 + number), bytearray(30_000)
                for turn in range(30):
                    key = f"{number}:{turn}"
                    client.set_from(key, value)
                    assert client.get_into(key, buffer) == len(value)
                    assert buffer[: len(value)] == value
                    assert client.command("STRLEN", key) == len(value)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for turn in range(10):
            own_cluster.do("move", 0, 16383, turn % 3)
        for thread in threads:
            thread.join()
    assert not failures


async def test_asyncio(cluster_urls, keys, key):
    client = await AsyncClusterClient.connect(cluster_urls)
    assert isinstance(client, AsyncClusterClient) and isinstance(client, AsyncClient)
    async with client:

        async def work(mine, number):
            value, buffer = pattern(1000 + number), bytearray(2000)
            await client.set_from(mine, value)
            assert await client.get_into(mine, buffer) == len(value)
            assert buffer[: len(value)] == value

        await asyncio.gather(*(work(mine, number) for number, mine in enumerate(keys)))
        buffers = [bytearray(2000) for _ in keys]
        assert await client.mget_into(keys, buffers) == [1000 + number for number in range(len(keys))]
        assert await client.exists_many([*keys, key]) == [True] * len(keys) + [False]
        replies = await client.pipeline().command("STRLEN", keys[0]).command("STRLEN", keys[1]).execute()
        assert replies == [1000, 1001]
        subscriber = await client.subscriber()
        await subscriber.subscribe(key)
        await client.command("PUBLISH", key, "hello")
        assert (await subscriber.next(timeout=30))["payload"] == b"hello"
        assert client.info()["complete"]
        assert client.stats()["state"] == "connected"
        assert await client.delete_many(keys) == [True] * len(keys)
        await subscriber.close()
    with pytest.raises(valkey_rdma.ClosedError):
        client.command("PING")


async def test_asyncio_calls_for_a_key_run_in_their_order(cluster_urls, key):
    async with await AsyncClusterClient.connect(cluster_urls) as cluster:
        for number in range(200):
            calls = [cluster.command("RPUSH", key, each) for each in range(3)]
            calls.append(cluster.pipeline().command("RPUSH", key, 3).command("LRANGE", key, 0, -1).execute())
            calls += [cluster.command("DEL", key), cluster.exists_many([key]), cluster.command("RPUSH", key, number)]
            replies = await asyncio.gather(*calls, cluster.delete_many([key]))
            assert replies == [1, 2, 3, [4, [b"0", b"1", b"2", b"3"]], 1, [False], 1, [True]]


async def test_asyncio_connecting_fails_as_it_should():
    with pytest.raises(valkey_rdma.ConnectError):
        await AsyncClusterClient.connect(["valkey://127.0.0.1:1"])
    with pytest.raises(valkey_rdma.UrlError):
        await AsyncClusterClient.connect("nonsense")

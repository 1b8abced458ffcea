"""The client for asyncio."""

import asyncio
import contextlib
import gc
import weakref

import pytest

import valkey_rdma
from valkey_rdma import AsyncClient, Client
from valkey_rdma._native import connect_socket_async


async def test_many_tasks_share_a_client(url, key):
    async with await AsyncClient.connect(url) as client:

        async def work(number):
            mine = f"{key}{number}"
            value, buffer = bytes([number % 256]) * (1000 + number), bytearray(2000)
            await client.set_from(mine, value)
            assert await client.get_into(mine, buffer) == len(value)
            assert buffer[: len(value)] == value
            assert await client.command("STRLEN", mine) == len(value)

        await asyncio.gather(*(work(number) for number in range(300)))


async def test_calls_run_in_their_order_without_an_await_between(url, key):
    async with await AsyncClient.connect(url) as client:
        await take_turns(client, key)


async def take_turns(client, key):
    """Calls of all kinds, each of which would be seen out of its turn."""
    for number in range(300):
        await asyncio.gather(client.command("SET", key, "old"), client.command("SET", key, "new"))
        assert await client.command("GET", key) == b"new"
        calls = [
            client.command("RPUSH", key + "list", 0),
            client.pipeline().command("RPUSH", key + "list", 1).command("RPUSH", key + "list", 2).execute(),
            client.exists_many([key + "list"]),
            client.command("RPUSH", key + "list", 3),
            client.delete_many([key]),
            client.exists_many([key]),
            client.command("SET", key, number),
            client.command("LRANGE", key + "list", 0, -1),
            client.command("DEL", key + "list"),
        ]
        replies = await asyncio.gather(*calls)
        assert replies == [1, [2, 3], [True], 4, [True], [False], b"OK", [b"0", b"1", b"2", b"3"], 1]


async def test_subscriptions_change_in_the_order_of_the_calls(url, key):
    async with await AsyncClient.connect(url) as client:
        subscriber = await client.subscriber()
        for _ in range(100):
            calls = subscriber.subscribe(key), subscriber.unsubscribe(key), subscriber.subscribe(key)
            await asyncio.gather(*calls, subscriber.unsubscribe(key))
        assert await client.command("PUBLISH", key, "nobody listens") == 0
        events = [subscriber.next() for _ in range(3)]
        await subscriber.subscribe(key)
        await client.pipeline().command("PUBLISH", key, 0).command("PUBLISH", key, 1).command("PUBLISH", key, 2).execute()
        assert {event["payload"] for event in await asyncio.gather(*events)} == {b"0", b"1", b"2"}
        await subscriber.close()


async def test_closing_waits_for_calls_that_were_made_before(url, key):
    client = await AsyncClient.connect(url)
    calls = [client.command("INCR", key) for _ in range(10)]
    closing = client.close()
    with pytest.raises(valkey_rdma.ClosedError):
        client.command("INCR", key)
    await closing
    assert await asyncio.gather(*calls) == [*range(1, 11)]


async def test_weak_references(url, key):
    async with await AsyncClient.connect(url) as client:
        subscriber = await client.subscriber()
        things = client, client.pipeline(), subscriber, client.command("PING"), client.get_into(key, bytearray(1))
        assert [weakref.ref(thing)() for thing in things] == list(things)
        await asyncio.gather(*things[-2:])
        await subscriber.close()


async def test_every_method(url, key):
    client = await AsyncClient.connect(url)
    assert await client.command("SET", key, 1) == b"OK"
    assert await client.pipeline().command("INCR", key).command("GET", key).execute() == [2, b"2"]
    error, number = await client.pipeline().command("LPOP", key).command("INCR", key).execute(raise_on_error=False)
    assert isinstance(error, valkey_rdma.ServerError) and number == 3
    keys, values = [key + "a", key + "b"], [b"a" * 100_000, b"b"]
    await client.mset_from(keys, values, ttl=1000)
    buffers = [bytearray(100_000), bytearray(2)]
    assert await client.mget_into(keys, buffers) == [100_000, 1]
    assert await client.exists_many([*keys, key + "none"]) == [True, True, False]
    assert await client.delete_many(keys) == [True, True]
    with pytest.raises(valkey_rdma.SizeError):
        await client.get_into(key, bytearray())
    with pytest.raises(valkey_rdma.DeadlineError):
        await client.blocking_command("BLPOP", key + "list", 0, timeout=0.05)
    assert client.info()["transport"] in url or client.info()["transport"] == "tcp"
    assert client.stats()["state"] == "connected"
    await client.close()
    await client.close()
    with pytest.raises(valkey_rdma.ClosedError):
        client.command("PING")


async def test_messages_arrive_and_cancelled_calls_lose_none(url, key):
    async with await AsyncClient.connect(url) as client:
        subscriber = await client.subscriber()
        await subscriber.subscribe(key)
        assert await subscriber.next(timeout=0) is None
        received = []
        for number in range(20):
            waiting = asyncio.ensure_future(subscriber.next())
            await client.command("PUBLISH", key, number)
            if number % 2:
                waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():
                received.append(waiting.result()["payload"])
        while len(received) < 20:
            received.append((await subscriber.next(timeout=30))["payload"])
        assert sorted(received, key=int) == [b"%d" % number for number in range(20)]
        await subscriber.close()


async def test_a_message_of_a_cancelled_call_goes_to_the_next_one_though_it_waits_already(url, key):
    async with await AsyncClient.connect(url) as client:
        subscriber = await client.subscriber()
        await subscriber.subscribe(key)
        for _ in range(5):
            waiting = subscriber.next()
            with Client(url) as publisher:
                publisher.command("PUBLISH", key, "hello")
            # The call has taken the message, and the loop has not been told.
            assert asyncio.get_running_loop()._selector.select(60)
            waiting.cancel()
            event = await asyncio.wait_for(subscriber.next(), 60)
            assert event["payload"] == b"hello"
        await subscriber.close()


async def test_subscriptions_change_while_a_call_waits_for_messages(url, key):
    async with await AsyncClient.connect(url) as client:
        subscriber = await client.subscriber()
        waiting = subscriber.next()
        await asyncio.wait_for(subscriber.subscribe(key), 60)
        await client.command("PUBLISH", key, "hello")
        assert (await waiting)["payload"] == b"hello"
        waiting = [subscriber.next() for _ in range(3)]
        await asyncio.wait_for(subscriber.unsubscribe(key), 60)
        await asyncio.wait_for(subscriber.close(), 60)
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(error) for error in ended} == {valkey_rdma.ClosedError}


async def test_cancelled_calls_do_no_harm(url, key):
    async with await AsyncClient.connect(url) as client:
        await client.set_from(key, bytes(300_000))
        buffers = [bytearray(300_000) for _ in range(100)]
        calls = [client.get_into(key, buffer) for buffer in buffers]
        calls += [client.command("GET", key) for _ in range(100)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
        assert results[1:100:2] == [300_000] * 50
        blocked = client.blocking_command("BLPOP", key + "list", 0)
        await asyncio.sleep(0.05)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        assert await client.command("PING") == b"PONG"


async def test_connecting_fails_as_it_should():
    with pytest.raises(valkey_rdma.ConnectError):
        await AsyncClient.connect("valkey://127.0.0.1:1")
    with pytest.raises(valkey_rdma.UrlError):
        await AsyncClient.connect("nonsense")


def test_an_interrupted_delivery_keeps_the_results_after_it(url):
    async def connected():
        return await AsyncClient.connect(url)

    async def all_of(calls):
        return await asyncio.wait_for(asyncio.gather(*calls), 60)

    loop = asyncio.new_event_loop()
    call_soon = loop.call_soon

    def interrupted(*_, **__):
        # As a signal handler that runs in the middle of it.
        loop.call_soon = call_soon
        raise KeyboardInterrupt

    try:
        client = loop.run_until_complete(connected())
        # They need no server, so that the loop finds all of them done, and delivers them together.
        calls = [client.exists_many([]) for _ in range(3)]
        for call in calls:
            call.add_done_callback(lambda _: None)
        loop.call_soon = interrupted
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert loop.run_until_complete(all_of(calls)) == [[], [], []]
        loop.run_until_complete(client.close())
    finally:
        loop.close()


def test_outside_of_a_loop():
    with pytest.raises(RuntimeError):
        AsyncClient.connect("valkey://127.0.0.1:1")


def assert_leaves_nothing(fds, program):
    """What programs open is closed after them. Connections of clients that were not closed end in the background."""
    # The first one starts the background threads.
    program()
    before = fds()
    for _ in range(20):
        program()
    gc.collect()
    deadline = 300
    while fds() > before + 5 and deadline:
        deadline -= 1
        asyncio.run(asyncio.sleep(0.1))
    assert fds() <= before + 5


def test_loops_and_clients_leave_nothing_behind(url, key, fds):
    async def use(close):
        client = await AsyncClient.connect(url)
        await client.set_from(key, b"value")
        if close:
            await client.close()

    def program():
        for close in (True, False):
            asyncio.run(use(close))

    assert_leaves_nothing(fds, program)


async def leave_a_message(url, key):
    client = await AsyncClient.connect(url)
    subscriber = await client.subscriber()
    asyncio.ensure_future(subscriber.next())


async def leave_a_blocking_command(url, key):
    client = await AsyncClient.connect(url)
    asyncio.ensure_future(client.blocking_command("BLPOP", key + "none", 0))


@pytest.mark.parametrize("leave", [leave_a_message, leave_a_blocking_command])
def test_operations_end_with_their_loop(url, key, fds, leave):
    assert_leaves_nothing(fds, lambda: asyncio.run(leave(url, key)))


@pytest.mark.parametrize("connect", [AsyncClient.connect, connect_socket_async])
def test_attempts_to_connect_end_with_their_loop(silent, fds, connect):
    async def leave():
        asyncio.ensure_future(connect(f"valkey://127.0.0.1:{silent}"))

    assert_leaves_nothing(fds, lambda: asyncio.run(leave()))


async def leave_a_transfer(mock, frozen, key, buffer):
    """The server does not answer until `frozen` is closed."""
    client = await AsyncClient.connect(mock.tcp)
    frozen.enter_context(mock.frozen())
    return client.get_into(key, buffer)


def test_transfers_end_with_their_loop(own_mock, key, fds):
    def program():
        with contextlib.ExitStack() as frozen:
            asyncio.run(leave_a_transfer(own_mock, frozen, key, bytearray(100)))

    assert_leaves_nothing(fds, program)


def test_a_buffer_is_free_when_its_transfer_is_cancelled_after_the_end_of_the_loop(own_mock, key):
    buffer = bytearray(100)
    with contextlib.ExitStack() as frozen:
        transfer = asyncio.run(leave_a_transfer(own_mock, frozen, key, buffer))
        transfer.cancel()
        buffer.append(1)

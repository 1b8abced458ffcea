"""The blocking client."""

import contextlib
import http
import pathlib
import queue
import signal
import socketserver
import subprocess
import sys
import threading
import time
import weakref

import numpy
import pytest
from conftest import without_tls

import valkey_rdma
from valkey_rdma import Client, LMCacheClient


def pattern(length):
    return bytes(range(256)) * (length // 256) + bytes(length % 256)


def test_commands_take_and_return_pythons_types(client, key):
    assert client.command("SET", key, "grüße") == b"OK"
    assert client.command("GET", key) == "grüße".encode()
    assert client.command("GET", key + "none") is None
    assert client.command(b"SET", key, bytearray(b"\0\r\n")) == b"OK"
    assert client.command("GET", memoryview(key.encode())) == b"\0\r\n"
    assert client.command("INCRBY", key + "n", 2**40) == 2**40
    client.command("SET", key + "float", 0.5)
    assert client.command("GET", key + "float") == b"0.5"
    # Subclasses of int and float print their names.
    for number, text in ((http.HTTPStatus.OK, b"200"), (numpy.float64(0.5), b"0.5")):
        assert client.command("ECHO", number) == text
    # Other numbers of numpy's have a buffer, of bytes that are no text.
    for number in (numpy.int64(5), numpy.float32(0.5), numpy.array(5)):
        with pytest.raises(TypeError, match="convert it with int"):
            client.command("ECHO", number)
    text = numpy.bytes_(b"x" * 9000)
    for not_a_number in (numpy.array([53], dtype=numpy.uint8), text, numpy.array(text)):
        assert client.command("ECHO", not_a_number) == bytes(not_a_number.data)
    client.command("RPUSH", key + "list", "a", "b")
    assert client.command("LRANGE", key + "list", 0, -1) == [b"a", b"b"]
    client.command("SADD", key + "set", "a", "b")
    assert client.command("SMEMBERS", key + "set") == {b"a", b"b"}
    client.command("HSET", key + "hash", "f", "v")
    assert client.command("HGETALL", key + "hash") == {b"f": b"v"}


def test_errors_have_a_class_a_code_and_a_fate(client, key):
    client.command("RPUSH", key, "a")
    with pytest.raises(valkey_rdma.ServerError) as raised:
        client.command("GET", key)
    assert (raised.value.code, raised.value.fate) == ("WRONGTYPE", "answered")
    with pytest.raises(valkey_rdma.RefusedError) as raised:
        client.command("SELECT", 1)
    assert raised.value.fate == "not-sent"
    with pytest.raises(valkey_rdma.UrlError):
        Client("http://127.0.0.1")
    with pytest.raises(ConnectionError) as raised:
        Client("valkey://127.0.0.1:1")
    assert isinstance(raised.value, valkey_rdma.ConnectError)
    assert raised.value.fate == "not-sent"


def test_a_call_that_takes_too_long_raises(client, key):
    with pytest.raises(TimeoutError) as raised:
        client.blocking_command("BLPOP", key, 0, timeout=0.05)
    assert isinstance(raised.value, valkey_rdma.DeadlineError)
    assert raised.value.fate == "may-have-run"


REFUSED = [
    "SUBSCRIBE a",
    "MONITOR",
    "CLIENT REPLY OFF",
    "CLIENT TRACKING ON",
    "CLIENT SETNAME a",
    "CLIENT NO-EVICT ON",
    "HELLO 3",
    "QUIT",
    "RESET",
    "WATCH a",
    "SELECT 1",
    "AUTH a b",
    "SYNC",
    "READONLY",
    "BLPOP a 0",
    "XREAD BLOCK 0 STREAMS a 0",
    "WAIT 1 0",
    "MULTI",
]


@pytest.mark.parametrize("command", REFUSED)
def test_errors_of_refused_commands_name_what_python_has(client, command):
    with pytest.raises(valkey_rdma.RefusedError) as raised:
        client.command(*command.split())
    assert "::" not in str(raised.value)


@pytest.mark.parametrize("arguments", [(), (None,), ("GET", None), ("GET", True), ("GET", object())])
def test_bad_arguments_are_type_errors(client, arguments):
    with pytest.raises(TypeError):
        client.command(*arguments)


@pytest.mark.parametrize(
    ("timeout", "shown"),
    [(-1, "-1.0"), (0, "0.0"), (float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf"), (1e30, "1e30")],
)
def test_bad_timeouts_are_value_errors(client, timeout, shown):
    with pytest.raises(ValueError) as raised:
        client.command("PING", timeout=timeout)
    assert str(raised.value) == f"timeout must be more than 0 and at most 1e12 seconds, not {shown}"
    with pytest.raises(ValueError) as raised:
        client.set_from("k", b"", ttl=timeout)
    assert str(raised.value) == f"ttl must be from 0.001 to 1e12 seconds, not {shown}"


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1e30])
def test_bad_offline_timeouts_are_value_errors(value):
    with pytest.raises(ValueError, match="^offline_timeout must be from 0 to 1e12 seconds, not "):
        Client("valkey://127.0.0.1:1", offline_timeout=value)


def test_the_longest_times(client, key):
    client.set_from(key, b"value", ttl=1e12, timeout=1e12)
    assert client.command("PTTL", key, timeout=1e12) > 1e14


def test_weak_references(client, url):
    with client.subscriber() as subscriber, client.register(bytearray(1)) as registration:
        connector = LMCacheClient(url)
        things = client, client.pipeline(), subscriber, registration, connector
        assert [weakref.ref(thing)() for thing in things] == list(things)
        connector.close()


@pytest.mark.parametrize("options", [{"connections": 0}, {"lanes": 0}, {"lanes": 1000}, {"timeout": -1}, {"timeout": 0}])
def test_bad_options_are_value_errors(options):
    with pytest.raises(ValueError):
        Client("valkey://127.0.0.1:1", **options)


def test_pipelines_return_every_reply(client, key):
    pipeline = client.pipeline().command("SET", key, 1).command("LPOP", key).command("INCR", key)
    assert len(pipeline) == 3
    ok, error, number = pipeline.execute(raise_on_error=False)
    assert (ok, number) == (b"OK", 2)
    assert isinstance(error, valkey_rdma.ServerError)
    assert pipeline.execute() == []
    with pytest.raises(valkey_rdma.ServerError):
        client.pipeline().command("LPOP", key).execute()


@contextlib.contextmanager
def answering(replies):
    """The URL of a server that answers each command with the reply of its name, or else with OK."""
    replies = {b"HELLO": b"%1\r\n$5\r\nproto\r\n:3\r\n", b"PING": b"+PONG\r\n"} | replies

    class Answering(socketserver.StreamRequestHandler):
        def handle(self):
            while header := self.rfile.readline():
                lengths = (int(self.rfile.readline()[1:]) for _ in range(int(header[1:])))
                name, *_ = [self.rfile.read(length + 2)[:-2] for length in lengths]
                self.wfile.write(replies.get(name, b"+OK\r\n"))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"valkey://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_a_number_of_more_digits_than_python_converts_is_an_error_in_its_place():
    number = b"(" + b"7" * 5000 + b"\r\n"
    with answering({b"GET": number, b"HGETALL": b"%1\r\n:1\r\n*2\r\n" + number + b":2\r\n"}) as url, Client(url) as client:
        pipeline = client.pipeline().command("SET", "k", 1).command("GET", "k").command("HGETALL", "k")
        ok, alone, members = pipeline.execute(raise_on_error=False)
        nested, beside = members[1]
        assert (ok, beside) == (b"OK", 2)
        for error in (alone, nested):
            assert isinstance(error, valkey_rdma.UnexpectedReplyError)
            assert error.fate == "answered"
        for call in (lambda: client.command("GET", "k"), client.pipeline().command("GET", "k").execute):
            with pytest.raises(valkey_rdma.UnexpectedReplyError, match="got a number of 5000 digits"):
                call()


@pytest.mark.parametrize("length", [0, 1, 8191, 8192, 100_000, 3_000_000])
def test_values_go_out_of_and_into_buffers(client, key, length):
    value = pattern(length)
    client.set_from(key, bytearray(value))
    buffer = bytearray(b"x" * (length + 3))
    assert client.get_into(key, buffer) == length
    assert buffer == value + b"xxx"
    # Nothing of it is in use any more.
    buffer.extend(b"longer")
    assert client.command("GET", key) == value


def test_missing_and_too_large_values_leave_the_buffer_untouched(client, key):
    client.set_from(key, b"12345")
    buffer = bytearray(b"abcd")
    assert client.get_into(key + "none", buffer) is None
    with pytest.raises(valkey_rdma.SizeError, match="has 5 bytes, and its buffer has 4"):
        client.get_into(key, buffer)
    assert buffer == b"abcd"
    client.command("RPUSH", key + "list", 1)
    with pytest.raises(valkey_rdma.ServerError):
        client.get_into(key + "list", buffer)
    # The connection is still good.
    assert client.get_into(key, memoryview(bytearray(5))) == 5


def test_batches_keep_their_order(client, key):
    # More than a chunk holds, and values of very different lengths.
    lengths = [0, 10, 5_000_000, 3, *range(100), 2_000_000]
    keys = [f"{key}{number}" for number in range(len(lengths))]
    values = [pattern(length) for length in lengths]
    client.mset_from(keys, values)
    buffers = [bytearray(length) for length in lengths]
    assert client.mget_into(keys, buffers) == lengths
    assert buffers == [bytearray(value) for value in values]
    assert client.exists_many([*keys, key + "none"]) == [True] * len(keys) + [False]
    assert client.mget_into([key + "none", keys[1]], [bytearray(1), buffers[1]]) == [None, 10]
    assert client.delete_many([keys[0], key + "none"]) == [True, False]
    assert client.mget_into([], []) == []
    with pytest.raises(ValueError, match="1 keys and 2 buffers"):
        client.mget_into(keys[:1], buffers[:2])
    with pytest.raises(TypeError):
        client.exists_many(key)


def test_a_batch_that_ends_early_has_left_its_memory(own_mock):
    def interrupt(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Client(own_mock.tcp) as client:
            keys = [f"{number}" for number in range(4)]
            buffers = [bytearray(3 << 20) for _ in keys]
            client.mset_from(keys, buffers)
            with own_mock.frozen():
                # Often, because it is a race.
                for _ in range(20):
                    with pytest.raises(valkey_rdma.DeadlineError):
                        client.mget_into(keys, buffers, timeout=0.02)
                    for buffer in buffers:
                        buffer.append(1)
                    with pytest.raises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, 0.02)
                        client.mget_into(keys, buffers)
                    for buffer in buffers:
                        buffer.append(1)
                # The calling thread waits for a large value, and for the socket of a small one.
                for size in (3 << 20, 1000):
                    buffer = bytearray(size)
                    with pytest.raises(KeyboardInterrupt):
                        signal.setitimer(signal.ITIMER_REAL, 0.02)
                        client.get_into(keys[0], buffer)
                    buffer.append(1)
    finally:
        # A signal that comes now would end the tests.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def switches_of_other_threads():
    """How often the other threads of this process have gone to sleep."""
    others = [task for task in pathlib.Path("/proc/self/task").iterdir() if int(task.name) != threading.get_native_id()]
    lines = [line for task in others for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def test_a_thread_that_waits_for_values_over_tcp_wakes_no_other(mock, key):
    buffer = bytearray(64 << 10)
    with Client(mock.tcp) as client:
        client.set_from(key, buffer)
        before = switches_of_other_threads()
        for _ in range(200):
            client.set_from(key, buffer)
            assert client.get_into(key, buffer) == len(buffer)
        # 400 calls. A timer or another client may wake a background thread now and then.
        assert switches_of_other_threads() - before < 100


def test_lanes_go_from_thread_to_thread_and_outlive_them(url, key, opened):
    value = pattern(100_000)
    right = []

    def work():
        buffer = bytearray(len(value))
        right.append(client.get_into(key, buffer) == len(value) and buffer == value)

    with Client(url, lanes=1) as client:
        client.set_from(key, value)
        before = opened()
        for _ in range(5):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            # Two chunks, on background threads.
            assert client.mget_into([key] * 65, [bytearray(len(value)) for _ in range(65)]) == [len(value)] * 65
        work()
        assert right == [True] * 6
        assert not opened() - before


def test_values_expire(client, key):
    client.set_from(key, b"value", ttl=100)
    assert 0 < client.command("PTTL", key) <= 100_000
    for ttl in (0, -1, 0.0001, 1e300):
        with pytest.raises(ValueError, match="ttl"):
            client.set_from(key, b"value", ttl=ttl)


def test_many_threads_share_a_client(client, key):
    failures = []

    def work(number):
        try:
            mine = f"{key}{number}"
            value, buffer = pattern(50_000 + number), bytearray(60_000)
            for _ in range(20):
                client.set_from(mine, value)
                assert client.get_into(mine, buffer) == len(value)
                assert buffer[: len(value)] == value
                assert client.command("STRLEN", mine) == len(value)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_messages_arrive(client, key):
    with client.subscriber() as subscriber:
        subscriber.subscribe(key)
        subscriber.subscribe(key + "*", kind="pattern")
        client.command("PUBLISH", key, "hello")
        events = [subscriber.next(timeout=30) for _ in range(2)]
        assert {event["pattern"] for event in events} == {None, f"{key}*".encode()}
        assert {event["payload"] for event in events} == {b"hello"}
        assert subscriber.next(timeout=0) is None
        with pytest.raises(ValueError, match="kind"):
            subscriber.subscribe(key, kind="rumour")
    with pytest.raises(valkey_rdma.ClosedError):
        subscriber.next()


def test_subscriptions_change_while_a_thread_waits_for_messages(client, key):
    subscriber, events = client.subscriber(), queue.Queue()

    def receive():
        try:
            for event in subscriber:
                events.put(event["payload"])
        except valkey_rdma.ClosedError:
            events.put("closed")

    def at_once(call, *arguments):
        thread = threading.Thread(target=call, args=arguments, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()

    threading.Thread(target=receive, daemon=True).start()
    at_once(subscriber.subscribe, key, key + "2")
    for number in range(10):
        client.command("PUBLISH", key, number)
        assert events.get(timeout=60) == b"%d" % number
        at_once(subscriber.unsubscribe, key + "2")
        at_once(subscriber.subscribe, key + "2")
    client.command("PUBLISH", key + "2", "hello")
    assert events.get(timeout=60) == b"hello"
    at_once(subscriber.close)
    assert events.get(timeout=60) == "closed"


def test_a_closed_client_raises(url):
    client = Client(url)
    assert url.split("://")[1] in repr(client)
    client.close()
    client.close()
    assert repr(client) == "<valkey_rdma.Client closed>"
    for call in (
        lambda: client.command("PING"),
        lambda: client.get_into("key", bytearray(1)),
        client.pipeline().command("PING").execute,
        client.subscriber,
        client.info,
    ):
        with pytest.raises(valkey_rdma.ClosedError):
            call()


def test_a_batch_that_fails_in_part_says_what_became_of_each_key(client, key):
    client.mset_from([key + "a", key + "b"], [b"aaaa", b"bb"])
    client.command("RPUSH", key + "list", 1)
    buffers = [bytearray(2) for _ in range(4)]
    with pytest.raises(valkey_rdma.SizeError) as raised:
        client.mget_into([key + "a", key + "b", key + "none", key + "list"], buffers)
    small, length, missing, wrong = raised.value.outcomes
    assert str(small) == str(raised.value) and (length, missing) == (2, None)
    assert isinstance(wrong, valkey_rdma.ServerError) and wrong.code == "WRONGTYPE"
    assert buffers[1] == b"bb"
    with pytest.raises(valkey_rdma.ServerError) as raised:
        client.get_into(key + "list", bytearray(1))
    assert raised.value.outcomes is None


def test_values_in_buffers_are_counted(client, key):
    client.mset_from([key + "a", key + "b"], [b"aaaa", b"bb"])
    client.mget_into([key + "a", key + "none"], [bytearray(10), bytearray(10)])
    with pytest.raises(valkey_rdma.SizeError):
        client.get_into(key + "a", bytearray(1))
    counted = {"loads": 1, "loaded_bytes": 4, "misses": 1, "stores": 2, "stored_bytes": 6, "failures": 1, "timeouts": 0}
    counted["direct"] = 0
    assert client.stats()["buffers"] == counted


@pytest.mark.parametrize("options", [{"lanes": -1}, {"lanes": 65}, {"connections": 0}, {"retries": -1}, {"timeout": -1}])
def test_options_out_of_range_are_named(url, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"^{name} must be "):
        Client(url, **options)


def test_a_client_describes_itself(client):
    info, stats = client.info(), client.stats()
    assert info["transport"] in ("emulated", "tcp", "rdma")
    assert stats["state"] == "connected"
    assert stats["connections"][0]["purpose"] == "shared"


@without_tls
def test_every_byte_is_copied_once_on_its_way_in(device_url, key):
    with Client(device_url, lanes=1) as client:

        def copied(name):
            counters = (connection["device_counters"] for connection in client.stats()["connections"])
            return sum(device[name] for device in counters)

        value = pattern(10_000_000)
        client.set_from(key, value)
        before = copied("copied_out")
        assert client.get_into(key, bytearray(len(value))) == len(value)
        assert len(value) <= copied("copied_out") - before < len(value) + 1000


@without_tls
def test_values_of_registered_memory_are_not_copied_on_their_way_out(device_url, key):
    arena = bytearray(pattern(4_000_000))
    with Client(device_url, lanes=1) as client, client.register(arena, direct=False) as registration:
        assert registration.nbytes == len(arena)

        def counted(name):
            counters = (connection["device_counters"] for connection in client.stats()["connections"])
            return sum(device[name] for device in counters)

        view = memoryview(arena)
        client.set_from(key, view[:1000])
        copied, lent = counted("copied_in"), counted("lent")
        client.mset_from([key + "1", key + "2"], [view[:1_000_000], view[2_000_000:3_000_000]])
        assert counted("lent") - lent == 2_000_000
        assert counted("copied_in") - copied < 1000
        # It is still the program's memory: reads go into it, and what they leave there is sent.
        assert client.get_into(key + "2", view[1_000_000:2_000_000]) == 1_000_000
        client.set_from(key + "3", view[1_000_000:2_000_000])
        other = bytearray(1_000_000)
        assert client.get_into(key + "3", other) == len(other)
        assert other == arena[2_000_000:3_000_000]
        view.release()
        with pytest.raises(BufferError):
            arena.append(0)
        registration.close()
        with memoryview(arena) as view:
            client.set_from(key, view[3_000_000:])
        assert counted("copied_in") - copied >= 1_000_000
    # The memory is the program's again when the last connection has ended, which real devices do in the background.
    deadline = time.monotonic() + 60
    while True:
        try:
            arena.append(0)
            break
        except BufferError:
            assert time.monotonic() < deadline
            registration.close()  # as every call, it releases what has become free


def test_registering_what_has_no_memory_is_an_error(client):
    for nothing in (7, "text", None):
        with pytest.raises(TypeError):
            client.register(nothing)
    with client.register(bytearray()) as registration:
        assert registration.nbytes == 0


def test_a_lost_server_fails_calls_and_comes_back(own_mock):
    for url in (own_mock.emulated, own_mock.tcp):
        with Client(url, offline_timeout=0.1) as client:
            client.set_from("key", b"value")
            own_mock.stop()
            with pytest.raises(ConnectionError):
                client.get_into("key", bytearray(5))
            with pytest.raises(valkey_rdma.Error):
                client.command("GET", "key")
            own_mock.start()
            client.set_from("key", b"value")
            assert client.get_into("key", bytearray(5)) == 5


def test_a_restart_between_calls_goes_unnoticed_by_values(own_mock):
    with Client(own_mock.tcp) as client:
        client.mset_from(["a", "b"], [b"1", b"2"])
        own_mock.stop()
        own_mock.start()
        client.mset_from(["a", "b"], [b"1", b"2"])
        assert client.mget_into(["a", "b"], [bytearray(1), bytearray(1)]) == [1, 1]


SIGNALLED = """
import os, signal, sys, threading
from valkey_rdma import Client
# A process started in the background of a shell ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = Client(sys.argv[1])
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    client.blocking_command("BLPOP", "nothing", 0)
except KeyboardInterrupt:
    print("interrupted")
client.command("PING")
"""


def test_a_waiting_call_can_be_interrupted(url):
    done = subprocess.run([sys.executable, "-X", "dev", "-c", SIGNALLED, url], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr

"""Forks, and Python's exit with work in flight. In processes of their own, under Python's development mode."""

import pytest
from programs import run, run_program

FORK = """
import os, sys, threading
import valkey_rdma
from valkey_rdma import Client
client, busy = Client(sys.argv[1]), bytearray(1 << 20)
client.set_from("fork", busy)

def work():
    buffer = bytearray(1 << 20)
    while not stop.is_set():
        client.get_into("fork", buffer)

stop = threading.Event()
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
for _ in range(10):
    child = os.fork()
    if child == 0:
        try:
            client.command("PING")
            os._exit(1)
        except valkey_rdma.ForkedError as error:
            assert error.fate == "not-sent"
        client.close()
        repr(client)
        del client
        with Client(sys.argv[1]) as mine:
            assert mine.command("PING") == b"PONG"
            assert mine.get_into("fork", busy) == len(busy)
            mine.register(busy).close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
[thread.join() for thread in threads]
assert client.command("PING") == b"PONG"
print("parent and children")
"""

# The kernel refuses a child the devices that its parent has opened.
FORK_RDMA = """
import os, sys
import valkey_rdma
from valkey_rdma import Client
client = Client(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        Client(sys.argv[1])
    except valkey_rdma.ConnectError as error:
        os._exit(0 if "forked" in str(error) else 1)
    finally:
        os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert client.command("PING") == b"PONG"
print("parent")
"""


def test_a_forked_child_makes_its_own_client(url):
    if url.startswith("rdma://"):
        assert run(FORK_RDMA, url) == ["parent"]
    else:
        assert run(FORK, url) == ["parent and children"]


# Other modules have code that runs at a fork, before ours and after it: logging has, which asyncio imports. It may give Python's lock away.
FORK_BESIDE_LOOPS = """
import asyncio, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
# Runs after ours at a fork, because it is registered before: our locks are taken meanwhile.
os.register_at_fork(before=lambda: time.sleep(0.001))
from valkey_rdma import AsyncClient, Client
os.register_at_fork(before=lambda: time.sleep(0.001))

async def work():
    async with await AsyncClient.connect(sys.argv[1]) as client:
        buffer = bytearray(100)
        while not stop:
            unsent = client.pipeline().command("SET", "k", large)
            await asyncio.gather(*[client.command("PING") for _ in range(20)], client.get_into("none", buffer))
            # It drops the memory that it has borrowed, perhaps in the middle of a fork.
            del unsent

large = bytes(100_000)

def connect():
    while not stop:
        Client(sys.argv[1]).close()

stop = []
# Without asyncio's own debugging, which reports slow turns.
threads = [threading.Thread(target=lambda: asyncio.run(work(), debug=False)) for _ in range(2)] + [threading.Thread(target=connect)]
[thread.start() for thread in threads]
for _ in range(200):
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.append(True)
[thread.join() for thread in threads]
print("done")
"""


def test_forks_beside_loops_that_make_calls(url):
    if url.startswith("rdma://"):
        pytest.skip("a child of a process that has used RDMA cannot")
    assert run(FORK_BESIDE_LOOPS, url) == ["done"]


SIGNALS = """
import os, signal, sys
from valkey_rdma import Client
client = Client(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.kill(os.getpid(), signal.SIGTERM)
assert signal.sigwait({signal.SIGTERM}) == signal.SIGTERM
print(client.command("PING").decode())
"""


def test_signals_are_left_to_the_threads_of_the_program(url):
    assert run(SIGNALS, url) == ["PONG"]


SECOND_INTERPRETER = """
import sys
from valkey_rdma import Client
try:
    import _interpreters as interpreters
    second = interpreters.create("legacy")
except ImportError:
    # Before Python 3.13.
    import _xxsubinterpreters as interpreters
    second = interpreters.create(isolated=False)
client = Client(sys.argv[1])
interpreters.run_string(second, '''
try:
    import valkey_rdma
except ImportError as error:
    assert "another interpreter" in str(error), error
    print("refused", flush=True)
''')
interpreters.destroy(second)
print(client.command("PING").decode())
"""


def test_another_interpreter_is_refused_and_its_end_changes_nothing(url):
    assert run(SECOND_INTERPRETER, url) == ["refused", "PONG"]


WITHOUT_DESCRIPTORS = """
import os, resource, sys, threading
from valkey_rdma import Client
client, buffer = Client(sys.argv[1], lanes=1), bytearray(5)
client.set_from("few", b"value")
lowest = os.dup(0)
os.close(lowest)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
thread = threading.Thread(target=lambda: client.get_into("few", buffer))
thread.start()
thread.join()
resource.setrlimit(resource.RLIMIT_NOFILE, before)
print(buffer.decode())
"""


def test_a_thread_that_can_open_nothing_more_uses_what_is_open(url):
    assert run(WITHOUT_DESCRIPTORS, url) == ["value"]


WORKERS = """
import multiprocessing, sys
import valkey_rdma
from valkey_rdma import Client

client = None

def work(url, results):
    # A forked worker has the client of its parent, a spawned one has none.
    if client is not None:
        try:
            client.get_into("workers", bytearray(5))
        except valkey_rdma.ForkedError:
            results.put(b"the parent's is refused")
    with Client(url) as mine:
        buffer = bytearray(5)
        assert mine.get_into("workers", buffer) == 5
        results.put(bytes(buffer))

if __name__ == "__main__":
    url, method = sys.argv[1:]
    client = Client(url)
    client.set_from("workers", b"value")
    context = multiprocessing.get_context(method)
    results = context.Queue()
    workers = [context.Process(target=work, args=(url, results)) for _ in range(2)]
    [worker.start() for worker in workers]
    got = [results.get(timeout=60) for _ in range(4 if method == "fork" else 2)]
    [worker.join() for worker in workers]
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert client.get_into("workers", bytearray(5)) == 5
    print(*sorted({text.decode() for text in got}), sep="; ")
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_multiprocessing_make_their_own_client(url, method, tmp_path):
    if method == "fork" and url.startswith("rdma://"):
        pytest.skip("the kernel refuses a child the devices that its parent has opened")
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    expected = "the parent's is refused; value" if method == "fork" else "value"
    assert run_program(program, url, method) == [expected]


FORK_LMCACHE = """
import os, select, sys
import valkey_rdma
from valkey_rdma import LMCacheClient
connector = LMCacheClient(sys.argv[1])
number = connector.submit_batch_exists(["a"])
select.select([connector.event_fd()], [], [], 60)
child = os.fork()
if child == 0:
    calls = (connector.drain_completions, connector.event_fd, connector.stats, lambda: connector.submit_batch_exists(["a"]))
    for call in calls:
        try:
            call()
            os._exit(1)
        except valkey_rdma.ForkedError:
            pass
    connector.close()
    del connector
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert select.select([connector.event_fd()], [], [], 60)[0]
assert [done[0] for done in connector.drain_completions()] == [number]
print("parent")
"""


def test_a_forked_child_leaves_the_parents_batches_alone(url):
    assert run(FORK_LMCACHE, url) == ["parent"]


EXIT = {
    "threads that wait": """
import sys, threading
from valkey_rdma import Client
client = Client(sys.argv[1])
for _ in range(4):
    threading.Thread(target=lambda: client.blocking_command("BLPOP", "nothing", 0), daemon=True).start()
client.command("PING")
print("exit")
""",
    "batches in flight": """
import sys
from valkey_rdma import LMCacheClient
connector = LMCacheClient(sys.argv[1])
buffers = [bytearray(4 << 20) for _ in range(16)]
connector.submit_batch_set([str(n) for n in range(16)], buffers)
more = [bytearray(4 << 20) for _ in range(16)]
connector.submit_batch_get([str(n) for n in range(16)], more)
print("exit")
""",
    "futures": """
import asyncio, sys
from valkey_rdma import AsyncClient
async def main():
    # An emulated processor takes longer for a step than development mode likes.
    asyncio.get_running_loop().slow_callback_duration = 60
    client = await AsyncClient.connect(sys.argv[1])
    buffer = bytearray(8 << 20)
    client.set_from("exit", buffer)
    client.blocking_command("BLPOP", "nothing", 0)
    (await client.subscriber()).next()
asyncio.run(main())
print("exit")
""",
    "threads that connect after the end": """
import atexit, sys, threading
def connect():
    import valkey_rdma
    while True:
        try:
            valkey_rdma.Client(sys.argv[1])
        except valkey_rdma.ClosedError:
            return
def late():
    threads = [threading.Thread(target=connect, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    connect()
atexit.register(late)
# Its own hook comes before ours.
import valkey_rdma
print("exit")
""",
    "calls after the end": """
import atexit, sys
def late():
    for call in (lambda: client.command("PING"), lambda: connector.submit_batch_exists(["a"]), lambda: Client(sys.argv[1])):
        try:
            call()
        except valkey_rdma.ClosedError as error:
            assert "Python is exiting" in str(error)
        else:
            raise AssertionError("it was refused")
    client.close()
    subscriber.close()
    connector.close()
    print("exit")
# The last to be registered is the first to be called.
atexit.register(late)
import valkey_rdma
from valkey_rdma import Client, LMCacheClient
client, connector = Client(sys.argv[1]), LMCacheClient(sys.argv[1])
subscriber = client.subscriber()
""",
    "an object that closes its client": """
import sys
from valkey_rdma import Client
class Owner:
    def __init__(self):
        self.client = Client(sys.argv[1])
    def __del__(self):
        self.client.close()
owner = Owner()
print("exit")
""",
    "an object that calls a client": """
import sys
from valkey_rdma import Client, LMCacheClient
class Owner:
    def __init__(self):
        self.client, self.connector = Client(sys.argv[1]), LMCacheClient(sys.argv[1])
    def __del__(self):
        calls = (
            lambda: self.client.command("PING"),
            lambda: self.client.get_into("k", bytearray(1)),
            lambda: self.connector.submit_batch_exists(["k"]),
        )
        for call in calls:
            # The first exception of this package that this process meets.
            try:
                call()
            except ConnectionError as error:
                assert (type(error).__name__, error.fate) == ("ClosedError", "not-sent")
        print("exit")
owner = Owner()
""",
    "a client that nothing closed": """
import sys
from valkey_rdma import Client
client = Client(sys.argv[1])
client.set_from("exit", b"value")
print("exit")
""",
}

@pytest.mark.parametrize("code", EXIT.values(), ids=EXIT.keys())
def test_python_exits_with_work_in_flight(url, code):
    assert run(code, url) == ["exit"]

"""Frameworks on redis-py, with our connections: what the README's table says of them."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import huey
import pytest
import redis
import rq
import rq.worker

import jobs
from conftest import REAL
import valkey_rdma.redis_py
import valkey_rdma.rq
from valkey_rdma.redis_py import RdmaConnection


@pytest.fixture
def connection(url):
    """A client, and a database that is empty, of a real server (VALKEY_RDMA_TEST_SERVER): RQ needs Lua, which the mock has not."""
    if REAL is None:
        pytest.skip("the mock has no Lua; the lab runs this with a real server")
    with valkey_rdma.redis_py.Redis.from_url(url + "/7") as connection:
        connection.flushdb()
        yield connection
        connection.flushdb()


@pytest.mark.parametrize("worker_class", ["rq.worker.SimpleWorker", "valkey_rdma.rq.SpawnWorker"])
def test_workers_of_rq_on_the_command_line(connection, url, worker_class, key):
    queue = rq.Queue(key, connection=connection)
    enqueued = [queue.enqueue(jobs.where) for _ in range(2)]
    command = [sys.executable, "-m", "rq.cli", "worker", "--burst", "--url", url + "/7", "--worker-class", worker_class]
    command += ["--connection-class", "valkey_rdma.redis_py.Redis", "--path", str(pathlib.Path(__file__).parent), key]
    worker = subprocess.run(command, capture_output=True, text=True, timeout=900)
    results = [job.latest_result() for job in enqueued]
    assert all(results), worker.stderr
    assert all(result.type is result.Type.SUCCESSFUL for result in results), results[0].exc_string
    scheme = url.split(":")[0]
    assert {result.return_value[1:] for result in results} == {("valkey_rdma.redis_py.RdmaConnection", scheme)}
    processes = {result.return_value[0] for result in results}
    assert len(processes) == (2 if "Spawn" in worker_class else 1)


def test_a_child_of_rqs_spawn_worker_has_the_connection_of_its_worker(url, key, monkeypatch):
    """The mock cannot run RQ's worker. So this runs only the line of the child's program that makes the connection."""
    spawned = []
    monkeypatch.setattr(os, "posix_spawn", lambda path, words, environment, **_: spawned.append((words[2], dict(environment))) or 1)
    with valkey_rdma.redis_py.Redis.from_url(url + "/3?socket_timeout=7") as connection:
        worker = valkey_rdma.rq.SpawnWorker.__new__(valkey_rdma.rq.SpawnWorker)
        vars(worker).update(connection=connection, name="name", _serializer_arg=None)
        monkeypatch.setattr(valkey_rdma.rq.SpawnWorker, "execution", SimpleNamespace(id="1"))
        monkeypatch.setattr(valkey_rdma.rq.SpawnWorker, "procline", lambda *_: None)
        monkeypatch.setattr(valkey_rdma.rq.SpawnWorker, "_dump_worker_config", lambda _: b"")
        worker.fork_work_horse(SimpleNamespace(id="2"), SimpleNamespace(name="queue"))
        assert worker._horse_pid == 1 and worker.connection is connection
        connection.set(key, "value")
    [(program, environment)] = spawned
    assert "VALKEY_RDMA_RQ_POOL" not in os.environ
    # Every user can read a program in the arguments of a process: it must not have the password.
    assert not re.search("socket_timeout|password", program)
    monkeypatch.setattr(os, "environ", environment)
    [line] = [line for line in program.splitlines() if line.startswith("redis = ")]
    made = {"Redis": redis.Redis}
    exec(line, made)
    assert "VALKEY_RDMA_RQ_POOL" not in environment
    with made["redis"] as child:
        connection = child.connection_pool.make_connection()
        assert (type(connection), connection.scheme, connection.socket_timeout) == (RdmaConnection, url.split(":")[0], 7)
        assert child.get(key) == b"value"


def test_the_default_worker_of_rq_forks_from_a_connected_parent(connection, url, key):
    """It works where a child may make connections: over TCP and on the emulated device."""
    if url.startswith("rdma://"):
        pytest.skip("a child of a process that has used RDMA cannot")
    queue = rq.Queue(key, connection=connection)
    job = queue.enqueue(jobs.where)
    rq.worker.Worker([queue], connection=connection).work(burst=True)
    process, _, scheme = job.latest_result().return_value
    assert process != os.getpid() and scheme == url.split(":")[0]


def test_huey(url, key):
    scheme, address = url.split("://")
    pool = redis.ConnectionPool.from_url(f"redis://{address}", connection_class=RdmaConnection, scheme=scheme)
    app = huey.RedisHuey(key, connection_pool=pool)

    @app.task()
    def add(a, b):
        return a + b

    consumer = app.create_consumer(workers=2, periodic=False)
    consumer.start()
    try:
        results = [add(number, number) for number in range(20)]
        assert [result.get(blocking=True, timeout=60) for result in results] == [2 * number for number in range(20)]
    finally:
        consumer.stop(graceful=True)


# A parent that has tried RDMA, on a machine with rdma-core's libraries but perhaps without a device: they are loaded, which is what a
# child may not use.
FALLBACK = """
import os, sys
import redis
from valkey_rdma import Client
from valkey_rdma.redis_py import Redis
client = Redis.from_url(sys.argv[1])
assert client.ping()
child = os.fork()
if child == 0:
    assert client.ping()
    with Client(sys.argv[1]) as mine:
        print(mine.info()["transport"], mine.info()["fallback"], flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert client.ping()
"""


def test_a_forked_child_falls_back_to_tcp(mock):
    url = mock.tcp.replace("valkey", "rdma", 1) + "?fallback=tcp"
    child = subprocess.run([sys.executable, "-c", FALLBACK, url], capture_output=True, text=True, timeout=900)
    assert child.returncode == 0, child.stderr
    assert child.stdout.startswith("tcp ")
    try:
        ctypes.CDLL("libibverbs.so.1"), ctypes.CDLL("librdmacm.so.1")
    except OSError:
        pytest.skip("without rdma-core's libraries, the child falls back for the same reason as its parent")
    assert "forked" in child.stdout

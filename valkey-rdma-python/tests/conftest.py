"""Servers for the tests: the mock on the emulated device and on TCP, or the real one that VALKEY_RDMA_TEST_SERVER names.

With VALKEY_RDMA_TEST_TLS=1, all mocks and connections use TLS.
"""

import atexit
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid

import pytest
from certificates import Authority, Certificate

from valkey_rdma import Client, ClusterClient

MOCK = os.environ.get("VALKEY_RDMA_MOCK", "valkey-rdma-mock")
REAL = os.environ.get("VALKEY_RDMA_TEST_SERVER")
# Nodes of a real cluster, separated by commas.
REAL_CLUSTER = os.environ.get("VALKEY_RDMA_TEST_CLUSTER")

# The folder of the certificates of a run over TLS, which programs that the tests start have from their parent.
if os.environ.get("VALKEY_RDMA_TEST_TLS") and "VALKEY_RDMA_MOCK_TLS" not in os.environ:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    authority = Authority(pathlib.Path(folder), "tests")
    authority.issue("server", "IP:127.0.0.1")
    # The first is for all connections, the second for clusters of mocks.
    os.environ |= {"SSL_CERT_FILE": str(authority.ca), "VALKEY_RDMA_MOCK_TLS": folder}
TLS = os.environ.get("VALKEY_RDMA_MOCK_TLS")
FLAGS = Certificate(pathlib.Path(TLS), "server").flags if TLS else ()

#: Of tests that look at bytes on their way, or at how often the device copies them.
without_tls = pytest.mark.skipif(TLS is not None, reason="it looks at plain bytes")


@contextlib.contextmanager
def frozen(process):
    """A server answers nothing meanwhile, and its connections stay."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Mock:
    """The mock as a process. It can be stopped, and started again on the same ports. ``tls`` are its flags for TLS."""

    def __init__(self, tls=FLAGS):
        self.tls = tls
        self.ports = ["0", "0"]
        self.start()

    def start(self):
        emulated, tcp = self.ports
        flags = ("--tls-rdma-port", "--tls-port") if self.tls else ("--port", "--tcp-port")
        command = [MOCK, "--device", "emulated", flags[0], emulated, flags[1], tcp, *self.tls]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ready = dict(self.process.stdout.readline().split()[1].split("://") for _ in range(2))
        emulated, tcp = ("emulateds", "valkeys") if self.tls else ("emulated", "valkey")
        self.ports = [ready[scheme].rsplit(":", 1)[1] for scheme in (emulated, tcp)]
        self.emulated = f"{emulated}://127.0.0.1:{self.ports[0]}"
        self.tcp = f"{tcp}://127.0.0.1:{self.ports[1]}"

    def frozen(self):
        return frozen(self.process)

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="session")
def mock():
    mock = Mock()
    yield mock
    mock.stop()


@pytest.fixture(params=[REAL] if REAL else ["emulated", "tcp"])
def url(request):
    """The URL of a server, once for each transport."""
    if request.param == REAL:
        return REAL
    return getattr(request.getfixturevalue("mock"), request.param)


@pytest.fixture
def device_url(mock):
    """The URL of a server over RDMA, real or emulated: what happens on TCP, the kernel does not count."""
    return REAL if REAL and REAL.startswith("rdma://") else mock.emulated


@pytest.fixture
def own_mock():
    """A mock for tests that stop it."""
    mock = Mock()
    yield mock
    if mock.process.poll() is None:
        mock.stop()


@pytest.fixture
def silent():
    """The port of a server that never answers: nothing is accepted, and the queue of those that connect is full."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.fixture
def client(url):
    with Client(url) as client:
        yield client


class MockCluster:
    """Primaries, nodes 0 to 2 if nothing else is asked for, and then their replicas, in one process that does what it is asked to."""

    def __init__(self, transport, primaries=3, replicas=1):
        program = pathlib.Path(MOCK).parent / "examples" / "cluster_on_command"
        command = [program, str(primaries), str(replicas), *(["tcp"] if transport == "tcp" else [])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes, text=True)
        self.urls = [self.process.stdout.readline().split()[1] for _ in range(primaries * (1 + replicas))]

    def do(self, *words):
        """Makes something happen to the cluster: see `cluster_on_command.rs`."""
        print(*words, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "ok\n"

    def key_of(self, node, start=""):
        """A key that this primary serves."""
        with Client(self.urls[0]) as client:
            slots = client.command("CLUSTER", "SLOTS")
            port = int(self.urls[node].rsplit(":", 1)[1])
            mine = next((first, last) for first, last, primary, *_ in slots if primary[1] == port)
            keys = (f"{start}{number}" for number in range(1_000_000))
            return next(key for key in keys if mine[0] <= client.command("CLUSTER", "KEYSLOT", key) <= mine[1])

    def slot(self, key):
        with Client(self.urls[0]) as client:
            return client.command("CLUSTER", "KEYSLOT", key)

    def stop(self):
        # It ends with its input.
        self.process.communicate(timeout=30)


@pytest.fixture(scope="session")
def shared_clusters():
    """Clusters for tests that only use them, started when needed."""
    clusters = {}

    def of(transport):
        if transport not in clusters:
            clusters[transport] = MockCluster(transport)
        return clusters[transport]

    yield of
    for cluster in clusters.values():
        cluster.stop()


@pytest.fixture(params=[REAL_CLUSTER] if REAL_CLUSTER else ["emulated", "tcp"])
def cluster_urls(request, shared_clusters):
    """URLs of nodes of a cluster, once for each transport."""
    if request.param == REAL_CLUSTER:
        return REAL_CLUSTER.split(",")
    return shared_clusters(request.param).urls


def pytest_collection_modifyitems(config, items):
    """A real cluster shows nothing new where a test brings its own mocks."""
    if REAL_CLUSTER:
        mocks = [item for item in items if "own_cluster" in item.fixturenames]
        config.hook.pytest_deselected(items=mocks)
        items[:] = [item for item in items if item not in mocks]


@pytest.fixture(params=["emulated", "tcp"])
def own_cluster(request):
    """A cluster of mocks for tests that change it."""
    cluster = MockCluster(request.param)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(cluster_urls):
    with ClusterClient(cluster_urls) as client:
        yield client


@pytest.fixture
def key():
    """The start of keys that no other test uses."""
    return f"test:{uuid.uuid4().hex}:"


@pytest.fixture
def opened():
    """Describes the open descriptors of this process. What a later description has, and an earlier one not, was opened in between."""

    def describe():
        found = set()
        for entry in pathlib.Path("/proc/self/fd").iterdir():
            # The one that lists the others is closed by now.
            with contextlib.suppress(FileNotFoundError):
                found.add((entry.name, str(entry.readlink())))
        return found

    return describe


@pytest.fixture
def fds():
    """Counts the open descriptors of this process."""
    return lambda: len(list(pathlib.Path("/proc/self/fd").iterdir()))

"""Servers for the tests: the mock on the emulated device and on TCP, or the real one that VALKEY_RDMA_TEST_URL names."""

import os
import pathlib
import subprocess
import uuid

import pytest

from valkey_rdma import Client

MOCK = os.environ.get("VALKEY_RDMA_MOCK", "valkey-rdma-mock")
REAL = os.environ.get("VALKEY_RDMA_TEST_URL")


class Mock:
    """The mock as a process. It can be stopped, and started again on the same ports."""

    def __init__(self):
        self.ports = ["0", "0"]
        self.start()

    def start(self):
        emulated, tcp = self.ports
        command = [MOCK, "--device", "emulated", "--port", emulated, "--tcp-port", tcp]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ready = dict(self.process.stdout.readline().split()[1].split("://") for _ in range(2))
        self.ports = [ready[scheme].rsplit(":", 1)[1] for scheme in ("emulated", "valkey")]
        self.emulated = f"emulated://127.0.0.1:{self.ports[0]}"
        self.tcp = f"valkey://127.0.0.1:{self.ports[1]}"

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
def client(url):
    with Client(url) as client:
        yield client


@pytest.fixture
def key():
    """The start of keys that no other test uses."""
    return f"test:{uuid.uuid4().hex}:"


@pytest.fixture
def fds():
    """Counts the open descriptors of this process."""
    return lambda: len(list(pathlib.Path("/proc/self/fd").iterdir()))

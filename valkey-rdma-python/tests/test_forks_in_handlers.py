"""Signal handlers that fork during a call. In processes of their own, under Python's development mode."""

import pathlib

import pytest
from programs import run

# The server is frozen until the child has ended, so that each call waits.
FORK_IN_A_HANDLER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from conftest import Mock
from valkey_rdma import Client, ForkedError

class Left(Exception):
    pass

def handler(*_):
    child = os.fork()
    if child == 0:
        # It ends the child if the child goes on with the call.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        if raises:
            raise Left
        return
    status = os.waitpid(child, 0)[1]
    mock.process.send_signal(signal.SIGCONT)
    assert status == 0, f"{name}: the child ended with status {status}"
    forks.append(name)

def fill(key, length):
    buffer = bytearray(length)
    assert client.get_into(key, buffer) == length
    return bytes(buffer[:5])

signal.signal(signal.SIGALRM, handler)
parent, mock, forks = os.getpid(), Mock(), []
try:
    url = getattr(mock, sys.argv[2]) + "?timeout=60s"
    client = Client(url)
    client.set_from("small", b"value")
    client.set_from("large", b"value" + bytes(4 << 20))
    calls = {
        "command": lambda: client.command("GET", "small"),
        "pipeline": lambda: client.pipeline().command("GET", "small").execute()[0],
        "blocking_command": lambda: client.blocking_command("GET", "small"),
        "get_into": lambda: fill("small", 5),
        "get_into of a large value": lambda: fill("large", (4 << 20) + 5),
        "connect": lambda: Client(url).command("GET", "small"),
        "subscriber": lambda: client.subscriber() and b"value",
    }
    for name, call in calls.items():
        for raises in (False, True):
            with mock.frozen():
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.3)
                    result = call()
                except (ForkedError, Left) as error:
                    if os.getpid() == parent:
                        raise
                    expected = "Left" if raises else "ForkedError"
                    os._exit(0 if type(error).__name__ == expected else 1)
                assert os.getpid() == parent
                assert result == b"value", (name, result)
    assert forks == [name for name in calls for _ in range(2)]
finally:
    if os.getpid() == parent:
        mock.stop()
    else:
        os._exit(2)
print("parent")
"""


@pytest.mark.parametrize("transport", ["emulated", "tcp"])
def test_a_child_that_a_signal_handler_forks_leaves_the_call_to_its_parent(transport):
    tests = pathlib.Path(__file__).parent
    assert run(FORK_IN_A_HANDLER, tests, transport) == ["parent"]

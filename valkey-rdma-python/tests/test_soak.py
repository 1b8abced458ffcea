"""The soak test, small. Its long form: `proofs/soak.py SERVER PORT 300`."""

import os
import pathlib
import socket
import subprocess
import sys

from conftest import MOCK

SOAK = pathlib.Path(__file__).parent.parent / "proofs" / "soak.py"


def test_threads_and_tasks_survive_restarts_and_cancellations():
    # Bound, so that nothing else takes the port while the mock is away.
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = str(reserved.getsockname()[1])
        command = [sys.executable, SOAK, "mock", port, "3", "4", "50", "1"]
        environment = os.environ | {"VALKEY_RDMA_MOCK": MOCK}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr

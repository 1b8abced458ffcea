"""A pytest plugin: the pools of the client library use our connection class, over TCP, unless a test names another one.

LIBRARY is redis or valkey.
"""

import importlib
import os

LIBRARY = os.environ["LIBRARY"]
used = {"connections": 0}


def use(module, ours):
    class Connection(ours):
        """Over TCP, and counted."""

        def __init__(self, *args, **kwargs):
            super().__init__(*args, scheme="valkey", **kwargs)

        def _connect(self):
            used["connections"] += 1
            return super()._connect()

    theirs = importlib.import_module(f"{module}.connection").Connection
    for pool in ("ConnectionPool", "BlockingConnectionPool"):
        init = getattr(importlib.import_module(f"{module}.connection"), pool).__init__
        init.__defaults__ = tuple(Connection if value is theirs else value for value in init.__defaults__ or ())


classes = importlib.import_module(f"valkey_rdma.{LIBRARY}_py")
use(LIBRARY, classes.RdmaConnection)
use(f"{LIBRARY}.asyncio", classes.AsyncRdmaConnection)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{used['connections']} connections over valkey_rdma")

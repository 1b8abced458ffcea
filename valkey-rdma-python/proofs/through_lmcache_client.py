"""A pytest plugin: LMCache's own tests of native connectors, with ``valkey_rdma.LMCacheClient`` where they have another connector.

``test_native_connector_l2_adapter.py`` drives an adapter with a connector that keeps values in a dict; here it is ours, whose database is
emptied for each one. ``test_resp_l2_adapter_integration.py`` uses LMCache's connector in C++; here it is ours, at the same server.
"""

import os
import sys
import types

import valkey_rdma

PORT = os.environ["REDIS_PORT"]
made = 0


def connector(*_server_and_workers):
    """What the tests call for a connector."""
    global made
    made += 1
    url = f"valkey://127.0.0.1:{PORT}"
    with valkey_rdma.Client(url) as client:
        client.command("FLUSHALL")
    return valkey_rdma.LMCacheClient(url=url, connections=4)


def pytest_configure():
    ours = types.ModuleType("lmcache.lmcache_redis")
    ours.LMCacheRedisClient = connector
    sys.modules[ours.__name__] = ours


def pytest_collection_finish(session):
    for module in {item.module for item in session.items}:
        if hasattr(module, "MockNativeConnector"):
            module.MockNativeConnector = connector


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{made} connectors were valkey_rdma.LMCacheClient")

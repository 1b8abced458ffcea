#!/usr/bin/env python3
"""LMCache's own NativeConnectorL2Adapter drives our LMCacheClient: put, lookup, get, delete, capacity, a server restart.

usage: lmcache_adapter.py SERVER PORT [--plugin]     starts that program at that port, and restarts it

SERVER is a valkey-server, or one of `mock` and `mock-rdma` (server.py). With `mock-rdma --plugin`, values go directly: it is checked, too.

Needs the released lmcache package with torch: `pip install lmcache==0.5.6` (2.5 GB).
With --plugin, the adapter is that of `valkey_rdma.lmcache_plugin`, as LMCache's type `plugin` makes it.
"""

import ctypes
import importlib
import mmap
import os
import select
import sys
import types

import valkey_rdma
from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import native_plugin_l2_adapter, plugin_l2_adapter
from server import Server

CHUNK = 1 << 20
COUNT = 16


class Chunk:
    """What the adapter uses of a MemoryObj: its bytes, as LMCache makes them."""

    def __init__(self, address):
        self.address = address

    @property
    def byte_array(self):
        return memoryview((ctypes.c_ubyte * CHUNK).from_address(self.address))

    def get_size(self):
        return CHUNK


def wait(fd):
    assert select.select([fd], [], [], 30)[0], "no completion within 30 s"
    os.read(fd, 8)


def main(program, port, *options):
    server = Server(program, port)
    parameters = {"url": server.url, "connections": 4}
    if program != "mock-rdma":
        parameters["ttl"] = 3600  # Values with one do not go directly.
    arena = mmap.mmap(-1, 2 * COUNT * CHUNK)
    base = ctypes.addressof(ctypes.c_ubyte.from_buffer(arena))
    chunks = [Chunk(base + number * CHUNK) for number in range(2 * COUNT)]
    if "--plugin" in options:
        where = types.SimpleNamespace(ptr=base, size=len(arena), align_bytes=4096)
        config = plugin_l2_adapter.PluginL2AdapterConfig.from_dict(
            {
                "module_path": "valkey_rdma.lmcache_plugin",
                "class_name": "ValkeyRdmaL2Adapter",
                "adapter_params": {**parameters, "max_capacity_gb": 1},
            }
        )
        adapter = plugin_l2_adapter._create_plugin_adapter(config, where)
    else:
        config = native_plugin_l2_adapter.NativePluginL2AdapterConfig.from_dict(
            {
                "module_path": "valkey_rdma",
                "class_name": "LMCacheClient",
                "adapter_params": parameters,
                "max_capacity_gb": 1,
            }
        )
        adapter = native_plugin_l2_adapter._create_native_plugin_l2_adapter(config)
    kind = type(adapter)
    print("adapter:", *(f"{base.__module__}.{base.__name__}" for base in kind.__mro__[:2]))
    print("lmcache:", importlib.import_module("lmcache").__file__)

    keys = [ObjectKey(chunk_hash=bytes([n]) * 32, model_name="model", kv_rank=n % 2) for n in range(COUNT)]
    for number in range(COUNT):
        arena[number * CHUNK : (number + 1) * CHUNK] = bytes([number + 1]) * CHUNK

    def store():
        task = adapter.submit_store_task(keys, chunks[:COUNT])
        wait(adapter.get_store_event_fd())
        return adapter.pop_completed_store_tasks()[task]

    def lookup(some):
        task = adapter.submit_lookup_and_lock_task(some, {})
        wait(adapter.get_lookup_and_lock_event_fd())
        found = adapter.query_lookup_and_lock_result(task)
        adapter.submit_unlock(some)
        return [found.test(index) for index in range(len(some))]

    def load():
        task = adapter.submit_load_task(keys, chunks[COUNT:])
        wait(adapter.get_load_event_fd())
        loaded = adapter.query_load_result(task)
        return [loaded.test(index) for index in range(COUNT)]

    def check(name, condition):
        print(("ok    " if condition else "FAILED"), name, flush=True)
        if not condition:
            raise SystemExit(1)

    stored = store()
    check(f"put {COUNT} chunks of 1 MiB", stored.bytes_transferred() == COUNT * CHUNK)
    check("the adapter's own account of bytes", adapter.get_usage().total_bytes_used == COUNT * CHUNK)
    check("lookup finds all, and not another", lookup([*keys, ObjectKey(b"x" * 32, "model", 0)]) == [True] * COUNT + [False])
    check("get loads all", load() == [True] * COUNT)
    check("every byte is right", arena[: COUNT * CHUNK] == arena[COUNT * CHUNK :])
    client = next(value for value in vars(adapter).values() if isinstance(value, valkey_rdma.LMCacheClient))
    directly = client.stats()["buffers"]["direct"]
    expected = 2 * COUNT if program == "mock-rdma" and "--plugin" in options else 0
    check(f"{directly} of {2 * COUNT} values went directly", directly == expected)
    adapter.delete(keys[:4])
    check("delete, as eviction calls it", lookup(keys) == [False] * 4 + [True] * 12)
    check("the account follows", adapter.get_usage().total_bytes_used == 12 * CHUNK)
    arena[COUNT * CHUNK :] = bytes(COUNT * CHUNK)
    check("get reports single misses", load() == [False] * 4 + [True] * 12)
    check("their buffers are untouched", arena[COUNT * CHUNK : (COUNT + 4) * CHUNK] == bytes(4 * CHUNK))
    server.stop()
    check("without a server: put fails", not store().is_successful())
    check("without a server: get loads nothing", load() == [False] * COUNT)
    check("without a server: lookup finds nothing", lookup(keys) == [False] * COUNT)
    server.start()
    check("after a restart: put", store().is_successful())
    check("after a restart: get", load() == [True] * COUNT)
    check("status", adapter.report_status()["is_healthy"])
    adapter.close()
    server.stop()


main(*sys.argv[1:])

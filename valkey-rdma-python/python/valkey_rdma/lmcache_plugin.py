"""LMCache's ``plugin`` adapter, around ``LMCacheClient``.

    {"type": "plugin", "module_path": "valkey_rdma.lmcache_plugin", "class_name": "ValkeyRdmaL2Adapter",
     "adapter_params": {"url": "rdma://10.0.0.7:6379"}}

``max_capacity_gb`` among the parameters sets the capacity that LMCache's eviction keeps to. ``direct=False`` keeps servers that offer
direct transfers from reading and writing the L1 memory themselves. All others are those of ``LMCacheClient``.
"""

import ctypes
from typing import Any

from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import NativeConnectorL2Adapter

from ._native import LMCacheClient

__all__ = ["ValkeyRdmaL2Adapter"]


class ValkeyRdmaL2Adapter(NativeConnectorL2Adapter):  # type: ignore[misc]
    """LMCache's own adapter of native connectors, around ours, which moves values from and to the L1 memory without a copy."""

    def __init__(self, parameters: dict[str, Any], l1_memory_desc: Any = None) -> None:
        parameters = dict(parameters)
        capacity = parameters.pop("max_capacity_gb", 0)
        direct = parameters.pop("direct", True)
        client = LMCacheClient(**parameters)
        try:
            if l1_memory_desc is not None:
                # LMCache keeps it for as long as its adapters.
                memory = (ctypes.c_ubyte * l1_memory_desc.size).from_address(l1_memory_desc.ptr)
                client.register(memory, direct=direct)
            super().__init__(client, max_capacity_gb=capacity, type_name="valkey_rdma")
        except BaseException:
            client.close()
            raise

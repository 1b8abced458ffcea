"""Valkey over RDMA and TCP.

``Client`` and ``AsyncClient`` read values straight into buffers and send them from where they are; ``ClusterClient`` and
``AsyncClusterClient`` do the same with a cluster. ``LMCacheClient`` is a storage connector for LMCache. ``valkey_rdma.redis_py`` and ``valkey_rdma.valkey_py`` have connection classes for existing programs.
"""

from ._native import (
    AsyncClient,
    AsyncClusterClient,
    AsyncPipeline,
    AsyncSubscriber,
    Client,
    ClusterClient,
    LMCacheClient,
    Pipeline,
    Registration,
    Subscriber,
    __version__,
)
from .errors import (
    ClosedError,
    ClusterError,
    ConnectError,
    ConnectTimeoutError,
    DeadlineError,
    Error,
    ForkedError,
    LostError,
    RefusedError,
    ServerError,
    SizeError,
    UnexpectedReplyError,
    UrlError,
)

__all__ = [
    "AsyncClient",
    "AsyncClusterClient",
    "AsyncPipeline",
    "AsyncSubscriber",
    "Client",
    "ClosedError",
    "ClusterClient",
    "ClusterError",
    "ConnectError",
    "ConnectTimeoutError",
    "DeadlineError",
    "Error",
    "ForkedError",
    "LMCacheClient",
    "LostError",
    "Pipeline",
    "RefusedError",
    "Registration",
    "ServerError",
    "SizeError",
    "Subscriber",
    "UnexpectedReplyError",
    "UrlError",
    "__version__",
]

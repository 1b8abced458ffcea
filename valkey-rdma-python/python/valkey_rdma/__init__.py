"""Valkey over RDMA and TCP.

``Client`` and ``AsyncClient`` read values straight into buffers and send them from where they are. ``LMCacheClient`` is a
storage connector for LMCache. ``valkey_rdma.redis_py`` and ``valkey_rdma.valkey_py`` have connection classes for existing programs.
"""

from ._native import (
    AsyncClient,
    AsyncPipeline,
    AsyncSubscriber,
    Client,
    LMCacheClient,
    Pipeline,
    Registration,
    Subscriber,
    __version__,
)
from .errors import (
    ClosedError,
    ConnectError,
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
    "AsyncPipeline",
    "AsyncSubscriber",
    "Client",
    "ClosedError",
    "ConnectError",
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

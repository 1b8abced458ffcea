"""redis-py over RDMA: redis-py's clients with connection classes of this package.

    import redis
    from valkey_rdma.redis_py import RdmaConnection

    client = redis.from_url("redis://10.0.0.7:6379", connection_class=RdmaConnection)

``from_url`` and ``async_from_url`` take URLs of this package instead.
"""

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.connection
import redis.connection

from ._bridge import AsyncBridged, Bridged, ours_as_cause, split_url

__all__ = ["AsyncRdmaConnection", "RdmaConnection", "async_from_url", "from_url"]


class RdmaConnection(Bridged, redis.connection.Connection):
    """A connection of redis-py over RDMA: the ``connection_class`` of a pool."""

    def connect_check_health(self, *args: Any, **kwargs: Any) -> None:
        # A command on a connection that was lost calls this, and not ``connect``.
        with ours_as_cause():
            super().connect_check_health(*args, **kwargs)


class AsyncRdmaConnection(AsyncBridged, redis.asyncio.connection.Connection):
    """A connection of redis-py's asyncio client over RDMA."""

    async def connect_check_health(self, *args: Any, **kwargs: Any) -> None:
        with ours_as_cause():
            await super().connect_check_health(*args, **kwargs)


def from_url(url: str, **kwargs: Any) -> "redis.Redis":
    """A client for a URL such as ``rdma://user:password@10.0.0.7:6379/0?rx_size=1048576``."""
    scheme, theirs, options = split_url(url)
    return redis.Redis.from_url(
        theirs, connection_class=RdmaConnection, scheme=scheme, options=options, **kwargs
    )


def async_from_url(url: str, **kwargs: Any) -> "redis.asyncio.Redis":
    """As ``from_url``, for asyncio."""
    scheme, theirs, options = split_url(url)
    return redis.asyncio.Redis.from_url(
        theirs,
        connection_class=AsyncRdmaConnection,
        scheme=scheme,
        options=options,
        **kwargs,
    )

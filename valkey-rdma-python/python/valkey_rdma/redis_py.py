"""redis-py over RDMA: redis-py's clients with connection classes of this package.

    import redis
    from valkey_rdma.redis_py import RdmaConnection

    client = redis.from_url("redis://10.0.0.7:6379", connection_class=RdmaConnection)

``Redis``, ``AsyncRedis``, ``from_url`` and ``async_from_url`` take URLs of this package instead.
"""

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.connection
import redis.asyncio.sentinel
import redis.connection
import redis.sentinel

from ._bridge import AsyncBridged, Bridged, BridgedClient, ours_as_cause

__all__ = [
    "AsyncRdmaConnection",
    "AsyncRedis",
    "AsyncSentinelRdmaConnection",
    "RdmaConnection",
    "Redis",
    "SentinelRdmaConnection",
    "async_from_url",
    "from_url",
]


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


class SentinelRdmaConnection(RdmaConnection, redis.sentinel.SentinelManagedConnection):
    """The ``connection_class`` of redis-py's ``Sentinel(...).master_for`` and ``slave_for``. The Sentinels are asked over TCP."""


class AsyncSentinelRdmaConnection(AsyncRdmaConnection, redis.asyncio.sentinel.SentinelManagedConnection):
    """The ``connection_class`` of ``master_for`` and ``slave_for`` of redis-py's asyncio ``Sentinel``."""


class Redis(BridgedClient, redis.Redis):
    """redis-py's client over RDMA. ``scheme`` and ``options`` are those of ``RdmaConnection``, all other arguments redis-py's."""

    _connection_class, _theirs, _their_scheme = RdmaConnection, redis.Redis, "redis"


class AsyncRedis(BridgedClient, redis.asyncio.Redis):  # type: ignore[misc]
    """As ``Redis``, for asyncio."""

    _connection_class, _theirs, _their_scheme = AsyncRdmaConnection, redis.asyncio.Redis, "redis"


def from_url(url: str, **kwargs: Any) -> Redis:
    """A client for a URL such as ``rdma://user:password@10.0.0.7:6379/0?rx_size=1048576``."""
    client: Redis = Redis.from_url(url, **kwargs)
    return client


def async_from_url(url: str, **kwargs: Any) -> AsyncRedis:
    """As ``from_url``, for asyncio."""
    client: AsyncRedis = AsyncRedis.from_url(url, **kwargs)
    return client

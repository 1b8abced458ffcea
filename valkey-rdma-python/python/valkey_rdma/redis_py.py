"""redis-py over RDMA: redis-py's clients with connection classes of this package.

    import redis
    from valkey_rdma.redis_py import RdmaConnection

    client = redis.from_url("redis://10.0.0.7:6379", connection_class=RdmaConnection)

``Redis``, ``AsyncRedis``, ``from_url`` and ``async_from_url`` take URLs of this package instead.
"""

import redis
import redis.asyncio
import redis.asyncio.connection
import redis.asyncio.sentinel
import redis.connection
import redis.sentinel

from ._bridge import AsyncBridged, Bridged, BridgedClient

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


class AsyncRdmaConnection(AsyncBridged, redis.asyncio.connection.Connection):
    """A connection of redis-py's asyncio client over RDMA."""


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


from_url = Redis.from_url
async_from_url = AsyncRedis.from_url

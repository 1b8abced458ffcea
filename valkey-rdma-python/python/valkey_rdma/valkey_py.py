"""valkey-py over RDMA: valkey-py's clients with connection classes of this package.

    import valkey
    from valkey_rdma.valkey_py import RdmaConnection

    client = valkey.from_url("valkey://10.0.0.7:6379", connection_class=RdmaConnection)

``Valkey``, ``AsyncValkey``, ``from_url`` and ``async_from_url`` take URLs of this package instead.
"""

import valkey
import valkey.asyncio
import valkey.asyncio.connection
import valkey.asyncio.sentinel
import valkey.connection
import valkey.sentinel

from ._bridge import AsyncBridged, Bridged, BridgedClient

__all__ = [
    "AsyncRdmaConnection",
    "AsyncSentinelRdmaConnection",
    "AsyncValkey",
    "RdmaConnection",
    "SentinelRdmaConnection",
    "Valkey",
    "async_from_url",
    "from_url",
]


class RdmaConnection(Bridged, valkey.connection.Connection):
    """A connection of valkey-py over RDMA: the ``connection_class`` of a pool."""


class AsyncRdmaConnection(AsyncBridged, valkey.asyncio.connection.Connection):
    """A connection of valkey-py's asyncio client over RDMA."""


class SentinelRdmaConnection(RdmaConnection, valkey.sentinel.SentinelManagedConnection):
    """The ``connection_class`` of valkey-py's ``Sentinel(...).master_for`` and ``slave_for``. The Sentinels are asked over TCP."""


class AsyncSentinelRdmaConnection(AsyncRdmaConnection, valkey.asyncio.sentinel.SentinelManagedConnection):
    """The ``connection_class`` of ``master_for`` and ``slave_for`` of valkey-py's asyncio ``Sentinel``."""


class Valkey(BridgedClient, valkey.Valkey):
    """valkey-py's client over RDMA. ``scheme`` and ``options`` are those of ``RdmaConnection``, all other arguments valkey-py's."""

    _connection_class, _theirs, _their_scheme = RdmaConnection, valkey.Valkey, "valkey"


class AsyncValkey(BridgedClient, valkey.asyncio.Valkey):  # type: ignore[misc]
    """As ``Valkey``, for asyncio."""

    _connection_class, _theirs, _their_scheme = AsyncRdmaConnection, valkey.asyncio.Valkey, "valkey"


from_url = Valkey.from_url
async_from_url = AsyncValkey.from_url

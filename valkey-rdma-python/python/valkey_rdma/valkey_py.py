"""valkey-py over RDMA: valkey-py's clients with connection classes of this package.

    import valkey
    from valkey_rdma.valkey_py import RdmaConnection

    client = valkey.from_url("valkey://10.0.0.7:6379", connection_class=RdmaConnection)

``from_url`` and ``async_from_url`` take URLs of this package instead.
"""

from typing import Any

import valkey
import valkey.asyncio
import valkey.asyncio.connection
import valkey.connection

from ._bridge import AsyncBridged, Bridged, split_url

__all__ = ["AsyncRdmaConnection", "RdmaConnection", "async_from_url", "from_url"]


class RdmaConnection(Bridged, valkey.connection.Connection):
    """A connection of valkey-py over RDMA: the ``connection_class`` of a pool."""


class AsyncRdmaConnection(AsyncBridged, valkey.asyncio.connection.Connection):
    """A connection of valkey-py's asyncio client over RDMA."""


def from_url(url: str, **kwargs: Any) -> "valkey.Valkey":
    """A client for a URL such as ``rdma://user:password@10.0.0.7:6379/0?rx_size=1048576``."""
    scheme, theirs, options = split_url(url)
    client: valkey.Valkey = valkey.Valkey.from_url(
        theirs.replace("redis://", "valkey://"), connection_class=RdmaConnection, scheme=scheme, options=options, **kwargs
    )
    return client


def async_from_url(url: str, **kwargs: Any) -> "valkey.asyncio.Valkey":
    """As ``from_url``, for asyncio."""
    scheme, theirs, options = split_url(url)
    return valkey.asyncio.Valkey.from_url(
        theirs.replace("redis://", "valkey://"),
        connection_class=AsyncRdmaConnection,
        scheme=scheme,
        options=options,
        **kwargs,
    )

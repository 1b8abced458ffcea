"""What the connection classes for redis-py and valkey-py share."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from ._native import connect_socket
from .errors import Error, UrlError


class Bridged:
    """A connection whose bytes go over RDMA: a background thread copies them between a local socket and the RDMA connection.

    ``scheme`` is that of the URLs of this package: ``rdma``, or ``valkey`` for TCP. ``options`` are the options of such a URL,
    such as ``{"rx_size": 1048576}``. Every other argument is as for the client library's own ``Connection``.
    """

    host: str
    port: int
    socket_connect_timeout: float | None
    socket_timeout: float | None

    def __init__(self, *args: Any, scheme: str = "rdma", options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        refuse_sentinels(scheme)
        self.scheme = scheme
        self.options = dict(options or {})
        super().__init__(*args, **kwargs)

    def _url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = dict(self.options)
        if self.socket_connect_timeout is not None:
            options.setdefault("timeout", f"{max(1, round(self.socket_connect_timeout * 1000))}ms")
        query = f"?{urlencode(options)}" if options else ""
        return f"{self.scheme}://{host}:{self.port}{query}"

    def connect(self) -> None:
        with ours_as_cause():
            super().connect()  # type: ignore[misc]

    def _connect(self) -> socket.socket:
        connection = socket.socket(fileno=connect_socket(self._url()))
        connection.settimeout(self.socket_timeout)
        return connection


class AsyncBridged(Bridged):
    """As ``Bridged``, for asyncio."""

    _reader: Any
    _writer: Any

    async def connect(self) -> None:  # type: ignore[override]
        with ours_as_cause():
            # Of the client library: the class between is for threads.
            await super(Bridged, self).connect()  # type: ignore[misc]

    async def _connect(self) -> None:  # type: ignore[override]
        connecting = asyncio.get_running_loop().run_in_executor(None, connect_socket, self._url())
        try:
            descriptor = await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_close)
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))


def _close(connecting: "asyncio.Future[int]") -> None:
    """Closes a connection that is not wanted any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        os.close(connecting.result())


@contextlib.contextmanager
def ours_as_cause() -> Iterator[None]:
    """Names our error as the cause of the client library's, which is raised in its place."""
    try:
        yield
    except Exception as error:
        if error.__cause__ is None and isinstance(error.__context__, Error):
            error.__cause__ = error.__context__
        raise


def refuse_sentinels(scheme: str) -> None:
    """Raises ``UrlError`` for the scheme of a URL that names Sentinels: the bridge connects to one address."""
    if scheme.endswith("+sentinel"):
        raise UrlError(
            f"{scheme}:// cannot be used with redis-py and valkey-py: give the address of a server, such as rdma://host:port, which their "
            "Sentinel(...).discover_master(service) finds; valkey_rdma.Client takes this URL, and follows failovers"
        )


def split_url(url: str) -> tuple[str, str, dict[str, str]]:
    """The scheme of a URL, the URL as ``redis://`` without its options, and its options."""
    parts = urlsplit(url)
    refuse_sentinels(parts.scheme)
    return parts.scheme, f"redis://{parts.netloc}{parts.path}", dict(parse_qsl(parts.query))

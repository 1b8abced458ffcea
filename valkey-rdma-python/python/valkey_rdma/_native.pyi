"""The native part of `valkey_rdma`: its classes are exported by the package."""

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, final

from typing_extensions import Buffer, Self

Argument: TypeAlias = str | int | float | Buffer
Key: TypeAlias = str | Buffer
Kind: TypeAlias = Literal["channel", "pattern", "shard"]
Urls: TypeAlias = str | Iterable[str]

class _Array(Protocol):
    """An array of numpy's, whose stubs declare the buffer from Python 3.12 on only."""

    @property
    def __array_interface__(self) -> Any: ...

class _Tensor(Protocol):
    """A tensor of torch's, in this machine's memory."""

    def untyped_storage(self) -> Any: ...

Memory: TypeAlias = Buffer | _Array | _Tensor

__version__: str

def check_url(url: str) -> None:
    """Raises ``UrlError`` if the URL of a server is invalid. Connects to nothing."""

def connect_socket(url: str) -> int:
    """Connects to the server of a URL and returns one end of a Unix socket pair, which stands for the connection."""

def connect_socket_async(url: str) -> Future[int]:
    """As ``connect_socket``, for asyncio: returns a future of the descriptor. Cancelling it ends the attempt."""

class Client:
    """A client whose calls wait for their replies, with Python's lock released. Any number of threads may share it."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 1,
        lanes: int = 4,
        timeout: float | None = 30.0,
        offline_timeout: float | None = 10.0,
        reconnect: bool = True,
        retries: int = 3,
        name: str | None = None,
    ) -> None: ...
    def command(self, *arguments: Argument, timeout: float | None = None) -> Any: ...
    def blocking_command(self, *arguments: Argument, timeout: float | None = None) -> Any: ...
    def pipeline(self) -> Pipeline: ...
    def get_into(self, key: Key, buffer: Memory, *, timeout: float | None = None) -> int | None: ...
    def mget_into(
        self, keys: Iterable[Key], buffers: Iterable[Memory], *, timeout: float | None = None
    ) -> list[int | None]: ...
    def set_from(
        self, key: Key, buffer: Memory, *, ttl: float | None = None, timeout: float | None = None
    ) -> None: ...
    def mset_from(
        self,
        keys: Iterable[Key],
        buffers: Iterable[Memory],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def exists_many(self, keys: Iterable[Key], *, timeout: float | None = None) -> list[bool]: ...
    def delete_many(self, keys: Iterable[Key], *, timeout: float | None = None) -> list[bool]: ...
    def register(self, buffer: Memory) -> Registration: ...
    def subscriber(self) -> Subscriber: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class ClusterClient(Client):
    """A client of a Valkey Cluster, with the methods of ``Client``. ``connections`` and ``lanes`` are those to each node."""

    def __init__(
        self,
        urls: Urls,
        *,
        connections: int = 1,
        lanes: int = 4,
        timeout: float | None = 30.0,
        offline_timeout: float | None = 10.0,
        retries: int = 3,
        name: str | None = None,
        read_from: str = "primary",
    ) -> None: ...

@final
class Registration:
    """Memory that a client sends values from without a copy."""

    @property
    def nbytes(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Pipeline:
    """Commands that are sent together, without waiting for replies in between."""

    def command(self, *arguments: Argument) -> Self: ...
    def execute(self, *, raise_on_error: bool = True, timeout: float | None = None) -> list[Any]: ...
    def __len__(self) -> int: ...

@final
class Subscriber:
    """Subscriptions on a connection of their own."""

    def subscribe(self, *names: Key, kind: Kind = "channel") -> None: ...
    def unsubscribe(self, *names: Key, kind: Kind = "channel") -> None: ...
    def next(self, timeout: float | None = None) -> dict[str, Any] | None: ...
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def __next__(self) -> dict[str, Any]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class AsyncClient:
    """A client for asyncio. Its methods start their operation at once and return a future. On its one connection, commands and pipelines
    run in the order of the calls, as long as it is not lost. There is no order between several ``connections``, between
    nodes of a cluster or before they were connected to, and for calls with buffers, ``blocking_command`` and ``subscriber``."""

    @staticmethod
    def connect(
        url: str,
        *,
        connections: int = 1,
        lanes: int = 4,
        timeout: float | None = 30.0,
        offline_timeout: float | None = 10.0,
        reconnect: bool = True,
        retries: int = 3,
        name: str | None = None,
    ) -> Future[AsyncClient]: ...
    def command(self, *arguments: Argument, timeout: float | None = None) -> Future[Any]: ...
    def blocking_command(self, *arguments: Argument, timeout: float | None = None) -> Future[Any]: ...
    def pipeline(self) -> AsyncPipeline: ...
    def get_into(self, key: Key, buffer: Memory, *, timeout: float | None = None) -> Future[int | None]: ...
    def mget_into(
        self, keys: Iterable[Key], buffers: Iterable[Memory], *, timeout: float | None = None
    ) -> Future[list[int | None]]: ...
    def set_from(
        self, key: Key, buffer: Memory, *, ttl: float | None = None, timeout: float | None = None
    ) -> Future[None]: ...
    def mset_from(
        self,
        keys: Iterable[Key],
        buffers: Iterable[Memory],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Future[None]: ...
    def exists_many(self, keys: Iterable[Key], *, timeout: float | None = None) -> Future[list[bool]]: ...
    def delete_many(self, keys: Iterable[Key], *, timeout: float | None = None) -> Future[list[bool]]: ...
    def register(self, buffer: Memory) -> Registration: ...
    def subscriber(self) -> Future[AsyncSubscriber]: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> Future[None]: ...
    def __aenter__(self) -> Future[Self]: ...
    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Future[None]: ...

@final
class AsyncClusterClient(AsyncClient):
    """A client of a Valkey Cluster for asyncio, with the methods of ``AsyncClient``."""

    @staticmethod
    def connect(  # type: ignore[override]
        urls: Urls,
        *,
        connections: int = 1,
        lanes: int = 4,
        timeout: float | None = 30.0,
        offline_timeout: float | None = 10.0,
        retries: int = 3,
        name: str | None = None,
        read_from: str = "primary",
    ) -> Future[AsyncClusterClient]: ...

@final
class AsyncPipeline:
    """Commands that are sent together, without waiting for replies in between."""

    def command(self, *arguments: Argument) -> Self: ...
    def execute(
        self, *, raise_on_error: bool = True, timeout: float | None = None
    ) -> Future[list[Any]]: ...
    def __len__(self) -> int: ...

@final
class AsyncSubscriber:
    """Subscriptions on a connection of their own, for asyncio."""

    def subscribe(self, *names: Key, kind: Kind = "channel") -> Future[None]: ...
    def unsubscribe(self, *names: Key, kind: Kind = "channel") -> Future[None]: ...
    def next(self, timeout: float | None = None) -> Future[dict[str, Any] | None]: ...
    def close(self) -> Future[None]: ...
    def __aiter__(self) -> AsyncIterator[dict[str, Any]]: ...
    def __anext__(self) -> Awaitable[dict[str, Any]]: ...

class LMCacheClient:
    """A storage connector for LMCache's `native_plugin` L2 adapter."""

    def __init__(
        self,
        url: Urls,
        *,
        connections: int = 8,
        ttl: float | None = None,
        key_prefix: str = "",
        timeout: float | None = 30.0,
        max_pending: int = 1024,
        cluster: bool = False,
        offline_timeout: float | None = 1.0,
    ) -> None: ...
    def event_fd(self) -> int: ...
    def submit_batch_get(self, keys: Sequence[str], bufs: Sequence[Memory]) -> int: ...
    def submit_batch_set(self, keys: Sequence[str], bufs: Sequence[Memory]) -> int: ...
    def submit_batch_exists(self, keys: Sequence[str]) -> int: ...
    def submit_batch_delete(self, keys: Sequence[str]) -> int: ...
    def register(self, buffer: Memory) -> Registration: ...
    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

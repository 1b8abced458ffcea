"""The native part of `valkey_rdma`: its classes are exported by the package. Written by stubs.py: change the Rust code instead."""

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, final

from typing_extensions import Buffer, Self

Argument: TypeAlias = str | int | float | Buffer
Key: TypeAlias = str | Buffer
Kind: TypeAlias = Literal["channel", "pattern", "shard"]
Urls: TypeAlias = str | Iterable[str]
Supplied: TypeAlias = str | tuple[str] | tuple[str | None, str]

class _CredentialProvider(Protocol):
    """As redis-py and valkey-py have it."""

    def get_credentials(self) -> Supplied: ...

Provider: TypeAlias = Callable[[], Supplied] | _CredentialProvider

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
    """Raises UrlError if the URL of a server is invalid. Connects to nothing."""

def connect_socket(url: str) -> int:
    """Connects to the server of a URL and returns one end of a Unix socket pair, which stands for the connection: its bytes are the
    server's. Nothing is logged in. The caller closes it."""

def connect_socket_async(url: str) -> Future[int]:
    """As ``connect_socket``, for asyncio: returns a future of the descriptor. Cancelling it ends the attempt."""

def password_in_file(path: str) -> str:
    """The password in a file that holds nothing else. Raises ConnectError if there is none."""

def url_options() -> list[str]:
    """The names of the options that the URL of a server can have."""

class AsyncClient:
    """A client for asyncio: ``client = await AsyncClient.connect(url)``. Its methods start their operation at once and return a future of
    their result.

    Commands and pipelines run in the order of the calls, without an await between them: on its one connection, as long as that is not
    lost. There is no order between ``connections`` if there are several, between the nodes of a cluster or
    before they were connected to, and between these calls and those that have connections of their own: with buffers, ``blocking_command``,
    ``subscriber``, and commands such as ``SCRIPT KILL``, which must not wait behind the script.

    It belongs to the loop that was running in ``connect``. Cancelled calls with buffers, and cancelled blocking commands, stop, and
    close their connection: when the await returns, the buffers are free. A value that was being set may be set. Other cancelled calls
    go on, and their replies are dropped."""

    @staticmethod
    def connect(url: str, *, connections: int=1, lanes: int=4, timeout: float | None=30.0, offline_timeout: float | None=10.0, reconnect: bool=True, retries: int=3, name: str | None=None, credentials: Provider | None=None) -> Future[AsyncClient]:
        """Connects. The arguments are those of ``Client``."""

    def __aenter__(self) -> Future[Self]: ...

    def __aexit__(self, *_exception: object) -> Future[None]: ...

    def blocking_command(self, *arguments: Argument, timeout: float | None=None) -> Future[Any]:
        """Sends a blocking command, such as BLPOP, on a connection of its own."""

    def close(self) -> Future[None]:
        """Closes all connections, after the replies to what was sent, which it waits for up to 3 s. No buffer is in use when it is done.
        Calls made later raise ``ClosedError``, and so do calls that are cut off. A signal handler that closes a ``Client`` during a call
        does not wait: the call raises when the handler has returned."""

    def command(self, *arguments: Argument, timeout: float | None=None) -> Future[Any]:
        """Sends a command, given as its name and arguments. The result is its reply.

        Small commands of all callers share its connection, and wait behind a large value until all of it has arrived or was sent: use
        ``get_into`` and ``set_from`` for those."""

    def delete_many(self, keys: Iterable[Key], *, timeout: float | None=None) -> Future[list[bool]]:
        """Deletes keys; the server frees their memory in the background. The result says of each key whether it existed."""

    def exists_many(self, keys: Iterable[Key], *, timeout: float | None=None) -> Future[list[bool]]:
        """Whether each key exists."""

    def get_into(self, key: Key, buffer: Memory, *, timeout: float | None=None) -> Future[int | None]:
        """Reads a value into a writable buffer, without a copy in between.

        The result is the length of the value, or None if the key does not exist; the buffer is untouched then, unless a connection was
        lost meanwhile."""

    def info(self) -> dict[str, Any]:
        """Describes the connection: transport, device, windows, TLS; and why it is not RDMA, if it should be. Of a cluster: its nodes,
        and the connection to each."""

    def mget_into(self, keys: Iterable[Key], buffers: Iterable[Memory], *, timeout: float | None=None) -> Future[list[int | None]]:
        """Reads many values, each into its buffer. The result is the list of their lengths, with None for each key that does not exist."""

    def mset_from(self, keys: Iterable[Key], buffers: Iterable[Memory], *, ttl: float | None=None, timeout: float | None=None) -> Future[None]:
        """Sets many values, each from its buffer."""

    def pipeline(self) -> AsyncPipeline:
        """Begins a pipeline: commands that are sent together."""

    def register(self, buffer: Memory, *, direct: bool=True) -> Registration:
        """Registers memory, for values of 64 KiB and more that later calls with buffers inside of it move. If the server offers direct
        transfers, its adapter writes and reads them there; ``stats()`` counts these, and says why others went over the
        stream. Over RDMA, ``set_from`` and ``mset_from`` send from it without a copy in any case. Over TCP this changes nothing.

        Each connection registers it with the device when it first needs that, which pins it. The server can then read and write all of it
        until that connection has ended. With ``direct=False``, and if it is read-only, values are only sent from it."""

    def set_from(self, key: Key, buffer: Memory, *, ttl: float | None=None, timeout: float | None=None) -> Future[None]:
        """Sets a value from a buffer, without a copy in between. The buffer must not change until the value is set. ``ttl`` is in seconds."""

    def stats(self) -> dict[str, Any]:
        """Counters of the client, and of each of its connections. Of a cluster also redirections, and the node of each connection."""

    def subscriber(self) -> Future[AsyncSubscriber]:
        """Opens a connection for subscriptions."""

@final
class AsyncClusterClient(AsyncClient):
    """A client of a Valkey Cluster for asyncio: ``await AsyncClusterClient.connect(["rdma://10.0.0.1:6379"])``. Its methods are those of
    ``AsyncClient``, and it finds nodes as ``ClusterClient`` does."""

    @staticmethod
    def connect(urls: Urls, *, connections: int=1, lanes: int=4, timeout: float | None=30.0, offline_timeout: float | None=10.0, retries: int=3, name: str | None=None, credentials: Provider | None=None, read_from: str='primary') -> Future[AsyncClusterClient]:  # type: ignore[override]
        """Connects. The arguments are those of ``ClusterClient``."""

@final
class AsyncPipeline:
    """Commands that are sent together, without waiting for replies in between."""

    def __len__(self) -> int: ...

    def command(self, *arguments: Argument) -> Self:
        """Adds a command, given as its name and arguments."""

    def execute(self, *, raise_on_error: bool=True, timeout: float | None=None) -> Future[list[Any]]:
        """Sends the commands. The result is the list of replies. It raises the first error reply, or with ``raise_on_error=False`` has it in
        its place. The pipeline is empty afterwards."""

@final
class AsyncSubscriber:
    """Subscriptions on a connection of their own, for asyncio: ``async for event in subscriber``. Events are as ``Subscriber`` returns
    them."""

    def __aiter__(self) -> Self: ...

    def __anext__(self) -> Awaitable[dict[str, Any]]: ...

    def close(self) -> Future[None]:
        """Closes the connection."""

    def next(self, timeout: float | None=None) -> Future[dict[str, Any] | None]:
        """The next event; None if there is none within ``timeout`` seconds. A cancelled call loses no event."""

    def subscribe(self, *names: Key, kind: Kind='channel') -> Future[None]:
        """Subscribes to channels by name; with ``kind="pattern"`` to patterns, with ``kind="shard"`` to shard channels."""

    def unsubscribe(self, *names: Key, kind: Kind='channel') -> Future[None]:
        """Ends subscriptions."""

class Client:
    """A client whose calls wait for their replies, with Python's lock released. Any number of threads may share it.

    Small commands of all threads share ``connections`` connections. Buffers go over up to ``lanes`` further ones, made when needed.

    A client belongs to the process that made it: after a fork, calls in the child raise ``ForkedError``.

    A subclass connects with ``super().__init__(url)``, and takes what arguments it likes."""

    def __init__(self, url: str, *, connections: int=1, lanes: int=4, timeout: float | None=30.0, offline_timeout: float | None=10.0, reconnect: bool=True, retries: int=3, name: str | None=None, credentials: Provider | None=None) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def blocking_command(self, *arguments: Argument, timeout: float | None=None) -> Any:
        """Sends a blocking command, such as BLPOP, on a connection of its own."""

    def close(self) -> None:
        """Closes all connections, after the replies to what was sent, which it waits for up to 3 s. No buffer is in use when it is done.
        Calls made later raise ``ClosedError``, and so do calls that are cut off. A signal handler that closes a ``Client`` during a call
        does not wait: the call raises when the handler has returned."""

    def command(self, *arguments: Argument, timeout: float | None=None) -> Any:
        """Sends a command, given as its name and arguments. The result is its reply.

        Small commands of all callers share its connection, and wait behind a large value until all of it has arrived or was sent: use
        ``get_into`` and ``set_from`` for those."""

    def delete_many(self, keys: Iterable[Key], *, timeout: float | None=None) -> list[bool]:
        """Deletes keys; the server frees their memory in the background. The result says of each key whether it existed."""

    def exists_many(self, keys: Iterable[Key], *, timeout: float | None=None) -> list[bool]:
        """Whether each key exists."""

    def get_into(self, key: Key, buffer: Memory, *, timeout: float | None=None) -> int | None:
        """Reads a value into a writable buffer, without a copy in between.

        The result is the length of the value, or None if the key does not exist; the buffer is untouched then, unless a connection was
        lost meanwhile."""

    def info(self) -> dict[str, Any]:
        """Describes the connection: transport, device, windows, TLS; and why it is not RDMA, if it should be. Of a cluster: its nodes,
        and the connection to each."""

    def mget_into(self, keys: Iterable[Key], buffers: Iterable[Memory], *, timeout: float | None=None) -> list[int | None]:
        """Reads many values, each into its buffer. The result is the list of their lengths, with None for each key that does not exist."""

    def mset_from(self, keys: Iterable[Key], buffers: Iterable[Memory], *, ttl: float | None=None, timeout: float | None=None) -> None:
        """Sets many values, each from its buffer."""

    def pipeline(self) -> Pipeline:
        """Begins a pipeline: commands that are sent together."""

    def register(self, buffer: Memory, *, direct: bool=True) -> Registration:
        """Registers memory, for values of 64 KiB and more that later calls with buffers inside of it move. If the server offers direct
        transfers, its adapter writes and reads them there; ``stats()`` counts these, and says why others went over the
        stream. Over RDMA, ``set_from`` and ``mset_from`` send from it without a copy in any case. Over TCP this changes nothing.

        Each connection registers it with the device when it first needs that, which pins it. The server can then read and write all of it
        until that connection has ended. With ``direct=False``, and if it is read-only, values are only sent from it."""

    def set_from(self, key: Key, buffer: Memory, *, ttl: float | None=None, timeout: float | None=None) -> None:
        """Sets a value from a buffer, without a copy in between. The buffer must not change until the value is set. ``ttl`` is in seconds."""

    def stats(self) -> dict[str, Any]:
        """Counters of the client, and of each of its connections. Of a cluster also redirections, and the node of each connection."""

    def subscriber(self) -> Subscriber:
        """Opens a connection for subscriptions."""

class ClusterClient(Client):
    """A client of a Valkey Cluster, with the methods of ``Client``: ``ClusterClient(["rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379"])``.

    The URLs name nodes of the cluster; one that answers is enough. Commands, and each key of a batch, go to the node that serves the
    key, and follow it when its slot moves or its node fails over. ``connections`` and ``lanes`` are those to each node. ``read_from``
    says which nodes answer commands that only read: ``"primary"``, ``"prefer-replica"``, ``"round-robin"``, or ``"zone:NAME"`` for
    an availability zone. Replicas may be behind. Batches of buffers are always read from primaries."""

    def __init__(self, urls: Urls, *, connections: int=1, lanes: int=4, timeout: float | None=30.0, offline_timeout: float | None=10.0, retries: int=3, name: str | None=None, credentials: Provider | None=None, read_from: str='primary') -> None: ...

class LMCacheClient:
    """A storage connector for LMCache: ``{"type": "native_plugin", "module_path": "valkey_rdma", "class_name": "LMCacheClient"}``.

    ``submit_batch_get``, ``_set``, ``_exists`` and ``_delete`` return a number at once. The descriptor ``event_fd()`` is readable
    while ``drain_completions()`` has something to return: tuples of that number, whether all keys succeeded, an error text, and a bool
    for each key. A get succeeds if the value has exactly the length of its buffer; otherwise the buffer is untouched, unless a shorter
    value came directly.

    Parameters: ``url``; ``connections``, over which batches are spread; ``ttl`` in seconds; ``key_prefix``; ``timeout`` in seconds for
    a batch; ``max_pending``, the batches that may be in flight: one more raises BlockingIOError; ``cluster``: with True, ``url`` is a
    node of a cluster, or a list of them, and ``connections`` counts those to each node; ``offline_timeout``, the seconds for which batches
    wait for a server that is away, or that reads its data after a restart, before they fail: less than LMCache waits for a lookup, which then costs a recomputation;
    ``credentials``, as of ``Client``: what supplies user and password for each connection."""

    def __init__(self, url: Urls, *, connections: int=8, ttl: float | None=None, key_prefix: str='', timeout: float | None=30.0, max_pending: int=1024, cluster: bool=False, offline_timeout: float | None=1.0, credentials: Provider | None=None) -> None: ...

    def close(self) -> None:
        """Stops the batches in flight and closes the connections. No buffer is in use any more when it returns, and
        ``drain_completions()`` returns the batches that were stopped as failed."""

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]:
        """Takes the batches that are done."""

    def event_fd(self) -> int:
        """An eventfd, which is readable while completions wait."""

    def info(self) -> dict[str, Any]:
        """Describes the connection."""

    def register(self, buffer: Memory, *, direct: bool=True) -> Registration:
        """Registers memory, as ``Client.register`` does: batches of values in it go directly where the server offers that."""

    def stats(self) -> dict[str, Any]:
        """Counters, and the batches in flight."""

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Starts deleting keys. The outcome of each says whether it existed."""

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Starts looking whether keys exist. It does not wait for batches of large values."""

    def submit_batch_get(self, keys: Sequence[str], bufs: Sequence[Memory]) -> int:
        """Starts reading each value into its buffer."""

    def submit_batch_set(self, keys: Sequence[str], bufs: Sequence[Memory]) -> int:
        """Starts setting values from buffers, which must not change until the batch is done."""

@final
class Pipeline:
    """Commands that are sent together, without waiting for replies in between."""

    def __len__(self) -> int: ...

    def command(self, *arguments: Argument) -> Self:
        """Adds a command, given as its name and arguments."""

    def execute(self, *, raise_on_error: bool=True, timeout: float | None=None) -> list[Any]:
        """Sends the commands. The result is the list of replies. It raises the first error reply, or with ``raise_on_error=False`` has it in
        its place. The pipeline is empty afterwards."""

@final
class Registration:
    """Memory that values are moved to and from without a copy, made by ``register``. ``with`` ends it, and so does ``close()``.

    The object cannot be resized or freed until the registration and the connections that have used it are closed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def close(self) -> None:
        """Ends the registration. Values are copied again in later calls; those in flight go on. In a forked child, it does nothing."""

    @property
    def nbytes(self) -> int:
        """The length of the memory in bytes."""

@final
class Subscriber:
    """Subscriptions on a connection of their own. Iterate over it, or call ``next``.

    Events are dictionaries. ``{"type": "message", "channel": b"...", "pattern": None, "payload": b"..."}`` is a message. The types
    ``"missed"`` (with ``count``: messages dropped because this program was too slow), ``"reconnected"`` (messages in between are lost),
    ``"refused"`` (with ``name`` and ``error``) and ``"login_refused"`` (with ``error``: the server refuses the login for the next
    connection, which is tried again) report what a program that must not miss anything needs to know."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_exception: object) -> None: ...

    def __iter__(self) -> Self: ...

    def __next__(self) -> dict[str, Any]: ...

    def close(self) -> None:
        """Closes the connection."""

    def next(self, timeout: float | None=None) -> dict[str, Any] | None:
        """The next event; None if there is none within ``timeout`` seconds. A cancelled call loses no event."""

    def subscribe(self, *names: Key, kind: Kind='channel') -> None:
        """Subscribes to channels by name; with ``kind="pattern"`` to patterns, with ``kind="shard"`` to shard channels."""

    def unsubscribe(self, *names: Key, kind: Kind='channel') -> None:
        """Ends subscriptions."""

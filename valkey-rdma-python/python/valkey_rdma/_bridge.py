"""What the connection classes and clients for redis-py and valkey-py share."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ._encryption import encrypted, is_theirs
from ._native import check_url, connect_socket, connect_socket_async, password_in_file, url_options
from .errors import ConnectTimeoutError, Error, UrlError

if TYPE_CHECKING:
    from typing_extensions import Self

#: The options of a URL that are the bridge's. All others are the client library's, and so are the protocol and the database, which it
#: chooses.
OPTIONS = frozenset(url_options()) - {"protocol", "db"}


class Bridged:
    """A connection whose bytes go over RDMA: a background thread copies them between a local socket and the RDMA connection.

    ``scheme`` is that of the URLs of this package: ``rdma``, or ``valkey`` for TCP. ``options`` are the options of such a URL,
    such as ``{"rx_size": 1048576}``; the file in ``password_file`` is read for each connect. ``ssl`` and the arguments that start with it mean what they mean to the client library's own
    ``SSLConnection``. Every other argument is as for its ``Connection``.
    """

    host: str
    port: int
    socket_connect_timeout: float | None
    socket_timeout: float | None
    #: With which the client library logs in.
    password: str | None

    def __init__(self, *args: Any, scheme: str = "rdma", options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.scheme, self.options = encrypted(scheme, options, kwargs)
        check(self.scheme, self.options)
        if "password_file" in self.options and (kwargs.get("password") or kwargs.get("credential_provider")):
            raise UrlError("there are a password and a file with a password for the same login: leave out one of them")
        try:
            super().__init__(*args, **kwargs)
        except TypeError as error:
            # The pool of the other library passes arguments of its own.
            raise TypeError(
                f"{error}: this is {type(self).__module__}.{type(self).__name__}, which takes what the Connection of its library takes, "
                "scheme and options; classes of valkey_rdma.redis_py are for redis-py, those of valkey_rdma.valkey_py for valkey-py"
            ) from error

    def _url(self) -> str:
        """Where to connect now. The password may have changed since the last time."""
        options = dict(self.options)
        if "password_file" in options:
            self.password = password_in_file(str(options.pop("password_file")))
        limit = self.socket_connect_timeout
        if limit is not None:
            if limit <= 0:
                raise ConnectTimeoutError(
                    f"no connection can be made within socket_connect_timeout={limit}: give more, or None for the URL's own timeout"
                )
            options.setdefault("timeout", f"{max(1, round(limit * 1000))}ms")
        return f"{self.scheme}://{in_url(self.host)}:{self.port}{query(options)}"

    def _error_message(self, error: BaseException) -> str:
        """The text of the client library's ``ConnectionError``, with the number of the operating system's error where it has one."""
        if not isinstance(error, Error):
            return super()._error_message(error)  # type: ignore[misc, no-any-return]
        number = getattr(error, "errno", None)
        return str(error) if number is None else str(error).replace("cannot connect", f"Error {number} connecting", 1)

    def connect(self) -> None:
        with ours_as_cause():
            super().connect()  # type: ignore[misc]

    def connect_check_health(self, *args: Any, **kwargs: Any) -> None:
        """Of redis-py: a command on a connection that was lost calls this, and not ``connect``."""
        with ours_as_cause():
            super().connect_check_health(*args, **kwargs)  # type: ignore[misc]

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

    async def connect_check_health(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        with ours_as_cause():
            await super(Bridged, self).connect_check_health(*args, **kwargs)  # type: ignore[misc]

    async def _connect(self) -> None:  # type: ignore[override]
        connecting = connect_socket_async(self._url())
        try:
            descriptor = await connecting
        except BaseException:
            # The connection may have come in the loop's turn in which its task was cancelled.
            if not connecting.cancel() and not connecting.cancelled() and connecting.exception() is None:
                os.close(connecting.result())
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))


class BridgedClient:
    """A client of the library whose pool has connections of this package. It takes ``scheme`` and ``options`` as they do, and every
    other argument of the library's own client.
    """

    _connection_class: type
    #: The library's client, and the scheme of its URLs.
    _theirs: Any
    _their_scheme: str

    def __init__(
        self,
        *args: Any,
        scheme: str = "rdma",
        options: dict[str, Any] | None = None,
        connection_pool: Any = None,
        single_connection_client: bool = False,
        **kwargs: Any,
    ) -> None:
        own_pool = connection_pool is None
        if own_pool:
            scheme, options = encrypted(scheme, options, kwargs)
            check(scheme, options)
            if kwargs.get("unix_socket_path"):
                raise UrlError("Unix sockets are not supported here: leave unix_socket_path out")
            # The library's client knows the defaults of all arguments. It connects nothing.
            template = self._theirs(*args, **kwargs)
            # It ends here, and its pool goes on.
            template.auto_close_connection_pool = False
            connection_pool = template.connection_pool
            args, kwargs = (), {}
            connection_pool.connection_class = self._connection_class
            connection_pool.connection_kwargs.update(scheme=scheme, options=options)
        super().__init__(  # type: ignore[call-arg]
            *args, connection_pool=connection_pool, single_connection_client=single_connection_client, **kwargs
        )
        self.auto_close_connection_pool = own_pool

    @classmethod
    def from_url(cls, url: str, **kwargs: Any) -> "Self":
        """A client for a URL of this package, such as ``rdma://user:password@10.0.0.7:6379/0?rx_size=1048576``. Options that are not
        this package's are the library's, as in ``?decode_responses=True``."""
        has_login = "password" in kwargs or "credential_provider" in kwargs
        scheme, theirs, options = split_url(url, cls._their_scheme, kwargs.pop("scheme", None), has_login)
        # As in the client library, the URL comes before the arguments.
        kwargs |= {name: options.pop(name) for name in list(options) if is_theirs(name)}
        options |= kwargs.pop("options", None) or {}
        scheme, options = encrypted(scheme, options, kwargs)
        ours = {"connection_class": cls._connection_class, "scheme": scheme, "options": options}
        check(scheme, options)
        return super().from_url(theirs, **ours, **kwargs)  # type: ignore[misc, no-any-return]


@contextlib.contextmanager
def ours_as_cause() -> Iterator[None]:
    """Names our error as the cause of the client library's, which is raised in its place."""
    try:
        yield
    except Exception as error:
        if error.__cause__ is None and isinstance(error.__context__, Error):
            error.__cause__ = error.__context__
        raise


def check(scheme: str, options: dict[str, Any] | None) -> None:
    """Raises ``UrlError`` if no connection could have them."""
    if scheme.endswith("+sentinel"):
        raise UrlError(
            f"{scheme}:// cannot be used with redis-py and valkey-py: give the address of a server, such as rdma://host:port, or their "
            "Sentinel([...]).master_for(service, connection_class=SentinelRdmaConnection); valkey_rdma.Client takes this URL, and "
            "follows failovers"
        )
    if scheme in ("unix", "redis+unix", "valkey+unix"):
        raise UrlError("Unix sockets are not supported here: give the address of a server, such as rdma://host:port; valkey_rdma.Client takes them")
    check_url(f"{scheme}://localhost{query(options)}")


def in_url(host: str) -> str:
    """A host as it stands in a URL: an IPv6 address in brackets, and the ``%`` before its interface as RFC 6874 asks."""
    return f"[{host.replace('%', '%25', 1)}]" if ":" in host else host


def query(options: dict[str, Any] | None) -> str:
    """Options as the end of a URL."""
    return f"?{urlencode(options, quote_via=quote)}" if options else ""


def split_url(url: str, their_scheme: str, instead: str | None, has_login: bool) -> tuple[str, str, dict[str, Any]]:
    """The scheme of a URL, or the one to use ``instead``, the URL for the client library, and the options that are ours or about TLS.

    Raises ``UrlError`` for what ``Client`` refuses too. Otherwise an option without a value, or the first of two with one name, would be
    lost, and the client library would quote a part of a password that is not escaped. A user without a password is right only if the
    program gives the rest of the login: ``has_login``.
    """
    url = url.strip()
    own, _, rest = url.partition("://")
    scheme = instead or own
    if not scheme.endswith("+sentinel"):
        place, _, text = rest.partition("?")
        login, _, after = place.rpartition("@")
        if has_login and ":" not in login:
            place = after
        # The client library's own options are left out, unless they may be a part of a password.
        kept = [option for option in text.split("&") if option.partition("=")[0] in OPTIONS or "@" in option or "#" in option]
        check_url(f"{scheme}://{place}" + ("?" + "&".join(kept) if kept else "") if rest else url)
    try:
        parts = urlsplit(url)
    except ValueError:
        # Its text quotes the login.
        raise UrlError("urllib cannot read this URL: percent-encode the user, the password and the host") from None
    # A '+' is no blank: this is not an HTML form.
    pairs = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UrlError(f'URL option "{twice}" is given twice')
    theirs = {name: value for name, value in options.items() if name not in OPTIONS and not is_theirs(name)}
    # What Client calls resp3 is 3 to them.
    if "protocol" in theirs:
        theirs["protocol"] = theirs["protocol"].removeprefix("resp")
    ours: dict[str, Any] = {name: value for name, value in options.items() if name in OPTIONS or is_theirs(name)}
    return scheme, f"{their_scheme}://{zone_encoded(parts.netloc)}{parts.path}{query(theirs)}", ours


def zone_encoded(netloc: str) -> str:
    """``[fe80::1%eth0]`` as ``[fe80::1%25eth0]``: the client library decodes what follows a ``%``."""
    login, at, place = netloc.rpartition("@")
    host, bracket, port = place.partition("]")
    address, percent, zone = host.partition("%")
    if bracket and percent and (zone == "25" or not zone.startswith("25")):
        host = f"{address}%25{zone}"
    return f"{login}{at}{host}{bracket}{port}"
